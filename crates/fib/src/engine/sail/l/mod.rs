//! `SAIL_L`: levels 16, 24 and 32, for the speed of lookups (Fu 2020, section 3.4.2).
//!
//! All solid nodes are pushed to one of three levels. The first two loads, of an
//! array that stays in the second-level cache and of one line off chip, answer
//! nearly every address.
//!
//! ```text
//!          B16 1 bit   BCN 16 bits         BN24        C24          N32
//!          ┌─┐         ┌─────────┐         ┌─────────┐ ┌────────┐   ┌─────┐
//!  a 0..16 │1│         │ hop     │         │ hop + 1 │ │ unused │   │ hop │
//!         ►│0│         │ chunk n ├─ n·2^8 ►├─────────┤ ├────────┤   │     │
//!          └─┘         └─────────┘ + 16..24│ 0       │ │chunk m ├─ m·2^8 + 24..32
//!          2^16        2^16                └─────────┘ └────────┘   └─────┘
//!                                           2^8 a chunk, both alike   2^8 a chunk
//! ```
//!
//! - `BCN` combines B16, C16 and N16. The first SAIL spent one of its 16 bits on
//!   the flag, and 15 do not number the chunks of a large table. The fix is the
//!   thesis's (end of section 3.5.3): 16 bits for the hop or the number, "and use
//!   additional 2^16 bits as the flag": `B16` here, 8 KB that the first-level cache
//!   holds.
//! - `BN24` combines B24 and N24, as the thesis does on CPUs; 0 is its B24 = 0.
//!   Since hop 0 is an answer here ([`Hop::NONE`]), hops are stored one higher.
//!   `C24`, which few lookups want, is apart.
//! - An item is 16 bits ([`Leaf`]): 65,535 hops and 65,536 chunks of level 32.
//!   Beyond either it is 32.
//!
//! The arrays hold runs, so that a chunk whose addresses all go the same way is
//! none: the thesis's trie keeps it as long as it has a prefix inside.
//!
//! A lookup takes 2 loads that the thesis counts as on chip, B16 + C16 and B24, and
//! at most 2 off chip (table 3.2). An update writes the words that differ.

use alloc::vec::Vec;
use core::marker::PhantomData;

use super::{low, number, pivot, upper};
use crate::arch::lanes::{LANES, MAX_ITEMS, SimdLookup, Wide, Words, batch, tops};
use crate::engine::{Engine, Leaf, Part, Step};
use crate::table::Table;
use crate::{Addr, Hop};

mod builder;

pub use builder::SailLBuilder;

/// How many addresses are looked up at once: their lines are all under way while
/// the first of them is waited for.
const GROUP: usize = 64;

/// A frozen `SAIL_L`.
#[derive(Clone, Debug)]
pub struct SailL<A, L: Copy> {
    /// One bit an index of the first level: 1 where `bcn` holds a hop.
    b16: Table<u64>,
    /// A hop, or the number of a chunk of `bn24` and `c24`.
    bcn: Table<L>,
    /// A hop, one higher; 0 where the answer is in `c24`.
    bn24: Table<L>,
    /// The number of a chunk of `n32`.
    c24: Table<L>,
    n32: Table<L>,
    family: PhantomData<A>,
}

impl<A: Addr, L: Leaf> SailL<A, L> {
    /// Counts the bytes of the arrays that figure 3.5 puts on chip: B16, C16 and
    /// B24, where ours are combined with others. Table 3.2 bounds them for 32 bits.
    pub fn on_chip_bytes(&self) -> usize {
        let level = 1usize << upper::<A>();
        let c16 = level * upper::<A>() as usize;
        (level + c16 + self.bn24.len()).div_ceil(8)
    }

    /// Returns whether `bcn[index]` is a hop.
    #[inline(always)]
    fn answers(&self, index: usize) -> bool {
        self.b16[index / 64] >> (index % 64) & 1 == 1
    }

    /// Returns where in the chunk that `entry` names level 24 goes on.
    #[inline(always)]
    fn middle(entry: L, addr: A) -> usize {
        let width = pivot::<A>() - upper::<A>();
        number(entry) << width | addr.bits(upper::<A>(), width)
    }

    /// Returns where level 32 answers, below `c24[middle]`.
    #[inline(always)]
    fn bottom(&self, middle: usize, addr: A) -> usize {
        number(self.c24[middle]) << low::<A>() | addr.bits(pivot::<A>(), low::<A>())
    }

    /// A batch without lanes.
    #[inline(always)]
    fn groups(&self, addrs: &[A], out: &mut [Hop]) {
        if self.bn24.is_empty() {
            for (&addr, out) in addrs.iter().zip(out) {
                *out = self.bcn[addr.bits(0, upper::<A>())].hop();
            }
            return;
        }
        // The place in level 24 plus one; 0 where the lookup has ended.
        let mut middles = [0u32; GROUP];
        for (addrs, out) in addrs.chunks(GROUP).zip(out.chunks_mut(GROUP)) {
            for ((&addr, out), middle) in addrs.iter().zip(&mut *out).zip(&mut middles) {
                let index = addr.bits(0, upper::<A>());
                let entry = self.bcn[index];
                // Of an entry that is a hop this is no place, and may be any number.
                let next = (Self::middle(entry, addr) as u32).wrapping_add(1);
                *middle = if self.answers(index) { 0 } else { next };
                *out = entry.hop();
            }
            // A lookup that has ended loads the first item, which is always in cache, and
            // discards it: cheaper than a branch that no predictor can learn.
            let mut below = false;
            for (out, &middle) in out.iter_mut().zip(&middles) {
                let hop = solid(self.bn24[middle.saturating_sub(1) as usize]);
                below |= middle != 0 && hop == BELOW;
                *out = if middle == 0 { *out } else { hop };
            }
            if below {
                for ((&addr, out), &middle) in addrs.iter().zip(out).zip(&middles) {
                    if middle != 0 && *out == BELOW {
                        *out = self.n32[self.bottom(middle as usize - 1, addr)].hop();
                    }
                }
            }
        }
    }
}

