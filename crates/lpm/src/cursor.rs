//! A place in the ordered walk over a trie, without a reference to it.
//!
//! The walk goes through the positions of a node in order, and into each child after the position
//! of its bits ([`stride`](crate::stride)). The cursor has the rest of the present node in two
//! words and a slot, which it counts up: the values of a node are consecutive. Of a node that is
//! left for a child it stores the index and the child's number; the words are computed again when
//! it returns. It does not allocate, and starts at any prefix in one descent.

use fib::{Addr, Prefix};

use crate::stride::{LEVELS, before_child, below, chunk, depth_of, from, position};
use crate::trie::{Nodes, ROOT};

#[derive(Clone)]
pub(crate) struct Cursor {
    /// The nodes above the present one, and the child of each on the path to it.
    stack: [(u32, u8); LEVELS],
    depth: usize,
    node: u32,
    /// The depth of the present node in bits.
    level: u8,
    /// The positions and children of the present node that are still to come.
    data: u128,
    children: u64,
    /// The positions before the next child.
    before: u128,
    /// The slot of the next position, and the index of the next child.
    slot: u32,
    child: u32,
}

impl Cursor {
    /// Starts at the end.
    pub(crate) fn end() -> Self {
        Self {
            stack: [(ROOT, 0); LEVELS],
            depth: 0,
            node: ROOT,
            data: 0,
            children: 0,
            before: 0,
            slot: 0,
            child: 0,
            level: 0,
        }
    }

    /// Starts before the first prefix.
    pub(crate) fn start<A: Addr>(nodes: Nodes<'_, A>) -> Self {
        let mut cursor = Self::end();
        if !nodes.links.is_empty() {
            cursor.enter(nodes, ROOT);
        }
        cursor
    }

    /// Starts before the first prefix that is not less than `prefix`.
    pub(crate) fn seek<A: Addr>(nodes: Nodes<'_, A>, prefix: Prefix<A>) -> Self {
        let mut cursor = Self::start(nodes);
        if nodes.links.is_empty() {
            return cursor;
        }
        let (addr, home) = (prefix.addr(), depth_of(prefix.len()));
        let mut at = ROOT;
        loop {
            let link = &nodes.links[at as usize];
            let start = nodes.nodes[at as usize].addr;
            if link.depth() > home || start.common(addr) < link.depth() {
                // The node lies before or behind the prefix as a whole.
                if start >= addr {
                    cursor.enter(nodes, at);
                } else {
                    cursor.leave(nodes);
                }
                return cursor;
            }
            let bits = chunk(addr, link.depth());
            if link.depth() == home {
                cursor.resume(nodes, at, position(bits, prefix.len(), home), bits);
                return cursor;
            }
            let Some(next) = link.child(bits) else {
                cursor.resume(nodes, at, before_child(bits) + 1, bits + 1);
                return cursor;
            };
            cursor.stack[cursor.depth] = (at, bits as u8);
            cursor.depth += 1;
            at = next;
        }
    }

    /// Returns the next prefix and its slot.
    #[inline]
    pub(crate) fn next<A: Addr>(&mut self, nodes: Nodes<'_, A>) -> Option<(Prefix<A>, u32)> {
        loop {
            if self.data & self.before != 0 {
                let position = self.data.trailing_zeros();
                self.data &= self.data - 1;
                let slot = self.slot;
                self.slot += 1;
                let node = &nodes.nodes[self.node as usize];
                return Some((node.prefix(self.level.into(), position), slot));
            }
            if self.children != 0 {
                let bits = self.children.trailing_zeros();
                self.stack[self.depth] = (self.node, bits as u8);
                self.depth += 1;
                let child = self.child;
                self.enter(nodes, child);
            } else if self.depth > 0 {
                self.leave(nodes);
            } else {
                return None;
            }
        }
    }

    #[inline]
    fn enter<A: Addr>(&mut self, nodes: Nodes<'_, A>, at: u32) {
        let (link, node) = (&nodes.links[at as usize], &nodes.nodes[at as usize]);
        (self.node, self.level) = (at, link.depth() as u8);
        (self.data, self.children) = (node.data(), link.children);
        (self.slot, self.child) = (node.values, link.nodes);
        self.bound();
    }

    /// Returns to the node above, behind the child; at the top there is nothing left.
    #[inline]
    fn leave<A: Addr>(&mut self, nodes: Nodes<'_, A>) {
        if self.depth == 0 {
            (self.data, self.children) = (0, 0);
            return;
        }
        self.depth -= 1;
        let (at, bits) = self.stack[self.depth];
        let bits = u32::from(bits);
        self.resume(nodes, at, before_child(bits) + 1, bits + 1);
    }

    /// Continues a node at a position and a child.
    #[inline]
    fn resume<A: Addr>(&mut self, nodes: Nodes<'_, A>, at: u32, position: u32, child: u32) {
        let (link, node) = (&nodes.links[at as usize], &nodes.nodes[at as usize]);
        (self.node, self.level) = (at, link.depth() as u8);
        let (data, children) = (node.data(), link.children);
        // Position 127 and child 64 are behind the last.
        self.data = data & from(position);
        self.children = children & u64::MAX.checked_shl(child).unwrap_or(0);
        self.slot = node.values + (data & below(position)).count_ones();
        self.child = link.nodes + (children & !self.children).count_ones();
        self.bound();
    }

    #[inline]
    fn bound(&mut self) {
        self.before = match self.children {
            0 => u128::MAX,
            children => below(before_child(children.trailing_zeros()) + 1),
        };
    }
}
