//! Adjacencies: the port, MAC addresses and MTU that each hop of the tables stands for.
//!
//! ```text
//!   0        6        12     14    16
//!   +--------+--------+------+-----+
//!   | dst    | src    | port | mtu |     one adjacency, four to a cache line
//!   +--------+--------+------+-----+
//! ```
//!
//! A table maps an address to a hop, such as hop 7. The adjacency of that hop holds a port and two
//! MAC addresses, in the order in which they occur in a frame. Neighbors, links and addresses
//! change too often to update a table each time, so adjacencies are published separately: the
//! control plane has a `fib::Publisher<Adjacencies>` and copies the list for each publication;
//! every worker has a reader.
//!
//! A hop may also stand for a group of hops (`group.rs`). The member depends on the packet's flow,
//! so [`Adjacencies::resolve`] takes a function that hashes the packet, and calls it only if the
//! hop is a group. Buckets hold hops and not adjacencies, so a neighbor that is in many groups
//! changes in one place.
//!
//! **Order of publication.** A worker takes the table first and the adjacencies after it, once a
//! batch, and uses no hop of a table beyond that batch. Hence the control plane publishes
//!
//! 1. for a new hop: adjacencies that contain it, then the table that uses it;
//! 2. for a change of the same next hop (its MAC address, its link): the new adjacency, at once;
//! 3. for a hop that is assigned to another next hop: all tables without that hop; then it waits
//!    until every reader has left the earlier tables (`Updater::passed`), publishes the new
//!    adjacency, and continues as in 1.
//!
//! It is not sufficient to wait for the return of the earlier *adjacencies*: a reader announces an
//! epoch and then loads the current pointer, so a worker may have announced the current
//! adjacencies, still use the older table, and then load the next adjacencies.
//! (`crates/control/tests/neighbors.rs` runs case 3 while packets pass; with a wait for the
//! adjacencies alone it fails within a second.)
//!
//! In this order no packet is sent by an adjacency that its table did not mean.

use std::sync::Arc;

use fib::Hop;

use super::{FIRST_STACKED, FlowHash, Group, OwnSources, StackedDevice, Verdict};

/// The adjacency of a hop: the port that a packet leaves on, and the MAC addresses that it gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Adjacency {
    /// The destination and the source, as in a frame.
    macs: [u8; 12],
    /// The port's number, or one of the constants below.
    port: u16,
    /// The link's MTU. If `port` is one of the constants: the number of the port that the next hop
    /// is behind plus one, or 0 for none.
    mtu: u16,
}

const NOWHERE: u16 = u16::MAX;
const BLACKHOLE: u16 = u16::MAX - 1;
const HOST: u16 = u16::MAX - 2;
const GROUP: u16 = u16::MAX - 3;
const UNREACHABLE: u16 = u16::MAX - 4;
const PROHIBIT: u16 = u16::MAX - 5;
const UNRESOLVED: u16 = u16::MAX - 6;

impl Adjacency {
    /// The adjacency of a hop without a route.
    pub const NONE: Self = Self { macs: [0; 12], port: NOWHERE, mtu: 0 };
    /// The adjacency of blackhole routes, whose packets are dropped.
    pub const BLACKHOLE: Self = Self { port: BLACKHOLE, ..Self::NONE };
    /// The adjacency of routes of type `unreachable`, whose packets are dropped with an answer.
    pub const UNREACHABLE: Self = Self { port: UNREACHABLE, ..Self::NONE };
    /// The adjacency of routes of type `prohibit`, whose packets are dropped with an answer.
    pub const PROHIBIT: Self = Self { port: PROHIBIT, ..Self::NONE };
    /// The adjacency of routes to the host's own stack.
    pub const HOST: Self = Self { port: HOST, ..Self::NONE };
    /// Makes the adjacency of an unresolved next hop behind a port: its MAC address is not known.
    /// Packets wait a limited time for a resolved adjacency, and the worker requests it
    /// (`want.rs`).
    ///
    /// # Panics
    ///
    /// As [`new`](Self::new).
    pub fn unresolved(port: u16) -> Self {
        Self { port: UNRESOLVED, ..Self::NONE }.behind(port)
    }

