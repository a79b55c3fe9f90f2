//! Packets on a gate's front that no honest host sends: forged packets.
//!
//! ```text
//!   source       192.0.2.0/24    protected          ─► forged
//!                192.0.2.9/32    exempt, at the front ─► not forged
//!                10.9.1.1/32     a grantor          ─► forged
//!   destination  10.9.1.1/32     a tunnel's end     ─► forged (an action of the policy's tables)
//! ```
//!
//! A grantor delivers packets from a tunnel without a check, so a forged packet that reaches a
//! grantor past the gate passes as granted (RFC 2003, 5; RFC 6169, 2.2). The hosts behind
//! the gate and the grantors are reached by the back interface alone: a packet that arrives at the
//! front with one of their addresses as its source is forged (RFC 2827), and so
//! is one for the end of a tunnel.
//!
//! Sources are looked up together with the destinations of packets whose flow has no entry. A flow
//! that is forged never gets an entry, because entries are made where the policy has been looked
//! up, so a flow that has one is not looked up again. The gate's own addresses are not here: they
//! are known with the interfaces (`gatekeeper/src/hook/ingress.rs`).

use fib::{Choice, Fib, Full, Hop, Prefix, Rib};

use super::Address;
use crate::flow::{Flow, Pair};

const INSIDE: Hop = Hop(1);
const OUTSIDE: Hop = Hop(2);

/// Prefixes by where packets with their addresses as source may come from.
#[derive(Debug, Default)]
pub(super) struct InsidePrefixes {
    v4: Rib<u32>,
    v6: Rib<u128>,
}

impl InsidePrefixes {
    pub(super) fn v4(&mut self, prefix: Prefix<u32>, inside: bool) {
        self.v4.insert(prefix, if inside { INSIDE } else { OUTSIDE });
    }

    pub(super) fn v6(&mut self, prefix: Prefix<u128>, inside: bool) {
        self.v6.insert(prefix, if inside { INSIDE } else { OUTSIDE });
    }

    /// Makes the tables of sources; without tables if no source is inside.
    pub(super) fn build(&self) -> Result<Forged, Full> {
        let none = self.v4.is_empty() && self.v6.is_empty();
        let fibs =
            |choice| Ok((Fib::build(&self.v4, choice, 1)?, Fib::build(&self.v6, choice, 1)?));
        let fibs = if none { None } else { Some(fibs(Choice::Auto)?) };
        let mut parts = [PartSet::default(); 2];
        self.v4.iter().filter(|(_, hop)| *hop == INSIDE).for_each(|(prefix, _)| {
            let first = part4(prefix.addr());
            parts[0].add(first, part4(prefix.last()));
        });
        self.v6.iter().filter(|(_, hop)| *hop == INSIDE).for_each(|(prefix, _)| {
            match prefix.len() {
                32.. => parts[1].add(part6(prefix.addr()), part6(prefix.addr())),
                _ => parts[1].add(0, u8::MAX),
            }
        });
        Ok(Forged { fibs, parts })
    }
}

/// The parts (of 256) of an address space that have a prefix inside: most sources are in none of
/// them, and need no lookup.
#[derive(Clone, Copy, Debug, Default)]
struct PartSet([u64; 4]);

impl PartSet {
    fn add(&mut self, first: u8, last: u8) {
        (first..=last).for_each(|part| self.0[usize::from(part >> 6)] |= 1 << (part & 63));
    }

    #[inline(always)]
    fn has(&self, part: u8) -> bool {
        self.0[usize::from(part >> 6)] >> (part & 63) & 1 != 0
    }
}

/// The part of an IPv4 address: its first byte.
#[inline(always)]
fn part4(address: u32) -> u8 {
    (address >> 24) as u8
}

/// The part of an IPv6 address: a hash of its first 32 bits, since few first bytes are in use.
#[inline(always)]
fn part6(address: u128) -> u8 {
    (((address >> 96) as u32).wrapping_mul(0x9e37_79b1) >> 24) as u8
}

/// Sources that no packet at the front can have, frozen.
#[derive(Debug)]
pub struct Forged {
    fibs: Option<(Fib<u32>, Fib<u128>)>,
    /// Of IPv4 and of IPv6.
    parts: [PartSet; 2],
}

impl Forged {
    /// Returns whether a flow's source has to be looked up: whether its part of the address space
    /// has a prefix inside.
    #[inline(always)]
    pub fn may_contain(&self, flow: &Flow) -> bool {
        match flow.pair() {
            Pair::V4 { src, .. } => self.parts[0].has(part4(src)),
            Pair::V6 { src, .. } => self.parts[1].has(part6(src)),
        }
    }

    /// Returns whether a flow's source is one that no packet at the front can have.
    pub fn contains(&self, flow: &Flow) -> bool {
        let Some((v4, v6)) = &self.fibs else { return false };
        INSIDE
            == match flow.pair() {
                Pair::V4 { src, .. } => v4.lookup(src),
                Pair::V6 { src, .. } => v6.lookup(src),
            }
    }

    /// Looks up IPv4 sources together, as many as there are hops, and names each that is forged.
    pub fn v4(&self, srcs: &[u32], hops: &mut [Hop], mut each: impl FnMut(usize)) {
        let Some((v4, _)) = &self.fibs else { return };
        v4.lookup_batch(srcs, hops);
        hops.iter().enumerate().filter(|(_, hop)| **hop == INSIDE).for_each(|(at, _)| each(at));
    }

    /// Looks up IPv6 sources together.
    pub fn v6(&self, srcs: &[u128], hops: &mut [Hop], mut each: impl FnMut(usize)) {
        let Some((_, v6)) = &self.fibs else { return };
        v6.lookup_batch(srcs, hops);
        hops.iter().enumerate().filter(|(_, hop)| **hop == INSIDE).for_each(|(at, _)| each(at));
    }
}

/// Returns an address as the prefix that holds it alone.
pub(super) enum HostPrefix {
    /// IPv4.
    V4(Prefix<u32>),
    /// IPv6.
    V6(Prefix<u128>),
}

impl From<Address> for HostPrefix {
    fn from(address: Address) -> Self {
        match address {
            Address::V4(address) => Self::V4(Prefix::truncate(address, 32)),
            Address::V6(address) => Self::V6(Prefix::truncate(address, 128)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn source_within_a_prefix_inside_is_looked_up() {
        let mut rng = fastrand::Rng::with_seed(12);
        let mut spared = 0;
        for _ in 0..300 {
            let mut sides = InsidePrefixes::default();
            let mut addresses = Vec::new();
            for _ in 0..rng.usize(1..6) {
                let len = if rng.u8(..8) == 0 { rng.u32(..8) } else { rng.u32(8..=32) };
                let prefix = Prefix::truncate(rng.u32(..), len);
                sides.v4(prefix, rng.bool());
                addresses.push(Flow::v4(prefix.addr() | rng.u32(..) & prefix.last(), 0));
                let prefix = Prefix::truncate(rng.u128(..), 4 * len);
                sides.v6(prefix, rng.bool());
                addresses.push(Flow::v6(prefix.addr() | rng.u128(..) & prefix.last(), 0));
            }
            let forged = sides.build().unwrap();
            addresses.extend((0..50).map(|_| Flow::v4(rng.u32(..), 0)));
            addresses.extend((0..50).map(|_| Flow::v6(rng.u128(..), 0)));
            for flow in addresses {
                assert!(forged.may_contain(&flow) || !forged.contains(&flow), "{flow}");
                spared += u32::from(!forged.may_contain(&flow));
            }
        }
        assert!(spared > 10_000, "{spared}");
    }
}
