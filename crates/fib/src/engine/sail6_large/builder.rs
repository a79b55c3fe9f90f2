//! Updates bitmaps, filters, hash tables and pivots for each changed route.
//!
//! Every node of a level is a function of the routes: whether it is there, its hop
//! and its kind. A full build evaluates it for all nodes that there may be, and a
//! change for those that it may concern:
//!
//! ```text
//!   change of p, of length l     its own node           route: leaf, or internal
//!   on each pivot level          above l: 1 node        routes below it, or not
//!                                below l: those in p    the hop that they inherit
//!   on its bitmap level          the 2^(level - l) nodes that p is pushed to
//! ```
//!
//! Nodes that turn out as they were are not written.

use alloc::vec;
use alloc::vec::Vec;

use super::{Map, Node, SPREAD, Sail6Large, Shape};
use crate::engine::hash::lengths::LengthsBuilder;
use crate::engine::hash::table::Open;
use crate::engine::{Leaf, RouteBuilder};
use crate::table::Master;
use crate::{FamilyLayout, Full, Hop, Prefix, Rib};

/// The builder of [`Sail6Large`].
#[derive(Debug)]
pub struct Sail6LargeBuilder<A: FamilyLayout, L: Leaf> {
    shape: Shape,
    maps: Vec<MapBuilder<L>>,
    lengths: LengthsBuilder<A, Node<L>>,
}

/// A bitmap level.
#[derive(Debug)]
struct MapBuilder<L: Leaf> {
    len: u32,
    bits: Master<u64>,
    table: Open<u32, Node<L>>,
}

impl<L: Leaf> MapBuilder<L> {
    fn new(len: u32) -> Self {
        let words = (1usize << len).div_ceil(64);
        Self { len, bits: Master::new(vec![0; words]), table: Open::new(len, SPREAD) }
    }

    fn set(&mut self, index: usize, node: Option<Node<L>>) {
        let (at, bit) = (index / 64, 1 << (index % 64));
        let word = self.bits[at];
        self.bits.write(at, &[if node.is_some() { word | bit } else { word & !bit }]);
        match node {
            Some(node) => self.table.insert(index as u32, node),
            None => self.table.remove(index as u32),
        };
    }

    /// Holds `nodes`, of different indexes, in place of all there was.
    fn fill(&mut self, nodes: &[(u32, Node<L>)]) {
        let mut bits = vec![0; self.bits.len()];
        for &(index, _) in nodes {
            bits[index as usize / 64] |= 1 << (index % 64);
        }
        self.bits.write(0, &bits);
        self.table.fill(nodes.len(), nodes.iter().copied());
    }
}

impl<A: FamilyLayout, L: Leaf> Default for Sail6LargeBuilder<A, L> {
    fn default() -> Self {
        let shape = Shape::of::<A>();
        Self {
            shape,
            maps: shape.maps.iter().map(|&len| MapBuilder::new(len)).collect(),
            lengths: LengthsBuilder::new(SPREAD),
        }
    }
}

impl<A: FamilyLayout, L: Leaf> Sail6LargeBuilder<A, L> {
    /// Lists the levels whose nodes know of what is below: the pivots and the last.
    fn pivots(&self) -> impl Iterator<Item = u32> + use<A, L> {
        self.shape.pivots.iter().copied().chain([self.shape.network])
    }

    /// Returns the bitmap level to which a route of `len` bits is pushed.
    fn pushed(&self, len: u32) -> Option<usize> {
        self.shape.maps.iter().position(|&level| len <= level)
    }

    /// Evaluates the node of one prefix with a filter's length.
    fn node(&self, rib: &Rib<A>, prefix: Prefix<A>) -> Result<Option<Node<L>>, Full> {
        let own = rib.get(prefix);
        let len = prefix.len();
        let internal = self.pivots().any(|pivot| pivot == len) && has_below(rib, prefix);
        let (hop, kind) = match (own, internal) {
            (Some(hop), false) => (hop, Node::<L>::LEAF),
            (Some(hop), true) => (hop, Node::<L>::INTERNAL),
            (None, false) => return Ok(None),
            (None, true) => {
                let hop = rib.cover(prefix).map_or(Hop::NONE, |(_, hop)| hop);
                let pushed = len == self.shape.network;
                (hop, if pushed { Node::<L>::INTERNAL } else { Node::<L>::PIVOT })
            }
        };
        Ok(Some(Node { hop: L::pack(hop)?, kind }))
    }

    /// Evaluates the `index`th node of a bitmap level.
    fn map_node(&self, rib: &Rib<A>, level: usize, index: usize) -> Result<Option<Node<L>>, Full> {
        let len = self.shape.maps[level];
        let prefix = Prefix::truncate(A::from_bits(index, 0, len), len);
        let internal = len == self.shape.base() && has_below(rib, prefix);
        let route = rib.covering(prefix).last();
        // Shorter routes are pushed to a level above this one.
        let own = route.is_some_and(|(route, _)| self.pushed(route.len()) == Some(level));
        if !own && !internal {
            return Ok(None);
        }
        let kind = if internal { Node::<L>::INTERNAL } else { Node::<L>::LEAF };
        let hop = L::pack(route.map_or(Hop::NONE, |(_, hop)| hop))?;
        Ok(Some(Node { hop, kind }))
    }

