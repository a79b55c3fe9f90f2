//! A Bloom filter and a hash table for every prefix length.
//!
//! ```text
//!   longest length  filter: no ─┐
//!   next            filter: no ─┤
//!   next            filter: perhaps ─► table: found ─► the value
//!   next            filter: …  ◄────── not found (one time in 2^13)
//! ```
//!
//! This is what Dharmapurikar's scheme is made of, and the upper part of SAIL's for
//! large IPv6 tables. Hardware tests all filters at once; this code tests them one after the
//! other, the longest first, and only those of lengths that have a key.
//!
//! Lengths up to half of the address are kept by the upper half alone: for IPv6
//! that makes keys of 64 bits, in half of the room and hashed in half of the time.
//! A key whose value is [`Listed::listed`] is in the filter too; any other key is found in the
//! table only if the caller probes it regardless of the filter.

use alloc::vec::Vec;

use super::table::{self, Open, Slot, Value};
use super::{bloom, hash, place};
use crate::engine::{Part, Step};
use crate::table::Table;
use crate::{Addr, FamilyLayout, Prefix};

/// The filters' name among the parts.
const FILTERS: &str = "filters";
/// The tables' name among the parts, for lengths within the upper half.
const TABLES: &str = "hash tables";
/// The same for longer ones.
const LONG_TABLES: &str = "long hash tables";

/// A value that may be left out of the filter.
pub(crate) trait Listed: Value {
    /// Returns whether the filter holds the key.
    fn listed(self) -> bool;
}

/// The filter and the table of one length.
#[derive(Clone, Debug)]
struct Level<K: Addr, V: Value> {
    filter: Table<u64>,
    slots: Table<Slot<K, V>>,
}

impl<K: Addr, V: Value> Level<K, V> {
    /// Returns the hash of the key if the filter lets it pass.
    #[inline(always)]
    fn filter(&self, key: K, len: u32) -> Option<u64> {
        let hash = hash(key.first(len), len);
        bloom::may_hold(&self.filter, hash).then_some(hash)
    }
}

/// All lengths, frozen.
#[derive(Clone, Debug)]
pub(crate) struct Lengths<A: FamilyLayout, V: Value> {
    /// Lengths 0 to those of the upper half, and the others.
    short: Vec<Level<A::Upper, V>>,
    long: Vec<Level<A, V>>,
    /// Bit l - 1 is set if a key of length l is in a filter.
    listed: u128,
}

/// Where to look: a length, and the hash of the address's first bits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Probe {
    pub(crate) len: u32,
    hash: u64,
}

/// Returns the bits of the lengths from 1 to `len`.
#[inline(always)]
pub(crate) fn up_to(len: u32) -> u128 {
    if len == 0 { 0 } else { u128::MAX >> (128 - len) }
}

impl<A: FamilyLayout, V: Value> Lengths<A, V> {
    /// Returns the longest length among `lengths` at which a key may be.
    #[inline(always)]
    pub(crate) fn ask(&self, addr: A, lengths: u128) -> Option<Probe> {
        let mut rest = self.listed & lengths;
        let upper = addr.upper();
        while rest != 0 {
            let len = 128 - rest.leading_zeros();
            let hash = match self.short.get(len as usize) {
                Some(level) => level.filter(upper, len),
                None => self.long[long::<A>(len)].filter(addr, len),
            };
            if let Some(hash) = hash {
                return Some(Probe { len, hash });
            }
            rest ^= 1 << (len - 1);
        }
        None
    }

    /// Returns the place of a key of length `len`, regardless of its filter.
    #[inline(always)]
    pub(crate) fn probe(&self, addr: A, len: u32) -> Probe {
        let hash = match len <= A::Upper::BITS {
            true => hash(addr.upper().first(len), len),
            false => hash(addr.first(len), len),
        };
        Probe { len, hash }
    }

    /// Prefetches the memory that [`find`](Self::find) will load.
    #[inline(always)]
    pub(crate) fn prefetch(&self, probe: Probe) {
        match self.short.get(probe.len as usize) {
            Some(level) => level.slots.prefetch(place(probe.hash, level.slots.len())),
            None => {
                let level = &self.long[long::<A>(probe.len)];
                level.slots.prefetch(place(probe.hash, level.slots.len()));
            }
        }
    }

