//! `rank` and `flat`: one entry for the upper half of the bits, then a leaf of one chunk, found by
//! counting ones or directly.
//!
//! The scheme is this project's own, made of known parts: a first table and chunks of runs are
//! DXR's (Zec 2019), and finding a leaf by counting the ones of a bitmap is Lulea's and Poptrie's
//! (Degermark 1997; Asai, Ohara 2015). The new part is the word: 24 bits of the bitmap and, beside
//! them, the count of all ones before it, so that a rank is one load, one shift and one count,
//! without a branch, in any chunk.
//!
//! ```text
//!  bits 0..16            16..24                                   24..32
//!  direct                a chunk: words, then leaves              a chunk below a leaf
//!  ┌───────────────┐     ┌────────────────────┬───────┐ × 1–11    ┌────────
//!  │00 hop         │  ┌─►│ 24 bits, 1st on top│ before│           │ the same
//!  │kk window place├──┘  └────────────────────┴───────┘           └────────
//!  │ …        2^16 │     ┌────┬────┬────┬─                               ▲
//!  └───────────────┘     │leaf│leaf│leaf│ …  8, 16 or 32 bits each ──────┘
//!                        └────┴────┴────┴─
//! ```
//!
//! A bit is set where the answer changes. Most chunks need no 256 of them: the
//! *window* (`entry.rs`) says where the first change may be, how many addresses a bit
//! stands for (1, 2, 4 or 8) and how many words there are; an address outside of it is
//! moved to its nearer end. Leaves are as wide as the chunk's largest: hops below 256
//! and 65,536 in one and two bytes, and four bytes where they are higher, or where
//! routes are longer than 24 bits: such a leaf is an entry again, which leads to a
//! chunk of the last 8 bits. So any length and 2^30 hops are exact, and only the
//! chunks that need it pay. Equal chunks are stored once.
//!
//! [`Flat`] has no words: one leaf for each bit, twice to three times the bytes, one load
//! less. It is for caches that hold it, and for IPv6 where a CPU has no vectors of 512 bits: chunks of 8
//! bits follow each other to the last of the 128 bits then, at most 14.
//!
//! | | loads | bytes a route of 2026, 150 hops |
//! |---|---|---|
//! | `rank`, IPv4 | 1 or 3, 5 below /24 | 1.0 |
//! | `flat`, IPv4 | 1 or 2, 3 below /24 | 2.7 |
//! | `flat`, IPv6 | 1 to 5 to /48, 7 to /64, 15 to /128 | 19 |
//!
//! A patch computes the entries of the first table and builds the chunks below them that
//! differ, those of the last bits first; O(256 + runs) for each. Chunks are never changed, and alternating tables
//! share them (`shared_pool.rs`). Limits: 2^30 hops, and 2^22 places, of 4 bytes or,
//! for tables that need more, of 16, 64 or 256 (*grain*).

use alloc::vec::Vec;
use core::marker::PhantomData;

use super::{Engine, Part, Step, chain};
use crate::arch::lanes::{self, MAX_ITEMS};
use crate::arch::{self, Kernel};
use crate::image::Storable;
use crate::shared_pool::PoolSnapshot;
use crate::table::Table;
use crate::{Addr, Hop};

mod builder;
mod chunk;
mod entry;
mod image;
mod wide;

pub use builder::RankBuilder;
pub(crate) use builder::bytes;
use entry::Entry;
pub use entry::{ChunkShape, PLACE_BITS, SHAPE_BITS, WORD_BITS};

/// How many lookups pass the first table before the chunks of those that need one.
const GROUP: usize = 64;

/// The form of a chunk: the words before its leaves.
pub trait Form: Send + Sync + 'static {
    /// Whether there are words of a bitmap; if not, there is a leaf for each bit.
    const WORDS: bool;
}

/// The form with words.
#[derive(Clone, Copy, Debug)]
pub enum Ranked {}

/// The form without words.
#[derive(Clone, Copy, Debug)]
pub enum Plain {}

