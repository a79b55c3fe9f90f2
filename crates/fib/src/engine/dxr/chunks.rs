//! Counts the chunks of a table: each first part of an address leads to an entry, and each entry to a chunk.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use super::Dxr;
use super::entry::{Entry, Kind, Target};
use crate::FamilyLayout;
use crate::engine::{ChunkCounts, Chunks};

/// The formats of ranges, in the order of the parts of a table.
const KINDS: [(Kind, &str); 4] = [
    (Kind::Short, "short ranges"),
    (Kind::Medium, "medium ranges"),
    (Kind::Long, "long ranges"),
    (Kind::Wide, "wide ranges"),
];

impl<A: FamilyLayout, E: Entry> Dxr<A, E> {
    /// Counts the chunks. O(2^K).
    pub fn count_chunks(&self) -> Chunks {
        let mut formats = KINDS.map(|(_, name)| (name, ChunkCounts::default()));
        let mut stored = BTreeSet::new();
        let (mut longest, mut by_ranges) = (0, Vec::new());
        let k = self.shape.k();
        for top in 0..1_usize << k {
            let addr = A::from_bits(top, 0, k);
            let index = if self.direct.is_empty() {
                self.index::<false>(addr)
            } else {
                self.index::<true>(addr)
            };
            let Target::Chunk { kind, at, len } = self.split.unpack(self.entries[index]) else {
                continue;
            };
            let (_, format) = &mut formats[kind as usize - 1];
            format.chunks += 1;
            format.ranges += len;
            if stored.insert((kind as u8, at)) {
                format.stored_chunks += 1;
                format.stored_ranges += len;
            }
            longest = longest.max(len);
            let class = (len - 1).ilog2() as usize;
            if by_ranges.len() <= class {
                by_ranges.resize(class + 1, 0);
            }
            by_ranges[class] += 1;
        }
        Chunks { indices: 1 << k, formats: formats.into(), longest, by_ranges }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use crate::engine::Chunks;
    use crate::{Choice, Fib, Hop, Prefix, Rib};

    fn chunks(name: &str, routes: &[(&str, u32)]) -> Chunks {
        let mut rib = Rib::<u32>::new();
        for &(prefix, hop) in routes {
            rib.insert(prefix.parse::<Prefix<u32>>().expect(prefix), Hop(hop));
        }
        let fib =
            Fib::build(&rib, Choice::parse::<u32>(name).expect(name), 1).expect("a small table");
        fib.engine().chunks().expect("a DXR table")
    }

    #[test]
    fn equal_chunks_count_before_and_after_they_are_stored_once() {
        // Two chunks of three ranges, equal from bit 16 on, and one of two.
        let routes =
            [("10.0.16.0/24", 1), ("10.1.16.0/24", 1), ("10.2.128.0/17", 2), ("192.0.0.0/8", 3)];
        for name in ["D16R", "D12X4R"] {
            let chunks = chunks(name, &routes);
            assert_eq!(
                (chunks.indices, chunks.total().chunks, chunks.longest),
                (65536, 3, 3),
                "{name}"
            );
            assert_eq!(chunks.by_ranges, vec![1, 2], "{name}");
            let (_, short) = chunks.formats[0];
            assert_eq!((short.chunks, short.ranges), (3, 8), "{name}");
            assert_eq!((short.stored_chunks, short.stored_ranges), (2, 5), "{name}");
            assert!((chunks.direct_coverage() - 65533.0 / 65536.0).abs() < 1e-9);
        }
    }

    #[test]
    fn table_without_chunks_has_none() {
        let chunks = chunks("D16R", &[("10.0.0.0/8", 1)]);
        assert_eq!((chunks.total().chunks, chunks.longest, chunks.by_ranges.len()), (0, 0, 0));
        assert!((chunks.direct_coverage() - 1.0).abs() < 1e-9);
    }

    #[test]
    fn chunks_of_a_random_table_have_the_items_of_its_parts() {
        let mut rng = fastrand::Rng::with_seed(11);
        let mut rib = Rib::<u32>::new();
        for _ in 0..4000 {
            rib.insert(Prefix::truncate(rng.u32(..), rng.u32(12..=28)), Hop(rng.u32(1..70_000)));
        }
        for name in ["D16R", "D12X6R"] {
            let fib =
                Fib::build(&rib, Choice::parse::<u32>(name).expect(name), 1).expect("a table");
            let chunks = fib.engine().chunks().expect("a DXR table");
            assert!(chunks.total().chunks > 500, "{name}");
            for (format, counts) in &chunks.formats {
                let parts = fib.parts();
                let part = parts.iter().find(|part| part.name == *format).expect("a part");
                assert_eq!(part.items, counts.stored_ranges, "{name} {format}");
            }
        }
    }
}
