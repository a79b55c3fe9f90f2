//! Addresses of a group of packets by family, so that tables are looked up in batches.

use fib::Hop;

use super::{GROUP, Packet, Unresolved};
use crate::flow::{Flow, Pair};
use crate::policy::{Action, Address, Policy, RuleId};

/// Addresses by family, and the packet of each.
pub(super) struct Families {
    four: [u32; GROUP],
    six: [u128; GROUP],
    of_four: [u8; GROUP],
    of_six: [u8; GROUP],
    fours: usize,
    sixes: usize,
}

/// Returns the destination of a flow.
#[inline]
pub(super) fn dst(flow: &Flow) -> Address {
    match flow.pair() {
        Pair::V4 { dst, .. } => Address::V4(dst),
        Pair::V6 { dst, .. } => Address::V6(dst),
    }
}

/// Returns the source of a flow.
#[inline]
pub(super) fn src(flow: &Flow) -> Address {
    match flow.pair() {
        Pair::V4 { src, .. } => Address::V4(src),
        Pair::V6 { src, .. } => Address::V6(src),
    }
}

impl Families {
    /// Sorts at most [`GROUP`] addresses.
    #[inline]
    pub(super) fn of(addresses: impl Iterator<Item = Address>) -> Self {
        let mut sorted = Self {
            four: [0; GROUP],
            six: [0; GROUP],
            of_four: [0; GROUP],
            of_six: [0; GROUP],
            fours: 0,
            sixes: 0,
        };
        for (number, address) in addresses.enumerate() {
            match address {
                Address::V4(address) => {
                    (sorted.four[sorted.fours], sorted.of_four[sorted.fours]) =
                        (address, number as u8);
                    sorted.fours += 1;
                }
                Address::V6(address) => {
                    (sorted.six[sorted.sixes], sorted.of_six[sorted.sixes]) =
                        (address, number as u8);
                    sorted.sixes += 1;
                }
            }
        }
        sorted
    }

    /// Calls `look` with the IPv4 addresses, room for as many hops, and the numbers of the packets,
    /// if there are any.
    #[inline]
    pub(super) fn v4(&mut self, look: impl FnOnce(&[u32], &mut [Hop], &[u8])) {
        if self.fours > 0 {
            let mut hops = [Hop::NONE; GROUP];
            look(&self.four[..self.fours], &mut hops[..self.fours], &self.of_four);
        }
    }

    /// The same for IPv6.
    #[inline]
    pub(super) fn v6(&mut self, look: impl FnOnce(&[u128], &mut [Hop], &[u8])) {
        if self.sixes > 0 {
            let mut hops = [Hop::NONE; GROUP];
            look(&self.six[..self.sixes], &mut hops[..self.sixes], &self.of_six);
        }
    }
}

/// Looks up the destinations of packets, and the sources, those of a family together.
pub(super) fn look_up(policy: &Policy, packets: &[Packet], left: &mut [Unresolved]) {
    let mut families =
        Families::of(left.iter().map(|left| dst(&packets[usize::from(left.at)].flow)));
    families.v4(|dsts, hops, of| {
        policy.actions_v4(dsts, hops, |at, action, line| {
            let left = &mut left[usize::from(of[at])];
            (left.action, left.line) = (action, line);
        });
    });
    families.v6(|dsts, hops, of| {
        policy.actions_v6(dsts, hops, |at, action, line| {
            let left = &mut left[usize::from(of[at])];
            (left.action, left.line) = (action, line);
        });
    });
    let forged = policy.forged();
    let flow = |left: &Unresolved| &packets[usize::from(left.at)].flow;
    if !left.iter().any(|left| forged.may_contain(flow(left))) {
        return;
    }
    let mut families = Families::of(left.iter().map(|left| src(flow(left))));
    let mut forge = |number: u8| {
        let left = &mut left[usize::from(number)];
        (left.action, left.line) = (Some(Action::Forged), RuleId::NONE);
    };
    families.v4(|srcs, hops, of| forged.v4(srcs, hops, |at| forge(of[at])));
    families.v6(|srcs, hops, of| forged.v6(srcs, hops, |at| forge(of[at])));
}
