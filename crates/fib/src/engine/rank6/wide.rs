//! A batch in passes: the first stages in lanes, then ranks by whole vectors.
//!
//! ```text
//!   sixteen addresses ─► direct ─► blocks ─┬─ a hop ──────────────► the answer
//!                                          ├─ a table: one gather ──┐
//!                                          └─ a node: listed ─► rank┤
//!   sixteen entries ◄───────────────────────────────────────────────┘
//!      ├─ a hop ──────────────────────────────────────────────────► the answer
//!      └─ a chunk: listed, format by format ─► rank ──────────────► the answer
//! ```
//!
//! Which keys of sixteen go on is a mask, and the list of those is written by packing
//! lanes: what a key finds makes no branch. A list is then gone through by one loop whose
//! body is the same for all of it, so that the loads of many keys overlap. Only what is
//! longer than the first chunks say is looked up key by key.

use super::chunk::{Search, Width, find_few, find_many, find_node};
use super::entry::{LARGE, PAYLOAD, counted, kind, kind_of, many_at};
use super::{Cuts, Rank6};
use crate::arch::lanes::{LANES, Lanes, Wide, WideKernel, Words};
use crate::{Family, Hop};

/// How many lookups go through the passes together: their state is a few KiB.
const GROUP: usize = 256;

/// A batch of lookups, as a kernel.
pub(super) struct Batch<'a, A: Family> {
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

/// Lookups that go on, packed; a vector more than a group has, because whole vectors are
/// written.
struct List {
    count: usize,
    /// Where in the group the key is, and its answer goes.
    who: [u32; GROUP + LANES],
    /// What has been found for it.
    entry: [u32; GROUP + LANES],
}

impl List {
    #[inline(always)]
    fn new() -> Self {
        let none = [0; GROUP + LANES];
        Self { count: 0, who: none, entry: none }
    }

    /// Adds the lanes of the mask.
    #[inline(always)]
    fn push(&mut self, wide: Wide, mask: u16, who: Lanes, entry: Lanes) {
        // Never more than the group has; said so that no check is left.
        let at = self.count.min(GROUP);
        self.who[at..at + LANES].copy_from_slice(&wide.store(wide.pack(mask, who)));
        self.entry[at..at + LANES].copy_from_slice(&wide.store(wide.pack(mask, entry)));
        self.count += mask.count_ones() as usize;
    }

    /// Returns how many there are.
    #[inline(always)]
    fn len(&self) -> usize {
        self.count.min(GROUP)
    }

    /// Returns where one of them is in the group, and its entry.
    #[inline(always)]
    fn get(&self, at: usize) -> (usize, u32) {
        (self.who[at] as usize % GROUP, self.entry[at])
    }

    /// Returns a vector of them.
    #[inline(always)]
    fn load(&self, wide: Wide, at: usize) -> (Lanes, Lanes) {
        let at = at.min(GROUP);
        let (mut who, mut entry) = ([0; LANES], [0; LANES]);
        who.copy_from_slice(&self.who[at..at + LANES]);
        entry.copy_from_slice(&self.entry[at..at + LANES]);
        (wide.load(who), wide.load(entry))
    }
}

/// All lists of a group, made once a batch: to clear them is to forget their counts.
struct Lists {
    nodes: List,
    tables: List,
    chunks: Chunks,
}

impl Lists {
    #[inline(always)]
    fn new() -> Self {
        Self { nodes: List::new(), tables: List::new(), chunks: Chunks::new() }
    }

    #[inline(always)]
    fn clear(&mut self) {
        self.nodes.count = 0;
        self.tables.count = 0;
        self.chunks.few.count = 0;
        self.chunks.many.count = 0;
        self.chunks.large.count = 0;
        self.chunks.few_halves.count = 0;
        self.chunks.others.count = 0;
    }
}

/// Those that have a chunk, by its format.
struct Chunks {
    few: List,
    many: List,
    large: List,
    few_halves: List,
    others: List,
}

impl Chunks {
    #[inline(always)]
    fn new() -> Self {
        Self {
            few: List::new(),
            many: List::new(),
            large: List::new(),
            few_halves: List::new(),
            others: List::new(),
        }
    }

    /// Adds those of a list that have one.
    #[inline(always)]
    fn sort(&mut self, wide: Wide, list: &List) {
        let mut at = 0;
        while at < list.len() {
            let (who, entry) = list.load(wide, at);
            let left = (list.len() - at).min(LANES);
            let valid = u16::MAX >> (LANES - left);
            let one = from_kind(wide, entry, kind::FEW_BYTES) & valid;
            let two = from_kind(wide, entry, kind::FEW_HALVES) & valid;
            let three = from_kind(wide, entry, kind::MANY_BYTES) & valid;
            let four = from_kind(wide, entry, kind::MANY_HALVES) & valid;
            self.few.push(wide, one & !two, who, entry);
            let large = wide.test(entry, wide.all(LARGE));
            self.many.push(wide, three & !four & !large, who, entry);
            self.large.push(wide, three & !four & large, who, entry);
            if (two & !three) | four != 0 {
                self.few_halves.push(wide, two & !three, who, entry);
                self.others.push(wide, four, who, entry);
            }
            at += LANES;
        }
    }
}

