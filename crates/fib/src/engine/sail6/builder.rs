//! Lays runs out on SAIL's levels, and patches them in place.
//!
//! ```text
//!   level i     … │ chunk 7 │ …            the entry that owns chunk 7
//!                     │     ▲
//!   level i + 1       ▼     └─ owners[7] = where that entry is
//!   entries     ┃ 0 ┃ … ┃ chunk 7 ┃ free ┃ … ┃ last ┃
//!                                    ▲─── moved ──┘  once too many are free
//! ```
//!
//! A patch goes down from the first level to the entries of its block, making the
//! chunks that are missing on the way, and back up, freeing those that have become
//! all one hop; so that the chunks there are, are always those of a build from
//! scratch. Chunks that are moved take their owner's entry, and their own chunks'
//! owners, with them.
//!
//! O(runs + entries of the chunks that the block holds) a patch, and a look at the
//! chunk around the block on each level above it.

use alloc::vec;
use alloc::vec::Vec;
use core::marker::PhantomData;

use super::{Entry, Sail6, end, levels, stride};
use crate::engine::Builder;
use crate::runs::{Run, split};
use crate::table::Master;
use crate::{Addr, Full, Prefix};

/// The builder of [`Sail6`].
#[derive(Debug)]
pub struct Sail6Builder<A> {
    levels: Vec<Level>,
    family: PhantomData<A>,
}

/// The entries of one level.
#[derive(Debug)]
struct Level {
    entries: Master<Entry>,
    /// For each chunk, the index of its entry on the level above.
    owners: Vec<u32>,
    free: Vec<u32>,
}

impl<A: Addr> Default for Sail6Builder<A> {
    fn default() -> Self {
        let level = |level| {
            let first = if level == 0 { 1 << end::<A>(0) } else { 0 };
            let entries = Master::new(vec![Entry::default(); first]);
            Level { entries, owners: Vec::new(), free: Vec::new() }
        };
        Self { levels: (0..levels::<A>()).map(level).collect(), family: PhantomData }
    }
}

impl<A: Addr> Sail6Builder<A> {
    /// Returns the entry for the `index`th node of `level`, in place of `old`, when
    /// `runs` tile that node.
    fn lay(
        &mut self,
        level: usize,
        index: usize,
        old: Entry,
        node: Prefix<A>,
        runs: &[Run<A>],
    ) -> Result<Entry, Full> {
        if let [run] = runs {
            if let Some(chunk) = old.chunk() {
                self.free(level + 1, chunk);
            }
            return Entry::pack(run.hop);
        }
        let (below, width) = (level + 1, stride::<A>(level + 1));
        let (chunk, mut entries) = match old.chunk() {
            Some(chunk) => (chunk, self.content(below, chunk).to_vec()),
            None => (self.alloc(below, index)?, vec![Entry::default(); 1 << width]),
        };
        let first = chunk << width;
        for (i, (part, runs)) in split(runs, node, width).enumerate() {
            entries[i] = self.lay(below, first + i, entries[i], part, runs)?;
        }
        self.levels[below].entries.write(first, &entries);
        Ok(Entry::of_chunk(chunk))
    }

    /// Does the same where `runs` tile `block`, a part of the node.
    fn lay_within(
        &mut self,
        level: usize,
        index: usize,
        block: Prefix<A>,
        runs: &[Run<A>],
    ) -> Result<Entry, Full> {
        let old = self.levels[level].entries[index];
        let (below, width) = (level + 1, stride::<A>(level + 1));
        let chunk = match old.chunk() {
            Some(chunk) => chunk,
            // All is as it is to be.
            None if runs.len() == 1 && runs[0].hop == old.hop() => return Ok(old),
            None => {
                let chunk = self.alloc(below, index)?;
                self.levels[below].entries.write(chunk << width, &vec![old; 1 << width]);
                chunk
            }
        };
        let (above, here) = (end::<A>(level), end::<A>(below));
        let first = chunk << width | block.addr().bits(above, width);
        if block.len() > here {
            let entry = self.lay_within(below, first, block, runs)?;
            self.levels[below].entries.write(first, &[entry]);
        } else {
            let within = here - block.len();
            let mut entries = self.levels[below].entries[first..first + (1 << within)].to_vec();
            for (i, (part, runs)) in split(runs, block, within).enumerate() {
                entries[i] = self.lay(below, first + i, entries[i], part, runs)?;
            }
            self.levels[below].entries.write(first, &entries);
        }
        let content = self.content(below, chunk);
        let one = content[0];
        if one.chunk().is_none() && content.iter().all(|&entry| entry == one) {
            self.free(below, chunk);
            return Ok(one);
        }
        Ok(Entry::of_chunk(chunk))
    }

