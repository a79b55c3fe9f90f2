//! What the kernel removes without a word about it.
//!
//! | what happens | what goes, of IPv4 | of IPv6 |
//! |---|---|---|
//! | a link goes down | routes all of whose ways are over dead links, but those of host scope | the same, and it is said (unless `skip_notify_on_dev_down`) |
//! | a link is deleted | routes with any way over it | those ways, and it is said |
//! | the last IPv4 address of a link is removed | as when it goes down, host scope too | |
//! | an address is removed | routes of the link's table that prefer it as their source (said since Linux 6.6) | |
//! | a link goes down, loses its carrier, or is deleted | nexthop objects over it, groups that have no other member, and the routes by them | the same |
//! | a nexthop object is deleted | routes by it | the same, and it is said |
//!
//! From `net/ipv4/fib_frontend.c`, `fib_semantics.c`, `net/ipv4/nexthop.c` and
//! `net/ipv6/route.c` of Linux 6.18 by what they do: each row is a test against `ip`
//! (`tests/root_netlink/`). Where the kernel does say it, it says what is known, and
//! nothing happens twice.
//!
//! What goes is worked out once a path, then once a list, and then looked for in the
//! tables: O(routes) for a walk that reads one word of each.

use core::net::{IpAddr, Ipv4Addr};
use std::collections::HashMap;

use fib::{Hop, Prefix};

use super::lists::Entry;
use super::paths::{Path, World};
use super::{Kin, Mirror, Origin};
use crate::netlink::address::AddressView;
use crate::netlink::follower::Follower;
use crate::netlink::link::Link;
use crate::netlink::nexthop::Nexthop;
use crate::netlink::uapi::{RT_SCOPE_HOST, RT_TABLE_MAIN};

