//! The packet hook: lets a gate or a grantor take packets out of a batch and send others.
//!
//! ```text
//!   receive ─► process_ingress ─► parse ─► lookup ─► rewrite ─► port     forwarded packets
//!               │ dropped, counted
//!               ▼ queued
//!             queues ─► dequeue_egress ─► packets, dispositions ─┐  at most a part at a time
//!                          ▲                                     ▼
//!                          │       lookup of the tunnel's end ─► encapsulate, seal ─► port
//!                          │       lookup of the destination ──► rewrite ───────────► port
//!                          └ the packets of the last part that were too long
//! ```
//!
//! A worker has no flow state. It passes the packets that a port with a hook received to
//! [`PacketHook::process_ingress`], which leaves in the batch the packets that are routed like any
//! other, keeps those that wait in its queues, and ends the rest. After the batch the worker calls
//! [`PacketHook::dequeue_egress`], which returns packets with a [`Disposition`] each; the worker
//! looks all of them up together and applies the dispositions (`egress.rs`). It calls nothing of
//! the hook for a single packet. Packets in the hook's queues count as held, so that the sum of the
//! verdicts always equals the packets received.
//!
//! A packet is encapsulated after the lookup, because only then its link's MTU is known. A packet
//! that is too long for the link is dropped in its original form, and the next call of
//! `dequeue_egress` gets it as an [`OversizedPacket`], so that its sender gets an ICMP error. A
//! packet that enters a tunnel is never punted: the host's stack would forward it past the gate.
//!
//! The worker owns the data of a tunnel that is not in the packet ([`Tunnels`]): the addresses of
//! the outer header, and the [`TunnelSealer`] of a gate with keys.

use port::{Arena, Frame};
use wire::tunnel::{Ends, Header, Ports};

use super::want::Key;
use super::{Locals, Verdict};
use crate::capture::Point;
use crate::stats::WorkerStats;

/// The outer TTL and hop limit (RFC 2003, 3.1; RFC 2473, 6.3).
const HOPS: u8 = 64;

/// Length of the private data that seals a tunnel packet, in bytes.
pub const SEAL_LEN: usize = 36;

/// The private data that seals a tunnel packet.
pub type Seal = [u8; SEAL_LEN];

/// The packets that a port received, for a hook.
#[derive(Debug)]
pub struct IngressBatch<'w> {
    /// The arena that owns the frames.
    pub arena: &'w mut Arena,
    /// The frames in order of arrival; the hook leaves those that are routed by destination.
    pub frames: &'w mut Vec<Frame>,
    /// The index of the port.
    pub ingress: usize,
    /// Another worker handed the frames over: they belong to this worker's flows, and each
    /// frame's mark is its flow's hash.
    pub handed: bool,
    /// The port's MAC address.
    pub mac: [u8; 6],
    /// This machine's own addresses.
    pub locals: &'w Locals,
    /// The counters for frames that the hook takes out.
    pub(super) stats: &'w WorkerStats,
    /// The packets and bytes that the hook has taken out.
    pub(super) taken: (u64, u64),
}

impl IngressBatch<'_> {
    /// Counts a packet of `bytes` bytes that the hook takes out of the batch, to queue or end it.
    /// The packets that stay in the batch are counted later.
    #[inline(always)]
    pub fn take(&mut self, bytes: usize) {
        self.taken.0 += 1;
        self.taken.1 += bytes as u64;
    }

    /// Ends a packet that the hook has taken, now or earlier, with this verdict.
    #[inline(always)]
    pub fn end(&mut self, frame: Frame, verdict: Verdict) {
        self.stats.end(self.arena, frame, verdict, Point::Ingress(self.ingress as u16));
    }

    /// Counts a packet that the hook originates.
    #[inline(always)]
    pub fn originate(&mut self) {
        self.stats.originated();
    }

    /// Counts the packets that the hook has taken.
    #[inline(always)]
    pub(super) fn finish(self) {
        let (packets, bytes) = self.taken;
        if packets > 0 {
            self.stats.received(packets, bytes);
        }
    }
}

/// A packet that a hook sends.
#[derive(Debug)]
pub struct EgressPacket {
    /// The frame.
    pub frame: Frame,
    /// The address that is looked up.
    pub key: Key,
    /// The worker's next step for the packet.
    pub disposition: Disposition,
}

/// The worker's next step for a packet of a hook.
#[derive(Clone, Copy, Debug)]
pub enum Disposition {
    /// Forward it like a routed packet.
    Forward,
    /// Send it as a packet of this machine, with its TTL unchanged.
    Originate,
    /// Send it unchanged, Ethernet header included, on this port: an answer to a received packet.
    Return {
        /// The port.
        port: u16,
    },
    /// Drop it with this verdict.
    Drop(Verdict),
    /// Encapsulate it to the tunnel's end, which is the address that is looked up.
    Tunnel {
        /// The DSCP of the outer header.
        dscp: u8,
        /// The flow's hash.
        hash: u32,
        /// Send it to the next hop of the tunnel's end without an outer header, if that neighbor
        /// is resolved.
        direct: bool,
        /// Seal it ([`TunnelSealer`]).
        sealed: bool,
    },
}

/// A packet that was dropped because it is too long for its tunnel.
#[derive(Debug)]
pub struct OversizedPacket {
    /// The frame, without an outer header.
    pub frame: Frame,
    /// The length of the longest inner packet that fits.
    pub mtu: u32,
    /// Its flow is granted.
    pub granted: bool,
}