impl Form for Ranked {
    const WORDS: bool = true;
}

impl Form for Plain {
    const WORDS: bool = false;
}

/// A frozen table whose leaves are found by rank.
pub type Rank<A> = Chunked<A, Ranked>;

/// A frozen table with a leaf for each place.
pub type Flat<A> = Chunked<A, Plain>;

/// A frozen table of either form.
#[derive(Clone, Debug)]
pub struct Chunked<A, F> {
    direct: Table<u32>,
    chunks: PoolSnapshot,
    /// The binary logarithm of the words in a place.
    grain: u32,
    form: PhantomData<(A, F)>,
}

impl<A: Addr, F: Form> Chunked<A, F> {
    /// Returns the leaf for `bits` of `entry`'s chunk, as an entry.
    #[inline(always)]
    fn below(&self, entry: Entry, bits: u32) -> Entry {
        let (place, at) = entry.find(bits);
        let mut first = (place << self.grain) as usize;
        let mut leaf = at;
        if F::WORDS {
            leaf = rank(self.chunks.word(first + (at / WORD_BITS) as usize), at % WORD_BITS);
            first += entry.word_count() as usize;
        }
        let (within, shift, mask) = entry.leaf(leaf);
        Entry(self.chunks.word(first + within) >> shift & mask)
    }

    #[inline(always)]
    fn lookup_one(&self, addr: A) -> Hop {
        let entry = Entry(self.direct[addr.bits(0, direct_bits::<A>())]);
        if entry.is_hop() { Hop(entry.0) } else { self.rest(entry, addr) }
    }

    /// Goes on from an entry that is no hop.
    #[inline(always)]
    fn rest(&self, mut entry: Entry, addr: A) -> Hop {
        for from in stages::<A>() {
            entry = self.below(entry, addr.bits(from, stride::<A>()) as u32);
            if entry.is_hop() {
                break;
            }
        }
        Hop(entry.0)
    }

    /// A batch without lanes: first all entries, then the chunks of those that need one.
    #[inline(always)]
    fn groups(&self, addrs: &[A], out: &mut [Hop]) {
        for (addrs, out) in addrs.chunks(GROUP).zip(out.chunks_mut(GROUP)) {
            // Each position is written at the list's end, which moves on only for a chunk.
            let mut list = [0u8; GROUP];
            let mut listed = 0;
            for (i, (&addr, out)) in addrs.iter().zip(&mut *out).enumerate() {
                let entry = Entry(self.direct[addr.bits(0, direct_bits::<A>())]);
                *out = Hop(entry.0);
                list[listed % GROUP] = i as u8;
                listed += usize::from(!entry.is_hop());
            }
            let mut list = &mut list[..listed.min(GROUP)];
            if A::BITS <= 32 {
                for &mut i in list {
                    let i = usize::from(i) % GROUP;
                    out[i] = self.rest(Entry(out[i].0), addrs[i]);
                }
                continue;
            }
            // All keys take a stage before any takes the next.
            for from in stages::<A>() {
                let mut left = 0;
                for at in 0..list.len() {
                    let i = usize::from(list[at]) % GROUP;
                    let bits = addrs[i].bits(from, stride::<A>()) as u32;
                    let entry = self.below(Entry(out[i].0), bits);
                    out[i] = Hop(entry.0);
                    list[left] = i as u8;
                    left += usize::from(!entry.is_hop());
                }
                list = &mut list[..left];
                if left == 0 {
                    break;
                }
            }
        }
    }
}

impl<A: Addr, F: Form> Chunked<A, F> {
    /// Returns the first table, an entry for each value of the upper [`direct_bits`].
    pub fn direct(&self) -> &[u32] {
        &self.direct
    }

    /// Returns the words of the chunks. A clone keeps those that this table reaches.
    pub fn chunks(&self) -> &PoolSnapshot {
        &self.chunks
    }

    /// Returns the binary logarithm of the words in a place.
    pub fn grain(&self) -> u32 {
        self.grain
    }
}

