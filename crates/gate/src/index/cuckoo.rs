//! Cuckoo hashing (Pagh, Rodler, "Cuckoo hashing", ESA 2001), in buckets of a line
//! (Dietzfelbinger, Weidling, "Balanced allocation and dictionaries with tightly packed
//! constant size bins", Theor. Comput. Sci. 380, 2007).
//!
//! ```text
//!   first bucket  = hash mod (slots / 8)       │ tag:32 × 8 │ entry:32 × 8 │
//!   second bucket = permuted hash mod the same
//! ```
//!
//! A flow is in one of two lines: a search reads no more, and one for an absent flow reads both.
//! Insertion uses the first line with room. When both are full, the nearest free slot is searched
//! breadth first through the other lines of their entries, up to 256 lines; then every entry on the
//! path moves by one, the last first, so that nothing is lost and a failure changes nothing.

use fib::{Table, fetch_ahead};

use super::{EMPTY, Full, Index, Line, checked};
use crate::flow::permute;

/// How many lines are searched for room.
const NODES: usize = 256;

/// The index.
#[derive(Debug)]
pub struct Cuckoo {
    lines: Table<Line>,
    mask: usize,
    len: usize,
}

/// A line in the search, and which slot of which line before leads to it.
#[derive(Clone, Copy, Default)]
struct Node {
    line: u32,
    before: u16,
    slot: u8,
}

impl Cuckoo {
    #[inline(always)]
    fn pair(&self, hash: u32) -> [usize; 2] {
        [hash as usize & self.mask, permute(hash ^ 0x9e37_79b9) as usize & self.mask]
    }

    /// Returns the line other than `line` in which the flow of this hash may be.
    fn alternate(&self, hash: u32, line: usize) -> usize {
        let [first, second] = self.pair(hash);
        first ^ second ^ line
    }

    /// Makes room in one of two full lines and returns which.
    fn make_room(&mut self, lines: [usize; 2]) -> Option<usize> {
        let mut nodes = [Node::default(); NODES];
        let mut len = 0;
        for line in lines {
            nodes[len] = Node { line: line as u32, before: u16::MAX, slot: 0 };
            len += 1;
        }
        for before in 0..NODES {
            if before == len {
                return None;
            }
            for slot in 0..Line::SLOTS {
                let at = nodes[before].line as usize;
                let line = self.alternate(self.lines[at].tags[slot], at);
                if self.lines[line].empty() != 0 {
                    return Some(self.shift(&nodes, before, slot, line));
                }
                if len < NODES {
                    nodes[len] =
                        Node { line: line as u32, before: before as u16, slot: slot as u8 };
                    len += 1;
                }
            }
        }
        None
    }

    /// Moves the entry in `slot` of a node's line to the line `to`, which has room, then the entry
    /// before it on the path, back to a line where the search began. The path is a shortest one, so
    /// no line is on it twice.
    fn shift(&mut self, nodes: &[Node], node: usize, slot: usize, to: usize) -> usize {
        let (mut node, mut slot, mut to) = (nodes[node], slot, to);
        loop {
            let at = node.line as usize;
            let (tag, entry) = (self.lines[at].tags[slot], self.lines[at].entries[slot]);
            let put = self.lines[to].put(tag, entry);
            debug_assert!(put, "the line ahead has just been given room");
            self.lines[at].set(slot, 0, EMPTY);
            if node.before == u16::MAX {
                return at;
            }
            (to, slot) = (at, usize::from(node.slot));
            node = nodes[usize::from(node.before)];
        }
    }
}

impl Index for Cuckoo {
    const NAME: &'static str = "cuckoo";

    fn with_slots(slots: usize) -> Self {
        let lines = checked(slots) / Line::SLOTS;
        Self { lines: Table::filled(Line::FREE, lines), mask: lines - 1, len: 0 }
    }

    #[inline(always)]
    fn fetch(&self, hash: u32) {
        let [first, second] = self.pair(hash);
        fetch_ahead(&self.lines[first]);
        fetch_ahead(&self.lines[second]);
    }

    #[inline(always)]
    fn find(&self, hash: u32, mut is: impl FnMut(u32) -> bool) -> Option<u32> {
        let [first, second] = self.pair(hash);
        let found = self.lines[first].find(hash, &mut is);
        found.or_else(|| self.lines[second].find(hash, &mut is))
    }

    #[inline]
    fn insert(&mut self, hash: u32, entry: u32) -> Result<(), Full> {
        let lines = self.pair(hash);
        let room = lines.into_iter().find(|&line| self.lines[line].empty() != 0);
        let Some(line) = room.or_else(|| self.make_room(lines)) else { return Err(Full) };
        let put = self.lines[line].put(hash, entry);
        debug_assert!(put, "the line was found to have room");
        self.len += 1;
        Ok(())
    }

    fn remove(&mut self, hash: u32, entry: u32) -> bool {
        for line in self.pair(hash) {
            if let Some(slot) = self.lines[line].slot_of(entry) {
                self.lines[line].set(slot, 0, EMPTY);
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
