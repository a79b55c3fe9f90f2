//! The routing table: every route, in order, with the set of changed prefixes.
//!
//! ```text
//! feed ─► Rib ─► dirty blocks ─► runs ─► engine builder
//!
//! routes               nodes (● a route, ○ a fork without a route)
//! 10.0.0.0/8                    ○ 0/0          the root, always there
//! 10.1.0.0/16                   │0
//! 10.1.128.0/17                 ● 10/8
//! 10.2.0.0/16                   │0
//!                               ○ 10.0/14      10.1 and 10.2 differ below
//!                             0╱ ╲1
//!                     10.1/16 ●   ● 10.2/16
//!                              ╲1
//!                               ● 10.1.128/17
//! ```
//!
//! A binary trie in which a chain of nodes with one child and no route is
//! compressed into one link (Morrison, "PATRICIA", J. ACM 15(4), 1968; with the
//! prefix kept whole in each node as in Sklower, "A Tree-Based Packet Routing
//! Table for Berkeley Unix", USENIX Winter 1991). Packets are not looked up in it: it is the
//! source from which an [`Engine`](crate::Engine) is laid out, and so it is designed for
//! ordered walks, for small updates and for memory.
//!
//! Nodes live in one `Vec` and link to each other by `u32` index, so that a link
//! is half a pointer and a clone is a copy; freed ones are chained through their
//! left link and used again. A node of IPv4 takes 20 bytes, of IPv6 32:
//!
//! ```text
//! addr (A::BITS / 8) │ child 0 (4) │ child 1 (4) │ hop (4) │ len (1) │ routed (1)
//! ```
//!
//! Invariants, which the unit tests check after every operation:
//! - a child's prefix is longer than its parent's and lies in it, on the side of
//!   the bit that follows the parent's;
//! - a node that is neither a route nor the root has two children, so that n
//!   routes take at most 2n nodes and a walk down passes at most `A::BITS + 1`;
//! - pre-order is the order of [`Prefix`].
//!
//! A route to [`Hop::NONE`] excludes its addresses from a shorter route.

use alloc::vec::Vec;
use core::fmt;
use core::mem;

use hashbrown::HashSet;

use crate::table::use_huge_pages;
use crate::{Addr, Hop, Prefix};

mod sorted;
#[cfg(test)]
mod tests;
mod walk;

pub use walk::{Covering, Walk};

/// The node of the whole space. It has no parent, so that its index as the link to a child
/// means that there is no child.
const ROOT: u32 = 0;
const NIL: u32 = ROOT;

#[derive(Clone)]
struct Node<A> {
    addr: A,
    child: [u32; 2],
    hop: Hop,
    len: u8,
    routed: bool,
}

impl<A: Addr> Node<A> {
    fn new(prefix: Prefix<A>) -> Self {
        let len = prefix.len() as u8;
        Self { addr: prefix.addr(), child: [NIL; 2], hop: Hop::NONE, len, routed: false }
    }

    fn prefix(&self) -> Prefix<A> {
        Prefix::truncate(self.addr, self.len.into())
    }

    /// Returns the side of the child that may hold `addr`, which lies in this node.
    fn side(&self, addr: A) -> usize {
        addr.bits(self.len.into(), 1)
    }

    fn covers(&self, prefix: Prefix<A>) -> bool {
        let len = u32::from(self.len);
        len <= prefix.len() && len <= self.addr.common(prefix.addr())
    }

    fn route(&self) -> Option<(Prefix<A>, Hop)> {
        self.routed.then(|| (self.prefix(), self.hop))
    }
}

