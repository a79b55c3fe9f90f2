//! SAIL for large IPv6 tables: bitmaps to 24, Bloom filters above, pivots between.
//!
//! Qiaobin Fu, *High-Performance Software Packet Processing*, PhD thesis, Boston 2020, section
//! 3.6.2. The structures that determine the length of the match are on chip; every next hop is off
//! chip, in hash tables, and one probe of these answers most lookups:
//!
//! ```text
//!           on chip                          off chip (hash tables)
//!   0…24    bitmaps 6, 12, 18, 24 ─────────► hops of nodes at 6, 12, 18, 24
//!   25…34   a filter a length ─────────────► 25 … ▒34▒   ▒ pivot levels: also every
//!   35…44   a filter a length ─────────────► 35 … ▒44▒     empty node that has routes
//!   45…54   a filter a length ─────────────► 45 … ▒54▒     below it, with the hop it
//!   55…64   a filter a length ─────────────► 55 … ▓64▓     inherits
//!   65…128  a filter a length ─────────────► 65 … 128    ▓ pushed: in the filter too
//!
//!   slot    prefix (64, beyond 64: 128) ┃ hop (16 or 32) ┃ leaf, internal or pivot (16)
//! ```
//!
//! The bitmaps are those of SAIL_U: routes are pushed down to the next of four
//! levels, and a bit says that the node has such a route. At level 24 it says that
//! there is a node at all, leaf or internal: if not, the match is shorter, and the
//! longest of the other three bitmaps with a bit has it. If there is one, the filters are tested,
//! the longest first, and the hash table of the first that says "perhaps" is probed; if none does,
//! that of level 24.
//!
//! **Pivot inheritance.** A filter says "perhaps" in vain one time in 2^13. Then the
//! pivot levels are searched by halves (44, then 34 or 54, as the thesis's steps I
//! to III): a miss says that the match is shorter, a leaf is the match, and an
//! internal node or a pivot, which an empty internal one is called, says that the
//! match is between it and the next pivot level, or else its own or inherited hop.
//! So the worst case, all filters in vain, takes 13 probes and not 40: the thesis's
//! 12, and the one that was tried first. Pivots are not in the filters: they cost
//! nothing on chip.
//!
//! Routes longer than /64, of which the thesis says nothing: a node at level 64 with
//! such below it is pushed, as SAIL does at level 24: it is in the filter whether it
//! is a route or not, marked internal, and only a lookup that finds it tests the filters of 65 to
//! 128, longest first. If none of their tables has a match, its hop is the answer.
//!
//! The thesis keeps a tenth of a hash table's slots in use, to come near to one load
//! a probe; here it is a quarter, 1.2 loads, mostly in one cache line. The
//! filters have its 13 hash functions and 18.755 bits a route of their length. Toys
//! have levels of their own that leave room for every part.
//!
//! Updates: the route's slot and filter bits, at most 64 entries of its bitmap level
//! for a short one, its ancestors on the pivot levels, and all pivots that inherit
//! from it; so that a change of the default route may rewrite some hundred thousand
//! slots, and one of a /48 a few words. Limits: hops of the stored width.

use alloc::vec::Vec;
use core::fmt::Debug;
use core::ops::ControlFlow;

use super::hash::lengths::{Lengths, Listed, Probe, up_to};
use super::hash::table::{self, Slot, Value};
use super::hash::{hash, place};
use super::overlap::{Overlapped, Walk, alone, group};
use super::{Engine, Leaf, Part, Step};
use crate::table::Table;
use crate::{FamilyLayout, Hop};

mod builder;
#[cfg(test)]
mod tests;

pub use builder::Sail6LargeBuilder;

/// The lookups that are under way at once in a batch.
const GROUP: usize = 16;

/// The slots of a hash table for each key there is room for.
const SPREAD: usize = 4;

/// The bitmaps' name among the parts, and that of their hash tables.
const BITMAPS: &str = "bitmaps";
const SHORT_TABLES: &str = "bitmap hash tables";

