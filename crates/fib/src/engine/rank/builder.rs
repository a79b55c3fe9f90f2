//! Lays runs out as chunks, and patches them.
//!
//! Each upper half of the bits is laid out on its own: its runs become changes, and changes within
//! the 2^8 addresses of one place become an entry of a chunk below. A patch of a smaller block
//! reads the changes of the present chunk back and replaces some.
//! Chunks are interned: a chunk counts as one user of each chunk below that a
//! change of its names, however many entries lead to the chunk itself.

use alloc::vec;
use alloc::vec::Vec;
use core::marker::PhantomData;
use core::ops::Range;

use super::chunk::{self, HOPS};
use super::entry::{Entry, PLACES};
use super::{Chunked, Form, Ranked, pivot, upper};
use crate::engine::Builder;
use crate::engine::leaf::full;
use crate::runs::{Run, split};
use crate::shared_pool::SharedPool;
use crate::table::Master;
use crate::{Addr, Full, Hop, Prefix};

/// Counts the bytes of a table of `runs`, which tile the whole space, by laying it out;
/// `None` if it takes a larger grain than the least.
pub(crate) fn bytes<A: Addr>(runs: &[Run<A>]) -> Option<usize> {
    let mut builder = RankBuilder::<A, Ranked>::new(0);
    builder.patch(Prefix::ALL, runs).ok()?;
    Some(size_of_val(&builder.direct[..]) + size_of_val(builder.chunks.all()))
}

/// Returns the entry that is the hop.
fn hop(hop: Hop) -> Result<Entry, Full> {
    if hop.0 <= HOPS { Ok(Entry(hop.0)) } else { Err(full(hop, HOPS.into())) }
}

/// Returns where the places of a chunk end that begins after `from` bits.
fn below_of<A: Addr>(from: u32) -> u32 {
    if from == upper::<A>() { pivot::<A>() } else { A::BITS }
}

/// The builder of [`Chunked`] tables.
#[derive(Debug)]
pub struct RankBuilder<A, F> {
    direct: Master<u32>,
    chunks: SharedPool,
    grain: u32,
    form: PhantomData<fn() -> (A, F)>,
}

impl<A: Addr, F: Form> RankBuilder<A, F> {
    /// The grains to try, one after the other while there are too few places.
    pub(crate) const GRAINS: [u32; 4] = [0, 2, 4, 6];

    /// Starts an empty table whose places are 2^`grain` words apart, with `grain` limited to 6.
    pub fn new(grain: u32) -> Self {
        let grain = grain.min(6);
        Self {
            direct: Master::new(vec![0; 1 << upper::<A>()]),
            chunks: SharedPool::new(),
            grain,
            form: PhantomData,
        }
    }

    /// Makes the entry for `runs`, which tile a block of `from` bits: the upper half, or
    /// the pivot.
    fn entry(&mut self, runs: &[Run<A>], from: u32) -> Result<Entry, Full> {
        if let [run] = runs {
            return hop(run.hop);
        }
        let end = below_of::<A>(from);
        let mut changes = Vec::new();
        self.append(&mut changes, runs, from, 0..1 << (end - from))?;
        self.intern(&changes)
    }

    /// Appends the changes at the places of `range` in a block of `from` bits, which `runs`
    /// tile.
    fn append(
        &mut self,
        changes: &mut Vec<(u32, Entry)>,
        runs: &[Run<A>],
        from: u32,
        range: Range<usize>,
    ) -> Result<(), Full> {
        let end = below_of::<A>(from);
        let place = |run: &Run<A>| run.start.bits(from, end - from);
        self.change(changes, range.start, hop(runs[0].hop)?);
        let mut next = 1;
        while next < runs.len() {
            let (start, at) = (runs[next].start, place(&runs[next]));
            let after = next + runs[next..].iter().take_while(|run| place(run) == at).count();
            // Whether all addresses of this place have one hop.
            if start.first(end) == start && after == next + 1 {
                self.change(changes, at, hop(runs[next].hop)?);
            } else {
                // The run before reaches into the place, unless one starts with it.
                let reaching = usize::from(start.first(end) != start);
                let below = self.entry(&runs[next - reaching..after], end)?;
                self.change(changes, at, below);
                if at + 1 < range.end {
                    self.change(changes, at + 1, hop(runs[after - 1].hop)?);
                }
            }
            next = after;
        }
        Ok(())
    }

