//! A table of the engine `flat` or `rank` in BPF arrays: what programs read, and how commits get there.
//!
//! ```text
//!   direct   one array: an entry for each value of the first 16 bits; a commit stores
//!            the entries that differ, each in one step
//!   chunks   one array: the updater's own words; a chunk is stored where no table reaches, and
//!            never changed
//!   shapes   one array: what the upper bits of an entry mean (`shapes.rs`)
//! ```
//!
//! **Why no program sees half a change.** A lookup reads one entry of the direct array and from there
//! only chunks that the entry reaches. A chunk is complete before an entry that leads to it is stored
//! (release; the program's next load depends on the entry). So each lookup is answered by
//! the table before or after the commit. Entries are stored one after the other: lookups of
//! different addresses may see a commit at different times, as with any router that installs routes one by
//! one.
//!
//! **Why no chunk is reused too early.** A [`PoolSnapshot`] pins the chunks of the state
//! that was published with it. That of the former state is dropped after a grace period
//! (`grace.rs`): no program runs any more that could have read a former entry.
//!
//! **Growth.** When the updater moves its words (a table that outgrows the array, or is
//! built from scratch), [`KernelTable::publish`] makes a new set of arrays with the whole table, and
//! returns [`Publication::Replaced`]. Programs that were loaded with the former set continue to
//! answer from the table as it was; the caller loads programs with the new set and puts them
//! in their place ([`Link::replace`](port::af_xdp::bpf::Link::replace)), which the kernel does without a
//! gap.
//!
//! Limits: those of the engine, 2^30 hops and 2^28 words; 256 KiB and the chunks for each set.

use std::any::Any;
use std::error::Error;
use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use fib::engine::rank::{
    ChunkShape, Flat, PLACE_BITS, Rank, SHAPE_BITS, WORD_BITS, direct_bits, stages, stride,
};
use fib::{Addr, Family, Fib, Hop, MappedWords, PoolSnapshot, WordFile};
use port::af_xdp::bpf::Map;

use crate::Grace;
use crate::arrays::{BpfArray, BpfArrays};
use crate::shapes::{mask, shapes};

/// The effect of a [`KernelTable::publish`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Publication {
    /// Programs see the table with their next packet.
    InPlace,
    /// The table is in other arrays: programs must be loaded with
    /// [`KernelTable::arrays`] and replace the present ones.
    Replaced,
}

/// The arrays of one table, for programs to be loaded with.
pub struct TableArrays<A> {
    pub(crate) direct: MappedWords,
    pub(crate) chunks: Arc<dyn WordFile>,
    /// All words of that array, for lookups of this process.
    words: MappedWords,
    pub(crate) shapes: Map,
    pub(crate) grain: u32,
    /// Whether leaves are found by rank.
    pub(crate) ranked: bool,
    family: PhantomData<A>,
}

/// The parts of a table that programs read.
struct Parts<'a> {
    direct: &'a [u32],
    chunks: &'a PoolSnapshot,
    grain: u32,
    ranked: bool,
}

impl<'a> Parts<'a> {
    fn of<A: Family>(fib: &'a Fib<A>) -> Result<Self, TableError> {
        let engine: &dyn Any = fib.engine();
        if let Some(flat) = engine.downcast_ref::<Flat<A>>() {
            let (direct, chunks, grain) = (flat.direct(), flat.chunks(), flat.grain());
            return Ok(Self { direct, chunks, grain, ranked: false });
        }
        if let Some(rank) = engine.downcast_ref::<Rank<A>>() {
            let (direct, chunks, grain) = (rank.direct(), rank.chunks(), rank.grain());
            return Ok(Self { direct, chunks, grain, ranked: true });
        }
        Err(TableError::Engine(fib.name()))
    }
}

