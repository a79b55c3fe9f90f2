//! Lays runs out as a Poptrie, and patches it.
//!
//! A direct entry and a chunk are the same thing one level apart: a part of the
//! space and its runs. One run makes a leaf; several make a node, whose 64 parts
//! are laid out in turn. `lay` does that in place of what was there: a child that
//! stays a node is laid out over its old self, and so keeps its rows of children
//! and leaves where they were, if their lengths are unchanged. Unchanged items are not written
//! ([`Master::write`]); items that no longer exist are freed.
//!
//! ```text
//!   old   N: ┃ a b c ┃        vector …1…1…1…        new   a, b as they were, c a leaf now
//!   new   N: ┃ a b ┃ hole     vector …1…1…0…              the row of two moves, a's and
//!                                                          b's own rows do not
//! ```
//!
//! Rows lie in an [`Arena`] for N and one for L. (The paper's are buddy allocators,
//! which round a row up to a power of two.) O(runs + 64 * nodes) a direct entry.

use alloc::vec;
use alloc::vec::Vec;
use core::marker::PhantomData;

use super::{CHUNK, LEAF, Node, Poptrie};
use crate::arena::Arena;
use crate::engine::leaf::full;
use crate::engine::{Builder, Leaf};
use crate::runs::{Run, split};
use crate::table::Master;
use crate::{Addr, Full, Hop, Prefix};

/// The builder of [`Poptrie`] tables.
#[derive(Debug)]
pub struct PoptrieBuilder<A: Addr, L: Leaf> {
    direct_bits: u32,
    direct: Master<u32>,
    nodes: Arena<Node>,
    leaves: Arena<L>,
    family: PhantomData<A>,
}

impl<A: Addr, L: Leaf> PoptrieBuilder<A, L> {
    /// Starts an empty table that points directly by `bits` bits, held between 16 and
    /// 24; toys by 14 fewer.
    pub fn new(bits: u32) -> Self {
        let direct_bits = Self::direct_bits(bits);
        Self {
            direct_bits,
            direct: Master::new(vec![LEAF | Hop::NONE.0; 1 << direct_bits]),
            nodes: Arena::new(),
            leaves: Arena::new(),
            family: PhantomData,
        }
    }

    /// Returns the bits by which a table that shall point directly by `bits` does so.
    pub(super) fn direct_bits(bits: u32) -> u32 {
        let bits = bits.clamp(16, 24);
        if A::BITS < 32 { (bits - 14).min(A::BITS / 2 + 2) } else { bits }
    }

    /// Makes the entry of D for a part and its runs, in place of the entry `old`.
    fn entry(&mut self, old: u32, part: Prefix<A>, runs: &[Run<A>]) -> Result<u32, Full> {
        let at = (old & LEAF == 0).then_some(old as usize);
        let old = at.map(|at| self.nodes[at]);
        if let [run] = runs {
            if run.hop.0 >= LEAF {
                return Err(full(run.hop, u64::from(LEAF) - 1));
            }
            if let (Some(at), Some(old)) = (at, old) {
                self.free(old);
                self.nodes.free(at, 1);
            }
            return Ok(LEAF | run.hop.0);
        }
        let node = self.lay(old, part, runs)?;
        let at = self.nodes.replace(at.unwrap_or(0), usize::from(at.is_some()), &[node]);
        Self::room("nodes", at, LEAF)
    }

    /// Lays out the node of a part and its runs, over the node `old` of that part if
    /// there is one.
    fn lay(&mut self, old: Option<Node>, part: Prefix<A>, runs: &[Run<A>]) -> Result<Node, Full> {
        let width = CHUNK.min(A::BITS - part.len());
        let mut node = Node::default();
        let mut leaves: Vec<L> = Vec::with_capacity(1 << width);
        let mut nodes: Vec<Node> = Vec::with_capacity(1 << width);
        for (index, (part, runs)) in split(runs, part, width).enumerate() {
            let chunk = index << (CHUNK - width);
            let child = old.map(|old| old.child(chunk)).filter(|child| child.inner);
            let child = child.map(|child| self.nodes[child.at as usize]);
            if let [run] = runs {
                if let Some(child) = child {
                    self.free(child);
                }
                let leaf = L::pack(run.hop)?;
                if leaves.last() != Some(&leaf) {
                    node.leafvec |= 1 << chunk;
                    leaves.push(leaf);
                }
            } else {
                node.vector |= 1 << chunk;
                nodes.push(self.lay(child, part, runs)?);
            }
        }
        let old = old.unwrap_or_default();
        let at = self.leaves.replace(old.base0 as usize, old.leaves(), &leaves);
        node.base0 = Self::room("leaves", at, u32::MAX)?;
        let at = self.nodes.replace(old.base1 as usize, old.nodes(), &nodes);
        node.base1 = Self::room("nodes", at, LEAF)?;
        Ok(node)
    }

    /// Frees all below `node`; its parent frees the node itself.
    fn free(&mut self, node: Node) {
        let (base0, base1) = (node.base0 as usize, node.base1 as usize);
        for at in base1..base1 + node.nodes() {
            self.free(self.nodes[at]);
        }
        self.nodes.free(base1, node.nodes());
        self.leaves.free(base0, node.leaves());
    }

