//! Lays the runs of one table out in the shared stages, and patches them.
//!
//! Every page, block and chunk is counted by those that name it: a chunk once for each
//! entry of each block, a block once for each item of each page, a page once for each
//! item of each root. The replacement of a page or a block counts its own parts once; if it is
//! already stored, these are released, and if the replaced one is freed, so are its parts
//! ([`exchange`]).
//!
//! An update of one route copies a page and a block, and lays out one chunk:
//! O(ranges + 2^page + 2^block) a patch, whatever the number of tables.

use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use super::{Cuts, Shared};
use crate::engine::dxr::builder::{Chunks, exchange};
use crate::engine::dxr::entry::{Entry, Split, Target};
use crate::engine::dxr::{Dxr, Shape};
use crate::pool::Pool;
use crate::runs::{Run, split};
use crate::table::{Master, Table};
use crate::{Addr, FamilyLayout, Full, Prefix};

/// The builder of [`Shared`].
#[derive(Debug)]
pub(crate) struct SharedBuilder<A: FamilyLayout, E> {
    cuts: Cuts,
    split: Split,
    roots: Master<u32>,
    pages: Pool<u32>,
    blocks: Pool<E>,
    chunks: Chunks<A>,
}

impl<A: FamilyLayout, E: Entry> SharedBuilder<A, E> {
    /// Starts without tables, with so many bits of an entry for a chunk's length.
    pub(crate) fn with_len_bits(len_bits: u32) -> Self {
        let cuts = Cuts::of::<A>();
        let (mut pages, mut blocks) = (Pool::new(), Pool::new());
        // Number 0 of both has no route, and is never freed.
        blocks.intern(&vec![E::default(); 1 << cuts.block], 1 << cuts.page);
        pages.intern(&vec![0; 1 << cuts.page], 1);
        let (split, chunks) = (Split { len_bits }, Chunks::new());
        Self { cuts, split, roots: Master::new(Vec::new()), pages, blocks, chunks }
    }

    /// The length in bits of the smallest blocks that can be patched.
    pub(crate) fn block_len(&self) -> u32 {
        self.cuts.k()
    }

    /// Makes room for tables of numbers below `count`; new ones are empty.
    pub(crate) fn extend(&mut self, count: usize) {
        let (have, want) = (self.roots.len(), count << self.cuts.root);
        if have < want {
            self.pages.intern(&vec![0; 1 << self.cuts.page], (want - have) as u32);
            self.roots.write(have, &vec![0; want - have]);
        }
    }

    /// Lays out `runs`, which tile `block`, in place of the table's present content there.
    ///
    /// # Errors
    ///
    /// [`Full`] if a limit of the layout is exceeded; the builder must then not be used any more.
    pub(crate) fn patch(
        &mut self,
        table: usize,
        block: Prefix<A>,
        runs: &[Run<A>],
    ) -> Result<(), Full> {
        let root = self.cuts.root;
        assert!(block.len() <= self.cuts.k(), "a block to patch has at most K bits");
        for (part, runs) in cut(runs, block, root) {
            let at = table << root | part.addr().bits(0, root);
            let old = self.roots[at];
            let new = self.page(old, part, runs)?;
            if new != old {
                self.roots.write(at, &[new]);
            }
        }
        self.chunks.trim();
        self.blocks.trim();
        self.pages.trim();
        Ok(())
    }

