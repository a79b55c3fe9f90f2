//! DXR: direct tables, then a search among the ranges of one chunk.
//!
//! Marko Zec, "Improving performance in software Internet routers through compact
//! lookup structures and efficient datapaths", PhD thesis, Zagreb 2019, chapters
//! 3 and 4; Zec, Rizzo, Mikuc, "DXR: Towards a Billion Routing Lookups per Second
//! in Software", ACM CCR 42(5), 2012.
//!
//! The first K bits of an address lead, in one or two loads, to an entry. Where
//! all addresses of that index share a hop, the entry is the hop. Elsewhere it
//! names a chunk: the sorted starts of the ranges under that index, each with its
//! hop, of which the last one not above the address answers.
//!
//! ```text
//!  D16X4R        bits 0..16            16..20               20..32
//!                direct                extension            ranges
//!                ┌────┐ u16 block no.  ┌────┐ hop           ┌──────┬───┐
//!                │    ├───────────────►│    │               │start │hop│ short, medium,
//!                │2^D │                │2^X ├──────────────►│ …    │ … │ long or wide
//!                └────┘                └────┘ kind,at,len   └──────┴───┘
//!  D16R          ┌────┐ hop or kind,at,len                  the same
//!                │2^D ├────────────────────────────────────►
//!                └────┘
//! ```
//!
//! Equal chunks, and equal blocks of the extension, are stored once
//! (`pool.rs`). Ranges come in four formats ([`FamilyLayout`]); a chunk takes the
//! shortest that holds all of its starts and hops. Differences from the thesis:
//!
//! - a short entry's start counts from bit K, not from bit 16, so that for K = 20
//!   it reaches /28 instead of /24;
//! - a medium format between short and long, and a wide one beyond them;
//! - each format has an array of its own, which needs no cast between them;
//! - the 19/1/12 split of an entry is chosen per table, or widened to 64 bits at
//!   twice the bytes for the first stages (`entry.rs`); more than 65,535 next hops
//!   take wide ranges. Nothing is cut off silently: a limit is [`Full`].
//! - IPv6 works: the thesis holds direct tables infeasible there because the space
//!   is sparse, but with D ≤ 16 and shared extension blocks the empty part of the
//!   space is one block.
//!
//! A lookup is 1 or 2 loads and then log2(n) steps in a chunk of n ranges; an
//! update rebuilds the chunks it touches (`builder.rs`).

use alloc::vec::Vec;

pub use builder::DxrBuilder;
pub use entry::Entry;
use entry::{Kind, Split, Target};
use search::{GROUP, last_not_above, lockstep};
pub use shape::{BadShape, Shape};

use super::{Chunks, Engine, Part, Step};
use crate::image::Storable;
use crate::table::Table;
use crate::{FamilyLayout, Full, Hop, RangeEntry};

mod builder;
mod chunks;
mod entry;
pub(crate) mod estimate;
mod image;
mod search;
mod shape;
pub(crate) mod shared;
mod wide;

/// A frozen DXR table.
#[derive(Clone, Debug)]
pub struct Dxr<A: FamilyLayout, E: Copy> {
    shape: Shape,
    split: Split,
    /// Block numbers by the first D bits; empty without an extension.
    direct: Table<u16>,
    /// Entries by the first D bits, or blocks of 2^X of them.
    entries: Table<E>,
    short: Table<A::Short>,
    medium: Table<A::Medium>,
    long: Table<A::Long>,
    wide: Table<A::Wide>,
}

impl<A: FamilyLayout, E: Entry> Dxr<A, E> {
    /// Returns the shape, which is also the name.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Returns where the entry for `addr` is.
    #[inline(always)]
    fn index<const EXTENDED: bool>(&self, addr: A) -> usize {
        let top = addr.bits(0, self.shape.k());
        if !EXTENDED {
            return top;
        }
        let x = self.shape.extension();
        let block = usize::from(self.direct[top >> x]);
        block << x | top & ((1 << x) - 1)
    }

