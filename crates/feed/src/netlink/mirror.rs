//! The mirror: a copy of the kernel's routing state, built from its netlink messages.
//!
//! ```text
//!  message ─► view ─► Mirror ─► Follower: the best route of a prefix, when it changes
//!                      │
//!                      ├ tables   table → Rib: prefix → list of candidates   (candidates.rs)
//!                      ├ lists    each different list once → paths           (paths.rs)
//!                      ├ links, addresses, neighbors, nexthop_objects, rules
//!                      └ implicit removals that the kernel does not report   (implicit.rs)
//! ```
//!
//! A route takes a node or two of the trie, 20 bytes each for IPv4 and 32 for IPv6;
//! everything else is shared. Applying a message allocates nothing unless it brings a
//! list or a path that was not there.
//!
//! An IPv6 route may expire. The kernel stops using it at that moment and reports it up to a minute
//! later; it never reports that a lifetime was prolonged (by a router advertisement). So
//! [`Mirror::expiry`] is the earliest known expiry, and a resynchronization then reads the current
//! state; it leaves out expired routes.
//!
//! The mirror skips and counts routes for a type of service or a source prefix, because a table of
//! destinations cannot hold them, and route types that this program cannot forward. Entries of the
//! kernel's route cache (`RTM_F_CLONED`) are not routes and are not counted.
//!
//! Invariant: the last report to the follower for each prefix equals [`Mirror::routes_v4`] and
//! [`Mirror::routes_v6`].

mod candidates;
mod correction;
mod frame;
mod implicit;
mod order;
mod paths;
mod replace;
#[cfg(test)]
mod tests;

use core::fmt;
use core::net::IpAddr;
use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::time::{Duration, Instant};

use fib::{Addr, Hop, Prefix, Rib};

use self::candidates::{Candidate, CandidateLists};
use self::order::RouteChange;
use self::paths::{Path, ResolveContext};
use super::address::AddressView;
use super::error::Damage;
use super::follower::{Follower, InterfaceSettings, RouteInfo};
use super::link::{Link, LinkView};
use super::message::Message;
use super::neighbor::{Neighbor, NeighborView};
use super::netconf::NetconfView;
use super::nexthop::{NexthopObject, NexthopObjectView};
use super::route::{RouteNexthop, RouteView};
use super::rule::Rule;
use super::settings::ReportedSettings;
use super::uapi::{
    RTM_DELADDR, RTM_DELLINK, RTM_DELNEIGH, RTM_DELNETCONF, RTM_DELNEXTHOP, RTM_DELROUTE,
    RTM_DELRULE, RTM_F_CLONED, RTM_NEWADDR, RTM_NEWLINK, RTM_NEWNEIGH, RTM_NEWNETCONF,
    RTM_NEWNEXTHOP, RTM_NEWROUTE, RTM_NEWRULE, RTN_BLACKHOLE, RTN_THROW, RTN_UNICAST,
    RTNH_F_ONLINK,
};
use crate::prefix::AnyPrefix;

pub(crate) use self::order::Origin;

/// The number of changed prefixes that a trie may remember; the mirror does not use them.
const MAX_DIRTY: usize = 1 << 16;

/// The interval between two checks for routes that have expired and are still listed.
const EXPIRED_RECHECK: Duration = Duration::from_secs(10);

/// A copy of the kernel's routing state, built from its netlink messages.
#[derive(Default)]
pub struct Mirror {
    links: BTreeMap<u32, Link>,
    addresses: BTreeMap<(u32, IpAddr, u8), AddressView>,
    neighbors: BTreeMap<(u32, IpAddr), Neighbor>,
    nexthop_objects: BTreeMap<u32, NexthopObject>,
    /// The families and interface indexes with `ignore_routes_with_linkdown` set.
    ignoring: BTreeSet<(bool, i32)>,
    settings: ReportedSettings,
    /// The kernel has changed settings without a message about each of them.
    is_stale: bool,
    rules: Vec<Rule>,
    v4: BTreeMap<u32, Rib<u32>>,
    v6: BTreeMap<u32, Rib<u128>>,
    lists: CandidateLists,
    left_out: u64,
    /// When the first route expires, or may have been renewed.
    expiry: Option<Instant>,
    /// The table and prefix that the last message of a dump was about.
    dumped: Option<(u32, AnyPrefix)>,
    /// Memory used again for every message.
    path: Path,
    dead: Vec<bool>,
    list: Vec<Candidate>,
}

