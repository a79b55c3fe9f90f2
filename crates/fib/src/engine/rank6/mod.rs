//! rank6: IPv6 in the second-level cache, by ranks among short sorted starts.
//!
//! The routes of an IPv6 table share most of their 64 significant bits: 66 blocks of 16 bits hold
//! all routes of 2026, and a route's border differs from its neighbors only in the last 16 bits. So the address is cut at fixed places, and between two
//! cuts there is either a table or a chunk (`chunk.rs`): starts of 8 or 16 bits, as many as
//! there are borders, one vector compared with the probe, the ones counted, and the
//! count is the place of the value.
//!
//! ```text
//!    0          16     24     32            48            64           128
//!    ├──────────┼──────┼──────┼─────────────┼─────────────┼─────────────┤
//!      direct    blocks  nodes    chunks         chunks        long
//!      2^16      2^8     ranks    ranks          ranks         ranges,
//!      numbers   entries of ≤ 64  of ≤ 32, or    (rarely)      by halves
//!                        bytes,   by separators                (rarely)
//!                        or 2^8   of 1,056
//! ```
//!
//! An entry (`entry.rs`) of 32 bits is a hop, which ends the lookup, or states where the lookup
//! continues and in which format. A chunk's values are as wide as needed: one byte where all hops
//! under it are below 256, two below 65,536, four where one of them leads further. Blocks, nodes and chunks are shared by content. So the 258,956 routes of
//! July 2026 come to under four bytes each, starts, hops and all, and most lookups touch four
//! to six lines of the second-level cache.
//!
//! **A batch** goes through in passes, none of which branches on what a key finds: the
//! first two stages key by key, then all keys that found a node, then those in a chunk,
//! format by format (`wide.rs`). Without vectors each key is looked up on its own, with binary
//! searches.
//!
//! **Updates** are patched by blocks of 32 bits: the chunk of that block is written again,
//! and the node and the block of 2^8 entries above it if its entry has moved.
//!
//! The idea of a direct table with ranges below is DXR's (Zec, Rizzo, Mikuc 2012), the
//! search by one comparison and a count that of B-trees for vectors (Zhou, Ross,
//! SIGMOD 2002; Kim and others, FAST, SIGMOD 2010), and of range trees for IPv6 that are
//! laid out without pointers (Linearized B+-trees: PlanB, NSDI 2026). Laid out and
//! written from these ideas; no other's code was used.
//!
//! The families of other widths are cut in the same proportions, so that the toys run
//! every stage. O(1) and four ranks a lookup, each O(log n) without vectors. Limits:
//! 2^29 hops, and words of each array.

use alloc::vec::Vec;
use core::marker::PhantomData;

use super::{Engine, Part, Step};
use crate::arch::lanes;
use crate::image::Storable;
use crate::table::Table;
use crate::{Addr, FamilyLayout, Hop};
use chunk::{Scalar, Search, Width, find_few, find_many, find_node};
use entry::{counted, kind, kind_of, many_at, payload};

pub use builder::Rank6Builder;
pub(crate) use builder::bytes;

mod builder;
mod chunk;
mod entry;
mod image;
mod layout;
mod wide;

/// The cuts of a family: bits of the first stage, of the two of 8, of the two of 16.
#[derive(Clone, Copy, Debug)]
struct Cuts<A>(PhantomData<A>);

impl<A: FamilyLayout> Cuts<A> {
    /// The bits of the direct table.
    const DIRECT: u32 = A::Upper::BITS / 4;
    /// The bits of a block, and of a node.
    const NODE: u32 = A::Upper::BITS / 8;
    /// The bits of a chunk's starts.
    const CHUNK: u32 = A::Upper::BITS / 4;
    /// Where nodes begin.
    const NODES: u32 = Self::DIRECT + Self::NODE;
    /// Where the first chunks begin.
    const FIRST: u32 = Self::NODES + Self::NODE;
    /// Where the second chunks begin.
    const SECOND: u32 = Self::FIRST + Self::CHUNK;
    /// The bit at which longer ranges begin.
    const LONG: u32 = A::Upper::BITS;
    /// A node of more starts is a table.
    const MAX_STARTS: usize = (1 << Self::NODE) / 4;
}

/// A range of addresses below one upper half: where it begins, and its hop. The
/// first of a chunk is the number of those that follow.
type Long<A> = (A, u32);

/// A frozen table.
#[derive(Clone, Debug)]
pub struct Rank6<A: FamilyLayout> {
    direct: Table<u16>,
    blocks: Table<u32>,
    nodes: Table<u32>,
    chunks: Table<u32>,
    deep: Table<u32>,
    long: Table<Long<A>>,
}

impl<A: FamilyLayout> Rank6<A> {
    /// Returns where the entry of the first two stages is.
    #[inline(always)]
    fn at(&self, addr: A) -> usize {
        place(&self.direct, addr)
    }

    /// Follows an entry of the blocks through its node.
    #[inline(always)]
    fn node<S: Search>(&self, by: S, entry: u32, addr: A) -> u32 {
        let probe = addr.bits(Cuts::<A>::NODES, Cuts::<A>::NODE);
        match kind_of(entry) {
            kind::NODE => find_node(by, &self.nodes, counted(entry), probe as u32),
            kind::TABLE => self.nodes[payload(entry) as usize + probe],
            _ => entry,
        }
    }