    /// Makes the entry that `old`, of an upper half, becomes where the places of `range`
    /// go by `runs`; all users are counted.
    fn amend(&mut self, old: Entry, range: Range<usize>, runs: &[Run<A>]) -> Result<Entry, Full> {
        let (first, end) = (range.start as u32, range.end as u32);
        let present = self.changes(old);
        let before = present.partition_point(|&(at, _)| at < first);
        let after = present.partition_point(|&(at, _)| at <= end);
        let mut changes = Vec::with_capacity(present.len() + runs.len() + 1);
        changes.extend_from_slice(&present[..before]);
        for &(_, entry) in &present[..before] {
            self.retain(entry);
        }
        self.append(&mut changes, runs, upper::<A>(), range)?;
        if end < 1 << (pivot::<A>() - upper::<A>()) {
            // The entry behind the range, which continues from there on.
            let resumed = present[after - 1].1;
            self.retain(resumed);
            self.change(&mut changes, end as usize, resumed);
            for &(at, entry) in &present[after..] {
                self.retain(entry);
                self.change(&mut changes, at as usize, entry);
            }
        }
        match changes[..] {
            [(_, only)] if only.is_hop() => Ok(only),
            _ => self.intern(&changes),
        }
    }

    /// Reads the changes of the chunk that `entry` leads to; a hop is one.
    fn changes(&self, entry: Entry) -> Vec<(u32, Entry)> {
        if entry.is_hop() {
            return vec![(0, entry)];
        }
        let (at, len) = self.span(entry);
        chunk::read::<F>(entry, self.chunks.get(at, len))
    }

    /// Records `entry` as the answer from `at` on, in place of an earlier record for `at`.
    fn change(&mut self, changes: &mut Vec<(u32, Entry)>, at: usize, entry: Entry) {
        let at = at as u32;
        if changes.last().is_some_and(|&(last, _)| last == at) {
            changes.pop();
        }
        if changes.last().is_some_and(|&(_, last)| last == entry) {
            // Two places alike are one change, and one user.
            self.release(entry);
        } else {
            changes.push((at, entry));
        }
    }

    /// Finds or stores the chunk of `changes`.
    fn intern(&mut self, changes: &[(u32, Entry)]) -> Result<Entry, Full> {
        let (width, window, words) = chunk::lay_out::<F>(changes, self.grain);
        let place = self.store(&words, changes.iter().map(|&(_, leaf)| leaf))?;
        Ok(Entry::chunk(width, window, place))
    }

    /// Finds or stores a chunk whose leaves have been counted as users of their chunks.
    fn store(&mut self, words: &[u32], leaves: impl Iterator<Item = Entry>) -> Result<u32, Full> {
        let (at, fresh) = self.chunks.intern(words, 1);
        if !fresh {
            leaves.for_each(|leaf| self.release(leaf));
        }
        let place = (at >> self.grain) as u64;
        if place < PLACES {
            return Ok(place as u32);
        }
        let limit = PLACES << self.grain;
        Err(Full { what: Full::WORDS, limit, seen: at as u64 + words.len() as u64 })
    }

    /// Returns where the chunk is that `entry` leads to, and how many words it has.
    fn span(&self, entry: Entry) -> (usize, usize) {
        let at = (entry.place() as usize) << self.grain;
        let last = at + (entry.word_count() as usize - 1);
        (at, chunk::len::<F>(entry, self.chunks.get(last, 1)[0], self.grain))
    }

