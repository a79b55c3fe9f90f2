//! LC-trie: a trie whose paths and whose full levels are compressed.
//!
//! Stefan Nilsson, Gunnar Karlsson, "IP-address lookup using LC-tries", IEEE JSAC
//! 17(6), 1999; Fu 2020, sections 3.2 and 3.5, compares with it.
//!
//! A node skips the bits that all below it share and then branches on as many bits
//! at once as leave at least the fill factor (a half) of its children in use. A
//! leaf names a string of the base vector, where the one comparison of a lookup is
//! made; where that fails, the answer is among the prefixes that cover the string:
//!
//! ```text
//!   bits 0..16      skip, branch …
//!   trie ┌──────┐        ┌──────┐ leaf        base ┌─────┬─────┬─────┬─────┐
//!        │ 2^16 ├───────►│ 2^b  ├───────────────►  │ key │ pre │ hop │ len │
//!        └──────┘        └──────┘                  └─────┴──┬──┴─────┴─────┘
//!         node ┌──────────┬────────┬────────┐               ▼
//!              │ adr      │ skip   │ branch │      prefix ┌─────┬─────┬─────┐
//!              └──────────┴────────┴────────┘             │ pre │ hop │ len │ ─► pre …
//!               32         8        8                     └─────┴─────┴─────┘
//!               children from there, or (branch 0)         32    16/32 8
//!               an index of the base vector
//! ```
//!
//! The base vector holds the routes that cover no other, the prefix vector those
//! that do; `pre` leads to the longest prefix that covers. A child without a string
//! leads to the neighboring string with which it shares the most bits: every
//! prefix that covers the child covers that string too. So all routes that can
//! match are on one chain, and one comparison, of the address with the string,
//! decides for each of them by its length.
//!
//! Differences from the paper: a node has 64 bits instead of 32, since 20 bits of
//! address hold no table of today; the next-hop vector is the caller's
//! ([`HopTable`](crate::HopTable)), hops being small indexes already; the root, which
//! is not stored, always branches on 16 bits (half of the bits of a toy), and a
//! route shorter than that has an entry in both vectors, the one in the base vector
//! for the slots of the root in which there is no longer route. Base vectors are
//! sorted within a slot only.
//!
//! The paper has no incremental update: the slots of the root that a route touches
//! are rebuilt (`builder.rs`). That is quick in IPv4; in IPv6, where a few dozen
//! slots hold nearly all, it is not. Limits: 2^31 - 1 items of each array.

use alloc::vec::Vec;
use core::ops::ControlFlow;

pub use builder::LcTrieBuilder;

use super::overlap::{Overlapped, Walk, group};
use super::{Engine, Leaf, Part, Step};
use crate::table::Table;
use crate::{Addr, Hop};

mod builder;

/// No prefix that covers.
const NIL: u32 = u32::MAX;

/// A node of the trie.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Node {
    /// Its first child, or its string.
    adr: u32,
    skip: u8,
    /// How many bits choose among the children; 0 for a leaf.
    branch: u8,
}

/// A string of the base vector.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Base<A, L> {
    key: A,
    pre: u32,
    hop: L,
    len: u8,
}

/// A covering prefix.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Covering<L> {
    pre: u32,
    hop: L,
    len: u8,
}

/// A frozen LC-trie.
#[derive(Clone, Debug)]
pub struct LcTrie<A: Copy, L: Copy> {
    /// On how many bits the root branches.
    root: u32,
    trie: Table<Node>,
    base: Table<Base<A, L>>,
    prefixes: Table<Covering<L>>,
}

/// The next load of a lookup.
#[derive(Clone, Copy, Debug)]
enum Load {
    Node(u32),
    Base(u32),
    Prefix(u32),
}

/// Where a lookup in an [`LcTrie`] is.
#[derive(Clone, Copy, Debug)]
pub struct At<A> {
    addr: A,
    load: Load,
    /// How many bits are used up; from the base vector on, how many agree.
    bits: u32,
}

