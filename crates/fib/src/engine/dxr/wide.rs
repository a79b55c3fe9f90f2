//! A batch in lanes: the first stages by gathers, each range search by one comparison.
//!
//! ```text
//!   addresses ─► direct ─► extension ─► entries ─┬─ a hop: the answer
//!                                                └─ a chunk, one lookup after the other:
//!
//!   chunk   │ 0·A │ 3·C │ 4·A │ 9·B │ what follows it …       sixteen ranges, one load
//!   probe   │ 5·* │ 5·* │ 5·* │ 5·* │ 5·* …
//!   at most    1     1     1     0    ignored ─► the third range answers
//! ```
//!
//! Ranges are adjacent and in order, so that one load and one comparison count how many of sixteen
//! begin no later than the address; a longer chunk is halved before, as in `search.rs`, until
//! sixteen are left. With 20 bits resolved before it hardly
//! any chunk is longer. Against a search by gathers, sixteen lookups in step, this waits
//! for one load in place of log2(n) + 1 that depend on each other, and needs no lookups
//! to be gathered from a whole batch: bursts of 32 gained half.
//!
//! Of random addresses one in eight has a chunk, and a loop over as many as there happen
//! to be ends in a branch that is mispredicted when the entries arrive: no code after it begins
//! before. So where few lookups search, their chunks are packed into one vector and as
//! [`most`] rows are searched, the excess ones in vain: 64 at a time a third
//! more lookups, 32 at a time a twentieth. (Bursts of 32 wait for two loads from beyond
//! L2 in turn, and the processor holds no more than a burst and a half. Fewer
//! instructions a row did not help; fetching rows past L2 took half of the rate.)
//!
//! Ranges and entries that are not numbers of 32 bits or fewer (medium ranges, 64-bit entries,
//! families above 32 bits) are not looked up in lanes.

use core::hint::select_unpredictable;

use super::search::{GROUP, last_not_above, lockstep};
use super::{Dxr, Entry};
use crate::arch::lanes::{self, LANES, Lanes, Ones, SimdLookup, Wide, Words, tops};
use crate::{FamilyLayout, Hop, RangeEntry};

/// A table with its entries as numbers.
pub(super) struct InLanes<'a, A: FamilyLayout, E: Entry> {
    table: &'a Dxr<A, E>,
    entries: Words<'a>,
}

/// The entries of `N` vectors of lookups.
struct Found<const N: usize> {
    /// The payloads behind the kind: a hop or a chunk.
    payloads: [Lanes; N],
    /// The addresses, without the resolved bits.
    tails: [Lanes; N],
}

impl<'a, A: FamilyLayout, E: Entry> InLanes<'a, A, E> {
    /// Returns the table, if it is one for lanes.
    #[inline(always)]
    pub(super) fn of(table: &'a Dxr<A, E>) -> Option<Self> {
        let entries = E::as_words(&table.entries)?;
        Some(Self { table, entries })
    }

    /// Looks up a batch; returns false if there are no lanes.
    #[inline(always)]
    pub(super) fn batch(&self, addrs: &[A], out: &mut [Hop]) -> bool {
        lanes::batch(self, addrs, out)
    }

    /// Loads the entries of sixteen addresses.
    #[inline(always)]
    fn entries(&self, wide: Wide, addrs: Lanes) -> Lanes {
        let (k, x) = (self.table.shape.k(), self.table.shape.extension());
        let top = wide.shr(addrs, 32 - k);
        if x == 0 {
            return wide.gather(self.entries, top, u16::MAX);
        }
        let direct = Words::Half(&self.table.direct);
        let block = wide.gather(direct, wide.shr(top, x), u16::MAX);
        let at = wide.or(wide.shl(block, x), wide.and(top, wide.all((1 << x) - 1)));
        wide.gather(self.entries, at, u16::MAX)
    }

