//! The chunks of one level below the first: sparse, dense or very dense.
//!
//! A chunk stands for a block that is cut at one level's height, 8 bits of IPv4:
//! 256 positions, of which some are heads. Its kind is chosen by how many:
//!
//! ```text
//!  sparse      2..8    heads 8×8 │ pointers 8×T                     searched
//!  dense       9..64   code words 16×16 │ base 32        ─┐
//!  very dense  ..256   code words 16×16 │ bases 4×32     ─┴► pointers of the level
//! ```
//!
//! Unused places of a sparse chunk repeat the last head. A base begins a stretch of
//! the pointers that belongs to it alone, so that one can be replaced without moving
//! the others; where a very dense chunk has a base, a head is repeated that goes on
//! from before. Levels of less than 16 positions (toys) give each of them several bits
//! of a mask, and the limits between the kinds follow the height.

use alloc::vec::Vec;

use super::maptable::{MASK, Masks, WORDS, heads as gather, rank};
use super::pointer::Kind;
use crate::Full;
use crate::arena::Arena;
use crate::engine::{Part, Step};
use crate::table::Table;

/// Code words of a chunk.
const PIECES: usize = 16;

/// A chunk of at most eight heads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Sparse<T> {
    heads: [u8; 8],
    pointers: [T; 8],
}

/// A chunk of at most 64 heads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Dense {
    words: [u16; PIECES],
    base: u32,
}

/// A chunk of any number of heads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct VeryDense {
    words: [u16; PIECES],
    bases: [u32; PIECES / WORDS],
}

/// How a level of some height uses code words.
#[derive(Clone, Copy, Debug)]
pub(super) struct Height(pub(super) u32);

impl Height {
    /// Shifts a slot to its position in the masks.
    #[inline(always)]
    pub(super) fn position(self, slot: usize) -> usize {
        slot << 4u32.saturating_sub(self.0)
    }

    /// Counts the slots.
    pub(super) fn slots(self) -> usize {
        1 << self.0
    }

    /// Counts the code words.
    pub(super) fn word_count(self) -> usize {
        (self.slots() / MASK).max(1)
    }

    /// Counts the code words of a stretch with a base index of its own.
    pub(super) fn stretch(self) -> usize {
        self.word_count().min(WORDS)
    }

    /// Chooses the kind of a chunk: 8 and 64 heads of 256 slots, and fewer of fewer.
    fn kind(self, heads: usize) -> Kind {
        if heads <= (self.slots() / 32).max(2) {
            Kind::Sparse
        } else if heads <= (self.slots() / 4).max(3) {
            Kind::Dense
        } else {
            Kind::VeryDense
        }
    }
}

/// The arrays of one level, wherever they are.
#[derive(Clone, Copy)]
pub(super) struct View<'a, T> {
    maptable: &'a [u64],
    sparse: &'a [Sparse<T>],
    dense: &'a [Dense],
    very_dense: &'a [VeryDense],
    pointers: &'a [T],
}

impl<T: Copy> View<'_, T> {
    /// Finds the pointer of a position: the pointer itself in a sparse chunk, otherwise its place
    /// among the pointers.
    #[inline(always)]
    pub(super) fn locate(&self, kind: Kind, index: usize, position: usize) -> Result<T, usize> {
        match kind {
            Kind::Dense => {
                let chunk = &self.dense[index];
                Err(chunk.base as usize
                    + rank(self.maptable, chunk.words[position / MASK], position))
            }
            Kind::VeryDense => {
                let chunk = &self.very_dense[index];
                let base = chunk.bases[position / (MASK * WORDS)] as usize;
                Err(base + rank(self.maptable, chunk.words[position / MASK], position))
            }
            Kind::Sparse | Kind::Hop => {
                let chunk = &self.sparse[index];
                // The first head is position 0; repeated ones lead to the same.
                let later = &chunk.heads[1..];
                let before: u8 =
                    later.iter().map(|&head| u8::from(usize::from(head) <= position)).sum();
                Ok(chunk.pointers[usize::from(before) & 7])
            }
        }
    }

    /// Finds the pointer of a position of a chunk.
    #[inline(always)]
    pub(super) fn find(&self, kind: Kind, index: usize, position: usize) -> T {
        match self.locate(kind, index, position) {
            Ok(found) => found,
            Err(place) => self.pointers[place],
        }
    }
}

/// A frozen level.
#[derive(Clone, Debug)]
pub(super) struct Level<T: Copy> {
    sparse: Table<Sparse<T>>,
    dense: Table<Dense>,
    very_dense: Table<VeryDense>,
    pub(super) pointers: Table<T>,
}