impl<A: Addr> TableArrays<A> {
    fn new(parts: &Parts<'_>) -> Result<Self, TableError> {
        let mapping = parts.chunks.mapping().ok_or(TableError::NoArray(None))?;
        let chunks = Arc::clone(mapping.file());
        let words = MappedWords::new(Arc::clone(&chunks), mapping.len())?;
        let direct = BpfArray::mapped("direct", 1 << direct_bits::<A>())?;
        let shapes = shapes()?;
        let arrays = Self {
            direct,
            chunks,
            words,
            shapes,
            grain: parts.grain,
            ranked: parts.ranked,
            family: PhantomData,
        };
        arrays.store(parts.direct);
        Ok(arrays)
    }

    /// Stores the entries that differ and returns how many.
    fn store(&self, direct: &[u32]) -> usize {
        let mut stored = 0;
        for (to, &entry) in self.direct.iter().zip(direct) {
            if to.load(Ordering::Relaxed) != entry {
                to.store(entry, Ordering::Release);
                stored += 1;
            }
        }
        stored
    }

    /// Returns the map of the first entries.
    pub(crate) fn direct_map(&self) -> &Map {
        map_of(self.direct.file())
    }

    /// Returns the map of the chunks.
    pub(crate) fn chunk_map(&self) -> &Map {
        map_of(&self.chunks)
    }

    /// Looks up in the arrays as a program in the kernel does, step by step: the slow twin of
    /// `lookup.rs`.
    ///
    /// # Panics
    ///
    /// If the arrays hold anything but a table.
    pub fn lookup(&self, addr: A) -> Hop {
        let load = |words: &[AtomicU32], at: usize| words[at].load(Ordering::Acquire);
        let mut entry = load(&self.direct, addr.bits(0, direct_bits::<A>()));
        for from in stages::<A>() {
            let Some(shape) = ChunkShape::of(entry >> (32 - SHAPE_BITS)) else { break };
            let low = (entry >> PLACE_BITS & 7) * 32;
            let bits = addr.bits(from, stride::<A>()) as u32;
            let bit = (bits.saturating_sub(low) >> shape.shift).min(shape.last);
            let mut first = ((entry & ((1 << PLACE_BITS) - 1)) << self.grain) as usize;
            let mut leaf = bit;
            if self.ranked {
                let word = load(&self.words, first + (bit / WORD_BITS) as usize);
                leaf = (word & 0xff) + (word >> (31 - bit % WORD_BITS)).count_ones();
                first += shape.words as usize;
            }
            let byte = leaf << shape.width;
            let word = load(&self.words, first + byte as usize / 4);
            entry = word >> (byte % 4 * 8) & mask(shape.width);
        }
        Hop(entry)
    }

    /// Returns the bytes that programs may read.
    pub fn bytes(&self) -> usize {
        size_of_val(&self.direct[..]) + size_of_val(&self.words[..])
    }
}

/// Returns whether two handles are of one file. Their tables of methods may differ even then.
fn is_same(one: &Arc<dyn WordFile>, other: &Arc<dyn WordFile>) -> bool {
    std::ptr::addr_eq(Arc::as_ptr(one), Arc::as_ptr(other))
}

/// Returns the map of a file that is a BPF array.
pub(crate) fn map_of(file: &Arc<dyn WordFile>) -> &Map {
    let file: &dyn Any = &**file;
    match file.downcast_ref::<BpfArray>() {
        Some(array) => &array.0,
        None => unreachable!("`KernelTable` takes tables in BPF arrays only"),
    }
}

impl<A> fmt::Debug for TableArrays<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = self.words.len();
        f.debug_struct("TableArrays").field("chunk_words", &words).finish_non_exhaustive()
    }
}

/// A table that programs in the kernel read, kept equal to one of an updater.
#[derive(Debug)]
pub struct KernelTable<A> {
    files: Arc<BpfArrays>,
    arrays: Arc<TableArrays<A>>,
    /// Keeps the chunks of the published state.
    pin: PoolSnapshot,
    grace: Grace<(PoolSnapshot, Arc<()>)>,
    /// Has a clone in each state that a program may still read.
    former: Arc<()>,
}

