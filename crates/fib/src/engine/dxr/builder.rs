//! Lays runs out as a DXR table, and patches it.
//!
//! The builder owns the pools: chunks of ranges and, with an extension, blocks of
//! entries, both shared by content and counted. A *block* counts as one user of
//! each chunk its entries name, however many indexes lead to the block; without an
//! extension each entry is a user itself.
//!
//! [`Builder::patch`] takes any block of at most K bits. The runs are split into
//! parts of K bits, each part becomes an entry (a hop, or an interned chunk), and
//! entries that are gone give their chunks back. A full build is a patch of the
//! whole space; several builders may each patch some of the space at once, and one
//! [`Builder::absorb`]s the others.
//!
//! O(ranges + entries of the blocks touched) a patch.

use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use super::entry::{Entry, Kind, Split, Target};
use super::{Dxr, Shape};
use crate::engine::Builder;
use crate::pool::Pool;
use crate::runs::{Run, split};
use crate::table::{Master, Table};
use crate::{FamilyLayout, Full, Prefix, RangeEntry};

/// The builder of [`Dxr`] tables with entries `E`.
#[derive(Debug)]
pub struct DxrBuilder<A: FamilyLayout, E> {
    shape: Shape,
    split: Split,
    stages: Stages<E>,
    chunks: Chunks<A>,
}

/// The stages that lead from the first K bits to an entry.
#[derive(Debug)]
enum Stages<E> {
    /// One table of 2^D entries.
    Direct(Master<E>),
    /// 2^D block numbers, and the blocks of 2^X entries.
    Extended { direct: Master<u16>, blocks: Pool<E> },
}

/// The range tables, one for each format.
#[derive(Debug)]
pub(super) struct Chunks<A: FamilyLayout> {
    short: Pool<A::Short>,
    medium: Pool<A::Medium>,
    long: Pool<A::Long>,
    wide: Pool<A::Wide>,
}

impl<A: FamilyLayout, E: Entry> DxrBuilder<A, E> {
    /// Starts an empty table.
    pub fn new(shape: Shape) -> Self {
        Self::with_len_bits(shape, E::LEN_BITS)
    }

    /// Starts an empty table whose entries keep `len_bits` for a chunk's length.
    pub(crate) fn with_len_bits(shape: Shape, len_bits: u32) -> Self {
        let stages = if shape.extension() == 0 {
            Stages::Direct(Master::new(vec![E::default(); 1 << shape.k()]))
        } else {
            let mut blocks = Pool::new();
            // Every index leads to the one block without a route, number 0.
            blocks.intern(&vec![E::default(); 1 << shape.extension()], 1 << shape.direct());
            Stages::Extended { direct: Master::new(vec![0; 1 << shape.direct()]), blocks }
        };
        Self { shape, split: Split { len_bits }, stages, chunks: Chunks::new() }
    }

    /// Returns whether `count` entries from `first` on, of one block, all are `entry`.
    fn holds(&self, first: usize, count: usize, entry: E) -> bool {
        let present = match &self.stages {
            Stages::Direct(entries) => &entries[first..first + count],
            Stages::Extended { direct, blocks } => {
                let x = self.shape.extension();
                let block = blocks.get(usize::from(direct[first >> x]) << x, 1 << x);
                let offset = first & ((1 << x) - 1);
                &block[offset..offset + count]
            }
        };
        present.iter().all(|&present| present == entry)
    }