/// Operations that differ between AF_INET and AF_INET6.
pub(super) trait AddressFamily: Addr {
    fn tables(mirror: &Mirror) -> &BTreeMap<u32, Rib<Self>>;
    fn tables_mut(mirror: &mut Mirror) -> &mut BTreeMap<u32, Rib<Self>>;
    fn any(prefix: Prefix<Self>) -> AnyPrefix;
    fn report(to: &mut dyn Follower, table: u32, prefix: Prefix<Self>, best: Option<&RouteInfo>);
}

impl AddressFamily for u32 {
    fn tables(mirror: &Mirror) -> &BTreeMap<u32, Rib<Self>> {
        &mirror.v4
    }
    fn tables_mut(mirror: &mut Mirror) -> &mut BTreeMap<u32, Rib<Self>> {
        &mut mirror.v4
    }
    fn any(prefix: Prefix<Self>) -> AnyPrefix {
        AnyPrefix::V4(prefix)
    }
    fn report(to: &mut dyn Follower, table: u32, prefix: Prefix<Self>, best: Option<&RouteInfo>) {
        to.route_v4(table, prefix, best);
    }
}

impl AddressFamily for u128 {
    fn tables(mirror: &Mirror) -> &BTreeMap<u32, Rib<Self>> {
        &mirror.v6
    }
    fn tables_mut(mirror: &mut Mirror) -> &mut BTreeMap<u32, Rib<Self>> {
        &mut mirror.v6
    }
    fn any(prefix: Prefix<Self>) -> AnyPrefix {
        AnyPrefix::V6(prefix)
    }
    fn report(to: &mut dyn Follower, table: u32, prefix: Prefix<Self>, best: Option<&RouteInfo>) {
        to.route_v6(table, prefix, best);
    }
}

impl Mirror {
    /// Makes an empty mirror.
    pub fn new() -> Self {
        Self::default()
    }

    /// Applies a message and reports the resulting changes.
    ///
    /// Messages of types that do not matter here change nothing.
    ///
    /// # Errors
    ///
    /// [`Damage`], and then the message has changed nothing.
    pub fn apply(&mut self, message: &Message<'_>, to: &mut dyn Follower) -> Result<(), Damage> {
        self.apply_from(message, Origin::Event, to)
    }