    /// Brings one node up to date.
    fn set(&mut self, rib: &Rib<A>, prefix: Prefix<A>) -> Result<(), Full> {
        let node = self.node(rib, prefix)?;
        self.lengths.set(prefix, node);
        Ok(())
    }

    /// Brings the nodes `first..end` of a bitmap level up to date.
    fn set_map(
        &mut self,
        rib: &Rib<A>,
        level: usize,
        first: usize,
        count: usize,
    ) -> Result<(), Full> {
        for index in first..first + count {
            let node = self.map_node(rib, level, index)?;
            self.maps[level].set(index, node);
        }
        Ok(())
    }
}

/// Returns whether `prefix` covers a longer route.
fn has_below<A: FamilyLayout>(rib: &Rib<A>, prefix: Prefix<A>) -> bool {
    rib.covered(prefix).any(|(route, _)| route != prefix)
}

/// Lists the nodes of length `len` in `prefix` that have routes below them, or with
/// `own` are routes.
fn nodes<A: FamilyLayout>(rib: &Rib<A>, prefix: Prefix<A>, len: u32, own: bool) -> Vec<Prefix<A>> {
    let deep = rib.covered(prefix).filter(|(route, _)| route.len() + u32::from(own) > len);
    let mut nodes: Vec<_> = deep.map(|(route, _)| Prefix::truncate(route.addr(), len)).collect();
    // In order of address, as the routes are.
    nodes.dedup();
    nodes
}

impl<A: FamilyLayout, L: Leaf> RouteBuilder<A> for Sail6LargeBuilder<A, L> {
    type Engine = Sail6Large<A, L>;

    fn fill(&mut self, rib: &Rib<A>) -> Result<(), Full> {
        for level in 0..self.maps.len() {
            let len = self.shape.maps[level];
            let mut found: Vec<usize> = Vec::new();
            for (route, _) in rib {
                let first = route.addr().bits(0, len);
                match self.pushed(route.len()) {
                    Some(own) if own == level => {
                        found.extend(first..first + (1 << (len - route.len())));
                    }
                    None if len == self.shape.base() => found.push(first),
                    _ => {}
                }
            }
            found.sort_unstable();
            found.dedup();
            let mut entries = Vec::with_capacity(found.len());
            for index in found {
                if let Some(node) = self.map_node(rib, level, index)? {
                    entries.push((index as u32, node));
                }
            }
            self.maps[level].fill(&entries);
        }
        let pivots: Vec<u32> = self.pivots().collect();
        let plain = |len: u32| len > self.shape.base() && !pivots.contains(&len);
        let routes = rib.iter().map(|(route, _)| route).filter(|route| plain(route.len()));
        let mut prefixes: Vec<Prefix<A>> = routes.collect();
        for &len in &pivots {
            prefixes.extend(nodes(rib, Prefix::ALL, len, true));
        }
        let mut entries = Vec::with_capacity(prefixes.len());
        for prefix in prefixes {
            if let Some(node) = self.node(rib, prefix)? {
                entries.push((prefix, node));
            }
        }
        self.lengths.fill(entries);
        Ok(())
    }

    fn change(&mut self, rib: &Rib<A>, prefix: Prefix<A>) -> Result<(), Full> {
        let (len, base) = (prefix.len(), self.shape.base());
        let last = self.maps.len() - 1;
        match self.pushed(len) {
            None => {
                self.set(rib, prefix)?;
                self.set_map(rib, last, prefix.addr().bits(0, base), 1)?;
            }
            Some(level) => {
                let map = self.shape.maps[level];
                self.set_map(rib, level, prefix.addr().bits(0, map), 1 << (map - len))?;
                if level < last {
                    for node in nodes(rib, prefix, base, false) {
                        self.set_map(rib, last, node.addr().bits(0, base), 1)?;
                    }
                }
            }
        }
        for pivot in self.pivots() {
            if pivot < len {
                self.set(rib, Prefix::truncate(prefix.addr(), pivot))?;
            } else {
                for node in nodes(rib, prefix, pivot, false) {
                    self.set(rib, node)?;
                }
            }
        }
        Ok(())
    }

    fn freeze(&self) -> Sail6Large<A, L> {
        let map = |map: &MapBuilder<L>| Map {
            len: map.len,
            bits: map.bits.freeze(),
            slots: map.table.freeze(),
        };
        Sail6Large { maps: self.maps.iter().map(map).collect(), lengths: self.lengths.freeze() }
    }

    fn refresh(&self, idle: &mut Sail6Large<A, L>) {
        for (map, idle) in self.maps.iter().zip(&mut idle.maps) {
            map.bits.refresh(&mut idle.bits);
            map.table.refresh(&mut idle.slots);
        }
        self.lengths.refresh(&mut idle.lengths);
    }

    fn written(&self) -> u64 {
        let maps = self.maps.iter().map(|map| map.bits.written() + map.table.written());
        maps.sum::<u64>() + self.lengths.written()
    }
}
