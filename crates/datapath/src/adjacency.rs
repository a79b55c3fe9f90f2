//! Adjacencies: what the hops of the tables mean at this moment.
//!
//! ```text
//!   0        6        12     14    16
//!   +--------+--------+------+-----+
//!   | dst    | src    | port | mtu |     one adjacency, four to a cache line
//!   +--------+--------+------+-----+
//! ```
//!
//! A table says "hop 7"; what that is, a port and two MACs, stands here, the MACs in
//! the order in which they stand in a frame. Neighbors, links and addresses change
//! more often than it would be good to touch a table for, so the two are published
//! apart: `fib::Publisher<Adjacencies>` by whoever follows the neighbors, one copy of
//! the list a publication, and a reader in every worker.
//!
//! A hop may also stand for a group of hops (`group.rs`). Which of them depends on the
//! packet's flow, so [`Adjacencies::resolve`] is given the packet; it looks into it only
//! where the hop is a group. The buckets name hops and not adjacencies: a neighbor that
//! is in many groups changes in one place.
//!
//! **Order.** A worker takes the table first and the adjacencies after it, once a
//! batch, and uses no hop of a table beyond that batch. Hence
//!
//! 1. a new hop: publish adjacencies that know it, then the table that uses it;
//! 2. another meaning of the same next hop (its MAC, its link): publish it at once;
//! 3. a hop for another next hop: publish the tables without it, all that had it, and
//!    wait until every reader has left what was before (`Updater::passed`); then publish
//!    the new meaning, and then go on as in 1.
//!
//! That the *adjacencies* of before have come back says nothing: a reader announces what
//! it has and then loads what there is, so a worker may have told of these, have the
//! older table in hand, and be given the next ones. (`tests/neighbors.rs` does 3 while
//! packets pass; by the adjacencies it fails within a second.)
//!
//! Then no packet is given a meaning that its table did not mean.

use std::sync::Arc;

use fib::Hop;

use super::{Group, Verdict};

/// What a hop means: where a packet leaves and what it is given on the way out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Adjacency {
    dst_mac: [u8; 6],
    src_mac: [u8; 6],
    /// The port's number, or one of those below.
    port: u16,
    /// The link's; of what has no number above, that of the port it is behind and one,
    /// or 0.
    mtu: u16,
}

const NOWHERE: u16 = u16::MAX;
const BLACKHOLE: u16 = u16::MAX - 1;
const HOST: u16 = u16::MAX - 2;
const GROUP: u16 = u16::MAX - 3;
const UNRESOLVED: u16 = u16::MAX - 4;

impl Adjacency {
    /// What no route means.
    pub const NONE: Self = Self { dst_mac: [0; 6], src_mac: [0; 6], port: NOWHERE, mtu: 0 };
    /// Where routes lead whose packets are to be dropped.
    pub const BLACKHOLE: Self = Self { port: BLACKHOLE, ..Self::NONE };
    /// Where routes lead whose packets the host's own stack is to have.
    pub const HOST: Self = Self { port: HOST, ..Self::NONE };
    /// Makes the adjacency of a next hop behind a port whose MAC is not known: packets
    /// wait a while for another adjacency, and it is asked for (`want.rs`).
    ///
    /// # Panics
    ///
    /// As [`new`](Self::new).
    pub fn unresolved(port: u16) -> Self {
        Self { port: UNRESOLVED, ..Self::NONE }.behind(port)
    }

    /// Says that what this means is on the link of `port`, though packets do not leave
    /// there by the router: of [`HOST`](Self::HOST), for who asks where a source is.
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

    /// What stands in the place of a hop whose meaning is a group.
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
        Self { dst_mac, src_mac, port, mtu }
    }

    /// Returns the port's number, or the verdict on what has none.
    #[inline(always)]
    pub fn port(&self) -> Result<u16, Verdict> {
        match self.port {
            // A group is resolved before it is asked; one in a group is no route.
            NOWHERE | GROUP => Err(Verdict::NoRoute),
            BLACKHOLE => Err(Verdict::Blackhole),
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

    /// Says whether packets are led anywhere: not where there is no route or a black
    /// hole.
    #[inline]
    pub fn leads(&self) -> bool {
        !matches!(self.port, NOWHERE | BLACKHOLE | GROUP)
    }

    /// Returns the next hop's MAC.
    #[inline(always)]
    pub fn dst_mac(&self) -> [u8; 6] {
        self.dst_mac
    }

    /// Returns the MAC of the port that packets leave on.
    #[inline(always)]
    pub fn src_mac(&self) -> [u8; 6] {
        self.src_mac
    }

    /// Returns the longest packet that the link carries, in bytes.
    #[inline(always)]
    pub fn mtu(&self) -> u16 {
        self.mtu
    }
}

/// The adjacencies by [`Hop`]. A hop beyond the end means no route.
#[derive(Clone, Debug, Default)]
pub struct Adjacencies {
    by_hop: Vec<Adjacency>,
    /// Those of the hops that stand for one; `None` for the others, and beyond the end.
    groups: Vec<Option<Arc<Group>>>,
    /// What flows are hashed with.
    seed: u64,
}

impl Adjacencies {
    /// Makes a table in which no hop means anything.
    pub fn new() -> Self {
        Self::default()
    }

    /// Hashes flows with `seed`, as no other router in the path should.
    #[must_use]
    pub fn with_seed(self, seed: u64) -> Self {
        Self { seed, ..self }
    }

    /// Says what `hop` means from now on. [`Hop::NONE`] always means no route and
    /// is left so.
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

    /// Says that `hop` stands for a group from now on. [`Hop::NONE`] is left as it is.
    pub fn set_group(&mut self, hop: Hop, group: Arc<Group>) {
        let at = hop.0 as usize;
        if hop.is_some() {
            self.set(hop, Adjacency::GROUP);
            self.groups.resize(self.groups.len().max(at + 1), None);
            self.groups[at] = Some(group);
        }
    }

    /// Returns the group that `hop` stands for, if it does.
    pub fn group(&self, hop: Hop) -> Option<&Arc<Group>> {
        self.groups.get(hop.0 as usize)?.as_ref()
    }

    /// Returns what flows are hashed with.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Returns what `hop` means for a packet: of a group the member that its flow belongs
    /// to. `flow` is asked only for a group.
    #[inline(always)]
    pub fn resolve(&self, hop: Hop, flow: impl FnOnce(u64) -> u64) -> &Adjacency {
        let adjacency = self.get(hop);
        if adjacency.port == GROUP { self.get(self.member(hop, flow)) } else { adjacency }
    }

    /// Returns the hop that a packet takes where its table says `hop`: the same, or the
    /// member of a group.
    pub fn member(&self, hop: Hop, flow: impl FnOnce(u64) -> u64) -> Hop {
        self.group(hop).map_or(hop, |group| group.choose(flow(self.seed)))
    }

    /// Returns what `hop` means by itself; nothing if it is a group.
    #[inline(always)]
    pub fn get(&self, hop: Hop) -> &Adjacency {
        self.by_hop.get(hop.0 as usize).unwrap_or(&Adjacency::NONE)
    }
}

const _: () = assert!(size_of::<Adjacency>() == 16);