    #[inline(always)]
    fn lookup_one<const EXTENDED: bool>(&self, addr: A) -> Hop {
        self.resolve(self.index::<EXTENDED>(addr), addr)
    }

    /// Answers by the entry of that index.
    #[inline(always)]
    fn resolve(&self, index: usize, addr: A) -> Hop {
        let entry = self.entries[index];
        let tail = addr.tail(self.shape.k());
        match self.split.unpack(entry) {
            Target::Hop(hop) => hop,
            Target::Chunk { kind: Kind::Short, at, len } => {
                last_not_above(&self.short[at..at + len], A::Short::probe(tail)).hop()
            }
            Target::Chunk { kind: Kind::Medium, at, len } => {
                last_not_above(&self.medium[at..at + len], A::Medium::probe(tail)).hop()
            }
            Target::Chunk { kind: Kind::Long, at, len } => {
                last_not_above(&self.long[at..at + len], A::Long::probe(tail)).hop()
            }
            Target::Chunk { kind: Kind::Wide, at, len } => {
                last_not_above(&self.wide[at..at + len], A::Wide::probe(tail)).hop()
            }
        }
    }

    /// Looks up a batch without lanes.
    #[inline(always)]
    fn groups(&self, addrs: &[A], out: &mut [Hop]) {
        for (addrs, out) in addrs.chunks(GROUP).zip(out.chunks_mut(GROUP)) {
            if self.shape.extension() == 0 {
                self.group(|addr| self.index::<false>(addr), addrs, out);
            } else {
                self.group(|addr| self.index::<true>(addr), addrs, out);
            }
        }
    }

    /// Answers up to [`GROUP`] lookups, stage by stage: all entries first, then the
    /// lookups sorted by what their entry says, then each kind's searches. `index` says
    /// where an entry is.
    #[inline(always)]
    fn group(&self, index: impl Fn(A) -> usize, addrs: &[A], out: &mut [Hop]) {
        let mut entries = [E::default(); GROUP];
        // Listing without a branch: each position is written at the list's end, and
        // the end moves on only for an entry that names a chunk.
        let mut list = [0u8; GROUP];
        let (mut listed, mut kinds) = (0, 0);
        for (i, (&addr, (entry, out))) in
            addrs.iter().zip(entries.iter_mut().zip(&mut *out)).enumerate()
        {
            *entry = self.entries[index(addr)];
            let kind = entry.kind();
            *out = Hop(entry.payload() as u32);
            list[listed % GROUP] = i as u8;
            listed += usize::from(kind != 0);
            kinds |= kind;
        }
        let list = &list[..listed.min(GROUP)];
        let (k, split) = (self.shape.k(), self.split);
        if kinds <= Kind::Short as u8 {
            lockstep(&self.short, list, k, split, addrs, &entries, out);
            return;
        }
        // Some groups, in tables of few next hops hardly any, mix the formats.
        let of = |kind: Kind, sublist: &mut [u8; GROUP]| {
            let mut end = 0;
            for &i in list {
                sublist[end % GROUP] = i;
                end += usize::from(entries[usize::from(i) % GROUP].kind() == kind as u8);
            }
            end.min(GROUP)
        };
        let mut sublist = [0u8; GROUP];
        let end = of(Kind::Short, &mut sublist);
        lockstep(&self.short, &sublist[..end], k, split, addrs, &entries, out);
        let end = of(Kind::Medium, &mut sublist);
        lockstep(&self.medium, &sublist[..end], k, split, addrs, &entries, out);
        let end = of(Kind::Long, &mut sublist);
        lockstep(&self.long, &sublist[..end], k, split, addrs, &entries, out);
        let end = of(Kind::Wide, &mut sublist);
        lockstep(&self.wide, &sublist[..end], k, split, addrs, &entries, out);
    }
}

