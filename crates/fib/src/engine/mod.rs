//! The engines: layouts of the routes in memory for fast lookups.
//!
//! | engine | idea | source | update | limits |
//! |---|---|---|---|---|
//! | [`linear`] | every route, longest first: the oracle | – | whole | – |
//! | [`binary`] | unibit trie: one bit a level | Fu 2020, 2.1 | a path | 2^31 nodes |
//! | [`patricia`] | radix trie of the BSD kind: paths compressed, masks on the way back up | Sklower 1991, Zec 2019 | a node or two | 2^31 nodes |
//! | [`multibit`] | fixed-stride trie: 1 to 8 bits a level, prefixes expanded to the level's end | Vesović 2017 | within one node | 2^31 entries |
//! | [`lctrie`] | paths and full levels compressed, one comparison | Nilsson, Karlsson 1999 | slots of the root | 2^31 items |
//! | [`treebitmap`] | nodes of two bitmaps, children and results side by side | Eatherton 2004 | one block | 2^32 items |
//! | [`lulea`] | cuts at 16, 24 and 32 bits, heads counted by code words | Degermark 1997 | 16-bit blocks | IPv4; 2^30 hops, chunks |
//! | [`poptrie`] | a direct table of 16 to 20 bits, then 6 bits a level by popcount | Asai, Ohara 2015 | a direct slot | 2^31 nodes, leaves |
//! | [`dir24_8`] | one table for the first 24 bits, another for the last 8 | Gupta 1998 | the entries | IPv4; 2^31 hops, blocks |
//! | [`sail`]: `sail_b` | a bitmap for each length to 24, then one load of a hop | Fu 2020, 3.3 | one bit on chip | IPv4; 2^31 hops |
//! | [`sail`]: `sail_u` | the same at 6, 12, 18 and 24 | Fu 2020, 3.4.1 | one word on chip | IPv4; 2^31 hops |
//! | [`sail`]: `sail_l` | levels 16, 24 and 32, a load each, most answers after two | Fu 2020, 3.4.2 | the entries | IPv4; 2^32 hops |
//! | [`sail`]: `SailM` | the same for many FIBs, which share all but the hops | Fu 2020, 3.4.3 | the entries | IPv4 |
//! | [`sail6`] | small IPv6 tables: levels 16, 24, 32, 40, 48 and 64, a load each | Fu 2020, 3.6.1 | the entries | IPv6; 2^31 |
//! | [`sail6_large`] | large IPv6 tables: bitmaps to 24, Bloom filters above, pivots | Fu 2020, 3.6.2 | a slot, and pivots that inherit | IPv6 |
//! | [`pbf`] | a Bloom filter and a hash table for each prefix length | Dharmapurikar et al. 2003 | a slot and 13 counters | – |
//! | [`ranges`] | binary search on address ranges, with or without a first table of 2^16 | Lampson 1998 | whole, or a slot | 2^32 ranges |
//! | [`nart`] | 2^16 entries, tables of 2^8, one list of longer routes | Chiueh, Pradhan 1999 | a block | IPv4 |
//! | [`rank`]: `Rank` | 2^16 entries, then a place in one chunk, counted word by word | ours | to /24 | IPv4; 2^30 hops |
//! | [`rank`]: `Flat` | the same, a leaf for every place, 8 bits a chunk to the last bit | ours | to /24, /48 | 2^30 hops |
//! | [`dxr`] | direct tables, then a search among the ranges of one chunk | Zec 2019 | the chunks | see `dxr/entry.rs` |
//! | [`rank6`] | short sorted starts between fixed cuts, one vector compared, the ones counted | Zec 2012, Zhou, Ross 2002 | a chunk of 16 bits | IPv6; 2^29 hops, words |
//! | [`halves`] | the upper half of the address in one table, longer routes in another | ours | the chunks | IPv6 |
//!
//! The guide (`docs/guide/engines.md`) has the size, the accesses and the measured speed of each,
//! and when to use it. A limit that is exceeded is the error [`Full`], upon which the factory takes
//! the wider layout if there is one.
//!
//! In front of any of them, [`hac`] caches the last answers (Chiueh, Pradhan 1999).
//!
//! Every engine is two structs. A builder owns all that is needed to change the table; it is a
//! [`Builder`] if the scheme is laid out from runs, block by block, and a [`RouteBuilder`] if it
//! keeps routes as they are and changes them one by one. It freezes an [`Engine`]: plain arrays
//! that any number of threads read. To add one: its file here, a line in `choice.rs`, a line in
//! `factory.rs`; the battery under `tests/` then tests it like all others. An engine with an image
//! format implements [`Storable`] and [`Loadable`](crate::image::Loadable), and has a line in
//! `factory/load.rs`.

