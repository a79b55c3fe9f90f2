//! Looks up a batch in passes: one step of every key, then the next step.
//!
//! ```text
//!   256 addresses ─► fetched, all lines at once, while those before them are looked up
//!                 ─► direct ─► blocks, key by key ─► out
//!   out, sixteen at a time ─┬─ a hop ───────────────────────────► stays
//!                           ├─ a node: listed ──► rank ──────┐
//!                           └─ a table: listed ─► one load ──┤
//!   out, sixteen at a time ◄─────────────────────────────────┘
//!      ├─ a hop ────────────────────────────────────────────────► stays
//!      └─ a chunk: listed, format by format ─► rank ────────────► the answer
//! ```
//!
//! The intermediate entry of a key is stored in the place of its answer. A mask marks the keys of
//! sixteen that go on, and packing the lanes writes their list: no branch depends on a key's entry.
//! One loop with the same body for all its keys then processes a list, so that the loads of many
//! keys overlap. Only keys that go beyond the first chunks are looked up one by one.
//!
//! An earlier version read the first stages by gathers. On a Zen 5 a gather takes 22 cycles, nearly
//! twice the time of sixteen loads, and a list of entries beside the list of keys was cleared and
//! written for each burst: without both, bursts of 32 are looked up three times as fast on RND and
//! half as fast again on PFX (guide: `measuring.md`).

use core::mem::take;

use super::chunk::{Search, Width, find_few, find_many, find_node};
use super::entry::{LARGE, PAYLOAD, counted, kind, kind_of, many_at, payload};
use super::{Cuts, Rank6, place};
use crate::arch::lanes::{LANES, Lanes, Wide, WideKernel};
use crate::table::fetch_ahead;
use crate::{FamilyLayout, Hop};

/// How many lookups go through the passes together at the most: their state is a few KiB. A batch
/// ends in groups of 64, 32 and 16, each of a size known at compile time, so that the positions in
/// a list need no check.
const GROUP: usize = 256;

/// A batch of lookups, as a kernel.
pub(super) struct Batch<'a, A: FamilyLayout> {
    pub(super) table: &'a Rank6<A>,
    pub(super) addrs: &'a [A],
    pub(super) out: &'a mut [Hop],
}

impl Search for Wide {
    #[inline(always)]
    fn bytes(self, words: &[u32], count: usize, probe: u32) -> usize {
        self.byte_rank(words, count, probe)
    }
    #[inline(always)]
    fn halves(self, words: &[u32], count: usize, probe: u32) -> usize {
        self.half_rank(words, count, probe)
    }
}

/// The positions in the group of the lookups that go on, one byte each, because the list is cleared
/// for each batch. It has one vector more than a group, because whole vectors are written.
struct List {
    count: usize,
    positions: [u8; GROUP + LANES],
}

impl List {
    const fn new() -> Self {
        Self { count: 0, positions: [0; GROUP + LANES] }
    }

    /// Adds the lanes of the mask.
    #[inline(always)]
    fn push(&mut self, wide: Wide, mask: u16, positions: Lanes) {
        // Never more than the group has: the bound lets the compiler omit a check.
        let at = self.count.min(GROUP);
        if let Some(end) = self.positions[at..].first_chunk_mut() {
            *end = wide.packed_bytes(mask, positions);
        }
        self.count += mask.count_ones() as usize;
    }

    /// Returns the list and empties it.
    #[inline(always)]
    fn take(&mut self) -> &[u8] {
        let count = self.count.min(GROUP);
        self.count = 0;
        &self.positions[..count]
    }
}

/// All lists of a group, made once a batch.
struct Lists {
    nodes: List,
    tables: List,
    few: List,
    many: List,
    large: List,
    others: List,
}

impl Lists {
    const fn new() -> Self {
        Self {
            nodes: List::new(),
            tables: List::new(),
            few: List::new(),
            many: List::new(),
            large: List::new(),
            others: List::new(),
        }
    }
}

impl<A: FamilyLayout> WideKernel<Wide> for Batch<'_, A> {
    type Out = ();

    #[inline(always)]
    fn run(self, wide: Wide) {
        let Self { table, addrs, out } = self;
        let mut lists = Lists::new();
        let (groups, rest) = addrs.as_chunks::<GROUP>();
        let (groups_out, rest_out) = out.as_chunks_mut::<GROUP>();
        let mut ahead = addrs.chunks(GROUP);
        fetch(ahead.next());
        for (addrs, out) in groups.iter().zip(groups_out) {
            // While this group is looked up.
            fetch(ahead.next());
            group(table, wide, addrs, out, &mut lists);
        }
        let mut rest = Batch { table, addrs: rest, out: rest_out };
        rest.groups::<64>(wide, &mut lists);
        rest.groups::<32>(wide, &mut lists);
        rest.groups::<LANES>(wide, &mut lists);
        for (&addr, out) in rest.addrs.iter().zip(rest.out) {
            *out = lookup_one(table, wide, addr);
        }
    }
}

impl<A: FamilyLayout> Batch<'_, A> {
    /// Looks up as many groups of this size as there are, and leaves the remainder.
    #[inline(always)]
    fn groups<const N: usize>(&mut self, wide: Wide, lists: &mut Lists) {
        let (groups, addrs) = self.addrs.as_chunks::<N>();
        let (groups_out, out) = take(&mut self.out).as_chunks_mut::<N>();
        for (addrs, out) in groups.iter().zip(groups_out) {
            group(self.table, wide, addrs, out, lists);
        }
        (self.addrs, self.out) = (addrs, out);
    }
}

