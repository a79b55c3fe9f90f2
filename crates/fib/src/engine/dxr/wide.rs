//! A batch in lanes: the first stages by gathers, and sixteen range searches in step.
//!
//! ```text
//!   sixteen addresses ─► direct ─► extension ─► entries ─┬─ a hop: the answer
//!                                                        ├─ short: packed ─┐ searched when
//!                                                        ├─ long:  packed ─┤ all of a group
//!                                                        └─ medium: listed ┘ are known
//! ```
//!
//! Lanes that have a chunk are packed together, kind by kind, with what the search
//! needs of them, so that its vectors are full ones. A search is that of `search.rs`
//! in other clothes: halves, selected by comparison, for as many steps as the longest
//! chunk takes. What has no numbers of 32 bits or fewer (medium ranges, 64-bit
//! entries, families above 32 bits) is not for lanes.

use super::search::{GROUP, lockstep};
use super::{Dxr, Entry};
use crate::arch::lanes::{LANES, Lanes, Wide, WideKernel, Words, tops};
use crate::{Family, Hop, Slot};

/// How many lookups make lanes worth while. Each stage waits for the loads of the last
/// one; in shorter batches the searches' vectors are mostly empty, and the plain batch,
/// which prefetches the middles of all chunks, was no slower.
pub(super) const ENOUGH: usize = 64;

/// A batch of lookups, as a kernel.
pub(super) struct Batch<'a, A: Family, E: Entry> {
    pub(super) table: &'a Dxr<A, E>,
    pub(super) entries: Words<'a>,
    pub(super) addrs: &'a [A],
    pub(super) out: &'a mut [Hop],
}

/// Lanes that wait for their search, packed; a vector more than a group has, because
/// whole vectors are written.
struct Waiting {
    count: usize,
    /// Where in the group the answer goes.
    who: [u32; GROUP + LANES],
    /// What the entry says behind its kind.
    payload: [u32; GROUP + LANES],
    /// What is left of the address, from the top.
    tail: [u32; GROUP + LANES],
}

impl Waiting {
    #[inline(always)]
    fn new() -> Self {
        let none = [0; GROUP + LANES];
        Self { count: 0, who: none, payload: none, tail: none }
    }

    /// Adds the lanes of the mask.
    #[inline(always)]
    fn push(&mut self, wide: Wide, mask: u16, who: Lanes, payload: Lanes, tail: Lanes) {
        // Never more than the group has; said so that no check is left.
        let at = self.count.min(GROUP);
        let put = |array: &mut [u32; GROUP + LANES], lanes: Lanes| {
            array[at..at + LANES].copy_from_slice(&wide.store(wide.pack(mask, lanes)));
        };
        put(&mut self.who, who);
        put(&mut self.payload, payload);
        put(&mut self.tail, tail);
        self.count += mask.count_ones() as usize;
    }
}

impl<A: Family, E: Entry> WideKernel for Batch<'_, A, E> {
    type Out = ();

    #[inline(always)]
    fn run(self, wide: Wide) {
        let whole = self.addrs.len() / LANES * LANES;
        let (addrs, few) = self.addrs.split_at(whole);
        let (out, few_out) = self.out.split_at_mut(whole);
        let table = self.table;
        for (addrs, out) in addrs.chunks(GROUP).zip(out.chunks_mut(GROUP)) {
            if table.shape.extension() == 0 {
                group::<A, E, false>(table, self.entries, wide, addrs, out);
            } else {
                group::<A, E, true>(table, self.entries, wide, addrs, out);
            }
        }
        table.groups(few, few_out);
    }
}

