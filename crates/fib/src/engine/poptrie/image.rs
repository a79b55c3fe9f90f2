//! Poptrie in images: all nodes are validated, level by level.
//!
//! A lookup computes the place of each node from counts in the one before. So `load` checks that
//! the rows of children and leaves of every node are within their arrays, that a child that is a
//! leaf has one, and that there are no nodes beyond the last bit, so that every lookup terminates.

use alloc::vec::Vec;
use core::marker::PhantomData;

use super::{CHUNK, LEAF, Node, Poptrie, PoptrieBuilder};
use crate::Addr;
use crate::engine::Leaf;
use crate::image::{BadImage, Loadable, PartReader, PartWriter, Storable};
use crate::item::Item;

impl Item for Node {
    const BYTES: usize = 24;

    fn put(self, bytes: &mut [u8]) {
        self.vector.put(bytes);
        self.leafvec.put(&mut bytes[8..]);
        self.base0.put(&mut bytes[16..]);
        self.base1.put(&mut bytes[20..]);
    }
    fn get(bytes: &[u8]) -> Self {
        Self {
            vector: u64::get(bytes),
            leafvec: u64::get(&bytes[8..]),
            base0: u32::get(&bytes[16..]),
            base1: u32::get(&bytes[20..]),
        }
    }
}

impl<A: Addr, L: Leaf> Storable for Poptrie<A, L> {
    fn save(&self, parts: &mut PartWriter<'_>) {
        parts.array("direct", &self.direct);
        parts.array("nodes", &self.nodes);
        parts.array("leaves", &self.leaves);
    }
}

impl<A: Addr, L: Leaf> Loadable for Poptrie<A, L> {
    type Parameters = u32;

    fn load(bits: u32, stored: &PartReader<'_>) -> Result<Self, BadImage> {
        let direct_bits = PoptrieBuilder::<A, L>::direct_bits(bits);
        let table = Self {
            direct_bits,
            direct: stored.array_of("direct", 1 << direct_bits)?,
            nodes: stored.array("nodes")?,
            leaves: stored.array("leaves")?,
            family: PhantomData,
        };
        table.check(stored)?;
        Ok(table)
    }
}

impl<A: Addr, L: Leaf> Poptrie<A, L> {
    fn check(&self, stored: &PartReader<'_>) -> Result<(), BadImage> {
        let known = |entry: u32| entry & LEAF != 0 || (entry as usize) < self.nodes.len();
        stored.all("direct", &self.direct, "names a node beyond the end", known)?;
        let inner = |entry: &u32| entry & LEAF == 0;
        let mut level: Vec<u32> = self.direct.iter().copied().filter(inner).collect();
        let mut depth = self.direct_bits;
        while !level.is_empty() {
            level.sort_unstable();
            level.dedup();
            depth += CHUNK;
            let mut below = Vec::new();
            for at in level {
                let node = self.nodes[at as usize];
                let children = self.children(node, depth >= A::BITS);
                below.extend(children.map_err(|what| stored.bad("nodes", at as usize, what))?);
            }
            level = below;
        }
        Ok(())
    }

    /// Checks the rows of a node and returns its child nodes, or returns the fault.
    fn children(&self, node: Node, last: bool) -> Result<core::ops::Range<u32>, &'static str> {
        let row = |base: u32, count: usize, table: usize| {
            (base as usize).checked_add(count).is_some_and(|end| end <= table)
        };
        // A row of leaves must begin no later than the first leaf that a lookup can reach.
        let first = (!node.vector).trailing_zeros();
        if node.leafvec.trailing_zeros() > first {
            return Err("has a child that is neither node nor leaf");
        }
        if node.leaves() > 0 && !row(node.base0, node.leaves(), self.leaves.len()) {
            return Err("has leaves beyond the end");
        }
        match node.nodes() {
            0 => Ok(0..0),
            _ if last => Err("leads to nodes beyond the last bit"),
            count if !row(node.base1, count, self.nodes.len()) => Err("has nodes beyond the end"),
            count => Ok(node.base1..node.base1 + count as u32),
        }
    }
}