impl<A: Family> KernelTable<A> {
    /// Puts `fib` into arrays. It is the table of an updater that was made with `files`
    /// ([`fib::Updater::new_in`]).
    ///
    /// # Errors
    ///
    /// [`TableError`]; nothing remains in the kernel then.
    pub fn new(files: &Arc<BpfArrays>, fib: &Fib<A>) -> Result<Self, TableError> {
        let parts = Parts::of(fib)?;
        Ok(Self {
            files: Arc::clone(files),
            arrays: Arc::new(TableArrays::new(&parts).map_err(|error| error.explained(files))?),
            pin: parts.chunks.clone(),
            grace: Grace::new()?,
            former: Arc::new(()),
        })
    }

    /// Brings the arrays up to date with `fib`, the same updater's present table.
    ///
    /// Programs that are loaded with [`arrays`](Self::arrays) must not run any more when this value
    /// is dropped, unless the updater is too: chunks they reach would be reused.
    ///
    /// # Errors
    ///
    /// [`TableError`]; programs continue with the table as it was published last.
    ///
    /// # Complexity
    ///
    /// O(2^16) comparisons, some 10 µs, and a store for each entry that differs.
    pub fn publish(&mut self, fib: &Fib<A>) -> Result<Publication, TableError> {
        let parts = Parts::of(fib)?;
        let in_place = parts
            .chunks
            .mapping()
            .is_some_and(|mapping| is_same(mapping.file(), &self.arrays.chunks));
        let publication = if in_place {
            if self.arrays.store(parts.direct) == 0 {
                // Every entry, and so every chunk that one reaches, is as before.
                return Ok(Publication::InPlace);
            }
            Publication::InPlace
        } else {
            let arrays = TableArrays::new(&parts).map_err(|error| error.explained(&self.files))?;
            self.arrays = Arc::new(arrays);
            Publication::Replaced
        };
        let former = std::mem::replace(&mut self.pin, parts.chunks.clone());
        self.grace.retire((former, Arc::clone(&self.former)));
        Ok(publication)
    }

    /// Waits, on another thread, for the end of programs that run now: those with former arrays have been
    /// replaced. [`has_passed`](Self::has_passed) returns true after that.
    pub fn begin_grace_period(&self) {
        self.grace.retire((self.pin.clone(), Arc::clone(&self.former)));
    }

    /// Returns whether every program has left all states but the last. After a
    /// [`Publication::Replaced`] this holds for programs with the present arrays only, until the others have been replaced
    /// and a [grace period](Self::begin_grace_period) has passed.
    pub fn has_passed(&self) -> bool {
        Arc::strong_count(&self.former) == 1
    }

    /// Returns the present arrays, to load programs with.
    pub fn arrays(&self) -> &Arc<TableArrays<A>> {
        &self.arrays
    }
}

/// The reason why a table is not in the kernel.
#[derive(Debug)]
pub enum TableError {
    /// The table is of this other engine.
    Engine(String),
    /// The table's words are in ordinary memory, since no BPF array could be created for them.
    NoArray(Option<io::Error>),
    /// Another array, or the mapping of one, was refused.
    System(io::Error),
}

impl TableError {
    /// Adds the reason that `files` have.
    fn explained(self, files: &BpfArrays) -> Self {
        match self {
            Self::NoArray(None) => Self::NoArray(files.take_error()),
            other => other,
        }
    }
}

impl From<io::Error> for TableError {
    fn from(error: io::Error) -> Self {
        Self::System(error)
    }
}

impl fmt::Display for TableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Engine(name) => write!(
                f,
                "the table is of the engine {name}; in the kernel there are only flat and rank"
            ),
            Self::NoArray(cause) => {
                f.write_str("the kernel has not created a BPF array for the table")?;
                match cause {
                    Some(cause) => write!(f, ": {cause}"),
                    None => f.write_str(": the table was not built with BPF arrays"),
                }
            }
            Self::System(error) => {
                write!(f, "the kernel has not created an array for the table: {error}")
            }
        }
    }
}

impl Error for TableError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Engine(_) | Self::NoArray(None) => None,
            Self::NoArray(Some(error)) | Self::System(error) => Some(error),
        }
    }
}