/// What becomes of a path: another, or nothing.
type Fates = HashMap<Hop, Option<Path>>;

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
                self.forget_nexthops_over(index, to);
            }
            if was_up && !up {
                self.kill(index, |path| path.v6 || path.scope != RT_SCOPE_HOST, to);
            } else if up && !was_up {
                self.revive(index, |_| true);
            }
        }
        let mut paths = self.paths_over(index, |_| true);
        paths.extend(self.paths_by_nexthops_over(index));
        self.retarget(&paths, to);
    }

    fn delete_link(&mut self, index: u32, to: &mut dyn Follower) {
        self.forget_nexthops_over(index, to);
        let fates = self.paths_over(index, |_| true).into_iter().filter_map(|hop| {
            let path = self.lists.paths.get(hop)?;
            // Each way of an IPv6 route is a route of its own to the kernel.
            let mut left = path.clone();
            left.ways.retain(|way| path.v6 && way.interface != index);
            Some((hop, (!left.ways.is_empty()).then_some(left)))
        });
        let fates = fates.collect();
        self.rewrite(fates, |_| true, to);
        let of_link = |key: &&(u32, IpAddr, u8)| key.0 == index;
        let addresses: Vec<_> = self.addresses.iter().filter(of_link).copied().collect();
        for address in addresses {
            self.addresses.remove(&address);
            to.address(address.0, address.1, address.2, false);
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
        there: bool,
        origin: Origin,
        to: &mut dyn Follower,
    ) {
        let key = (view.index, view.address, view.length);
        let new = if there { self.addresses.insert(key) } else { self.addresses.remove(&key) };
        if new {
            to.address(view.index, view.address, view.length, there);
        }
        let IpAddr::V4(address) = view.address else { return };
        if origin == Origin::Dump {
            return;
        }
        if there {
            self.revive(view.index, |path| !path.v6);
            let paths = self.paths_over(view.index, |path| !path.v6);
            self.retarget(&paths, to);
            return;
        }
        if self.is_gone(view, address) {
            let source = u32::from(address);
            let prefers = |(_, path): &(Hop, &Path)| path.source == source;
            let paths = self.lists.paths.iter().filter(prefers);
            let fates = paths.map(|(hop, _)| (hop, None)).collect();
            let table = self.table_of(view.index);
            self.rewrite(fates, |other| other == table, to);
        }
        let left = |&(index, other, _): &(u32, IpAddr, u8)| index == view.index && other.is_ipv4();
        if !self.addresses.iter().any(left) {
            self.kill(view.index, |path| !path.v6, to);
            let paths = self.paths_over(view.index, |path| !path.v6);
            self.retarget(&paths, to);
        }
    }

    /// Says whether the kernel looks for routes that prefer an address just removed.
    fn is_gone(&self, view: &AddressView, address: Ipv4Addr) -> bool {
        if self.addresses.iter().any(|&(_, other, _)| other == view.address) {
            return false;
        }
        // With a link all its addresses go, the first of a network first: for those that
        // follow nothing is looked for.
        let network = |address: Ipv4Addr| Prefix::truncate(u32::from(address), view.length.into());
        let first = |&(index, other, length): &(u32, IpAddr, u8)| match other {
            IpAddr::V4(other) => {
                (index, length) == (view.index, view.length) && network(other) == network(address)
            }
            IpAddr::V6(_) => false,
        };
        !view.secondary || self.addresses.iter().any(first)
    }

    /// Returns the table that routes of a link's own addresses are in.
    fn table_of(&self, index: u32) -> u32 {
        let master = self.links.get(&index).and_then(|link| link.master);
        let vrf = master.and_then(|master| self.links.get(&master)?.table);
        vrf.unwrap_or(RT_TABLE_MAIN)
    }

    pub(super) fn set_nexthop(&mut self, id: u32, nexthop: Nexthop, to: &mut dyn Follower) {
        if self.nexthops.get(&id) == Some(&nexthop) {
            return;
        }
        self.nexthops.insert(id, nexthop);
        let mut paths = self.lists.paths.by_nexthop(id).to_vec();
        for group in self.groups_with(id) {
            paths.extend(self.lists.paths.by_nexthop(group));
        }
        self.retarget(&paths, to);
    }

    fn groups_with(&self, id: u32) -> Vec<u32> {
        let has = |nexthop: &Nexthop| match nexthop {
            Nexthop::Group { members, .. } => members.iter().any(|member| member.0 == id),
            _ => false,
        };
        self.nexthops.iter().filter(|(_, nexthop)| has(nexthop)).map(|(&id, _)| id).collect()
    }

    /// Removes nexthop objects, groups that have no member left, and the routes by them.
    pub(super) fn forget_nexthops(&mut self, ids: &[u32], to: &mut dyn Follower) {
        let mut fates = Fates::new();
        let mut changed = Vec::new();
        let mut gone = ids.to_vec();
        while let Some(id) = gone.pop() {
            self.nexthops.remove(&id);
            fates.extend(self.lists.paths.by_nexthop(id).iter().map(|&hop| (hop, None)));
            for group in self.groups_with(id) {
                let Some(Nexthop::Group { members, .. }) = self.nexthops.get_mut(&group) else {
                    continue;
                };
                members.retain(|member| member.0 != id);
                if members.is_empty() {
                    gone.push(group);
                } else {
                    changed.extend(self.lists.paths.by_nexthop(group));
                }
            }
        }
        self.rewrite(fates, |_| true, to);
        self.retarget(&changed, to);
    }

    fn forget_nexthops_over(&mut self, index: u32, to: &mut dyn Follower) {
        let over =
            |nexthop: &Nexthop| matches!(nexthop, Nexthop::Way(way) if way.interface == index);
        let nexthops = self.nexthops.iter().filter(|(_, nexthop)| over(nexthop));
        let ids: Vec<u32> = nexthops.map(|(&id, _)| id).collect();
        if !ids.is_empty() {
            self.forget_nexthops(&ids, to);
        }
    }

    fn paths_over(&self, index: u32, of: impl Fn(&Path) -> bool) -> Vec<Hop> {
        let paths = self.lists.paths.iter().filter(|(_, path)| path.uses(index) && of(path));
        paths.map(|(hop, _)| hop).collect()
    }

    fn paths_by_nexthops_over(&self, index: u32) -> Vec<Hop> {
        let mut paths = Vec::new();
        for (&id, nexthop) in &self.nexthops {
            if matches!(nexthop, Nexthop::Way(way) if way.interface == index) {
                paths.extend(self.lists.paths.by_nexthop(id));
                for group in self.groups_with(id) {
                    paths.extend(self.lists.paths.by_nexthop(group));
                }
            }
        }
        paths
    }

    /// Marks the ways over a link dead, and removes the routes that have no other.
    fn kill(&mut self, index: u32, of: impl Fn(&Path) -> bool, to: &mut dyn Follower) {
        let mut fates = Fates::new();
        for hop in self.paths_over(index, of) {
            let world =
                World { links: &self.links, nexthops: &self.nexthops, ignoring: &self.ignoring };
            if self.lists.paths.mark(hop, index, true, &world) {
                fates.insert(hop, None);
            }
        }
        self.rewrite(fates, |_| true, to);
    }

    fn revive(&mut self, index: u32, of: impl Fn(&Path) -> bool) {
        for hop in self.paths_over(index, of) {
            let world =
                World { links: &self.links, nexthops: &self.nexthops, ignoring: &self.ignoring };
            self.lists.paths.mark(hop, index, false, &world);
        }
    }

    /// Gives every route by one of these paths its new one, or removes it.
    fn rewrite(&mut self, fates: Fates, tables: impl Fn(u32) -> bool, to: &mut dyn Follower) {
        if fates.is_empty() {
            return;
        }
        let world =
            World { links: &self.links, nexthops: &self.nexthops, ignoring: &self.ignoring };
        let mut held = Vec::new();
        let mut new = HashMap::new();
        for (hop, fate) in fates {
            let becomes = fate.and_then(|path| {
                let hop = self.lists.paths.acquire(&path, None, &world);
                held.extend(hop);
                hop
            });
            new.insert(hop, becomes);
        }
        let mut lists = HashMap::new();
        for (hop, list) in self.lists.iter() {
            if list.iter().any(|entry| new.contains_key(&entry.path)) {
                let change = |entry: &Entry| match new.get(&entry.path) {
                    None => Some(*entry),
                    Some(path) => path.map(|path| Entry { path, ..*entry }),
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

    fn relist<A: Kin>(
        &mut self,
        lists: &HashMap<Hop, Vec<Entry>>,
        tables: &impl Fn(u32) -> bool,
        to: &mut dyn Follower,
    ) {
        let mut found: Vec<(u32, Prefix<A>, Hop)> = Vec::new();
        for (&table, rib) in A::tables(self).iter().filter(|(table, _)| tables(**table)) {
            let affected = rib.iter().filter(|(_, hop)| lists.contains_key(hop));
            found.extend(affected.map(|(prefix, hop)| (table, prefix, hop)));
        }
        for (table, prefix, hop) in found {
            self.put(table, prefix, hop, &lists[&hop], to);
        }
    }
}