/// The names of a level's arrays.
pub(super) struct Names {
    pub(super) sparse: &'static str,
    pub(super) dense: &'static str,
    pub(super) very_dense: &'static str,
    pub(super) pointers: &'static str,
}

impl<T: Copy> Level<T> {
    #[inline(always)]
    pub(super) fn view<'a>(&'a self, maptable: &'a [u64]) -> View<'a, T> {
        View {
            maptable,
            sparse: &self.sparse,
            dense: &self.dense,
            very_dense: &self.very_dense,
            pointers: &self.pointers,
        }
    }

    /// Prefetches the memory that [`View::locate`] will load.
    #[inline(always)]
    pub(super) fn prefetch(&self, kind: Kind, index: usize) {
        match kind {
            Kind::Dense => self.dense.prefetch(index),
            Kind::VeryDense => self.very_dense.prefetch(index),
            Kind::Sparse | Kind::Hop => self.sparse.prefetch(index),
        }
    }

    pub(super) fn parts(&self, names: &Names) -> [Part; 4] {
        [
            Part::of(names.sparse, &self.sparse),
            Part::of(names.dense, &self.dense),
            Part::of(names.very_dense, &self.very_dense),
            Part::of(names.pointers, &self.pointers),
        ]
    }

    /// Does as [`View::find`] and appends each load.
    pub(super) fn trace(
        &self,
        names: &Names,
        maptable: &Table<u64>,
        (kind, index): (Kind, usize),
        position: usize,
        steps: &mut Vec<Step>,
    ) -> T {
        let view = self.view(maptable);
        let mut load = |part, bytes| steps.push(Step { part, index, bytes });
        let word = match kind {
            Kind::Sparse | Kind::Hop => {
                load(names.sparse, size_of::<[u8; 8]>());
                load(names.sparse, size_of::<T>());
                return view.find(kind, index, position);
            }
            Kind::Dense => {
                load(names.dense, size_of::<u16>());
                load(names.dense, size_of::<u32>());
                self.dense[index].words[position / MASK]
            }
            Kind::VeryDense => {
                load(names.very_dense, size_of::<u16>());
                load(names.very_dense, size_of::<u32>());
                self.very_dense[index].words[position / MASK]
            }
        };
        steps.push(Step::of("maptable", usize::from(word >> 6), maptable));
        if let Err(place) = view.locate(kind, index, position) {
            steps.push(Step::of(names.pointers, place, &self.pointers));
        }
        view.find(kind, index, position)
    }
}

/// A level that is being changed.
#[derive(Debug)]
pub(super) struct Chunks<T> {
    height: Height,
    sparse: Arena<Sparse<T>>,
    dense: Arena<Dense>,
    very_dense: Arena<VeryDense>,
    pointers: Arena<T>,
}

impl<T: Copy + Default + Eq> Chunks<T> {
    pub(super) fn new(height: Height) -> Self {
        let pointers = Arena::new();
        let (sparse, dense, very_dense) = (Arena::new(), Arena::new(), Arena::new());
        Self { height, sparse, dense, very_dense, pointers }
    }

    /// Lists the content of each slot of a chunk.
    pub(super) fn slots(&self, maptable: &[u64], kind: Kind, index: usize) -> Vec<T> {
        let view = View {
            maptable,
            sparse: &self.sparse,
            dense: &self.dense,
            very_dense: &self.very_dense,
            pointers: &self.pointers,
        };
        let find = |slot| view.find(kind, index, self.height.position(slot));
        (0..self.height.slots()).map(find).collect()
    }

    /// Stores a chunk of these slots, over `old` if that is a chunk of the same kind, otherwise in
    /// place of it. Returns its kind and place.
    pub(super) fn store(
        &mut self,
        masks: &Masks,
        maptable: &[u64],
        mut old: Option<(Kind, usize)>,
        slots: &[T],
    ) -> Result<(Kind, usize), Full> {
        let heads = gather(slots);
        let kind = self.height.kind(heads.len());
        if let Some((before, index)) = old
            && before != kind
        {
            self.free(maptable, before, index);
            old = None;
        }
        let at = old.map(|(_, index)| index);
        let index = match kind {
            Kind::Sparse | Kind::Hop => {
                let chunk = self.sparse_of(&heads, slots);
                put(&mut self.sparse, at, chunk)
            }
            Kind::Dense => {
                let (old_base, len) = at.map_or((0, 0), |index| {
                    let chunk = &self.dense[index];
                    (chunk.base, self.len(maptable, &chunk.words[..self.height.word_count()]))
                });
                let (words, fresh) = self.stretch(masks, &heads, slots, self.height.word_count());
                let base = place(self.pointers.replace(old_base as usize, len, &fresh))?;
                let mut chunk = Dense { words: [0; PIECES], base };
                chunk.words[..words.len()].copy_from_slice(&words);
                put(&mut self.dense, at, chunk)
            }
            Kind::VeryDense => {
                let before = at.map(|index| self.very_dense[index]);
                let mut chunk = VeryDense { words: [0; PIECES], bases: [0; PIECES / WORDS] };
                let each = self.height.stretch();
                let size = self.height.slots() * each / self.height.word_count();
                for (i, slots) in slots.chunks(size).enumerate() {
                    let range = i * each..(i + 1) * each;
                    let (old_base, len) = before.map_or((0, 0), |before| {
                        (before.bases[i], self.len(maptable, &before.words[range.clone()]))
                    });
                    let heads = gather(slots);
                    let (words, fresh) = self.stretch(masks, &heads, slots, each);
                    chunk.bases[i] = place(self.pointers.replace(old_base as usize, len, &fresh))?;
                    chunk.words[range].copy_from_slice(&words);
                }
                put(&mut self.very_dense, at, chunk)
            }
        };
        Ok((kind, index))
    }

