//! The refused frames of an interface, on each of the devices that it has had.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use super::Interface;
use crate::af_xdp::RefusedFrames;

/// The counters of an interface, once they are wanted.
#[derive(Debug, Default)]
pub(super) struct Refused(Mutex<Option<Counting>>);

#[derive(Debug)]
struct Counting {
    frames: Arc<RefusedFrames>,
    /// The indexes of the devices, each with its count at the begin.
    devices: Vec<(u32, u64)>,
}

impl Counting {
    fn add(&mut self, index: u32) -> io::Result<()> {
        if self.devices.iter().all(|(device, _)| *device != index) {
            self.frames.add(index)?;
            self.devices.push((index, self.frames.count(index)?));
        }
        Ok(())
    }
}

impl Refused {
    fn begin(&self, frames: &Arc<RefusedFrames>, index: u32) -> io::Result<()> {
        let mut counting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if counting.is_none() {
            let mut new = Counting { frames: Arc::clone(frames), devices: Vec::new() };
            new.add(index)?;
            *counting = Some(new);
        }
        Ok(())
    }

    /// Counts frames of another device, too, if any are counted.
    pub(super) fn add_device(&self, index: u32) {
        let mut counting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(counting) = counting.as_mut() {
            // Without room for the device its refused frames count as sent.
            let _ = counting.add(index);
        }
    }

    /// Returns the number of frames.
    pub(super) fn count(&self) -> u64 {
        let counting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(Counting { frames, devices }) = counting.as_ref() else { return 0 };
        let since = |(index, before): &(u32, u64)| {
            frames.count(*index).map_or(0, |count| count.saturating_sub(*before))
        };
        devices.iter().map(since).sum()
    }
}

impl Interface {
    /// Counts frames that the program redirects and a device refuses ([`PortStats::tx_refused`]), from the first call
    /// on.
    ///
    /// # Errors
    ///
    /// See [`RefusedFrames::add`].
    ///
    /// [`PortStats::tx_refused`]: crate::PortStats::tx_refused
    pub fn count_refused(&self, frames: &Arc<RefusedFrames>) -> io::Result<()> {
        self.0.refused.begin(frames, self.index())
    }
}
