//! `SAIL_B` and `SAIL_U`: a bitmap a level on chip, next hops off chip.
//!
//! Fu 2020, sections 3.3 and 3.4.1, algorithm 3.
//!
//! ```text
//!            on chip: B, a bit a node               off chip: N, an item a node
//!  level 24  ┃0┃1┃1┃0┃ …        2^24   1 ──────────► hop, or ~chunk ──► N32 hop
//!  level 23  ┃0┃0┃1┃ …          2^23   1 ──────────► hop            2^8 a chunk
//!  …                                   …
//!  level 0   ┃1┃                2^0    1 ──────────► hop
//! ```
//!
//! The bitmap of a level has a bit for each of its nodes; it is 1 where the node is
//! solid, that is a route's. At level 24, the pivot, it is 1 also where longer
//! routes begin below; the item of `N` then is negative, and names a chunk of 2^8 hops for level
//! 32, into which the node's own or inherited hop is pushed. The first 1 from level 24 upwards answers.
//!
//! `SAIL_B` ([`SailB`]) has all levels from 0 to 24. `SAIL_U` ([`SailU`]), for
//! updates, has 6, 12, 18 and 24, to which it pushes what is between: half the
//! bitmaps, 4 loads on chip instead of 25, and still one word written by an
//! update, since a route spans at most 2^5 of the nodes it is pushed to, in one
//! aligned word of 64 bits. The levels lie in one bitmap, one after another, and
//! `N` numbers the nodes as `B` does:
//!
//! ```text
//!  SAIL_B  ┃0┃-┃ 1 ┃  2  ┃    3    ┃ …             level i begins at bit 2^i
//!  SAIL_U  ┃  6  ┃     12     ┃        18        ┃ …        each at a whole word
//! ```
//!
//! - An item's uppermost bit is its sign: 32,768 hops and chunks fit 16 bits, and
//!   beyond either they are 32 bits.
//! - Where no bit is set there is no route: the thesis gives the root a default.
//! - A lookup loads up to 25 words (`SAIL_B`) or 4 (`SAIL_U`) on chip and 1 or 2 items
//!   off chip. An update writes one word on chip; off chip, a shorter route's also
//!   the chunks that inherit from it (`builder.rs`).
//! - Every level is whole, whatever the table: 4 MB of `B` and 64 MB of `N`.

use alloc::vec::Vec;
use core::marker::PhantomData;

pub use builder::BitmapsBuilder;
pub use levels::{Every, Levels, Quarters};

use super::{low, pivot};
use crate::engine::{Engine, Leaf, Part, Step};
use crate::table::Table;
use crate::{Addr, Hop};

mod builder;
mod levels;

/// `SAIL_B`: a bitmap for each length to the pivot level.
pub type SailB<A, L> = Bitmaps<A, L, Every>;
/// The builder of [`SailB`].
pub type SailBBuilder<A, L> = BitmapsBuilder<A, L, Every>;
/// `SAIL_U`: four bitmaps, one word of which an update touches.
pub type SailU<A, L> = Bitmaps<A, L, Quarters>;
/// The builder of [`SailU`].
pub type SailUBuilder<A, L> = BitmapsBuilder<A, L, Quarters>;

/// How many addresses are looked up at once.
const GROUP: usize = 32;
/// No node answers.
const NOWHERE: usize = usize::MAX;

/// One level: where its nodes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Level {
    /// The length of its prefixes.
    len: u32,
    /// The longest length that is left to the level above; -1 before the first.
    above: i32,
    /// The number of its first node.
    base: usize,
}

/// A frozen `SAIL_B` or `SAIL_U`.
#[derive(Clone, Debug)]
pub struct Bitmaps<A, L: Copy, S> {
    /// From the pivot upwards.
    levels: Vec<Level>,
    /// A bit a node: whether it answers.
    b: Table<u64>,
    /// By node: a hop, or a chunk of `n32` with the sign set.
    n: Table<L>,
    n32: Table<L>,
    kind: PhantomData<(A, S)>,
}

/// The bit of an item that distinguishes a chunk from a hop.
const fn sign<L: Leaf>() -> u32 {
    L::MAX ^ (L::MAX >> 1)
}

/// Returns the chunk that an item names, if it does.
#[inline(always)]
fn chunk<L: Leaf>(item: L) -> Option<usize> {
    let item = item.hop().0;
    (item & sign::<L>() != 0).then_some((item ^ sign::<L>()) as usize)
}

impl<A: Addr, L: Leaf, S: Levels> Bitmaps<A, L, S> {
    /// Returns the node that answers, or [`NOWHERE`].
    #[inline(always)]
    fn find(&self, addr: A) -> usize {
        for level in &self.levels {
            let node = level.base + addr.bits(0, level.len);
            if self.b[node / 64] >> (node % 64) & 1 == 1 {
                return node;
            }
        }
        NOWHERE
    }

    /// Returns the answer of a node that [`find`](Self::find) has found.
    #[inline(always)]
    fn answer(&self, node: usize, addr: A) -> Hop {
        if node == NOWHERE {
            return Hop::NONE;
        }
        let item = self.n[node];
        match chunk(item) {
            Some(chunk) => self.n32[bottom(chunk, addr)].hop(),
            None => item.hop(),
        }
    }
}

/// Returns where in N32 a chunk answers for `addr`.
#[inline(always)]
fn bottom<A: Addr>(chunk: usize, addr: A) -> usize {
    chunk << low::<A>() | addr.bits(pivot::<A>(), low::<A>())
}

impl<A: Addr, L: Leaf, S: Levels> Engine<A> for Bitmaps<A, L, S> {
    #[inline]
    fn lookup(&self, addr: A) -> Hop {
        self.answer(self.find(addr), addr)
    }

    fn lookup_batch(&self, addrs: &[A], out: &mut [Hop]) {
        assert_eq!(addrs.len(), out.len(), "a batch has as many answers as addresses");
        let mut nodes = [NOWHERE; GROUP];
        for (addrs, out) in addrs.chunks(GROUP).zip(out.chunks_mut(GROUP)) {
            for (&addr, node) in addrs.iter().zip(&mut nodes) {
                *node = self.find(addr);
                self.n.prefetch(*node);
            }
            for ((&addr, &node), out) in addrs.iter().zip(&nodes).zip(out) {
                *out = self.answer(node, addr);
            }
        }
    }

    fn parts(&self) -> Vec<Part> {
        Vec::from([
            Part::of("B", &self.b).on_chip(),
            Part::of("N", &self.n).off_chip(),
            Part::of("N32", &self.n32).off_chip(),
        ])
    }

    fn trace(&self, addr: A, steps: &mut Vec<Step>) -> Hop {
        for level in &self.levels {
            let node = level.base + addr.bits(0, level.len);
            steps.push(Step::of("B", node / 64, &self.b));
            if self.b[node / 64] >> (node % 64) & 1 == 0 {
                continue;
            }
            steps.push(Step::of("N", node, &self.n));
            if let Some(chunk) = chunk(self.n[node]) {
                steps.push(Step::of("N32", bottom(chunk, addr), &self.n32));
            }
            return self.answer(node, addr);
        }
        Hop::NONE
    }
}
