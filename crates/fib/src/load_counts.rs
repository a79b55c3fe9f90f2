//! The distribution of the loads of a lookup, over all routes and over all addresses.
//!
//! ```text
//!   routes:     the first address of each ──────────────► trace ─► count[loads] += 1
//!   addresses:  blocks of 256: without a longer route ──► trace ─► count[loads] += 256
//!                              with one, each address ──► trace ─► count[loads] += 1
//! ```
//!
//! In a block without a route that is longer than the block, all addresses have the same answer, and one stands
//! for all. That is exact where the path of a lookup depends on the answer's prefix. It is not for
//! `patricia`, which tests bits before it compares the prefix, and for engines with Bloom filters or hashed addresses.
//!
//! A lookup of a DXR table without extensions that has one load ends in the direct table; one with n steps of
//! the search has n + 2 (Zec's thesis, table 3.1).

use alloc::vec::Vec;

use crate::engine::Step;
use crate::factory::Family;
use crate::fib::Fib;
use crate::rib::Rib;

/// The bits of an address within a block.
const BLOCK_BITS: u32 = 8;

/// The number of lookups by the number of their loads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadCounts {
    by_loads: Vec<u64>,
}

impl LoadCounts {
    /// Counts the loads for the first address of each route. O(n) lookups.
    pub fn of_routes<A: Family>(fib: &Fib<A>, rib: &Rib<A>) -> Self {
        let (mut counts, mut steps) = (Self::default(), Vec::new());
        for (prefix, _) in rib {
            counts.add(Self::loads(fib, prefix.addr(), &mut steps), 1);
        }
        counts
    }

    /// Counts the loads for each address of a family of at most 32 bits; `None` for a wider one. 2^24 lookups for
    /// IPv4, and 256 for each /24 with a longer route.
    pub fn of_addresses<A: Family>(fib: &Fib<A>, rib: &Rib<A>) -> Option<Self> {
        if A::BITS > 32 {
            return None;
        }
        let len = A::BITS - BLOCK_BITS;
        let mut divided = rib
            .iter()
            .filter(|(prefix, _)| prefix.len() > len)
            .map(|(prefix, _)| prefix.addr().bits(0, len))
            .peekable();
        let (mut counts, mut steps) = (Self::default(), Vec::new());
        for block in 0..1_usize << len {
            let start = A::from_bits(block, 0, len);
            if divided.peek() != Some(&block) {
                counts.add(Self::loads(fib, start, &mut steps), 1 << BLOCK_BITS);
                continue;
            }
            // The routes are in the order of their addresses.
            while divided.next_if_eq(&block).is_some() {}
            let mut addr = Some(start);
            for _ in 0..1 << BLOCK_BITS {
                let Some(current) = addr else { break };
                counts.add(Self::loads(fib, current, &mut steps), 1);
                addr = current.succ();
            }
        }
        Some(counts)
    }

    /// Returns the number of loads with the number of lookups that needed so many, without those that none
    /// needed.
    pub fn iter(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        self.by_loads.iter().copied().enumerate().filter(|&(_, lookups)| lookups > 0)
    }

    /// Returns the number of lookups.
    pub fn total(&self) -> u64 {
        self.by_loads.iter().sum()
    }

    fn loads<A: Family>(fib: &Fib<A>, addr: A, steps: &mut Vec<Step>) -> usize {
        steps.clear();
        fib.engine().trace(addr, steps);
        steps.len()
    }

    fn add(&mut self, loads: usize, lookups: u64) {
        if self.by_loads.len() <= loads {
            self.by_loads.resize(loads + 1, 0);
        }
        if let Some(count) = self.by_loads.get_mut(loads) {
            *count += lookups;
        }
    }
}