    /// Puts `fresh` in place of the entries from `first` on. Each chunk that `fresh`
    /// names beyond those of the present entries has been counted once already.
    fn put(&mut self, first: usize, fresh: &[E]) -> Result<(), Full> {
        let x = self.shape.extension();
        match &mut self.stages {
            Stages::Direct(entries) => {
                for &old in &entries[first..first + fresh.len()] {
                    self.chunks.release(self.split, old);
                }
                entries.write(first, fresh);
                Ok(())
            }
            Stages::Extended { direct, blocks } => {
                let size = 1 << x;
                let index = first >> x;
                let at = usize::from(direct[index]) << x;
                let old = blocks.get(at, size).to_vec();
                let offset = first & (size - 1);
                let mut new = old.clone();
                new[offset..offset + fresh.len()].copy_from_slice(fresh);
                let last = blocks.release(at, size);
                let (at, first_user) = blocks.intern(&new, 1);
                let number = u16::try_from(at >> x);
                direct.write(
                    index,
                    &[number.map_err(|_| Full {
                        what: Full::BLOCKS,
                        limit: 1 << 16,
                        seen: (at >> x) as u64 + 1,
                    })?],
                );
                // The new block becomes a user of its chunks if it was not stored before; the old
                // one ceases to be a user if this was its last use.
                let (chunks, split) = (&mut self.chunks, self.split);
                let changed = offset..offset + fresh.len();
                exchange(&old, &new, changed, first_user, last, |entry, up| {
                    if up { chunks.retain(split, entry) } else { chunks.release(split, entry) }
                });
                Ok(())
            }
        }
    }

    /// Leads an index of the direct table to a block that is in use already.
    fn point(&mut self, index: usize, at: usize) {
        let Stages::Extended { direct, blocks } = &mut self.stages else {
            unreachable!("without an extension no index shares a block")
        };
        let (x, size) = (self.shape.extension(), 1 << self.shape.extension());
        let before = usize::from(direct[index]) << x;
        if before == at {
            return;
        }
        blocks.retain(at, size);
        if blocks.release(before, size) {
            for &entry in blocks.get(before, size) {
                self.chunks.release(self.split, entry);
            }
        }
        direct.write(index, &[(at >> x) as u16]);
    }

    /// Does the work of [`Builder::patch`]; its first limit met ends it.
    fn lay_out(&mut self, block: Prefix<A>, runs: &[Run<A>]) -> Result<(), Full> {
        let (d, k) = (self.shape.direct(), self.shape.k());
        assert!(block.len() <= k, "a block to patch has at most K bits");
        // Entries are put by the block of the extension; without one, by the lot.
        let whole = if self.shape.extension() == 0 { block.len() } else { d.max(block.len()) };
        let mut fresh = Vec::with_capacity(1 << (k - whole));
        for (part, runs) in split(runs, block, whole - block.len()) {
            let first = part.addr().bits(0, k);
            fresh.clear();
            if let [run] = runs {
                // One hop for all, as in most of the space, and mostly the present one.
                let entry = self.split.pack(Target::Hop(run.hop))?;
                if self.holds(first, 1 << (k - whole), entry) {
                    continue;
                }
                fresh.resize(1 << (k - whole), entry);
            } else {
                for (_, runs) in split(runs, part, k - whole) {
                    fresh.push(self.entry(runs)?);
                }
            }
            self.put(first, &fresh)?;
        }
        self.chunks.trim();
        if let Stages::Extended { blocks, .. } = &mut self.stages {
            blocks.trim();
        }
        Ok(())
    }

    /// Takes over the chunks of another builder's entries, and returns them as ours.
    fn adopt(&mut self, from: &Self, entries: &[E]) -> Result<Vec<E>, Full> {
        let adopted = entries.iter().map(|&entry| {
            let target = self.chunks.adopt(&from.chunks, from.split, entry);
            self.split.pack(target)
        });
        adopted.collect()
    }

    /// Returns the entry of a part of K bits, its chunk counted once.
    fn entry(&mut self, runs: &[Run<A>]) -> Result<E, Full> {
        let target = match runs {
            [] => unreachable!("runs cover every part of their block"),
            [run] => Target::Hop(run.hop),
            _ => self.chunks.intern(self.shape.k(), runs),
        };
        self.split.pack(target)
    }
}

/// Updates the counts of users when a span of a pool, `old`, is replaced by `new`, which differs in
/// `changed`; new items there have been counted once already. A stored span is a user of its
/// items: `fresh` means that the new span was not stored before, `last` that the old one is freed.
/// `count` adds a user of an item, or removes one.
pub(super) fn exchange<T: Copy>(
    old: &[T],
    new: &[T],
    changed: Range<usize>,
    fresh: bool,
    last: bool,
    mut count: impl FnMut(T, bool),
) {
    for (i, (&old, &new)) in old.iter().zip(new).enumerate() {
        match (changed.contains(&i), fresh, last) {
            (true, true, true) => count(old, false),
            (true, false, true) => {
                count(old, false);
                count(new, false);
            }
            (true, false, false) => count(new, false),
            (false, true, false) => count(old, true),
            (false, false, true) => count(old, false),
            (true, true, false) | (false, true, true) | (false, false, false) => {}
        }
    }
}

