//! The unibit trie: one bit a level.
//!
//! Fu 2020, section 2.1 (figure 2.1); Vesović, Smiljanić, Tomašević,
//! "Speeding Up IP Lookup Procedure in Software Routers by Means of Parallelization",
//! Telfor Journal, 2017, section V.C. Most schemes are variants of it.
//!
//! A node stands for the prefix that is spelled by the way down to it. It is solid
//! if that prefix is a route, else empty; a subtree without a solid node does not
//! exist. A lookup goes left on a 0 and right on a 1 until there is no further
//! node, and answers with the hop of the last solid one it came by:
//!
//! ```text
//!   */0 A   01* B   011* C                 nodes  ┌────────┬────────┬──────────┬───────┐
//!                                                 │ left   │ right  │ hop      │ solid │
//!   0 ● A      address 0101…: 0, 1, 2,            └────────┴────────┴──────────┴───────┘
//!    ╱         then no left: B                      32 bits  32       16 or 32   8
//!   1 ○
//!    ╲         the root is node 0; as a child's
//!     2 ● B    number, 0 says that there is none
//!      ╲
//!       3 ● C
//! ```
//!
//! A mark of its own says whether a node is solid, since a route may lead to [`Hop::NONE`], which
//! excludes its addresses from a shorter one.
//!
//! Updates are incremental: an added route makes the missing nodes of its path, and a removed one
//! removes those that led to it alone. The array is kept dense (`nodes.rs`). A lookup is O(`A::BITS`) loads, of which each
//! waits for the one before; an update writes a node for each bit that no other
//! route shares. Limit: 2^31 - 1 nodes.

use alloc::vec::Vec;
use core::marker::PhantomData;
use core::ops::ControlFlow;

use super::nodes::{Nodes, note};
use super::overlap::{Overlapped, Walk, group};
use super::{Engine, Leaf, Part, RouteBuilder, Step};
use crate::table::Table;
use crate::{Addr, Full, Hop, Prefix, Rib};

const ROOT: u32 = 0;
/// As a child: none. Nothing leads to the root.
const NIL: u32 = ROOT;

/// One prefix.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Node<L> {
    child: [u32; 2],
    hop: L,
    solid: bool,
}

/// A frozen unibit trie.
#[derive(Clone, Debug)]
pub struct Binary<L: Copy> {
    nodes: Table<Node<L>>,
}

/// Where a lookup in a [`Binary`] is.
#[derive(Clone, Copy, Debug)]
pub struct At<A> {
    addr: A,
    node: u32,
    depth: u32,
    /// The hop of the last solid node.
    best: Hop,
}

impl<A: Addr, L: Leaf> Walk<A> for Binary<L> {
    type At = At<A>;

    #[inline(always)]
    fn begin(&self, addr: A) -> At<A> {
        At { addr, node: ROOT, depth: 0, best: Hop::NONE }
    }

    #[inline(always)]
    fn prefetch(&self, at: &At<A>) {
        self.nodes.prefetch(at.node as usize);
    }

    #[inline(always)]
    fn step(&self, mut at: At<A>) -> ControlFlow<Hop, At<A>> {
        let node = &self.nodes[at.node as usize];
        if node.solid {
            at.best = node.hop.hop();
        }
        // A node of full length has no children.
        let next = node.child[at.addr.bits(at.depth.min(A::BITS - 1), 1)];
        if next == NIL {
            return ControlFlow::Break(at.best);
        }
        ControlFlow::Continue(At { node: next, depth: at.depth + 1, ..at })
    }
}

impl<A: Addr, L: Leaf> Engine<A> for Binary<L> {
    #[inline]
    fn lookup(&self, addr: A) -> Hop {
        let mut node = &self.nodes[ROOT as usize];
        let mut best = Hop::NONE;
        for depth in 0..A::BITS {
            if node.solid {
                best = node.hop.hop();
            }
            let next = node.child[addr.bits(depth, 1)];
            if next == NIL {
                return best;
            }
            node = &self.nodes[next as usize];
        }
        if node.solid { node.hop.hop() } else { best }
    }

    fn lookup_batch(&self, addrs: &[A], out: &mut [Hop]) {
        group::<32, A, Self>(self, addrs, out);
    }

    fn overlapped(&self) -> Option<&dyn Overlapped<A>> {
        Some(self)
    }

    fn parts(&self) -> Vec<Part> {
        Vec::from([Part::of("nodes", &self.nodes)])
    }

    fn trace(&self, addr: A, steps: &mut Vec<Step>) -> Hop {
        let mut at = self.begin(addr);
        loop {
            steps.push(Step::of("nodes", at.node as usize, &self.nodes));
            match self.step(at) {
                ControlFlow::Continue(next) => at = next,
                ControlFlow::Break(hop) => return hop,
            }
        }
    }
}

