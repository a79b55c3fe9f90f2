//! Lays runs out as a Lulea table, and patches it.
//!
//! The paper rebuilds a table for every change. Here a change is a patch of the
//! blocks of half an address (16 bits of IPv4) that it touches: each is split into
//! slots, a slot with several runs into a chunk of the next level, and so on; a chunk
//! that was there before is written over where it stays of its kind. Then the first
//! level's code words are made again for the base index (64 slots, four words) that
//! the block belongs to. That is possible because a base index does not count the
//! heads before it, but begins a stretch of pointers of its own: nothing after it
//! moves.
//!
//! The first level's slots are kept apart, one pointer each, as the tree of which its
//! code words are the leaves.
//!
//! O(runs + 2^8 a chunk touched) a patch of 16 bits.

use alloc::vec;
use alloc::vec::Vec;

use super::chunk::{Chunks, Height, place};
use super::maptable::{MASK, Masks, heads, rank};
use super::pointer::{Kind, Pointer};
use super::{Lulea, levels};
use crate::arena::Arena;
use crate::engine::{Builder, Leaf};
use crate::runs::{Run, split};
use crate::table::Master;
use crate::{Addr, Full, Prefix};

/// The builder of [`Lulea`] tables.
#[derive(Debug)]
pub struct LuleaBuilder<P: Pointer, L: Leaf> {
    masks: Masks,
    maptable: Master<u64>,
    /// The height of the first level, and the content of each of its slots.
    height: Height,
    slots: Vec<P>,
    words: Master<u16>,
    bases: Master<u32>,
    pointers: Arena<P>,
    second: Chunks<P>,
    third: Chunks<L>,
}

impl<P: Pointer, L: Leaf> LuleaBuilder<P, L> {
    /// Starts an empty table for addresses of `A`.
    pub fn new<A: Addr>() -> Self {
        let [first, second, third] = levels::<A>();
        let height = Height(first);
        let masks = Masks::new();
        let maptable = Master::new(masks.table());
        let mut builder = Self {
            maptable,
            height,
            slots: vec![P::default(); height.slots()],
            words: Master::new(Vec::new()),
            bases: Master::new(Vec::new()),
            pointers: Arena::new(),
            second: Chunks::new(Height(second)),
            third: Chunks::new(Height(third)),
            masks,
        };
        // Each stretch has one head, the hop that says that there is none.
        let words = builder.masks.encode(&[0], height.stretch());
        let stretches = height.word_count() / height.stretch();
        for stretch in 0..stretches {
            builder.words.write(stretch * words.len(), &words);
            builder.bases.write(stretch, &[stretch as u32]);
        }
        builder.pointers.store(&vec![P::default(); stretches]);
        builder
    }

    /// Rebuilds the code words of the stretches that hold slots `first` to `last`.
    fn encode(&mut self, first: usize, last: usize) -> Result<(), Full> {
        let each = self.height.stretch();
        let size = self.height.slots() * each / self.height.word_count();
        for stretch in first / size..=last / size {
            let at = stretch * each;
            let slots = &self.slots[stretch * size..(stretch + 1) * size];
            let heads = heads(slots);
            let fresh: Vec<P> = heads.iter().map(|&head| slots[head]).collect();
            let heads: Vec<usize> = heads.iter().map(|&head| self.height.position(head)).collect();
            let len = rank(&self.maptable, self.words[at + each - 1], MASK - 1) + 1;
            let base = self.pointers.replace(self.bases[stretch] as usize, len, &fresh);
            self.bases.write(stretch, &[place(base)?]);
            self.words.write(at, &self.masks.encode(&heads, each));
        }
        Ok(())
    }

    /// Lays out a slot of the first level, over its present content.
    fn lay_second<A: Addr>(
        &mut self,
        old: P,
        block: Prefix<A>,
        runs: &[Run<A>],
    ) -> Result<P, Full> {
        if let [run] = runs {
            self.free_second(old);
            return P::pack(Kind::Hop, run.hop.0 as usize);
        }
        let (chunk, mut slots) = match old.unpack() {
            (Kind::Hop, _) => (None, vec![P::default(); 1 << levels::<A>()[1]]),
            (kind, index) => (Some((kind, index)), self.second.slots(&self.maptable, kind, index)),
        };
        for (slot, (part, runs)) in slots.iter_mut().zip(split(runs, block, levels::<A>()[1])) {
            *slot = self.lay_third(*slot, part, runs)?;
        }
        let (kind, index) = self.second.store(&self.masks, &self.maptable, chunk, &slots)?;
        P::pack(kind, index)
    }