    /// Puts another page in place of one user of page `old`, which differs from it in
    /// `part`, and returns its number.
    fn page(&mut self, old: u32, part: Prefix<A>, runs: &[Run<A>]) -> Result<u32, Full> {
        let Cuts { root, page, block: bits } = self.cuts;
        let (at, size) = ((old as usize) << page, 1 << page);
        let before = self.pages.get(at, size).to_vec();
        let changed = within(part, root, page);
        if let [run] = runs {
            // One hop for all, as in most of the space, and mostly the present one.
            let entry = self.split.pack::<E>(Target::Hop(run.hop))?;
            let items = within(part, root + page, bits);
            let same = |number: u32| {
                let block = self.blocks.get((number as usize) << bits, 1 << bits);
                block[items.clone()].iter().all(|&present| present == entry)
            };
            // Equal blocks have one number.
            let [first, rest @ ..] = &before[changed.clone()] else {
                unreachable!("a part is of one item at least")
            };
            if rest.iter().all(|number| number == first) && same(*first) {
                return Ok(old);
            }
        }
        let mut after = before.clone();
        for (sub, runs) in cut(runs, part, root + page) {
            let index = sub.addr().bits(root, page);
            after[index] = self.block(before[index], sub, runs)?;
        }
        let (blocks, chunks, split) = (&mut self.blocks, &mut self.chunks, self.split);
        let last = self.pages.release(at, size);
        let (at, fresh) = self.pages.intern(&after, 1);
        exchange(&before, &after, changed, fresh, last, |number, up| {
            let at = (number as usize) << bits;
            if up {
                blocks.retain(at, 1 << bits);
            } else {
                drop_block(blocks, chunks, split, at, 1 << bits);
            }
        });
        number(at, page)
    }

    /// Returns the number of a block, counted once, that differs from block `old` in
    /// `part`; that one's users stay.
    fn block(&mut self, old: u32, part: Prefix<A>, runs: &[Run<A>]) -> Result<u32, Full> {
        let Cuts { root, page, block } = self.cuts;
        let before = self.blocks.get((old as usize) << block, 1 << block).to_vec();
        let changed = within(part, root + page, block);
        let mut after = before.clone();
        if let [run] = runs {
            after[changed.clone()].fill(self.split.pack(Target::Hop(run.hop))?);
        } else {
            for (sub, runs) in cut(runs, part, self.cuts.k()) {
                let target = match runs {
                    [run] => Target::Hop(run.hop),
                    _ => self.chunks.intern(self.cuts.k(), runs),
                };
                after[sub.addr().bits(root + page, block)] = self.split.pack(target)?;
            }
        }
        let (at, fresh) = self.blocks.intern(&after, 1);
        let (chunks, split) = (&mut self.chunks, self.split);
        // The old one is not given back here: its page does that.
        exchange(&before, &after, changed, fresh, false, |entry, up| {
            if up { chunks.retain(split, entry) } else { chunks.release(split, entry) }
        });
        number(at, block)
    }

    /// Copies the present tables out whole.
    pub(crate) fn freeze(&self) -> Shared<A, E> {
        let shape = Shape::below(self.cuts.k());
        Shared {
            cuts: self.cuts,
            roots: self.roots.freeze(),
            pages: self.pages.freeze(),
            base: self.chunks.freeze(shape, self.split, Table::new(&[]), self.blocks.freeze()),
        }
    }

    /// Brings `idle`, frozen from this builder earlier, up to date.
    pub(crate) fn refresh(&self, idle: &mut Shared<A, E>) {
        self.roots.refresh(&mut idle.roots);
        self.pages.refresh(&mut idle.pages);
        let Dxr { entries, .. } = &mut idle.base;
        self.blocks.refresh(entries);
        self.chunks.refresh(&mut idle.base);
    }

    /// Counts the unused bytes.
    pub(crate) fn holes(&self) -> usize {
        self.pages.holes() + self.blocks.holes() + self.chunks.holes()
    }
}

/// Removes one user of a block, and with the last one a user of each page or chunk that it names.
fn drop_block<A: FamilyLayout, E: Entry>(
    blocks: &mut Pool<E>,
    chunks: &mut Chunks<A>,
    split: Split,
    at: usize,
    size: usize,
) {
    if blocks.release(at, size) {
        for &entry in blocks.get(at, size) {
            chunks.release(split, entry);
        }
    }
}

/// Cuts `runs` into the parts of `len` bits, or leaves a smaller block whole.
fn cut<A: Addr>(
    runs: &[Run<A>],
    block: Prefix<A>,
    len: u32,
) -> impl Iterator<Item = (Prefix<A>, &[Run<A>])> {
    let whole = block.len() >= len;
    let parts = if whole { None } else { Some(split(runs, block, len - block.len())) };
    parts.into_iter().flatten().chain(whole.then_some((block, runs)))
}

