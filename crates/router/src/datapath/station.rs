//! The station: what a gate takes out of a batch, and what leaves on its account.
//!
//! ```text
//!   receive ─► sift ─► parse ─► lookup ─► rewrite ─► port      what is simply forwarded
//!               │ dropped, counted
//!               ▼ kept
//!             queues ─► next ─► lookup by the tunnel's end ─► encapsulate ─► port
//!                          └─► lookup by its destination ──► rewrite ─────► port
//! ```
//!
//! A worker knows nothing of flows: it hands what a guarded port has received to the
//! station, which leaves in the batch what is routed like any other packet. Afterwards it
//! asks for what leaves now, looks all of it up together, and sends it. What the station
//! keeps is counted as held, so that every packet is always somewhere.
//!
//! A packet is encapsulated once its way is known, because only then the MTU is: one that
//! is too big for it is still the packet that came, and its sender can be answered.
//! Nothing that enters a tunnel is ever handed to the host: its stack would take the
//! packet past the gate.

use fib::Hop;
use gate::tunnel::{PRIVATE, Private};
use port::{Arena, Frame};
use wire::tunnel::{Ends, Header, Ports};
use wire::{ethernet, ipv4, ipv6};

use super::batch::SIZE;
use super::turn::{Punts, Turn, rewrite};
use super::want::Key;
use super::worker::{FEW, MARKING};
use super::{
    Adjacencies, Locals, Lookup, Parsed, Rewritten, Verdict, Worker, flow_v4, flow_v6, originate,
    rewrite_v4, rewrite_v6,
};
use crate::stats::WorkerStats;

/// What a station is given of a port's packets.
#[derive(Debug)]
pub struct Sifting<'w> {
    /// Where the packets are.
    pub arena: &'w mut Arena,
    /// As received, in order; those that stay are routed by their destination.
    pub frames: &'w mut Vec<Frame>,
    /// The port's number.
    pub ingress: usize,
    /// Another worker has handed them over: they are packets of this worker's flows, and each
    /// has its flow's hash for a mark.
    pub handed: bool,
    /// The port's address.
    pub mac: [u8; 6],
    /// This machine's own addresses.
    pub locals: &'w Locals,
    /// Where those are counted that do not stay.
    pub stats: &'w WorkerStats,
}

/// A packet that leaves on the account of a station.
#[derive(Debug)]
pub struct Leaving {
    /// The packet.
    pub frame: Frame,
    /// What it is looked up by.
    pub key: Key,
    /// How it leaves.
    pub way: Way,
}

/// How a packet leaves.
#[derive(Clone, Copy, Debug)]
pub enum Way {
    /// Forwarded as it is.
    Forwarded,
    /// As it is: this machine has made it.
    Own,
    /// As it is, its Ethernet header too, by this port: back to where a packet came from.
    Returned {
        /// The port.
        port: u16,
    },
    /// Not at all: it ends so.
    Dropped(Verdict),
    /// In a tunnel, to the end that it is looked up by.
    Tunnel {
        /// The DSCP of the outer header.
        dscp: u8,
        /// The flow's hash.
        hash: u32,
        /// Not in it after all, but by the way that leads to its end, where that is known.
        direct: bool,
        /// With a seal, which the station makes ([`Station::seal`]).
        sealed: bool,
    },
}

/// What is alike in all tunnels of a worker.
///
/// An outer header is made of it when its packet leaves, and not before: headers that wait in a list
/// are twice its length, and a cache's worth of a batch.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tunnels {
    /// Where those over IPv4 begin.
    pub from4: u32,
    /// Where those over IPv6 begin.
    pub from6: u128,
    /// The UDP port that they have at their ends, if they have one.
    pub udp: Option<u16>,
    /// The UDP port of sealed tunnels, which always use UDP.
    pub sealed: u16,
    /// A secret that flow labels and source ports are made with.
    pub secret: u64,
    /// The most bytes of a packet, outer header included.
    pub most: u16,
}

