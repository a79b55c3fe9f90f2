//! The fixed-stride trie: some bits a level, prefixes expanded to the level's end.
//!
//! Vesović, Smiljanić, Tomašević, "Speeding Up IP Lookup Procedure in Software Routers
//! by Means of Parallelization", Telfor Journal, 2017, section V.C; Srinivasan, Varghese,
//! "Fast address lookups using controlled prefix expansion", ACM TOCS 17(1), 1999,
//! for the expansion and its updates.
//!
//! With a stride of s bits a node has 2^s entries, one for each value of the next
//! s bits, and at most `A::BITS` / s nodes are read. A route that ends within a
//! node fills all entries that it covers there; where two do, the longer stays:
//!
//! ```text
//!   s = 2    */0 A   01* B   0111* C     (bits 0 to 4)
//!
//!   node 0   00  │ A │      entry  ┌──────────┬──────────┬────────┐
//!            01  │ B │ ─► node 1   │ child    │ hop      │ length │
//!            10  │ A │             └──────────┴──────────┴────────┘
//!            11  │ A │               32         16 or 32   8
//!   node 1   00  │ – │
//!            01  │ – │      child: 0 is none, the root being no child
//!            10  │ – │      length: of the route that filled it, counted from the
//!            11  │ C │      node's first bit, plus 1; 0 is none
//! ```
//!
//! A lookup remembers the hop of the last filled entry and ends where there is no
//! child. Nothing is pushed down from one node to the next, which keeps an update
//! within one node: a route that comes overwrites the entries of shorter ones, one
//! that goes gives its entries to the next shorter route of the same node, or to
//! none; the length in the entry identifies the route. Nodes are added and removed on the path,
//! and the array is kept dense (`nodes.rs`).
//!
//! Where s does not divide the width, the last level has fewer bits to decide on
//! and uses only the front of its nodes.
//!
//! Complexity: `A::BITS` / s dependent loads a lookup; an update writes up to 2^s
//! entries. A node costs 2^s entries however few routes end in it, so that many
//! bits a level take fewer loads and more bytes. Limit: 2^31 - 1 entries.

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

/// The entry for one value of a level's bits.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Entry<L> {
    child: u32,
    hop: L,
    len: u8,
}

/// A frozen fixed-stride trie.
#[derive(Clone, Debug)]
pub struct Multibit<L: Copy> {
    stride: u32,
    entries: Table<Entry<L>>,
}

/// Returns where in the array the entry of `addr` is, in the node `at` that
/// decides from bit `from` on.
#[inline(always)]
fn index<A: Addr>(addr: A, at: u32, from: u32, stride: u32) -> usize {
    let width = stride.min(A::BITS - from);
    (at as usize) << stride | addr.bits(from, width)
}

/// Where a lookup in a [`Multibit`] is.
#[derive(Clone, Copy, Debug)]
pub struct At<A> {
    addr: A,
    /// The next entry to load.
    index: usize,
    /// The bit from which on its node decides.
    from: u32,
    /// The hop of the last filled entry.
    best: Hop,
}

impl<A: Addr, L: Leaf> Walk<A> for Multibit<L> {
    type At = At<A>;

    #[inline(always)]
    fn begin(&self, addr: A) -> At<A> {
        At { addr, index: index(addr, ROOT, 0, self.stride), from: 0, best: Hop::NONE }
    }

    #[inline(always)]
    fn prefetch(&self, at: &At<A>) {
        self.entries.prefetch(at.index);
    }

    #[inline(always)]
    fn step(&self, at: At<A>) -> ControlFlow<Hop, At<A>> {
        let entry = &self.entries[at.index];
        let best = if entry.len > 0 { entry.hop.hop() } else { at.best };
        if entry.child == NIL {
            return ControlFlow::Break(best);
        }
        let from = at.from + self.stride;
        let index = index(at.addr, entry.child, from, self.stride);
        ControlFlow::Continue(At { addr: at.addr, index, from, best })
    }
}