impl<A: Family> WideKernel for Batch<'_, A> {
    type Out = ();

    #[inline(always)]
    fn run(self, wide: Wide) {
        let whole = self.addrs.len() / LANES * LANES;
        let (addrs, few) = self.addrs.split_at(whole);
        let (out, few_out) = self.out.split_at_mut(whole);
        let mut lists = Lists::new();
        for (addrs, out) in addrs.chunks(GROUP).zip(out.chunks_mut(GROUP)) {
            group(self.table, wide, addrs, out, &mut lists);
        }
        for (&addr, out) in few.iter().zip(few_out) {
            *out = one(self.table, wide, addr);
        }
    }
}

/// Looks one address up by itself.
#[inline(always)]
fn one<A: Family>(table: &Rank6<A>, wide: Wide, addr: A) -> Hop {
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
fn group<A: Family>(table: &Rank6<A>, wide: Wide, addrs: &[A], out: &mut [Hop], lists: &mut Lists) {
    lists.clear();
    let Lists { nodes, tables, chunks } = lists;
    let in_block = wide.all((1 << Cuts::<A>::NODE) - 1);
    let rest = wide.all((1 << PAYLOAD) - 1);
    let mut who = wide.load([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]);
    for (addrs, out) in addrs.chunks_exact(LANES).zip(out.chunks_exact_mut(LANES)) {
        let top = wide.tops(addrs);
        let index = wide.shr(top, 32 - Cuts::<A>::DIRECT);
        let block = wide.gather(Words::Half(&table.direct), index, u16::MAX);
        let slot = wide.and(wide.shr(top, 32 - Cuts::<A>::NODES), in_block);
        let at = wide.or(wide.shl(block, Cuts::<A>::NODE), slot);
        let mut entry = wide.gather(Words::Whole(&table.blocks), at, u16::MAX);
        let deeper = from_kind(wide, entry, kind::NODE);
        if deeper != 0 {
            let full = from_kind(wide, entry, kind::TABLE);
            nodes.push(wide, deeper & !full, who, entry);
            let slot = wide.and(wide.shr(top, 32 - Cuts::<A>::FIRST), in_block);
            let at = wide.add(wide.and(entry, rest), slot);
            let value = wide.gather(Words::Whole(&table.nodes), at, full);
            entry = wide.select(full, value, entry);
            tables.push(wide, full, who, entry);
        }
        for (out, found) in out.iter_mut().zip(wide.store(entry)) {
            *out = Hop(found);
        }
        who = wide.add(who, wide.all(LANES as u32));
    }
    for at in 0..nodes.len() {
        let (who, entry) = nodes.get(at);
        let probe = addrs[who].bits(Cuts::<A>::NODES, Cuts::<A>::NODE) as u32;
        let value = find_node(wide, &table.nodes, counted(entry), probe);
        nodes.entry[at] = value;
        out[who] = Hop(value);
    }
    chunks.sort(wide, nodes);
    chunks.sort(wide, tables);
    for at in 0..chunks.few.len() {
        let (who, entry) = chunks.few.get(at);
        let probe = probe(addrs[who]);
        out[who] = Hop(find_few(wide, &table.chunks, counted(entry), probe, Width::Bytes));
    }
    for at in 0..chunks.many.len() {
        let (who, entry) = chunks.many.get(at);
        let (at, probe) = (many_at(entry), probe(addrs[who]));
        let value = find_many::<_, false>(wide, &table.chunks, at, probe, Width::Bytes);
        out[who] = Hop(value);
    }
    for at in 0..chunks.large.len() {
        let (who, entry) = chunks.large.get(at);
        let (at, probe) = (many_at(entry), probe(addrs[who]));
        let value = find_many::<_, true>(wide, &table.chunks, at, probe, Width::Bytes);
        out[who] = Hop(value);
    }
    for at in 0..chunks.few_halves.len() {
        let (who, entry) = chunks.few_halves.get(at);
        let probe = probe(addrs[who]);
        out[who] = Hop(find_few(wide, &table.chunks, counted(entry), probe, Width::Halves));
    }
    for at in 0..chunks.others.len() {
        let (who, entry) = chunks.others.get(at);
        let entry = table.chunk(wide, entry, probe(addrs[who]));
        out[who] = table.rest(wide, entry, addrs[who]);
    }
}

/// Returns what an address asks of a first chunk.
#[inline(always)]
fn probe<A: Family>(addr: A) -> u32 {
    addr.bits(Cuts::<A>::FIRST, Cuts::<A>::CHUNK) as u32
}
