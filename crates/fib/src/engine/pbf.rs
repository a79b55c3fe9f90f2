//! Parallel Bloom filters: a filter for each prefix length says whether it can match.
//!
//! Dharmapurikar, Krishnamurthy, Taylor, "Longest prefix matching using Bloom
//! filters", SIGCOMM 2003, as Fu's thesis describes and sizes it (2020, sections
//! 3.2, 3.6.2 and 3.6.3). A Bloom filter a prefix length stands on chip and says at
//! which lengths a match is possible; the hash tables, one a length, stand off chip
//! and are probed at those lengths alone, longest first:
//!
//! ```text
//!             on chip                              off chip
//!   addr ─┬─► filter /128  no
//!         ├─► filter /48   perhaps ──────────────► table /48:  prefix ┃ hop + 1
//!         ├─► filter /32   perhaps ─ if not in it ► table /32:  prefix ┃ hop + 1
//!         ├─► …
//!         └─► if in none ────────────────────────► direct: hop of the first 16 bits
//! ```
//!
//! The shortest lengths, up to 16 (half of a toy's bits), have no filters: one array
//! holds the answer of each such block, routes pushed down to its end.
//!
//! A filter never denies a route that is there, so the first table hit is the
//! longest match; one probe in 2^13 is in vain, and the search goes on with the next
//! shorter length. Filters have k = 13 hash functions and 18.755 bits a route of
//! their length, tables two slots a route; a length that outgrows either, or shrinks
//! by a tenth, is rebuilt by itself.
//!
//! Lookups: in the best and typical case one probe of a table, in the worst one for
//! every length there is (probability 2^-13 each). A CPU tests the filters one after the other,
//! each with a hash of its own, some forty for IPv6; therefore the thesis leaves this scheme out
//! of its CPU comparison, and this crate has it for comparison only.
//! Updates: a slot, and the bits of the filter that no other route sets; of a route
//! in the direct array, its entries. Limits: hop indexes to one below the width's.

use alloc::vec;
use alloc::vec::Vec;
use core::ops::ControlFlow;

use super::hash::lengths::{Lengths, LengthsBuilder, Listed, Probe, up_to};
use super::hash::table::Value;
use super::leaf;
use super::overlap::{Overlapped, Walk, group};
use super::{Engine, Leaf, Part, RouteBuilder, Step};
use crate::runs::{Run, sweep};
use crate::table::{Master, Table};
use crate::{FamilyLayout, Full, Hop, Prefix, Rib};

/// The lookups that are under way at once in a batch.
const GROUP: usize = 16;

/// The slots for each route there is room for: 1.5 are loaded on average.
const SPREAD: usize = 2;

/// Returns how many bits lead into the direct array.
const fn direct_bits<A: FamilyLayout>() -> u32 {
    if A::BITS < 32 { A::BITS / 2 } else { 16 }
}

/// A route's hop, stored one higher: a vacant slot is zero.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Stored<L>(L);

impl<L: Leaf> Stored<L> {
    pub(crate) fn pack(hop: Hop) -> Result<Self, Full> {
        let full = || leaf::full(hop, u64::from(L::MAX) - 1);
        let one_higher = hop.0.checked_add(1).ok_or_else(full)?;
        L::pack(Hop(one_higher)).map(Self).map_err(|_| full())
    }

    pub(crate) fn hop(self) -> Hop {
        Hop(self.0.hop().0 - 1)
    }
}

impl<L: Leaf> Value for Stored<L> {}

impl<L: Leaf> Listed for Stored<L> {
    fn listed(self) -> bool {
        true
    }
}

/// A frozen table.
#[derive(Clone, Debug)]
pub struct Pbf<A: FamilyLayout, L: Leaf> {
    direct: Table<L>,
    lengths: Lengths<A, Stored<L>>,
}

/// A lookup before a load off chip.
#[derive(Clone, Copy, Debug)]
pub struct At<A> {
    addr: A,
    /// `None` when only the direct array is left.
    probe: Option<Probe>,
}

impl<A: FamilyLayout, L: Leaf> Pbf<A, L> {
    /// Tests the filters of lengths up to `len`.
    #[inline(always)]
    fn next(&self, addr: A, len: u32) -> At<A> {
        At { addr, probe: self.lengths.ask(addr, up_to(len)) }
    }
}

impl<A: FamilyLayout, L: Leaf> Walk<A> for Pbf<A, L> {
    type At = At<A>;

    #[inline(always)]
    fn begin(&self, addr: A) -> At<A> {
        self.next(addr, A::BITS)
    }

    #[inline(always)]
    fn prefetch(&self, at: &At<A>) {
        match at.probe {
            Some(probe) => self.lengths.prefetch(probe),
            None => self.direct.prefetch(at.addr.bits(0, direct_bits::<A>())),
        }
    }

    #[inline(always)]
    fn step(&self, at: At<A>) -> ControlFlow<Hop, At<A>> {
        let Some(probe) = at.probe else {
            return ControlFlow::Break(self.direct[at.addr.bits(0, direct_bits::<A>())].hop());
        };
        match self.lengths.find(at.addr, probe) {
            Some(stored) => ControlFlow::Break(stored.hop()),
            None => ControlFlow::Continue(self.next(at.addr, probe.len - 1)),
        }
    }
}

