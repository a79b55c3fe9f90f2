//! Corrects the route of one address by the kernel's answer to a lookup.
//!
//! A message that was lost without notice, or misunderstood, leaves a route in the mirror that the
//! kernel does not have. A resynchronization takes seconds with a full table, during which no other
//! change is processed; a lookup takes microseconds and returns the route of a table that covers an
//! address ([`Lookup`](crate::netlink::Lookup)). From the answer follows:
//!
//! - the kernel has no routes for longer prefixes that cover the address: they are removed;
//! - the route in the answer replaces any route for its prefix.
//!
//! Limits: the answer names one route. Others of the same prefix with a higher metric are removed with
//! the replaced one, until they are reported again. If the answer equals the mirror nothing changes.

use core::net::IpAddr;

use fib::{Hop, Prefix};

use super::{AddressFamily, Mirror, Origin};
use crate::netlink::error::Damage;
use crate::netlink::follower::{Follower, Target};
use crate::netlink::lookup::{LookupResult, lookup_result};
use crate::netlink::message::Message;
use crate::netlink::route::RouteView;
use crate::prefix::AnyPrefix;

impl Mirror {
    /// Applies the kernel's answer to a lookup of `address` in `table`: the message with the route,
    /// or its absence. Returns whether the answer was about that table.
    ///
    /// # Errors
    ///
    /// [`Damage`], and then nothing has changed.
    pub(crate) fn correct(
        &mut self,
        table: u32,
        address: IpAddr,
        answer: Option<&Message<'_>>,
        to: &mut dyn Follower,
    ) -> Result<bool, Damage> {
        let mut replacement = None;
        if let Some(message) = answer {
            let view = RouteView::parse(message)?.filter(|view| view.table == table);
            let Some(view) = view else { return Ok(false) };
            let Some(LookupResult::Route { prefix, info, .. }) = lookup_result(&view)? else {
                return Ok(false);
            };
            replacement = Some((prefix, info));
        }
        let length = replacement.as_ref().map(|(prefix, _)| match prefix {
            AnyPrefix::V4(prefix) => prefix.len(),
            AnyPrefix::V6(prefix) => prefix.len(),
        });
        match address {
            IpAddr::V4(v4) => self.drop_longer(table, u32::from(v4), length, to),
            IpAddr::V6(v6) => self.drop_longer(table, u128::from(v6), length, to),
        }
        let (Some(message), Some((prefix, info))) = (answer, replacement) else { return Ok(true) };
        let best = match prefix {
            AnyPrefix::V4(prefix) => self.best_v4(table, prefix),
            AnyPrefix::V6(prefix) => self.best_v6(table, prefix),
        };
        if best.is_none_or(|best| *best.target != *info.target) {
            self.apply_from(message, Origin::Sole, to)?;
        }
        Ok(true)
    }

    /// Removes the routes that hold `address` and are longer than the kernel's.
    fn drop_longer<A: AddressFamily>(
        &mut self,
        table: u32,
        address: A,
        length: Option<u32>,
        to: &mut dyn Follower,
    ) {
        let Some(rib) = A::tables(self).get(&table) else { return };
        let longer = |prefix: Prefix<A>| length.is_none_or(|length| prefix.len() > length);
        // An unusable route is not the kernel's answer, though it may exist; and after a `throw`
        // route the kernel continues with another table.
        let leads = |hop| self.lists.best(hop).is_some_and(|best| *best.target != Target::Throw);
        let covering = rib.covering(Prefix::truncate(address, A::BITS));
        let gone: Vec<(Prefix<A>, Hop)> =
            covering.filter(|&(prefix, hop)| longer(prefix) && leads(hop)).collect();
        for (prefix, hop) in gone {
            self.set_list(table, prefix, hop, &Vec::new(), to);
        }
    }
}
