//! Builds the tables of Suez, and changes them route by route.
//!
//! The paper fills the tables class by class, shortest first, and leaves updates
//! to later work (section 7). Here the unit is the block of one level-1 entry: it
//! is laid out from the routes in it, in the order of the routing table, in which
//! every route comes after those that cover it, and only what differs is written.
//!
//! ```text
//!   change(10.1.2.0/25) ─► block 10.1.0.0/16 ─► its cells, 256 ─► level 2
//!                                           └─► its rows ─► level 3, one by one
//! ```
//!
//! Level-2 tables lie without a gap: when one goes, the last takes its place. So
//! does the list keep its order by length at a write for each length, not for each
//! row, since within a length the order is free:
//!
//! ```text
//!   32 32 32 │ 28 28 │ 26 │ 24 24 24          a /30 comes: the first of each shorter
//!   32 32 32 │ 30 │ 28 28 │ 26 │ 24 24 24     length goes to the end of its length
//! ```
//!
//! Invariants: a level-1 entry names a table if and only if a longer route lies in
//! its block; a level-2 entry is the mark if and only if a route of class CD lies
//! in its block, and then the list has a row of exactly that block; the list has
//! those rows and the routes of class CD, once each, longest first.
//!
//! O(routes and cells of the block) a change of a route of 16 bits or more; a
//! shorter one touches 2^(16 − length) blocks.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

use super::{HOP, Nart, Row, levels};
use crate::engine::{Leaf, RouteBuilder};
use crate::table::Master;
use crate::{Addr, Full, Hop, Prefix, Rib};

/// The builder of [`Nart`].
#[derive(Debug)]
pub struct NartBuilder<A: Addr, L: Leaf> {
    level1: Master<u32>,
    level2: Master<L>,
    /// The level-1 entry that names each level-2 table.
    owners: Vec<u32>,
    level3: Master<Row<A, L>>,
    /// Where the rows of each length begin in the list, longest first.
    starts: Vec<usize>,
    /// Where each row is.
    places: BTreeMap<Prefix<A>, usize>,
}

impl<A: Addr, L: Leaf> Default for NartBuilder<A, L> {
    fn default() -> Self {
        let (first, second) = levels(A::BITS);
        Self {
            level1: Master::new(vec![HOP; 1 << first]),
            level2: Master::new(Vec::new()),
            owners: Vec::new(),
            level3: Master::new(Vec::new()),
            starts: vec![0; (A::BITS - second) as usize + 1],
            places: BTreeMap::new(),
        }
    }
}

/// Packs a hop so that it is not taken for the mark or a table's number.
fn pack<L: Leaf>(hop: Hop) -> Result<L, Full> {
    let limit = (L::MAX - 1).min(HOP - 1);
    if hop.0 > limit {
        return Err(Full { what: Full::HOPS, limit: limit.into(), seen: hop.0.into() });
    }
    L::pack(hop)
}

/// The leaf that stands for "see the list".
fn mark<L: Leaf>() -> L {
    match L::pack(Hop(L::MAX)) {
        Ok(leaf) => leaf,
        Err(_) => unreachable!("a leaf holds its own highest"),
    }
}

impl<A: Addr, L: Leaf> NartBuilder<A, L> {
    /// Rebuilds the block of one level-1 entry.
    fn patch(&mut self, rib: &Rib<A>, index: usize) -> Result<(), Full> {
        let (first, second) = levels(A::BITS);
        let width = second - first;
        let block = Prefix::truncate(A::from_bits(index, 0, first), first);
        let hop = rib.covering(block).last().map_or(Hop::NONE, |(_, hop)| hop);
        let leaf = pack(hop)?;
        let mut cells: Vec<L> = Vec::new();
        let mut rows: Vec<(Prefix<A>, L)> = Vec::new();
        for (prefix, hop) in rib.covered(block).filter(|(prefix, _)| prefix.len() > first) {
            cells.resize(1 << width, leaf);
            let cell = prefix.addr().bits(first, width);
            if prefix.len() <= second {
                cells[cell..cell + (1 << (second - prefix.len()))].fill(pack(hop)?);
                continue;
            }
            if cells[cell] != mark() {
                rows.push((Prefix::truncate(prefix.addr(), second), cells[cell]));
                cells[cell] = mark();
            }
            rows.push((prefix, pack(hop)?));
        }
        self.list(block, &rows);
        if cells.is_empty() {
            self.give_up(index, hop);
        } else {
            self.table(index, &cells)?;
        }
        Ok(())
    }

    /// Lets a level-1 entry name a table of these cells.
    fn table(&mut self, index: usize, cells: &[L]) -> Result<(), Full> {
        let entry = self.level1[index];
        if entry & HOP == 0 {
            self.level2.write(entry as usize * cells.len(), cells);
            return Ok(());
        }
        let number = self.owners.len() as u32;
        if number & HOP != 0 {
            return Err(Full { what: "level-2 tables", limit: HOP.into(), seen: number.into() });
        }
        self.level2.write(self.level2.len(), cells);
        self.owners.push(index as u32);
        self.level1.write(index, &[number]);
        Ok(())
    }