impl<A: Addr, L: Leaf> Walk<A> for LcTrie<A, L> {
    type At = At<A>;

    #[inline(always)]
    fn begin(&self, addr: A) -> At<A> {
        let slot = addr.bits(0, self.root) as u32;
        At { addr, load: Load::Node(slot), bits: self.root }
    }

    #[inline(always)]
    fn prefetch(&self, at: &At<A>) {
        match at.load {
            Load::Node(index) => self.trie.prefetch(index as usize),
            Load::Base(index) => self.base.prefetch(index as usize),
            Load::Prefix(index) => self.prefixes.prefetch(index as usize),
        }
    }

    #[inline(always)]
    fn step(&self, At { addr, load, bits }: At<A>) -> ControlFlow<Hop, At<A>> {
        let (pre, common) = match load {
            Load::Node(index) => {
                let Node { adr, skip, branch } = self.trie[index as usize];
                if branch == 0 {
                    return ControlFlow::Continue(At { addr, load: Load::Base(adr), bits });
                }
                let (bits, branch) = (bits + u32::from(skip), branch.into());
                let load = Load::Node(adr + addr.bits(bits, branch) as u32);
                return ControlFlow::Continue(At { addr, load, bits: bits + branch });
            }
            Load::Base(index) => {
                let base = &self.base[index as usize];
                let common = base.key.common(addr);
                if u32::from(base.len) <= common {
                    return ControlFlow::Break(base.hop.hop());
                }
                (base.pre, common)
            }
            Load::Prefix(index) => {
                let prefix = &self.prefixes[index as usize];
                if u32::from(prefix.len) <= bits {
                    return ControlFlow::Break(prefix.hop.hop());
                }
                (prefix.pre, bits)
            }
        };
        if pre == NIL {
            return ControlFlow::Break(Hop::NONE);
        }
        ControlFlow::Continue(At { addr, load: Load::Prefix(pre), bits: common })
    }
}

impl<A: Addr, L: Leaf> Engine<A> for LcTrie<A, L> {
    #[inline]
    fn lookup(&self, addr: A) -> Hop {
        let mut node = self.trie[addr.bits(0, self.root)];
        let mut bits = self.root;
        while node.branch > 0 {
            bits += u32::from(node.skip);
            let child = addr.bits(bits, node.branch.into());
            bits += u32::from(node.branch);
            node = self.trie[node.adr as usize + child];
        }
        let base = &self.base[node.adr as usize];
        let common = base.key.common(addr);
        if u32::from(base.len) <= common {
            return base.hop.hop();
        }
        let mut pre = base.pre;
        while pre != NIL {
            let prefix = &self.prefixes[pre as usize];
            if u32::from(prefix.len) <= common {
                return prefix.hop.hop();
            }
            pre = prefix.pre;
        }
        Hop::NONE
    }

    fn lookup_batch(&self, addrs: &[A], out: &mut [Hop]) {
        group::<32, A, Self>(self, addrs, out);
    }

    fn overlapped(&self) -> Option<&dyn Overlapped<A>> {
        Some(self)
    }

    fn parts(&self) -> Vec<Part> {
        Vec::from([
            Part::of("trie", &self.trie),
            Part::of("base", &self.base),
            Part::of("prefixes", &self.prefixes),
        ])
    }

    fn trace(&self, addr: A, steps: &mut Vec<Step>) -> Hop {
        let mut at = self.begin(addr);
        loop {
            steps.push(match at.load {
                Load::Node(index) => Step::of("trie", index as usize, &self.trie),
                Load::Base(index) => Step::of("base", index as usize, &self.base),
                Load::Prefix(index) => Step::of("prefixes", index as usize, &self.prefixes),
            });
            match self.step(at) {
                ControlFlow::Continue(next) => at = next,
                ControlFlow::Break(hop) => return hop,
            }
        }
    }
}