    /// Answers all lookups, of which those of the masks, `most(N)` at most, have chunks
    /// in `slots` and the others hops: no branch depends on how many search. Returns false, without
    /// an effect, if more lookups search, or if a chunk is longer than a row.
    #[inline(always)]
    fn search_few<S: RangeEntry<A>, const N: usize>(
        &self,
        wide: Wide,
        slots: &[S],
        masks: [u16; N],
        found: &Found<N>,
        out: &mut [[Hop; LANES]; N],
    ) -> bool {
        let count: u32 = masks.iter().map(|mask| mask.count_ones()).sum();
        let (Some(words), Some(last_row)) = (S::as_words(slots), slots.len().checked_sub(LANES))
        else {
            return false;
        };
        if count > most(N) as u32 {
            return false;
        }
        // Those that search, side by side; behind them searches of nothing in the first row.
        let (mut payloads, mut tails, mut packed) = (wide.all(0), wide.all(0), 0);
        for (&mask, (&payload, &tail)) in masks.iter().zip(found.payloads.iter().zip(&found.tails))
        {
            let next = (0xffff_u32 << packed) as u16;
            payloads = wide.unpack(next, wide.pack(mask, payload), payloads);
            tails = wide.unpack(next, wide.pack(mask, tail), tails);
            packed += mask.count_ones();
        }
        let len_bits = self.table.split.len_bits;
        let lens = wide.and(payloads, wide.all((1 << len_bits) - 1));
        let ats = wide.shr(payloads, len_bits);
        let short = wide.at_most(lens, wide.all(LANES as u32));
        if short & wide.at_most(ats, wide.all(last_row as u32)) != u16::MAX {
            return false;
        }
        let hop_bits = 32 - S::MAX_HOP.leading_zeros();
        let starts = wide.shr(tails, 32 - S::START_BITS - hop_bits);
        // The row ends with the line if the chunk does, as most do.
        let (line, row) = (64 / size_of::<S>() as u32, wide.all(LANES as u32));
        let room = wide.sub(wide.all(line), wide.and(ats, wide.all(line - 1)));
        let over = wide.sub(row, wide.min(row, room));
        let over = wide.select(wide.at_most(lens, room), over, wide.all(0));
        let ats = wide.sub(ats, over);
        let probes = Line(wide.store(wide.or(starts, wide.all(S::MAX_HOP))));
        let keeps = wide.shl_each(wide.sub(wide.bit(lens), wide.all(1)), over);
        let keeps = Line(wide.store(keeps));
        let ats = Line(wide.store(ats));
        let mut hops = wide.all(0);
        for j in 0..most(N) {
            let at = ats.0[j] as usize;
            let (Some(row), Some(chunk)) = (wide.row(words, at), slots.get(at..at + LANES)) else {
                return false;
            };
            let begun = u32::from(wide.at_most(row, wide.all(probes.0[j]))) & keeps.0[j];
            let hop = chunk[(begun | 1).ilog2() as usize % LANES].hop();
            hops = wide.select(1 << j, wide.all(hop.0), hops);
        }
        let mut lanes = wide.load(core::array::from_fn(|lane| lane as u32));
        for ((&mask, &payload), out) in masks.iter().zip(&found.payloads).zip(out) {
            write(wide, wide.unpack(mask, wide.permute(hops, lanes), payload), out);
            lanes = wide.add(lanes, wide.all(mask.count_ones()));
        }
        true
    }

    /// Answers the lookups of the mask, whose chunks are in `slots`, one after the other. In
    /// `out` are the payloads of their entries.
    #[inline(always)]
    fn search_each<S: RangeEntry<A>>(
        &self,
        wide: Wide,
        slots: &[S],
        mask: u64,
        addrs: &[A],
        out: &mut [Hop],
    ) {
        let Some(words) = S::as_words(slots) else { return };
        let len_bits = self.table.split.len_bits;
        let hop_bits = 32 - S::MAX_HOP.leading_zeros();
        for lane in Ones(mask) {
            let lane = lane % out.len();
            let payload = out[lane].0;
            let (mut at, mut len) = ((payload >> len_bits) as usize, payload as usize);
            len &= (1 << len_bits) - 1;
            let tail = addrs[lane].tail(self.table.shape.k());
            while len > LANES {
                let half = len / 2;
                at = select_unpredictable(slots[at + half] <= S::probe(tail), at + half, at);
                len -= half;
            }
            let slot = match wide.row(words, at) {
                Some(row) => {
                    let start = tail.bits(0, S::START_BITS) as u32;
                    let probe = wide.all(start << hop_bits | S::MAX_HOP);
                    let begun = u32::from(wide.at_most(row, probe)) & ((1 << len) - 1);
                    slots[at + begun.count_ones() as usize - 1]
                }
                // Fewer than sixteen ranges before the end of the table.
                None => last_not_above(&slots[at..at + len], S::probe(tail)),
            };
            out[lane] = slot.hop();
        }
    }

