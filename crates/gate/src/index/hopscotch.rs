//! Hopscotch hashing (Herlihy, Shavit, Tzafrir, "Hopscotch hashing", DISC 2008).
//!
//! ```text
//!   │ tag:32 │ entry:32 │ hops:32 │ …      hops: which of the 32 slots from here on
//!                                          hold flows whose home is here
//! ```
//!
//! A flow is within 32 slots of its home, and its home's bitmap states in which: a search reads the
//! bitmap and those slots only. Insertion takes the next empty slot; while that is too far, it is
//! exchanged for a nearer one by moving an entry that may be there. Where no entry can move, or no
//! slot is empty within 1024, the index is full for this flow.

use fib::{Table, fetch_ahead};

use super::{EMPTY, Full, Index, checked};

/// How far from its home a flow may stand, in slots.
const NEAR: usize = 32;
/// How far an empty slot is looked for.
const REACH: usize = 1024;

#[derive(Clone, Copy)]
struct Slot {
    tag: u32,
    entry: u32,
    hops: u32,
}

/// The index.
#[derive(Debug)]
pub struct Hopscotch {
    slots: Table<Slot>,
    mask: usize,
    len: usize,
}

impl Hopscotch {
    /// Moves an entry from at most 31 slots before the `empty` one there, and returns
    /// the slot that is empty instead.
    fn nearer(&mut self, empty: usize) -> Option<usize> {
        for back in (1..NEAR).rev() {
            let home = empty.wrapping_sub(back) & self.mask;
            let hop = self.slots[home].hops.trailing_zeros() as usize;
            if hop < back {
                let from = (home + hop) & self.mask;
                let Slot { tag, entry, .. } = self.slots[from];
                self.put(home, back, tag, entry);
                self.slots[home].hops &= !(1 << hop);
                self.slots[from].entry = EMPTY;
                return Some(from);
            }
        }
        None
    }

    fn put(&mut self, home: usize, hop: usize, tag: u32, entry: u32) {
        let at = (home + hop) & self.mask;
        self.slots[at].tag = tag;
        self.slots[at].entry = entry;
        self.slots[home].hops |= 1 << hop;
    }
}

impl Index for Hopscotch {
    const NAME: &'static str = "hopscotch";

    fn with_slots(slots: usize) -> Self {
        let free = Slot { tag: 0, entry: EMPTY, hops: 0 };
        Self { slots: Table::filled(free, checked(slots)), mask: slots - 1, len: 0 }
    }

    #[inline(always)]
    fn fetch(&self, hash: u32) {
        fetch_ahead(&self.slots[hash as usize & self.mask]);
    }

    #[inline(always)]
    fn find(&self, hash: u32, mut is: impl FnMut(u32) -> bool) -> Option<u32> {
        let home = hash as usize & self.mask;
        let mut hops = self.slots[home].hops;
        while hops != 0 {
            let slot = self.slots[(home + hops.trailing_zeros() as usize) & self.mask];
            if slot.tag == hash && is(slot.entry) {
                return Some(slot.entry);
            }
            hops &= hops - 1;
        }
        None
    }

    #[inline]
    fn insert(&mut self, hash: u32, entry: u32) -> Result<(), Full> {
        let home = hash as usize & self.mask;
        let reach = REACH.min(self.slots.len());
        let empty = |away: &usize| self.slots[(home + away) & self.mask].entry == EMPTY;
        let Some(mut hop) = (0..reach).find(empty) else { return Err(Full) };
        while hop >= NEAR {
            let Some(nearer) = self.nearer((home + hop) & self.mask) else { return Err(Full) };
            hop = nearer.wrapping_sub(home) & self.mask;
        }
        self.put(home, hop, hash, entry);
        self.len += 1;
        Ok(())
    }

    fn remove(&mut self, hash: u32, entry: u32) -> bool {
        let home = hash as usize & self.mask;
        for hop in 0..NEAR {
            let at = (home + hop) & self.mask;
            if self.slots[home].hops >> hop & 1 == 1 && self.slots[at].entry == entry {
                self.slots[home].hops &= !(1 << hop);
                self.slots[at].entry = EMPTY;
                self.len -= 1;
                return true;
            }
        }
        false
    }

    fn len(&self) -> usize {
        self.len
    }
}