impl<A: FamilyLayout, L: Leaf> Engine<A> for Pbf<A, L> {
    fn lookup(&self, addr: A) -> Hop {
        super::overlap::alone(self, addr)
    }

    fn lookup_batch(&self, addrs: &[A], out: &mut [Hop]) {
        group::<GROUP, A, Self>(self, addrs, out);
    }

    fn overlapped(&self) -> Option<&dyn Overlapped<A>> {
        Some(self)
    }

    fn parts(&self) -> Vec<Part> {
        let mut parts = self.lengths.parts();
        parts.push(Part::of("direct", &self.direct).off_chip());
        parts
    }

    fn trace(&self, addr: A, steps: &mut Vec<Step>) -> Hop {
        let mut len = A::BITS;
        while let Some(probe) = self.lengths.trace_ask(addr, up_to(len), steps) {
            if let Some(stored) = self.lengths.trace_find(addr, probe, steps) {
                return stored.hop();
            }
            len = probe.len - 1;
        }
        let index = addr.bits(0, direct_bits::<A>());
        steps.push(Step::of("direct", index, &self.direct));
        self.direct[index].hop()
    }
}

/// The builder of [`Pbf`].
#[derive(Debug)]
pub struct PbfBuilder<A: FamilyLayout, L: Leaf> {
    direct: Master<L>,
    lengths: LengthsBuilder<A, Stored<L>>,
}

impl<A: FamilyLayout, L: Leaf> Default for PbfBuilder<A, L> {
    fn default() -> Self {
        Self {
            direct: Master::new(vec![L::default(); 1 << direct_bits::<A>()]),
            lengths: LengthsBuilder::new(SPREAD),
        }
    }
}

impl<A: FamilyLayout, L: Leaf> PbfBuilder<A, L> {
    /// Lays the short routes out again within `block`.
    fn push_down(&mut self, rib: &Rib<A>, block: Prefix<A>) -> Result<(), Full> {
        let bits = direct_bits::<A>();
        let cover = rib.cover(block).map_or(Hop::NONE, |(_, hop)| hop);
        let short = rib.covered(block).filter(|(prefix, _)| prefix.len() <= bits);
        let mut runs: Vec<Run<A>> = Vec::new();
        sweep(block, cover, short, &mut runs);
        let first = block.addr().bits(0, bits);
        let mut entries = vec![L::default(); 1 << (bits - block.len())];
        for run in runs {
            let from = run.start.bits(0, bits) - first;
            entries[from..].fill(L::pack(run.hop)?);
        }
        self.direct.write(first, &entries);
        Ok(())
    }
}

impl<A: FamilyLayout, L: Leaf> RouteBuilder<A> for PbfBuilder<A, L> {
    type Engine = Pbf<A, L>;

    fn fill(&mut self, rib: &Rib<A>) -> Result<(), Full> {
        let long = rib.iter().filter(|(prefix, _)| prefix.len() > direct_bits::<A>());
        let entries = long.map(|(prefix, hop)| Ok((prefix, Stored::pack(hop)?)));
        self.lengths.fill(entries.collect::<Result<Vec<_>, Full>>()?);
        self.push_down(rib, Prefix::ALL)
    }

    fn change(&mut self, rib: &Rib<A>, prefix: Prefix<A>) -> Result<(), Full> {
        if prefix.len() <= direct_bits::<A>() {
            return self.push_down(rib, prefix);
        }
        let stored = rib.get(prefix).map(Stored::pack).transpose()?;
        self.lengths.set(prefix, stored);
        Ok(())
    }

    fn freeze(&self) -> Pbf<A, L> {
        Pbf { direct: self.direct.freeze(), lengths: self.lengths.freeze() }
    }

    fn refresh(&self, idle: &mut Pbf<A, L>) {
        self.direct.refresh(&mut idle.direct);
        self.lengths.refresh(&mut idle.lengths);
    }

    fn written(&self) -> u64 {
        self.direct.written() + self.lengths.written()
    }
}

#[cfg(test)]
mod tests {
    use super::PbfBuilder;
    use crate::engine::{Engine, RouteBuilder};
    use crate::{Hop, Prefix, Rib};

    #[test]
    fn answers_are_right_with_filters_that_deny_nothing() {
        let mut rib: Rib<u16> = Rib::new();
        let mut rng = fastrand::Rng::with_seed(1);
        for _ in 0..300 {
            let state = rng.u32(..);
            let len = 1 + (state >> 28);
            rib.insert(Prefix::truncate((state >> 8) as u16 & 0x3fff, len), Hop(state >> 25));
        }
        let mut builder = PbfBuilder::<u16, u16>::default();
        builder.fill(&rib).unwrap();
        let mut engine = builder.freeze();
        engine.lengths.deny_nothing();
        for addr in 0..=u16::MAX {
            let longest = rib.longest(addr).map_or(Hop::NONE, |(_, hop)| hop);
            assert_eq!(engine.lookup(addr), longest, "{addr:x}");
        }
    }
}