/// Returns the items of `part` in a stage that resolves `bits` bits from bit `from` on.
fn within<A: Addr>(part: Prefix<A>, from: u32, bits: u32) -> Range<usize> {
    if part.len() <= from {
        return 0..1 << bits;
    }
    let first = part.addr().bits(from, bits);
    first..first + (1 << (from + bits).saturating_sub(part.len()))
}

/// Converts a place, of an item of 2^`bits`, into a number; places are kept in 32 bits.
fn number(at: usize, bits: u32) -> Result<u32, Full> {
    let (limit, seen) = (u64::from(u32::MAX >> bits), (at >> bits) as u64);
    if seen < limit { Ok(seen as u32) } else { Err(Full { what: Full::BLOCKS, limit, seen }) }
}

#[cfg(test)]
impl<A: FamilyLayout, E: Entry> SharedBuilder<A, E> {
    /// Counts the pages, blocks and chunks in use.
    pub(crate) fn spans(&self) -> [usize; 6] {
        let [short, medium, long, wide] = self.chunks.spans();
        [self.pages.spans(), self.blocks.spans(), short, medium, long, wide]
    }
}

#[cfg(test)]
mod tests {
    use super::SharedBuilder;
    use crate::runs::{Run, split, sweep};
    use crate::{Hop, Prefix};
    use alloc::collections::BTreeMap;
    use alloc::vec::Vec;

    type Routes = BTreeMap<Prefix<u16>, Hop>;

    fn runs(routes: &Routes) -> Vec<Run<u16>> {
        let mut runs = Vec::new();
        sweep(Prefix::ALL, Hop::NONE, routes.iter().map(|(p, h)| (*p, *h)), &mut runs);
        runs
    }

    #[test]
    fn patched_tables_use_as_many_spans_as_a_fresh_build() {
        let mut patched = SharedBuilder::<u16, u32>::with_len_bits(9);
        let empty = patched.spans();
        patched.extend(3);
        let mut tables = [Routes::new(), Routes::new(), Routes::new()];
        let mut rng = fastrand::Rng::with_seed(3);
        let mut next = move || rng.u64(..);
        for step in 0..300 {
            let table = next() as usize % 3;
            if next() % 5 == 0 {
                // As another table has it, or empty.
                tables[table] =
                    if next() % 2 == 0 { tables[(table + 1) % 3].clone() } else { Routes::new() };
            }
            for _ in 0..next() % 8 {
                let prefix = Prefix::truncate(next() as u16, (next() % 17) as u32);
                tables[table].insert(prefix, Hop((next() % 300) as u32));
            }
            while tables[table].len() > 40 {
                let victim = *tables[table].keys().nth(next() as usize % 40).unwrap();
                tables[table].remove(&victim);
            }
            // Patched in pieces, as an update would.
            let pieces = (next() % (u64::from(patched.block_len()) + 1)) as u32;
            let all = runs(&tables[table]);
            for (part, runs) in split(&all, Prefix::ALL, pieces) {
                patched.patch(table, part, runs).unwrap();
            }
            let mut fresh = SharedBuilder::<u16, u32>::with_len_bits(9);
            fresh.extend(3);
            for (table, routes) in tables.iter().enumerate() {
                fresh.patch(table, Prefix::ALL, &runs(routes)).unwrap();
            }
            assert_eq!(patched.spans(), fresh.spans(), "step {step}");
            let frozen = patched.freeze();
            for (table, routes) in tables.iter().enumerate() {
                for run in runs(routes) {
                    assert_eq!(frozen.lookup(table, run.start), run.hop);
                }
            }
        }
        for table in 0..3 {
            patched.patch(table, Prefix::ALL, &runs(&Routes::new())).unwrap();
        }
        assert_eq!(patched.spans(), empty);
    }
}
