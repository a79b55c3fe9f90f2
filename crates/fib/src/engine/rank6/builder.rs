//! Lays runs out as a rank6 table, and patches it.
//!
//! Four pools, all shared by content: blocks, nodes, chunks without and chunks with
//! entries as values, besides the long ranges. An entry in a stored block, node or chunk counts as
//! one user of the words that it names, also if it is repeated there in a row; an index of the
//! direct table is one user of its block.
//!
//! The code that makes an entry *owns* it: one user of it has been counted in advance. The block,
//! node or chunk in which the owned entry is then stored is that user; if identical content was
//! stored before, the entries in it are released.
//!
//! A patch of up to 24 bits rebuilds nodes from the runs. A longer one makes only the
//! entries of its 32-bit blocks and puts them among those that the node has already.

use alloc::vec;
use alloc::vec::Vec;
use core::mem::take;

use super::chunk::{self, Width};
use super::entry::{self, kind, kind_of, payload};
use super::layout::{entries_of, leading, words_of};
use super::{Cuts, Long, Rank6};
use crate::arch::search::{HALVES, byte};
use crate::engine::Builder;
use crate::pool::Pool;
use crate::runs::{Run, split};
use crate::table::Master;
use crate::{FamilyLayout, Full, Prefix};

/// Counts the bytes of a table of `runs`, which tile the whole space, by laying it out;
/// `None` if it would be beyond a limit.
pub(crate) fn bytes<A: FamilyLayout>(runs: &[Run<A>]) -> Option<usize> {
    let mut builder = Rank6Builder::default();
    builder.patch(Prefix::ALL, runs).ok()?;
    let pools = [&builder.blocks, &builder.nodes, &builder.chunks, &builder.deep];
    let words: usize = pools.iter().map(|pool| size_of_val(pool.all())).sum();
    Some(size_of_val(&builder.direct[..]) + words + size_of_val(builder.long.all()))
}

/// The builder of [`Rank6`].
#[derive(Debug)]
pub struct Rank6Builder<A: FamilyLayout> {
    direct: Master<u16>,
    blocks: Pool<u32>,
    nodes: Pool<u32>,
    chunks: Pool<u32>,
    deep: Pool<u32>,
    long: Pool<Long<A>>,
}

impl<A: FamilyLayout> Default for Rank6Builder<A> {
    fn default() -> Self {
        let indexes = 1 << Cuts::<A>::DIRECT;
        let mut blocks = Pool::new();
        // Every index leads to the one block without a route, number 0.
        blocks.intern(&vec![0; Self::SLOTS], indexes);
        Self {
            direct: Master::new(vec![0; indexes as usize]),
            blocks,
            nodes: Pool::new(),
            chunks: Pool::new(),
            deep: Pool::new(),
            long: Pool::new(),
        }
    }
}

impl<A: FamilyLayout> Rank6Builder<A> {
    /// The entries of a block, and the slots of a node.
    const SLOTS: usize = 1 << Cuts::<A>::NODE;

    /// Returns the block of an index.
    fn block(&self, index: usize) -> &[u32] {
        self.blocks.get(usize::from(self.direct[index]) << Cuts::<A>::NODE, Self::SLOTS)
    }

    /// Returns the pool of the words that an entry names, except long ranges.
    fn pool(&mut self, entry: u32) -> &mut Pool<u32> {
        match kind_of(entry) {
            kind::NODE | kind::TABLE => &mut self.nodes,
            kind::DEEP => &mut self.deep,
            _ => &mut self.chunks,
        }
    }

    /// Returns the words that an entry names, except long ranges.
    fn entry_words(&self, entry: u32) -> &[u32] {
        let pool = match kind_of(entry) {
            kind::NODE | kind::TABLE => &self.nodes,
            kind::DEEP => &self.deep,
            _ => &self.chunks,
        };
        let all = pool.all();
        &all[words_of(entry, all, Self::SLOTS)]
    }

    /// Returns whether an entry names long ranges, as it does behind the second chunk.
    fn is_long(level: u32, entry: u32) -> bool {
        level == Cuts::<A>::LONG && kind_of(entry) == kind::LONG
    }

    fn long_len(&self, entry: u32) -> (usize, usize) {
        let at = payload(entry) as usize;
        (at, 1 + self.long.get(at, 1)[0].1 as usize)
    }