    /// Lays out a slot of the second level, over its present content.
    fn lay_third<A: Addr>(&mut self, old: P, block: Prefix<A>, runs: &[Run<A>]) -> Result<P, Full> {
        if let [run] = runs {
            self.free_third(old);
            return P::pack(Kind::Hop, run.hop.0 as usize);
        }
        let chunk = match old.unpack() {
            (Kind::Hop, _) => None,
            chunk => Some(chunk),
        };
        let mut slots: Vec<L> = Vec::with_capacity(1 << levels::<A>()[2]);
        for (_, runs) in split(runs, block, levels::<A>()[2]) {
            slots.push(L::pack(runs[0].hop)?);
        }
        let (kind, index) = self.third.store(&self.masks, &self.maptable, chunk, &slots)?;
        P::pack(kind, index)
    }

    /// Frees the target of a slot of the first level.
    fn free_second(&mut self, old: P) {
        let (kind, index) = old.unpack();
        if kind != Kind::Hop {
            for slot in self.second.slots(&self.maptable, kind, index) {
                self.free_third(slot);
            }
            self.second.free(&self.maptable, kind, index);
        }
    }

    /// Frees the target of a slot of the second level.
    fn free_third(&mut self, old: P) {
        let (kind, index) = old.unpack();
        if kind != Kind::Hop {
            self.third.free(&self.maptable, kind, index);
        }
    }

    /// Copies the target of another builder's slot of the first level.
    fn adopt(&mut self, from: &Self, slot: P) -> Result<P, Full> {
        let (kind, index) = slot.unpack();
        if kind == Kind::Hop {
            return Ok(slot);
        }
        let mut slots = from.second.slots(&from.maptable, kind, index);
        for slot in &mut slots {
            let (kind, index) = slot.unpack();
            if kind != Kind::Hop {
                let below = from.third.slots(&from.maptable, kind, index);
                let (kind, index) = self.third.store(&self.masks, &self.maptable, None, &below)?;
                *slot = P::pack(kind, index)?;
            }
        }
        let (kind, index) = self.second.store(&self.masks, &self.maptable, None, &slots)?;
        P::pack(kind, index)
    }
}

impl<A: Addr, P: Pointer, L: Leaf> Builder<A> for LuleaBuilder<P, L> {
    type Engine = Lulea<P, L>;

    fn block_len(&self) -> u32 {
        self.height.0
    }

    fn share_len(&self) -> u32 {
        self.height.0
    }

    fn patch(&mut self, block: Prefix<A>, runs: &[Run<A>]) -> Result<(), Full> {
        let width = self.height.0.checked_sub(block.len());
        let Some(width) = width else { panic!("{block} is longer than the first level") };
        for (part, runs) in split(runs, block, width) {
            let slot = part.addr().bits(0, self.height.0);
            self.slots[slot] = self.lay_second(self.slots[slot], part, runs)?;
        }
        self.encode(block.addr().bits(0, self.height.0), block.last().bits(0, self.height.0))
    }

    fn absorb(&mut self, part: &Self, first: A, last: A) -> Result<(), Full> {
        let (first, last) = (first.bits(0, self.height.0), last.bits(0, self.height.0));
        for slot in first..=last {
            self.free_second(self.slots[slot]);
            self.slots[slot] = self.adopt(part, part.slots[slot])?;
        }
        self.encode(first, last)
    }

    fn freeze(&self) -> Lulea<P, L> {
        Lulea {
            maptable: self.maptable.freeze(),
            words: self.words.freeze(),
            bases: self.bases.freeze(),
            pointers: self.pointers.freeze(),
            second: self.second.freeze(),
            third: self.third.freeze(),
        }
    }

    fn refresh(&self, idle: &mut Lulea<P, L>) {
        self.maptable.refresh(&mut idle.maptable);
        self.words.refresh(&mut idle.words);
        self.bases.refresh(&mut idle.bases);
        self.pointers.refresh(&mut idle.pointers);
        self.second.refresh(&mut idle.second);
        self.third.refresh(&mut idle.third);
    }

    fn written(&self) -> u64 {
        let first = self.words.written() + self.bases.written() + self.pointers.written();
        first + self.second.written() + self.third.written()
    }

    fn holes(&self) -> usize {
        self.pointers.holes() + self.second.holes() + self.third.holes()
    }
}

#[cfg(test)]
mod tests {
    use super::LuleaBuilder;
    use crate::runs::sweep_block;
    use crate::{Addr, Builder, Engine, Hop, Prefix, Rib};
    use alloc::vec::Vec;

    type Narrow = LuleaBuilder<u16, u16>;

    fn used(builder: &Narrow) -> ([usize; 4], [usize; 4], usize) {
        (builder.second.used(), builder.third.used(), builder.pointers.used())
    }

