//! Builds a tree bitmap, and changes it one route at a time.
//!
//! ```text
//!   add 10*, of one node:      internal  * 0         results  A B        old block: a hole
//!                              internal  * 0 10      results  A B C      new block
//!                              children  untouched
//! ```
//!
//! A change walks down to the node in which the route ends, making those that are
//! missing, sets or clears one bit and stores that node's results again, one longer or
//! shorter: nothing else moves, and what a block left is a hole for the next of its
//! size (`arena.rs`). A node that is added or removed moves its siblings likewise. On the way up,
//! each node becomes an end node or ceases to be one.
//!
//! Routes shorter than the initial array's bits are kept in a small [`Rib`] and swept
//! into its results.
//!
//! A change reads a node a stride and writes at most two blocks of 2^stride items for
//! each node that comes or goes. A whole build goes through the routes once, in
//! order, a node before its descendants and its children side by side.

use alloc::vec::Vec;

use super::TreeBitmap;
use super::node::{Bits, Node, below};
use crate::arena::Arena;
use crate::engine::{Leaf, RouteBuilder};
use crate::runs::sweep_block;
use crate::{Addr, Full, Hop, Prefix, Rib};

/// The builder of [`TreeBitmap`].
#[derive(Debug)]
pub struct TreeBitmapBuilder<A: Addr, W: Bits, L: Leaf> {
    initial: u32,
    /// The routes that are shorter than `initial`.
    short: Rib<A>,
    nodes: Arena<Node<W>>,
    results: Arena<L>,
}

impl<A: Addr, W: Bits, L: Leaf> TreeBitmapBuilder<A, W, L> {
    /// Starts an empty table whose initial array suits the family.
    pub fn new() -> Self {
        // The length of most routes, and the most bits worth an array.
        let (most, limit) = match A::BITS {
            32 => (24, 15),
            64.. => (48, 15),
            bits => (3 * bits / 4, bits / 2),
        };
        // That length shall be the last of a node's internal ones.
        let last = most + 1 - W::STRIDE.min(most);
        let initial = (0..=limit).rev().find(|i| last.abs_diff(*i).is_multiple_of(W::STRIDE));
        Self::with_initial(initial.unwrap_or(0))
    }

    /// Starts an empty table with an initial array for `initial` bits; for 0, that is
    /// the root node, and the scheme is the paper's without its optimization.
    ///
    /// # Panics
    ///
    /// If `initial` is more than 24, or not less than the bits of an address.
    pub fn with_initial(initial: u32) -> Self {
        assert!(initial <= 24 && initial < A::BITS, "an initial array for {initial} bits");
        let mut builder =
            Self { initial, short: Rib::new(), nodes: Arena::new(), results: Arena::new() };
        builder.nodes.store(&alloc::vec![Node::empty(); 1 << initial]);
        builder.results.store(&alloc::vec![L::default(); 1 << initial]);
        builder
    }

    /// Rebuilds the results of short routes within `block`.
    fn lay_short(&mut self, block: Prefix<A>) -> Result<(), Full> {
        let mut runs = Vec::new();
        sweep_block(&self.short, block, &mut runs);
        let mut first = block.addr().bits(0, self.initial);
        let mut row = Vec::new();
        let starts = runs.iter().skip(1).map(|run| run.start.bits(0, self.initial));
        let ends = starts.chain([block.last().bits(0, self.initial) + 1]);
        for (run, end) in runs.iter().zip(ends) {
            row.resize(row.len() + end - first, L::pack(run.hop)?);
            first = end;
        }
        self.results.write(block.addr().bits(0, self.initial), &row);
        Ok(())
    }

