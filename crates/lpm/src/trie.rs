//! The trie below the map: prefixes to the slots of their values.
//!
//! A multibit trie of stride six with compressed paths. The prefixes within a node are a bitmap
//! and a dense array, as in Tree Bitmap (Eatherton, Varghese, Dittia, "Tree Bitmap: Hardware/Software
//! IP Lookups with Incremental Updates", CCR 34(2), 2004), but numbered in pre-order and from length
//! d + 1 to d + 6 ([`stride`](crate::stride)): so an IPv4 /24 is in the fourth node of its path,
//! and iteration reads a node's values in sequence. A chain of nodes without prefixes and with one
//! child is left out, as in PATRICIA (Morrison, J. ACM 15(4), 1968), so that a node's depth may be
//! any multiple of six below its parent's.
//!
//! ```text
//!   link   children (8)  │ nodes (4)   │ depth (1)         of node i, and at index i of two vectors
//!          a bit a child   first child
//!   node   data (16)     │ addr (A::BITS / 8)      │ values (4)
//!          a bit a         the first `depth` bits    first slot
//!          position                                  of a span
//! ```
//!
//! A path down reads the links alone, of which a cache line has four: those of the upper levels of a
//! full table stay in the second-level cache. Since paths are compressed, a link does not show
//! whether the path is that of the address; the addresses of nodes are compared afterwards, from the
//! last node of the path upwards.
//!
//! A node takes 16 bytes and 24 (IPv4) or 48 (IPv6). Links, nodes and values are in three vectors
//! ([`span`](crate::span)), of which the first two have the same spans; the children of a node are
//! consecutive, as are its values.
//!
//! Invariants:
//! - the root is node 0, at depth 0; its span is never moved;
//! - every other node has a prefix, or two children: n prefixes have at most 2n nodes;
//! - a child's address begins with its parent's, followed by the six bits of its number;
//! - the bits of `addr` beyond the depth are zero.

use fib::{Addr, Prefix};

use crate::span::Spans;
use crate::stride::{LEVELS, STRIDE, below, chunk, depth_of, from, path, position, prefix_at};

/// The node at depth 0.
pub(crate) const ROOT: u32 = 0;

/// The part of a node that leads to its children.
#[derive(Clone, Copy, Default)]
pub(crate) struct Link {
    pub(crate) children: u64,
    pub(crate) nodes: u32,
    depth: u8,
}

impl Link {
    #[inline(always)]
    pub(crate) fn depth(&self) -> u32 {
        self.depth.into()
    }

    /// Returns the index of a child, if there is one.
    #[inline(always)]
    pub(crate) fn child(&self, bits: u32) -> Option<u32> {
        let bit = 1_u64 << bits;
        (self.children & bit != 0).then(|| self.nodes + (self.children & (bit - 1)).count_ones())
    }
}

/// The part of a node that has its prefixes.
#[derive(Clone, Copy, Default)]
pub(crate) struct Node<A> {
    pub(crate) addr: A,
    /// The prefixes, in two words: a word of 128 bits would align nodes of IPv4 to 16 bytes.
    data: [u64; 2],
    pub(crate) values: u32,
}

impl<A: Addr> Node<A> {
    /// Returns the positions of the node's prefixes.
    #[inline(always)]
    pub(crate) fn data(&self) -> u128 {
        u128::from(self.data[1]) << 64 | u128::from(self.data[0])
    }

    fn set_data(&mut self, data: u128) {
        self.data = [data as u64, (data >> 64) as u64];
    }

    /// Returns the slot of the value at a position, which is set.
    #[inline(always)]
    pub(crate) fn slot(&self, position: u32) -> u32 {
        self.values + (self.data() & below(position)).count_ones()
    }

    /// Returns the prefix at a position of a node at this depth.
    #[inline(always)]
    pub(crate) fn prefix(&self, depth: u32, position: u32) -> Prefix<A> {
        let (bits, len) = prefix_at(position);
        let width = STRIDE.min(A::BITS - depth);
        let addr = A::from_bits((bits >> (STRIDE - width)) as usize, depth, width);
        // The bits of one are zeros of the other.
        let addr = A::from_u128(self.addr.to_u128() | addr.to_u128());
        Prefix::truncate(addr, depth + len)
    }
}