    fn lay<A: Addr>(builder: &mut Narrow, rib: &Rib<A>, block: Prefix<A>) {
        let mut runs = Vec::new();
        sweep_block(rib, block, &mut runs);
        builder.patch(block, &runs).unwrap();
    }

    /// Routes near one another, so that chunks of every kind come and go; after each
    /// round of changes the table is as large as one laid out afresh, and answers as
    /// the routes do.
    fn patches_are_rebuilds<A: Addr>(routes: usize, rounds: usize) {
        let mut rib: Rib<A> = Rib::new();
        let mut patched = Narrow::new::<A>();
        let mut idle = Builder::<A>::freeze(&patched);
        let empty = used(&patched);
        let mut known: Vec<Prefix<A>> = Vec::new();
        let mut kinds = [[0; 4]; 2];
        let mut rng = fastrand::Rng::with_seed(17);
        let mut next = move || rng.u64(..);
        for round in 0..rounds {
            let growing = round % 8 < 7;
            for _ in 0..next() % 24 {
                if (!growing || next() % 4 == 0) && !known.is_empty() {
                    rib.remove(known.swap_remove(next() as usize % known.len()));
                    continue;
                }
                // One of few blocks, all lengths in it, longer ones the more often.
                let top = A::from_bits((next() & next() & 7) as usize, 0, A::BITS / 2);
                let low = u128::from(next()) & ((1 << (A::BITS / 2)) - 1);
                let low = if next() % 2 == 0 { low } else { low & ((1 << (A::BITS / 4)) - 1) };
                let shorter = next() % (1 + next() % u64::from(A::BITS / 2 + 2));
                let len = A::BITS - shorter as u32;
                let prefix = Prefix::truncate(A::from_u128(top.to_u128() | low), len);
                if known.len() < routes && rib.insert(prefix, Hop(next() as u32 % 900)).is_none() {
                    known.push(prefix);
                }
            }
            for block in rib.take_dirty(A::BITS / 2) {
                lay(&mut patched, &rib, block);
            }
            Builder::<A>::refresh(&patched, &mut idle);
            let mut fresh = Narrow::new::<A>();
            lay(&mut fresh, &rib, Prefix::ALL);
            assert_eq!(used(&patched), used(&fresh), "round {round}");
            for (most, of) in kinds.iter_mut().zip([used(&fresh).0, used(&fresh).1]) {
                for (most, of) in most.iter_mut().zip(of) {
                    *most = of.max(*most);
                }
            }
            for (prefix, _) in &rib {
                for addr in [prefix.addr(), prefix.last(), prefix.last().succ().unwrap_or(A::MIN)] {
                    let hop = rib.longest(addr).map_or(Hop::NONE, |(_, hop)| hop);
                    assert_eq!(Engine::lookup(&idle, addr), hop, "round {round}, {addr:x?}");
                }
            }
        }
        for chunk in kinds {
            assert!(chunk.iter().all(|&most| most > 0), "not every kind was met: {kinds:?}");
        }
        for prefix in known {
            rib.remove(prefix);
        }
        for block in rib.take_dirty(A::BITS / 2) {
            lay(&mut patched, &rib, block);
        }
        assert_eq!(used(&patched), empty);
    }

    #[test]
    fn patches_leave_the_table_of_a_fresh_build() {
        patches_are_rebuilds::<u8>(30, 600);
        patches_are_rebuilds::<u16>(60, 400);
        patches_are_rebuilds::<u32>(1_500, 400);
    }

    #[test]
    fn absorbed_share_equals_a_single_build() {
        let mut rib: Rib<u16> = Rib::new();
        for i in 0..400u32 {
            let prefix = Prefix::truncate((i.wrapping_mul(2_654_435_761) >> 8) as u16, 6 + i % 11);
            rib.insert(prefix, Hop(1 + i % 5));
        }
        let (mut left, mut right, mut whole) =
            (Narrow::new::<u16>(), Narrow::new::<u16>(), Narrow::new::<u16>());
        lay(&mut whole, &rib, Prefix::ALL);
        for index in 0..256 {
            let block = Prefix::truncate(u16::from_bits(index, 0, 8), 8);
            lay(if index < 101 { &mut left } else { &mut right }, &rib, block);
        }
        left.absorb(&right, u16::from_bits(101, 0, 8), u16::MAX).unwrap();
        assert_eq!(used(&left), used(&whole));
        let (left, whole) = (Builder::<u16>::freeze(&left), Builder::<u16>::freeze(&whole));
        for addr in 0..=u16::MAX {
            assert_eq!(left.lookup(addr), whole.lookup(addr));
        }
    }
}