    /// Sets the port whose link the next hop is on, for an adjacency by which the router itself
    /// sends no packets, such as [`HOST`](Self::HOST). The reverse path filter uses it. An
    /// adjacency that has a port is returned unchanged.
    ///
    /// # Panics
    ///
    /// As [`new`](Self::new).
    #[must_use]
    pub fn behind(self, port: u16) -> Self {
        assert!(usize::from(port) < Self::MOST_PORTS, "a worker has fewer ports than {port}");
        if usize::from(self.port) < Self::MOST_PORTS {
            self
        } else {
            Self { mtu: port + 1, ..self }
        }
    }

    /// The placeholder for a hop that stands for a group.
    const GROUP: Self = Self { port: GROUP, ..Self::NONE };
    /// The most ports a worker can have.
    pub const MOST_PORTS: usize = UNRESOLVED as usize;

    /// Makes the adjacency of a next hop with address `dst_mac` on the worker's
    /// port number `port`, whose own address is `src_mac` and whose link carries
    /// packets of at most `mtu` bytes.
    ///
    /// # Panics
    ///
    /// If the port's number is [`MOST_PORTS`](Self::MOST_PORTS) or above.
    pub fn new(port: u16, dst_mac: [u8; 6], src_mac: [u8; 6], mtu: u16) -> Self {
        assert!(usize::from(port) < Self::MOST_PORTS, "a worker has fewer ports than {port}");
        let ([a, b, c, d, e, f], [g, h, i, j, k, l]) = (dst_mac, src_mac);
        Self { macs: [a, b, c, d, e, f, g, h, i, j, k, l], port, mtu }
    }

    /// Returns the adjacency for packets of at most `mtu` bytes: that of a route with an MTU of its own, where
    /// the link carries longer packets.
    #[must_use]
    pub fn limited_to(self, mtu: u16) -> Self {
        if self.port().is_ok() { Self { mtu: self.mtu.min(mtu), ..self } } else { self }
    }

    /// Returns the port's number, or the verdict of an adjacency without a port.
    #[inline(always)]
    pub fn port(&self) -> Result<u16, Verdict> {
        match self.port {
            // A group is replaced by a member before this call; a group in a group is no route.
            NOWHERE | GROUP => Err(Verdict::NoRoute),
            BLACKHOLE => Err(Verdict::Blackhole),
            UNREACHABLE => Err(Verdict::UnreachableRoute),
            PROHIBIT => Err(Verdict::ProhibitRoute),
            HOST => Err(Verdict::HostRoute),
            UNRESOLVED => Err(Verdict::Unresolved),
            port => Ok(port),
        }
    }

    /// Returns the port that the next hop is behind, whether packets can leave there
    /// now or not.
    #[inline]
    pub fn exit(&self) -> Option<u16> {
        match self.port {
            port if usize::from(port) < Self::MOST_PORTS => Some(port),
            _ => self.mtu.checked_sub(1),
        }
    }

    /// Returns whether packets are delivered at all: false without a route, and for a route that
    /// discards them.
    #[inline]
    pub fn leads(&self) -> bool {
        !matches!(self.port, NOWHERE | BLACKHOLE | UNREACHABLE | PROHIBIT | GROUP)
    }

    /// Returns the next hop's MAC.
    #[inline(always)]
    pub fn dst_mac(&self) -> [u8; 6] {
        let [mac @ .., _, _, _, _, _, _] = self.macs;
        mac
    }

    /// Returns the MAC of the port that packets leave on.
    #[inline(always)]
    pub fn src_mac(&self) -> [u8; 6] {
        let [_, _, _, _, _, _, mac @ ..] = self.macs;
        mac
    }

    /// Returns the port's number; a number from [`MOST_PORTS`](Self::MOST_PORTS) on is no port.
    #[inline(always)]
    pub(super) fn number(&self) -> u16 {
        self.port
    }

    /// Returns both MACs in the order of a frame.
    #[inline(always)]
    pub(super) fn macs(&self) -> [u8; 12] {
        self.macs
    }

    /// Returns the longest packet that the link carries, in bytes.
    #[inline(always)]
    pub fn mtu(&self) -> u16 {
        self.mtu
    }
}