    /// Adds a route no shorter than the initial bits, or changes its result.
    fn insert(&mut self, prefix: Prefix<A>, result: L) -> Result<(), Full> {
        let addr = prefix.addr();
        let (mut at, mut depth) = (addr.bits(0, self.initial), self.initial);
        loop {
            let left = prefix.len() - depth;
            if left < W::STRIDE {
                return self.set_internal(at, 1 << left | addr.bits(depth, left), result);
            }
            let chunk = addr.bits(depth, W::STRIDE);
            if self.nodes[at].is_end() {
                if left == W::STRIDE {
                    return self.set_last(at, chunk, result);
                }
                self.open(at)?;
            }
            at = match self.nodes[at].child(chunk) {
                Some(child) => child,
                None => self.bear(at, chunk)?,
            };
            depth += W::STRIDE;
        }
    }

    /// Takes a route no shorter than the initial bits out, if it is there.
    fn remove(&mut self, prefix: Prefix<A>) -> Result<(), Full> {
        let addr = prefix.addr();
        let (mut at, mut depth) = (addr.bits(0, self.initial), self.initial);
        let mut parents = Vec::new();
        let node = loop {
            let left = prefix.len() - depth;
            let node = self.nodes[at];
            let (internal, external) = (node.internal(), node.external());
            if left < W::STRIDE {
                let position = 1 << left | addr.bits(depth, left);
                if internal >> position & 1 == 0 {
                    return Ok(());
                }
                let rank = below(internal, position).count_ones() as usize;
                let less = Node::new(node.is_end(), internal & !(1 << position), external);
                break self.drop_result(node, rank, less)?;
            }
            let chunk = addr.bits(depth, W::STRIDE);
            if node.is_end() {
                if left > W::STRIDE || external >> chunk & 1 == 0 {
                    return Ok(());
                }
                let rank = internal.count_ones() + below(external, chunk).count_ones();
                let less = Node::new(true, internal, external & !(1 << chunk));
                break self.drop_result(node, rank as usize, less)?;
            }
            let Some(child) = node.child(chunk) else { return Ok(()) };
            parents.push((at, chunk));
            at = child;
            depth += W::STRIDE;
        };
        self.nodes.write(at, &[node]);
        self.store_path(at, parents)
    }

    /// Takes nodes away that have become empty, and makes those end nodes whose
    /// children have become null, from `at` up through its `parents`.
    fn store_path(&mut self, mut at: usize, mut parents: Vec<(usize, usize)>) -> Result<(), Full> {
        while let Some((parent, chunk)) = parents.pop() {
            if self.nodes[at].is_empty() {
                self.bury(parent, chunk)?;
            } else if !self.nodes[at].is_null() {
                return Ok(());
            }
            if !self.children_of(self.nodes[parent]).iter().all(|child| child.is_null()) {
                return Ok(());
            }
            self.close(parent)?;
            at = parent;
        }
        Ok(())
    }

    /// Sets the result of a route that ends within the node.
    fn set_internal(&mut self, at: usize, position: usize, result: L) -> Result<(), Full> {
        let node = self.nodes[at];
        let (internal, external) = (node.internal(), node.external());
        let rank = below(internal, position).count_ones() as usize;
        let more = Node::new(node.is_end(), internal | 1 << position, external);
        self.set_result(at, rank, more, result)
    }

    /// Sets the result of a route that ends with an end node's last row.
    fn set_last(&mut self, at: usize, chunk: usize, result: L) -> Result<(), Full> {
        let node = self.nodes[at];
        let (internal, external) = (node.internal(), node.external());
        let rank = internal.count_ones() + below(external, chunk).count_ones();
        let more = Node::new(true, internal, external | 1 << chunk);
        self.set_result(at, rank as usize, more, result)
    }

    /// Writes `result` as the node's result of that rank; `more` has the bitmaps with
    /// it, whether it was there before or not.
    fn set_result(&mut self, at: usize, rank: usize, more: Node<W>, result: L) -> Result<(), Full> {
        let node = self.nodes[at];
        if more.routes() == node.routes() {
            self.results.write(node.results as usize + rank, &[result]);
            return Ok(());
        }
        let mut block = self.results_of(node).to_vec();
        block.insert(rank, result);
        let fresh = self.replace_results(node, more, &block)?;
        self.nodes.write(at, &[fresh]);
        Ok(())
    }