/// The packets that a hook sends next, and the result of those before.
#[derive(Debug)]
pub struct EgressBatch<'w> {
    /// The arena that owns the frames.
    pub arena: &'w mut Arena,
    /// The maximum number of packets that the hook appends; 0 after the last part of a turn.
    pub room: usize,
    /// The packets that leave now, empty at first.
    pub packets: &'w mut Vec<EgressPacket>,
    /// The packets of the part before that were dropped as too long. The worker frees them.
    pub oversized: &'w [OversizedPacket],
    /// The counters for packets that the hook originates.
    pub(super) stats: &'w WorkerStats,
}

impl EgressBatch<'_> {
    /// Counts a packet that the hook originates.
    #[inline]
    pub fn originate(&mut self) {
        self.stats.originated();
    }
}

/// Seals tunnel packets: the component of a worker that has the keys.
pub trait TunnelSealer: Send {
    /// Returns the private data of a sealed packet with this outer header (`gate::tunnel`), at
    /// `now` by the hook's clock, or `None` if the packet cannot be sealed: no key, or no sequence
    /// numbers left.
    fn seal(&mut self, now: u64, header: &Header, inner: &[u8]) -> Option<Seal>;

    /// Releases the keys after a turn in which packets were sealed.
    fn release(&mut self);
}

/// The tunnels that a worker's packets enter.
#[derive(Default)]
pub struct Tunnels {
    /// The parameters of all of them.
    pub parameters: TunnelParameters,
    /// The sealer; without one, packets that are to be sealed are dropped.
    pub sealer: Option<Box<dyn TunnelSealer>>,
}

/// The parameters that all tunnels of a worker share.
///
/// The outer header is built from them when its packet is sent. A list of finished headers would
/// have twice the size of an [`EgressPacket`], and those of one batch would fill the L1 cache.
#[derive(Clone, Copy, Debug, Default)]
pub struct TunnelParameters {
    /// The source address of tunnels over IPv4.
    pub from4: u32,
    /// The source address of tunnels over IPv6.
    pub from6: u128,
    /// The UDP destination port, if tunnels use UDP.
    pub udp: Option<u16>,
    /// The UDP port of sealed tunnels, which always use UDP.
    pub sealed: u16,
    /// The secret from which flow labels and source ports are derived.
    pub secret: u64,
    /// The maximum length of an encapsulated packet, outer header included.
    pub mtu: u16,
}

impl TunnelParameters {
    /// Returns the outer header of a packet to `end`, of the flow with this hash.
    #[inline(always)]
    pub(super) fn header(&self, end: Key, dscp: u8, hash: u32, sealed: bool) -> Header {
        let ends = match end {
            Key::V4(dst) => Ends::V4 { src: self.from4, dst },
            Key::V6(dst) => Ends::V6 { src: self.from6, dst, flow_label: self.label(hash) },
        };
        let port = if sealed { Some(self.sealed) } else { self.udp };
        let udp = port.map(|port| Ports::of(self.label(hash) >> 6, port));
        Header { ends, dscp, hop_limit: HOPS, udp }
    }

    /// Returns the flow label of a flow. It is not the hash itself, which is secret.
    fn label(&self, hash: u32) -> u32 {
        ((u64::from(hash) ^ self.secret >> 32).wrapping_mul(self.secret | 1) >> 44) as u32
    }
}

/// Packet processing of a gate or a grantor inside a worker.
///
/// Like the rest of the datapath, a hook neither allocates nor blocks.
pub trait PacketHook: Send {
    /// Begins a turn: reads the clock and applies the decisions that arrived since the last turn.
    /// Returns the time in nanoseconds, by which the turn's packets are sealed.
    fn begin_turn(&mut self) -> u64;

    /// Returns whether the hook processes the packets of this port.
    fn handles_port(&self, ingress: usize) -> bool;

    /// Takes out the frames that are not routed by destination, and queues or ends them.
    fn process_ingress(&mut self, batch: &mut IngressBatch<'_>);

    /// Returns the packets that leave now, each with its disposition, and queues answers to the
    /// packets before that were too long.
    fn dequeue_egress(&mut self, batch: EgressBatch<'_>);

    /// Ends a turn; `idle` if no packet was sent in it.
    fn end_turn(&mut self, idle: bool);

    /// Returns whether the hook has work to do in the next turn even if no packet arrives.
    fn has_pending_work(&self) -> bool;

    /// Returns the number of packets in its queues.
    fn queued(&self) -> usize;

    /// Drops all queued packets, whose frames belong to `arena`. The hook continues with another
    /// worker and another arena.
    fn drop_queued(&mut self, arena: &mut Arena, stats: &WorkerStats);

    /// Returns the state for the hook of this worker in a successor process; the hook may continue afterwards.
    fn export(&mut self, worker: usize) -> Vec<u8> {
        let _ = worker;
        Vec::new()
    }

    /// Drops all queued packets and releases the hook's state.
    fn close(&mut self, arena: &mut Arena, stats: &WorkerStats);
}

/// A hook, and the tunnels that its packets enter.
pub struct Hook {
    /// The hook.
    pub packets: Box<dyn PacketHook>,
    /// The tunnels.
    pub tunnels: Tunnels,
}
