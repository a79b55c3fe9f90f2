//! Poptrie: a trie of 6 bits a level, its children found by counting ones.
//!
//! Hirochika Asai, Yasuhiro Ohara, "Poptrie: A Compressed Trie with Population Count
//! for Fast and Scalable Software IP Routing Table Lookup", SIGCOMM 2015; compared
//! in Fu's thesis (2020, section 3.5) and Zec's (2019, chapter 6). Here with direct
//! pointing, with leafvec, and with updates of the subtree under one direct entry.
//!
//! ```text
//!   bits 0..S              6 bits a level, the rest at the last
//!   D                      N: nodes of 24 bytes                   L
//!   ┌─┬────────────┐       ┌────────┬─────────┬───────┬───────┐   ┌─────┐
//!   │1│ hop        │   ┌──►│ vector │ leafvec │ base0 │ base1 │   │ hop │
//!   │0│ node ──────┼───┘   │  u64   │   u64   │  u32  │  u32  │   │ hop │
//!   │ │ …          │       └────────┴─────────┴───┬───┴───┬───┘   │ …   │
//!   └─┴────────────┘          N ◄────────────────────────┘       └─────┘
//!    2^S entries of u32                            └──────────────► L
//! ```
//!
//! Bit v of `vector` says that the child for chunk v is a node. The nodes of one
//! parent lie side by side from `base1` on, so that the child's is number
//! popcnt(vector, bits 0 to v) of them. Where the bit is 0 the child is a leaf, and
//! leaves that follow one another with the same hop are kept once: `leafvec` marks
//! where a new one begins, leaf popcnt(leafvec, bits 0 to v) from `base0` on answers.
//! Chunks that are nodes interrupt no row of equal leaves.
//!
//! Where fewer than 6 bits are left they are the upper ones of the last chunk, whose
//! others are 0. Toys point directly by S - 14 bits, so that they have levels too.
//!
//! A lookup is one load of D, then one of N a level and one of L; at most 1 + 3 + 1
//! for IPv4 with S = 16 or 18, 1 + 2 + 1 with 20, 1 + 19 + 1 for IPv6. A batch goes
//! level by level, or reads D in lanes (`batch.rs`). Both count by an instruction where the CPU has one
//! (`arch`).
//!
//! An update lays the subtrees under its direct entries out again and writes what
//! differs; a row of nodes or leaves moves when its length changes (`builder.rs`).
//! Limits: 2^31 hops in D, those of a leaf in L, 2^31 nodes, 2^32 leaves.

use alloc::vec::Vec;
use core::marker::PhantomData;
use core::ops::ControlFlow;

use super::overlap::{Overlapped, Walk};
use super::{Engine, Leaf, Part, Step};
use crate::arch::{self, Kernel, lanes};
use crate::image::Storable;
use crate::table::Table;
use crate::{Addr, Hop};

mod batch;
mod builder;
mod image;

use batch::{Batch, Chain};
pub use builder::PoptrieBuilder;

/// How many bits a level resolves.
const CHUNK: u32 = 6;

/// In an entry of D: the rest is a hop.
const LEAF: u32 = 1 << 31;

/// A node: which of its 64 children are nodes, where its leaves change, and where
/// both begin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
struct Node {
    vector: u64,
    leafvec: u64,
    base0: u32,
    base1: u32,
}

/// Where a child is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Child {
    /// It is a node, in N; else a leaf, in L.
    inner: bool,
    at: u32,
}

impl Node {
    /// Finds the child for `chunk`, without a branch.
    ///
    /// A shift to the left leaves bits 0 to `chunk`, and the last of them on top.
    #[inline(always)]
    fn child(&self, chunk: usize) -> Child {
        let above = !(chunk as u32) & 63;
        let (vector, leafvec) = (self.vector << above, self.leafvec << above);
        let inner = vector >> 63 != 0;
        let (bits, base) = if inner { (vector, self.base1) } else { (leafvec, self.base0) };
        Child { inner, at: base.wrapping_add(bits.count_ones()).wrapping_sub(1) }
    }

    /// Counts the children that are nodes.
    fn nodes(&self) -> usize {
        self.vector.count_ones() as usize
    }

    /// Counts the leaves.
    fn leaves(&self) -> usize {
        self.leafvec.count_ones() as usize
    }
}

/// Returns the next chunk of bits of the rest of an address.
#[inline(always)]
fn chunk<A: Addr>(rest: A) -> usize {
    rest.bits(0, CHUNK)
}

/// A frozen Poptrie.
#[derive(Clone, Debug)]
pub struct Poptrie<A: Addr, L: Leaf> {
    direct_bits: u32,
    direct: Table<u32>,
    nodes: Table<Node>,
    leaves: Table<L>,
    family: PhantomData<A>,
}

