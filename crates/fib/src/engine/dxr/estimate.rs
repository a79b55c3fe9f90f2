//! Estimates the size of a DXR table from the runs, without laying it out.
//!
//! It uses the cuts and the formats of the builder, but only a hash of each chunk and each block:
//! equal ones count once, as they are stored once. The estimate is exact except for hash
//! collisions, and for a block or two that the builder leaves; it takes about as long as a sweep,
//! and little memory.

use core::hash::{BuildHasher, Hash, Hasher};

use hashbrown::{DefaultHashBuilder, HashSet};

use super::Shape;
use super::builder::kind;
use super::entry::Kind;
use crate::runs::{Run, split};
use crate::{FamilyLayout, Prefix};

/// Counts the bytes that lookups in a table of this shape, made of `runs`, which tile
/// the space, could touch.
pub(crate) fn bytes<A: FamilyLayout>(shape: Shape, runs: &[Run<A>]) -> usize {
    let (d, x) = (shape.direct(), shape.extension());
    let mut chunks = Chunks {
        k: shape.k(),
        hasher: DefaultHashBuilder::default(),
        seen: HashSet::new(),
        bytes: 0,
        wide: false,
    };
    let mut blocks = HashSet::new();
    for (part, runs) in split(runs, Prefix::ALL, d) {
        let block = match runs {
            _ if x == 0 => chunks.entry(runs),
            // As a block of equal entries, which no other block can be.
            [run] => chunks.hasher.hash_one(run.hop),
            _ => {
                let mut hasher = chunks.hasher.build_hasher();
                split(runs, part, x).for_each(|(_, runs)| hasher.write_u64(chunks.entry(runs)));
                hasher.finish()
            }
        };
        if x > 0 {
            blocks.insert(block);
        }
    }
    let entry = if chunks.wide { size_of::<u64>() } else { size_of::<u32>() };
    let stages = match x {
        0 => entry << d,
        x => (size_of::<u16>() << d) + ((blocks.len() * entry) << x),
    };
    stages + chunks.bytes
}

/// The chunks met so far.
struct Chunks {
    k: u32,
    hasher: DefaultHashBuilder,
    seen: HashSet<u64>,
    bytes: usize,
    /// One of them is in the widest format, for which entries are wide too.
    wide: bool,
}

impl Chunks {
    /// Counts the chunk of one index, if it has one and it is new; returns what stands
    /// for the entry.
    fn entry<A: FamilyLayout>(&mut self, runs: &[Run<A>]) -> u64 {
        if let [run] = runs {
            return run.hop.0.into();
        }
        let mut hasher = self.hasher.build_hasher();
        runs[0].hop.hash(&mut hasher);
        for run in &runs[1..] {
            (run.start.tail(self.k), run.hop).hash(&mut hasher);
        }
        let chunk = hasher.finish();
        if self.seen.insert(chunk) {
            let kind = kind(self.k, runs);
            self.wide |= kind == Kind::Wide;
            self.bytes += runs.len()
                * match kind {
                    Kind::Short => size_of::<A::Short>(),
                    Kind::Medium => size_of::<A::Medium>(),
                    Kind::Long => size_of::<A::Long>(),
                    Kind::Wide => size_of::<A::Wide>(),
                };
        }
        // Not to be taken for a hop.
        chunk | 1 << 63
    }
}

#[cfg(test)]
mod tests {
    use super::bytes;
    use crate::engine::dxr::{DxrBuilder, Shape};
    use crate::runs::sweep;
    use crate::{Builder, Engine, FamilyLayout, Full, Hop, Prefix};
    use alloc::vec::Vec;

    /// Random tables of a family, in one shape.
    fn agree<A: FamilyLayout>(name: &str, hops: u32) {
        let shape = Shape::parse::<A>(name).unwrap();
        let mut rng = fastrand::Rng::with_seed(5);
        let mut next = move || {
            let state = rng.u64(..);
            state >> 20
        };
        for routes in [0, 1, 30, 2000] {
            let prefix = |next: &mut dyn FnMut() -> u64| {
                // A few addresses, near which many routes lie.
                let near =
                    u128::from(next() % 40).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
                let addr = A::from_u128((near ^ u128::from(next() & 0xf_ffff)) & A::MAX.to_u128());
                Prefix::truncate(addr, next() as u32 % (A::BITS + 1))
            };
            let table: alloc::collections::BTreeMap<Prefix<A>, Hop> =
                (0..routes).map(|_| (prefix(&mut next), Hop(next() as u32 % hops))).collect();
            let mut runs = Vec::new();
            sweep(Prefix::ALL, Hop::NONE, table, &mut runs);
            let mut builder = DxrBuilder::<A, u32>::new(shape);
            let built = match builder.patch(Prefix::ALL, &runs) {
                Ok(()) => builder.freeze().footprint(),
                Err(Full { what: Full::HOPS, .. }) => {
                    let mut builder = DxrBuilder::<A, u64>::new(shape);
                    builder.patch(Prefix::ALL, &runs).unwrap();
                    builder.freeze().footprint()
                }
                Err(full) => panic!("{full}"),
            };
            let block = 8 << shape.extension();
            let estimate = bytes(shape, &runs);
            assert!(built.abs_diff(estimate) <= block, "{name}, {routes}: {estimate}, not {built}");
        }
    }

    #[test]
    fn estimate_is_the_size_of_a_build() {
        for hops in [3, 1000, 90_000] {
            for name in ["D16R", "D18R", "D16X4R", "D12X6R"] {
                agree::<u32>(name, hops);
            }
            agree::<u16>("D4X4R", hops);
            agree::<u64>("D16X8R", hops);
        }
    }
}
