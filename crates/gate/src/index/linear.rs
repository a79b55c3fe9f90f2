//! Linear probing, one slot after the other (Knuth, vol. 3, 6.4, algorithms L and R).
//!
//! ```text
//!   home = hash mod slots
//!   │ tag:32 entry:32 │ tag:32 entry:32 │ …        eight to a line
//! ```
//!
//! A flow is in the first slot from its home on that was empty at its insertion; an empty slot ends
//! a search. A removal moves back the entries that may be nearer to their home, so that there are
//! no tombstones and searches do not lengthen with time. One slot stays empty, so that searches
//! end.
//!
//! At half load a search for what is absent looks at 2.5 slots, at 0.9 at 50.

use fib::{Table, fetch_ahead};

use super::{EMPTY, Full, Index, Slot, checked};

/// The index.
#[derive(Debug)]
pub struct Linear {
    slots: Table<Slot>,
    mask: usize,
    len: usize,
}

impl Linear {
    /// Returns the slot of `entry`.
    fn place(&self, hash: u32, entry: u32) -> Option<usize> {
        let mut at = hash as usize & self.mask;
        loop {
            match self.slots[at].entry {
                EMPTY => return None,
                have if have == entry => return Some(at),
                _ => at = (at + 1) & self.mask,
            }
        }
    }
}

impl Index for Linear {
    const NAME: &'static str = "linear";

    fn with_slots(slots: usize) -> Self {
        Self { slots: Table::filled(Slot::FREE, checked(slots)), mask: slots - 1, len: 0 }
    }

    #[inline(always)]
    fn fetch(&self, hash: u32) {
        fetch_ahead(&self.slots[hash as usize & self.mask]);
    }

    #[inline(always)]
    fn find(&self, hash: u32, mut is: impl FnMut(u32) -> bool) -> Option<u32> {
        let mut at = hash as usize & self.mask;
        loop {
            let slot = self.slots[at];
            if slot.entry == EMPTY {
                return None;
            }
            if slot.tag == hash && is(slot.entry) {
                return Some(slot.entry);
            }
            at = (at + 1) & self.mask;
        }
    }

    #[inline]
    fn insert(&mut self, hash: u32, entry: u32) -> Result<(), Full> {
        if self.len == self.mask {
            return Err(Full);
        }
        let mut at = hash as usize & self.mask;
        while self.slots[at].entry != EMPTY {
            at = (at + 1) & self.mask;
        }
        self.slots[at] = Slot { tag: hash, entry };
        self.len += 1;
        Ok(())
    }

    fn remove(&mut self, hash: u32, entry: u32) -> bool {
        let Some(mut hole) = self.place(hash, entry) else { return false };
        let mut at = hole;
        loop {
            at = (at + 1) & self.mask;
            let slot = self.slots[at];
            if slot.entry == EMPTY {
                break;
            }
            // An entry whose home is not after the hole may move there.
            let from_home = at.wrapping_sub(slot.tag as usize) & self.mask;
            if from_home >= at.wrapping_sub(hole) & self.mask {
                self.slots[hole] = slot;
                hole = at;
            }
        }
        self.slots[hole] = Slot::FREE;
        self.len -= 1;
        true
    }

    fn len(&self) -> usize {
        self.len
    }
}
