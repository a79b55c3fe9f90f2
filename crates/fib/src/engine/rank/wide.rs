//! Looks up a batch in lanes: the lookups of two vectors that need a chunk, together in one.
//!
//! ```text
//!   two vectors of addresses ─► direct ─► entries ──► hops stay
//!                                            └─ the others, packed into one vector if
//!                                               they fit: window ► word ► rank ► leaf
//! ```
//!
//! Of random addresses four in ten need a chunk, so that most pairs of vectors become
//! one and half of the loads are saved; the only branch selects one of the two ways, and is
//! predicted well. Chunks behind leaves of four bytes are read in another round.
//!
//! The steps are functions and not closures: a closure that is called twice is not inlined, and
//! code that is not inlined is compiled for a CPU without lanes.

use super::entry::{KIND, PLACES, WINDOWS, WORD_BITS};
use super::{Chunked, Form, direct_bits, stride};
use crate::arch::lanes::{LANES, Lanes, SimdLookup, Wide, Words, tops};
use crate::{Addr, Hop};

impl<A: Addr, F: Form> SimdLookup<A> for Chunked<A, F> {
    const COUNTS: bool = F::WORDS;

    #[inline(always)]
    fn lookup_vectors<const N: usize>(
        &self,
        wide: Wide,
        addrs: &[[A; LANES]; N],
        out: &mut [[Hop; LANES]; N],
    ) {
        let (mut addr, mut entry) = ([wide.all(0); N], [wide.all(0); N]);
        for i in 0..N {
            addr[i] = wide.load(tops(&addrs[i]));
            let at = wide.shr(addr[i], 32 - direct_bits::<A>());
            entry[i] = wide.gather(Words::Whole(&self.direct), at, u16::MAX);
        }
        for i in (0..N).step_by(2) {
            if i + 1 < N {
                (entry[i], entry[i + 1]) =
                    pair(self, wide, (entry[i], entry[i + 1]), (addr[i], addr[i + 1]));
            } else {
                entry[i] =
                    single(self, wide, entry[i], level::<A>(wide, addr[i], direct_bits::<A>()));
            }
        }
        let kind = wide.all(KIND);
        let mut deep = 0;
        for entry in entry {
            deep |= wide.test(entry, kind);
        }
        for i in 0..N {
            if deep != 0 {
                entry[i] = single(
                    self,
                    wide,
                    entry[i],
                    level::<A>(wide, addr[i], A::BITS - stride::<A>()),
                );
            }
            out[i] = wide.store(entry[i]).map(Hop);
        }
    }

    #[inline(always)]
    fn remainder(&self, addrs: &[A], out: &mut [Hop]) {
        self.groups(addrs, out);
    }
}

/// Follows the entries of one vector that are no hops.
#[inline(always)]
fn single<A: Addr, F: Form>(table: &Chunked<A, F>, wide: Wide, entry: Lanes, bits: Lanes) -> Lanes {
    let left = wide.test(entry, wide.all(KIND));
    wide.select(left, below(table, wide, entry, bits, left), entry)
}

/// Follows the entries of two vectors that are no hops, below the first table.
#[inline(always)]
fn pair<A: Addr, F: Form>(
    table: &Chunked<A, F>,
    wide: Wide,
    entries: (Lanes, Lanes),
    addrs: (Lanes, Lanes),
) -> (Lanes, Lanes) {
    let kind = wide.all(KIND);
    let left = (wide.test(entries.0, kind), wide.test(entries.1, kind));
    let from = direct_bits::<A>();
    let bits = (level::<A>(wide, addrs.0, from), level::<A>(wide, addrs.1, from));
    let in_first = left.0.count_ones();
    let all = in_first + left.1.count_ones();
    if all > LANES as u32 {
        let one = below(table, wide, entries.0, bits.0, left.0);
        let two = below(table, wide, entries.1, bits.1, left.1);
        return (wide.select(left.0, one, entries.0), wide.select(left.1, two, entries.1));
    }
    // The second's follow the first's.
    let behind = (0xffff_u32 << in_first) as u16;
    let entry = join(wide, left, behind, entries);
    let bits = join(wide, left, behind, bits);
    let leaves = below(table, wide, entry, bits, ((1u32 << all) - 1) as u16);
    let two = wide.unpack(left.1, wide.pack(behind, leaves), entries.1);
    (wide.unpack(left.0, leaves, entries.0), two)
}

/// The bits that chunks behind `from` bits resolve, of addresses that begin at the top.
#[inline(always)]
fn level<A: Addr>(wide: Wide, addr: Lanes, from: u32) -> Lanes {
    wide.shr(wide.shl(addr, from), 32 - stride::<A>())
}

/// One vector of the lanes of both masks, those of the second `behind` the first's.
#[inline(always)]
fn join(wide: Wide, masks: (u16, u16), behind: u16, both: (Lanes, Lanes)) -> Lanes {
    wide.unpack(behind, wide.pack(masks.1, both.1), wide.pack(masks.0, both.0))
}

/// Returns the leaves for `bits` of the entries' chunks, in the lanes of the mask, by the steps of
/// `Chunked::below`.
#[inline(always)]
fn below<A: Addr, F: Form>(
    table: &Chunked<A, F>,
    wide: Wide,
    entry: Lanes,
    bits: Lanes,
    mask: u16,
) -> Lanes {
    let chunks = Words::Shared(&table.chunks);
    let window = wide.look_up(&WINDOWS, wide.shr(entry, 25));
    let low = wide.and(wide.shr(entry, 17), wide.all(7 << 5));
    let at = wide.sub(wide.max(bits, low), low);
    let at = wide.shr_each(at, wide.and(window, wide.all(15)));
    let at = wide.min(at, wide.shr(window, 8));
    let place = wide.and(entry, wide.all(PLACES as u32 - 1));
    let mut first = wide.shl(place, table.grain);
    let mut leaf = at;
    if F::WORDS {
        // Divided by 24: a 24th is 171 of 4,096, near enough below 256.
        let word = wide.shr(wide.multiply(at, wide.all(171)), 12);
        let bit = wide.sub(at, wide.multiply(word, wide.all(WORD_BITS)));
        let word = wide.gather(chunks, wide.add(first, word), mask);
        let ones = wide.count(wide.shr_each(word, wide.sub(wide.all(31), bit)));
        leaf = wide.add(wide.and(word, wide.all(0xff)), ones);
        first = wide.add(first, wide.and(wide.shr(window, 4), wide.all(15)));
    }
    // The kind is one more than the width: the byte is `leaf << kind >> 1`.
    let kind = wide.shr(entry, 30);
    let byte = wide.shr(wide.shl_each(leaf, kind), 1);
    let word = wide.gather(chunks, wide.add(first, wide.shr(byte, 2)), mask);
    let word = wide.shr_each(word, wide.shl(wide.and(byte, wide.all(3)), 3));
    // All but the lowest 8, 16 or 32 bits are shifted out and back.
    let out = wide.sub(wide.all(32), wide.shl_each(wide.all(4), kind));
    wide.shr_each(wide.shl_each(word, out), out)
}