    /// Removes a user of the words that `entry`, of the stage at `level`, names; with the last one,
    /// also a user of the words that those name.
    fn release(&mut self, level: u32, entry: u32) {
        if kind_of(entry) == kind::HOP {
            return;
        }
        if Self::is_long(level, entry) {
            let (at, len) = self.long_len(entry);
            self.long.release(at, len);
            return;
        }
        let words = self.entry_words(entry);
        let (len, entries) = (words.len(), words[entries_of(entry, words)].to_vec());
        let at = self.place(entry);
        if self.pool(entry).release(at, len) {
            self.release_all(Self::below(level), &entries);
        }
    }

    /// Does so for each of the entries that lead further.
    fn release_all(&mut self, level: u32, entries: &[u32]) {
        for entry in leading(entries) {
            self.release(level, entry);
        }
    }

    /// Adds a user of the words that `entry` names.
    fn retain(&mut self, level: u32, entry: u32) {
        if kind_of(entry) == kind::HOP {
            return;
        }
        if Self::is_long(level, entry) {
            let (at, len) = self.long_len(entry);
            self.long.retain(at, len);
            return;
        }
        let (at, len) = (self.place(entry), self.entry_words(entry).len());
        self.pool(entry).retain(at, len);
    }

    /// Returns the place of the first word that an entry names.
    fn place(&self, entry: u32) -> usize {
        match kind_of(entry) {
            kind::NODE | kind::FEW_BYTES | kind::FEW_HALVES => entry::counted(entry).0,
            kind::TABLE => payload(entry) as usize,
            _ => entry::many_at(entry),
        }
    }

    /// Returns the level behind one.
    fn below(level: u32) -> u32 {
        match level {
            level if level == Cuts::<A>::NODES => Cuts::<A>::FIRST,
            level if level == Cuts::<A>::FIRST => Cuts::<A>::SECOND,
            _ => Cuts::<A>::LONG,
        }
    }

    /// Stores words in the pool of a kind, whose entries, which stand where `level`
    /// begins, are owned.
    fn store(&mut self, kind: u32, words: &[u32], entries: &[u32], level: u32) -> usize {
        let (at, first) = self.pool(kind << entry::PAYLOAD).intern(words, 1);
        if !first {
            self.release_all(level, entries);
        }
        at
    }

    /// Returns the slots of an entry of the blocks.
    fn slots(&self, entry: u32) -> Vec<u32> {
        let words = match kind_of(entry) {
            kind::HOP => return vec![entry; Self::SLOTS],
            _ => self.entry_words(entry),
        };
        if kind_of(entry) == kind::TABLE {
            return words.to_vec();
        }
        let (_, starts) = entry::counted(entry);
        let mut slots = Vec::with_capacity(Self::SLOTS);
        for (rank, &value) in words[entries_of(entry, words)].iter().enumerate() {
            let end = if rank < starts { byte(words, rank) as usize } else { Self::SLOTS };
            slots.resize(end, value);
        }
        slots
    }

    /// Makes an entry of the blocks from slots. Of each series of equal slots that lead
    /// further, one is owned.
    fn node(&mut self, slots: &[u32]) -> Result<u32, Full> {
        let differs = |&at: &usize| at == 0 || slots[at] != slots[at - 1];
        let mut list: Vec<(u32, u32)> =
            (0..slots.len()).filter(differs).map(|at| (at as u32, slots[at])).collect();
        if let [(_, only)] = list[..] {
            if kind_of(only) == kind::HOP {
                return Ok(only);
            }
            list.push((1, only));
        }
        let starts = list.len() - 1;
        let level = Cuts::<A>::FIRST;
        // Far back in a large array there is room in an entry for the place alone.
        if starts <= Cuts::<A>::MAX_STARTS && entry::counts(self.nodes.all().len()) {
            let at = self.store(kind::NODE, &chunk::node(&list), slots, level);
            return Ok(entry::with_count(kind::NODE, at, starts));
        }
        let at = self.store(kind::TABLE, slots, slots, level);
        entry::place(kind::TABLE, at, Full::RANGES)
    }