impl<A: Addr, L: Leaf> Poptrie<A, L> {
    #[inline(always)]
    fn lookup_one(&self, addr: A) -> Hop {
        let entry = self.direct[addr.bits(0, self.direct_bits)];
        if entry & LEAF != 0 {
            return Hop(entry & !LEAF);
        }
        self.below(entry, addr)
    }

    /// Goes down from node `at`, to which the entry of D for `addr` leads.
    #[inline(always)]
    fn below(&self, mut at: u32, addr: A) -> Hop {
        let mut rest = addr.tail(self.direct_bits);
        loop {
            let child = self.nodes[at as usize].child(chunk(rest));
            at = child.at;
            if !child.inner {
                return self.leaves[at as usize].hop();
            }
            rest = rest.tail(CHUNK);
        }
    }
}

/// One lookup, as a kernel.
struct One<'a, A: Addr, L: Leaf>(&'a Poptrie<A, L>, A);

impl<A: Addr, L: Leaf> Kernel for One<'_, A, L> {
    type Out = Hop;

    #[inline(always)]
    fn run(self) -> Hop {
        self.0.lookup_one(self.1)
    }
}

/// Where a lookup will load next.
#[derive(Clone, Copy, Debug)]
pub enum At<A> {
    /// In D.
    Direct(A),
    /// In N, with the rest of the address.
    Node(u32, A),
    /// In L.
    Leaf(u32),
}

impl<A: Addr, L: Leaf> Walk<A> for Poptrie<A, L> {
    type At = At<A>;
    const COUNTS: bool = true;

    #[inline(always)]
    fn begin(&self, addr: A) -> At<A> {
        At::Direct(addr)
    }

    #[inline(always)]
    fn prefetch(&self, at: &At<A>) {
        match *at {
            At::Direct(addr) => self.direct.prefetch(addr.bits(0, self.direct_bits)),
            At::Node(at, _) => self.nodes.prefetch(at as usize),
            At::Leaf(at) => self.leaves.prefetch(at as usize),
        }
    }

    #[inline(always)]
    fn step(&self, at: At<A>) -> ControlFlow<Hop, At<A>> {
        match at {
            At::Direct(addr) => {
                let entry = self.direct[addr.bits(0, self.direct_bits)];
                if entry & LEAF != 0 {
                    return ControlFlow::Break(Hop(entry & !LEAF));
                }
                ControlFlow::Continue(At::Node(entry, addr.tail(self.direct_bits)))
            }
            At::Node(at, rest) => {
                let child = self.nodes[at as usize].child(chunk(rest));
                ControlFlow::Continue(if child.inner {
                    At::Node(child.at, rest.tail(CHUNK))
                } else {
                    At::Leaf(child.at)
                })
            }
            At::Leaf(at) => ControlFlow::Break(self.leaves[at as usize].hop()),
        }
    }
}

impl<A: Addr, L: Leaf> Engine<A> for Poptrie<A, L> {
    #[inline]
    fn lookup(&self, addr: A) -> Hop {
        arch::run(One(self, addr))
    }

    fn lookup_batch(&self, addrs: &[A], out: &mut [Hop]) {
        assert_eq!(addrs.len(), out.len(), "a batch has as many answers as addresses");
        let fits = self.direct.len() <= lanes::MAX_ITEMS;
        if !(fits && lanes::batch(self, addrs, out)) {
            arch::run(Batch { table: self, addrs, out });
        }
    }

    fn lookup_chained(&self, addrs: &[A], out: &mut [Hop]) {
        arch::run(Chain { table: self, addrs, out });
    }

    fn overlapped(&self) -> Option<&dyn Overlapped<A>> {
        Some(self)
    }

    fn storable(&self) -> Option<&dyn Storable> {
        Some(self)
    }

    fn parts(&self) -> Vec<Part> {
        Vec::from([
            Part::of("D", &self.direct),
            Part::of("N", &self.nodes),
            Part::of("L", &self.leaves),
        ])
    }

    fn trace(&self, addr: A, steps: &mut Vec<Step>) -> Hop {
        let index = addr.bits(0, self.direct_bits);
        steps.push(Step::of("D", index, &self.direct));
        let entry = self.direct[index];
        if entry & LEAF != 0 {
            return Hop(entry & !LEAF);
        }
        let mut child = Child { inner: true, at: entry };
        let mut rest = addr.tail(self.direct_bits);
        while child.inner {
            steps.push(Step::of("N", child.at as usize, &self.nodes));
            child = self.nodes[child.at as usize].child(chunk(rest));
            rest = rest.tail(CHUNK);
        }
        steps.push(Step::of("L", child.at as usize, &self.leaves));
        self.leaves[child.at as usize].hop()
    }
}
