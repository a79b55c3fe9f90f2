//! Lays runs out as chunks, and patches them.
//!
//! Each upper half of the bits is laid out on its own: its runs become changes, and changes within
//! the 2^8 addresses of one place become an entry of a chunk below. A patch of a smaller block
//! reads the changes of the present chunk back and replaces some.
//! Chunks are interned: a chunk counts as one user of each chunk below that a
//! change of its names, however many entries lead to the chunk itself.

#[cfg(all(feature = "std", target_os = "linux"))]
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::marker::PhantomData;
use core::ops::Range;

use super::chunk::{self, HOPS};
use super::entry::{Entry, PLACES};
use super::{Chunked, Form, Ranked, direct_bits, stride};
#[cfg(all(feature = "std", target_os = "linux"))]
use crate::WordFiles;
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

/// The length of the smallest blocks that are patched alone: 24 bits of IPv4 and 48 of IPv6, as long as most
/// routes.
const fn block_len<A: Addr>() -> u32 {
    if A::BITS <= 32 { A::BITS - stride::<A>() } else { 48 }
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
            direct: Master::new(vec![0; 1 << direct_bits::<A>()]),
            chunks: SharedPool::new(),
            grain,
            form: PhantomData,
        }
    }

    /// Makes the entry for `runs`, which tile a block of `from` bits, where a chunk begins.
    fn entry(&mut self, runs: &[Run<A>], from: u32) -> Result<Entry, Full> {
        if let [run] = runs {
            return hop(run.hop);
        }
        let mut changes = Vec::new();
        self.append(&mut changes, runs, from, 0..1 << stride::<A>())?;
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
        let end = from + stride::<A>();
        let place = |run: &Run<A>| run.start.bits(from, stride::<A>());
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

    /// Makes the entry that `old`, of `from` bits, becomes where a longer `block` goes by `runs`; all users
    /// are counted.
    fn amend(
        &mut self,
        old: Entry,
        from: u32,
        block: Prefix<A>,
        runs: &[Run<A>],
    ) -> Result<Entry, Full> {
        let below = from + stride::<A>();
        let first = block.addr().bits(from, stride::<A>());
        let end = first + (1 << below.saturating_sub(block.len()));
        let present = self.changes(old);
        let up_to = |end: usize| present.partition_point(|&(at, _)| at as usize <= end);
        let before = present.partition_point(|&(at, _)| (at as usize) < first);
        let mut changes = Vec::with_capacity(present.len() + runs.len() + 1);
        changes.extend_from_slice(&present[..before]);
        for &(_, entry) in &present[..before] {
            self.retain(entry);
        }
        if block.len() > below {
            let fresh = self.amend(present[up_to(first) - 1].1, below, block, runs)?;
            self.change(&mut changes, first, fresh);
        } else {
            self.append(&mut changes, runs, from, first..end)?;
        }
        if end < 1 << stride::<A>() {
            // The entry behind the block, which continues from there on.
            let after = up_to(end);
            let resumed = present[after - 1].1;
            self.retain(resumed);
            self.change(&mut changes, end, resumed);
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
        block_len::<A>()
    }

    fn share_len(&self) -> u32 {
        direct_bits::<A>()
    }

    fn patch(&mut self, block: Prefix<A>, runs: &[Run<A>]) -> Result<(), Full> {
        let level = direct_bits::<A>();
        assert!(
            block.len() <= block_len::<A>(),
            "a block to patch has at most the bits of `block_len`"
        );
        if block.len() > level {
            let index = block.addr().bits(0, level);
            let fresh = self.amend(Entry(self.direct[index]), level, block, runs)?;
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
        let level = direct_bits::<A>();
        let (first, last) = (first.bits(0, level), last.bits(0, level));
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

    #[cfg(all(feature = "std", target_os = "linux"))]
    fn place_in(&mut self, files: Arc<dyn WordFiles>) {
        self.chunks.place_in(files);
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Form, Plain, Ranked};
    use super::RankBuilder;
    use crate::engine::{Builder, Engine};
    use crate::runs::{Run, split};
    use crate::{Addr, Hop, Prefix};
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
    /// table is empty again. The runs begin at addresses of `block` that `part`
    /// returns, in their order.
    fn leaks_nothing<A: Addr, F: Form>(
        rounds: u32,
        grain: u32,
        block: Prefix<A>,
        part: impl Fn(u16) -> A,
    ) {
        let mut dice = dice();
        let new = || RankBuilder::<A, F>::new(grain);
        let mut patched = new();
        for _ in 0..rounds {
            let runs: Vec<_> = tiles(&mut dice)
                .iter()
                .map(|run| Run { start: part(run.start), hop: run.hop })
                .collect();
            let pieces = dice(1 + u64::from(patched.block_len() - block.len())) as u32;
            for (part, runs) in split(&runs, block, pieces) {
                patched.patch(part, runs).unwrap();
            }
            let mut rebuilt = new();
            rebuilt.patch(block, &runs).unwrap();
            assert_eq!(patched.chunks.spans(), rebuilt.chunks.spans());
            let mut absorbed = new();
            absorbed.absorb(&rebuilt, A::MIN, Prefix::ALL.last()).unwrap();
            assert_eq!(absorbed.chunks.spans(), rebuilt.chunks.spans());
            let tables = [patched.freeze(), rebuilt.freeze(), absorbed.freeze()];
            let mut at = 0;
            for addr in (0..=u16::MAX).map(&part) {
                at += usize::from(runs.get(at + 1).is_some_and(|next| next.start == addr));
                for table in &tables {
                    assert_eq!(table.lookup(addr), runs[at].hop, "{addr:?}");
                }
            }
        }
        patched.patch(block, &[Run { start: part(0), hop: Hop::NONE }]).unwrap();
        assert_eq!((patched.chunks.spans(), patched.chunks.all().len()), (0, 0));
    }

    #[test]
    fn patches_leave_no_chunk_behind() {
        leaks_nothing::<u16, Ranked>(60, 0, Prefix::ALL, |part| part);
        leaks_nothing::<u16, Ranked>(60, 2, Prefix::ALL, |part| part);
        leaks_nothing::<u16, Plain>(60, 0, Prefix::ALL, |part| part);
        leaks_nothing::<u16, Plain>(60, 4, Prefix::ALL, |part| part);
    }

    #[test]
    fn patches_of_ipv6_leave_no_chunk_behind() {
        let base = 0x2001_0db8 << 96;
        let block = Prefix::new(base, 32).unwrap();
        leaks_nothing::<u128, Plain>(12, 0, block, |part| base | u128::from(part) << 80);
        // Below the longest block to patch: the upper half of the bits end at /48, the others at /64.
        let block = Prefix::new(base, 40).unwrap();
        let part = |part| base | u128::from(part >> 8) << 80 | u128::from(part & 0xff) << 64;
        leaks_nothing::<u128, Plain>(12, 2, block, |at: u16| part(at));
    }
}