    /// Returns the leaves of a chunk that are chunks again.
    fn below(&self, entry: Entry) -> Vec<Entry> {
        let Some(first) = chunk::entries::<F>(entry) else { return Vec::new() };
        let (at, len) = self.span(entry);
        let mut below: Vec<Entry> =
            self.chunks.get(at, len)[first..].iter().map(|&leaf| Entry(leaf)).collect();
        // A leaf that is there for several bits is one user.
        below.dedup();
        below.retain(|leaf| !leaf.is_hop());
        below
    }

    /// Counts a user more of the chunk that `entry` leads to, if it does.
    fn retain(&mut self, entry: Entry) {
        if !entry.is_hop() {
            let (at, len) = self.span(entry);
            self.chunks.retain(at, len);
        }
    }

    /// Counts a user less of the chunk that `entry` leads to, if it does.
    fn release(&mut self, entry: Entry) {
        if entry.is_hop() {
            return;
        }
        let (at, len) = self.span(entry);
        let below = self.below(entry);
        if self.chunks.release(at, len) {
            below.into_iter().for_each(|leaf| self.release(leaf));
        }
    }

    /// Takes over the chunk that an entry of `part` leads to.
    fn adopt(&mut self, part: &Self, entry: Entry) -> Result<Entry, Full> {
        if entry.is_hop() {
            return Ok(entry);
        }
        let (at, len) = part.span(entry);
        let mut words = part.chunks.get(at, len).to_vec();
        let mut ours = Vec::new();
        if let Some(first) = chunk::entries::<F>(entry) {
            let mut before = (Entry::default(), Entry::default());
            for leaf in &mut words[first..] {
                // Several bits of one leaf stay one user.
                if before.0.0 != *leaf {
                    before = (Entry(*leaf), self.adopt(part, Entry(*leaf))?);
                    ours.push(before.1);
                }
                *leaf = before.1.0;
            }
        }
        Ok(entry.moved(self.store(&words, ours.into_iter())?))
    }

    /// Puts `fresh`, whose users are counted, in place of the entries from `first` on.
    fn put(&mut self, first: usize, fresh: &[u32]) {
        for index in first..first + fresh.len() {
            self.release(Entry(self.direct[index]));
        }
        self.direct.write(first, fresh);
        self.chunks.trim();
    }
}

impl<A: Addr, F: Form> Builder<A> for RankBuilder<A, F> {
    type Engine = Chunked<A, F>;

    fn block_len(&self) -> u32 {
        pivot::<A>()
    }

    fn share_len(&self) -> u32 {
        upper::<A>()
    }

    fn patch(&mut self, block: Prefix<A>, runs: &[Run<A>]) -> Result<(), Full> {
        let (level, pivot) = (upper::<A>(), pivot::<A>());
        assert!(block.len() <= pivot, "a block to patch has at most the bits of the pivot");
        if block.len() > level {
            let index = block.addr().bits(0, level);
            let first = block.addr().bits(level, pivot - level);
            let range = first..first + (1 << (pivot - block.len()));
            let fresh = self.amend(Entry(self.direct[index]), range, runs)?;
            self.put(index, &[fresh.0]);
            return Ok(());
        }
        let mut fresh = Vec::with_capacity(1 << (level - block.len()));
        for (_, runs) in split(runs, block, level - block.len()) {
            fresh.push(self.entry(runs, level)?.0);
        }
        self.put(block.addr().bits(0, level), &fresh);
        Ok(())
    }

    fn absorb(&mut self, part: &Self, first: A, last: A) -> Result<(), Full> {
        let (first, last) = (first.bits(0, upper::<A>()), last.bits(0, upper::<A>()));
        let mut fresh = Vec::with_capacity(last - first + 1);
        for index in first..=last {
            fresh.push(self.adopt(part, Entry(part.direct[index]))?.0);
        }
        self.put(first, &fresh);
        Ok(())
    }

