//! Lulea: a prefix tree cut at three levels, its heads counted by code words.
//!
//! Mikael Degermark, Andrej Brodnik, Svante Carlsson, Stephen Pink, "Small Forwarding
//! Tables for Fast Routing Lookups", SIGCOMM 1997; Fu's thesis (2020), section 3.5,
//! compares it.
//!
//! The prefix tree, made complete (a node has two children or none), is cut at 16, 24
//! and 32 bits. Along a cut, a bit vector has a one where a leaf begins, or where the
//! tree goes on below: a *head*, for which there is one pointer. The vector is kept in
//! 16-bit masks; which pointer is meant is the number of ones up to the position,
//! added up from a base index (for four masks), a code word's offset (for one) and
//! the maptable (for the rest), since only 678 masks can occur (`maptable.rs`):
//!
//! ```text
//!  bits 0..16     base indexes       code words        maptable          pointers
//!                 ┌───────────┐      ┌────┬──────┐     ┌─16 × 4 bits─┐   ┌──────┬───────┐
//!   0..10 ───────►│ 2^10 × 32 │  ┌──►│row │offset├────►│ 678         ├─┐ │ kind │ index │
//!   0..12 ────────┼───────────┼──┘   │ 10 │    6 │     └──▲──────────┘ │ │  2   │ 14/30 │
//!  12..16 ────────┼───────────┼──────┼────┼──────┼────────┘            │ └──▲───┴───────┘
//!                 └─────┬─────┘      └────┴──┬───┘                     │    │
//!                       └────────────────────┴───── base + offset + row ────┘
//!  bits 16..24, 24..32    the same in chunks of 256 positions (`chunk.rs`): sparse ones
//!                         list their heads, dense ones have 16 code words
//! ```
//!
//! Differences from the paper:
//!
//! - pointers of 14 bits and a kind, as in the paper, while next hops and the chunks
//!   of one kind and level are few enough (those of the full tables of 2015 and 2026
//!   still are); then of 30 bits. Below the third level there is nothing more, and what
//!   a pointer says there is a hop alone;
//! - a base index does not count the heads before it but begins a stretch of pointers
//!   of its own, and takes 32 bits. A lookup is the same, and a patch moves nothing
//!   behind it; the price is one head repeated at each base;
//! - the mask of zeros belongs to the last head before it by its offset, which is one
//!   less, and so needs no case of its own; nor does a mask of one head, which the
//!   paper answers from the code word;
//! - the paper has no updates: here the 16-bit blocks touched are laid out again
//!   (`builder.rs`).
//!
//! A table of some 2 MB hardly waits for memory: in rough runs on full tables, groups
//! and coroutines were no faster than one lookup after another, so that a batch is
//! just that. [`Overlapped`] has the other ways.
//!
//! A lookup is 4 loads at the first level (code word, base index, maptable, pointer),
//! and at each other level 4 or, in a sparse chunk, 2: at most 12, of which the first
//! level's 12 to 24 KiB and the maptable's 5.4 KB are likely to be near. Limits: 32-bit
//! addresses; 2^14 or 2^30 hops and chunks of a kind and level.

use alloc::vec::Vec;
use core::ops::ControlFlow;

pub use builder::LuleaBuilder;
use chunk::{Height, Level, Names};
use maptable::{MASK, WORDS, rank};
pub use pointer::{Kind, Pointer};

use super::overlap::{Overlapped, Walk};
use super::{Engine, Leaf, Part, Step};
use crate::table::Table;
use crate::{Addr, Hop};

mod builder;
mod chunk;
mod maptable;
mod pointer;

const SECOND: Names = Names {
    sparse: "level 2 sparse",
    dense: "level 2 dense",
    very_dense: "level 2 very dense",
    pointers: "level 2 pointers",
};
const THIRD: Names = Names {
    sparse: "level 3 sparse",
    dense: "level 3 dense",
    very_dense: "level 3 very dense",
    pointers: "level 3 pointers",
};

/// Returns the heights of the three levels: 16, 8 and 8 bits of IPv4.
const fn levels<A: Addr>() -> [u32; 3] {
    [A::BITS / 2, A::BITS / 4, A::BITS / 4]
}

/// A frozen Lulea table with pointers `P`; `L` holds a hop at the third level.
#[derive(Clone, Debug)]
pub struct Lulea<P: Pointer, L: Leaf> {
    maptable: Table<u64>,
    words: Table<u16>,
    bases: Table<u32>,
    pointers: Table<P>,
    second: Level<P>,
    third: Level<L>,
}

impl<P: Pointer, L: Leaf> Lulea<P, L> {
    /// Returns the place of the first level's pointer for `addr`.
    #[inline(always)]
    fn first<A: Addr>(&self, addr: A) -> usize {
        let position = position(addr, 0);
        let base = self.bases[position / (MASK * WORDS)] as usize;
        base + rank(&self.maptable, self.words[position / MASK], position)
    }
}

/// Returns where in its chunk's masks an address is, at a level counted from 0.
#[inline(always)]
fn position<A: Addr>(addr: A, level: usize) -> usize {
    let heights = levels::<A>();
    let above: u32 = heights[..level].iter().sum();
    Height(heights[level]).position(addr.bits(above, heights[level]))
}

