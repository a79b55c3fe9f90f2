//! Patricia: a path-compressed radix trie of the BSD kind.
//!
//! Keith Sklower, "A Tree-Based Packet Routing Table for Berkeley Unix", USENIX
//! Winter 1991, after Donald Morrison, "PATRICIA", J. ACM 15(4), 1968: the starting point of
//! Zec's thesis (section 3), and BSDIPLookup and BSDIP6Lookup of its web page.
//!
//! An inner node says which bit decides; the bits between it and its parent are
//! skipped unseen. A lookup runs down to a leaf on the deciding bits alone,
//! compares there once, and where that fails goes back up through the masks of
//! the inner nodes:
//!
//! ```text
//!   10/8 A   10.1/16 B   10.1.128/17 C   10.2/16 D
//!
//!   node 0  bit 0   masks –               nodes    ┌────────┬────────┬────┬───────┬─────┐
//!       │0                                         │child 0 │child 1 │ up │ masks │ bit │
//!   node 1  bit 14  masks ─► 10/8 A                └────────┴────────┴────┴───────┴─────┘
//!     0╱ ╲1                                          32 bits each, bit 8; a child's top
//!  leaf   leaf                                       bit says that it is a leaf
//!  10.2/16 D (bit 14 is 1)                entries  ┌─────┬────────┬──────────┬────────┐
//!  10.1.128/17 C ─► 10.1/16 B (bit 14 is 0)        │ key │ next   │ hop      │ length │
//!                                                  └─────┴────────┴──────────┴────────┘
//!                                                    A::BITS, 32, 16 or 32, 8
//! ```
//!
//! As in the BSD tree: the bit index, the one comparison at the end, parent links, chains of routes
//! with equal key and different masks (`next`, longest first), and a list of masks at the inner
//! node under which they hold. Unlike it, a mask on a list is the entry of its route itself, and
//! not a mask to search again with. All entries on the path up are prefixes of the leaf's key,
//! so that the number of leading bits in which the address agrees with that key
//! decides for each of them, and going up compares lengths only. And a route that
//! covers others has no leaf of its own, only its place on a list. Masks are
//! contiguous.
//!
//! Invariants: a route of length l is on the chain of the one node (or leaf) with
//! bit(parent) < l ≤ bit(node), a leaf's bit being the length of its longest route;
//! every node but the root has two children; the shape depends on the routes alone.
//!
//! With n routes there are at most n nodes and n entries. A lookup is O(`A::BITS`)
//! loads, an update writes a handful of words (`builder.rs`). Limits: 2^31 - 1 nodes
//! or entries.
//!
//! Batches go in groups of 32: on the tables of 2026, `fingerpost-bench overlap` (a rough run on
//! a busy machine) saw groups of 32 some four times as fast as one by one, and ahead
//! of as many coroutines, on prefix-drawn keys of either family and on random ones of
//! IPv4. Random IPv6 addresses end near the root, where there is little to wait for:
//! one by one is as good.

use alloc::vec::Vec;
use core::ops::ControlFlow;

pub use builder::PatriciaBuilder;

use super::overlap::{Overlapped, Walk, group};
use super::{Engine, Leaf, Part, Step};
use crate::table::Table;
use crate::{Addr, Hop};

mod builder;

/// The node at the top, always there, which decides on bit 0. Its children alone
/// may be none.
const ROOT: u32 = 0;
/// No entry, or no child.
const NIL: u32 = u32::MAX;
/// In a child's number: it is an entry. [`NIL`] has this bit too.
const LEAF: u32 = 1 << 31;

/// An inner node.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Node {
    child: [u32; 2],
    /// The parent; the root is its own.
    up: u32,
    /// The longest of the routes that cover all below, [`NIL`] if there is none.
    masks: u32,
    /// Which bit decides.
    bit: u8,
}

impl Node {
    #[inline(always)]
    fn towards<A: Addr>(&self, addr: A) -> u32 {
        self.child[addr.bits(self.bit.into(), 1)]
    }
}

/// One route.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Entry<A, L> {
    key: A,
    /// The next shorter route of the same chain, or [`NIL`].
    next: u32,
    hop: L,
    len: u8,
}

