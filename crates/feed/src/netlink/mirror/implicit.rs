//! Implicit removals: routes that the kernel removes without a netlink message.
//!
//! | event | removed for IPv4 | for IPv6 |
//! |---|---|---|
//! | a link goes down | routes all of whose nexthops are over dead links, except those of host scope | the same, reported (unless `skip_notify_on_dev_down`) |
//! | a link is deleted | routes with any nexthop over it | those nexthops, reported |
//! | the last IPv4 address of a link is removed | as when it goes down, host scope too | |
//! | an address is removed | routes of the link's table that prefer it as their source (reported since Linux 6.6) | |
//! | a link goes down, loses its carrier, or is deleted | nexthop objects over it, groups that have no other member, and the routes that use them | the same |
//! | a nexthop object is deleted | routes that use it | the same, reported |
//!
//! From `net/ipv4/fib_frontend.c`, `fib_semantics.c`, `net/ipv4/nexthop.c` and
//! `net/ipv6/route.c` of Linux 6.18 ; each row has a test against `ip`
//! (`tests/root_netlink/`). Where the kernel does report a removal, the report changes nothing more.
//!
//! The affected paths are computed first, then the lists, and then the tables are searched for the
//! lists: O(routes) for a walk that reads one word of each.

use core::net::{IpAddr, Ipv4Addr};
use std::collections::HashMap;

use fib::{Hop, Prefix};

use super::candidates::Candidate;
use super::paths::{Path, ResolveContext};
use super::{AddressFamily, Mirror, Origin};
use crate::netlink::address::AddressView;
use crate::netlink::follower::{AddressChange, Follower};
use crate::netlink::link::Link;
use crate::netlink::nexthop::NexthopObject;
use crate::netlink::uapi::{RT_SCOPE_HOST, RT_TABLE_MAIN};

/// The replacement of each path, or its removal.
type PathRewrites = HashMap<Hop, Option<Path>>;

impl Mirror {
    pub(super) fn set_link(
        &mut self,
        index: u32,
        link: Option<Link>,
        origin: Origin,
        to: &mut dyn Follower,
    ) {
        let Some(link) = link else {
            self.delete_link(index, to);
            return;
        };
        let old = self.links.get(&index);
        if old == Some(&link) {
            return;
        }
        let was_up = old.is_none_or(|old| old.up);
        let usable = |link: &Link| (link.up, link.carrier);
        let affects = old.is_none_or(|old| usable(old) != usable(&link));
        let (up, carries) = (link.up, link.running || link.carrier);
        to.link(index, Some(&link));
        self.links.insert(index, link);
        if !affects {
            return;
        }
        if origin == Origin::Event {
            if !carries {
                self.remove_nexthop_objects_over(index, to);
            }
            if was_up && !up {
                self.mark_dead(index, |path| path.v6 || path.scope != RT_SCOPE_HOST, to);
            } else if up && !was_up {
                self.unmark_dead(index, |_| true);
            }
        }
        let mut paths = self.paths_over(index, |_| true);
        paths.extend(self.paths_by_objects_over(index));
        self.retarget(&paths, to);
    }

    fn delete_link(&mut self, index: u32, to: &mut dyn Follower) {
        self.remove_nexthop_objects_over(index, to);
        let rewrites = self.paths_over(index, |_| true).into_iter().filter_map(|hop| {
            let path = self.lists.paths.get(hop)?;
            // To the kernel each nexthop of an IPv6 route is a route of its own.
            let mut left = path.clone();
            left.nexthops.retain(|nexthop| path.v6 && nexthop.interface != index);
            Some((hop, (!left.nexthops.is_empty()).then_some(left)))
        });
        let rewrites = rewrites.collect();
        self.rewrite(rewrites, |_| true, to);
        let of_link = |view: &&AddressView| view.index == index;
        let addresses: Vec<_> = self.addresses.values().filter(of_link).copied().collect();
        for view in addresses {
            self.addresses.remove(&(index, view.address, view.length));
            to.address(&view, AddressChange::Removed);
        }
        let of_link = |key: &&(u32, IpAddr)| key.0 == index;
        let neighbors: Vec<_> = self.neighbors.keys().filter(of_link).copied().collect();
        for key in neighbors {
            self.neighbors.remove(&key);
            to.neighbor(key.0, key.1, None);
        }
        if self.links.remove(&index).is_some() {
            to.link(index, None);
        }
    }

