//! Adjacencies: what each hop of the tables stands for, an [`Adjacency`] or a group.
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

use super::exit::Exit;
use super::{Adjacency, FIRST_STACKED, FlowHash, Group, OwnSources, StackedDevice};

/// The adjacencies by [`Hop`]. A hop beyond the end is no route.
#[derive(Clone, Debug, Default)]
pub struct Adjacencies {
    by_hop: Vec<Exit>,
    /// The groups by hop; `None` for a hop that stands for no group, as for those beyond the end.
    groups: Vec<Option<Arc<Group>>>,
    flow_hash: FlowHash,
    /// IPv4 packets keep the priority that they arrived with.
    keeps_priority: bool,
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

    /// Sets whether IPv4 packets keep the priority that they arrived with, as IPv6 packets do, in place of that of
    /// their TOS; returns whether they did not before, or no longer do.
    pub fn set_keeps_priority(&mut self, keeps_priority: bool) -> bool {
        std::mem::replace(&mut self.keeps_priority, keeps_priority) != keeps_priority
    }

    /// Returns whether IPv4 packets keep the priority that they arrived with.
    pub(super) fn keeps_priority(&self) -> bool {
        self.keeps_priority
    }

    /// Sets the stacked devices, by port number from [`FIRST_STACKED`] on.
    ///
    /// # Complexity
    ///
    /// O(hops).
    pub fn set_stacked(&mut self, stacked: Arc<[Option<StackedDevice>]>) {
        self.stacked = stacked;
        for exit in &mut self.by_hop {
            *exit = Exit::new(exit.adjacency(), &self.stacked);
        }
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
            self.by_hop.resize(self.by_hop.len().max(at + 1), Exit::NONE);
            self.by_hop[at] = Exit::new(adjacency, &self.stacked);
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
    pub fn resolve(&self, hop: Hop, flow: impl FnOnce(&FlowHash) -> u64) -> Adjacency {
        self.exit(hop, flow).adjacency()
    }

    /// Returns the exit of `hop` for a packet, like [`resolve`](Self::resolve).
    #[inline(always)]
    pub(super) fn exit(&self, hop: Hop, flow: impl FnOnce(&FlowHash) -> u64) -> &Exit {
        let exit = self.get_exit(hop);
        if exit.adjacency().is_group() { self.get_exit(self.member(hop, flow)) } else { exit }
    }

    /// Returns the hop that a packet takes: `hop` itself, or the member if `hop` is a group.
    pub fn member(&self, hop: Hop, flow: impl FnOnce(&FlowHash) -> u64) -> Hop {
        self.group(hop).map_or(hop, |group| group.choose(flow(&self.flow_hash)))
    }

    /// Returns the adjacency of `hop` itself: for a group a placeholder without a port.
    #[inline(always)]
    pub fn get(&self, hop: Hop) -> Adjacency {
        self.get_exit(hop).adjacency()
    }

    /// Returns the exit of `hop` itself.
    #[inline(always)]
    pub(super) fn get_exit(&self, hop: Hop) -> &Exit {
        self.by_hop.get(hop.0 as usize).unwrap_or(&Exit::NONE)
    }
}
