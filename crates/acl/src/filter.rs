//! The address filter: whether a rule may match a packet, by its source and its destination.
//!
//! ```text
//!   source      ─► its block ─► hash ─► bit ─┐
//!   destination ─► its block ─► hash ─► bit ─┴─► or
//! ```
//!
//! Most packets match no rule of most lists. Where each rule has a source or a destination, two bits are enough
//! to see that: the lookups that find a packet's rules are left to the few others. An address space is divided
//! into blocks of one prefix length, and the bits of all blocks that a rule's prefixes touch are set (a Bloom
//! filter of one hash function, Bloom 1970). Blocks that share a bit cost lookups, never a match.

use fib::Prefix;

use crate::{Addresses, PacketFamily, Rule};

/// Bits for each block that is set, as far as `MOST` permits: so one in this many other blocks shares a bit.
const BITS_PER_BLOCK: usize = 32;

/// The least and the greatest number of bits, as powers of two: 512 bytes and 128 KiB, which a CPU's second cache
/// holds.
const LEAST: u32 = 12;
const MOST: u32 = 20;

/// The number of blocks that one prefix may touch on average: more would leave no bit clear.
const BLOCKS_PER_PREFIX: usize = 4;

/// The blocks of a set of prefixes.
#[derive(Debug)]
struct Blocks {
    bits: Box<[u64]>,
    /// The shift that leaves of an address, whose 64 upper bits count, the number of its block.
    block_shift: u32,
    /// The shift that leaves of a product the index of a bit.
    hash_shift: u32,
}

impl Blocks {
    /// Sets the blocks that prefixes touch; `None` if they are too many.
    fn build<A: PacketFamily>(prefixes: &[Prefix<A>]) -> Option<Self> {
        let most = (BLOCKS_PER_PREFIX * prefixes.len()).min((1 << MOST) / 4);
        let touched = |length: u32| {
            let blocks =
                |prefix: &Prefix<A>| 1_usize << length.saturating_sub(prefix.len()).min(31);
            prefixes.iter().map(blocks).fold(0, usize::saturating_add)
        };
        let length = (1..=A::BITS.min(64)).rev().find(|&length| touched(length) <= most.max(1))?;
        let bits = (touched(length) * BITS_PER_BLOCK).next_power_of_two().ilog2();
        let bits = bits.clamp(LEAST, MOST);
        let mut blocks = Self {
            bits: vec![0; 1 << (bits - 6)].into(),
            block_shift: 64 - length,
            hash_shift: 64 - bits,
        };
        for prefix in prefixes {
            let first = upper(prefix.addr()) >> blocks.block_shift;
            for block in (first..).take(1 << length.saturating_sub(prefix.len())) {
                let bit = blocks.hash(block);
                blocks.bits[bit / 64] |= 1 << (bit % 64);
            }
        }
        Some(blocks)
    }

    /// Returns the index of a block's bit (multiplicative hashing: Knuth, volume 3, 6.4).
    #[inline(always)]
    fn hash(&self, block: u64) -> usize {
        (block.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> self.hash_shift) as usize
    }

    /// Returns 1 if a prefix may have the address, else 0.
    #[inline(always)]
    fn contain<A: PacketFamily>(&self, address: A) -> u64 {
        let bit = self.hash(upper(address) >> self.block_shift);
        self.bits.get(bit / 64).copied().unwrap_or(0) >> (bit % 64) & 1
    }
}

/// Returns the 64 upper bits of an address, those of a shorter one followed by zeros.
#[inline(always)]
fn upper<A: PacketFamily>(address: A) -> u64 {
    (address.to_u128() << (128 - A::BITS) >> 64) as u64
}

/// The packets that rules may match, by their addresses.
#[derive(Debug)]
pub(crate) struct AddressFilter {
    /// The sources of the rules that have one.
    sources: Blocks,
    /// The destinations of the others.
    destinations: Blocks,
}