/// An ordered set of routes that records which of them have changed.
///
/// # Examples
///
/// ```
/// use fingerpost_fib::{Hop, Prefix, Rib};
/// let p = |text: &str| text.parse::<Prefix<u32>>().unwrap();
/// let mut rib = Rib::from_sorted([(p("10.0.0.0/8"), Hop(1)), (p("10.1.2.0/24"), Hop(2))]);
/// rib.insert(p("10.1.0.0/16"), Hop(3));
/// assert_eq!(rib.longest(0x0a01_0001), Some((p("10.1.0.0/16"), Hop(3))));
/// assert_eq!(rib.take_dirty(12), [p("10.0.0.0/12")]);
/// ```
#[derive(Clone)]
pub struct Rib<A> {
    nodes: Vec<Node<A>>,
    /// The first of the freed nodes, chained by `child[0]`; `NIL` ends the chain.
    free: u32,
    freed: usize,
    routes: usize,
    dirty: HashSet<Prefix<A>>,
}

impl<A: Addr> Rib<A> {
    /// Makes an empty table.
    pub fn new() -> Self {
        let nodes = alloc::vec![Node::new(Prefix::ALL)];
        Self { nodes, free: NIL, freed: 0, routes: 0, dirty: HashSet::new() }
    }

    /// Adds a route or changes its hop; returns the hop it had.
    ///
    /// # Panics
    ///
    /// If there would be 2^32 nodes; they would take over 64 GiB.
    ///
    /// # Complexity
    ///
    /// O(`A::BITS`), as for [`remove`](Self::remove), [`get`](Self::get) and
    /// [`longest`](Self::longest).
    pub fn insert(&mut self, prefix: Prefix<A>, hop: Hop) -> Option<Hop> {
        let at = self.make(prefix);
        let old = self.set(at, hop);
        if old != Some(hop) {
            self.dirty.insert(prefix);
        }
        old
    }

    /// Removes a route; returns the hop it had, `None` if there was no such route.
    pub fn remove(&mut self, prefix: Prefix<A>) -> Option<Hop> {
        let (mut above, mut parent, mut at) = (ROOT, ROOT, ROOT);
        while let Some(next) = self.step(at, prefix) {
            (above, parent, at) = (parent, at, next);
        }
        let node = &mut self.nodes[at as usize];
        if u32::from(node.len) != prefix.len() || !node.routed {
            return None;
        }
        node.routed = false;
        let hop = mem::take(&mut node.hop);
        self.routes -= 1;
        self.dirty.insert(prefix);
        // The parent of a removed leaf may be a fork with one child now.
        self.prune(parent, at);
        self.prune(above, parent);
        Some(hop)
    }

    /// Returns the hop of the route of exactly this prefix.
    pub fn get(&self, prefix: Prefix<A>) -> Option<Hop> {
        let node = &self.nodes[self.nearest(prefix) as usize];
        (node.routed && u32::from(node.len) == prefix.len()).then_some(node.hop)
    }

    /// Returns the longest route that holds `addr`.
    pub fn longest(&self, addr: A) -> Option<(Prefix<A>, Hop)> {
        self.covering(Prefix::truncate(addr, A::BITS)).last()
    }

    /// Returns the longest route that is strictly shorter than `block` and
    /// covers it: [`sweep`](crate::runs::sweep) needs it for the addresses of the block that no
    /// route within the block holds.
    pub fn cover(&self, block: Prefix<A>) -> Option<(Prefix<A>, Hop)> {
        self.covering(block).take_while(|(prefix, _)| prefix.len() < block.len()).last()
    }