    /// Lets a level-1 entry be a hop; its table, if it had one, is filled from the
    /// end.
    fn give_up(&mut self, index: usize, hop: Hop) {
        let entry = self.level1[index];
        self.level1.write(index, &[HOP | hop.0]);
        if entry & HOP != 0 {
            return;
        }
        let size = self.level2.len() / self.owners.len();
        let (gone, last) = (entry as usize, self.owners.len() - 1);
        if gone != last {
            let cells = self.level2[last * size..].to_vec();
            self.level2.write(gone * size, &cells);
            self.owners[gone] = self.owners[last];
            self.level1.write(self.owners[last] as usize, &[entry]);
        }
        self.level2.truncate(last * size);
        self.owners.truncate(last);
    }

    /// Makes the list have exactly `rows` in `block`; they come in order.
    fn list(&mut self, block: Prefix<A>, rows: &[(Prefix<A>, L)]) {
        let end = Prefix::truncate(block.last(), A::BITS);
        let gone = |prefix: &Prefix<A>| rows.binary_search_by_key(prefix, |row| row.0).is_err();
        let present = self.places.range(block..=end).map(|(prefix, _)| *prefix);
        let gone: Vec<Prefix<A>> = present.filter(gone).collect();
        for prefix in gone {
            self.remove(prefix);
        }
        // Longer rows first: later changes do not move them.
        for &(prefix, hop) in rows.iter().rev() {
            let row = Row { mask: A::MAX.first(prefix.len()), addr: prefix.addr(), hop };
            match self.places.get(&prefix) {
                Some(&place) => self.level3.write(place, &[row]),
                None => self.insert(prefix, row),
            }
        }
    }

    /// Puts a row at the end of its length.
    fn insert(&mut self, prefix: Prefix<A>, row: Row<A, L>) {
        let class = (A::BITS - prefix.len()) as usize;
        let mut hole = self.level3.len();
        for shorter in (class + 1..self.starts.len()).rev() {
            let first = self.starts[shorter];
            if first != hole {
                self.put(hole, self.level3[first]);
            }
            self.starts[shorter] += 1;
            hole = first;
        }
        self.put(hole, row);
    }

    /// Takes a row out, and closes the gap.
    fn remove(&mut self, prefix: Prefix<A>) {
        let Some(mut hole) = self.places.remove(&prefix) else {
            unreachable!("a row that is listed has a place")
        };
        let class = (A::BITS - prefix.len()) as usize;
        for this in class..self.starts.len() {
            let end = self.starts.get(this + 1).copied().unwrap_or(self.level3.len());
            if this > class {
                self.starts[this] -= 1;
            }
            if hole != end - 1 {
                self.put(hole, self.level3[end - 1]);
            }
            hole = end - 1;
        }
        self.level3.truncate(hole);
    }

    /// Writes a row and remembers where it is.
    fn put(&mut self, place: usize, row: Row<A, L>) {
        let len = row.mask.common(A::MAX);
        self.places.insert(Prefix::truncate(row.addr, len), place);
        self.level3.write(place, &[row]);
    }
}

impl<A: Addr, L: Leaf> RouteBuilder<A> for NartBuilder<A, L> {
    type Engine = Nart<A, L>;

    fn fill(&mut self, rib: &Rib<A>) -> Result<(), Full> {
        (0..self.level1.len()).try_for_each(|index| self.patch(rib, index))
    }

    fn change(&mut self, rib: &Rib<A>, prefix: Prefix<A>) -> Result<(), Full> {
        let first = levels(A::BITS).0;
        let blocks = prefix.addr().bits(0, first)..=prefix.last().bits(0, first);
        for index in blocks {
            self.patch(rib, index)?;
        }
        Ok(())
    }

    fn freeze(&self) -> Nart<A, L> {
        Nart {
            level1: self.level1.freeze(),
            level2: self.level2.freeze(),
            level3: self.level3.freeze(),
            mark: mark(),
        }
    }

    fn refresh(&self, idle: &mut Nart<A, L>) {
        self.level1.refresh(&mut idle.level1);
        self.level2.refresh(&mut idle.level2);
        self.level3.refresh(&mut idle.level3);
    }

    fn written(&self) -> u64 {
        self.level1.written() + self.level2.written() + self.level3.written()
    }
}

#[cfg(test)]
mod tests {
    use super::NartBuilder;
    use crate::engine::{Engine, RouteBuilder};
    use crate::{Hop, Prefix, Rib};
    use alloc::vec::Vec;

    fn rib(routes: &[(&str, u32)]) -> Rib<u32> {
        let mut rib = Rib::new();
        for (prefix, hop) in routes {
            rib.insert(prefix.parse().unwrap(), Hop(*hop));
        }
        rib
    }

    /// The items of the three levels, and the loads of one lookup.
    fn sizes(nart: &impl Engine<u32>) -> Vec<usize> {
        nart.parts().iter().map(|part| part.items).collect()
    }

