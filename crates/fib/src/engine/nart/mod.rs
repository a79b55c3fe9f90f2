//! The network address routing table of Suez: two tables to index, then a list.
//!
//! Tzi-cker Chiueh, Prashant Pradhan, "High-Performance IP Routing Table Lookup
//! Using CPU Caching", IEEE INFOCOM 1999, section 3.2. Bytes are traded for speed,
//! in the hope that they still fit the second-level cache. Routes are of three
//! classes by their length:
//!
//! ```text
//!            class AB              class BC               class CD
//!   IPv4     0 to 16 bits          17 to 24               25 to 32
//!
//!   level 1, 2^16 entries    level 2, tables of 256    level 3, one list
//!   ┌─┬───────────────┐      ┌────────────────┐        ┌──────┬─────────┬─────┐
//!   │1│ hop           │      │ hop            │        │ mask │ address │ hop │ longest
//!   ├─┼───────────────┤      ├────────────────┤        │ mask │ address │ hop │ first
//!   │0│ table's number│ ───► │ all ones: mark │ ─────► │  …   │         │     │
//!   └─┴───────────────┘      └────────────────┘        └──────┴─────────┴─────┘
//! ```
//!
//! A route of class BC or CD gives its 16 bits a level-2 table, filled with what
//! was in the level-1 entry. A route of class CD marks its level-2 entry and moves
//! the hop that stood there into the list, as a route of 24 bits; so a lookup that reads a mark
//! always finds a match. The list is searched from the front, and the first match is the longest.
//!
//! The paper's ports have 8 bits, its level-1 entries 16, its list entries 72, and
//! 255 is the mark. Here a hop is a [`Leaf`], the mark the highest that one can
//! be, and a level-1 entry always 32 bits: twice a narrow leaf, as in the paper.
//! Other widths than 32 have their levels in proportion: 4, 6, 8 and 8, 12, 16.
//! Routes of 31 and 32 bits, which the paper has none of, are of class CD.
//!
//! A lookup is 1 load, 2, or 2 and as many of the list as there are longer routes
//! before the match: O(routes of class CD) at worst, which were few in 1999.
//! Equal tables are not shared; the paper has no such thing. Updates, which the
//! paper leaves open, are in [`builder`]. Limits: hops up to 65,534 or 2^31 − 1.

use alloc::vec::Vec;

use super::{Engine, Leaf, Part, Step};
use crate::table::Table;
use crate::{Addr, Hop};

pub mod builder;

/// In a level-1 entry: a hop, and not a table's number.
const HOP: u32 = 1 << 31;
/// How many lookups of a batch are under way together.
const GROUP: usize = 32;

/// Where the levels of a family end: the first two of the three.
const fn levels(bits: u32) -> (u32, u32) {
    (bits / 2, bits / 2 + bits / 4)
}

/// A frozen table with hops stored as `L`.
#[derive(Clone, Debug)]
pub struct Nart<A: Addr, L: Leaf> {
    level1: Table<u32>,
    level2: Table<L>,
    level3: Table<Row<A, L>>,
    mark: L,
}

/// A route of the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Row<A, L> {
    mask: A,
    addr: A,
    hop: L,
}

impl<A: Addr, L: Leaf> Row<A, L> {
    #[inline(always)]
    fn holds(&self, addr: A) -> bool {
        addr.to_u128() & self.mask.to_u128() == self.addr.to_u128()
    }
}

impl<A: Addr, L: Leaf> Nart<A, L> {
    /// Returns where in level 2 an address goes on from its level-1 entry.
    #[inline(always)]
    fn place(entry: u32, addr: A) -> usize {
        let (first, second) = levels(A::BITS);
        (entry as usize) << (second - first) | addr.bits(first, second - first)
    }

    #[inline(always)]
    fn finish(&self, entry: u32, addr: A) -> Hop {
        if entry & HOP != 0 {
            return Hop(entry & !HOP);
        }
        let leaf = self.level2[Self::place(entry, addr)];
        if leaf == self.mark { self.search(addr) } else { leaf.hop() }
    }

    /// Goes through the list.
    fn search(&self, addr: A) -> Hop {
        let found = self.level3.iter().find(|row| row.holds(addr));
        found.map_or(Hop::NONE, |row| row.hop.hop())
    }
}

impl<A: Addr, L: Leaf> Engine<A> for Nart<A, L> {
    #[inline]
    fn lookup(&self, addr: A) -> Hop {
        self.finish(self.level1[addr.bits(0, levels(A::BITS).0)], addr)
    }

    fn lookup_batch(&self, addrs: &[A], out: &mut [Hop]) {
        assert_eq!(addrs.len(), out.len(), "a batch has as many answers as addresses");
        let mut entries = [0; GROUP];
        for (addrs, out) in addrs.chunks(GROUP).zip(out.chunks_mut(GROUP)) {
            for (entry, addr) in entries.iter_mut().zip(addrs) {
                *entry = self.level1[addr.bits(0, levels(A::BITS).0)];
                // A hop taken for a table's number leads beyond the end, which is harmless.
                self.level2.prefetch(Self::place(*entry, *addr));
            }
            for ((out, &addr), &entry) in out.iter_mut().zip(addrs).zip(&entries) {
                *out = self.finish(entry, addr);
            }
        }
    }

    fn parts(&self) -> Vec<Part> {
        Vec::from([
            Part::of("level 1", &self.level1),
            Part::of("level 2", &self.level2),
            Part::of("level 3", &self.level3),
        ])
    }

    fn trace(&self, addr: A, steps: &mut Vec<Step>) -> Hop {
        let index = addr.bits(0, levels(A::BITS).0);
        steps.push(Step::of("level 1", index, &self.level1));
        let entry = self.level1[index];
        if entry & HOP != 0 {
            return Hop(entry & !HOP);
        }
        let index = Self::place(entry, addr);
        steps.push(Step::of("level 2", index, &self.level2));
        if self.level2[index] != self.mark {
            return self.level2[index].hop();
        }
        for (index, row) in self.level3.iter().enumerate() {
            steps.push(Step::of("level 3", index, &self.level3));
            if row.holds(addr) {
                return row.hop.hop();
            }
        }
        Hop::NONE
    }
}