/// Fetches a group's keys, which may come from far: all lines of them at once.
#[inline(always)]
fn fetch<A>(addrs: Option<&[A]>) {
    for addr in addrs.unwrap_or_default().iter().step_by(64 / size_of::<A>()) {
        fetch_ahead(addr);
    }
}

/// Looks up a single address.
#[inline(always)]
fn lookup_one<A: FamilyLayout>(table: &Rank6<A>, wide: Wide, addr: A) -> Hop {
    let entry = table.blocks[table.at(addr)];
    if kind_of(entry) == kind::HOP {
        return Hop(entry);
    }
    let entry = table.node(wide, entry, addr);
    let entry = table.chunk(wide, entry, probe(addr));
    table.rest(wide, entry, addr)
}

/// Returns the lanes whose entry is of a kind, or of one above it.
#[inline(always)]
fn from_kind(wide: Wide, entries: Lanes, kind: u32) -> u16 {
    wide.at_most(wide.all(kind << PAYLOAD), entries)
}

#[inline(always)]
fn group<A: FamilyLayout, const N: usize>(
    table: &Rank6<A>,
    wide: Wide,
    addrs: &[A; N],
    out: &mut [Hop; N],
    lists: &mut Lists,
) {
    const { assert!(N.is_power_of_two() && N <= GROUP, "positions in a list are within the group") };
    let Lists { nodes, tables, few, many, large, others } = lists;
    // The first two stages, key by key: two near loads and nothing to decide.
    let direct = &table.direct[..1 << Cuts::<A>::DIRECT];
    let (sixteens, _) = addrs.as_chunks::<LANES>();
    let (answers, _) = out.as_chunks_mut::<LANES>();
    for (addrs, out) in sixteens.iter().zip(answers) {
        for (addr, out) in addrs.iter().zip(out) {
            *out = Hop(table.blocks[place(direct, *addr)]);
        }
    }
    let mut positions = wide.load(FIRST);
    let mut deeper = 0;
    for out in out.chunks_exact(LANES) {
        let entry = entries(wide, out);
        let below = from_kind(wide, entry, kind::NODE);
        if below != 0 {
            let full = from_kind(wide, entry, kind::TABLE);
            nodes.push(wide, below & !full, positions);
            tables.push(wide, full, positions);
        }
        deeper |= below;
        positions = wide.add(positions, wide.all(LANES as u32));
    }
    if deeper == 0 {
        return;
    }
    for &position in nodes.take() {
        let i = usize::from(position) % N;
        let (addr, out) = (addrs[i], &mut out[i]);
        let probe = addr.bits(Cuts::<A>::NODES, Cuts::<A>::NODE) as u32;
        *out = Hop(find_node(wide, &table.nodes, counted(out.0), probe));
    }
    for &position in tables.take() {
        let i = usize::from(position) % N;
        let (addr, out) = (addrs[i], &mut out[i]);
        let slot = addr.bits(Cuts::<A>::NODES, Cuts::<A>::NODE);
        *out = Hop(table.nodes[payload(out.0) as usize + slot]);
    }
    let mut positions = wide.load(FIRST);
    for out in out.chunks_exact(LANES) {
        let entry = entries(wide, out);
        let one = from_kind(wide, entry, kind::FEW_BYTES);
        let two = from_kind(wide, entry, kind::FEW_HALVES);
        let three = from_kind(wide, entry, kind::MANY_BYTES);
        let four = from_kind(wide, entry, kind::MANY_HALVES);
        let far = wide.at_most(wide.all(kind::MANY_BYTES << PAYLOAD | LARGE), entry);
        few.push(wide, one & !two, positions);
        many.push(wide, three & !far, positions);
        large.push(wide, far & !four, positions);
        if (two & !three) | four != 0 {
            others.push(wide, (two & !three) | four, positions);
        }
        positions = wide.add(positions, wide.all(LANES as u32));
    }
    for &position in few.take() {
        let i = usize::from(position) % N;
        let (addr, out) = (addrs[i], &mut out[i]);
        let chunk = counted(out.0);
        *out = Hop(find_few(wide, &table.chunks, chunk, probe(addr), Width::Bytes));
    }
    for &position in many.take() {
        let i = usize::from(position) % N;
        let (addr, out) = (addrs[i], &mut out[i]);
        let chunk = many_at(out.0);
        *out = Hop(find_many::<_, false>(wide, &table.chunks, chunk, probe(addr), Width::Bytes));
    }
    for &position in large.take() {
        let i = usize::from(position) % N;
        let (addr, out) = (addrs[i], &mut out[i]);
        let chunk = many_at(out.0);
        *out = Hop(find_many::<_, true>(wide, &table.chunks, chunk, probe(addr), Width::Bytes));
    }
    for &position in others.take() {
        let i = usize::from(position) % N;
        let (addr, out) = (addrs[i], &mut out[i]);
        *out = table.rest(wide, table.chunk(wide, out.0, probe(addr)), addr);
    }
}

/// The first lanes' places in a group.
const FIRST: [u32; LANES] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];

/// Returns the intermediate entries of sixteen keys.
#[inline(always)]
fn entries(wide: Wide, out: &[Hop]) -> Lanes {
    let mut entries = [0; LANES];
    for (entry, out) in entries.iter_mut().zip(out) {
        *entry = out.0;
    }
    wide.load(entries)
}

/// Returns the probe of an address in a first chunk.
#[inline(always)]
fn probe<A: FamilyLayout>(addr: A) -> u32 {
    addr.bits(Cuts::<A>::FIRST, Cuts::<A>::CHUNK) as u32
}