    /// Answers the lookups of the mask, whose ranges are medium ones, as without lanes.
    #[cold]
    fn medium(&self, mask: u64, addrs: &[A], out: &mut [Hop]) {
        let table = self.table;
        let mut entries = [E::default(); GROUP];
        let mut list = [0u8; GROUP];
        let mut listed = 0;
        for lane in Ones(mask) {
            let index = if table.shape.extension() == 0 {
                table.index::<false>(addrs[lane])
            } else {
                table.index::<true>(addrs[lane])
            };
            entries[lane] = table.entries[index];
            list[listed] = lane as u8;
            listed += 1;
        }
        let (k, split) = (table.shape.k(), table.split);
        lockstep(&table.medium, &list[..listed], k, split, addrs, &entries, out);
    }
}

impl<A: FamilyLayout, E: Entry> SimdLookup<A> for InLanes<'_, A, E> {
    const LOADED_SINGLY: bool = true;
    const FITS: bool = E::PAYLOAD < u32::BITS;

    #[inline(always)]
    fn lookup_vectors<const N: usize>(
        &self,
        wide: Wide,
        addrs: &[[A; LANES]; N],
        out: &mut [[Hop; LANES]; N],
    ) {
        let none = wide.all(0);
        let mut found = Found { payloads: [none; N], tails: [none; N] };
        let (mut short, mut long, mut medium) = ([0; N], 0, 0);
        for i in 0..N {
            let top = wide.load(tops(&addrs[i]));
            let entry = self.entries(wide, top);
            let low = wide.test(entry, wide.all(1 << 30));
            let high = wide.test(entry, wide.all(1 << 31));
            short[i] = low & !high;
            long |= u64::from(low & high) << (i * LANES);
            medium |= u64::from(high & !low) << (i * LANES);
            found.payloads[i] = wide.and(entry, wide.all((1 << 30) - 1));
            found.tails[i] = wide.shl(top, self.table.shape.k());
        }
        let table = self.table;
        // A joint search packs its lookups first; where packing is not one instruction, single
        // searches take fewer instructions.
        if Wide::AT_ONCE
            && long | medium == 0
            && self.search_few(wide, &table.short, short, &found, out)
        {
            return;
        }
        for (&payload, out) in found.payloads.iter().zip(&mut *out) {
            write(wide, payload, out);
        }
        let short = short.iter().rev().fold(0, |all, &mask| all << LANES | u64::from(mask));
        let (addrs, out) = (addrs.as_flattened(), out.as_flattened_mut());
        self.search_each(wide, &table.short, short, addrs, out);
        self.search_each(wide, &table.long, long, addrs, out);
        if medium != 0 {
            self.medium(medium, addrs, out);
        }
    }

    #[inline(always)]
    fn remainder(&self, addrs: &[A], out: &mut [Hop]) {
        self.table.groups(addrs, out);
    }
}

/// Sixteen numbers on a line of their own: a load of one of them from two lines would
/// wait for the store of all to be through.
#[repr(C, align(64))]
struct Line([u32; LANES]);

/// Returns how many of the lookups of `n` vectors may search for that to be without a
/// branch. Of random addresses in a full table one in eight searches: with fewer than
/// these every tenth burst is an exception, with more all take longer.
const fn most(n: usize) -> usize {
    if n < 4 { 4 * n } else { 14 }
}

/// Writes a vector of hops.
#[inline(always)]
fn write(wide: Wide, hops: Lanes, out: &mut [Hop; LANES]) {
    for (out, hop) in out.iter_mut().zip(wide.store(hops)) {
        *out = Hop(hop);
    }
}