#[cfg(all(feature = "std", target_os = "linux"))]
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::any::Any;
use core::hint::black_box;

#[cfg(all(feature = "std", target_os = "linux"))]
use crate::WordFiles;
use crate::image::Storable;
use crate::runs::Run;
use crate::{Addr, Full, Hop, Prefix, Rib};

pub mod binary;
mod chunks;
pub mod dir24_8;
pub mod dxr;
pub mod hac;
pub mod halves;
pub(crate) mod hash;
pub mod lctrie;
pub(crate) mod leaf;
pub mod linear;
pub mod lulea;
pub mod multibit;
pub mod nart;
pub(crate) mod nodes;
pub mod overlap;
pub mod patricia;
pub mod pbf;
pub mod poptrie;
pub mod ranges;
pub mod rank;
pub mod rank6;
pub mod sail;
pub mod sail6;
pub mod sail6_large;
pub mod treebitmap;

pub use chunks::{ChunkCounts, Chunks};
pub use leaf::Leaf;
use overlap::Overlapped;

/// A frozen table: plain arrays, shared by any number of threads.
pub trait Engine<A: Addr>: Any + Send + Sync {
    /// Returns the hop of the longest route that holds `addr`, or [`Hop::NONE`].
    fn lookup(&self, addr: A) -> Hop;

    /// Looks up `addrs[i]` into `out[i]` for every i.
    ///
    /// # Panics
    ///
    /// If the slices differ in length.
    fn lookup_batch(&self, addrs: &[A], out: &mut [Hop]) {
        assert_eq!(addrs.len(), out.len(), "a batch has as many answers as addresses");
        for (addr, out) in addrs.iter().zip(out) {
            *out = self.lookup(*addr);
        }
    }

    /// Looks up `addrs[i]` into `out[i]`, each waiting for the answer before it:
    /// the SEQ of Zec's thesis (section 3.6), which measures the latency of one lookup. Zero bits
    /// derived from the last answer are part of the next key: a data dependency that the optimizer
    /// cannot remove.
    fn lookup_chained(&self, addrs: &[A], out: &mut [Hop]) {
        chain(addrs, out, |addr| self.lookup(addr));
    }

    /// Returns the same lookups as state machines, whose waits can be overlapped in two ways; `None`
    /// for engines that do not chase pointers.
    fn overlapped(&self) -> Option<&dyn Overlapped<A>> {
        None
    }

    /// Returns the table for writing to an image, if the engine has an image format.
    fn storable(&self) -> Option<&dyn Storable> {
        None
    }

    /// Lists the arrays that lookups may touch.
    fn parts(&self) -> Vec<Part>;

    /// Counts the chunks of a DXR table (that of the upper halves, if there are two); `None` for other engines.
    fn chunks(&self) -> Option<Chunks> {
        None
    }

    /// Looks `addr` up and appends every load to `steps`: a slow version of
    /// [`lookup`](Self::lookup) for explanation and counting.
    fn trace(&self, addr: A, steps: &mut Vec<Step>) -> Hop;

    /// Returns the bytes that lookups may touch.
    fn footprint(&self) -> usize {
        self.parts().iter().map(|part| part.bytes).sum()
    }
}

/// Implements [`Engine::lookup_chained`] with any function that looks one address up.
#[inline(always)]
pub(crate) fn chain<A: Addr>(addrs: &[A], out: &mut [Hop], lookup: impl Fn(A) -> Hop) {
    let none = black_box(0);
    let mut before = Hop::NONE;
    for (&addr, out) in addrs.iter().zip(out) {
        before = lookup(A::from_u128(addr.to_u128() ^ u128::from(before.0 & none)));
        *out = before;
    }
}

/// The memory in which a paper puts an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Fast and small: the on-chip memory of an FPGA, or the cache of a CPU.
    OnChip,
    /// Slow and large.
    OffChip,
}

/// One array of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The name in the engine's paper.
    pub name: &'static str,
    /// The number of items.
    pub items: usize,
    /// Their bytes.
    pub bytes: usize,
    /// The memory in which the paper puts it, if it distinguishes them.
    pub place: Option<Place>,
}

impl Part {
    /// Describes `items`.
    pub fn of<T>(name: &'static str, items: &[T]) -> Self {
        Self { name, items: items.len(), bytes: size_of_val(items), place: None }
    }