/// The place of a prefix that is in the trie.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    node: u32,
    position: u32,
    pub(crate) slot: u32,
}

/// The nodes of a trie.
#[derive(Clone, Copy)]
pub(crate) struct Nodes<'a, A> {
    pub(crate) links: &'a [Link],
    pub(crate) nodes: &'a [Node<A>],
}

#[derive(Clone)]
pub(crate) struct Trie<A, T> {
    links: Spans<Link>,
    nodes: Spans<Node<A>>,
    values: Spans<Option<T>>,
    len: usize,
}

impl<A: Addr, T> Trie<A, T> {
    pub(crate) fn new() -> Self {
        Self { links: Spans::new(), nodes: Spans::new(), values: Spans::new(), len: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Returns the nodes; an empty trie may have none.
    #[inline(always)]
    pub(crate) fn nodes(&self) -> Nodes<'_, A> {
        Nodes { links: self.links.slots(), nodes: self.nodes.slots() }
    }

    /// Returns the value in a slot, which has one.
    #[inline(always)]
    pub(crate) fn value(&self, slot: u32) -> &T {
        match &self.values.slots()[slot as usize] {
            Some(value) => value,
            None => unreachable!("the bitmap of a node names only slots with a value"),
        }
    }

    /// Returns the value in a slot, which has one.
    #[inline(always)]
    pub(crate) fn value_mut(&mut self, slot: u32) -> &mut T {
        match &mut self.values.slots_mut()[slot as usize] {
            Some(value) => value,
            None => unreachable!("the bitmap of a node names only slots with a value"),
        }
    }

    /// Returns the nodes, and all slots of values.
    pub(crate) fn parts_mut(&mut self) -> (Nodes<'_, A>, &mut [Option<T>]) {
        let nodes = Nodes { links: self.links.slots(), nodes: self.nodes.slots() };
        (nodes, self.values.slots_mut())
    }

    /// Returns all slots of values, in no order.
    pub(crate) fn slots(&self) -> &[Option<T>] {
        self.values.slots()
    }

    /// Makes room for `values` further values.
    pub(crate) fn reserve(&mut self, values: usize) {
        self.values.reserve(values);
    }

    pub(crate) fn footprint(&self) -> usize {
        self.links.footprint() + self.nodes.footprint() + self.values.footprint()
    }

    /// Finds the place of a prefix.
    #[inline]
    pub(crate) fn find(&self, prefix: Prefix<A>) -> Option<Place> {
        let (addr, home) = (prefix.addr(), depth_of(prefix.len()));
        let links = self.links.slots();
        let mut at = ROOT;
        let mut link = links.first()?;
        while link.depth() < home {
            at = link.child(chunk(addr, link.depth()))?;
            link = &links[at as usize];
        }
        let node = &self.nodes.slots()[at as usize];
        if link.depth() != home || node.addr != addr.first(home) {
            return None;
        }
        let position = position(chunk(addr, home), prefix.len(), home);
        let is_set = node.data() >> position & 1 != 0;
        is_set.then(|| Place { node: at, position, slot: node.slot(position) })
    }

    /// Finds the longest prefix that covers `addr` and has at most `len` bits.
    #[inline]
    pub(crate) fn longest(&self, addr: A, len: u32) -> Option<(Prefix<A>, u32)> {
        let home = depth_of(len);
        let links = self.links.slots();
        let mut link = links.first()?;
        let mut path_down = [(ROOT, 0_u8); LEVELS];
        let mut count = 1;
        while link.depth() < home {
            let Some(at) = link.child(chunk(addr, link.depth())) else { break };
            link = &links[at as usize];
            if link.depth() > home {
                break;
            }
            path_down[count] = (at, link.depth);
            count += 1;
        }
        // The last node of the path agrees with the address in its first bits, and so do those
        // nodes above it that are not deeper.
        let last = &self.nodes.slots()[path_down[count - 1].0 as usize];
        let common = last.addr.common(addr);
        for &(at, depth) in path_down[..count].iter().rev() {
            let depth = u32::from(depth);
            if depth > common {
                continue;
            }
            let node = &self.nodes.slots()[at as usize];
            let mut matching = node.data() & path(chunk(addr, depth));
            if depth == home {
                let within = chunk(addr.first(len), home);
                matching &= !from(position(within, len, home) + 1);
            }
            if matching != 0 {
                let position = 127 - matching.leading_zeros();
                return Some((node.prefix(depth, position), node.slot(position)));
            }
        }
        None
    }

    /// Puts `value` at `prefix`; returns the slot, and the value that was there.
    pub(crate) fn insert(&mut self, prefix: Prefix<A>, value: T) -> (u32, Option<T>) {
        let at = self.make(prefix) as usize;
        let depth = depth_of(prefix.len());
        let position = position(chunk(prefix.addr(), depth), prefix.len(), depth);
        let node = &mut self.nodes.slots_mut()[at];
        let data = node.data();
        let rank = (data & below(position)).count_ones();
        if data >> position & 1 != 0 {
            let slot = node.values + rank;
            return (slot, self.values.slots_mut()[slot as usize].replace(value));
        }
        let count = data.count_ones() as usize;
        node.values = self.values.insert(node.values, count, rank as usize, Some(value));
        node.set_data(data | 1 << position);
        self.len += 1;
        (node.values + rank, None)
    }

    /// Returns the node for `prefix`, adding it, and a node where its path forks, if it is missing.
    #[inline]
    fn make(&mut self, prefix: Prefix<A>) -> u32 {
        let (addr, home) = (prefix.addr(), depth_of(prefix.len()));
        if self.links.slots().is_empty() {
            self.add(0, 0, 0, Link::default(), Node::default());
        }
        let mut at = ROOT;
        loop {
            let link = &self.links.slots()[at as usize];
            let depth = link.depth();
            if depth == home {
                return at;
            }
            let bits = chunk(addr, depth);
            let Some(next) = link.child(bits) else {
                return self.add_child(at, bits, addr, home);
            };
            let child = self.links.slots()[next as usize];
            // A child that is one level below has the right bits.
            if child.depth() > home || child.depth() > depth + STRIDE {
                let node = self.nodes.slots()[next as usize];
                let common = node.addr.common(addr).min(child.depth());
                if common < child.depth() || child.depth() > home {
                    // A node between the two takes the child's place.
                    let depth = home.min(common / STRIDE * STRIDE);
                    let nodes = self.add(0, 0, 0, child, node);
                    let children = 1 << chunk(node.addr, depth);
                    let between = Node { addr: addr.first(depth), ..Node::default() };
                    self.links.slots_mut()[next as usize] =
                        Link { children, nodes, depth: depth as u8 };
                    self.nodes.slots_mut()[next as usize] = between;
                }
            }
            at = next;
        }
    }

    /// Inserts a node into the span of some others.
    fn add(&mut self, start: u32, count: usize, rank: usize, link: Link, node: Node<A>) -> u32 {
        let links = self.links.insert(start, count, rank, link);
        let nodes = self.nodes.insert(start, count, rank, node);
        debug_assert_eq!(links, nodes, "links and nodes have the same spans");
        links
    }

    fn add_child(&mut self, at: u32, bits: u32, addr: A, depth: u32) -> u32 {
        let Link { children, nodes, .. } = self.links.slots()[at as usize];
        let rank = (children & ((1 << bits) - 1)).count_ones();
        let link = Link { depth: depth as u8, ..Link::default() };
        let node = Node { addr: addr.first(depth), ..Node::default() };
        let nodes = self.add(nodes, children.count_ones() as usize, rank as usize, link, node);
        let parent = &mut self.links.slots_mut()[at as usize];
        parent.nodes = nodes;
        parent.children |= 1 << bits;
        nodes + rank
    }

    /// Removes a prefix; returns its value.
    pub(crate) fn remove(&mut self, prefix: Prefix<A>) -> Option<T> {
        let place = self.find(prefix)?;
        Some(self.remove_at(prefix, place))
    }

    /// Removes a prefix, whose place this is; returns its value.
    pub(crate) fn remove_at(&mut self, prefix: Prefix<A>, place: Place) -> T {
        let nodes = self.nodes.slots_mut();
        let node = &mut nodes[place.node as usize];
        let (data, rank) = (node.data(), place.slot - node.values);
        node.set_data(data & !(1 << place.position));
        let count = data.count_ones() as usize;
        let (value, values) = self.values.remove(node.values, count, rank as usize);
        node.values = values;
        self.len -= 1;
        let is_empty = node.data() == 0 && place.node != ROOT;
        if is_empty && self.links.slots()[place.node as usize].children.count_ones() < 2 {
            self.prune(prefix.addr(), place.node);
        }
        match value {
            Some(value) => value,
            None => unreachable!("the bitmap of a node names only slots with a value"),
        }
    }

    /// Removes a node without prefixes and with one child or none, below the root.
    fn prune(&mut self, addr: A, node: u32) {
        if self.links.slots()[node as usize].children != 0 {
            self.skip(node);
            return;
        }
        let (mut parent, mut bits) = (ROOT, 0);
        let mut at = ROOT;
        while at != node {
            let link = &self.links.slots()[at as usize];
            bits = chunk(addr, link.depth());
            parent = at;
            at = link.child(bits).expect("the path to a node has its parents");
        }
        let Link { children, nodes, .. } = self.links.slots()[parent as usize];
        let rank = (children & ((1 << bits) - 1)).count_ones();
        let (_, _, nodes) = self.take(nodes, children.count_ones() as usize, rank as usize);
        let above = &mut self.links.slots_mut()[parent as usize];
        above.nodes = nodes;
        above.children &= !(1 << bits);
        let has_one = above.children.count_ones() == 1;
        if parent != ROOT && has_one && self.nodes.slots()[parent as usize].data() == 0 {
            self.skip(parent);
        }
    }

    /// Puts the one child of a node into the node's place.
    fn skip(&mut self, at: u32) {
        let nodes = self.links.slots()[at as usize].nodes;
        let (link, node, _) = self.take(nodes, 1, 0);
        self.links.slots_mut()[at as usize] = link;
        self.nodes.slots_mut()[at as usize] = node;
    }

    /// Removes a node of a span; returns it, and the span's new start.
    fn take(&mut self, start: u32, count: usize, rank: usize) -> (Link, Node<A>, u32) {
        let (link, links) = self.links.remove(start, count, rank);
        let (node, nodes) = self.nodes.remove(start, count, rank);
        debug_assert_eq!(links, nodes, "links and nodes have the same spans");
        (link, node, links)
    }

    /// Checks the invariants, and that no span is shared or lost.
    #[cfg(test)]
    pub(crate) fn check(&self) {
        let mut values = 0;
        let mut stack = alloc::vec::Vec::new();
        stack.extend((!self.links.slots().is_empty()).then_some(ROOT));
        while let Some(at) = stack.pop() {
            let (link, node) = (&self.links.slots()[at as usize], &self.nodes.slots()[at as usize]);
            let depth = link.depth();
            assert_eq!(node.addr, node.addr.first(depth));
            assert_eq!(depth % STRIDE, 0);
            let (data, children) = (node.data().count_ones(), link.children.count_ones());
            assert!(at == ROOT || data > 0 || children > 1, "a node without a purpose");
            assert!(at == ROOT || node.data() & 1 == 0, "position 0 is the root's");
            for slot in node.values..node.values + data {
                assert!(self.values.slots()[slot as usize].is_some());
            }
            values += data as usize;
            for bits in (0..64).filter(|bits| link.children >> bits & 1 != 0) {
                let index = link.child(bits).unwrap();
                let child = &self.nodes.slots()[index as usize];
                assert!(self.links.slots()[index as usize].depth() > depth);
                assert!(node.addr.common(child.addr) >= depth);
                assert_eq!(chunk(child.addr, depth), bits);
                stack.push(index);
            }
        }
        assert_eq!(values, self.len);
        assert_eq!(self.values.slots().iter().flatten().count(), self.len);
    }
}