#[inline(always)]
fn group<A: Family, E: Entry, const EXTENDED: bool>(
    table: &Dxr<A, E>,
    words: Words<'_>,
    wide: Wide,
    addrs: &[A],
    out: &mut [Hop],
) {
    let (k, x) = (table.shape.k(), table.shape.extension());
    let (mut short, mut long) = (Waiting::new(), Waiting::new());
    let mut medium = [0u8; GROUP];
    let mut mediums = 0;
    let mut entries = [E::default(); GROUP];
    let payload_bits = wide.all((1 << 30) - 1);
    let in_block = wide.all((1 << x) - 1);
    let mut who = wide.load([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]);
    for (i, (addrs, out)) in addrs.chunks_exact(LANES).zip(out.chunks_exact_mut(LANES)).enumerate()
    {
        let addr = wide.load(tops(addrs));
        let top = wide.shr(addr, 32 - k);
        let at = if EXTENDED {
            let block = wide.gather(Words::Half(&table.direct), wide.shr(top, x), u16::MAX);
            wide.or(wide.shl(block, x), wide.and(top, in_block))
        } else {
            top
        };
        let entry = wide.gather(words, at, u16::MAX);
        let payload = wide.and(entry, payload_bits);
        for (out, hop) in out.iter_mut().zip(wide.store(payload)) {
            *out = Hop(hop);
        }
        let low = wide.test(entry, wide.all(1 << 30));
        let high = wide.test(entry, wide.all(1 << 31));
        let tail = wide.shl(addr, k);
        short.push(wide, low & !high, who, payload, tail);
        if high != 0 {
            long.push(wide, high & low, who, payload, tail);
            let mut mask = high & !low;
            while mask != 0 {
                let lane = i * LANES + mask.trailing_zeros() as usize;
                medium[mediums % GROUP] = lane as u8;
                entries[lane % GROUP] = table.entries[table.index::<EXTENDED>(addrs[lane % LANES])];
                mediums += 1;
                mask &= mask - 1;
            }
        }
        who = wide.add(who, wide.all(LANES as u32));
    }
    search::<A, E, A::Short>(table, A::Short::words(&table.short), wide, &short, out);
    search::<A, E, A::Long>(table, A::Long::words(&table.long), wide, &long, out);
    let medium = &medium[..mediums.min(GROUP)];
    lockstep(&table.medium, medium, k, table.split, addrs, &entries, out);
}

/// Searches the chunks of all that wait, sixteen in step.
#[inline(always)]
fn search<A: Family, E: Entry, S: Slot<A>>(
    table: &Dxr<A, E>,
    slots: Option<Words<'_>>,
    wide: Wide,
    waiting: &Waiting,
    out: &mut [Hop],
) {
    let Some(slots) = slots else { return };
    let len_bits = table.split.len_bits;
    let hop_bits = 32 - S::MAX_HOP.leading_zeros();
    let hops = wide.all(S::MAX_HOP);
    let two = wide.all(2);
    let mut at = 0;
    while at < waiting.count.min(GROUP) {
        let take = |array: &[u32; GROUP + LANES]| {
            let mut taken = [0; LANES];
            taken.copy_from_slice(&array[at % GROUP..at % GROUP + LANES]);
            wide.load(taken)
        };
        let payload = take(&waiting.payload);
        let mut base = wide.shr(payload, len_bits);
        let mut len = wide.and(payload, wide.all((1 << len_bits) - 1));
        let start = wide.shr(take(&waiting.tail), 32 - S::START_BITS);
        let probe = wide.or(wide.shl(start, hop_bits), hops);
        loop {
            let live = wide.at_most(two, len);
            if live == 0 {
                break;
            }
            let half = wide.shr(len, 1);
            let next = wide.add(base, half);
            let slot = wide.gather(slots, next, live);
            base = wide.select(live & wide.at_most(slot, probe), next, base);
            len = wide.sub(len, half);
        }
        let hop = wide.store(wide.and(wide.gather(slots, base, u16::MAX), hops));
        let who = wide.store(take(&waiting.who));
        for lane in 0..LANES.min(waiting.count - at) {
            out[who[lane] as usize % GROUP] = Hop(hop[lane]);
        }
        at += LANES;
    }
}