    /// Copies all below `node` of another builder, and returns the copy of the node.
    fn adopt(&mut self, from: &Self, mut node: Node) -> Result<Node, Full> {
        let (base0, base1) = (node.base0 as usize, node.base1 as usize);
        let at = self.leaves.store(from.leaves.get(base0, node.leaves()));
        node.base0 = Self::room("leaves", at, u32::MAX)?;
        let nodes = from.nodes.get(base1, node.nodes());
        let nodes: Result<Vec<_>, _> = nodes.iter().map(|&node| self.adopt(from, node)).collect();
        node.base1 = Self::room("nodes", self.nodes.store(&nodes?), LEAF)?;
        Ok(node)
    }

    /// Returns the place of a row of at most 64, if all of it is below `limit`.
    fn room(what: &'static str, at: usize, limit: u32) -> Result<u32, Full> {
        if at + 64 > limit as usize {
            return Err(Full { what, limit: limit.into(), seen: at as u64 + 64 });
        }
        Ok(at as u32)
    }
}

impl<A: Addr, L: Leaf> Builder<A> for PoptrieBuilder<A, L> {
    type Engine = Poptrie<A, L>;

    fn block_len(&self) -> u32 {
        self.direct_bits
    }

    fn share_len(&self) -> u32 {
        self.direct_bits
    }

    fn patch(&mut self, block: Prefix<A>, runs: &[Run<A>]) -> Result<(), Full> {
        assert!(block.len() <= self.direct_bits, "a block to patch has at most S bits");
        let width = self.direct_bits - block.len();
        let first = block.addr().bits(0, self.direct_bits);
        let mut fresh = Vec::with_capacity(1 << width);
        for (index, (part, runs)) in split(runs, block, width).enumerate() {
            fresh.push(self.entry(self.direct[first + index], part, runs)?);
        }
        self.direct.write(first, &fresh);
        Ok(())
    }

    fn absorb(&mut self, part: &Self, first: A, last: A) -> Result<(), Full> {
        let first = first.bits(0, self.direct_bits);
        let last = last.bits(0, self.direct_bits);
        let mut fresh = part.direct[first..=last].to_vec();
        for (index, entry) in fresh.iter_mut().enumerate() {
            let old = self.direct[first + index];
            if old & LEAF == 0 {
                self.free(self.nodes[old as usize]);
                self.nodes.free(old as usize, 1);
            }
            if *entry & LEAF == 0 {
                let node = self.adopt(part, part.nodes[*entry as usize])?;
                *entry = Self::room("nodes", self.nodes.store(&[node]), LEAF)?;
            }
        }
        self.direct.write(first, &fresh);
        Ok(())
    }

    fn freeze(&self) -> Poptrie<A, L> {
        Poptrie {
            direct_bits: self.direct_bits,
            direct: self.direct.freeze(),
            nodes: self.nodes.freeze(),
            leaves: self.leaves.freeze(),
            family: PhantomData,
        }
    }

    fn refresh(&self, idle: &mut Poptrie<A, L>) {
        self.direct.refresh(&mut idle.direct);
        self.nodes.refresh(&mut idle.nodes);
        self.leaves.refresh(&mut idle.leaves);
    }

    fn written(&self) -> u64 {
        self.direct.written() + self.nodes.written() + self.leaves.written()
    }

    fn holes(&self) -> usize {
        self.nodes.holes() + self.leaves.holes()
    }
}

#[cfg(test)]
mod tests {
    use super::PoptrieBuilder;
    use crate::engine::Builder;
    use crate::runs::sweep_block;
    use crate::{Hop, Prefix, Rib};
    use alloc::vec::Vec;

    /// Changes of all kinds, then all routes withdrawn: no row is left behind.
    #[test]
    fn rows_are_freed_as_routes_are_withdrawn() {
        let mut rib: Rib<u16> = Rib::new();
        let mut builder: PoptrieBuilder<u16, u16> = PoptrieBuilder::new(16);
        let mut rng = fastrand::Rng::with_seed(5);
        let mut next = move || rng.usize(..);
        let mut patch = |rib: &mut Rib<u16>| {
            for block in rib.take_dirty(builder.block_len()) {
                let mut runs = Vec::new();
                sweep_block(rib, block, &mut runs);
                builder.patch(block, &runs).unwrap();
            }
            // Used are the nodes that can be reached, and their leaves.
            let (mut nodes, mut leaves) = (0, 0);
            let roots = builder.direct.iter().filter(|&&entry| entry & super::LEAF == 0);
            let mut open: Vec<_> = roots.map(|&at| builder.nodes[at as usize]).collect();
            while let Some(node) = open.pop() {
                nodes += 1;
                leaves += node.leaves();
                let base1 = node.base1 as usize;
                open.extend_from_slice(builder.nodes.get(base1, node.nodes()));
            }
            assert_eq!((nodes, leaves), (builder.nodes.used(), builder.leaves.used()));
            (builder.nodes.len(), builder.leaves.len())
        };
        for _ in 0..500 {
            for _ in 0..next() % 5 {
                let prefix = Prefix::truncate((next() % 0x300) as u16, (next() % 17) as u32);
                if next() % 3 == 0 {
                    rib.remove(prefix);
                } else {
                    rib.insert(prefix, Hop((next() % 9) as u32));
                }
            }
            patch(&mut rib);
        }
        let routes: Vec<_> = rib.iter().collect();
        for (prefix, _) in routes {
            rib.remove(prefix);
        }
        assert_eq!(patch(&mut rib), (0, 0));
    }
}