    /// Makes the entry of `block`, which is as long as `level` says, owned.
    fn chunk(&mut self, level: u32, block: Prefix<A>, runs: &[Run<A>]) -> Result<u32, Full> {
        if let [run] = runs {
            return entry::hop(run.hop);
        }
        if level == Cuts::<A>::LONG {
            return self.ranges(block, runs);
        }
        let below = Self::below(level);
        let mut list: Vec<(u32, u32)> = Vec::new();
        let mut at = 0;
        while at < runs.len() {
            // The part in which this run begins, and the runs that do so behind it.
            let start = runs[at].start.max(block.addr());
            let part = Prefix::truncate(start, below);
            let more = runs[at + 1..].iter().take_while(|run| run.start <= part.last()).count();
            let within = start != part.addr();
            let tail = |addr: A| addr.bits(level, below - level) as u32;
            if more == 0 && !within {
                self.append(below, &mut list, tail(start), entry::hop(runs[at].hop)?);
            } else {
                // The rest of the run before is part of it.
                let first = at - usize::from(within);
                let entry = self.chunk(below, part, &runs[first..=at + more])?;
                self.append(below, &mut list, tail(start), entry);
                if let Some(next) = part.last().succ().filter(|&next| next <= block.last()) {
                    let hop = entry::hop(runs[at + more].hop)?;
                    self.append(below, &mut list, tail(next), hop);
                }
            }
            at += more + 1;
        }
        self.store_list(below, list)
    }

    /// Appends a value, owned; one for the same start counts instead of a hop there.
    fn append(&mut self, level: u32, list: &mut Vec<(u32, u32)>, start: u32, entry: u32) {
        if list.last().is_some_and(|last| last.0 == start) {
            list.pop();
        }
        if list.last().is_some_and(|last| last.1 == entry) {
            self.release(level, entry);
        } else {
            list.push((start, entry));
        }
    }

    /// Stores a chunk; its values, owned, stand where `level` begins.
    fn store_list(&mut self, level: u32, mut list: Vec<(u32, u32)>) -> Result<u32, Full> {
        if let [(_, only)] = list[..] {
            if kind_of(only) == kind::HOP {
                return Ok(only);
            }
            list.push((1, only));
        }
        let starts = list.len() - 1;
        let width = Width::of(list.iter().map(|item| item.1));
        let (few, many) = match width {
            Width::Bytes => (kind::FEW_BYTES, kind::MANY_BYTES),
            Width::Halves => (kind::FEW_HALVES, kind::MANY_HALVES),
            Width::Words => (kind::DEEP, kind::DEEP),
        };
        let counts = few != many && entry::counts(self.chunks.all().len());
        if starts <= HALVES && counts {
            let at = self.store(few, &chunk::few(&list, width), &[], level);
            return Ok(entry::with_count(few, at, starts));
        }
        let values: Vec<u32> = list.iter().map(|item| item.1).collect();
        let at = self.store(many, &chunk::many(&list, width), &values, level);
        entry::many(many, at, chunk::is_large(starts))
    }

    /// Stores ranges of whole addresses.
    fn ranges(&mut self, block: Prefix<A>, runs: &[Run<A>]) -> Result<u32, Full> {
        let range = |run: &Run<A>| Ok((run.start.max(block.addr()), entry::hop(run.hop)?));
        let mut ranges: Vec<Long<A>> = vec![(A::MIN, runs.len() as u32)];
        for run in runs {
            ranges.push(range(run)?);
        }
        let (at, _) = self.long.intern(&ranges, 1);
        entry::place(kind::LONG, at, Full::RANGES)
    }

    /// Puts `fresh` in place of the entries of a block from `offset` on. Those in `owned`
    /// are owned, and stand in `fresh`.
    fn put(
        &mut self,
        index: usize,
        offset: usize,
        fresh: &[u32],
        owned: &[u32],
    ) -> Result<(), Full> {
        let place = usize::from(self.direct[index]) << Cuts::<A>::NODE;
        let old = self.block(index).to_vec();
        let mut new = old.clone();
        new[offset..offset + fresh.len()].copy_from_slice(fresh);
        let (at, first) = self.blocks.intern(&new, 1);
        let last = self.blocks.release(place, Self::SLOTS);
        let number = u16::try_from(at >> Cuts::<A>::NODE);
        let seen = (at >> Cuts::<A>::NODE) as u64 + 1;
        let full = |_| Full { what: Full::BLOCKS, limit: 1 << 16, seen };
        self.direct.write(index, &[number.map_err(full)?]);
        // The change of the number of users of each entry's words: 0 for most entries, which are
        // in both blocks.
        let mut change: Vec<(u32, i32)> = owned.iter().map(|&entry| (entry, -1)).collect();
        if first {
            change.extend(leading(&new).map(|entry| (entry, 1)));
        }
        if last {
            change.extend(leading(&old).map(|entry| (entry, -1)));
        }
        change.sort_unstable();
        let same = |a: &(u32, i32), b: &(u32, i32)| a.0 == b.0;
        let sums =
            || change.chunk_by(same).map(|of| (of[0].0, of.iter().map(|c| c.1).sum::<i32>()));
        let level = Cuts::<A>::NODES;
        for (entry, sum) in sums() {
            (0..sum).for_each(|_| self.retain(level, entry));
        }
        for (entry, sum) in sums() {
            (sum..0).for_each(|_| self.release(level, entry));
        }
        Ok(())
    }