impl<A: FamilyLayout> Chunks<A> {
    pub(super) fn new() -> Self {
        Self { short: Pool::new(), medium: Pool::new(), long: Pool::new(), wide: Pool::new() }
    }

    /// Stores the chunk of `runs` in the shortest format that holds it.
    pub(super) fn intern(&mut self, k: u32, runs: &[Run<A>]) -> Target {
        let kind = kind(k, runs);
        let at = match kind {
            Kind::Short => self.short.intern(&pack(k, runs), 1).0,
            Kind::Medium => self.medium.intern(&pack(k, runs), 1).0,
            Kind::Long => self.long.intern(&pack(k, runs), 1).0,
            Kind::Wide => self.wide.intern(&pack(k, runs), 1).0,
        };
        Target::Chunk { kind, at, len: runs.len() }
    }

    /// Counts a user less of the chunk that `entry` names, if any.
    pub(super) fn release<E: Entry>(&mut self, split: Split, entry: E) {
        match split.unpack(entry) {
            Target::Hop(_) => {}
            Target::Chunk { kind: Kind::Short, at, len } => _ = self.short.release(at, len),
            Target::Chunk { kind: Kind::Medium, at, len } => _ = self.medium.release(at, len),
            Target::Chunk { kind: Kind::Long, at, len } => _ = self.long.release(at, len),
            Target::Chunk { kind: Kind::Wide, at, len } => _ = self.wide.release(at, len),
        }
    }

    /// Counts a user more of the chunk that `entry` names, if any.
    pub(super) fn retain<E: Entry>(&mut self, split: Split, entry: E) {
        match split.unpack(entry) {
            Target::Hop(_) => {}
            Target::Chunk { kind: Kind::Short, at, len } => self.short.retain(at, len),
            Target::Chunk { kind: Kind::Medium, at, len } => self.medium.retain(at, len),
            Target::Chunk { kind: Kind::Long, at, len } => self.long.retain(at, len),
            Target::Chunk { kind: Kind::Wide, at, len } => self.wide.retain(at, len),
        }
    }

    /// Takes over the chunk that another builder's `entry` names.
    fn adopt<E: Entry>(&mut self, from: &Self, split: Split, entry: E) -> Target {
        match split.unpack(entry) {
            hop @ Target::Hop(_) => hop,
            Target::Chunk { kind, at, len } => {
                let at = match kind {
                    Kind::Short => self.short.intern(from.short.get(at, len), 1).0,
                    Kind::Medium => self.medium.intern(from.medium.get(at, len), 1).0,
                    Kind::Long => self.long.intern(from.long.get(at, len), 1).0,
                    Kind::Wide => self.wide.intern(from.wide.get(at, len), 1).0,
                };
                Target::Chunk { kind, at, len }
            }
        }
    }

    pub(super) fn trim(&mut self) {
        self.short.trim();
        self.medium.trim();
        self.long.trim();
        self.wide.trim();
    }

    /// Copies the chunks out, behind stages that lead to them.
    pub(super) fn freeze<E: Copy>(
        &self,
        shape: Shape,
        split: Split,
        direct: Table<u16>,
        entries: Table<E>,
    ) -> Dxr<A, E> {
        Dxr {
            shape,
            split,
            direct,
            entries,
            short: self.short.freeze(),
            medium: self.medium.freeze(),
            long: self.long.freeze(),
            wide: self.wide.freeze(),
        }
    }

    /// Brings the chunks of `idle` up to date.
    pub(super) fn refresh<E: Copy>(&self, idle: &mut Dxr<A, E>) {
        self.short.refresh(&mut idle.short);
        self.medium.refresh(&mut idle.medium);
        self.long.refresh(&mut idle.long);
        self.wide.refresh(&mut idle.wide);
    }

