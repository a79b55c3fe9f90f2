//! Tree Bitmap: a trie whose nodes describe their content in two bitmaps.
//!
//! Will Eatherton, George Varghese, Zubin Dittia, "Tree Bitmap: Hardware/Software IP
//! Lookups with Incremental Updates", ACM CCR 34(2), 2004; Fu's thesis (2020),
//! section 3.5, compares it.
//!
//! A node answers for one stride of an address. Its internal bitmap has a bit for
//! each route that ends within the stride (one of length 0, two of length 1, …), its
//! external bitmap one for each child. All children of a node lie side by side, and
//! so do its results, in an array apart; which of them is meant is the number of bits
//! set before its own. So a node needs two pointers however many it points to, and a
//! lookup reads no result but the last:
//!
//! ```text
//!  results              nodes                                      (stride 4, 12 bytes)
//!  ┌──────┐ short ones   ┌──────────────┬──────────────┬──────────┬─────────┐
//!  │ 2^I  │              │ internal  16 │ external  16 │ children │ results │ 2^I of them:
//!  ├──────┤              ├──────────────┴──────────────┴────┬─────┴────┬────┤ the initial
//!  │ of a │◄─────────────┼──────────────────────────────────┼──────────┘    │ array
//!  │ node │              ├──────────────────────────────────┼───────────────┤
//!  └──────┘              │ child child child of one node  ◄─┘               │
//! ```
//!
//! Strides of 4, 5 and 6 bits take bitmaps of 16, 32 and 64 bits: nodes of 12, 16
//! and 24 bytes (the paper packs its pointers tighter, into 8 bytes at stride 4; ours
//! reach 2^32 nodes and results).
//!
//! Of the paper's optimizations there are two. The *initial array* answers for the
//! first I bits with one load of one of 2^I nodes; the results of routes shorter than
//! I are expanded into the first 2^I items of the results. I is chosen so that the
//! length of most routes, 24 of IPv4 and 48 of IPv6, is the last within a node: 13
//! for strides 4 and 6, as in the paper; for stride 5, 15 and 14. *End nodes* save
//! null nodes, those with a route of length 0 and nothing else: where all children
//! would be such, the external bitmap takes their routes as one more row of the
//! internal one, marked by the internal bitmap's spare bit.
//!
//! Invariants: a node but one of the initial array holds a route or a child; it is
//! an end node if and only if it has no child or would have only null nodes; the
//! tree is therefore the same whatever the order of changes.
//!
//! Ones are counted by an instruction where the CPU has one (`arch`), as in Poptrie.
//!
//! A lookup loads a node a stride, at most `(BITS - I) / stride + 1`, and one result.
//! An address that ends within a stride is read on as zeros, which no route tests.
//! An update (`builder.rs`) moves the children or the results of the one node that it
//! changes, at most 2^stride of each, and of its parents where nodes come or go.
//! Limits: 2^32 nodes, as many results.

use alloc::vec::Vec;
use core::ops::ControlFlow;

pub use builder::TreeBitmapBuilder;
pub use node::Bits;
use node::{Found, Node};

use super::overlap::{Overlapped, Walk, group};
use super::{Engine, Leaf, Part, Step, chain};
use crate::arch::{self, Kernel};
use crate::table::Table;
use crate::{Addr, Hop};

mod builder;
mod node;

/// How many lookups [`Engine::lookup_batch`] keeps in flight.
const GROUP: usize = 32;

/// A frozen tree bitmap; the width of `W` says its stride, `L` holds a hop.
#[derive(Clone, Debug)]
pub struct TreeBitmap<W: Bits, L: Leaf> {
    /// The bits for which the initial array answers.
    initial: u32,
    nodes: Table<Node<W>>,
    results: Table<L>,
}

impl<W: Bits, L: Leaf> TreeBitmap<W, L> {
    /// Starts a lookup: the first node, what is below it of the address, and the result
    /// if no node has one.
    #[inline(always)]
    fn start<A: Addr>(&self, addr: A) -> (usize, A, Found) {
        let index = addr.bits(0, self.initial);
        (index, addr.tail(self.initial), Found { base: index as u32, before: 0 })
    }