impl<A: FamilyLayout, E: Entry> Engine<A> for Dxr<A, E> {
    #[inline]
    fn lookup(&self, addr: A) -> Hop {
        if self.shape.extension() == 0 {
            self.lookup_one::<false>(addr)
        } else {
            self.lookup_one::<true>(addr)
        }
    }

    fn lookup_batch(&self, addrs: &[A], out: &mut [Hop]) {
        assert_eq!(addrs.len(), out.len(), "a batch has as many answers as addresses");
        if !wide::InLanes::of(self).is_some_and(|table| table.batch(addrs, out)) {
            self.groups(addrs, out);
        }
    }

    fn storable(&self) -> Option<&dyn Storable> {
        Some(self)
    }

    fn parts(&self) -> Vec<Part> {
        Vec::from([
            Part::of("direct", &self.direct),
            Part::of(if self.direct.is_empty() { "entries" } else { "extension" }, &self.entries),
            Part::of("short ranges", &self.short),
            Part::of("medium ranges", &self.medium),
            Part::of("long ranges", &self.long),
            Part::of("wide ranges", &self.wide),
        ])
    }

    fn chunks(&self) -> Option<Chunks> {
        Some(self.count_chunks())
    }

    fn trace(&self, addr: A, steps: &mut Vec<Step>) -> Hop {
        let top = addr.bits(0, self.shape.k());
        let index = if self.direct.is_empty() {
            top
        } else {
            steps.push(Step::of("direct", top >> self.shape.extension(), &self.direct));
            self.index::<true>(addr)
        };
        let name = if self.direct.is_empty() { "entries" } else { "extension" };
        self.trace_from(name, index, addr, steps)
    }
}

impl<A: FamilyLayout, E: Entry> Dxr<A, E> {
    /// Appends the load of the entry at `index` of the part `name`, and those that follow.
    fn trace_from(&self, name: &'static str, index: usize, addr: A, steps: &mut Vec<Step>) -> Hop {
        steps.push(Step::of(name, index, &self.entries));
        let tail = addr.tail(self.shape.k());
        match self.split.unpack(self.entries[index]) {
            Target::Hop(hop) => hop,
            Target::Chunk { kind: Kind::Short, at, len } => {
                walk("short ranges", &self.short, at, len, A::Short::probe(tail), steps)
            }
            Target::Chunk { kind: Kind::Medium, at, len } => {
                walk("medium ranges", &self.medium, at, len, A::Medium::probe(tail), steps)
            }
            Target::Chunk { kind: Kind::Long, at, len } => {
                walk("long ranges", &self.long, at, len, A::Long::probe(tail), steps)
            }
            Target::Chunk { kind: Kind::Wide, at, len } => {
                walk("wide ranges", &self.wide, at, len, A::Wide::probe(tail), steps)
            }
        }
    }
}

/// Takes the steps of [`last_not_above`] and appends each.
fn walk<A, S: RangeEntry<A>>(
    name: &'static str,
    table: &Table<S>,
    at: usize,
    len: usize,
    probe: S,
    steps: &mut Vec<Step>,
) -> Hop {
    let (mut base, mut len) = (at, len);
    while len > 1 {
        let half = len / 2;
        steps.push(Step::of(name, base + half, table));
        if table[base + half] <= probe {
            base += half;
        }
        len -= half;
    }
    steps.push(Step::of(name, base, table));
    table[base].hop()
}

/// Returns the split of an entry's payload to try after `full`; `None` if no split can hold the
/// table.
pub(crate) fn next_split<E: Entry>(len_bits: u32, full: Full) -> Option<u32> {
    // A chunk has at most 2^16 ranges of IPv4; beyond that 64-bit entries are due.
    let needed = u64::BITS - full.seen.leading_zeros();
    let helps = full.what == Full::CHUNK && E::PAYLOAD < 61 && needed > len_bits && needed <= 17;
    helps.then_some(needed)
}