/// A frozen BSD radix trie.
#[derive(Clone, Debug)]
pub struct Patricia<A: Copy, L: Copy> {
    nodes: Table<Node>,
    entries: Table<Entry<A, L>>,
}

impl<A: Addr, L: Leaf> Patricia<A, L> {
    /// Returns the hop of the first entry of a chain that is no longer than `common`.
    #[inline(always)]
    fn chain(&self, mut index: u32, common: u32) -> Option<Hop> {
        while index != NIL {
            let entry = &self.entries[index as usize];
            if u32::from(entry.len) <= common {
                return Some(entry.hop.hop());
            }
            index = entry.next;
        }
        None
    }
}

impl<A: Addr, L: Leaf> Engine<A> for Patricia<A, L> {
    #[inline]
    fn lookup(&self, addr: A) -> Hop {
        let mut at = ROOT;
        let leaf = loop {
            let child = self.nodes[at as usize].towards(addr);
            if child & LEAF != 0 {
                break child;
            }
            at = child;
        };
        let mut common = 0;
        if leaf != NIL {
            let index = leaf & !LEAF;
            common = self.entries[index as usize].key.common(addr);
            if let Some(hop) = self.chain(index, common) {
                return hop;
            }
        }
        loop {
            let node = &self.nodes[at as usize];
            if let Some(hop) = self.chain(node.masks, common) {
                return hop;
            }
            if at == ROOT {
                return Hop::NONE;
            }
            at = node.up;
        }
    }

    fn lookup_batch(&self, addrs: &[A], out: &mut [Hop]) {
        group::<32, A, Self>(self, addrs, out);
    }

    fn overlapped(&self) -> Option<&dyn Overlapped<A>> {
        Some(self)
    }

    fn parts(&self) -> Vec<Part> {
        Vec::from([Part::of("nodes", &self.nodes), Part::of("entries", &self.entries)])
    }

    fn trace(&self, addr: A, steps: &mut Vec<Step>) -> Hop {
        let mut at = self.begin(addr);
        loop {
            steps.push(if at.entry == NIL {
                Step::of("nodes", at.node as usize, &self.nodes)
            } else {
                Step::of("entries", at.entry as usize, &self.entries)
            });
            match self.step(at) {
                ControlFlow::Continue(next) => at = next,
                ControlFlow::Break(hop) => return hop,
            }
        }
    }
}

/// Where a lookup in a [`Patricia`] is.
#[derive(Clone, Copy, Debug)]
pub struct At<A> {
    addr: A,
    /// The next node to load, [`NIL`] when there is none above.
    node: u32,
    /// The next entry to load, before the node, or [`NIL`].
    entry: u32,
    /// In how many bits the address agrees with the leaf's key, once that is known.
    common: Option<u8>,
}

impl<A: Addr, L: Leaf> Walk<A> for Patricia<A, L> {
    type At = At<A>;

    #[inline(always)]
    fn begin(&self, addr: A) -> At<A> {
        At { addr, node: ROOT, entry: NIL, common: None }
    }

    #[inline(always)]
    fn prefetch(&self, at: &At<A>) {
        if at.entry == NIL {
            self.nodes.prefetch(at.node as usize);
        } else {
            self.entries.prefetch(at.entry as usize);
        }
    }

    #[inline(always)]
    fn step(&self, mut at: At<A>) -> ControlFlow<Hop, At<A>> {
        if at.entry != NIL {
            let entry = &self.entries[at.entry as usize];
            let common = at.common.unwrap_or_else(|| entry.key.common(at.addr) as u8);
            if entry.len <= common {
                return ControlFlow::Break(entry.hop.hop());
            }
            (at.common, at.entry) = (Some(common), entry.next);
        } else {
            let node = &self.nodes[at.node as usize];
            if at.common.is_none() {
                match node.towards(at.addr) {
                    NIL => at.common = Some(0),
                    leaf if leaf & LEAF != 0 => at.entry = leaf & !LEAF,
                    child => at.node = child,
                }
                return ControlFlow::Continue(at);
            }
            at.entry = node.masks;
            at.node = if at.node == ROOT { NIL } else { node.up };
        }
        if at.entry == NIL && at.node == NIL {
            return ControlFlow::Break(Hop::NONE);
        }
        ControlFlow::Continue(at)
    }
}
