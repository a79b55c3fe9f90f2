//! DXR in images: all entries are validated.
//!
//! A lookup uses a block's number and a chunk's place and length as indexes, which must be within
//! their arrays. It takes the last range that does not begin above the address: the first range of
//! a chunk must begin with the chunk, so that there is one.

use super::entry::{Kind, Split, Target};
use super::{Dxr, Entry, Shape};
use crate::image::{BadImage, Loadable, PartReader, PartWriter, Storable};
use crate::table::Table;
use crate::{FamilyLayout, RangeEntry};

impl<A: FamilyLayout, E: Entry> Storable for Dxr<A, E> {
    fn save(&self, parts: &mut PartWriter<'_>) {
        parts.number("length bits", self.split.len_bits);
        parts.array("direct", &self.direct);
        parts.array("entries", &self.entries);
        parts.array("short", &self.short);
        parts.array("medium", &self.medium);
        parts.array("long", &self.long);
        parts.array("wide", &self.wide);
    }
}

impl<A: FamilyLayout, E: Entry> Loadable for Dxr<A, E> {
    type Parameters = Shape;

    fn load(shape: Shape, stored: &PartReader<'_>) -> Result<Self, BadImage> {
        let len_bits = stored.number("length bits")?;
        if !(1..=24).contains(&len_bits) {
            return Err(stored.bad("length bits", 0, "is not from 1 to 24"));
        }
        let (direct, entries) = if shape.extension() == 0 {
            (stored.array_of("direct", 0)?, stored.array_of("entries", 1 << shape.k())?)
        } else {
            (stored.array_of("direct", 1 << shape.direct())?, stored.array("entries")?)
        };
        let table = Self {
            shape,
            split: Split { len_bits },
            direct,
            entries,
            short: stored.array("short")?,
            medium: stored.array("medium")?,
            long: stored.array("long")?,
            wide: stored.array("wide")?,
        };
        table.check(stored)?;
        Ok(table)
    }
}

impl<A: FamilyLayout, E: Entry> Dxr<A, E> {
    fn check(&self, stored: &PartReader<'_>) -> Result<(), BadImage> {
        let x = self.shape.extension();
        let blocks = self.entries.len() >> x;
        if blocks << x != self.entries.len() {
            return Err(stored.bad("entries", blocks << x, "is in an incomplete block"));
        }
        let beyond = "names a block beyond the end";
        stored.all("direct", &self.direct, beyond, |block| usize::from(block) < blocks)?;
        let sound = |entry: E| match self.split.unpack(entry) {
            _ if entry.kind() > E::MAX_KIND => false,
            Target::Hop(_) => entry.payload() <= u32::MAX.into(),
            Target::Chunk { kind: Kind::Short, at, len } => begins::<A, _>(&self.short, at, len),
            Target::Chunk { kind: Kind::Medium, at, len } => begins::<A, _>(&self.medium, at, len),
            Target::Chunk { kind: Kind::Long, at, len } => begins::<A, _>(&self.long, at, len),
            Target::Chunk { kind: Kind::Wide, at, len } => begins::<A, _>(&self.wide, at, len),
        };
        stored.all("entries", &self.entries, "leads to no valid chunk", sound)
    }
}

/// Returns whether `len` ranges at `at` are a chunk whose first range begins with it.
fn begins<A: FamilyLayout, S: RangeEntry<A>>(ranges: &Table<S>, at: usize, len: usize) -> bool {
    let chunk = ranges.get(at..at + len);
    chunk.is_some_and(|chunk| len > 1 && chunk[0] <= S::probe(A::MIN))
}