/// Where a family's levels are.
#[derive(Clone, Copy, Debug)]
struct Shape {
    /// The levels with a bitmap.
    maps: &'static [u32],
    /// The pivot levels below the last of those.
    pivots: &'static [u32],
    /// The last level of the network's part, whose nodes are pushed.
    network: u32,
}

impl Shape {
    #[inline(always)]
    fn of<A: FamilyLayout>() -> Self {
        match A::BITS {
            ..16 => Self { maps: &[1, 2], pivots: &[3, 4], network: 6 },
            16 => Self { maps: &[1, 2, 3, 4], pivots: &[6, 8, 10], network: 12 },
            _ => Self { maps: &[6, 12, 18, 24], pivots: &[34, 44, 54], network: 64 },
        }
    }

    /// The last level with a bitmap.
    #[inline(always)]
    fn base(&self) -> u32 {
        self.maps[self.maps.len() - 1]
    }
}

/// The value of a node in a hash table.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[repr(C, packed(2))]
struct Node<L: Leaf> {
    /// Its own, or of a pivot the hop that it inherits.
    hop: L,
    kind: u16,
}

impl<L: Leaf> Node<L> {
    /// A route, and on a pivot level none below it.
    const LEAF: u16 = 1;
    /// A node with routes below it.
    const INTERNAL: u16 = 2;
    /// The same, but no route itself, and not in the filter.
    const PIVOT: u16 = 3;

    #[inline(always)]
    fn hop(self) -> Hop {
        let hop = self.hop;
        hop.hop()
    }
}

impl<L: Leaf> Value for Node<L> {}

impl<L: Leaf> Listed for Node<L> {
    fn listed(self) -> bool {
        matches!(self.kind, Self::LEAF | Self::INTERNAL)
    }
}

/// A bitmap level: which nodes there are, and their hops.
#[derive(Clone, Debug)]
struct Map<L: Leaf> {
    len: u32,
    bits: Table<u64>,
    slots: Table<Slot<u32, Node<L>>>,
}

/// A frozen table.
#[derive(Clone, Debug)]
pub struct Sail6Large<A: FamilyLayout, L: Leaf> {
    maps: Vec<Map<L>>,
    lengths: Lengths<A, Node<L>>,
}

/// A lookup before a load off chip.
#[derive(Clone, Copy, Debug)]
pub struct At<A> {
    addr: A,
    next: Next,
}

/// The next load of a lookup.
#[derive(Clone, Copy, Debug)]
enum Next {
    /// None: the bitmaps know that there is no route.
    Nothing,
    /// The node of a bitmap level.
    Map(usize),
    /// The node at the longest length of which a filter says "perhaps".
    First(Probe),
    /// The node on one of the pivot levels `first..end`; those from `end` on have
    /// none, as lengths from `under` on have no match; the one before `first` has
    /// this hop.
    Pivot { first: usize, end: usize, under: u32, hop: Option<Hop> },
    /// A node longer than the pivot level `above`, whose node has this hop.
    Group { probe: Probe, above: u32, hop: Option<Hop> },
    /// A node longer than the network's part, and the hop if there is none.
    Below { probe: Probe, hop: Hop },
}

/// Where a trace is written to, if one is.
type Trace<'a> = Option<&'a mut Vec<Step>>;

impl<A: FamilyLayout, L: Leaf> Sail6Large<A, L> {
    /// Reads the bitmaps, and perhaps the filters.
    #[inline(always)]
    fn start(&self, addr: A, mut steps: Trace<'_>) -> Next {
        let shape = Shape::of::<A>();
        let last = self.maps.len() - 1;
        if self.bit(last, addr, steps.as_deref_mut()) {
            return match self.ask(addr, shape.base(), shape.network, steps) {
                Some(probe) => Next::First(probe),
                None => Next::Map(last),
            };
        }
        for level in (0..last).rev() {
            if self.bit(level, addr, steps.as_deref_mut()) {
                return Next::Map(level);
            }
        }
        Next::Nothing
    }