    fn freeze(&self) -> Chunked<A, F> {
        Chunked {
            direct: self.direct.freeze(),
            chunks: self.chunks.freeze(),
            grain: self.grain,
            form: PhantomData,
        }
    }

    fn refresh(&self, idle: &mut Chunked<A, F>) {
        self.direct.refresh(&mut idle.direct);
        self.chunks.refresh(&mut idle.chunks);
    }

    fn written(&self) -> u64 {
        self.direct.written() + self.chunks.written()
    }

    fn holes(&self) -> usize {
        self.chunks.holes()
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Form, Plain, Ranked};
    use super::RankBuilder;
    use crate::engine::{Builder, Engine};
    use crate::runs::{Run, split};
    use crate::{Hop, Prefix};
    use alloc::vec::Vec;

    fn dice() -> impl FnMut(u64) -> u64 {
        let mut rng = fastrand::Rng::with_seed(5);
        move |below| {
            let state = rng.u64(..);
            state % below
        }
    }

    /// Runs over everything, close together, of few hops, and alike in many places.
    fn tiles(dice: &mut impl FnMut(u64) -> u64) -> Vec<Run<u16>> {
        let mut runs = Vec::from([Run { start: 0, hop: Hop(dice(3) as u32) }]);
        let (period, highest) =
            ([16, 256, 4096, 65536][dice(4) as usize], [3, 300, 70_000][dice(3) as usize]);
        let pattern: Vec<(u16, Hop)> =
            (0..dice(6)).map(|_| (dice(period) as u16, Hop(dice(highest) as u32))).collect();
        for begin in (0..65536u64).step_by(period as usize) {
            let mut here: Vec<_> =
                pattern.iter().map(|&(at, hop)| (begin as u16 + at, hop)).collect();
            here.sort_unstable_by_key(|&(at, _)| at);
            for (start, hop) in here {
                if runs.last().is_some_and(|last| last.start == start) {
                    continue;
                }
                if runs.last().is_some_and(|last| last.hop != hop) {
                    runs.push(Run { start, hop });
                }
            }
        }
        runs
    }

    /// After any patches the words in use are those of a fresh build, and none when the
    /// table is empty again.
    fn leaks_nothing<F: Form>(grain: u32) {
        let mut dice = dice();
        let mut patched = RankBuilder::<u16, F>::new(grain);
        for _ in 0..60 {
            let runs = tiles(&mut dice);
            let pieces = dice(13) as u32;
            for (part, runs) in split(&runs, Prefix::ALL, pieces) {
                patched.patch(part, runs).unwrap();
            }
            let mut rebuilt = RankBuilder::<u16, F>::new(grain);
            rebuilt.patch(Prefix::ALL, &runs).unwrap();
            assert_eq!(patched.chunks.spans(), rebuilt.chunks.spans());
            let mut absorbed = RankBuilder::<u16, F>::new(grain);
            absorbed.absorb(&rebuilt, 0, u16::MAX).unwrap();
            assert_eq!(absorbed.chunks.spans(), rebuilt.chunks.spans());
            let tables = [patched.freeze(), rebuilt.freeze(), absorbed.freeze()];
            let mut at = 0;
            for addr in 0..=u16::MAX {
                at += usize::from(runs.get(at + 1).is_some_and(|next| next.start == addr));
                for table in &tables {
                    assert_eq!(table.lookup(addr), runs[at].hop, "{addr:04x}");
                }
            }
        }
        patched.patch(Prefix::ALL, &[Run { start: 0, hop: Hop::NONE }]).unwrap();
        assert_eq!((patched.chunks.spans(), patched.chunks.all().len()), (0, 0));
    }

    #[test]
    fn patches_leave_no_chunk_behind() {
        leaks_nothing::<Ranked>(0);
        leaks_nothing::<Ranked>(2);
        leaks_nothing::<Plain>(0);
        leaks_nothing::<Plain>(4);
    }
}