    /// Copies what `entry` of another builder's `level` leads to; returns the entry
    /// that is to be the `index`th of this level.
    fn adopt(
        &mut self,
        part: &Self,
        level: usize,
        index: usize,
        entry: Entry,
    ) -> Result<Entry, Full> {
        let Some(foreign) = entry.chunk() else { return Ok(entry) };
        let (below, width) = (level + 1, stride::<A>(level + 1));
        let chunk = self.alloc(below, index)?;
        let mut entries = part.content(below, foreign).to_vec();
        for (i, entry) in entries.iter_mut().enumerate() {
            *entry = self.adopt(part, below, chunk << width | i, *entry)?;
        }
        self.levels[below].entries.write(chunk << width, &entries);
        Ok(Entry::of_chunk(chunk))
    }

    fn content(&self, level: usize, chunk: usize) -> &[Entry] {
        let width = stride::<A>(level);
        &self.levels[level].entries[chunk << width..(chunk + 1) << width]
    }

    /// Takes a free chunk, or a new one that is to be written next.
    fn alloc(&mut self, level: usize, owner: usize) -> Result<usize, Full> {
        let width = stride::<A>(level);
        let Level { owners, free, .. } = &mut self.levels[level];
        if let Some(chunk) = free.pop() {
            owners[chunk as usize] = owner as u32;
            return Ok(chunk as usize);
        }
        let chunks = (1u64 << 31).min(1 << (32 - width));
        if owners.len() as u64 == chunks {
            return Err(Full { what: "chunks on one level", limit: chunks, seen: chunks + 1 });
        }
        owners.push(owner as u32);
        Ok(owners.len() - 1)
    }

    /// Frees a chunk and those that it leads to.
    fn free(&mut self, level: usize, chunk: usize) {
        let width = stride::<A>(level);
        for index in chunk << width..(chunk + 1) << width {
            if let Some(chunk) = self.levels[level].entries[index].chunk() {
                self.free(level + 1, chunk);
            }
        }
        self.levels[level].free.push(chunk as u32);
    }

    /// Fills free chunks with the last ones wherever they are over a sixteenth.
    fn compact(&mut self) {
        for level in 1..self.levels.len() {
            if self.levels[level].free.len() * 16 > self.levels[level].owners.len() {
                self.fill_free(level);
            }
        }
    }

    fn fill_free(&mut self, level: usize) {
        let width = stride::<A>(level);
        let mut free = core::mem::take(&mut self.levels[level].free);
        free.sort_unstable();
        let mut chunks = self.levels[level].owners.len();
        let mut holes = &free[..];
        while let [hole, rest @ ..] = holes {
            chunks -= 1;
            if let [between @ .., last] = holes
                && *last as usize == chunks
            {
                // The last chunk is free itself.
                holes = between;
            } else {
                self.relocate(level, chunks, *hole as usize);
                holes = rest;
            }
        }
        self.levels[level].owners.truncate(chunks);
        self.levels[level].entries.truncate(chunks << width);
    }

    /// Moves a chunk to a free place.
    fn relocate(&mut self, level: usize, from: usize, to: usize) {
        let width = stride::<A>(level);
        let entries = self.content(level, from).to_vec();
        let owner = self.levels[level].owners[from];
        self.levels[level].entries.write(to << width, &entries);
        self.levels[level].owners[to] = owner;
        self.levels[level - 1].entries.write(owner as usize, &[Entry::of_chunk(to)]);
        for (i, entry) in entries.iter().enumerate() {
            if let Some(chunk) = entry.chunk() {
                self.levels[level + 1].owners[chunk] = (to << width | i) as u32;
            }
        }
    }
}

impl<A: Addr> Builder<A> for Sail6Builder<A> {
    type Engine = Sail6;

    fn block_len(&self) -> u32 {
        A::BITS
    }

    fn share_len(&self) -> u32 {
        end::<A>(0)
    }