    /// Marks the part as on chip.
    #[must_use]
    pub fn on_chip(self) -> Self {
        Self { place: Some(Place::OnChip), ..self }
    }

    /// Marks the part as off chip.
    #[must_use]
    pub fn off_chip(self) -> Self {
        Self { place: Some(Place::OffChip), ..self }
    }
}

/// One load of a lookup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The array's name, as in [`Part`].
    pub part: &'static str,
    /// The index of the item.
    pub index: usize,
    /// The bytes of the item.
    pub bytes: usize,
}

impl Step {
    /// Describes the load of `items[index]`.
    pub fn of<T>(part: &'static str, index: usize, _items: &[T]) -> Self {
        Self { part, index, bytes: size_of::<T>() }
    }
}

/// The mutable side of an engine that is laid out from runs: owns its pools, and the state needed
/// to share equal parts and to patch.
pub trait Builder<A: Addr>: Send {
    /// The frozen table.
    type Engine: Engine<A>;

    /// Returns the length in bits of the smallest blocks that can be patched.
    fn block_len(&self) -> u32;

    /// Returns the length in bits of the blocks between which builders may divide
    /// the space, to be joined with [`absorb`](Self::absorb).
    fn share_len(&self) -> u32;

    /// Lays out `runs`, which tile `block`, in place of the block's present content.
    ///
    /// # Errors
    ///
    /// [`Full`] if a limit of the layout is exceeded. The builder must then not be used any more;
    /// tables frozen before stay valid.
    ///
    /// # Panics
    ///
    /// If the block is longer than [`block_len`](Self::block_len).
    fn patch(&mut self, block: Prefix<A>, runs: &[Run<A>]) -> Result<(), Full>;

    /// Copies from `part`, a builder of the same layout, the entries of the
    /// addresses `first` to `last`, which begin and end with blocks of
    /// [`share_len`](Self::share_len) bits, so that several threads can build one table.
    ///
    /// # Errors
    ///
    /// [`Full`] as for [`patch`](Self::patch).
    fn absorb(&mut self, part: &Self, first: A, last: A) -> Result<(), Full>;

    /// Copies the present table.
    fn freeze(&self) -> Self::Engine;

    /// Brings `idle`, frozen from this builder earlier, up to date by copying
    /// only what has changed since.
    fn refresh(&self, idle: &mut Self::Engine);

    /// Returns the number of 64-bit words of the table's arrays written so far: the memory accesses
    /// of an update (Fu 2020, section 3.4.2). Growth counts.
    fn written(&self) -> u64;

    /// Counts the unused bytes within the table, if the builder does not close such holes itself:
    /// the updater rebuilds the table when they exceed a sixteenth of it.
    fn holes(&self) -> usize {
        0
    }

    /// Moves the words that tables share into files, if the engine has such words.
    #[cfg(all(feature = "std", target_os = "linux"))]
    fn place_in(&mut self, _files: Arc<dyn WordFiles>) {}
}

/// The mutable side of an engine that keeps routes as they are, nested, and updates each of them on
/// its own.
pub trait RouteBuilder<A: Addr>: Send {
    /// The frozen table.
    type Engine: Engine<A>;

    /// Lays out all routes, in place of the present table.
    ///
    /// # Errors
    ///
    /// [`Full`] if a limit of the layout is exceeded. The builder must then not be used any more;
    /// tables frozen before stay valid.
    fn fill(&mut self, rib: &Rib<A>) -> Result<(), Full>;

    /// Applies the change of the route of exactly `prefix`, which is new, has another hop or is
    /// removed in `rib`. `rib` may already have other changes, for each of which this is called
    /// too.
    ///
    /// # Errors
    ///
    /// [`Full`] as for [`fill`](Self::fill).
    fn change(&mut self, rib: &Rib<A>, prefix: Prefix<A>) -> Result<(), Full>;

    /// Copies the present table.
    fn freeze(&self) -> Self::Engine;

    /// Brings `idle`, frozen from this builder earlier, up to date by copying
    /// only what has changed since.
    fn refresh(&self, idle: &mut Self::Engine);

    /// Returns the number of 64-bit words written, as [`Builder::written`].
    fn written(&self) -> u64;

    /// Counts the unused bytes within the table, if the builder does not close such holes itself:
    /// the updater rebuilds the table when they exceed a sixteenth of it.
    fn holes(&self) -> usize {
        0
    }
}