    /// Patches blocks that hold whole nodes.
    fn patch_nodes(&mut self, block: Prefix<A>, runs: &[Run<A>]) -> Result<(), Full> {
        let whole = Cuts::<A>::DIRECT.max(block.len());
        let nodes = 1 << (Cuts::<A>::NODES - whole);
        let mut fresh = Vec::with_capacity(nodes);
        for (part, runs) in split(runs, block, whole - block.len()) {
            let index = part.addr().bits(0, Cuts::<A>::DIRECT);
            let offset = part.addr().bits(Cuts::<A>::DIRECT, Cuts::<A>::NODE);
            fresh.clear();
            if let [run] = runs {
                // One hop for all, as in most of the space, and mostly the present one.
                let entry = entry::hop(run.hop)?;
                if self.block(index)[offset..offset + nodes].iter().all(|&there| there == entry) {
                    continue;
                }
                fresh.resize(nodes, entry);
            } else {
                for (part, runs) in split(runs, part, Cuts::<A>::NODES - whole) {
                    fresh.push(self.node_of(part, runs)?);
                }
            }
            let owned = take(&mut fresh);
            self.put(index, offset, &owned, &owned)?;
        }
        Ok(())
    }

    /// Makes the entry of a node from its runs.
    fn node_of(&mut self, part: Prefix<A>, runs: &[Run<A>]) -> Result<u32, Full> {
        if let [run] = runs {
            return entry::hop(run.hop);
        }
        let mut slots: Vec<u32> = Vec::with_capacity(Self::SLOTS);
        for (part, runs) in split(runs, part, Cuts::<A>::NODE) {
            let entry = self.chunk(Cuts::<A>::FIRST, part, runs)?;
            if slots.last() == Some(&entry) {
                self.release(Cuts::<A>::FIRST, entry);
            }
            slots.push(entry);
        }
        self.node(&slots)
    }

    /// Patches a block within a node.
    fn patch_slots(&mut self, block: Prefix<A>, runs: &[Run<A>]) -> Result<(), Full> {
        let level = Cuts::<A>::FIRST;
        assert!(block.len() <= level, "a block to patch has at most as many bits as a slot");
        let index = block.addr().bits(0, Cuts::<A>::DIRECT);
        let offset = block.addr().bits(Cuts::<A>::DIRECT, Cuts::<A>::NODE);
        let mut slots = self.slots(self.block(index)[offset]);
        let from = block.addr().bits(Cuts::<A>::NODES, Cuts::<A>::NODE);
        let count = 1 << (level - block.len());
        let mut fresh = Vec::with_capacity(count);
        for (part, runs) in split(runs, block, level - block.len()) {
            fresh.push(self.chunk(level, part, runs)?);
        }
        let changed = from..from + count;
        slots[changed.clone()].copy_from_slice(&fresh);
        // One of each series is to be owned: the fresh ones are, each of them.
        for (at, &slot) in slots.iter().enumerate() {
            let begins = at == 0 || slots[at - 1] != slot;
            match (changed.contains(&at), begins) {
                (true, false) => self.release(level, slot),
                (false, true) => self.retain(level, slot),
                (true, true) | (false, false) => {}
            }
        }
        let entry = self.node(&slots)?;
        self.put(index, offset, &[entry], &[entry])
    }