    /// Iterates over the routes that cover `prefix`, shortest first, its own included.
    pub fn covering(&self, prefix: Prefix<A>) -> Covering<'_, A> {
        Covering::new(self, prefix)
    }

    /// Iterates over the routes that `prefix` covers, in order, its own included.
    ///
    /// # Complexity
    ///
    /// O(`A::BITS` + n) for n routes, without allocation.
    pub fn covered(&self, prefix: Prefix<A>) -> Walk<'_, A> {
        let at = self.nearest(prefix);
        let node = &self.nodes[at as usize];
        if u32::from(node.len) == prefix.len() {
            return Walk::new(&self.nodes, Some(at));
        }
        // The next node down may be the first of those within the prefix.
        let next = node.child[node.side(prefix.addr())];
        let within = next != NIL && prefix.covers(self.nodes[next as usize].prefix());
        Walk::new(&self.nodes, within.then_some(next))
    }

    /// Returns the hop of [`cover`](Self::cover), or [`Hop::NONE`], and the routes of
    /// [`covered`](Self::covered), in one descent.
    pub(crate) fn block(&self, block: Prefix<A>) -> (Hop, Walk<'_, A>) {
        let (mut at, mut cover) = (ROOT, Hop::NONE);
        loop {
            let node = &self.nodes[at as usize];
            if u32::from(node.len) == block.len() {
                return (cover, Walk::new(&self.nodes, Some(at)));
            }
            if node.routed {
                cover = node.hop;
            }
            let next = node.child[node.side(block.addr())];
            if next == NIL {
                return (cover, Walk::new(&self.nodes, None));
            }
            let child = &self.nodes[next as usize];
            if !child.covers(block) {
                // It may be the first of those within the block, or lie beside it.
                let within = block.covers(child.prefix());
                return (cover, Walk::new(&self.nodes, within.then_some(next)));
            }
            at = next;
        }
    }

    /// Iterates over all routes in order.
    pub fn iter(&self) -> Walk<'_, A> {
        Walk::new(&self.nodes, Some(ROOT))
    }

    /// Prefetches the nodes on the paths to `prefixes`. A caller that is about to insert, remove
    /// or walk many of them would wait for memory at every node; this waits for several nodes at
    /// once. It changes nothing.
    ///
    /// # Examples
    ///
    /// ```
    /// use fingerpost_fib::{Hop, Prefix, Rib};
    /// let mut rib: Rib<u32> = Rib::new();
    /// let batch: [Prefix<u32>; 2] = ["10.0.0.0/8".parse()?, "192.0.2.0/24".parse()?];
    /// rib.prepare(&batch);
    /// batch.map(|prefix| rib.insert(prefix, Hop(1)));
    /// # Ok::<(), fingerpost_fib::BadPrefix>(())
    /// ```
    pub fn prepare(&self, prefixes: &[Prefix<A>]) {
        walk::prefetch_paths(&self.nodes, prefixes);
    }

    /// Returns the number of routes.
    pub fn len(&self) -> usize {
        self.routes
    }

    /// Returns whether the table has no routes.
    pub fn is_empty(&self) -> bool {
        self.routes == 0
    }

    /// Returns the number of prefixes that have changed since the changes were last taken.
    ///
    /// A prefix counts once however often it changes, also if its route is as it was.
    pub fn dirty_len(&self) -> usize {
        self.dirty.len()
    }

    /// Takes the changes as the blocks to be laid out again: each changed prefix, cut to at most
    /// `len` bits, in order, and none within another.
    ///
    /// # Complexity
    ///
    /// O(d log d) for d changed prefixes.
    pub fn take_dirty(&mut self, len: u32) -> Vec<Prefix<A>> {
        // Taken and not drained: draining would scan a set that was once large, and keep its
        // memory, for every small change afterwards.
        let dirty = mem::take(&mut self.dirty);
        let cut = |prefix: Prefix<A>| Prefix::truncate(prefix.addr(), len.min(prefix.len()));
        let mut blocks: Vec<_> = dirty.into_iter().map(cut).collect();
        blocks.sort_unstable();
        // The blocks that a block covers follow it directly.
        blocks.dedup_by(|later, earlier| earlier.covers(*later));
        blocks
    }

    /// Takes the changes one by one: every changed prefix, in order.
    ///
    /// # Complexity
    ///
    /// O(d log d) for d changed prefixes.
    pub fn take_changed(&mut self) -> Vec<Prefix<A>> {
        let mut changed: Vec<_> = mem::take(&mut self.dirty).into_iter().collect();
        changed.sort_unstable();
        changed
    }

    /// Discards the recorded changes, after the table was laid out whole.
    ///
    /// Single changes at random places follow, for which a large table is put on huge pages.
    pub fn mark_clean(&mut self) {
        self.dirty = HashSet::new();
        use_huge_pages(&self.nodes);
    }

    /// Returns the bytes held on the heap.
    pub fn footprint(&self) -> usize {
        self.nodes.capacity() * size_of::<Node<A>>() + self.dirty.allocation_size()
    }

    /// Returns the child of `at` on the path to `prefix`, if the child covers it.
    #[inline]
    fn step(&self, at: u32, prefix: Prefix<A>) -> Option<u32> {
        let node = &self.nodes[at as usize];
        if u32::from(node.len) >= prefix.len() {
            return None;
        }
        let next = node.child[node.side(prefix.addr())];
        (next != NIL && self.nodes[next as usize].covers(prefix)).then_some(next)
    }

    /// Returns the longest node, route or not, that covers `prefix`.
    fn nearest(&self, prefix: Prefix<A>) -> u32 {
        let mut at = ROOT;
        while let Some(next) = self.step(at, prefix) {
            at = next;
        }
        at
    }

    /// Makes a node a route to `hop`; returns the hop it had.
    fn set(&mut self, at: u32, hop: Hop) -> Option<Hop> {
        let node = &mut self.nodes[at as usize];
        let old = node.routed.then_some(node.hop);
        (node.routed, node.hop) = (true, hop);
        self.routes += usize::from(old.is_none());
        old
    }

    /// Returns the node of `prefix`, adding it (and a fork) if it is missing.
    fn make(&mut self, prefix: Prefix<A>) -> u32 {
        let at = self.nearest(prefix);
        let node = &self.nodes[at as usize];
        if u32::from(node.len) == prefix.len() {
            return at;
        }
        let side = node.side(prefix.addr());
        let rival = node.child[side];
        let new = self.alloc(prefix);
        let mut top = new;
        if rival != NIL {
            let addr = self.nodes[rival as usize].addr;
            let split = addr.common(prefix.addr()).min(prefix.len());
            if split < prefix.len() {
                top = self.alloc(Prefix::truncate(addr, split));
                self.link(top, new);
            }
            self.link(top, rival);
        }
        self.nodes[at as usize].child[side] = top;
        new
    }

    /// Links `child` below `parent`, on its side.
    fn link(&mut self, parent: u32, child: u32) {
        let addr = self.nodes[child as usize].addr;
        let parent = &mut self.nodes[parent as usize];
        parent.child[parent.side(addr)] = child;
    }

    /// Removes `at` from the trie if it is neither a route, the root nor a fork, and links its
    /// child to its parent.
    fn prune(&mut self, parent: u32, at: u32) {
        let node = &self.nodes[at as usize];
        let [left, right] = node.child;
        if at == ROOT || node.routed || (left != NIL && right != NIL) {
            return;
        }
        let addr = node.addr;
        let parent = &mut self.nodes[parent as usize];
        // At most one of the two exists; the link to the other is 0.
        parent.child[parent.side(addr)] = left | right;
        self.nodes[at as usize].child = [self.free, NIL];
        self.free = at;
        self.freed += 1;
    }

    fn alloc(&mut self, prefix: Prefix<A>) -> u32 {
        let node = Node::new(prefix);
        if self.free == NIL {
            let at = u32::try_from(self.nodes.len()).expect("a table has fewer than 2^32 nodes");
            self.nodes.push(node);
            return at;
        }
        let at = self.free;
        self.free = mem::replace(&mut self.nodes[at as usize], node).child[0];
        self.freed -= 1;
        at
    }
}

impl<A: Addr> Default for Rib<A> {
    fn default() -> Self {
        Self::new()
    }
}

impl<'a, A: Addr> IntoIterator for &'a Rib<A> {
    type Item = (Prefix<A>, Hop);
    type IntoIter = Walk<'a, A>;

    fn into_iter(self) -> Walk<'a, A> {
        self.iter()
    }
}

impl<A: Addr> fmt::Debug for Rib<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self).finish()
    }
}