    pub(super) fn set_address(
        &mut self,
        view: &AddressView,
        is_present: bool,
        origin: Origin,
        to: &mut dyn Follower,
    ) {
        let key = (view.index, view.address, view.length);
        if is_present {
            let before = self.addresses.insert(key, *view);
            let change = if origin == Origin::Dump && before.is_none() {
                AddressChange::Listed
            } else {
                AddressChange::Set
            };
            if before != Some(*view) {
                to.address(view, change);
            }
        } else if let Some(gone) = self.addresses.remove(&key) {
            to.address(&gone, AddressChange::Removed);
        }
        let IpAddr::V4(address) = view.address else { return };
        if origin == Origin::Dump {
            return;
        }
        if is_present {
            self.unmark_dead(view.index, |path| !path.v6);
            let paths = self.paths_over(view.index, |path| !path.v6);
            self.retarget(&paths, to);
            return;
        }
        if self.invalidates_source(view, address) {
            let source = u32::from(address);
            let prefers = |(_, path): &(Hop, &Path)| path.source == source;
            let paths = self.lists.paths.iter().filter(prefers);
            let rewrites = paths.map(|(hop, _)| (hop, None)).collect();
            let table = self.table_of(view.index);
            self.rewrite(rewrites, |other| other == table, to);
        }
        let left = |&(index, other, _): &(u32, IpAddr, u8)| index == view.index && other.is_ipv4();
        if !self.addresses.keys().any(left) {
            self.mark_dead(view.index, |path| !path.v6, to);
            let paths = self.paths_over(view.index, |path| !path.v6);
            self.retarget(&paths, to);
        }
    }

    /// Returns whether the kernel searches for routes with a removed address as preferred source.
    fn invalidates_source(&self, view: &AddressView, address: Ipv4Addr) -> bool {
        if self.addresses.keys().any(|&(_, other, _)| other == view.address) {
            return false;
        }
        // A link loses all its addresses, the first of a network first; the kernel does not search
        // for the others.
        let network = |address: Ipv4Addr| Prefix::truncate(u32::from(address), view.length.into());
        let first = |&(index, other, length): &(u32, IpAddr, u8)| match other {
            IpAddr::V4(other) => {
                (index, length) == (view.index, view.length) && network(other) == network(address)
            }
            IpAddr::V6(_) => false,
        };
        !view.secondary || self.addresses.keys().any(first)
    }

    /// Returns the table of the routes of a link's own addresses.
    fn table_of(&self, index: u32) -> u32 {
        let master = self.links.get(&index).and_then(|link| link.master);
        let vrf = master.and_then(|master| self.links.get(&master)?.table);
        vrf.unwrap_or(RT_TABLE_MAIN)
    }

    pub(super) fn set_nexthop_object(
        &mut self,
        id: u32,
        nexthop: NexthopObject,
        to: &mut dyn Follower,
    ) {
        if self.nexthop_objects.get(&id) == Some(&nexthop) {
            return;
        }
        self.nexthop_objects.insert(id, nexthop);
        let mut paths = self.lists.paths.by_object(id).to_vec();
        for group in self.groups_with(id) {
            paths.extend(self.lists.paths.by_object(group));
        }
        self.retarget(&paths, to);
    }

    fn groups_with(&self, id: u32) -> Vec<u32> {
        let has = |nexthop: &NexthopObject| match nexthop {
            NexthopObject::Group { members, .. } => members.iter().any(|member| member.0 == id),
            _ => false,
        };
        self.nexthop_objects.iter().filter(|(_, nexthop)| has(nexthop)).map(|(&id, _)| id).collect()
    }

    /// Removes nexthop objects, groups that have no member left, and the routes by them.
    pub(super) fn remove_nexthop_objects(&mut self, ids: &[u32], to: &mut dyn Follower) {
        let mut rewrites = PathRewrites::new();
        let mut changed = Vec::new();
        let mut gone = ids.to_vec();
        while let Some(id) = gone.pop() {
            self.nexthop_objects.remove(&id);
            rewrites.extend(self.lists.paths.by_object(id).iter().map(|&hop| (hop, None)));
            for group in self.groups_with(id) {
                let Some(NexthopObject::Group { members, .. }) =
                    self.nexthop_objects.get_mut(&group)
                else {
                    continue;
                };
                members.retain(|member| member.0 != id);
                if members.is_empty() {
                    gone.push(group);
                } else {
                    changed.extend(self.lists.paths.by_object(group));
                }
            }
        }
        self.rewrite(rewrites, |_| true, to);
        self.retarget(&changed, to);
    }