/// Level by level, each by gathers of the lanes that go on.
impl<A: Addr, L: Leaf> SimdLookup<A> for SailL<A, L> {
    #[inline(always)]
    fn lookup_vectors<const N: usize>(
        &self,
        wide: Wide,
        addrs: &[[A; LANES]; N],
        out: &mut [[Hop; LANES]; N],
    ) {
        let (one, in_word) = (wide.all(1), wide.all(31));
        let middle_bits = pivot::<A>() - upper::<A>();
        let middle_mask = wide.all((1 << middle_bits) - 1);
        let low_mask = wide.all((1 << low::<A>()) - 1);
        let (mut addr, mut entry, mut go_on) = ([one; N], [one; N], [0; N]);
        for i in 0..N {
            addr[i] = wide.load(tops(&addrs[i]));
            let index = wide.shr(addr[i], 32 - upper::<A>());
            entry[i] = wide.gather(L::as_words(&self.bcn), index, u16::MAX);
            let word = wide.gather(Words::Double(&self.b16), wide.shr(index, 5), u16::MAX);
            go_on[i] = !wide.test(word, wide.bit(wide.and(index, in_word)));
        }
        let (mut middle, mut hop) = ([one; N], [one; N]);
        let (mut below, mut any) = ([0; N], 0);
        for i in 0..N {
            let place = wide.and(wide.shr(addr[i], 32 - pivot::<A>()), middle_mask);
            middle[i] = wide.or(wide.shl(entry[i], middle_bits), place);
            let stored = wide.gather(L::as_words(&self.bn24), middle[i], go_on[i]);
            hop[i] = wide.select(go_on[i], wide.sub(stored, one), entry[i]);
            below[i] = go_on[i] & !wide.test(stored, stored);
            any |= below[i];
        }
        if any != 0 {
            for i in 0..N {
                let chunk = wide.gather(L::as_words(&self.c24), middle[i], below[i]);
                let place = wide.and(wide.shr(addr[i], 32 - A::BITS), low_mask);
                let bottom = wide.or(wide.shl(chunk, low::<A>()), place);
                let found = wide.gather(L::as_words(&self.n32), bottom, below[i]);
                hop[i] = wide.select(below[i], found, hop[i]);
            }
        }
        for i in 0..N {
            out[i] = wide.store(hop[i]).map(Hop);
        }
    }

    #[inline(always)]
    fn remainder(&self, addrs: &[A], out: &mut [Hop]) {
        self.groups(addrs, out);
    }
}

/// The hop read from an item 0 of `BN24`, after subtracting the offset of 1.
const BELOW: Hop = Hop(u32::MAX);

/// Reads an item of `BN24`.
#[inline(always)]
fn solid<L: Leaf>(stored: L) -> Hop {
    Hop(stored.hop().0.wrapping_sub(1))
}

impl<A: Addr, L: Leaf> Engine<A> for SailL<A, L> {
    #[inline]
    fn lookup(&self, addr: A) -> Hop {
        let index = addr.bits(0, upper::<A>());
        let entry = self.bcn[index];
        if self.answers(index) {
            return entry.hop();
        }
        let middle = Self::middle(entry, addr);
        match solid(self.bn24[middle]) {
            BELOW => self.n32[self.bottom(middle, addr)].hop(),
            hop => hop,
        }
    }

    fn lookup_batch(&self, addrs: &[A], out: &mut [Hop]) {
        assert_eq!(addrs.len(), out.len(), "a batch has as many answers as addresses");
        if self.n32.len() > MAX_ITEMS || !batch(self, addrs, out) {
            self.groups(addrs, out);
        }
    }

    fn parts(&self) -> Vec<Part> {
        Vec::from([
            Part::of("B16", &self.b16).on_chip(),
            Part::of("BCN", &self.bcn).on_chip(),
            Part::of("BN24", &self.bn24).off_chip(),
            Part::of("C24", &self.c24).off_chip(),
            Part::of("N32", &self.n32).off_chip(),
        ])
    }

    fn trace(&self, addr: A, steps: &mut Vec<Step>) -> Hop {
        let index = addr.bits(0, upper::<A>());
        steps.push(Step::of("B16", index / 64, &self.b16));
        steps.push(Step::of("BCN", index, &self.bcn));
        if self.answers(index) {
            return self.bcn[index].hop();
        }
        let middle = Self::middle(self.bcn[index], addr);
        steps.push(Step::of("BN24", middle, &self.bn24));
        let hop = solid(self.bn24[middle]);
        if hop != BELOW {
            return hop;
        }
        let bottom = self.bottom(middle, addr);
        steps.push(Step::of("C24", middle, &self.c24));
        steps.push(Step::of("N32", bottom, &self.n32));
        self.n32[bottom].hop()
    }
}
