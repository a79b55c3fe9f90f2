//! Linear probing over whole lines of the cache (Knuth, vol. 3, 6.4, "buckets").
//!
//! ```text
//!   home = line hash mod (slots / 8)
//!   │ tag:32 × 8 │ entry:32 × 8 │        one line, 64 bytes
//! ```
//!
//! A flow is in the first line from its home on that had an empty slot at its insertion; a line
//! with an empty slot ends a search. So nearly every search, of present and of absent flows, is one
//! line and one comparison of eight tags at once: at half load one line in 20 is full, at a quarter
//! one in 900. A flood of new flows needs that: each packet's flow is absent, and one load shows
//! it.
//!
//! A removal from a full line moves back entries after it that may move, as `linear.rs` does. One
//! slot stays empty, so that searches end.

use fib::{Table, fetch_ahead};

use super::{EMPTY, Full, Index, Line, checked};

/// The index.
#[derive(Debug)]
pub struct Lines {
    lines: Table<Line>,
    mask: usize,
    len: usize,
}

impl Lines {
    fn home(&self, hash: u32) -> usize {
        hash as usize & self.mask
    }

    /// Finds in line `at` an entry that may move back to the line `hole`.
    fn movable(&self, at: usize, hole: usize) -> Option<usize> {
        let line = &self.lines[at];
        (0..Line::SLOTS).find(|&slot| {
            let from_home = at.wrapping_sub(line.tags[slot] as usize) & self.mask;
            line.entries[slot] != EMPTY && from_home >= at.wrapping_sub(hole) & self.mask
        })
    }

    /// Fills the empty slot of line `hole`, which was full, with an entry from the lines after it,
    /// and then that entry's slot, until no entry can move nearer to its home.
    fn close(&mut self, mut hole: usize, mut slot: usize) {
        let mut at = hole;
        loop {
            at = (at + 1) & self.mask;
            let last = self.lines[at].empty() != 0;
            if let Some(from) = self.movable(at, hole) {
                let line = self.lines[at];
                self.lines[hole].set(slot, line.tags[from], line.entries[from]);
                self.lines[at].set(from, 0, EMPTY);
                (hole, slot) = (at, from);
            }
            if last {
                return;
            }
        }
    }
}

impl Index for Lines {
    const NAME: &'static str = "lines";

    fn with_slots(slots: usize) -> Self {
        let lines = checked(slots) / Line::SLOTS;
        Self { lines: Table::filled(Line::FREE, lines), mask: lines - 1, len: 0 }
    }

    #[inline(always)]
    fn fetch(&self, hash: u32) {
        fetch_ahead(&self.lines[self.home(hash)]);
    }

    #[inline(always)]
    fn find(&self, hash: u32, mut is: impl FnMut(u32) -> bool) -> Option<u32> {
        let mut at = self.home(hash);
        loop {
            let line = &self.lines[at];
            if let Some(entry) = line.find(hash, &mut is) {
                return Some(entry);
            }
            if line.empty() != 0 {
                return None;
            }
            at = (at + 1) & self.mask;
        }
    }

    #[inline]
    fn insert(&mut self, hash: u32, entry: u32) -> Result<(), Full> {
        if self.len + 1 == self.lines.len() * Line::SLOTS {
            return Err(Full);
        }
        let mut at = self.home(hash);
        while !self.lines[at].put(hash, entry) {
            at = (at + 1) & self.mask;
        }
        self.len += 1;
        Ok(())
    }

    fn remove(&mut self, hash: u32, entry: u32) -> bool {
        let mut at = self.home(hash);
        loop {
            let line = &mut self.lines[at];
            let full = line.empty() == 0;
            if let Some(slot) = line.slot_of(entry) {
                line.set(slot, 0, EMPTY);
                self.len -= 1;
                if full {
                    self.close(at, slot);
                }
                return true;
            }
            if !full {
                return false;
            }
            at = (at + 1) & self.mask;
        }
    }

    fn len(&self) -> usize {
        self.len
    }
}
