//! Where packets come from and go: AF_XDP, pcap files, memory.
//!
//! A [`Port`] is the one thing the datapath knows of the outside. Everything a
//! worker forwards comes out of some port's [`Port::receive`] and ends in some
//! port's [`Port::transmit`], and the ports of one worker all work on the same
//! [`Arena`], so that a frame received on one leaves on another without being
//! copied in user space:
//!
//! ```text
//!            ┌────────────── Arena (one a worker) ──────────────┐
//!            │ frame 0 │ frame 1 │ frame 2 │  ...               │
//!            └──────────────────────────────────────────────────┘
//!   port A ── receive ──► Frame ──► datapath ──► Frame ── transmit ──► port B
//!               ▲                                                │
//!               └── alloc (fill ring) ◄── free ◄── completion ───┘
//! ```
//!
//! A [`Frame`] is the right to use one frame of an arena. It cannot be cloned
//! or made up, so at every moment each frame is in exactly one place: the
//! arena's free list, inside a port (its fill, receive, transmit or completion
//! ring), or with whoever holds its `Frame`. That is the accounting
//! `available + held by the ports + held by callers = capacity`, and it is
//! what makes it sound to hand out plain byte slices of memory that the kernel
//! writes to as well.
//!
//! The ports, which differ only in where the bytes come from:
//!
//! | port              | bytes                                   | for                       |
//! |-------------------|-----------------------------------------|---------------------------|
//! | [`af_xdp`]        | a network interface's queue             | the router                |
//! | [`MemoryPort`]    | the other end of a pair, in this process | tests, the demo unprivileged |
//! | [`Replay`]        | a preset pool, over and over            | measuring the datapath    |
//! | [`PcapPort`]      | a capture file                          | reproducing a case        |
//! | [`Faulty`]        | any of the above, damaged               | tests                     |
//! | [`PlaceholderPort`]    | none                                    | an interface that is gone |
//! | [`handover::HandoverPort`] | other workers, whose queues brought them | flows that are one worker's |
//!
//! Rules for every port: `receive`, `transmit` and `flush` never block, never
//! allocate once their buffers have grown, and never panic on what a packet
//! holds; an arena that runs dry means that less is received, nothing more.
//! Passing a frame to an arena it does not come from is a bug of the caller
//! and panics.
//!
//! # Examples
//!
//! ```
//! use fingerpost_port::{Arena, MemoryPort, Port};
//!
//! let mut arena = Arena::new(64, 2048)?;
//! let (mut far, mut near) = MemoryPort::pair("far", "near");
//!
//! let mut frame = arena.alloc().expect("a new arena has free frames");
//! arena.resize(&mut frame, 60);
//! arena.bytes_mut(&frame).fill(0xab);
//! let mut frames = vec![frame];
//! assert_eq!(far.transmit(&mut arena, &mut frames), 1);
//!
//! assert_eq!(near.receive(&mut arena, 32, &mut frames), 1);
//! assert_eq!(arena.bytes(&frames[0]), [0xab; 60]);
//! # arena.free(frames.pop().expect("one was received"));
//! # Ok::<(), std::io::Error>(())
//! ```

#![deny(unsafe_code)]

pub mod af_xdp;
mod arena;
pub mod faulty;
mod frame;
pub mod handover;
pub mod host;
pub mod memory;
pub mod pcap;
mod placeholder;

use std::ops::AddAssign;
use std::os::fd::BorrowedFd;

pub use arena::Arena;
pub use faulty::Faulty;
pub use frame::{Frame, HEADROOM};
pub use host::Host;
pub use memory::{MemoryPort, Replay};
pub use pcap::PcapPort;
pub use placeholder::PlaceholderPort;

/// Receives and transmits frames.
///
/// One port is used by one thread at a time; a device with several queues is
/// several ports.
pub trait Port: Send {
    /// Returns the name people know it by, such as `eth0`.
    fn name(&self) -> &str;

    /// Returns the port's own hardware address.
    fn mac(&self) -> [u8; 6];

    /// Returns the largest IP packet it can send, in bytes (no Ethernet
    /// header in it).
    fn mtu(&self) -> usize;

    /// Appends at most `room` received frames to `out` and returns how many.
    ///
    /// Does not allocate if `out` has the capacity.
    fn receive(&mut self, arena: &mut Arena, room: usize, out: &mut Vec<Frame>) -> usize;

    /// Takes as many frames as fit from the front of `frames` and returns how
    /// many; the rest stays, in order.
    ///
    /// What is taken may leave only with the next [`Port::flush`].
    fn transmit(&mut self, arena: &mut Arena, frames: &mut Vec<Frame>) -> usize;