    /// Frees the node's result of that rank; returns `less`, the bitmaps without it,
    /// with its pointers.
    fn drop_result(&mut self, node: Node<W>, rank: usize, less: Node<W>) -> Result<Node<W>, Full> {
        let mut block = self.results_of(node).to_vec();
        block.remove(rank);
        self.replace_results(node, less, &block)
    }

    /// Stores `block` in place of the node's results; returns `bitmaps` with pointers.
    fn replace_results(
        &mut self,
        node: Node<W>,
        bitmaps: Node<W>,
        block: &[L],
    ) -> Result<Node<W>, Full> {
        let results = self.results.replace(node.results as usize, node.routes(), block);
        Ok(bitmaps.pointing(node.children, pointer(results)?))
    }

    fn results_of(&self, node: Node<W>) -> &[L] {
        self.results.get(node.results as usize, node.routes())
    }

    /// Adds an empty child to a node that is no end node; returns its place.
    fn bear(&mut self, at: usize, chunk: usize) -> Result<usize, Full> {
        let node = self.nodes[at];
        let rank = below(node.external(), chunk).count_ones() as usize;
        let mut block = self.children_of(node).to_vec();
        block.insert(rank, Node::empty());
        let external = node.external() | 1 << chunk;
        Ok(self.replace_children(at, external, &block)? + rank)
    }

    /// Takes an empty child away.
    fn bury(&mut self, at: usize, chunk: usize) -> Result<(), Full> {
        let node = self.nodes[at];
        let rank = below(node.external(), chunk).count_ones() as usize;
        let mut block = self.children_of(node).to_vec();
        block.remove(rank);
        self.replace_children(at, node.external() & !(1 << chunk), &block)?;
        Ok(())
    }

    /// Stores `block` in place of the node's children; returns where.
    fn replace_children(
        &mut self,
        at: usize,
        external: u64,
        block: &[Node<W>],
    ) -> Result<usize, Full> {
        let node = self.nodes[at];
        let children = self.nodes.replace(node.children as usize, node.fanout(), block);
        let bitmaps = Node::new(false, node.internal(), external);
        let fresh = bitmaps.pointing(pointer(children)?, node.results);
        self.nodes.write(at, &[fresh]);
        Ok(children)
    }

    fn children_of(&self, node: Node<W>) -> &[Node<W>] {
        self.nodes.get(node.children as usize, node.fanout())
    }

    /// Makes an end node one with children: its last row become null nodes.
    fn open(&mut self, at: usize) -> Result<(), Full> {
        let node = self.nodes[at];
        let all = self.results_of(node).to_vec();
        let (own, last) = all.split_at(node.internal().count_ones() as usize);
        let mut children = Vec::with_capacity(last.len());
        let bitmaps = Node::new(false, node.internal(), node.external());
        let mut fresh = self.replace_results(node, bitmaps, own)?;
        for &result in last {
            let results = pointer(self.results.store(&[result]))?;
            children.push(Node::new(true, 1 << 1, 0).pointing(0, results));
        }
        fresh.children = pointer(self.nodes.store(&children))?;
        self.nodes.write(at, &[fresh]);
        Ok(())
    }

    /// Makes a node whose children are null, or none, an end node.
    fn close(&mut self, at: usize) -> Result<(), Full> {
        let node = self.nodes[at];
        let mut all = self.results_of(node).to_vec();
        for child in self.children_of(node).to_vec() {
            all.extend_from_slice(self.results_of(child));
            self.results.free(child.results as usize, child.routes());
        }
        self.nodes.free(node.children as usize, node.fanout());
        let bitmaps = Node::new(true, node.internal(), node.external());
        let fresh = self.replace_results(node, bitmaps, &all)?;
        self.nodes.write(at, &[fresh.pointing(0, fresh.results)]);
        Ok(())
    }
}

impl<A: Addr, W: Bits, L: Leaf> Default for TreeBitmapBuilder<A, W, L> {
    fn default() -> Self {
        Self::new()
    }
}

/// A tree that is being planted: both arrays only grow.
struct Plant<W, L> {
    nodes: Vec<Node<W>>,
    results: Vec<L>,
}