/// Counts the ones of a word from the first to `bit`, and those before the word.
#[inline(always)]
fn rank(word: u32, bit: u32) -> u32 {
    (word & 0xff) + (word >> (31 - bit)).count_ones()
}

/// The number of bits that a chunk resolves: 8, but a quarter of a shorter address.
pub const fn stride<A: Addr>() -> u32 {
    if A::BITS < 32 { A::BITS / 4 } else { 8 }
}

/// The number of bits that the first table resolves: 16, but half of a shorter address.
pub const fn direct_bits<A: Addr>() -> u32 {
    2 * stride::<A>()
}

/// Returns the bits that chunks begin behind, from the first table on: two numbers for IPv4, 14 for IPv6.
#[inline(always)]
pub fn stages<A: Addr>() -> impl Iterator<Item = u32> {
    (direct_bits::<A>()..A::BITS).step_by(stride::<A>() as usize)
}

/// One lookup, as a kernel.
struct One<'a, A, F>(&'a Chunked<A, F>, A);

impl<A: Addr, F: Form> Kernel for One<'_, A, F> {
    type Out = Hop;

    #[inline(always)]
    fn run(self) -> Hop {
        self.0.lookup_one(self.1)
    }
}

/// A batch, as a kernel.
struct Batch<'a, A, F> {
    table: &'a Chunked<A, F>,
    addrs: &'a [A],
    out: &'a mut [Hop],
}

impl<A: Addr, F: Form> Kernel for Batch<'_, A, F> {
    type Out = ();

    #[inline(always)]
    fn run(self) {
        self.table.groups(self.addrs, self.out);
    }
}

/// Lookups that wait for each other, as a kernel.
struct Chain<'a, A, F>(Batch<'a, A, F>);

impl<A: Addr, F: Form> Kernel for Chain<'_, A, F> {
    type Out = ();

    #[inline(always)]
    fn run(self) {
        let Batch { table, addrs, out } = self.0;
        chain(addrs, out, |addr| table.lookup_one(addr));
    }
}

impl<A: Addr, F: Form> Engine<A> for Chunked<A, F> {
    #[inline]
    fn lookup(&self, addr: A) -> Hop {
        if F::WORDS { arch::run(One(self, addr)) } else { self.lookup_one(addr) }
    }

    fn lookup_batch(&self, addrs: &[A], out: &mut [Hop]) {
        assert_eq!(addrs.len(), out.len(), "a batch has as many answers as addresses");
        if self.chunks.len() > MAX_ITEMS || !lanes::batch(self, addrs, out) {
            arch::run(Batch { table: self, addrs, out });
        }
    }

    fn lookup_chained(&self, addrs: &[A], out: &mut [Hop]) {
        arch::run(Chain(Batch { table: self, addrs, out }));
    }

    fn storable(&self) -> Option<&dyn Storable> {
        Some(self)
    }

    fn parts(&self) -> Vec<Part> {
        Vec::from([Part::of("direct", &self.direct), Part::of("chunks", &self.chunks)])
    }

    fn trace(&self, addr: A, steps: &mut Vec<Step>) -> Hop {
        let index = addr.bits(0, direct_bits::<A>());
        steps.push(Step::of("direct", index, &self.direct));
        let mut entry = Entry(self.direct[index]);
        for from in stages::<A>() {
            if entry.is_hop() {
                break;
            }
            let (place, at) = entry.find(addr.bits(from, stride::<A>()) as u32);
            let mut first = (place << self.grain) as usize;
            let mut leaf = at;
            if F::WORDS {
                let word = first + (at / WORD_BITS) as usize;
                steps.push(Step::of("chunks", word, &self.chunks));
                leaf = rank(self.chunks.word(word), at % WORD_BITS);
                first += entry.word_count() as usize;
            }
            let (within, shift, mask) = entry.leaf(leaf);
            steps.push(Step::of("chunks", first + within, &self.chunks));
            entry = Entry(self.chunks.word(first + within) >> shift & mask);
        }
        Hop(entry.0)
    }
}