impl<A: Addr, L: Leaf> Engine<A> for Multibit<L> {
    #[inline]
    fn lookup(&self, addr: A) -> Hop {
        let (mut at, mut from) = (ROOT, 0);
        let mut best = Hop::NONE;
        loop {
            let entry = &self.entries[index(addr, at, from, self.stride)];
            if entry.len > 0 {
                best = entry.hop.hop();
            }
            if entry.child == NIL {
                return best;
            }
            (at, from) = (entry.child, from + self.stride);
        }
    }

    fn lookup_batch(&self, addrs: &[A], out: &mut [Hop]) {
        group::<32, A, Self>(self, addrs, out);
    }

    fn overlapped(&self) -> Option<&dyn Overlapped<A>> {
        Some(self)
    }

    fn parts(&self) -> Vec<Part> {
        Vec::from([Part::of("entries", &self.entries)])
    }

    fn trace(&self, addr: A, steps: &mut Vec<Step>) -> Hop {
        let mut at = self.begin(addr);
        loop {
            steps.push(Step::of("entries", at.index, &self.entries));
            match self.step(at) {
                ControlFlow::Continue(next) => at = next,
                ControlFlow::Break(hop) => return hop,
            }
        }
    }
}

/// The builder of [`Multibit`].
#[derive(Debug)]
pub struct MultibitBuilder<A, L> {
    stride: u32,
    nodes: Nodes<Entry<L>>,
    /// By node: which entry of the array leads to it.
    leader: Vec<u32>,
    family: PhantomData<A>,
}

impl<A: Addr, L: Leaf> MultibitBuilder<A, L> {
    /// Starts an empty trie that decides on `stride` bits a level, held between 1
    /// and 8.
    pub fn new(stride: u32) -> Self {
        let stride = stride.clamp(1, 8);
        let mut this = Self {
            stride,
            nodes: Nodes::new(1 << stride),
            leader: Vec::new(),
            family: PhantomData,
        };
        this.clear();
        this
    }

    /// Leaves the root alone.
    fn clear(&mut self) {
        self.nodes.clear();
        let Ok(_) = self.empty_node() else { unreachable!("there is room for one") };
    }

    fn empty_node(&mut self) -> Result<u32, Full> {
        let node = [Entry::default(); 1 << 8];
        self.nodes.add(&node[..1 << self.stride])
    }

    fn set(&mut self, index: usize, change: impl FnOnce(&mut Entry<L>)) {
        let mut entry = self.nodes[index];
        change(&mut entry);
        self.nodes.set(index, entry);
    }

    /// Returns the bit from which on the node decides in which routes of `len` bits
    /// end. The default route ends in the root.
    fn home(&self, len: u32) -> u32 {
        len.saturating_sub(1) / self.stride * self.stride
    }

    /// Rewrites the entries of node `at` that `prefix`, which ends there, covers.
    fn paint(&mut self, at: u32, prefix: Prefix<A>, change: impl Fn(u8, &mut Entry<L>)) {
        let from = self.home(prefix.len());
        let len = prefix.len() - from;
        let width = self.stride.min(A::BITS - from);
        let first = index(prefix.addr(), at, from, self.stride);
        for index in first..first + (1 << (width - len)) {
            self.set(index, |entry| change(len as u8 + 1, entry));
        }
    }

    /// Adds a route, starting from node `at`, which decides from bit `from` on and is on its path;
    /// calls `passed` with every node below that.
    fn insert(
        &mut self,
        (mut at, from): (u32, u32),
        prefix: Prefix<A>,
        hop: Hop,
        mut passed: impl FnMut(u32),
    ) -> Result<(), Full> {
        let hop = L::pack(hop)?;
        for from in (from..self.home(prefix.len())).step_by(self.stride as usize) {
            let leader = index(prefix.addr(), at, from, self.stride);
            let mut next = self.nodes[leader].child;
            if next == NIL {
                next = self.empty_node()?;
                note(&mut self.leader, next, leader as u32);
                self.set(leader, |entry| entry.child = next);
            }
            at = next;
            passed(at);
        }
        self.paint(at, prefix, |len, entry| {
            if entry.len <= len {
                (entry.hop, entry.len) = (hop, len);
            }
        });
        Ok(())
    }

