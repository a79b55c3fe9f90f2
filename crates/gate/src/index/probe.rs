//! Open addressing by any sequence of slots.
//!
//! ```text
//!   │ tag:32 │ passed:4 entry:28 │ …          8 bytes a slot
//! ```
//!
//! A flow is in the first slot of its sequence that was empty at its insertion. Each slot counts
//! the flows that passed it because it was taken: a search ends where no flow has passed, and a
//! removal counts back along its own sequence. So there are no tombstones, which would fill a table
//! under attack in minutes, and no entry moves, which only the linear sequence allows. A count that
//! has reached 15 stays: searches may continue there longer than necessary, and still end right. At
//! a load of 0.9 under a lasting flood nearly all counts reach that, and an insertion takes
//! microseconds; up to 0.8 it does not matter.

use core::marker::PhantomData;

use fib::{Table, fetch_ahead};

use super::{Full, Index, checked};

/// The order in which slots are tried.
pub trait Sequence {
    /// The name of the scheme.
    const NAME: &'static str;

    /// Returns the offset from the home of the try of this number, from 0, and visits all
    /// of a power of two of slots in as many tries.
    fn offset(hash: u32, number: usize) -> usize;
}

const ENTRY: u32 = (1 << 28) - 1;
const NONE: u32 = ENTRY;
const ONE: u32 = 1 << 28;
const MAX_PASSED: u32 = 15;

#[derive(Clone, Copy)]
struct Slot {
    tag: u32,
    word: u32,
}

impl Slot {
    fn entry(self) -> u32 {
        self.word & ENTRY
    }

    fn passed(self) -> u32 {
        self.word >> 28
    }
}

/// The index by sequence `S`.
#[derive(Debug)]
pub struct Probed<S> {
    slots: Table<Slot>,
    mask: usize,
    len: usize,
    sequence: PhantomData<S>,
}

impl<S: Sequence> Probed<S> {
    #[inline(always)]
    fn at(&self, hash: u32, number: usize) -> usize {
        (hash as usize).wrapping_add(S::offset(hash, number)) & self.mask
    }
}

impl<S: Sequence> Index for Probed<S> {
    const NAME: &'static str = S::NAME;

    fn with_slots(slots: usize) -> Self {
        let slots = Table::filled(Slot { tag: 0, word: NONE }, checked(slots));
        Self { mask: slots.len() - 1, slots, len: 0, sequence: PhantomData }
    }

    #[inline(always)]
    fn fetch(&self, hash: u32) {
        fetch_ahead(&self.slots[self.at(hash, 0)]);
    }

    #[inline(always)]
    fn find(&self, hash: u32, mut is: impl FnMut(u32) -> bool) -> Option<u32> {
        for number in 0..=self.mask {
            let slot = self.slots[self.at(hash, number)];
            if slot.tag == hash && slot.entry() != NONE && is(slot.entry()) {
                return Some(slot.entry());
            }
            if slot.passed() == 0 {
                return None;
            }
        }
        None
    }

    #[inline]
    fn insert(&mut self, hash: u32, entry: u32) -> Result<(), Full> {
        if self.len > self.mask {
            return Err(Full);
        }
        let mut number = 0;
        loop {
            let at = self.at(hash, number);
            let slot = &mut self.slots[at];
            if slot.entry() == NONE {
                *slot = Slot { tag: hash, word: slot.word & !ENTRY | entry };
                self.len += 1;
                return Ok(());
            }
            if slot.passed() < MAX_PASSED {
                slot.word += ONE;
            }
            number += 1;
        }
    }

    fn remove(&mut self, hash: u32, entry: u32) -> bool {
        let mut place = 0;
        loop {
            let slot = self.slots[self.at(hash, place)];
            if slot.tag == hash && slot.entry() == entry {
                break;
            }
            if slot.passed() == 0 || place == self.mask {
                return false;
            }
            place += 1;
        }
        for number in 0..place {
            let at = self.at(hash, number);
            if (1..MAX_PASSED).contains(&self.slots[at].passed()) {
                self.slots[at].word -= ONE;
            }
        }
        let at = self.at(hash, place);
        self.slots[at].word |= NONE;
        self.len -= 1;
        true
    }

    fn len(&self) -> usize {
        self.len
    }
}