    /// Counts the bytes in holes.
    pub(super) fn holes(&self) -> usize {
        self.short.holes() + self.medium.holes() + self.long.holes() + self.wide.holes()
    }

    /// Counts the distinct chunks of each format.
    #[cfg(test)]
    pub(super) fn spans(&self) -> [usize; 4] {
        [self.short.spans(), self.medium.spans(), self.long.spans(), self.wide.spans()]
    }
}

/// Returns the shortest format that holds the chunk of `runs`.
pub(super) fn kind<A: FamilyLayout>(k: u32, runs: &[Run<A>]) -> Kind {
    let highest = runs.iter().map(|run| run.hop.0).max().unwrap_or(0);
    let coarse =
        |bits| runs[1..].iter().map(|run| run.start.tail(k)).all(|tail| tail.first(bits) == tail);
    let denser = size_of::<A::Medium>() < size_of::<A::Long>();
    if highest <= A::Short::MAX_HOP && coarse(A::Short::START_BITS) {
        Kind::Short
    } else if denser && highest <= A::Medium::MAX_HOP && coarse(A::Medium::START_BITS) {
        Kind::Medium
    } else if highest <= A::Long::MAX_HOP {
        Kind::Long
    } else {
        Kind::Wide
    }
}

/// Returns the length of the longest chunk that `runs` make: the runs that start
/// within one, and the one that reaches into it.
fn longest<A: FamilyLayout>(k: u32, runs: &[Run<A>]) -> u64 {
    let within = runs.iter().filter(|run| run.start.tail(k) != A::MIN);
    let (mut longest, mut count, mut index) = (0, 0, None);
    for run in within {
        let this = Some(run.start.bits(0, k));
        count = if this == index { count + 1 } else { 1 };
        index = this;
        longest = longest.max(count + 1);
    }
    longest
}

/// Packs the ranges of one part of K bits; the first counts from its beginning.
fn pack<A: FamilyLayout, S: RangeEntry<A>>(k: u32, runs: &[Run<A>]) -> Vec<S> {
    let first = S::pack(A::MIN, runs[0].hop);
    let rest = runs[1..].iter().map(|run| S::pack(run.start.tail(k), run.hop));
    core::iter::once(first).chain(rest).collect()
}

impl<A: FamilyLayout, E: Entry> Builder<A> for DxrBuilder<A, E> {
    type Engine = Dxr<A, E>;

    fn block_len(&self) -> u32 {
        self.shape.k()
    }

    fn share_len(&self) -> u32 {
        self.shape.direct()
    }

    fn patch(&mut self, block: Prefix<A>, runs: &[Run<A>]) -> Result<(), Full> {
        self.lay_out(block, runs).map_err(|full| match full.what {
            // The factory needs the longest chunk to choose the next split.
            Full::CHUNK => Full { seen: longest(self.shape.k(), runs), ..full },
            _ => full,
        })
    }

    fn absorb(&mut self, part: &Self, first: A, last: A) -> Result<(), Full> {
        let (d, x) = (self.shape.direct(), self.shape.extension());
        assert_eq!(self.shape, part.shape, "builders of one shape share a table");
        let indexes = first.bits(0, d)..=last.bits(0, d);
        let (direct, blocks) = match &part.stages {
            Stages::Direct(entries) => {
                let fresh = self.adopt(part, &entries[indexes.clone()])?;
                return self.put(*indexes.start(), &fresh);
            }
            Stages::Extended { direct, blocks } => (direct, blocks),
        };
        // Where blocks taken over before are now: most indexes share one.
        let mut ours = vec![None; 1 << d];
        for index in indexes {
            let number = usize::from(direct[index]);
            if let Some(at) = ours[number] {
                self.point(index, at);
                continue;
            }
            let fresh = self.adopt(part, blocks.get(number << x, 1 << x))?;
            self.put(index << x, &fresh)?;
            if let Stages::Extended { direct, .. } = &self.stages {
                ours[number] = Some(usize::from(direct[index]) << x);
            }
        }
        Ok(())
    }