    fn loads(nart: &impl Engine<u32>, addr: u32) -> (Hop, usize) {
        let mut steps = Vec::new();
        (nart.trace(addr, &mut steps), steps.len())
    }

    #[test]
    fn each_class_has_its_level() {
        let routes = [
            ("10.0.0.0/8", 1),
            ("10.1.0.0/20", 2),
            ("10.1.2.0/25", 3),
            ("10.1.2.4/30", 4),
            ("11.0.0.4/32", 5),
        ];
        let mut builder = NartBuilder::<u32, u16>::default();
        builder.fill(&rib(&routes)).unwrap();
        let nart = builder.freeze();
        // The list: 11.0.0.4/32, 10.1.2.4/30, 10.1.2.0/25, and a /24 for each mark.
        assert_eq!(sizes(&nart), [65_536, 2 * 256, 5]);
        assert_eq!(loads(&nart, 0x0a02_0000), (Hop(1), 1));
        assert_eq!(loads(&nart, 0x0a01_1000), (Hop(1), 2));
        assert_eq!(loads(&nart, 0x0a01_0100), (Hop(2), 2));
        assert_eq!(loads(&nart, 0x0b00_0004), (Hop(5), 3));
        assert_eq!(loads(&nart, 0x0a01_0205), (Hop(4), 4));
        assert_eq!(loads(&nart, 0x0a01_0200), (Hop(3), 5));
        assert!(matches!(loads(&nart, 0x0a01_02ff), (Hop(2), 6 | 7)));
        assert!(matches!(loads(&nart, 0x0b00_0005), (Hop(0), 6 | 7)));
    }

    #[test]
    fn a_change_writes_what_differs_and_a_withdrawal_gives_all_back() {
        let mut rib = rib(&[("10.0.0.0/8", 1), ("10.1.2.0/24", 2), ("10.3.0.0/24", 3)]);
        let mut builder = NartBuilder::<u32, u16>::default();
        builder.fill(&rib).unwrap();
        let before = builder.written();
        let host: Prefix<u32> = "10.1.2.3/32".parse().unwrap();
        rib.insert(host, Hop(9));
        builder.change(&rib, host).unwrap();
        // One cell, and two rows of 12 bytes, each over two words.
        assert_eq!(builder.written() - before, 1 + 2 + 2);
        assert_eq!(sizes(&builder.freeze()), [65_536, 2 * 256, 2]);
        for gone in ["10.1.2.3/32", "10.1.2.0/24"] {
            let gone = gone.parse().unwrap();
            rib.remove(gone);
            builder.change(&rib, gone).unwrap();
        }
        let nart = builder.freeze();
        assert_eq!(sizes(&nart), [65_536, 256, 0]);
        // The other table took the first one's place.
        assert_eq!(loads(&nart, 0x0a03_0001), (Hop(3), 2));
        assert_eq!(loads(&nart, 0x0a01_0203), (Hop(1), 1));
    }

    #[test]
    fn the_list_stays_in_order_and_complete() {
        let mut builder = NartBuilder::<u16, u16>::default();
        let mut rib: Rib<u16> = Rib::new();
        let mut rng = fastrand::Rng::with_seed(9);
        for step in 0..3_000u32 {
            let state = rng.u64(..);
            let len = 11 + (state >> 60) as u32 % 6;
            let prefix = Prefix::truncate((state >> 40) as u16 & 0x83ff, len);
            if state >> 32 & 1 == 0 {
                rib.insert(prefix, Hop(step % 50));
            } else {
                rib.remove(prefix);
            }
            builder.change(&rib, prefix).unwrap();
            let lens: Vec<u32> = builder.level3.iter().map(|row| row.mask.leading_ones()).collect();
            assert!(lens.is_sorted_by(|a, b| a >= b), "{lens:?}");
            for (class, &start) in builder.starts.iter().enumerate() {
                assert_eq!(start, lens.iter().filter(|&&len| len > 16 - class as u32).count());
            }
            let mut fresh = NartBuilder::<u16, u16>::default();
            fresh.fill(&rib).unwrap();
            assert_eq!(fresh.level3.len(), builder.level3.len());
            assert_eq!(fresh.level2.len(), builder.level2.len());
            assert!(fresh.places.keys().eq(builder.places.keys()));
        }
    }

    #[test]
    fn hops_beyond_a_leaf_are_refused() {
        for (prefix, hop, narrow, wide) in [
            ("0.0.0.0/0", 65_534, true, true),
            ("0.0.0.0/24", 65_535, false, true),
            ("0.0.0.0/0", 65_535, false, true),
            ("0.0.0.1/32", u32::MAX >> 1, false, true),
            ("0.0.0.1/32", 1 << 31, false, false),
        ] {
            let rib = rib(&[(prefix, hop)]);
            assert_eq!(NartBuilder::<u32, u16>::default().fill(&rib).is_ok(), narrow);
            assert_eq!(NartBuilder::<u32, u32>::default().fill(&rib).is_ok(), wide);
        }
    }
}
