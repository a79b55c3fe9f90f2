//! Packet input and output: AF_XDP, pcap files, memory.
//!
//! A [`Port`] is the datapath's only interface to the outside. Every forwarded packet comes from a
//! port's [`Port::receive`] and goes to a port's [`Port::transmit`]. The ports of one worker share
//! an [`Arena`], so that a frame received on one port leaves on another without a copy in user
//! space:
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
//! A [`Frame`] is the right to use one frame of an arena. It cannot be cloned or forged, so each
//! frame is always in exactly one place: on the arena's free list, inside a port (its fill,
//! receive, transmit or completion ring), or with the caller that holds its `Frame`. This is the
//! accounting `available + held by the ports + held by callers = capacity`. It makes it sound to
//! return plain byte slices of memory that the kernel also writes to.
//!
//! The ports, which differ only in the source of the bytes:
//!
//! | port              | bytes                                   | for                       |
//! |-------------------|-----------------------------------------|---------------------------|
//! | [`af_xdp`]        | a network interface's queue             | the router                |
//! | [`MemoryPort`]    | the other end of a pair, in this process | tests, the unprivileged demo |
//! | [`Replay`]        | a preset pool, repeated                 | measuring the datapath    |
//! | [`PcapPort`]      | a capture file                          | reproducing a case        |
//! | [`Faulty`]        | any of the above, damaged               | tests                     |
//! | [`PlaceholderPort`]    | none                                    | a missing interface |
//! | [`handover::HandoverPort`] | other workers                      | flows that belong to one worker |
//!
//! Rules for every port: `receive`, `transmit` and `flush` never block, never allocate once their
//! buffers have grown, and never panic on any content of a packet. An empty arena only means that
//! fewer packets are received. Passing a frame to a foreign arena is a bug of the caller and
//! panics.
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

use serde::{Deserialize, Serialize};

pub use arena::{Arena, LONG_FRAME};
pub use faulty::Faulty;
pub use frame::{Frame, HEADROOM};
pub use host::{Host, HostHandover};
pub use memory::{MemoryPort, Replay};
pub use pcap::PcapPort;
pub use placeholder::PlaceholderPort;

/// The examples of the README, compiled and run as documentation tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod examples {}

/// Receives and transmits frames.
///
/// One port is used by one thread at a time; a device with several queues is
/// several ports.
pub trait Port: Send {
    /// Returns the port's name, such as `eth0`.
    fn name(&self) -> &str;

    /// Returns the port's own hardware address.
    fn mac(&self) -> [u8; 6];

    /// Returns the largest IP packet that it can send, in bytes without the Ethernet header.
    fn mtu(&self) -> usize;

    /// Appends at most `room` received frames to `out` and returns their number.
    ///
    /// Does not allocate if `out` has the capacity.
    fn receive(&mut self, arena: &mut Arena, room: usize, out: &mut Vec<Frame>) -> usize;

    /// Takes as many frames as fit from the front of `frames` and returns their number; the rest
    /// stays, in order.
    ///
    /// Taken frames may leave only with the next [`Port::flush`].
    fn transmit(&mut self, arena: &mut Arena, frames: &mut Vec<Frame>) -> usize;

    /// Passes a copy of a frame to the host's own network stack as if it had never been taken, and
    /// returns whether this port can.
    fn punt(&mut self, arena: &Arena, frame: &Frame) -> bool;

    /// Sends the frames that [`Port::transmit`] took, and returns the frames of sent packets to the
    /// arena.
    fn flush(&mut self, arena: &mut Arena);

    /// Accepts no further packets, if the port can refuse them: packets on their way can still be
    /// received, later ones go to the host. A caller that is about to drop the port thereby loses
    /// no packet.
    fn retire(&mut self) {}

    /// Returns the number of the arena's frames inside the port: waiting to be filled, received,
    /// sent or returned.
    fn held(&self) -> usize {
        0
    }

    /// Returns a descriptor that becomes readable when packets are waiting, so that an idle worker
    /// can sleep on it; `None` if there is none.
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Returns the counters since the port was created.
    fn stats(&self) -> PortStats;

    /// Returns the mode of operation: `AF_XDP zero-copy`, `AF_XDP copy`, `AF_XDP generic`,
    /// `memory`, `replay`, `pcap`.
    fn mode(&self) -> &'static str;
}

/// The counters of a port since its creation, in packets unless stated otherwise.
///
/// `received` and `transmitted` count the packets of [`Port::receive`] and [`Port::transmit`]. The
/// others count packets that never reached the caller, by the driver's reason; a port without such
/// a loss has zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
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
    /// Frames that the steering program redirected to another device and that the kernel or that device
    /// refused. It is a property of the interface that received them ([`af_xdp::Interface::stats`]); ports report none.
    pub tx_refused: u64,
    /// Received packets that the steering program took but that reached no socket, because the
    /// kernel could not redirect them. It is a property of the interface
    /// ([`af_xdp::Interface::stats`]); ports report none.
    pub undelivered: u64,
    /// Times that the kernel found the fill ring empty; not a loss as such.
    pub fill_ring_empty: u64,
    /// Frames given for receiving that the kernel rejected as malformed; no packet is lost by this.
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
        // Destructured, so that a new counter does not compile until it is added here.
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
            tx_refused,
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
            (&mut self.tx_refused, tx_refused),
            (&mut self.undelivered, undelivered),
            (&mut self.fill_ring_empty, fill_ring_empty),
            (&mut self.fill_invalid, fill_invalid),
            (&mut self.tx_ring_empty, tx_ring_empty),
        ] {
            *sum += more;
        }
    }
}
