//! The socket: the port of one queue of one interface.
//!
//! A frame circulates through the four rings (`ring.rs`); each arrow consumes its token or creates
//! it again:
//!
//! ```text
//!   Arena ──alloc──► fill ring ──► kernel ──► receive ring ──► Frame of the caller
//!     ▲                                                             │ transmit
//!     └──── free ◄── completion ring ◄── kernel ◄── transmit ring ◄─┘ (of any
//!                                                                      socket of
//!                                                                      the arena)
//! ```
//!
//! - Packets arrive from the first receive on: until then the steering program leaves them to the
//!   host, so that none waits for a thread that has not started yet.
//! - The fill ring is topped up after every receive with free frames of the arena; if there are
//!   none, the kernel drops and counts (`fill_empty`), and the next receive tries again.
//! - Frames in the fill and receive rings together are never more than the
//!   receive ring's size, so that ring cannot overflow.
//! - `transmit` only writes descriptors; `flush` notifies the kernel, with one system call if its
//!   budget allows, and collects sent frames. In copy mode the packets are sent inside that call.
//!   The budget is 32 packets a call, 256 with `XDP_MAX_TX_SKB_BUDGET` (Linux 6.17).
//! - A call is made only when the ring's flag requires it (`need_wakeup`).
//!
//! Packets of a veth may have partial checksums, which are completed (`checksum.rs`).
//!
//! If the arena has long frames, packets may have several buffers (`XDP_USE_SG`, Linux 6.6): received ones
//! are joined in a long frame (`joiner.rs`), and the chunks of a long frame are sent as one packet.
//!
//! Limits: longer packets must be left to the host
//! ([`Interface::passes_long_frames`]), or the MTU must fit a frame. Dropping a socket
//! loses the frames in its rings until the arena itself is dropped: the kernel may still be reading
//! them.

#![expect(unsafe_code, reason = "system calls, and frames handed to the kernel")]

mod bind;
mod checksum;
mod joiner;

use std::ffi::c_int;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

pub use self::bind::{largest_mtu, longest_mtu};
use self::joiner::{Joined, Joiner};
use super::bpf::Mode;
use super::counters::SocketCounters;
use super::descriptor::set;
use super::error::Error;
use super::interface::Interface;
use super::ring::{Consumer, Producer};
use crate::{Arena, Frame, HEADROOM, Host, Port, PortStats};

/// Slots of the four rings, each a power of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingSizes {
    /// Free frames waiting for the kernel, at most `receive`.
    pub fill: u32,
    /// Received packets waiting for this process.
    pub receive: u32,
    /// Packets waiting to be sent.
    pub transmit: u32,
    /// Sent frames waiting to be collected.
    pub completion: u32,
}

impl Default for RingSizes {
    /// 2048 each.
    fn default() -> Self {
        Self::all(2048)
    }
}

impl RingSizes {
    /// Returns four rings of the same size.
    pub fn all(size: u32) -> Self {
        Self { fill: size, receive: size, transmit: size, completion: size }
    }

    /// Returns the maximum number of frames that a socket with these rings holds, to size the
    /// arena.
    pub fn frames(&self) -> u32 {
        self.stock() + self.transmit + self.completion
    }

    /// Frames for receiving.
    fn stock(&self) -> u32 {
        self.fill.min(self.receive)
    }

    fn check(&self) -> Result<(), Error> {
        for size in [self.fill, self.receive, self.transmit, self.completion] {
            if !size.is_power_of_two() || !(64..=1 << 20).contains(&size) {
                return Err(Error::BadRing { size });
            }
        }
        Ok(())
    }
}

/// Receives between two heartbeats while packets arrive: the program shares the cache line.
const BEAT: u32 = 4;