impl AddressFilter {
    /// Builds the filter of some rules; `None` if a rule has neither a source nor a destination, or if their
    /// prefixes are too short: every packet is to be looked up then.
    ///
    /// # Complexity
    ///
    /// O(prefixes).
    pub(crate) fn build<'r, A: PacketFamily>(
        rules: impl Iterator<Item = &'r Rule>,
    ) -> Option<Self> {
        let (mut sources, mut destinations) = (Vec::new(), Vec::new());
        let add = |prefixes: &mut Vec<_>, addresses: &Addresses| {
            prefixes.extend_from_slice(A::prefixes(addresses));
        };
        for rule in rules {
            match (&rule.from, &rule.to) {
                (Some(from), _) => add(&mut sources, from),
                (None, Some(to)) => add(&mut destinations, to),
                (None, None) => return None,
            }
        }
        Some(Self {
            sources: Blocks::build::<A>(&sources)?,
            destinations: Blocks::build::<A>(&destinations)?,
        })
    }

    /// Returns whether a rule may match packets with these addresses.
    #[inline(always)]
    pub(crate) fn may_match<A: PacketFamily>(&self, source: A, destination: A) -> bool {
        self.sources.contain(source) | self.destinations.contain(destination) != 0
    }

    /// Returns the size in bytes.
    pub(crate) fn footprint(&self) -> usize {
        size_of_val(&*self.sources.bits) + size_of_val(&*self.destinations.bits)
    }
}

#[cfg(test)]
mod tests {
    use super::AddressFilter;
    use crate::Rule;

    fn rules(lines: &[&str]) -> Vec<Rule> {
        lines.iter().map(|line| Rule::parse(line, &|_| None).unwrap()).collect()
    }

    fn address(text: &str) -> u32 {
        text.parse::<std::net::Ipv4Addr>().unwrap().into()
    }

    /// Addresses of rules pass, whatever the lengths of their prefixes; most of the others do not.
    #[test]
    fn addresses_of_rules_pass() {
        let rules = rules(&[
            "deny from 192.0.2.0/24",
            "deny from 198.51.100.7/32 to 203.0.113.0/24",
            "permit to 10.0.0.0/20",
            "permit to 100.64.0.0/22",
        ]);
        let filter = AddressFilter::build::<u32>(rules.iter()).unwrap();
        let pass = |source: &str, destination: &str| {
            filter.may_match(address(source), address(destination))
        };
        assert!(pass("192.0.2.0", "1.1.1.1") && pass("192.0.2.255", "1.1.1.1"));
        assert!(pass("198.51.100.7", "203.0.113.9"));
        for last in 0..16 {
            assert!(pass("1.1.1.1", &format!("10.0.{last}.77")), "{last}");
        }
        assert!(pass("1.1.1.1", "100.64.3.255"));
        // A destination beside a source is no reason to look a packet up.
        assert!(!pass("1.1.1.1", "203.0.113.9"));
        let mut random = fastrand::Rng::with_seed(18);
        let passed = (0..10_000).filter(|_| filter.may_match(random.u32(..), random.u32(..)));
        assert!(passed.count() < 1000);
    }

    #[test]
    fn packets_pass_where_a_rule_has_no_address() {
        let rules = rules(&["deny from 192.0.2.0/24", "deny ipproto tcp dport 25"]);
        assert!(AddressFilter::build::<u32>(rules.iter()).is_none());
    }

    #[test]
    fn no_packet_passes_where_no_rule_has_an_address_of_the_family() {
        let filter = AddressFilter::build::<u128>([].iter()).unwrap();
        assert!(!filter.may_match(0_u128, u128::MAX));
    }

    /// A prefix that has half of all addresses among thousands of long ones.
    #[test]
    fn short_prefixes_pass_too() {
        let mut lines: Vec<_> =
            (0..2000).map(|at| format!("deny from 10.{}.{}.1/32", at / 256, at % 256)).collect();
        lines.push("deny from 128.0.0.0/1".to_owned());
        let rules = rules(&lines.iter().map(String::as_str).collect::<Vec<_>>());
        let filter = AddressFilter::build::<u32>(rules.iter()).unwrap();
        let mut random = fastrand::Rng::with_seed(18);
        for _ in 0..10_000 {
            assert!(filter.may_match(random.u32(1 << 31..), 0));
        }
        assert!(filter.may_match(address("10.7.207.1"), 0));
    }
}