impl<W: Bits, L: Leaf> Plant<W, L> {
    /// Plants at `at` the node for `routes`, which are in order, share their first
    /// `depth` bits and are no shorter.
    fn plant<A: Addr>(
        &mut self,
        at: usize,
        depth: u32,
        routes: &[(Prefix<A>, Hop)],
    ) -> Result<(), Full> {
        let within = |prefix: Prefix<A>| prefix.len() < depth + W::STRIDE;
        let chunk = |prefix: Prefix<A>| prefix.addr().bits(depth, W::STRIDE);
        let mut own = Vec::new();
        let mut parts = Vec::new();
        let mut rest = routes;
        while let Some(&(prefix, hop)) = rest.first() {
            if within(prefix) {
                let left = prefix.len() - depth;
                own.push((1 << left | prefix.addr().bits(depth, left), hop));
                rest = &rest[1..];
                continue;
            }
            // In order, the routes that share a child are adjacent.
            let child = chunk(prefix);
            let same = |other: &&(Prefix<A>, Hop)| !within(other.0) && chunk(other.0) == child;
            let (part, after) = rest.split_at(rest.iter().take_while(same).count());
            parts.push((child, part));
            rest = after;
        }
        own.sort_unstable();
        let internal = own.iter().fold(0, |map, (position, _)| map | 1u64 << position);
        let external = parts.iter().fold(0, |map, (chunk, _)| map | 1u64 << chunk);
        let null = |part: &[(Prefix<A>, Hop)]| matches!(part, [(only, _)] if only.len() == depth + W::STRIDE);
        let end = parts.iter().all(|(_, part)| null(part));
        let mut node = Node::new(end, internal, external);
        node.results = pointer(self.results.len())?;
        let last = parts.iter().take_while(|_| end).flat_map(|(_, part)| part.iter());
        for &hop in own.iter().map(|(_, hop)| hop).chain(last.map(|(_, hop)| hop)) {
            self.results.push(L::pack(hop)?);
        }
        if !end {
            let first = self.nodes.len();
            node.children = pointer(first)?;
            self.nodes.resize(first + parts.len(), Node::empty());
            for (i, (_, part)) in parts.iter().enumerate() {
                self.plant(first + i, depth + W::STRIDE, part)?;
            }
        }
        self.nodes[at] = node;
        Ok(())
    }
}

impl<A: Addr, W: Bits, L: Leaf> RouteBuilder<A> for TreeBitmapBuilder<A, W, L> {
    type Engine = TreeBitmap<W, L>;

    fn fill(&mut self, rib: &Rib<A>) -> Result<(), Full> {
        let fresh = Self::with_initial(self.initial);
        let mut plant = Plant { nodes: fresh.nodes.to_vec(), results: fresh.results.to_vec() };
        let routes: Vec<(Prefix<A>, Hop)> =
            rib.iter().filter(|(prefix, _)| prefix.len() >= self.initial).collect();
        let index = |route: &(Prefix<A>, Hop)| route.0.addr().bits(0, self.initial);
        for part in routes.chunk_by(|a, b| index(a) == index(b)) {
            plant.plant(index(&part[0]), self.initial, part)?;
        }
        let short = rib.iter().filter(|(prefix, _)| prefix.len() < fresh.initial);
        *self = Self { short: Rib::from_sorted(short), ..fresh };
        self.nodes.write(0, &plant.nodes);
        self.results.write(0, &plant.results);
        self.lay_short(Prefix::ALL)
    }

    fn change(&mut self, rib: &Rib<A>, prefix: Prefix<A>) -> Result<(), Full> {
        let hop = rib.get(prefix);
        if prefix.len() < self.initial {
            match hop {
                Some(hop) => self.short.insert(prefix, hop),
                None => self.short.remove(prefix),
            };
            self.short.mark_clean();
            return self.lay_short(prefix);
        }
        match hop {
            Some(hop) => self.insert(prefix, L::pack(hop)?),
            None => self.remove(prefix),
        }
    }

