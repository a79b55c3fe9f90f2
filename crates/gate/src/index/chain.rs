//! Separate chaining: a list for each home.
//!
//! ```text
//!   heads  │ entry:32 │ …                by home
//!   nodes  │ tag:32 next:32 │ …          by entry: the lists' links
//! ```
//!
//! The thesis prefers it for its insertion, which is at the head of the list and never fails while
//! an entry is free. A search waits for the head, and then for each node on the list: at load 1
//! there are 1.5 of them when the flow is there, 1 when it is not.

use fib::{Table, fetch_ahead};

use super::{EMPTY, Full, Index, checked};

#[derive(Clone, Copy)]
struct Node {
    tag: u32,
    next: u32,
}

/// The index.
#[derive(Debug)]
pub struct Chain {
    heads: Table<u32>,
    nodes: Table<Node>,
    mask: usize,
    len: usize,
}

impl Index for Chain {
    const NAME: &'static str = "chain";

    fn with_slots(slots: usize) -> Self {
        Self {
            heads: Table::filled(EMPTY, checked(slots)),
            nodes: Table::filled(Node { tag: 0, next: EMPTY }, slots),
            mask: slots - 1,
            len: 0,
        }
    }

    #[inline(always)]
    fn fetch(&self, hash: u32) {
        fetch_ahead(&self.heads[hash as usize & self.mask]);
    }

    #[inline(always)]
    fn find(&self, hash: u32, mut is: impl FnMut(u32) -> bool) -> Option<u32> {
        let mut entry = self.heads[hash as usize & self.mask];
        while entry != EMPTY {
            let node = self.nodes[entry as usize];
            if node.tag == hash && is(entry) {
                return Some(entry);
            }
            entry = node.next;
        }
        None
    }

    #[inline]
    fn insert(&mut self, hash: u32, entry: u32) -> Result<(), Full> {
        let Some(node) = self.nodes.get_mut(entry as usize) else { return Err(Full) };
        let head = &mut self.heads[hash as usize & self.mask];
        *node = Node { tag: hash, next: *head };
        *head = entry;
        self.len += 1;
        Ok(())
    }

    fn remove(&mut self, hash: u32, entry: u32) -> bool {
        let home = hash as usize & self.mask;
        let mut before = EMPTY;
        let mut at = self.heads[home];
        while at != EMPTY {
            let next = self.nodes[at as usize].next;
            if at == entry {
                match before {
                    EMPTY => self.heads[home] = next,
                    before => self.nodes[before as usize].next = next,
                }
                self.len -= 1;
                return true;
            }
            (before, at) = (at, next);
        }
        false
    }

    fn len(&self) -> usize {
        self.len
    }
}
