//! The router's own addresses, which the destination of every packet is compared with.
//!
//! A packet for the router itself is punted before its TTL is checked (RFC 1812, 5.3.1), so this
//! test precedes every lookup. There are few own addresses, and nearly every packet is for another
//! host. So a filter of 1024 bits answers most tests with one load from a cache line that is always
//! in the cache; the sorted list is searched only if the address's bit is set. A false positive
//! costs a binary search and nothing else.
//!
//! ```text
//!   address ── hash, 10 bits ──► filter: 0 ─► not an own address
//!                                        1 ─► search the list
//! ```
//!
//! Directed broadcast addresses of the router's links belong to this set as well: they must not be
//! forwarded (RFC 2644).

/// The number of bits of the hash: the filter has two to that power.
const HASH: u32 = 10;
/// Knuth's multiplier: 2^64 divided by the golden ratio.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// The addresses of both families that are the router's own.
#[derive(Clone, Debug, Default)]
pub struct Locals {
    v4: Set<u32>,
    v6: Set<u128>,
    /// The IPv4 addresses that no packet from another host has as its source.
    sources_v4: Set<u32>,
}

#[derive(Clone, Debug)]
struct Set<A> {
    filter: [u64; (1 << HASH) / 64],
    sorted: Vec<A>,
}

impl<A> Default for Set<A> {
    fn default() -> Self {
        Self { filter: [0; (1 << HASH) / 64], sorted: Vec::new() }
    }
}

impl<A: Copy + Ord> Set<A> {
    fn new(addresses: impl IntoIterator<Item = A>, hash: impl Fn(A) -> usize) -> Self {
        let mut sorted: Vec<A> = addresses.into_iter().collect();
        sorted.sort_unstable();
        sorted.dedup();
        let mut filter = [0; (1 << HASH) / 64];
        for &address in &sorted {
            let bit = hash(address);
            filter[bit / 64] |= 1 << (bit % 64);
        }
        Self { filter, sorted }
    }

    #[inline(always)]
    fn holds(&self, address: A, bit: usize) -> bool {
        (self.filter[bit / 64] >> (bit % 64)) & 1 == 1
            && self.sorted.binary_search(&address).is_ok()
    }
}

#[inline(always)]
fn hash4(address: u32) -> usize {
    (u64::from(address).wrapping_mul(SPREAD) >> (64 - HASH)) as usize
}

#[inline(always)]
fn hash6(address: u128) -> usize {
    let folded = (address >> 64) as u64 ^ (address as u64).rotate_left(29);
    (folded.wrapping_mul(SPREAD) >> (64 - HASH)) as usize
}

impl Locals {
    /// Makes the set of the own addresses of both families, given in any order.
    pub fn new(v4: impl IntoIterator<Item = u32>, v6: impl IntoIterator<Item = u128>) -> Self {
        Self { v4: Set::new(v4, hash4), v6: Set::new(v6, hash6), sources_v4: Set::default() }
    }

    /// Sets the IPv4 sources that are refused: the own addresses without the broadcast addresses.
    #[must_use]
    pub fn with_sources_v4(self, sources: impl IntoIterator<Item = u32>) -> Self {
        Self { sources_v4: Set::new(sources, hash4), ..self }
    }

    /// Returns whether an IPv4 address is the source of no other host's packets.
    #[inline(always)]
    pub fn holds_source_v4(&self, address: u32) -> bool {
        self.sources_v4.holds(address, hash4(address))
    }

    /// Returns whether an IPv4 address is one of the router's own.
    #[inline(always)]
    pub fn holds_v4(&self, address: u32) -> bool {
        self.v4.holds(address, hash4(address))
    }

    /// Returns whether an IPv6 address is one of the router's own.
    #[inline(always)]
    pub fn holds_v6(&self, address: u128) -> bool {
        self.v6.holds(address, hash6(address))
    }

    /// Returns the IPv4 addresses in order.
    pub fn v4(&self) -> &[u32] {
        &self.v4.sorted
    }

    /// Returns the IPv6 addresses in order.
    pub fn v6(&self) -> &[u128] {
        &self.v6.sorted
    }
}

#[cfg(test)]
mod tests {
    use super::Locals;

    #[test]
    fn only_the_own_addresses_are_held() {
        let v4 = [0xc000_0201, 0xc000_0202, 0x0a00_0001, 0];
        let v6 = [1, 0x2001_0db8 << 96 | 1, u128::MAX];
        let locals = Locals::new(v4, v6);
        assert!(v4.iter().all(|&address| locals.holds_v4(address)));
        assert!(v6.iter().all(|&address| locals.holds_v6(address)));
        for step in 0..1_000_000u32 {
            let other = step.wrapping_mul(0x9e37_79b1);
            assert_eq!(locals.holds_v4(other), v4.contains(&other));
            let other = u128::from(other) << 64 | u128::from(step);
            assert_eq!(locals.holds_v6(other), v6.contains(&other));
        }
        assert!(!Locals::default().holds_v4(0));
        assert!(!Locals::default().holds_v6(0));
    }
}