/// A port on one queue of an interface.
pub struct Socket {
    // Declared first: the rings are unmapped before the descriptor closes.
    fill: Producer<u64>,
    completion: Consumer<u64>,
    receive: Consumer<libc::xdp_desc>,
    transmit: Producer<libc::xdp_desc>,
    fd: Arc<OwnedFd>,
    interface: Interface,
    /// The interface's name when it was bound.
    name: String,
    queue: u32,
    sizes: RingSizes,
    /// The identity of the arena.
    tag: u32,
    frame_mask: u64,
    zero_copy: bool,
    busy_poll: bool,
    budget: u32,
    /// Frames that the kernel has for receiving.
    filling: u32,
    /// Frames that the kernel has for sending.
    sending: u32,
    /// The received packet of several buffers.
    joiner: Joiner,
    /// Whether the steering program sends packets here.
    entered: bool,
    /// Whether checksums of packets may be partial.
    partial: bool,
    /// The number of receives, some of which write a heartbeat.
    turns: u32,
    watched: Arc<SocketCounters>,
    /// The host, and the number of the socket's device.
    host: Option<(Host, u32)>,
}

impl Socket {
    /// Passes punted packets to `host` from now on, as from this interface; without a host a punt
    /// is rejected.
    ///
    /// # Errors
    ///
    /// Those of [`Host::register`].
    pub fn set_host(&mut self, host: Host) -> io::Result<()> {
        let index = self.interface.index();
        host.register(index)?;
        self.host = Some((host, index));
        Ok(())
    }

    /// Enables busy polling: receiving runs the device's work in its own system call instead of an
    /// interrupt, with fewer switches if router and device share a CPU.
    ///
    /// # Errors
    ///
    /// The system's: `EPERM` without `CAP_NET_ADMIN`, `ENOPROTOOPT` before
    /// Linux 5.11.
    pub fn busy_poll(&mut self, microseconds: u32, budget: u32) -> io::Result<()> {
        // linux/asm-generic/socket.h.
        const SO_BUSY_POLL: c_int = 46;
        const SO_PREFER_BUSY_POLL: c_int = 69;
        const SO_BUSY_POLL_BUDGET: c_int = 70;
        for (option, value) in
            [(SO_PREFER_BUSY_POLL, 1), (SO_BUSY_POLL, microseconds), (SO_BUSY_POLL_BUDGET, budget)]
        {
            set(self.fd.as_fd(), libc::SOL_SOCKET, option, &value)?;
        }
        self.busy_poll = true;
        Ok(())
    }

    /// Returns the number of packets that one system call sends in copy mode.
    pub fn budget(&self) -> u32 {
        self.budget
    }

    /// Returns the interface.
    pub fn interface(&self) -> &Interface {
        &self.interface
    }

    /// Returns the queue, from 0.
    pub fn queue(&self) -> u32 {
        self.queue
    }

    /// Tops up the fill ring.
    fn stock(&mut self, arena: &mut Arena) {
        let wanted = self.sizes.stock() - self.filling;
        let fit = self.fill.free(wanted).min(wanted).min(arena.available() as u32);
        for _ in 0..fit {
            let Some(frame) = arena.alloc() else { break };
            // SAFETY: the token ends here, so the frame is no longer in use; it is in
            // this socket's memory, as `arena` is.
            unsafe { self.fill.push(u64::from(frame.at() - HEADROOM)) };
            self.filling += 1;
        }
        if fit > 0 {
            self.fill.publish();
            if self.fill.needs_wakeup() {
                self.wake_receive();
            }
        }
    }

    /// Makes the steering program send packets here: with the first receive and not before, because
    /// until then the host should receive them.
    #[cold]
    fn enter(&mut self) {
        let map = self.interface.steering().sockets();
        // The map accepts a bound socket; if it did not, the host would receive the packets,
        // counted as `no_socket`.
        self.entered = map.set_fd(self.queue, self.fd.as_fd()).is_ok();
    }