impl<A: Addr, P: Pointer, L: Leaf> Engine<A> for Lulea<P, L> {
    #[inline]
    fn lookup(&self, addr: A) -> Hop {
        let (kind, index) = self.pointers[self.first(addr)].unpack();
        if kind == Kind::Hop {
            return Hop(index as u32);
        }
        let second = self.second.view(&self.maptable).find(kind, index, position(addr, 1));
        let (kind, index) = second.unpack();
        if kind == Kind::Hop {
            return Hop(index as u32);
        }
        self.third.view(&self.maptable).find(kind, index, position(addr, 2)).hop()
    }

    fn overlapped(&self) -> Option<&dyn Overlapped<A>> {
        Some(self)
    }

    fn parts(&self) -> Vec<Part> {
        let first = [
            Part::of("code words", &self.words),
            Part::of("base indexes", &self.bases),
            Part::of("maptable", &self.maptable),
            Part::of("pointers", &self.pointers),
        ];
        let below = self.second.parts(&SECOND).into_iter().chain(self.third.parts(&THIRD));
        first.into_iter().chain(below).collect()
    }

    fn trace(&self, addr: A, steps: &mut Vec<Step>) -> Hop {
        let at = position(addr, 0);
        let word = at / MASK;
        steps.push(Step::of("code words", word, &self.words));
        steps.push(Step::of("base indexes", word / WORDS, &self.bases));
        steps.push(Step::of("maptable", usize::from(self.words[word] >> 6), &self.maptable));
        steps.push(Step::of("pointers", self.first(addr), &self.pointers));
        let chunk = self.pointers[self.first(addr)].unpack();
        if chunk.0 == Kind::Hop {
            return Hop(chunk.1 as u32);
        }
        let pointer = self.second.trace(&SECOND, &self.maptable, chunk, position(addr, 1), steps);
        let chunk = pointer.unpack();
        if chunk.0 == Kind::Hop {
            return Hop(chunk.1 as u32);
        }
        self.third.trace(&THIRD, &self.maptable, chunk, position(addr, 2), steps).hop()
    }
}

/// The next load of a lookup: code words, or a pointer, a level at a time.
#[derive(Clone, Copy, Debug)]
enum Next {
    First,
    Pointer(usize),
    Second(Kind, usize),
    SecondPointer(usize),
    Third(Kind, usize),
    ThirdPointer(usize),
}

/// The state of a lookup.
#[derive(Clone, Copy, Debug)]
pub struct At<A> {
    addr: A,
    next: Next,
}

impl<A: Addr> At<A> {
    /// Goes on with a chunk, unless the pointer is the answer.
    #[inline(always)]
    fn follow<P: Pointer>(self, pointer: P, chunk: fn(Kind, usize) -> Next) -> Stepped<A> {
        match pointer.unpack() {
            (Kind::Hop, index) => ControlFlow::Break(Hop(index as u32)),
            (kind, index) => self.to(chunk(kind, index)),
        }
    }

    #[inline(always)]
    fn to(self, next: Next) -> Stepped<A> {
        ControlFlow::Continue(Self { next, ..self })
    }
}

type Stepped<A> = ControlFlow<Hop, At<A>>;

impl<A: Addr, P: Pointer, L: Leaf> Walk<A> for Lulea<P, L> {
    type At = At<A>;

    #[inline(always)]
    fn begin(&self, addr: A) -> At<A> {
        At { addr, next: Next::First }
    }

    #[inline(always)]
    fn prefetch(&self, at: &At<A>) {
        match at.next {
            Next::First => self.words.prefetch(position(at.addr, 0) / MASK),
            Next::Pointer(place) => self.pointers.prefetch(place),
            Next::Second(kind, index) => self.second.prefetch(kind, index),
            Next::SecondPointer(place) => self.second.pointers.prefetch(place),
            Next::Third(kind, index) => self.third.prefetch(kind, index),
            Next::ThirdPointer(place) => self.third.pointers.prefetch(place),
        }
    }

    #[inline(always)]
    fn step(&self, at: At<A>) -> ControlFlow<Hop, At<A>> {
        match at.next {
            Next::First => at.to(Next::Pointer(self.first(at.addr))),
            Next::Pointer(place) => at.follow(self.pointers[place], Next::Second),
            Next::Second(kind, index) => {
                let view = self.second.view(&self.maptable);
                match view.locate(kind, index, position(at.addr, 1)) {
                    Ok(pointer) => at.follow(pointer, Next::Third),
                    Err(place) => at.to(Next::SecondPointer(place)),
                }
            }
            Next::SecondPointer(place) => at.follow(self.second.pointers[place], Next::Third),
            Next::Third(kind, index) => {
                let view = self.third.view(&self.maptable);
                match view.locate(kind, index, position(at.addr, 2)) {
                    Ok(leaf) => ControlFlow::Break(leaf.hop()),
                    Err(place) => at.to(Next::ThirdPointer(place)),
                }
            }
            Next::ThirdPointer(place) => ControlFlow::Break(self.third.pointers[place].hop()),
        }
    }
}
