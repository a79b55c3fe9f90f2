//! Applies the messages of one frame as one change, from a sender with one route per prefix.
//!
//! A frame of FRR's protocol contains the deletion of a route and its replacement. The follower
//! receives the state after the frame, and not the state between the two messages.
//!
//! A sender that reconnects sends all its routes again, into a new mirror; stale mirrors hold the
//! routes that it has not sent again yet. Each prefix that it sends is removed from the stale ones, so
//! that together the mirrors equal the follower's state.

use std::mem;

use fib::Hop;

use super::{AddressFamily, Mirror, Origin};
use crate::netlink::error::Damage;
use crate::netlink::follower::{Follower, NullFollower, RouteInfo};
use crate::netlink::message::{Message, Messages};
use crate::netlink::route::RouteView;
use crate::netlink::uapi::{RTM_DELNEXTHOP, RTM_DELROUTE, RTM_NEWNEXTHOP, RTM_NEWROUTE};
use crate::prefix::AnyPrefix;

/// The result of a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FrameResult {
    /// The number of messages.
    pub(crate) messages: usize,
    /// The number of prefixes that were new.
    pub(crate) new: usize,
    /// The first damage.
    pub(crate) damage: Option<Damage>,
}

/// A prefix of a frame, and its best route before the frame.
type Before = (u32, AnyPrefix, Option<RouteInfo>);

impl Mirror {
    /// Applies messages about routes and nexthop objects as one change and ignores others.
    pub(crate) fn apply_frame(
        &mut self,
        frame: &[u8],
        stale: &mut [Self],
        to: &mut dyn Follower,
    ) -> FrameResult {
        let mut about: Vec<Before> = Vec::new();
        let mut result = FrameResult::default();
        for message in Messages::new(frame) {
            result.messages += 1;
            let applied = message.and_then(|message| match message.kind {
                RTM_NEWROUTE | RTM_DELROUTE => self.sole_route(&message, &mut about),
                RTM_NEWNEXTHOP | RTM_DELNEXTHOP => {
                    // This reports routes itself, so the pending reports have to come first.
                    result.new += self.report(&mut about, stale, to);
                    self.apply_from(&message, Origin::Sole, to)
                }
                _ => Ok(()),
            });
            result.damage = result.damage.or(applied.err());
        }
        result.new += self.report(&mut about, stale, to);
        result
    }

    /// Reports the changes of the prefixes in `about`; returns the number of new prefixes.
    fn report(
        &mut self,
        about: &mut Vec<Before>,
        stale: &mut [Self],
        to: &mut dyn Follower,
    ) -> usize {
        let mut new = 0;
        for (table, prefix, before) in about.drain(..) {
            let after = self.best(table, prefix);
            new += usize::from(before.is_none() && after.is_some());
            let known = stale.iter_mut().find_map(|stale| stale.take_out(table, prefix));
            if after != known.or(before).as_ref() {
                match prefix {
                    AnyPrefix::V4(prefix) => to.route_v4(table, prefix, after),
                    AnyPrefix::V6(prefix) => to.route_v6(table, prefix, after),
                }
            }
        }
        new
    }

    fn sole_route(&mut self, message: &Message<'_>, about: &mut Vec<Before>) -> Result<(), Damage> {
        let Some(route) = RouteView::parse(message)? else { return Ok(()) };
        let (table, prefix) = (route.table, route.prefix);
        if !about.iter().any(|kept| (kept.0, kept.1) == (table, prefix)) {
            about.push((table, prefix, self.best(table, prefix).cloned()));
        }
        self.apply_from(message, Origin::Sole, &mut NullFollower)
    }

    fn best(&self, table: u32, prefix: AnyPrefix) -> Option<&RouteInfo> {
        match prefix {
            AnyPrefix::V4(prefix) => self.best_v4(table, prefix),
            AnyPrefix::V6(prefix) => self.best_v6(table, prefix),
        }
    }

    /// Removes all routes of a prefix; returns the best one.
    fn take_out(&mut self, table: u32, prefix: AnyPrefix) -> Option<RouteInfo> {
        match prefix {
            AnyPrefix::V4(prefix) => self.take_out_of(table, prefix),
            AnyPrefix::V6(prefix) => self.take_out_of(table, prefix),
        }
    }

    fn take_out_of<A: AddressFamily>(
        &mut self,
        table: u32,
        prefix: fib::Prefix<A>,
    ) -> Option<RouteInfo> {
        let old: Hop = A::tables(self).get(&table)?.get(prefix)?;
        let best = self.lists.best(old).cloned();
        let mut list = mem::take(&mut self.list);
        list.clear();
        self.set_list(table, prefix, old, &list, &mut NullFollower);
        self.list = list;
        best
    }

    /// Returns whether there is no route.
    pub(crate) fn has_no_routes(&self) -> bool {
        self.v4.is_empty() && self.v6.is_empty()
    }
}