    /// Returns the value of the address's first bits, if they are a key.
    #[inline(always)]
    pub(crate) fn find(&self, addr: A, probe: Probe) -> Option<V> {
        let Probe { len, hash } = probe;
        match self.short.get(len as usize) {
            Some(level) => table::find(&level.slots, hash, addr.upper().first(len)),
            None => table::find(&self.long[long::<A>(len)].slots, hash, addr.first(len)),
        }
    }

    /// Does what [`ask`](Self::ask) does, and appends every load.
    pub(crate) fn trace_ask(&self, addr: A, lengths: u128, steps: &mut Vec<Step>) -> Option<Probe> {
        let mut tested: Vec<u32> = Vec::new();
        let mut rest = self.listed & lengths;
        while rest != 0 {
            let len = 128 - rest.leading_zeros();
            tested.push(len);
            rest ^= 1 << (len - 1);
        }
        tested.into_iter().map(|len| self.probe(addr, len)).find(|probe| {
            let before = self.filters().take(probe.len as usize).map(|words| words.len());
            let base: usize = before.sum();
            let words = self.filters().nth(probe.len as usize).map_or(&[][..], |words| words);
            bloom::loads(words, probe.hash, |at| {
                steps.push(Step::of(FILTERS, base + at, words));
            })
        })
    }

    /// Does what [`find`](Self::find) does, and appends every load.
    pub(crate) fn trace_find(&self, addr: A, probe: Probe, steps: &mut Vec<Step>) -> Option<V> {
        let Probe { len, hash } = probe;
        let at = len as usize;
        match self.short.get(at) {
            Some(level) => {
                let base: usize = self.short[..at].iter().map(|level| level.slots.len()).sum();
                table::loads(&level.slots, hash, addr.upper().first(len), |slot| {
                    steps.push(Step::of(TABLES, base + slot, &level.slots));
                })
            }
            None => {
                let at = long::<A>(len);
                let base: usize = self.long[..at].iter().map(|level| level.slots.len()).sum();
                let slots = &self.long[at].slots;
                table::loads(slots, hash, addr.first(len), |slot| {
                    steps.push(Step::of(LONG_TABLES, base + slot, slots));
                })
            }
        }
    }

    /// Lists the arrays: the filters on chip, the tables off it.
    pub(crate) fn parts(&self) -> Vec<Part> {
        let part = |name, items, each| Part { name, items, bytes: items * each, place: None };
        let filters = self.filters().map(|words| words.len()).sum();
        let short = self.short.iter().map(|level| level.slots.len()).sum();
        let long = self.long.iter().map(|level| level.slots.len()).sum();
        Vec::from([
            part(FILTERS, filters, size_of::<u64>()).on_chip(),
            part(TABLES, short, size_of::<Slot<A::Upper, V>>()).off_chip(),
            part(LONG_TABLES, long, size_of::<Slot<A, V>>()).off_chip(),
        ])
    }

    /// Makes every filter answer "perhaps" for any key: the worst case.
    #[cfg(test)]
    pub(crate) fn deny_nothing(&mut self) {
        let short = self.short.iter_mut().map(|level| &mut level.filter);
        for filter in short.chain(self.long.iter_mut().map(|level| &mut level.filter)) {
            let all = alloc::vec![u64::MAX; filter.len()];
            *filter = Table::new(&all);
        }
    }

    /// Lists the filters, from length 0 on.
    fn filters(&self) -> impl Iterator<Item = &Table<u64>> {
        let short = self.short.iter().map(|level| &level.filter);
        short.chain(self.long.iter().map(|level| &level.filter))
    }
}

/// Returns where among the long ones a length is.
#[inline(always)]
fn long<A: FamilyLayout>(len: u32) -> usize {
    (len - A::Upper::BITS - 1) as usize
}

/// The builder's filter and table of one length.
#[derive(Debug)]
struct LevelBuilder<K: Addr, V: Listed> {
    filter: bloom::Counting,
    table: Open<K, V>,
    len: u32,
}

impl<K: Addr, V: Listed> LevelBuilder<K, V> {
    fn new(len: u32, spread: usize) -> Self {
        Self { filter: bloom::Counting::new(), table: Open::new(len, spread), len }
    }

    /// Sets the value of a key, or removes the key.
    fn set(&mut self, key: K, value: Option<V>) {
        let old = match value {
            Some(value) => self.table.insert(key, value),
            None => self.table.remove(key),
        };
        let hash = hash(key, self.len);
        let keys = self.filter.keys();
        match (old.is_some_and(V::listed), value.is_some_and(V::listed)) {
            (false, true) if self.filter.has_room() => self.filter.insert(hash),
            (true, false) if self.filter.suits(keys - 1) => self.filter.remove(hash),
            (false, true) => self.rebuild(keys + 1),
            (true, false) => self.rebuild(keys - 1),
            _ => {}
        }
    }