    fn remove_nexthop_objects_over(&mut self, index: u32, to: &mut dyn Follower) {
        let over = |nexthop: &NexthopObject| matches!(nexthop, NexthopObject::Single(nexthop) if nexthop.interface == index);
        let nexthop_objects = self.nexthop_objects.iter().filter(|(_, nexthop)| over(nexthop));
        let ids: Vec<u32> = nexthop_objects.map(|(&id, _)| id).collect();
        if !ids.is_empty() {
            self.remove_nexthop_objects(&ids, to);
        }
    }

    fn paths_over(&self, index: u32, of: impl Fn(&Path) -> bool) -> Vec<Hop> {
        let paths = self.lists.paths.iter().filter(|(_, path)| path.uses(index) && of(path));
        paths.map(|(hop, _)| hop).collect()
    }

    fn paths_by_objects_over(&self, index: u32) -> Vec<Hop> {
        let mut paths = Vec::new();
        for (&id, nexthop) in &self.nexthop_objects {
            if matches!(nexthop, NexthopObject::Single(nexthop) if nexthop.interface == index) {
                paths.extend(self.lists.paths.by_object(id));
                for group in self.groups_with(id) {
                    paths.extend(self.lists.paths.by_object(group));
                }
            }
        }
        paths
    }

    /// Marks the nexthops over a link dead and removes the routes that have no other.
    fn mark_dead(&mut self, index: u32, of: impl Fn(&Path) -> bool, to: &mut dyn Follower) {
        let mut rewrites = PathRewrites::new();
        for hop in self.paths_over(index, of) {
            let context = ResolveContext {
                links: &self.links,
                nexthop_objects: &self.nexthop_objects,
                ignoring: &self.ignoring,
            };
            if self.lists.paths.mark(hop, index, true, &context) {
                rewrites.insert(hop, None);
            }
        }
        self.rewrite(rewrites, |_| true, to);
    }

    fn unmark_dead(&mut self, index: u32, of: impl Fn(&Path) -> bool) {
        for hop in self.paths_over(index, of) {
            let context = ResolveContext {
                links: &self.links,
                nexthop_objects: &self.nexthop_objects,
                ignoring: &self.ignoring,
            };
            self.lists.paths.mark(hop, index, false, &context);
        }
    }

    /// Replaces or removes every route that uses one of these paths.
    fn rewrite(
        &mut self,
        rewrites: PathRewrites,
        tables: impl Fn(u32) -> bool,
        to: &mut dyn Follower,
    ) {
        if rewrites.is_empty() {
            return;
        }
        let context = ResolveContext {
            links: &self.links,
            nexthop_objects: &self.nexthop_objects,
            ignoring: &self.ignoring,
        };
        let mut held = Vec::new();
        let mut new = HashMap::new();
        for (hop, replacement) in rewrites {
            let becomes = replacement.and_then(|path| {
                let hop = self.lists.paths.acquire(&path, None, &context);
                held.extend(hop);
                hop
            });
            new.insert(hop, becomes);
        }
        let mut lists = HashMap::new();
        for (hop, list) in self.lists.iter() {
            if list.iter().any(|candidate| new.contains_key(&candidate.path)) {
                let change = |candidate: &Candidate| match new.get(&candidate.path) {
                    None => Some(*candidate),
                    Some(path) => path.map(|path| Candidate { path, ..*candidate }),
                };
                lists.insert(hop, list.iter().filter_map(change).collect::<Vec<_>>());
            }
        }
        self.relist::<u32>(&lists, &tables, to);
        self.relist::<u128>(&lists, &tables, to);
        for hop in held {
            self.lists.paths.release(hop);
        }
    }

    fn relist<A: AddressFamily>(
        &mut self,
        lists: &HashMap<Hop, Vec<Candidate>>,
        tables: &impl Fn(u32) -> bool,
        to: &mut dyn Follower,
    ) {
        let mut found: Vec<(u32, Prefix<A>, Hop)> = Vec::new();
        for (&table, rib) in A::tables(self).iter().filter(|(table, _)| tables(**table)) {
            let affected = rib.iter().filter(|(_, hop)| lists.contains_key(hop));
            found.extend(affected.map(|(prefix, hop)| (table, prefix, hop)));
        }
        for (table, prefix, hop) in found {
            self.set_list(table, prefix, hop, &lists[&hop], to);
        }
    }
}