    /// Copies the words that another builder's `entry` names; returns the entry of the copy, owned.
    fn adopt(&mut self, part: &Self, level: u32, entry: u32) -> Result<u32, Full> {
        let kind = kind_of(entry);
        if kind == kind::HOP {
            return Ok(entry);
        }
        if Self::is_long(level, entry) {
            let (at, len) = part.long_len(entry);
            let (at, _) = self.long.intern(part.long.get(at, len), 1);
            return entry::place(kind, at, Full::RANGES);
        }
        let mut words = part.entry_words(entry).to_vec();
        let entries = entries_of(entry, &words);
        let ours = self.adopt_all(part, Self::below(level), &words[entries.clone()])?;
        words[entries].copy_from_slice(&ours);
        let at = self.store(kind, &words, &ours, Self::below(level));
        match kind {
            kind::TABLE => return entry::place(kind, at, Full::RANGES),
            kind::MANY_BYTES | kind::MANY_HALVES | kind::DEEP => {
                return entry::many(kind, at, entry::is_large(entry));
            }
            _ => {}
        }
        if !entry::counts(at) {
            return Err(Full { what: Full::RANGES, limit: 1 << 23, seen: at as u64 });
        }
        Ok(entry::with_count(kind, at, entry::counted(entry).1))
    }

    /// Takes over entries; of each series of equal ones, one is owned.
    fn adopt_all(&mut self, part: &Self, level: u32, entries: &[u32]) -> Result<Vec<u32>, Full> {
        let mut ours: Vec<u32> = Vec::with_capacity(entries.len());
        for (at, &entry) in entries.iter().enumerate() {
            match ours.last() {
                Some(&before) if entries[at - 1] == entry => ours.push(before),
                _ => ours.push(self.adopt(part, level, entry)?),
            }
        }
        Ok(ours)
    }
}

impl<A: FamilyLayout> Builder<A> for Rank6Builder<A> {
    type Engine = Rank6<A>;

    fn block_len(&self) -> u32 {
        Cuts::<A>::FIRST
    }

    fn share_len(&self) -> u32 {
        Cuts::<A>::DIRECT
    }

    fn patch(&mut self, block: Prefix<A>, runs: &[Run<A>]) -> Result<(), Full> {
        if block.len() <= Cuts::<A>::NODES {
            self.patch_nodes(block, runs)?;
        } else {
            self.patch_slots(block, runs)?;
        }
        for pool in [&mut self.blocks, &mut self.nodes, &mut self.chunks, &mut self.deep] {
            pool.trim();
        }
        self.long.trim();
        Ok(())
    }

    fn absorb(&mut self, part: &Self, first: A, last: A) -> Result<(), Full> {
        let indexes = first.bits(0, Cuts::<A>::DIRECT)..=last.bits(0, Cuts::<A>::DIRECT);
        // Where blocks taken over before are now: most indexes share one.
        let mut ours = vec![None; 1 << Cuts::<A>::DIRECT];
        for index in indexes {
            let number = usize::from(part.direct[index]);
            let fresh = match ours[number] {
                Some(same) => {
                    if self.direct[index] == self.direct[same] {
                        continue;
                    }
                    // The block is in use: nothing in it needs to be counted.
                    let fresh = self.block(same).to_vec();
                    self.put(index, 0, &fresh, &[])?;
                    continue;
                }
                None => self.adopt_all(part, Cuts::<A>::NODES, part.block(index))?,
            };
            let owned: Vec<u32> = leading(&fresh).collect();
            self.put(index, 0, &fresh, &owned)?;
            ours[number] = Some(index);
        }
        Ok(())
    }

    fn freeze(&self) -> Rank6<A> {
        Rank6 {
            direct: self.direct.freeze(),
            blocks: self.blocks.freeze(),
            nodes: self.nodes.freeze(),
            chunks: self.chunks.freeze(),
            deep: self.deep.freeze(),
            long: self.long.freeze(),
        }
    }

    fn refresh(&self, idle: &mut Rank6<A>) {
        self.direct.refresh(&mut idle.direct);
        self.blocks.refresh(&mut idle.blocks);
        self.nodes.refresh(&mut idle.nodes);
        self.chunks.refresh(&mut idle.chunks);
        self.deep.refresh(&mut idle.deep);
        self.long.refresh(&mut idle.long);
    }

    fn written(&self) -> u64 {
        let pools = [&self.blocks, &self.nodes, &self.chunks, &self.deep];
        let words: u64 = pools.iter().map(|pool| pool.written()).sum();
        self.direct.written() + words + self.long.written()
    }

    fn holes(&self) -> usize {
        let pools = [&self.blocks, &self.nodes, &self.chunks, &self.deep];
        pools.iter().map(|pool| pool.holes()).sum::<usize>() + self.long.holes()
    }
}
