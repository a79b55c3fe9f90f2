//! Iterators over the trie: down to a prefix, and over a subtree.
//!
//! Neither recurses, allocates or needs parent links. [`Covering`] holds its present node.
//! [`Walk`] is a pre-order traversal, which is the order of [`Prefix`], with a stack of the
//! subtrees not yet entered: for each ancestor at most the right one. Since a node is longer
//! than its parent, an array of fixed size holds the stack of the widest family.
//!
//! [`prefetch_paths`] walks down to several prefixes in lockstep, only to bring their nodes into
//! the CPU's cache. The nodes of a full table take some 40 MB, and each is found only through
//! its parent, so that a batch of changes would spend most of its time waiting for memory.

use super::{NIL, Node, ROOT, Rib};
use crate::table::prefetch;
use crate::{Addr, Hop, Prefix};

/// One for each bit of the widest family, and one for the present node.
const DEEP: usize = 128 + 1;

/// The number of paths walked in lockstep: about as many loads as a core has in flight.
const LOCKSTEP: usize = 16;

/// Walks down to all of `prefixes`, prefetching each node one round before it reads it.
pub(super) fn prefetch_paths<A: Addr>(nodes: &[Node<A>], prefixes: &[Prefix<A>]) {
    for group in prefixes.chunks(LOCKSTEP) {
        let mut list = [(ROOT, Prefix::ALL); LOCKSTEP];
        let mut live = group.len();
        for (path, &prefix) in list.iter_mut().zip(group) {
            *path = (ROOT, prefix);
        }
        while live > 0 {
            let mut live_next = 0;
            for i in 0..live {
                let (at, prefix) = list[i];
                let node = &nodes[at as usize];
                if u32::from(node.len) >= prefix.len() || !node.covers(prefix) {
                    continue;
                }
                let next = node.child[node.side(prefix.addr())];
                if next != NIL {
                    prefetch(nodes, next as usize);
                    list[live_next] = (next, prefix);
                    live_next += 1;
                }
            }
            live = live_next;
        }
    }
}

/// The routes of one subtree in order.
#[derive(Clone)]
pub struct Walk<'a, A> {
    nodes: &'a [Node<A>],
    /// `stack[..depth]` are subtrees not yet entered, the next one last.
    stack: [u32; DEEP],
    depth: usize,
}

impl<'a, A: Addr> Walk<'a, A> {
    pub(super) fn new(nodes: &'a [Node<A>], at: Option<u32>) -> Self {
        const { assert!(A::BITS < DEEP as u32, "the stack is too low for this family") };
        let mut stack = [NIL; DEEP];
        stack[0] = at.unwrap_or(NIL);
        Self { nodes, stack, depth: usize::from(at.is_some()) }
    }
}

impl<A: Addr> Iterator for Walk<'_, A> {
    type Item = (Prefix<A>, Hop);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        while self.depth > 0 {
            self.depth -= 1;
            let node = &self.nodes[self.stack[self.depth] as usize];
            for child in [node.child[1], node.child[0]] {
                if child != NIL {
                    self.stack[self.depth] = child;
                    self.depth += 1;
                }
            }
            if node.routed {
                return node.route();
            }
        }
        None
    }
}

/// The routes that cover one prefix, shortest first.
#[derive(Clone)]
pub struct Covering<'a, A> {
    rib: &'a Rib<A>,
    prefix: Prefix<A>,
    at: Option<u32>,
}

impl<'a, A: Addr> Covering<'a, A> {
    pub(super) fn new(rib: &'a Rib<A>, prefix: Prefix<A>) -> Self {
        Self { rib, prefix, at: Some(ROOT) }
    }
}

impl<A: Addr> Iterator for Covering<'_, A> {
    type Item = (Prefix<A>, Hop);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        while let Some(at) = self.at {
            self.at = self.rib.step(at, self.prefix);
            let node = &self.rib.nodes[at as usize];
            if node.routed {
                return node.route();
            }
        }
        None
    }
}