impl Tunnels {
    /// Returns the outer header of a packet to this end, of the flow with this hash.
    #[inline(always)]
    fn header(&self, end: Key, dscp: u8, hash: u32, sealed: bool) -> Header {
        let ends = match end {
            Key::V4(dst) => Ends::V4 { src: self.from4, dst },
            Key::V6(dst) => Ends::V6 { src: self.from6, dst, flow_label: self.label(hash) },
        };
        let port = if sealed { Some(self.sealed) } else { self.udp };
        let udp = port.map(|port| Ports::of(self.label(hash) >> 6, port));
        Header { ends, dscp, hop_limit: HOPS, udp }
    }

    /// Returns what tells flows apart on the way: not the hash itself, which is a secret.
    fn label(&self, hash: u32) -> u32 {
        ((u64::from(hash) ^ self.secret >> 32).wrapping_mul(self.secret | 1) >> 44) as u32
    }
}

/// What takes packets out of a worker's batches.
///
/// As the rest of the datapath it neither allocates nor blocks.
pub trait Station: Send {
    /// Begins a turn: looks at the clock, and takes what was ordered since the last.
    fn begin(&mut self);

    /// Says whether packets of this port are to be sifted.
    fn guards(&self, ingress: usize) -> bool;

    /// Takes out what is not to be routed by its destination, and counts it.
    fn sift(&mut self, sifting: Sifting<'_>);

    /// Appends what leaves now, as far as there is `room`.
    fn leave(&mut self, room: usize, leaving: &mut Vec<Leaving>);

    /// Returns what its tunnels have in common.
    fn tunnels(&self) -> Tunnels;

    /// Returns the private data of a sealed packet with this outer header (`gate::tunnel`); nothing
    /// where it cannot be sealed any more.
    fn seal(&mut self, header: &Header, inner: &[u8]) -> Option<Private>;

    /// Records a packet, of a granted flow or not, that does not fit the tunnel: the inner one
    /// may have `mtu` bytes.
    fn too_big(
        &mut self,
        arena: &mut Arena,
        frame: &Frame,
        mtu: u32,
        granted: bool,
        stats: &WorkerStats,
    );

    /// Ends a turn; without packets, `idle`.
    fn end(&mut self, idle: bool);

    /// Says whether there is more to do than packets ask for.
    fn is_busy(&self) -> bool;

    /// Counts the packets that wait.
    fn waiting(&self) -> usize;

    /// Ends all packets that wait, their frames being of this arena: it goes on with another.
    fn suspend(&mut self, arena: &mut Arena, stats: &WorkerStats);

    /// Ends all packets that wait, and itself.
    fn close(&mut self, arena: &mut Arena, stats: &WorkerStats);
}

/// Packets that leave are taken in parts of so many: what is known of them stays in the nearest cache.
const PART: usize = 64;
/// How far ahead packets that leave are fetched into the cache.
const AHEAD: usize = 4;
/// The outer TTL and hop limit (RFC 2003, 3.1; RFC 2473, 6.3).
const HOPS: u8 = 64;
/// The DSCP of granted packets.
const GRANTED: u8 = 1;
/// The highest DSCP of granted packets: of those that ask for renewal.
const RENEWAL: u8 = 2;

impl<L: Lookup> Worker<L> {
    /// Sends what leaves on the station's account, and returns how many packets did.
    pub(super) fn depart(&mut self) -> usize {
        let Self { arena, lanes, tables, adjacencies, ingresses, batch, leaving, .. } = self;
        let (wants, stats, now) = (&mut self.wants, &*self.stats, self.now);
        let policer = &mut self.punts;
        let Some(station) = self.station.as_deref_mut() else { return 0 };
        // What waits for a neighbor waits with what came in on the guarded port.
        let ingress = (0..lanes.len()).find(|&port| station.guards(port)).unwrap_or(0);
        let terms = ingresses.current().get(ingress);
        let (table, further, isolated) = (terms.table, terms.further, terms.isolated);
        let tunnels = station.tunnels();
        let mut departing = 0;
        while departing < SIZE {
            station.leave(PART, leaving);
            if leaving.is_empty() {
                break;
            }
            departing += leaving.len();
            batch.clear();
            for Leaving { key, .. } in &*leaving {
                batch.push(match *key {
                    Key::V4(key) => Parsed::V4(key),
                    Key::V6(key) => Parsed::V6(key),
                });
            }
            batch.seal();
            let (v4, v6) = batch.lookup(tables, table);
            if leaving.len() < FEW || now % MARKING == 1 {
                batch.mark(wants);
            }
            stats.looked_up(v4 as u64, v6 as u64);
            let adjacencies = adjacencies.current();
            let (mut each, mut outcomes) = (leaving.drain(..), batch.outcomes());
            while let (Some(Leaving { mut frame, key, way }), Some((kind, hop))) =
                (each.next(), outcomes.next())
            {
                if let Some(ahead) = each.as_slice().get(AHEAD) {
                    arena.prefetch(&ahead.frame);
                }
                let rewritten = match way {
                    Way::Forwarded => rewrite(arena.bytes_mut(&frame), kind, hop, adjacencies),
                    Way::Own => send_own(arena, &frame, hop, adjacencies),
                    Way::Returned { port } => Ok((port, frame.len())),
                    Way::Dropped(verdict) => Err(verdict),
                    Way::Tunnel { direct: true, .. }
                        if adjacencies.get(adjacencies.member(hop, |_| 0)).port().is_ok() =>
                    {
                        let (sent, mtu) = send_directly(arena, &frame, hop, adjacencies);
                        if sent == Err(Verdict::TooBig) {
                            station.too_big(arena, &frame, mtu, true, stats);
                        }
                        sent
                    }
                    Way::Tunnel { dscp, hash, sealed, .. } => {
                        let header = tunnels.header(key, dscp, hash, sealed);
                        let most = tunnels.most;
                        let mut sealer: Option<&mut dyn Station> = None;
                        if sealed {
                            sealer = Some(&mut *station);
                        }
                        match enter(arena, &mut frame, hop, adjacencies, &header, most, sealer) {
                            Entered::Yes => send_own(arena, &frame, hop, adjacencies),
                            Entered::No(verdict) => Err(verdict),
                            Entered::TooBig(mtu) => {
                                station.too_big(arena, &frame, mtu, dscp <= RENEWAL, stats);
                                Err(Verdict::TooBig)
                            }
                        }
                    }
                };
                let verdict = match rewritten {
                    Ok((egress, len)) => match lanes.get_mut(usize::from(egress)) {
                        Some(lane) => {
                            lane.stage(arena, frame, len);
                            continue;
                        }
                        None => Verdict::NoRoute,
                    },
                    Err(verdict) => verdict,
                };
                let (arena, lanes, wants) = (&mut *arena, &mut **lanes, &mut *wants);
                let punts = Punts { policer: &mut *policer, further, isolated };
                let turn =
                    Turn { arena, lanes, stats, adjacencies, wants, ingress, table, punts, now };
                match way {
                    Way::Forwarded => turn.stay(frame, kind, hop, verdict),
                    Way::Own | Way::Returned { .. } | Way::Dropped(_) | Way::Tunnel { .. } => {
                        turn.stay_own(frame, kind, hop, verdict);
                    }
                }
            }
        }
        if departing == 0 {
            station.end(true);
            return 0;
        }
        for lane in lanes.iter_mut().filter(|lane| !lane.staged.is_empty()) {
            lane.send(arena, stats);
        }
        station.end(false);
        departing
    }
}

/// What came of entering a tunnel.
enum Entered {
    /// It is in.
    Yes,
    /// It is as it was, and ends so.
    No(Verdict),
    /// It is as it was: with the outer header it would be too long. At most so many bytes
    /// would not.
    TooBig(u32),
}

/// Puts a packet into a tunnel, in place, if the way is known and it fits.
fn enter(
    arena: &mut Arena,
    frame: &mut Frame,
    hop: Hop,
    adjacencies: &Adjacencies,
    header: &Header,
    most: u16,
    sealer: Option<&mut dyn Station>,
) -> Entered {
    let len = if sealer.is_some() { header.len_with(PRIVATE) } else { header.len() };
    let bytes = arena.bytes(frame);
    let packet = bytes.get(ethernet::LEN..).unwrap_or_default();
    let (inner, link) = if packet.first().is_some_and(|first| first >> 4 == 6) {
        let Ok(view) = ipv6::View::parse(packet) else { return Entered::No(Verdict::Truncated) };
        let link = adjacencies.resolve(hop, |seed| flow_v6(bytes, seed));
        (ipv6::LEN + usize::from(view.payload_len()), link)
    } else {
        let Ok(view) = ipv4::View::parse(packet) else { return Entered::No(Verdict::Truncated) };
        let link = adjacencies.resolve(hop, |seed| flow_v4(bytes, seed));
        (usize::from(view.total_len()), link)
    };
    match link.port() {
        Ok(_) => {
            let most = usize::from(most.min(link.mtu()));
            if inner + len > most {
                return Entered::TooBig(most.saturating_sub(len) as u32);
            }
        }
        // It may be too long, which is seen when it leaves.
        Err(Verdict::Unresolved) => {}
        Err(verdict) => return Entered::No(verdict),
    }
    // The link's padding stays outside.
    if !arena.resize(frame, ethernet::LEN + inner) || !arena.grow_front(frame, len) {
        return Entered::No(Verdict::TooBig);
    }
    let bytes = arena.bytes_mut(frame);
    let Some((ether, packet)) = bytes.split_first_chunk_mut::<{ ethernet::LEN }>() else {
        return Entered::No(Verdict::Runt);
    };
    let kind = if header.is_v6() { ethernet::IPV6 } else { ethernet::IPV4 };
    ether[12..].copy_from_slice(&kind.to_be_bytes());
    // What was parsed can be emitted, but for a whole of more than 64 KiB.
    let emitted = match sealer {
        None => header.emit(packet),
        Some(station) => match station.seal(header, packet.get(len..).unwrap_or_default()) {
            Some(private) => header.emit_with(&private, packet),
            None => return Entered::No(Verdict::NoGrantor),
        },
    };
    match emitted {
        Ok(_) => Entered::Yes,
        Err(_) => Entered::No(Verdict::TooBig),
    }
}

/// Sends a granted packet by the way to its grantor, as it is but for the DSCP of granted
/// ones; returns the link's MTU too.
fn send_directly(
    arena: &mut Arena,
    frame: &Frame,
    hop: Hop,
    adjacencies: &Adjacencies,
) -> (Rewritten, u32) {
    let bytes = arena.bytes_mut(frame);
    let link = adjacencies.get(adjacencies.member(hop, |_| 0));
    let packet = bytes.get_mut(ethernet::LEN..).unwrap_or_default();
    let rewritten = if packet.first().is_some_and(|first| first >> 4 == 6) {
        if let Ok(mut view) = ipv6::View::parse(packet) {
            view.set_traffic_class(GRANTED << 2 | view.traffic_class() & 3);
        }
        rewrite_v6(bytes, link)
    } else {
        if let Ok(mut view) = ipv4::View::parse(packet) {
            view.set_tos(GRANTED << 2 | view.tos() & 3);
        }
        rewrite_v4(bytes, link)
    };
    (rewritten, link.mtu().into())
}

/// Prepares a packet of this machine's own for leaving.
fn send_own(arena: &mut Arena, frame: &Frame, hop: Hop, adjacencies: &Adjacencies) -> Rewritten {
    let bytes = arena.bytes_mut(frame);
    let link = match bytes.get(ethernet::LEN).map(|first| first >> 4) {
        Some(6) => adjacencies.resolve(hop, |seed| flow_v6(bytes, seed)),
        _ => adjacencies.resolve(hop, |seed| flow_v4(bytes, seed)),
    };
    originate(bytes, link)
}