/// The builder of [`Binary`].
#[derive(Debug)]
pub struct BinaryBuilder<A, L> {
    nodes: Nodes<Node<L>>,
    /// By node, for those that die or move.
    parent: Vec<u32>,
    family: PhantomData<A>,
}

impl<A: Addr, L: Leaf> Default for BinaryBuilder<A, L> {
    fn default() -> Self {
        let mut this = Self { nodes: Nodes::new(1), parent: Vec::new(), family: PhantomData };
        this.clear();
        this
    }
}

impl<A: Addr, L: Leaf> BinaryBuilder<A, L> {
    /// Leaves the root alone.
    fn clear(&mut self) {
        self.nodes.clear();
        let root = self.nodes.add(&[Node::default()]);
        let Ok(root) = root else { unreachable!("there is room for one") };
        note(&mut self.parent, root, ROOT);
    }

    fn set(&mut self, at: u32, change: impl FnOnce(&mut Node<L>)) {
        let mut node = self.nodes[at as usize];
        change(&mut node);
        self.nodes.set(at as usize, node);
    }

    /// Makes `prefix` solid, starting from `at`, which is on its path `depth` bits down; calls
    /// `passed` with every node below that.
    fn insert(
        &mut self,
        (mut at, depth): (u32, u32),
        prefix: Prefix<A>,
        hop: Hop,
        mut passed: impl FnMut(u32),
    ) -> Result<(), Full> {
        let hop = L::pack(hop)?;
        for depth in depth..prefix.len() {
            let side = prefix.addr().bits(depth, 1);
            let mut next = self.nodes[at as usize].child[side];
            if next == NIL {
                next = self.nodes.add(&[Node::default()])?;
                note(&mut self.parent, next, at);
                self.set(at, |node| node.child[side] = next);
            }
            at = next;
            passed(at);
        }
        self.set(at, |node| (node.hop, node.solid) = (hop, true));
        Ok(())
    }

    /// Makes `prefix` empty, and removes the nodes that led to it alone.
    fn remove(&mut self, prefix: Prefix<A>) {
        let mut at = ROOT;
        for depth in 0..prefix.len() {
            at = self.nodes[at as usize].child[prefix.addr().bits(depth, 1)];
            if at == NIL {
                return;
            }
        }
        self.set(at, |node| (node.hop, node.solid) = (L::default(), false));
        while at != ROOT && self.nodes[at as usize] == Node::default() {
            let parent = self.parent[at as usize];
            self.lead(parent, at, NIL);
            self.nodes.give_back(at);
            at = parent;
        }
        while let Some((from, to)) = self.nodes.next_move() {
            let parent = self.parent[from as usize];
            note(&mut self.parent, to, parent);
            self.lead(parent, from, to);
            for child in self.nodes[to as usize].child.into_iter().filter(|&child| child != NIL) {
                note(&mut self.parent, child, to);
            }
        }
        self.parent.truncate(self.nodes.len());
    }

    /// Leads the link of `parent` to `from` elsewhere.
    fn lead(&mut self, parent: u32, from: u32, to: u32) {
        self.set(parent, |node| {
            let side = usize::from(node.child[0] != from);
            node.child[side] = to;
        });
    }
}

impl<A: Addr, L: Leaf> RouteBuilder<A> for BinaryBuilder<A, L> {
    type Engine = Binary<L>;

    fn fill(&mut self, rib: &Rib<A>) -> Result<(), Full> {
        self.clear();
        // Routes come in order: the nodes that a route shares with the one before are on the path
        // to that one.
        let mut way = Vec::from([ROOT]);
        let mut before = Prefix::<A>::ALL;
        for (prefix, hop) in rib {
            let common = before.addr().common(prefix.addr()).min(before.len()).min(prefix.len());
            way.truncate(common as usize + 1);
            self.insert((way[common as usize], common), prefix, hop, |at| way.push(at))?;
            before = prefix;
        }
        Ok(())
    }

    fn change(&mut self, rib: &Rib<A>, prefix: Prefix<A>) -> Result<(), Full> {
        match rib.get(prefix) {
            Some(hop) => self.insert((ROOT, 0), prefix, hop, |_| {})?,
            None => self.remove(prefix),
        }
        Ok(())
    }

    fn freeze(&self) -> Binary<L> {
        Binary { nodes: self.nodes.freeze() }
    }

    fn refresh(&self, idle: &mut Binary<L>) {
        self.nodes.refresh(&mut idle.nodes);
    }

    fn written(&self) -> u64 {
        self.nodes.written()
    }
}