    /// Hands a frame to the host's own network stack as if it had never been
    /// taken, and says whether this port can; the frame is gone either way.
    fn punt(&mut self, arena: &mut Arena, frame: Frame) -> bool;

    /// Sends what [`Port::transmit`] took and returns the frames of packets
    /// that have left to the arena.
    fn flush(&mut self, arena: &mut Arena);

    /// Lets nothing more in, where the port can refuse: what is on its way already can
    /// still be received, what comes after it is the host's. For who is about to drop
    /// the port and would lose no packet.
    fn retire(&mut self) {}

    /// Returns how many frames of the arena are inside the port: waiting to be
    /// filled, to be received, to be sent or to be given back.
    fn held(&self) -> usize {
        0
    }

    /// Returns a descriptor that becomes readable when packets are waiting, so
    /// that an idle worker can sleep on it; `None` where there is none.
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Returns the counters since the port was made.
    fn stats(&self) -> PortStats;

    /// Names how packets cross: `AF_XDP zero-copy`, `AF_XDP copy`,
    /// `AF_XDP generic`, `memory`, `replay`, `pcap`.
    fn mode(&self) -> &'static str;
}

/// What a port has counted since it was made, in packets unless it says
/// otherwise.
///
/// `received` and `transmitted` are what crossed [`Port::receive`] and
/// [`Port::transmit`]. Everything below them never reached the caller, each
/// with the reason that the driver knows; a port has zero where it has no such
/// loss.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortStats {
    /// Frames given to the caller.
    pub received: u64,
    /// Their bytes, Ethernet header included.
    pub received_bytes: u64,
    /// Frames taken from the caller for sending.
    pub transmitted: u64,
    /// Their bytes, Ethernet header included.
    pub transmitted_bytes: u64,
    /// Frames taken by [`Port::punt`].
    pub punted: u64,
    /// Packets that the steering program left to the kernel. It is a property
    /// of the interface, which the port of its queue 0 reports.
    pub passed: u64,
    /// Received packets lost because the receive ring was full.
    pub rx_ring_full: u64,
    /// Received packets lost because no free frame was waiting for them.
    pub fill_empty: u64,
    /// Received packets lost for other reasons, such as exceeding the frame.
    pub rx_dropped: u64,
    /// Frames taken for sending and refused as malformed.
    pub tx_invalid: u64,
    /// Frames taken for sending and lost because the other end had no room.
    pub tx_lost: u64,
    /// Received packets that the steering program took and that came to no socket, because
    /// the kernel could not redirect them. It is a property of the interface
    /// ([`af_xdp::Interface::stats`]); ports report none.
    pub undelivered: u64,
    /// Times that the kernel found the fill ring empty; not a loss as such.
    pub fill_ring_empty: u64,
    /// Frames given for receiving and refused as malformed; no packet is lost by that.
    pub fill_invalid: u64,
    /// Times that the kernel looked for a packet to send and found none; no loss.
    pub tx_ring_empty: u64,
}

impl PortStats {
    /// Returns the received packets that never reached the caller, for any reason.
    pub fn lost(&self) -> u64 {
        self.rx_ring_full + self.fill_empty + self.rx_dropped + self.undelivered
    }
}

impl AddAssign for PortStats {
    fn add_assign(&mut self, other: Self) {
        // Whole, so that a counter that is added to the struct is added here.
        let Self {
            received,
            received_bytes,
            transmitted,
            transmitted_bytes,
            punted,
            passed,
            rx_ring_full,
            fill_empty,
            rx_dropped,
            tx_invalid,
            tx_lost,
            undelivered,
            fill_ring_empty,
            fill_invalid,
            tx_ring_empty,
        } = other;
        for (sum, more) in [
            (&mut self.received, received),
            (&mut self.received_bytes, received_bytes),
            (&mut self.transmitted, transmitted),
            (&mut self.transmitted_bytes, transmitted_bytes),
            (&mut self.punted, punted),
            (&mut self.passed, passed),
            (&mut self.rx_ring_full, rx_ring_full),
            (&mut self.fill_empty, fill_empty),
            (&mut self.rx_dropped, rx_dropped),
            (&mut self.tx_invalid, tx_invalid),
            (&mut self.tx_lost, tx_lost),
            (&mut self.undelivered, undelivered),
            (&mut self.fill_ring_empty, fill_ring_empty),
            (&mut self.fill_invalid, fill_invalid),
            (&mut self.tx_ring_empty, tx_ring_empty),
        ] {
            *sum += more;
        }
    }
}