    pub(crate) fn apply_from(
        &mut self,
        message: &Message<'_>,
        origin: Origin,
        to: &mut dyn Follower,
    ) -> Result<(), Damage> {
        match message.kind {
            RTM_NEWROUTE | RTM_DELROUTE => {
                if let Some(route) = RouteView::parse(message)? {
                    match route.prefix {
                        AnyPrefix::V4(prefix) => self.route(message, origin, &route, prefix, to)?,
                        AnyPrefix::V6(prefix) => self.route(message, origin, &route, prefix, to)?,
                    }
                }
            }
            RTM_NEWLINK | RTM_DELLINK => {
                let view = LinkView::parse(message)?;
                // Link messages of other families (AF_BRIDGE, AF_INET6) carry only that family's attributes.
                if view.family == 0 {
                    let link = (message.kind == RTM_NEWLINK).then(|| view.link());
                    self.set_link(view.index, link, origin, to);
                }
            }
            RTM_NEWADDR | RTM_DELADDR => {
                if let Some(view) = AddressView::parse(message)? {
                    self.set_address(&view, message.kind == RTM_NEWADDR, origin, to);
                }
            }
            RTM_NEWNEIGH | RTM_DELNEIGH => {
                if let Some(view) = NeighborView::parse(message)? {
                    self.set_neighbor(&view, message.kind == RTM_NEWNEIGH, to);
                }
            }
            RTM_NEWNEXTHOP => {
                let view = NexthopObjectView::parse(message)?;
                self.set_nexthop_object(view.id, view.object(), to);
            }
            RTM_DELNEXTHOP => {
                self.remove_nexthop_objects(&[NexthopObjectView::parse(message)?.id], to);
            }
            RTM_NEWNETCONF | RTM_DELNETCONF => {
                if let Some(view) = NetconfView::parse(message)? {
                    self.set_netconf(&view, message.kind == RTM_NEWNETCONF, to);
                }
            }
            RTM_NEWRULE | RTM_DELRULE => {
                if let Some(rule) = Rule::parse(message)? {
                    self.set_rule(rule, message.kind == RTM_NEWRULE, to);
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Prepares for a dump: its routes of a prefix replace the known ones.
    pub(crate) fn begin_dump(&mut self) {
        self.dumped = None;
    }

    /// Walks the best routes of an IPv4 table in order, without prefixes that have no usable route.
    pub fn routes_v4(&self, table: u32) -> impl Iterator<Item = (Prefix<u32>, &RouteInfo)> {
        self.routes(table)
    }

    /// Walks the best routes of an IPv6 table in order.
    pub fn routes_v6(&self, table: u32) -> impl Iterator<Item = (Prefix<u128>, &RouteInfo)> {
        self.routes(table)
    }

    /// Reports the best routes of all tables to a follower that has none yet.
    pub fn report_routes(&self, to: &mut dyn Follower) {
        for &table in self.v4.keys() {
            self.routes::<u32>(table).for_each(|(at, best)| u32::report(to, table, at, Some(best)));
        }
        for &table in self.v6.keys() {
            self.routes::<u128>(table)
                .for_each(|(at, best)| u128::report(to, table, at, Some(best)));
        }
    }

    fn routes<A: AddressFamily>(
        &self,
        table: u32,
    ) -> impl Iterator<Item = (Prefix<A>, &RouteInfo)> {
        let rib = A::tables(self).get(&table);
        let routes = rib.into_iter().flat_map(Rib::iter);
        routes.filter_map(|(prefix, hop)| Some((prefix, self.lists.best(hop)?)))
    }

    /// Returns the best route of an IPv4 prefix.
    pub fn best_v4(&self, table: u32, prefix: Prefix<u32>) -> Option<&RouteInfo> {
        self.lists.best(self.v4.get(&table)?.get(prefix)?)
    }

    /// Returns the best route of an IPv6 prefix.
    pub fn best_v6(&self, table: u32, prefix: Prefix<u128>) -> Option<&RouteInfo> {
        self.lists.best(self.v6.get(&table)?.get(prefix)?)
    }

    /// Returns the numbers of the tables that have routes, with how many of IPv4 and
    /// of IPv6.
    pub fn tables(&self) -> BTreeMap<u32, (usize, usize)> {
        let mut tables = BTreeMap::new();
        for (&table, rib) in &self.v4 {
            tables.entry(table).or_insert((0, 0)).0 = rib.len();
        }
        for (&table, rib) in &self.v6 {
            tables.entry(table).or_insert((0, 0)).1 = rib.len();
        }
        tables
    }

    /// Returns the interfaces by index.
    pub fn links(&self) -> &BTreeMap<u32, Link> {
        &self.links
    }

    /// Returns the addresses by interface, address and length of the network.
    pub fn addresses(&self) -> &BTreeMap<(u32, IpAddr, u8), AddressView> {
        &self.addresses
    }

    /// Returns the neighbors by interface and address.
    pub fn neighbors(&self) -> &BTreeMap<(u32, IpAddr), Neighbor> {
        &self.neighbors
    }

    /// Returns the nexthop objects by number.
    pub fn nexthop_objects(&self) -> &BTreeMap<u32, NexthopObject> {
        &self.nexthop_objects
    }

    /// Returns the rules, IPv4 first, by priority.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// Returns the number of messages about routes that the mirror skips.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Returns whether settings have to be read again.
    pub(crate) fn is_stale(&self) -> bool {
        self.is_stale
    }

    /// Returns when to read the routes again, because one of them will have expired.
    pub fn expiry(&self) -> Option<Instant> {
        self.expiry
    }

    /// Returns the bytes that the tables hold on the heap.
    pub fn footprint(&self) -> usize {
        let v4: usize = self.v4.values().map(Rib::footprint).sum();
        v4 + self.v6.values().map(Rib::footprint).sum::<usize>()
    }

    fn route<A: AddressFamily>(
        &mut self,
        message: &Message<'_>,
        origin: Origin,
        route: &RouteView<'_>,
        prefix: Prefix<A>,
        to: &mut dyn Follower,
    ) -> Result<(), Damage> {
        if route.flags & RTM_F_CLONED != 0 {
            return Ok(());
        }
        let deletion = message.kind == RTM_DELROUTE;
        // A sender with one route per prefix may name only the prefix in a deletion.
        let sole_deletion = deletion && origin == Origin::Sole;
        let forwards = (RTN_UNICAST..=RTN_THROW).contains(&route.kind);
        if !sole_deletion && (route.tos != 0 || route.source_length != 0 || !forwards) {
            self.left_out += 1;
            return Ok(());
        }
        if let Some(left) = route.expires.filter(|_| !deletion) {
            let due = Instant::now() + if left.is_zero() { EXPIRED_RECHECK } else { left };
            self.expiry = Some(self.expiry.map_or(due, |expiry| expiry.min(due)));
            if left.is_zero() {
                return Ok(());
            }
        }
        let mut path = mem::take(&mut self.path);
        let mut dead = mem::take(&mut self.dead);
        let without_carrier = |index: u32| {
            let carried = self.links.get(&index).is_none_or(|link| link.carrier);
            !carried && self.context().ignores(A::BITS == u128::BITS, index)
        };
        read_path::<A>(route, &mut path, &mut dead, without_carrier)?;
        let context = ResolveContext {
            links: &self.links,
            nexthop_objects: &self.nexthop_objects,
            ignoring: &self.ignoring,
        };
        // An IPv6 nexthop is dead only if its link is down, which the link's state shows.
        let marked_dead = (!deletion && !path.v6).then_some(&dead[..]);
        if let Some(hop) = self.lists.paths.acquire(&path, marked_dead, &context) {
            let candidate = Candidate { metric: route.metric, path: hop, protocol: route.protocol };
            let change = RouteChange { candidate, path: &path, flags: message.flags, origin };
            self.apply_change(route.table, prefix, &change, deletion, to);
            self.lists.paths.release(hop);
        }
        self.path = path;
        self.dead = dead;
        Ok(())
    }

    /// Applies a change to the candidates of a prefix.
    fn apply_change<A: AddressFamily>(
        &mut self,
        table: u32,
        prefix: Prefix<A>,
        change: &RouteChange<'_>,
        deletion: bool,
        to: &mut dyn Follower,
    ) {
        // A dump lists all routes of a prefix one after the other.
        let fresh = change.origin == Origin::Dump && {
            let about = Some((table, A::any(prefix)));
            mem::replace(&mut self.dumped, about) != about
        };
        let old = A::tables(self).get(&table).and_then(|rib| rib.get(prefix)).unwrap_or(Hop::NONE);
        let mut list = mem::take(&mut self.list);
        list.clear();
        if !fresh {
            list.extend_from_slice(self.lists.get(old));
        }
        let context = ResolveContext {
            links: &self.links,
            nexthop_objects: &self.nexthop_objects,
            ignoring: &self.ignoring,
        };
        let edit = if deletion { order::remove } else { order::add };
        let acquired = if change.origin == Origin::Sole {
            list.clear();
            list.extend((!deletion).then_some(change.candidate));
            None
        } else {
            edit(&mut list, change, &mut self.lists, &context)
        };
        self.set_list(table, prefix, old, &list, to);
        if let Some(acquired) = acquired {
            self.lists.paths.release(acquired);
        }
        self.list = list;
    }

    /// Sets the candidates of a prefix and reports the best route if it has changed.
    fn set_list<A: AddressFamily>(
        &mut self,
        table: u32,
        prefix: Prefix<A>,
        old: Hop,
        list: &Vec<Candidate>,
        to: &mut dyn Follower,
    ) {
        if list == self.lists.get(old) {
            return;
        }
        let new = if list.is_empty() {
            Hop::NONE
        } else {
            // 2^32 different lists do not fit into memory.
            let Some(new) = self.lists.acquire(list) else { return };
            new
        };
        if self.lists.best(old) != self.lists.best(new) {
            A::report(to, table, prefix, self.lists.best(new));
        }
        self.lists.release(old);
        let tables = A::tables_mut(self);
        if new.is_some() {
            let rib = tables.entry(table).or_default();
            rib.insert(prefix, new);
            if rib.dirty_len() > MAX_DIRTY {
                rib.take_changed();
            }
        } else if let Some(rib) = tables.get_mut(&table) {
            rib.remove(prefix);
            if rib.is_empty() {
                tables.remove(&table);
            }
        }
    }

    /// Reports every prefix that has one of these lists.
    fn report_lists(&self, changed: &[Hop], to: &mut dyn Follower) {
        if !changed.is_empty() {
            let mut changed = changed.to_vec();
            changed.sort_unstable();
            self.report_lists_of::<u32>(&changed, to);
            self.report_lists_of::<u128>(&changed, to);
        }
    }

    fn report_lists_of<A: AddressFamily>(&self, changed: &[Hop], to: &mut dyn Follower) {
        for (&table, rib) in A::tables(self) {
            for (prefix, hop) in rib {
                if changed.binary_search(&hop).is_ok() {
                    A::report(to, table, prefix, self.lists.best(hop));
                }
            }
        }
    }

    /// Recomputes the targets of these paths and reports the resulting changes.
    fn retarget(&mut self, paths: &[Hop], to: &mut dyn Follower) {
        let context = ResolveContext {
            links: &self.links,
            nexthop_objects: &self.nexthop_objects,
            ignoring: &self.ignoring,
        };
        let changed = self.lists.retarget(paths.iter().copied(), &context);
        self.report_lists(&changed, to);
    }

    fn context(&self) -> ResolveContext<'_> {
        ResolveContext {
            links: &self.links,
            nexthop_objects: &self.nexthop_objects,
            ignoring: &self.ignoring,
        }
    }

    fn set_netconf(&mut self, view: &NetconfView, is_present: bool, to: &mut dyn Follower) {
        self.set_settings(view, is_present, to);
        let key = (view.v6, view.index);
        let changed = match view.ignores_linkdown.filter(|_| is_present) {
            Some(true) => self.ignoring.insert(key),
            Some(false) => self.ignoring.remove(&key),
            None if is_present => false,
            None => self.ignoring.remove(&key),
        };
        if changed {
            let of_family = |(_, path): &(Hop, &Path)| path.v6 == view.v6;
            let paths = self.lists.paths.iter().filter(of_family);
            let paths: Vec<Hop> = paths.map(|(hop, _)| hop).collect();
            self.retarget(&paths, to);
        }
    }

    /// Returns the settings of the interfaces of which the kernel has reported some.
    pub fn settings(&self) -> BTreeMap<u32, InterfaceSettings> {
        let known = self.settings.interfaces(&ReportedSettings::default());
        known.into_iter().map(|index| (index.cast_unsigned(), self.settings.of(index))).collect()
    }

    /// Applies the settings, and reports the interfaces whose settings they change.
    fn set_settings(&mut self, view: &NetconfView, is_present: bool, to: &mut dyn Follower) {
        self.is_stale |= self.settings.is_copied(view);
        for (index, before) in self.settings.apply(view, is_present) {
            let now = self.settings.of(index);
            if let Ok(interface) = u32::try_from(index)
                && now != before
            {
                to.settings(interface, now);
            }
        }
    }

    fn set_neighbor(&mut self, view: &NeighborView, is_present: bool, to: &mut dyn Follower) {
        let key = (view.index, view.address);
        if !is_present {
            if self.neighbors.remove(&key).is_some() {
                to.neighbor(view.index, view.address, None);
            }
        } else if self.neighbors.insert(key, view.neighbor) != Some(view.neighbor) {
            to.neighbor(view.index, view.address, Some(&view.neighbor));
        }
    }

    fn set_rule(&mut self, rule: Rule, is_present: bool, to: &mut dyn Follower) {
        let known = self.rules.iter().position(|other| *other == rule);
        match (known, is_present) {
            (None, true) => {
                let key = |rule: &Rule| (rule.v6, rule.priority);
                let at = self.rules.partition_point(|other| key(other) <= key(&rule));
                self.rules.insert(at, rule);
            }
            (Some(at), false) => drop(self.rules.remove(at)),
            _ => return,
        }
        to.rules(&self.rules);
    }
}

/// Reads the destination of a route into `path`, and which of its nexthops are dead into `dead`,
/// which stays empty if none is.
///
/// The kernel also marks a nexthop dead that is only `without_carrier`, where
/// `ignore_routes_with_linkdown` is set. Such a nexthop becomes usable with the carrier, so the
/// link's state decides about it and not the mark.
fn read_path<A: AddressFamily>(
    route: &RouteView<'_>,
    path: &mut Path,
    dead: &mut Vec<bool>,
    without_carrier: impl Fn(u32) -> bool,
) -> Result<(), Damage> {
    path.v6 = A::BITS == u128::BITS;
    path.scope = if path.v6 { 0 } else { route.scope };
    path.mtu = route.mtu;
    path.other = if path.v6 { 0 } else { route.other };
    path.nexthop_id = route.nexthop_id;
    // The nexthop object decides the type, and may change.
    let by_object = route.nexthop_id != 0 && route.kind == RTN_BLACKHOLE;
    path.kind = if by_object { RTN_UNICAST } else { route.kind };
    path.source = match route.preferred_source {
        // The kernel removes the preferred source of an IPv6 route without a notification; the
        // route stays.
        Some(IpAddr::V4(source)) if !path.v6 => source.into(),
        _ => 0,
    };
    path.nexthops.clear();
    dead.clear();
    if route.nexthop_id != 0 {
        return Ok(());
    }
    for nexthop in route.nexthops() {
        let nexthop = nexthop?;
        dead.push(nexthop.is_dead() && !without_carrier(nexthop.interface));
        path.nexthops.push(RouteNexthop { flags: nexthop.flags & RTNH_F_ONLINK, ..nexthop });
    }
    if dead.iter().all(|&dead| !dead) {
        dead.clear();
        if path.v6 {
            // The order has no meaning: the first is the one that the message is about.
            path.nexthops.sort_unstable_by_key(|nexthop| (nexthop.interface, nexthop.gateway));
        }
    }
    Ok(())
}

impl fmt::Debug for Mirror {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mirror")
            .field("tables", &self.tables())
            .field("links", &self.links.len())
            .field("neighbors", &self.neighbors.len())
            .field("nexthop_objects", &self.nexthop_objects.len())
            .field("lists", &self.lists.len())
            .field("paths", &self.lists.paths.len())
            .finish_non_exhaustive()
    }
}