    fn patch(&mut self, block: Prefix<A>, runs: &[Run<A>]) -> Result<(), Full> {
        let top = end::<A>(0);
        let first = block.addr().bits(0, top);
        if block.len() > top {
            let entry = self.lay_within(0, first, block, runs)?;
            self.levels[0].entries.write(first, &[entry]);
        } else {
            let width = top - block.len();
            let mut entries = self.levels[0].entries[first..first + (1 << width)].to_vec();
            for (i, (part, runs)) in split(runs, block, width).enumerate() {
                entries[i] = self.lay(0, first + i, entries[i], part, runs)?;
            }
            self.levels[0].entries.write(first, &entries);
        }
        self.compact();
        Ok(())
    }

    fn absorb(&mut self, part: &Self, first: A, last: A) -> Result<(), Full> {
        let top = end::<A>(0);
        for index in first.bits(0, top)..=last.bits(0, top) {
            if let Some(chunk) = self.levels[0].entries[index].chunk() {
                self.free(1, chunk);
            }
            let entry = self.adopt(part, 0, index, part.levels[0].entries[index])?;
            self.levels[0].entries.write(index, &[entry]);
        }
        self.compact();
        Ok(())
    }

    fn freeze(&self) -> Sail6 {
        Sail6 { levels: self.levels.iter().map(|level| level.entries.freeze()).collect() }
    }

    fn refresh(&self, idle: &mut Sail6) {
        for (level, idle) in self.levels.iter().zip(&mut idle.levels) {
            level.entries.refresh(idle);
        }
    }

    fn written(&self) -> u64 {
        self.levels.iter().map(|level| level.entries.written()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::{Entry, Sail6Builder};
    use crate::engine::{Builder, Engine};
    use crate::runs::sweep_block;
    use crate::{Hop, Prefix, Rib};
    use alloc::vec::Vec;

    /// Every chunk is owned by the entry that names it, once, or is free.
    fn check(builder: &Sail6Builder<u16>) {
        for (level, pair) in builder.levels.windows(2).enumerate() {
            let [above, here] = pair else { unreachable!("windows of two") };
            let width = super::stride::<u16>(level + 1);
            assert_eq!(here.entries.len(), here.owners.len() << width);
            let stale = |index: usize| {
                level > 0 && {
                    let chunk = (index >> super::stride::<u16>(level)) as u32;
                    above.free.contains(&chunk)
                }
            };
            let mut named = 0;
            for (index, entry) in above.entries.iter().enumerate().filter(|&(i, _)| !stale(i)) {
                if let Some(chunk) = entry.chunk() {
                    named += 1;
                    assert_eq!(here.owners[chunk] as usize, index);
                    assert!(!here.free.contains(&(chunk as u32)));
                    let content = builder.content(level + 1, chunk);
                    let one = content[0];
                    assert!(one.chunk().is_some() || content.iter().any(|&other| other != one));
                }
            }
            assert_eq!(named + here.free.len(), here.owners.len());
            assert!(here.free.len() * 16 <= here.owners.len());
        }
    }

    #[test]
    fn patches_leave_the_chunks_of_a_build_from_scratch() {
        let mut rib: Rib<u16> = Rib::new();
        let mut builder = Sail6Builder::<u16>::default();
        let mut rng = fastrand::Rng::with_seed(3);
        for step in 0..4_000 {
            let state = rng.u32(..);
            // Waves of many and of few routes.
            let wanted = if step / 500 % 2 == 0 { 5 } else { 2 };
            let prefix = Prefix::truncate((state >> 13) as u16 & 0xe3ff, state >> 28 | 1);
            if (state >> 8) % 7 < wanted {
                rib.insert(prefix, Hop(state >> 30));
            } else {
                rib.remove(prefix);
            }
            for block in rib.take_dirty(16) {
                let mut runs = Vec::new();
                sweep_block(&rib, block, &mut runs);
                builder.patch(block, &runs).unwrap();
            }
            check(&builder);
        }
        let mut fresh = Sail6Builder::<u16>::default();
        let mut runs = Vec::new();
        sweep_block(&rib, Prefix::ALL, &mut runs);
        fresh.patch(Prefix::ALL, &runs).unwrap();
        for (fresh, patched) in fresh.levels.iter().zip(&builder.levels) {
            assert_eq!(fresh.owners.len(), patched.owners.len() - patched.free.len());
        }
        let (fresh, patched) = (fresh.freeze(), builder.freeze());
        for addr in 0..=u16::MAX {
            assert_eq!(fresh.lookup(addr), patched.lookup(addr));
        }
        assert_eq!(size_of::<Entry>(), 4);
    }
}