    /// Does the load, and says what is next.
    #[inline(always)]
    fn go_on(&self, at: At<A>, mut steps: Trace<'_>) -> ControlFlow<Hop, Next> {
        let At { addr, next } = at;
        let shape = Shape::of::<A>();
        match next {
            Next::Nothing => ControlFlow::Break(Hop::NONE),
            Next::Map(level) => ControlFlow::Break(self.map(level, addr, steps)),
            Next::First(probe) => match self.find(addr, probe, steps.as_deref_mut()) {
                Some(node) => self.found(addr, probe.len, node, steps),
                None => {
                    let end = shape.pivots.iter().take_while(|&&len| len < probe.len).count();
                    self.pivot(addr, 0, end, probe.len, None, steps)
                }
            },
            Next::Pivot { first, end, under, hop } => {
                let middle = (first + end) / 2;
                let len = shape.pivots[middle];
                match self.find(addr, self.lengths.probe(addr, len), steps.as_deref_mut()) {
                    Some(node) if node.kind == Node::<L>::LEAF => ControlFlow::Break(node.hop()),
                    Some(node) => self.pivot(addr, middle + 1, end, under, Some(node.hop()), steps),
                    None => self.pivot(addr, first, middle, len, hop, steps),
                }
            }
            Next::Group { probe, above, hop } => {
                match self.find(addr, probe, steps.as_deref_mut()) {
                    Some(node) => self.found(addr, probe.len, node, steps),
                    None => self.group(addr, above, probe.len, hop, steps),
                }
            }
            Next::Below { probe, hop } => match self.find(addr, probe, steps.as_deref_mut()) {
                Some(node) => ControlFlow::Break(node.hop()),
                None => self.below(addr, probe.len, hop, steps),
            },
        }
    }

    /// Ends with a node that was found, if none can be longer.
    #[inline(always)]
    fn found(&self, addr: A, len: u32, node: Node<L>, steps: Trace<'_>) -> ControlFlow<Hop, Next> {
        if len == Shape::of::<A>().network && node.kind == Node::<L>::INTERNAL {
            self.below(addr, A::BITS + 1, node.hop(), steps)
        } else {
            ControlFlow::Break(node.hop())
        }
    }

    /// Goes on among the pivot levels `first..end`, or to the group that they bound.
    fn pivot(
        &self,
        addr: A,
        first: usize,
        end: usize,
        under: u32,
        hop: Option<Hop>,
        steps: Trace<'_>,
    ) -> ControlFlow<Hop, Next> {
        if first < end {
            return ControlFlow::Continue(Next::Pivot { first, end, under, hop });
        }
        let shape = Shape::of::<A>();
        let above = if first == 0 { shape.base() } else { shape.pivots[first - 1] };
        self.group(addr, above, under, hop, steps)
    }

    /// Goes on among the lengths longer than `above` and shorter than `under`.
    fn group(
        &self,
        addr: A,
        above: u32,
        under: u32,
        hop: Option<Hop>,
        steps: Trace<'_>,
    ) -> ControlFlow<Hop, Next> {
        match (self.ask(addr, above, under - 1, steps), hop) {
            (Some(probe), _) => ControlFlow::Continue(Next::Group { probe, above, hop }),
            (None, Some(hop)) => ControlFlow::Break(hop),
            (None, None) => ControlFlow::Continue(Next::Map(self.maps.len() - 1)),
        }
    }

    /// Goes on among the lengths beyond the network's part, shorter than `under`.
    fn below(&self, addr: A, under: u32, hop: Hop, steps: Trace<'_>) -> ControlFlow<Hop, Next> {
        match self.ask(addr, Shape::of::<A>().network, under - 1, steps) {
            Some(probe) => ControlFlow::Continue(Next::Below { probe, hop }),
            None => ControlFlow::Break(hop),
        }
    }

    /// Tests the filters of lengths over `above`, up to `len`.
    #[inline(always)]
    fn ask(&self, addr: A, above: u32, len: u32, steps: Trace<'_>) -> Option<Probe> {
        let lengths = up_to(len) & !up_to(above);
        match steps {
            None => self.lengths.ask(addr, lengths),
            Some(steps) => self.lengths.trace_ask(addr, lengths, steps),
        }
    }