    /// Takes a route out; `cover` is the next shorter one.
    fn remove(&mut self, prefix: Prefix<A>, cover: Option<(Prefix<A>, Hop)>) -> Result<(), Full> {
        let home = self.home(prefix.len());
        let mut at = ROOT;
        for from in (0..home).step_by(self.stride as usize) {
            at = self.nodes[index(prefix.addr(), at, from, self.stride)].child;
            if at == NIL {
                return Ok(());
            }
        }
        let (hop, cover) = match cover {
            Some((cover, hop)) if self.home(cover.len()) == home => {
                (L::pack(hop)?, (cover.len() - home) as u8 + 1)
            }
            _ => (L::default(), 0),
        };
        self.paint(at, prefix, |len, entry| {
            if entry.len == len {
                (entry.hop, entry.len) = (hop, cover);
            }
        });
        self.prune(at);
        Ok(())
    }

    /// Gives back a node without content, and those that led to it alone.
    fn prune(&mut self, mut at: u32) {
        while at != ROOT && self.content(at).iter().all(|entry| *entry == Entry::default()) {
            let leader = self.leader[at as usize];
            self.set(leader as usize, |entry| entry.child = NIL);
            self.nodes.give_back(at);
            at = leader >> self.stride;
        }
        while let Some((from, to)) = self.nodes.next_move() {
            let leader = self.leader[from as usize];
            note(&mut self.leader, to, leader);
            self.set(leader as usize, |entry| entry.child = to);
            for index in (to as usize) << self.stride..(to as usize + 1) << self.stride {
                let child = self.nodes[index].child;
                if child != NIL {
                    note(&mut self.leader, child, index as u32);
                }
            }
        }
        self.leader.truncate(self.nodes.len() >> self.stride);
    }

    fn content(&self, at: u32) -> &[Entry<L>] {
        &self.nodes[(at as usize) << self.stride..(at as usize + 1) << self.stride]
    }
}

impl<A: Addr, L: Leaf> RouteBuilder<A> for MultibitBuilder<A, L> {
    type Engine = Multibit<L>;

    fn fill(&mut self, rib: &Rib<A>) -> Result<(), Full> {
        self.clear();
        // Routes come in order: the nodes that a route shares with the one before it
        // are on the way to that one.
        let mut way = Vec::from([ROOT]);
        let mut before = Prefix::<A>::ALL;
        for (prefix, hop) in rib {
            let common = before.addr().common(prefix.addr());
            let shared = (common / self.stride).min(self.home(prefix.len()) / self.stride);
            way.truncate(shared as usize + 1);
            let depth = way.len() as u32 - 1;
            let start = (way[depth as usize], depth * self.stride);
            self.insert(start, prefix, hop, |at| way.push(at))?;
            before = prefix;
        }
        Ok(())
    }

    fn change(&mut self, rib: &Rib<A>, prefix: Prefix<A>) -> Result<(), Full> {
        match rib.get(prefix) {
            Some(hop) => self.insert((ROOT, 0), prefix, hop, |_| {}),
            None => self.remove(prefix, rib.cover(prefix)),
        }
    }

    fn freeze(&self) -> Multibit<L> {
        Multibit { stride: self.stride, entries: self.nodes.freeze() }
    }

    fn refresh(&self, idle: &mut Multibit<L>) {
        self.nodes.refresh(&mut idle.entries);
    }

    fn written(&self) -> u64 {
        self.nodes.written()
    }
}