    fn freeze(&self) -> TreeBitmap<W, L> {
        TreeBitmap {
            initial: self.initial,
            nodes: self.nodes.freeze(),
            results: self.results.freeze(),
        }
    }

    fn refresh(&self, idle: &mut TreeBitmap<W, L>) {
        self.nodes.refresh(&mut idle.nodes);
        self.results.refresh(&mut idle.results);
    }

    fn written(&self) -> u64 {
        self.nodes.written() + self.results.written()
    }

    fn holes(&self) -> usize {
        self.nodes.holes() + self.results.holes()
    }
}

/// Narrows a place to the width of a node's pointer.
fn pointer(at: usize) -> Result<u32, Full> {
    let limit = u64::from(u32::MAX) + 1;
    u32::try_from(at).map_err(|_| Full { what: "items of an array", limit, seen: at as u64 + 1 })
}

#[cfg(test)]
mod tests {
    use super::{Bits, TreeBitmapBuilder};
    use crate::{Addr, Engine, Hop, Prefix, Rib, RouteBuilder};

    /// After any changes the tree is as large as a fresh one and answers alike.
    fn changes_are_rebuilds<A: Addr, W: Bits>(initial: u32, seed: u64) {
        let mut rib: Rib<A> = Rib::new();
        let mut changed = TreeBitmapBuilder::<A, W, u16>::with_initial(initial);
        let mut idle = changed.freeze();
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut next = move || rng.u64(..);
        for step in 0..2_000 {
            let len = (next() % u64::from(A::BITS + 1)) as u32;
            // Few addresses, so that routes nest, meet and go again.
            let addr = A::from_u128(u128::from(next() & next() & next()));
            let prefix = Prefix::truncate(addr, len);
            if next() % 5 < 2 {
                rib.remove(prefix);
            } else {
                rib.insert(prefix, Hop(next() as u32 % 1000));
            }
            changed.change(&rib, prefix).unwrap();
            if step % 500 == 250 {
                // Go on from a planted tree, too.
                changed.fill(&rib).unwrap();
                idle = changed.freeze();
            }
            let mut fresh = TreeBitmapBuilder::<A, W, u16>::with_initial(initial);
            fresh.fill(&rib).unwrap();
            let used = |builder: &TreeBitmapBuilder<A, W, u16>| {
                (builder.nodes.used(), builder.results.used())
            };
            assert_eq!(used(&changed), used(&fresh), "step {step}, {prefix}");
            if step % 8 == 0 {
                changed.refresh(&mut idle);
                let fresh = fresh.freeze();
                for low in 0..1u128 << A::BITS {
                    let addr = A::from_u128(low);
                    assert_eq!(Engine::lookup(&idle, addr), Engine::lookup(&fresh, addr));
                }
            }
        }
    }

    #[test]
    fn any_changes_leave_the_tree_of_a_fresh_build() {
        for initial in 0..6 {
            changes_are_rebuilds::<u8, u16>(initial, 3 + u64::from(initial));
            changes_are_rebuilds::<u8, u32>(initial, 13 + u64::from(initial));
            changes_are_rebuilds::<u8, u64>(initial, 23 + u64::from(initial));
        }
        changes_are_rebuilds::<u16, u16>(0, 5);
        changes_are_rebuilds::<u16, u64>(3, 6);
    }

    #[test]
    fn the_initial_array_ends_where_nodes_suit_the_commonest_length() {
        let v4 = [
            TreeBitmapBuilder::<u32, u16, u16>::new().initial,
            TreeBitmapBuilder::<u32, u32, u16>::new().initial,
            TreeBitmapBuilder::<u32, u64, u16>::new().initial,
        ];
        let v6 = [
            TreeBitmapBuilder::<u128, u16, u16>::new().initial,
            TreeBitmapBuilder::<u128, u32, u16>::new().initial,
            TreeBitmapBuilder::<u128, u64, u16>::new().initial,
        ];
        assert_eq!((v4, v6), ([13, 15, 13], [13, 14, 13]));
    }
}