    #[inline(always)]
    fn lookup_one<A: Addr>(&self, addr: A) -> Hop {
        let (mut at, mut rest, mut found) = self.start(addr);
        while let Some(child) = self.nodes[at].read(rest.bits(0, W::STRIDE), &mut found) {
            (at, rest) = (child, rest.tail(W::STRIDE));
        }
        self.results[found.place()].hop()
    }
}

/// One lookup, as a kernel that counts ones.
struct One<'a, A, W: Bits, L: Leaf>(&'a TreeBitmap<W, L>, A);

impl<A: Addr, W: Bits, L: Leaf> Kernel for One<'_, A, W, L> {
    type Out = Hop;

    #[inline(always)]
    fn run(self) -> Hop {
        self.0.lookup_one(self.1)
    }
}

/// Many lookups, which overlap, or each of which waits for the last.
struct Many<'a, const CHAINED: bool, A, W: Bits, L: Leaf> {
    table: &'a TreeBitmap<W, L>,
    addrs: &'a [A],
    out: &'a mut [Hop],
}

impl<const CHAINED: bool, A: Addr, W: Bits, L: Leaf> Kernel for Many<'_, CHAINED, A, W, L> {
    type Out = ();

    #[inline(always)]
    fn run(self) {
        let Self { table, addrs, out } = self;
        if CHAINED {
            chain(addrs, out, |addr| table.lookup_one(addr));
        } else {
            group::<GROUP, A, TreeBitmap<W, L>>(table, addrs, out);
        }
    }
}

impl<A: Addr, W: Bits, L: Leaf> Engine<A> for TreeBitmap<W, L> {
    #[inline]
    fn lookup(&self, addr: A) -> Hop {
        arch::run(One(self, addr))
    }

    fn lookup_batch(&self, addrs: &[A], out: &mut [Hop]) {
        arch::run(Many::<false, A, W, L> { table: self, addrs, out });
    }

    fn lookup_chained(&self, addrs: &[A], out: &mut [Hop]) {
        arch::run(Many::<true, A, W, L> { table: self, addrs, out });
    }

    fn overlapped(&self) -> Option<&dyn Overlapped<A>> {
        Some(self)
    }

    fn parts(&self) -> Vec<Part> {
        Vec::from([Part::of("nodes", &self.nodes), Part::of("results", &self.results)])
    }

    fn trace(&self, addr: A, steps: &mut Vec<Step>) -> Hop {
        let (mut at, mut rest, mut found) = self.start(addr);
        loop {
            steps.push(Step::of("nodes", at, &self.nodes));
            match self.nodes[at].read(rest.bits(0, W::STRIDE), &mut found) {
                Some(child) => (at, rest) = (child, rest.tail(W::STRIDE)),
                None => break,
            }
        }
        steps.push(Step::of("results", found.place(), &self.results));
        self.results[found.place()].hop()
    }
}

/// The state of a lookup.
#[derive(Clone, Copy, Debug)]
pub struct At<A> {
    /// The bits that are left, from the top.
    rest: A,
    found: Found,
    /// The node to read, or else the result.
    next: Result<usize, usize>,
}

impl<A: Addr, W: Bits, L: Leaf> Walk<A> for TreeBitmap<W, L> {
    type At = At<A>;
    const COUNTS: bool = true;

    #[inline(always)]
    fn begin(&self, addr: A) -> At<A> {
        let (at, rest, found) = self.start(addr);
        At { rest, found, next: Ok(at) }
    }

    #[inline(always)]
    fn prefetch(&self, at: &At<A>) {
        match at.next {
            Ok(node) => self.nodes.prefetch(node),
            Err(result) => self.results.prefetch(result),
        }
    }

    #[inline(always)]
    fn step(&self, mut at: At<A>) -> ControlFlow<Hop, At<A>> {
        match at.next {
            Ok(node) => {
                let child = self.nodes[node].read(at.rest.bits(0, W::STRIDE), &mut at.found);
                at.rest = at.rest.tail(W::STRIDE);
                at.next = child.ok_or_else(|| at.found.place());
                ControlFlow::Continue(at)
            }
            Err(result) => ControlFlow::Break(self.results[result].hop()),
        }
    }
}