    /// Follows an entry through a chunk.
    #[inline(always)]
    fn chunk<S: Search>(&self, by: S, entry: u32, probe: u32) -> u32 {
        let at = many_at(entry);
        match kind_of(entry) {
            kind::FEW_BYTES => find_few(by, &self.chunks, counted(entry), probe, Width::Bytes),
            kind::FEW_HALVES => find_few(by, &self.chunks, counted(entry), probe, Width::Halves),
            kind::MANY_BYTES => find_many::<_, true>(by, &self.chunks, at, probe, Width::Bytes),
            kind::MANY_HALVES => find_many::<_, true>(by, &self.chunks, at, probe, Width::Halves),
            kind::DEEP => find_many::<_, true>(by, &self.deep, at, probe, Width::Words),
            _ => entry,
        }
    }

    /// Follows the entry of a first chunk to the end.
    #[inline(always)]
    fn rest<S: Search>(&self, by: S, entry: u32, addr: A) -> Hop {
        if kind_of(entry) == kind::HOP {
            return Hop(entry);
        }
        let probe = addr.bits(Cuts::<A>::SECOND, Cuts::<A>::CHUNK) as u32;
        let entry = self.chunk(by, entry, probe);
        if kind_of(entry) == kind::HOP {
            return Hop(entry);
        }
        self.ranges(entry, |_| ())[..].partition(addr)
    }

    /// Returns the ranges of an entry of the second chunks that is no hop.
    fn ranges(&self, entry: u32, mut load: impl FnMut(usize)) -> &[Long<A>] {
        let at = payload(entry) as usize;
        load(at);
        let len = self.long[at].1 as usize;
        &self.long[at + 1..=at + len]
    }
}

/// Returns where the entry of the first two stages is, by the numbers of the first.
#[inline(always)]
fn place<A: FamilyLayout>(direct: &[u16], addr: A) -> usize {
    let block = usize::from(direct[addr.bits(0, Cuts::<A>::DIRECT)]);
    block << Cuts::<A>::NODE | addr.bits(Cuts::<A>::DIRECT, Cuts::<A>::NODE)
}

/// Ranges, of which one holds an address.
trait Ranges<A> {
    /// Returns the hop of the last range that does not begin above `addr`; the first
    /// never does.
    fn partition(&self, addr: A) -> Hop;
}

impl<A: Addr> Ranges<A> for [Long<A>] {
    fn partition(&self, addr: A) -> Hop {
        let above = self.partition_point(|range| range.0 <= addr);
        Hop(self[above.max(1) - 1].1)
    }
}

impl<A: FamilyLayout> Engine<A> for Rank6<A> {
    #[inline]
    fn lookup(&self, addr: A) -> Hop {
        let entry = self.blocks[self.at(addr)];
        if kind_of(entry) == kind::HOP {
            return Hop(entry);
        }
        let entry = self.node(Scalar, entry, addr);
        let probe = addr.bits(Cuts::<A>::FIRST, Cuts::<A>::CHUNK) as u32;
        let entry = self.chunk(Scalar, entry, probe);
        self.rest(Scalar, entry, addr)
    }

    fn lookup_batch(&self, addrs: &[A], out: &mut [Hop]) {
        assert_eq!(addrs.len(), out.len(), "a batch has as many answers as addresses");
        let batch = wide::Batch { table: self, addrs, out };
        let Err(batch) = lanes::wide(batch) else { return };
        for (addr, out) in batch.addrs.iter().zip(batch.out) {
            *out = self.lookup(*addr);
        }
    }

    fn storable(&self) -> Option<&dyn Storable> {
        Some(self)
    }

    fn parts(&self) -> Vec<Part> {
        Vec::from([
            Part::of("direct", &self.direct[..]),
            Part::of("blocks", &self.blocks[..]),
            Part::of("nodes", &self.nodes[..]),
            Part::of("chunks", &self.chunks[..]),
            Part::of("deep", &self.deep[..]),
            Part::of("long", &self.long[..]),
        ])
    }

    fn trace(&self, addr: A, steps: &mut Vec<Step>) -> Hop {
        steps.push(Step::of("direct", addr.bits(0, Cuts::<A>::DIRECT), &self.direct[..]));
        steps.push(Step::of("blocks", self.at(addr), &self.blocks[..]));
        let mut entry = self.blocks[self.at(addr)];
        // A trace lists the entry's first word and its value; the words between are on the same
        // line, except in large chunks.
        for (from, bits) in [
            (Cuts::<A>::NODES, Cuts::<A>::NODE),
            (Cuts::<A>::FIRST, Cuts::<A>::CHUNK),
            (Cuts::<A>::SECOND, Cuts::<A>::CHUNK),
        ] {
            let probe = addr.bits(from, bits) as u32;
            let is_node = from == Cuts::<A>::NODES;
            entry = match kind_of(entry) {
                kind::NODE | kind::TABLE if is_node => {
                    layout::trace(entry, "nodes", &self.nodes, probe, steps);
                    self.node(Scalar, entry, addr)
                }
                kind::DEEP if !is_node => {
                    layout::trace(entry, "deep", &self.deep, probe, steps);
                    self.chunk(Scalar, entry, probe)
                }
                kind::FEW_BYTES..=kind::MANY_HALVES if !is_node => {
                    layout::trace(entry, "chunks", &self.chunks, probe, steps);
                    self.chunk(Scalar, entry, probe)
                }
                _ => entry,
            };
        }
        if kind_of(entry) == kind::HOP {
            return Hop(entry);
        }
        let mut load = |at| steps.push(Step::of("long", at, &self.long[..]));
        let ranges = self.ranges(entry, &mut load);
        let (mut first, mut len) = (0, ranges.len());
        let begin = payload(entry) as usize + 1;
        while len > 1 {
            let half = len / 2;
            load(begin + first + half);
            if ranges[first + half].0 <= addr {
                first += half;
            }
            len -= half;
        }
        load(begin + first);
        Hop(ranges[first].1)
    }
}