    /// Rebuilds the filter from the table, which lists `keys` keys.
    fn rebuild(&mut self, keys: usize) {
        let len = self.len;
        let listed = self.table.iter().filter(|(_, value)| value.listed());
        self.filter.rebuild(keys, listed.map(|(key, _)| hash(key, len)));
    }

    /// Holds `count` different keys in place of all there was.
    fn fill(&mut self, count: usize, entries: impl Iterator<Item = (K, V)>) {
        self.table.fill(count, entries);
        let listed = self.table.iter().filter(|(_, value)| value.listed()).count();
        self.rebuild(listed);
    }

    fn freeze(&self) -> Level<K, V> {
        Level { filter: self.filter.freeze(), slots: self.table.freeze() }
    }

    fn refresh(&self, idle: &mut Level<K, V>) {
        self.filter.refresh(&mut idle.filter);
        self.table.refresh(&mut idle.slots);
    }
}

/// The builder of all lengths.
#[derive(Debug)]
pub(crate) struct LengthsBuilder<A: FamilyLayout, V: Listed> {
    short: Vec<LevelBuilder<A::Upper, V>>,
    long: Vec<LevelBuilder<A, V>>,
}

impl<A: FamilyLayout, V: Listed> LengthsBuilder<A, V> {
    /// Starts without a key, with tables of `spread` slots a key; at least two.
    pub(crate) fn new(spread: usize) -> Self {
        let half = A::Upper::BITS;
        Self {
            short: (0..=half).map(|len| LevelBuilder::new(len, spread)).collect(),
            long: (half + 1..=A::BITS).map(|len| LevelBuilder::new(len, spread)).collect(),
        }
    }

    /// Holds `entries`, of different prefixes, in place of all there was.
    pub(crate) fn fill(&mut self, mut entries: Vec<(Prefix<A>, V)>) {
        entries.sort_by_key(|(prefix, _)| prefix.len());
        let mut rest = &entries[..];
        for level in &mut self.short {
            let own = take(&mut rest, level.len);
            level
                .fill(own.len(), own.iter().map(|&(prefix, value)| (prefix.addr().upper(), value)));
        }
        for level in &mut self.long {
            let own = take(&mut rest, level.len);
            level.fill(own.len(), own.iter().map(|&(prefix, value)| (prefix.addr(), value)));
        }
    }

    /// Sets the value of a prefix, or removes the prefix.
    pub(crate) fn set(&mut self, prefix: Prefix<A>, value: Option<V>) {
        match self.short.get_mut(prefix.len() as usize) {
            Some(level) => level.set(prefix.addr().upper(), value),
            None => self.long[long::<A>(prefix.len())].set(prefix.addr(), value),
        }
    }

    pub(crate) fn freeze(&self) -> Lengths<A, V> {
        Lengths {
            short: self.short.iter().map(LevelBuilder::freeze).collect(),
            long: self.long.iter().map(LevelBuilder::freeze).collect(),
            listed: self.listed(),
        }
    }

    pub(crate) fn refresh(&self, idle: &mut Lengths<A, V>) {
        for (level, idle) in self.short.iter().zip(&mut idle.short) {
            level.refresh(idle);
        }
        for (level, idle) in self.long.iter().zip(&mut idle.long) {
            level.refresh(idle);
        }
        idle.listed = self.listed();
    }

    pub(crate) fn written(&self) -> u64 {
        let short = self.short.iter().map(|level| level.filter.written() + level.table.written());
        let long = self.long.iter().map(|level| level.filter.written() + level.table.written());
        short.chain(long).sum()
    }

    fn listed(&self) -> u128 {
        let short = self.short.iter().map(|level| (level.len, level.filter.keys()));
        let long = self.long.iter().map(|level| (level.len, level.filter.keys()));
        let listed = short.chain(long).filter(|&(len, keys)| len > 0 && keys > 0);
        listed.fold(0, |listed, (len, _)| listed | 1 << (len - 1))
    }
}

/// Takes those of one length off the front.
fn take<'a, A: Addr, V>(rest: &mut &'a [(Prefix<A>, V)], len: u32) -> &'a [(Prefix<A>, V)] {
    let end = rest.iter().take_while(|(prefix, _)| prefix.len() == len).count();
    let (own, others) = rest.split_at(end);
    *rest = others;
    own
}
