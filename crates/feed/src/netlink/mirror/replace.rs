//! Replaces one mirror by another and reports the differences.
//!
//! The end of a resynchronization: the new mirror is authoritative: entries that it lacks are
//! removed. Both sides are walked in order, in parallel: O(routes), and only differences reach the
//! follower. Links and rules are reported before routes.

use core::cmp::Ordering;
use std::collections::BTreeSet;

use fib::{Hop, Prefix, Rib};

use super::{AddressFamily, Mirror};
use crate::netlink::follower::{AddressChange, Follower};

impl Mirror {
    /// Replaces this mirror by `new` and reports the differences.
    pub(crate) fn replace_with(&mut self, new: Self, to: &mut dyn Follower) {
        for (&index, link) in &new.links {
            if self.links.get(&index) != Some(link) {
                to.link(index, Some(link));
            }
        }
        for (key, view) in &self.addresses {
            if !new.addresses.contains_key(key) {
                to.address(view, AddressChange::Removed);
            }
        }
        for (key, view) in &new.addresses {
            if self.addresses.get(key) != Some(view) {
                to.address(view, AddressChange::Set);
            }
        }
        if self.rules != new.rules {
            to.rules(&new.rules);
        }
        for (key, neighbor) in &new.neighbors {
            if self.neighbors.get(key) != Some(neighbor) {
                to.neighbor(key.0, key.1, Some(neighbor));
            }
        }
        for index in self.settings.interfaces(&new.settings) {
            let settings = new.settings.of(index);
            if let Ok(interface) = u32::try_from(index)
                && settings != self.settings.of(index)
            {
                to.settings(interface, settings);
            }
        }
        self.report_differences::<u32>(&new, to);
        self.report_differences::<u128>(&new, to);
        for &(index, address) in self.neighbors.keys() {
            if !new.neighbors.contains_key(&(index, address)) {
                to.neighbor(index, address, None);
            }
        }
        for &index in self.links.keys() {
            if !new.links.contains_key(&index) {
                to.link(index, None);
            }
        }
        *self = new;
        self.v4.values_mut().for_each(Rib::mark_clean);
        self.v6.values_mut().for_each(Rib::mark_clean);
    }

    fn report_differences<A: AddressFamily>(&self, new: &Self, to: &mut dyn Follower) {
        let (olds, news) = (A::tables(self), A::tables(new));
        let tables: BTreeSet<u32> = olds.keys().chain(news.keys()).copied().collect();
        let none = Rib::new();
        for table in tables {
            let mut old = olds.get(&table).unwrap_or(&none).iter().peekable();
            let mut now = news.get(&table).unwrap_or(&none).iter().peekable();
            while let Some((prefix, was, is)) = next_prefix(&mut old, &mut now) {
                let is = new.lists.best(is);
                if self.lists.best(was) != is {
                    A::report(to, table, prefix, is);
                }
            }
        }
    }
}

/// Returns the next prefix of either side, with its list in both.
fn next_prefix<A: AddressFamily>(
    old: &mut core::iter::Peekable<fib::Walk<'_, A>>,
    new: &mut core::iter::Peekable<fib::Walk<'_, A>>,
) -> Option<(Prefix<A>, Hop, Hop)> {
    let order = match (old.peek(), new.peek()) {
        (Some((old, _)), Some((new, _))) => old.cmp(new),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => return None,
    };
    let was = if order.is_le() { old.next() } else { None };
    let is = if order.is_ge() { new.next() } else { None };
    let (prefix, _) = was.or(is)?;
    let hop = |side: Option<(_, Hop)>| side.map_or(Hop::NONE, |(_, hop)| hop);
    Some((prefix, hop(was), hop(is)))
}