    /// Frees the frames of packets that have left.
    fn collect(&mut self, arena: &mut Arena) {
        let waiting = self.completion.waiting();
        for _ in 0..waiting {
            let start = self.completion.pop() & self.frame_mask;
            // The kernel returns each chunk once.
            self.sending -= u32::from(arena.reclaim(start as u32));
        }
        if waiting > 0 {
            self.completion.release();
        }
    }

    /// Makes the kernel read the fill ring, and with busy polling the device.
    fn wake_receive(&self) {
        // SAFETY: no buffer: AF_XDP takes none, only the call itself has an effect.
        unsafe {
            libc::recvfrom(
                self.fd.as_raw_fd(),
                std::ptr::null_mut(),
                0,
                libc::MSG_DONTWAIT,
                std::ptr::null_mut(),
                std::ptr::null_mut(),
            )
        };
    }

    /// Makes the kernel read the transmit ring. Errors (`EAGAIN` at the end of its budget,
    /// `ENOBUFS`, `ENETDOWN`) mean that the rest stays in the ring, which `pending` shows.
    fn wake_transmit(&self) {
        // SAFETY: no buffer and no address, as AF_XDP requires.
        unsafe {
            libc::sendto(
                self.fd.as_raw_fd(),
                std::ptr::null(),
                0,
                libc::MSG_DONTWAIT,
                std::ptr::null(),
                0,
            )
        };
    }

    /// Returns the number of frames, from the front, for which the transmit ring has room.
    #[inline]
    fn fit(&mut self, arena: &Arena, frames: &[Frame]) -> usize {
        if arena.has_long_frames() {
            return self.fit_long(arena, frames);
        }
        (self.transmit.free(frames.len() as u32) as usize).min(frames.len())
    }

    /// Counts them where some may have several buffers.
    fn fit_long(&mut self, arena: &Arena, frames: &[Frame]) -> usize {
        let wanted = frames.iter().map(|frame| arena.chunks(frame)).sum();
        let mut free = self.transmit.free(wanted);
        let fits = |frame: &&Frame| {
            let left = free.checked_sub(arena.chunks(frame));
            free = left.unwrap_or(0);
            left.is_some()
        };
        frames.iter().take_while(fits).count()
    }

    fn check(&self, arena: &Arena) {
        assert!(arena.tag() == self.tag, "a socket was used with an arena it is not bound to");
    }
}

/// Waits until every packet that the steering programs have decided about so far has reached its
/// destination: some ten milliseconds.
///
/// A driver runs the program on the packets of a burst and passes them on at its end, inside one
/// RCU read section of the kernel; `membarrier(2)`'s global command waits for these. If the kernel
/// does not have it (`nohz_full`), the wait has a fixed length.
pub fn synchronize_rcu() {
    const GLOBAL: c_int = 1;
    // SAFETY: no pointers, and the command has no effect but the wait.
    if unsafe { libc::syscall(libc::SYS_membarrier, GLOBAL, 0, 0) } != 0 {
        std::thread::sleep(Duration::from_millis(50));
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.interface.remove_socket(&self.watched);
    }
}

impl Port for Socket {
    fn name(&self) -> &str {
        &self.name
    }

    fn mac(&self) -> [u8; 6] {
        self.interface.mac()
    }

    fn mtu(&self) -> usize {
        self.interface.mtu()
    }