/// The adjacencies by [`Hop`]. A hop beyond the end is no route.
#[derive(Clone, Debug, Default)]
pub struct Adjacencies {
    by_hop: Vec<Adjacency>,
    /// The groups by hop; `None` for a hop that stands for no group, as for those beyond the end.
    groups: Vec<Option<Arc<Group>>>,
    flow_hash: FlowHash,
    /// The stacked devices by port number, from [`FIRST_STACKED`] on; `None` for a number without one.
    stacked: Arc<[Option<StackedDevice>]>,
    /// The source addresses of this machine's own packets by hop; `None`: not known.
    own_sources: Vec<Option<Arc<OwnSources>>>,
}

impl Adjacencies {
    /// Makes a table without adjacencies.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the parameters of the flow hash; returns whether they differ from those before.
    pub fn set_flow_hash(&mut self, flow_hash: FlowHash) -> bool {
        std::mem::replace(&mut self.flow_hash, flow_hash) != flow_hash
    }

    /// Sets the stacked devices, by port number from [`FIRST_STACKED`] on.
    pub fn set_stacked(&mut self, stacked: Arc<[Option<StackedDevice>]>) {
        self.stacked = stacked;
    }

    /// Returns the stacked device with this port number.
    #[inline]
    pub fn stacked(&self, port: u16) -> Option<&StackedDevice> {
        self.stacked.get(usize::from(port.checked_sub(FIRST_STACKED)?))?.as_ref()
    }

    /// Sets the source addresses of this machine's own IPv4 packets by `hop`; returns whether they differ
    /// from those before. [`Hop::NONE`] has none.
    pub fn set_own_sources(&mut self, hop: Hop, sources: Option<Arc<OwnSources>>) -> bool {
        let at = hop.0 as usize;
        if !hop.is_some() || (sources.is_none() && at >= self.own_sources.len()) {
            return false;
        }
        self.own_sources.resize(self.own_sources.len().max(at + 1), None);
        let before = std::mem::replace(&mut self.own_sources[at], sources);
        before != self.own_sources[at]
    }

    /// Returns the source addresses of this machine's own packets by `hop`, which is no group.
    pub fn own_sources(&self, hop: Hop) -> Option<&OwnSources> {
        self.own_sources.get(hop.0 as usize)?.as_deref()
    }

    /// Sets the adjacency of `hop`. [`Hop::NONE`] is always no route and is not changed.
    pub fn set(&mut self, hop: Hop, adjacency: Adjacency) {
        let at = hop.0 as usize;
        if hop.is_some() {
            self.by_hop.resize(self.by_hop.len().max(at + 1), Adjacency::NONE);
            self.by_hop[at] = adjacency;
            if let Some(group) = self.groups.get_mut(at) {
                *group = None;
            }
        }
    }

    /// Makes `hop` stand for a group. [`Hop::NONE`] is not changed.
    pub fn set_group(&mut self, hop: Hop, group: Arc<Group>) {
        let at = hop.0 as usize;
        if hop.is_some() {
            self.set(hop, Adjacency::GROUP);
            self.groups.resize(self.groups.len().max(at + 1), None);
            self.groups[at] = Some(group);
        }
    }

    /// Returns the group that `hop` stands for, or `None`.
    pub fn group(&self, hop: Hop) -> Option<&Arc<Group>> {
        self.groups.get(hop.0 as usize)?.as_ref()
    }

    /// Returns the parameters of the flow hash.
    pub fn flow_hash(&self) -> &FlowHash {
        &self.flow_hash
    }

    /// Returns the adjacency of `hop` for a packet: for a group, that of the member for the
    /// packet's flow. `flow` is called only for a group.
    #[inline(always)]
    pub fn resolve(&self, hop: Hop, flow: impl FnOnce(&FlowHash) -> u64) -> &Adjacency {
        let adjacency = self.get(hop);
        if adjacency.port == GROUP { self.get(self.member(hop, flow)) } else { adjacency }
    }

    /// Returns the hop that a packet takes: `hop` itself, or the member if `hop` is a group.
    pub fn member(&self, hop: Hop, flow: impl FnOnce(&FlowHash) -> u64) -> Hop {
        self.group(hop).map_or(hop, |group| group.choose(flow(&self.flow_hash)))
    }

    /// Returns the adjacency of `hop` itself: for a group a placeholder without a port.
    #[inline(always)]
    pub fn get(&self, hop: Hop) -> &Adjacency {
        self.by_hop.get(hop.0 as usize).unwrap_or(&Adjacency::NONE)
    }
}

const _: () = assert!(size_of::<Adjacency>() == 16);
