//! The placeholder port: takes the place of an interface that cannot be served at the moment.
//!
//! Adjacencies refer to ports by index, so a missing port must keep its index. A placeholder
//! receives and sends no packets: its caller drops and counts the packets for it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use nix::sys::eventfd::{EfdFlags, EventFd};

use crate::{Arena, Frame, Port, PortStats};

/// A port that receives and transmits nothing.
#[derive(Debug)]
pub struct PlaceholderPort {
    name: String,
    mac: [u8; 6],
    mtu: usize,
    /// Never readable, so that it wakes no worker.
    silent: EventFd,
}

impl PlaceholderPort {
    /// Creates the placeholder of an interface, with its name, its hardware address, and its
    /// largest IP packet in bytes.
    ///
    /// # Errors
    ///
    /// The system's error: no descriptor is left.
    pub fn new(name: impl Into<String>, mac: [u8; 6], mtu: usize) -> io::Result<Self> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let silent = EventFd::from_value_and_flags(0, flags)?;
        Ok(Self { name: name.into(), mac, mtu, silent })
    }
}

impl Port for PlaceholderPort {
    fn name(&self) -> &str {
        &self.name
    }

    fn mac(&self) -> [u8; 6] {
        self.mac
    }

    fn mtu(&self) -> usize {
        self.mtu
    }

    fn receive(&mut self, _: &mut Arena, _: usize, _: &mut Vec<Frame>) -> usize {
        0
    }

    fn transmit(&mut self, _: &mut Arena, _: &mut Vec<Frame>) -> usize {
        0
    }

    fn punt(&mut self, _: &Arena, _: &Frame) -> bool {
        false
    }

    fn flush(&mut self, _: &mut Arena) {}

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.silent.as_fd())
    }

    fn stats(&self) -> PortStats {
        PortStats::default()
    }

    fn mode(&self) -> &'static str {
        "absent"
    }
}

#[cfg(test)]
mod tests {
    use super::PlaceholderPort;
    use crate::{Arena, Port};

    #[test]
    fn placeholder_port_takes_no_frame_and_frees_punted_frames() {
        let mut arena = Arena::new(2, 2048).unwrap();
        let mut port = PlaceholderPort::new("eth0", [2; 6], 1500).unwrap();
        let mut frames = vec![arena.copy_in(&[0; 60]).unwrap()];
        assert_eq!(port.transmit(&mut arena, &mut frames), 0);
        assert_eq!((frames.len(), port.receive(&mut arena, 8, &mut Vec::new())), (1, 0));
        let frame = frames.pop().unwrap();
        assert!(!port.punt(&arena, &frame));
        arena.free(frame);
        assert_eq!((arena.available(), port.held()), (2, 0));
    }
}