    /// Probes the hash table of one length.
    #[inline(always)]
    fn find(&self, addr: A, probe: Probe, steps: Trace<'_>) -> Option<Node<L>> {
        match steps {
            None => self.lengths.find(addr, probe),
            Some(steps) => self.lengths.trace_find(addr, probe, steps),
        }
    }

    /// Reads one bit of a bitmap.
    #[inline(always)]
    fn bit(&self, level: usize, addr: A, steps: Trace<'_>) -> bool {
        let map = &self.maps[level];
        let index = addr.bits(0, map.len);
        if let Some(steps) = steps {
            let before: usize = self.maps[..level].iter().map(|map| map.bits.len()).sum();
            steps.push(Step::of(BITMAPS, before + index / 64, &map.bits));
        }
        map.bits[index / 64] >> (index % 64) & 1 == 1
    }

    /// Probes the hash table of a bitmap level, for a node that is there.
    #[inline(always)]
    fn map(&self, level: usize, addr: A, mut steps: Trace<'_>) -> Hop {
        let map = &self.maps[level];
        let key = addr.bits(0, map.len) as u32;
        let before = || self.maps[..level].iter().map(|map| map.slots.len()).sum::<usize>();
        let node = table::loads(&map.slots, hash(key, map.len), key, |slot| {
            if let Some(steps) = &mut steps {
                steps.push(Step::of(SHORT_TABLES, before() + slot, &map.slots));
            }
        });
        node.map_or(Hop::NONE, Node::hop)
    }
}

impl<A: FamilyLayout, L: Leaf> Walk<A> for Sail6Large<A, L> {
    type At = At<A>;

    #[inline(always)]
    fn begin(&self, addr: A) -> At<A> {
        At { addr, next: self.start(addr, None) }
    }

    #[inline(always)]
    fn prefetch(&self, at: &At<A>) {
        match at.next {
            Next::Nothing => {}
            Next::Map(level) => {
                let map = &self.maps[level];
                let key = at.addr.bits(0, map.len) as u32;
                map.slots.prefetch(place(hash(key, map.len), map.slots.len()));
            }
            Next::Pivot { first, end, .. } => {
                let len = Shape::of::<A>().pivots[(first + end) / 2];
                self.lengths.prefetch(self.lengths.probe(at.addr, len));
            }
            Next::First(probe) | Next::Group { probe, .. } | Next::Below { probe, .. } => {
                self.lengths.prefetch(probe);
            }
        }
    }

    #[inline(always)]
    fn step(&self, at: At<A>) -> ControlFlow<Hop, At<A>> {
        self.go_on(at, None).map_continue(|next| At { next, ..at })
    }
}

impl<A: FamilyLayout, L: Leaf> Engine<A> for Sail6Large<A, L> {
    fn lookup(&self, addr: A) -> Hop {
        alone(self, addr)
    }

    fn lookup_batch(&self, addrs: &[A], out: &mut [Hop]) {
        group::<GROUP, A, Self>(self, addrs, out);
    }

    fn overlapped(&self) -> Option<&dyn Overlapped<A>> {
        Some(self)
    }

    fn parts(&self) -> Vec<Part> {
        let words = self.maps.iter().map(|map| map.bits.len()).sum();
        let slots = self.maps.iter().map(|map| map.slots.len()).sum();
        let part = |name, items, each| Part { name, items, bytes: items * each, place: None };
        let mut parts = Vec::from([
            part(BITMAPS, words, size_of::<u64>()).on_chip(),
            part(SHORT_TABLES, slots, size_of::<Slot<u32, Node<L>>>()).off_chip(),
        ]);
        parts.extend(self.lengths.parts());
        parts
    }

    fn trace(&self, addr: A, steps: &mut Vec<Step>) -> Hop {
        let mut next = self.start(addr, Some(steps));
        loop {
            match self.go_on(At { addr, next }, Some(steps)) {
                ControlFlow::Continue(after) => next = after,
                ControlFlow::Break(hop) => return hop,
            }
        }
    }
}