    /// Frees a chunk, but not the targets of its pointers.
    pub(super) fn free(&mut self, maptable: &[u64], kind: Kind, index: usize) {
        match kind {
            Kind::Sparse | Kind::Hop => self.sparse.free(index, 1),
            Kind::Dense => {
                let chunk = self.dense[index];
                let len = self.len(maptable, &chunk.words[..self.height.word_count()]);
                self.pointers.free(chunk.base as usize, len);
                self.dense.free(index, 1);
            }
            Kind::VeryDense => {
                let chunk = self.very_dense[index];
                let words = chunk.words[..self.height.word_count()].chunks(self.height.stretch());
                for (base, words) in chunk.bases.iter().zip(words) {
                    self.pointers.free(*base as usize, self.len(maptable, words));
                }
                self.very_dense.free(index, 1);
            }
        }
    }

    /// Counts the heads of a stretch: the last position's is the last.
    fn len(&self, maptable: &[u64], words: &[u16]) -> usize {
        words.last().map_or(0, |&word| rank(maptable, word, MASK - 1) + 1)
    }

    fn sparse_of(&self, heads: &[usize], slots: &[T]) -> Sparse<T> {
        let last = heads.len() - 1;
        let head = |i: usize| heads[i.min(last)];
        Sparse {
            heads: core::array::from_fn(|i| self.height.position(head(i)) as u8),
            pointers: core::array::from_fn(|i| slots[head(i)]),
        }
    }

    /// Makes the code words and the pointers of slots under one base.
    fn stretch(
        &self,
        masks: &Masks,
        heads: &[usize],
        slots: &[T],
        words: usize,
    ) -> (Vec<u16>, Vec<T>) {
        let positions: Vec<usize> = heads.iter().map(|&head| self.height.position(head)).collect();
        let pointers = heads.iter().map(|&head| slots[head]).collect();
        (masks.encode(&positions, words), pointers)
    }

    pub(super) fn freeze(&self) -> Level<T> {
        Level {
            sparse: self.sparse.freeze(),
            dense: self.dense.freeze(),
            very_dense: self.very_dense.freeze(),
            pointers: self.pointers.freeze(),
        }
    }

    pub(super) fn refresh(&self, idle: &mut Level<T>) {
        self.sparse.refresh(&mut idle.sparse);
        self.dense.refresh(&mut idle.dense);
        self.very_dense.refresh(&mut idle.very_dense);
        self.pointers.refresh(&mut idle.pointers);
    }

    pub(super) fn written(&self) -> u64 {
        let chunks = self.sparse.written() + self.dense.written() + self.very_dense.written();
        chunks + self.pointers.written()
    }

    /// Counts the bytes in holes.
    pub(super) fn holes(&self) -> usize {
        let chunks = self.sparse.holes() + self.dense.holes() + self.very_dense.holes();
        chunks + self.pointers.holes()
    }

    /// Counts the chunks of each kind and the pointers in use.
    #[cfg(test)]
    pub(super) fn used(&self) -> [usize; 4] {
        [self.sparse.used(), self.dense.used(), self.very_dense.used(), self.pointers.used()]
    }
}

/// Writes a chunk where one is, or stores a new one; returns its index.
fn put<C: Copy + PartialEq>(arena: &mut Arena<C>, at: Option<usize>, chunk: C) -> usize {
    arena.replace(at.unwrap_or(0), at.iter().count(), &[chunk])
}

/// Narrows a place among the pointers to the width of a base index.
pub(super) fn place(at: usize) -> Result<u32, Full> {
    let limit = u64::from(u32::MAX) + 1;
    u32::try_from(at).map_err(|_| Full { what: "pointers", limit, seen: at as u64 + 1 })
}
