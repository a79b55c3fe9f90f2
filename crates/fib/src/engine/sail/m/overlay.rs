//! The overlay trie: every prefix that any FIB has, and each FIB's hop for it.
//!
//! ```text
//!   Rib: prefix ─► row      users      hop + 1, a column a FIB
//!   10/8        ─► 0        ┃ 2 ┃      ┃ 3 ┃ 0 ┃ 9 ┃        0: not in this FIB
//!   10.1/16     ─► 1        ┃ 1 ┃      ┃ 0 ┃ 5 ┃ 0 ┃
//! ```
//!
//! The thesis keeps this trie on the control plane (section 3.4.3, figure 3.6):
//! one trie that has the shape of all together, its solid nodes with (FIB, hop)
//! pairs. FIBs of one router have mostly the same prefixes, so that one more costs
//! a column of two bytes a prefix and not a trie.

use alloc::vec::Vec;

use crate::engine::Leaf;
use crate::engine::leaf::full;
use crate::{Addr, Full, Hop, Prefix, Rib};

/// The routes of many FIBs.
#[derive(Debug)]
pub(super) struct Overlay<A: Addr, L> {
    /// The "hop" of a prefix is its row.
    rows: Rib<A>,
    /// By row: how many FIBs have it.
    users: Vec<u32>,
    free: Vec<u32>,
    /// By FIB, by row: the hop, one higher; 0 and beyond the end: none.
    columns: Vec<Option<Vec<L>>>,
}

impl<A: Addr, L: Leaf> Overlay<A, L> {
    pub(super) fn new() -> Self {
        Self { rows: Rib::new(), users: Vec::new(), free: Vec::new(), columns: Vec::new() }
    }

    /// Adds a FIB without routes; returns its number, the lowest that is free.
    pub(super) fn add(&mut self) -> usize {
        let free = self.columns.iter().position(Option::is_none);
        let fib = free.unwrap_or(self.columns.len());
        if fib == self.columns.len() {
            self.columns.push(None);
        }
        self.columns[fib] = Some(Vec::new());
        fib
    }

    /// Takes a FIB out; returns the prefixes that no other has.
    pub(super) fn remove(&mut self, fib: usize) -> Vec<Prefix<A>> {
        let Some(column) = self.columns[fib].take() else { return Vec::new() };
        let mut gone = Vec::new();
        for (prefix, row) in &self.rows {
            if column.get(row.0 as usize).is_some_and(|&label| label != L::default()) {
                self.users[row.0 as usize] -= 1;
                if self.users[row.0 as usize] == 0 {
                    gone.push(prefix);
                }
            }
        }
        for &prefix in &gone {
            let row = self.rows.remove(prefix);
            self.free.extend(row.map(|row| row.0));
        }
        self.rows.mark_clean();
        while self.columns.last().is_some_and(Option::is_none) {
            self.columns.pop();
        }
        gone
    }

    pub(super) fn has(&self, fib: usize) -> bool {
        self.columns.get(fib).is_some_and(Option::is_some)
    }

    /// Adds a route to a FIB, or changes its hop. Returns whether no FIB had the prefix.
    pub(super) fn announce(
        &mut self,
        fib: usize,
        prefix: Prefix<A>,
        hop: Hop,
    ) -> Result<bool, Full> {
        let raised = hop.0.checked_add(1).and_then(|raised| L::pack(Hop(raised)).ok());
        let label = raised.ok_or_else(|| full(hop, u64::from(L::MAX) - 1))?;
        let known = self.rows.get(prefix);
        let row = match known {
            Some(row) => row.0 as usize,
            None => {
                let row = self.free.pop().unwrap_or(self.users.len() as u32);
                if row as usize == self.users.len() {
                    self.users.push(0);
                }
                self.rows.insert(prefix, Hop(row));
                row as usize
            }
        };
        let column = self.column(fib);
        if column.len() <= row {
            column.resize(row + 1, L::default());
        }
        let had = column[row] != L::default();
        column[row] = label;
        self.users[row] += u32::from(!had);
        Ok(known.is_none())
    }

    /// Removes a route from a FIB; returns whether it existed, and whether no FIB has the prefix any
    /// more.
    pub(super) fn withdraw(&mut self, fib: usize, prefix: Prefix<A>) -> (bool, bool) {
        let Some(row) = self.rows.get(prefix).map(|row| row.0 as usize) else {
            return (false, false);
        };
        let Some(label) = self.column(fib).get_mut(row) else { return (false, false) };
        if *label == L::default() {
            return (false, false);
        }
        *label = L::default();
        self.users[row] -= 1;
        let last = self.users[row] == 0;
        if last {
            self.rows.remove(prefix);
            self.free.push(row as u32);
        }
        (true, last)
    }

    /// Discards the record of changed rows, which is unused.
    pub(super) fn mark_clean(&mut self) {
        self.rows.mark_clean();
    }

    fn column(&mut self, fib: usize) -> &mut Vec<L> {
        self.columns[fib].as_mut().unwrap_or_else(|| unreachable!("the FIB is there"))
    }

    /// Returns the hop that a FIB has for a row.
    fn hop(&self, fib: usize, row: Hop) -> Option<Hop> {
        let label = *self.columns[fib].as_ref()?.get(row.0 as usize)?;
        (label != L::default()).then(|| Hop(label.hop().0 - 1))
    }

    /// Walks the routes of a FIB within `block`, in order.
    pub(super) fn routes(
        &self,
        fib: usize,
        block: Prefix<A>,
    ) -> impl Iterator<Item = (Prefix<A>, Hop)> {
        let covered = self.rows.covered(block);
        covered.filter_map(move |(prefix, row)| Some((prefix, self.hop(fib, row)?)))
    }

    /// Returns the hop of a FIB's longest route that is shorter than `block` and
    /// covers it.
    pub(super) fn cover(&self, fib: usize, block: Prefix<A>) -> Hop {
        let shorter = self.rows.covering(block).filter(|(prefix, _)| prefix.len() < block.len());
        let hops = shorter.filter_map(|(_, row)| self.hop(fib, row));
        hops.last().unwrap_or(Hop::NONE)
    }

    /// Returns whether any FIB has a prefix within `block` that is longer than it.
    pub(super) fn branches(&self, block: Prefix<A>) -> bool {
        self.rows.covered(block).take(2).any(|(prefix, _)| prefix.len() > block.len())
    }

    /// Counts the bytes on the heap.
    pub(super) fn footprint(&self) -> usize {
        let columns = self.columns.iter().flatten().map(Vec::capacity).sum::<usize>();
        let counts = self.users.capacity() + self.free.capacity();
        self.rows.footprint() + columns * size_of::<L>() + counts * size_of::<u32>()
    }
}