    fn freeze(&self) -> Dxr<A, E> {
        let (direct, entries) = match &self.stages {
            Stages::Direct(entries) => (Table::new(&[]), entries.freeze()),
            Stages::Extended { direct, blocks } => (direct.freeze(), blocks.freeze()),
        };
        self.chunks.freeze(self.shape, self.split, direct, entries)
    }

    fn refresh(&self, idle: &mut Dxr<A, E>) {
        match &self.stages {
            Stages::Direct(entries) => entries.refresh(&mut idle.entries),
            Stages::Extended { direct, blocks } => {
                direct.refresh(&mut idle.direct);
                blocks.refresh(&mut idle.entries);
            }
        }
        self.chunks.refresh(idle);
    }

    fn written(&self) -> u64 {
        let stages = match &self.stages {
            Stages::Direct(entries) => entries.written(),
            Stages::Extended { direct, blocks } => direct.written() + blocks.written(),
        };
        let Chunks { short, medium, long, wide } = &self.chunks;
        stages + short.written() + medium.written() + long.written() + wide.written()
    }

    fn holes(&self) -> usize {
        let blocks = match &self.stages {
            Stages::Direct(_) => 0,
            Stages::Extended { blocks, .. } => blocks.holes(),
        };
        blocks + self.chunks.holes()
    }
}

/// Counts the chunks and blocks in use, for tests of leaks.
#[cfg(test)]
impl<A: FamilyLayout, E: Entry> DxrBuilder<A, E> {
    pub(crate) fn spans(&self) -> [usize; 5] {
        let blocks = match &self.stages {
            Stages::Direct(_) => 0,
            Stages::Extended { blocks, .. } => blocks.spans(),
        };
        let [short, medium, long, wide] = self.chunks.spans();
        [blocks, short, medium, long, wide]
    }
}

#[cfg(test)]
mod tests {
    use super::DxrBuilder;
    use crate::engine::dxr::Shape;
    use crate::runs::{Run, sweep};
    use crate::{Builder, Hop, Prefix};
    use alloc::vec::Vec;

    /// After any patches, exactly the spans of a fresh build are in use.
    fn leaks_nothing(name: &str) {
        let shape = Shape::parse::<u16>(name).unwrap();
        let mut patched = DxrBuilder::<u16, u32>::new(shape);
        let empty = patched.spans();
        let mut rng = fastrand::Rng::with_seed(3);
        let mut next = move || rng.u64(..);
        let mut routes: alloc::collections::BTreeMap<Prefix<u16>, Hop> = Default::default();
        let sweep_all = |routes: &alloc::collections::BTreeMap<Prefix<u16>, Hop>| {
            let mut runs: Vec<Run<u16>> = Vec::new();
            sweep(Prefix::ALL, Hop::NONE, routes.iter().map(|(p, h)| (*p, *h)), &mut runs);
            runs
        };
        for _ in 0..300 {
            for _ in 0..next() % 8 {
                let prefix = Prefix::truncate(next() as u16, (next() % 17) as u32);
                routes.insert(prefix, Hop((next() % 300) as u32));
            }
            while routes.len() > 60 {
                let victim = *routes.keys().nth(next() as usize % routes.len()).unwrap();
                routes.remove(&victim);
            }
            let runs = sweep_all(&routes);
            // Patch it in pieces, as an update would.
            let pieces = (next() % (shape.k() as u64 + 1)) as u32;
            for (part, runs) in crate::runs::split(&runs, Prefix::ALL, pieces) {
                patched.patch(part, runs).unwrap();
            }
            let mut rebuilt = DxrBuilder::<u16, u32>::new(shape);
            rebuilt.patch(Prefix::ALL, &runs).unwrap();
            assert_eq!(patched.spans(), rebuilt.spans());
        }
        patched.patch(Prefix::ALL, &sweep_all(&Default::default())).unwrap();
        assert_eq!(patched.spans(), empty);
    }

    #[test]
    fn patches_leak_no_chunk_or_block() {
        leaks_nothing("D6R");
        leaks_nothing("D4X4R");
        leaks_nothing("D2X8R");
    }
}