    fn receive(&mut self, arena: &mut Arena, room: usize, out: &mut Vec<Frame>) -> usize {
        self.check(arena);
        let count = (self.receive.waiting() as usize).min(room);
        let (mut bytes, before) = (0, out.len());
        for _ in 0..count {
            let libc::xdp_desc { addr, len, options } = self.receive.pop();
            // Creates the token again: the kernel returns each frame once.
            let frame = Frame::new(addr as u32, len, self.tag);
            let is_last = options & libc::XDP_PKT_CONTD == 0;
            if !is_last || !self.joiner.is_idle() {
                match self.joiner.join(arena, frame, is_last) {
                    Joined::Partly => {}
                    Joined::Packet(frame) => {
                        bytes += frame.len() as u64;
                        out.push(frame);
                    }
                    Joined::Lost => self.watched.long_frame_missing.add(1),
                }
                continue;
            }
            bytes += u64::from(len);
            out.push(frame);
        }
        let received = out.len() - before;
        if self.partial {
            for frame in out.iter().rev().take(received) {
                checksum::complete(arena.bytes_mut(frame));
            }
        }
        if count > 0 {
            self.receive.release();
            self.filling -= count as u32;
            self.watched.received.add(received as u64);
            self.watched.received_bytes.add(bytes);
        } else {
            if !self.entered {
                self.enter();
            }
            if self.busy_poll {
                self.wake_receive();
            }
        }
        if self.filling < self.sizes.stock() {
            self.stock(arena);
        }
        self.turns = self.turns.wrapping_add(1);
        if count == 0 || self.turns.is_multiple_of(BEAT) {
            self.interface.steering().beat(self.queue);
        }
        received
    }

    fn transmit(&mut self, arena: &mut Arena, frames: &mut Vec<Frame>) -> usize {
        self.check(arena);
        let fit = self.fit(arena, frames);
        let (mut written, mut bytes) = (0, 0);
        for frame in frames.drain(..fit) {
            assert!(frame.tag() == self.tag, "a frame was passed to a foreign arena");
            if frame.len() == 0 {
                // The kernel skips such a descriptor and never completes it.
                self.watched.tx_invalid.add(1);
                arena.free(frame);
                continue;
            }
            let mut left = frame.len() as u32;
            bytes += u64::from(left);
            let parts = arena.parts(&frame);
            arena.lend(frame);
            for (at, len) in parts {
                left -= len;
                let options = if left == 0 { 0 } else { libc::XDP_PKT_CONTD };
                // SAFETY: the token has just been consumed, so the frame is no longer in use; its tag
                // proves that it is in this socket's memory.
                unsafe { self.transmit.push(libc::xdp_desc { addr: u64::from(at), len, options }) };
            }
            written += 1;
        }
        if written > 0 {
            self.transmit.publish();
            self.sending += written;
            self.watched.transmitted.add(u64::from(written));
            self.watched.transmitted_bytes.add(bytes);
        }
        fit
    }

    fn punt(&mut self, arena: &Arena, frame: &Frame) -> bool {
        let host = self.host.as_ref();
        let taken = host.is_some_and(|(host, index)| host.give(*index, arena.bytes(frame)));
        self.watched.punted.add(u64::from(taken));
        taken
    }

    fn flush(&mut self, arena: &mut Arena) {
        self.check(arena);
        if self.sending == 0 {
            return;
        }
        self.collect(arena);
        let mut left = self.transmit.pending();
        while left > 0 && self.transmit.needs_wakeup() {
            self.wake_transmit();
            let now = self.transmit.pending();
            // No progress: the device or the completion ring is full.
            if now == left {
                break;
            }
            left = now;
        }
        self.collect(arena);
    }

    fn retire(&mut self) {
        // An entry that is already removed is fine; another error leaves the entry.
        self.entered = true;
        let _ = self.interface.steering().sockets().delete(&self.queue.to_ne_bytes());
    }

    fn held(&self) -> usize {
        (self.filling + self.sending) as usize + self.joiner.held()
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.fd.as_fd())
    }

    fn stats(&self) -> PortStats {
        // One system call for each reason, made by one queue only.
        let passed = match self.queue {
            0 => self.interface.counts().map_or(0, |counts| counts.passed()),
            _ => 0,
        };
        PortStats { passed, ..self.watched.stats() }
    }

    fn mode(&self) -> &'static str {
        match (self.interface.attached(), self.zero_copy) {
            (Mode::Generic, _) => "AF_XDP generic",
            (Mode::Native, true) => "AF_XDP zero-copy",
            (Mode::Native, false) => "AF_XDP copy",
        }
    }
}
