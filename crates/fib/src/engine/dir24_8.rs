//! DIR-24-8: the first 24 bits index one table, the last 8 another.
//!
//! Pankaj Gupta, Steven Lin, Nick McKeown, "Routing Lookups in Hardware at Memory
//! Access Speeds", INFOCOM 1998, the scheme called DIR-24-8-BASIC; Zec's thesis
//! (2019, chapter 3) and web page compare DXR with it, updated incrementally as here.
//!
//! ```text
//!            bits 0..24                              24..32
//!            TBL24                                   TBLlong
//!            ┌─┬───────────────┐                     ┌─────────────────┐
//!            │0│ hop           │──► the answer       │ hop             │
//!     2^24   │1│ block number  │────────────────────►│ …  256 a block  │──► the answer
//!            │0│ …             │                     │ hop             │
//!            └─┴───────────────┘                     └─────────────────┘
//!             1 15 bits, or 1 31                      16 bits, or 32
//! ```
//!
//! An entry of TBL24 whose 256 addresses share a hop is that hop; any other has
//! the flag and the number of a block of TBLlong, which belongs to it alone. Toys
//! split their bits alike, three quarters and one.
//!
//! A lookup is one load for nearly all addresses, two at most, at the price of 32 MiB for any
//! table: the loads miss the near caches, and the rate of a batch comes from many loads in
//! flight. The thesis gives the scheme delayed rebuilds only; its author's web page has an
//! incremental version. Here a patch computes the entries of
//! its block and writes those that differ; a block of TBLlong is written in place
//! while its entry keeps needing it, freed when it does not, and the lowest free one
//! is taken next, so that the array can be cut where it ends in free blocks.
//!
//! Limits: 32,767 hops and 32,768 blocks with entries of 16 bits, 2^31 with 32.
//! O(entries of the block) a patch, 2^24 for a full build.

use alloc::collections::BTreeSet;
use alloc::vec;
use alloc::vec::Vec;
use core::marker::PhantomData;

use super::leaf::full;
use super::{Builder, Engine, Leaf, Part, Step};
use crate::arch::lanes::{LANES, MAX_ITEMS, SimdLookup, Wide, batch, tops};
use crate::image::{BadImage, Loadable, PartReader, PartWriter, Storable};
use crate::runs::Run;
use crate::table::{Master, Table};
use crate::{Addr, Full, Hop, Prefix};

/// How many lookups pass through a table together.
const GROUP: usize = 64;

/// How many bits TBL24 resolves: 24 of 32.
const fn first_bits<A: Addr>() -> u32 {
    A::BITS / 4 * 3
}

/// How many bits TBLlong resolves: 8 of 32.
const fn long_bits<A: Addr>() -> u32 {
    A::BITS - first_bits::<A>()
}

/// The bit of an entry that names a block.
const fn flag<L: Leaf>() -> u32 {
    L::MAX / 2 + 1
}

/// A frozen DIR-24-8 table.
#[derive(Clone, Debug)]
pub struct Dir24_8<A: Addr, L: Leaf> {
    tbl24: Table<L>,
    tbl_long: Table<L>,
    family: PhantomData<A>,
}

impl<A: Addr, L: Leaf> Dir24_8<A, L> {
    /// Returns the entry of TBL24.
    #[inline(always)]
    fn entry(&self, addr: A) -> u32 {
        self.tbl24[addr.bits(0, first_bits::<A>())].hop().0
    }

    /// Returns the index in TBLlong of the hop to which `entry`, which has the flag, leads.
    #[inline(always)]
    fn long(entry: u32, addr: A) -> usize {
        let block = (entry & !flag::<L>()) as usize;
        block << long_bits::<A>() | addr.bits(first_bits::<A>(), long_bits::<A>())
    }

    /// Looks up a batch without lanes: all entries of a group first, then those with the flag.
    /// Neither pass has a branch that depends on an entry, so that the loads of each overlap.
    #[inline(always)]
    fn groups(&self, addrs: &[A], out: &mut [Hop]) {
        for (addrs, out) in addrs.chunks(GROUP).zip(out.chunks_mut(GROUP)) {
            let mut flags = 0;
            for (&addr, out) in addrs.iter().zip(&mut *out) {
                let entry = self.entry(addr);
                flags |= entry;
                *out = Hop(entry);
            }
            if flags & flag::<L>() == 0 {
                continue;
            }
            let mut list = [0u8; GROUP];
            let mut listed = 0;
            for (i, entry) in out.iter().enumerate() {
                list[listed % GROUP] = i as u8;
                listed += usize::from(entry.0 & flag::<L>() != 0);
            }
            for &i in &list[..listed.min(GROUP)] {
                let i = usize::from(i) % GROUP;
                out[i] = self.tbl_long[Self::long(out[i].0, addrs[i])].hop();
            }
        }
    }
}

/// Reads both tables by gathers.
impl<A: Addr, L: Leaf> SimdLookup<A> for Dir24_8<A, L> {
    #[inline(always)]
    fn lookup_vectors<const N: usize>(
        &self,
        wide: Wide,
        addrs: &[[A; LANES]; N],
        out: &mut [[Hop; LANES]; N],
    ) {
        let flags = wide.all(flag::<L>());
        let number = wide.all(flag::<L>() - 1);
        let low = wide.all((1 << long_bits::<A>()) - 1);
        let (mut addr, mut entry) = ([wide.all(0); N], [wide.all(0); N]);
        let (mut further, mut any) = ([0; N], 0);
        for i in 0..N {
            addr[i] = wide.load(tops(&addrs[i]));
            let at = wide.shr(addr[i], 32 - first_bits::<A>());
            entry[i] = wide.gather(L::as_words(&self.tbl24), at, u16::MAX);
            further[i] = wide.test(entry[i], flags);
            any |= further[i];
        }
        if any != 0 {
            for i in 0..N {
                let block = wide.shl(wide.and(entry[i], number), long_bits::<A>());
                let at = wide.or(block, wide.and(wide.shr(addr[i], 32 - A::BITS), low));
                let hop = wide.gather(L::as_words(&self.tbl_long), at, further[i]);
                entry[i] = wide.select(further[i], hop, entry[i]);
            }
        }
        for i in 0..N {
            out[i] = wide.store(entry[i]).map(Hop);
        }
    }

    #[inline(always)]
    fn remainder(&self, addrs: &[A], out: &mut [Hop]) {
        self.groups(addrs, out);
    }
}

impl<A: Addr, L: Leaf> Engine<A> for Dir24_8<A, L> {
    #[inline]
    fn lookup(&self, addr: A) -> Hop {
        let entry = self.entry(addr);
        if entry & flag::<L>() == 0 {
            return Hop(entry);
        }
        self.tbl_long[Self::long(entry, addr)].hop()
    }

    fn lookup_batch(&self, addrs: &[A], out: &mut [Hop]) {
        assert_eq!(addrs.len(), out.len(), "a batch has as many answers as addresses");
        if self.tbl_long.len() > MAX_ITEMS || !batch(self, addrs, out) {
            self.groups(addrs, out);
        }
    }

    fn storable(&self) -> Option<&dyn Storable> {
        Some(self)
    }

    fn parts(&self) -> Vec<Part> {
        Vec::from([Part::of("TBL24", &self.tbl24), Part::of("TBLlong", &self.tbl_long)])
    }

    fn trace(&self, addr: A, steps: &mut Vec<Step>) -> Hop {
        steps.push(Step::of("TBL24", addr.bits(0, first_bits::<A>()), &self.tbl24));
        let entry = self.entry(addr);
        if entry & flag::<L>() == 0 {
            return Hop(entry);
        }
        let at = Self::long(entry, addr);
        steps.push(Step::of("TBLlong", at, &self.tbl_long));
        self.tbl_long[at].hop()
    }
}

/// In images, an entry with the flag must name an existing block.
impl<A: Addr, L: Leaf> Storable for Dir24_8<A, L> {
    fn save(&self, parts: &mut PartWriter<'_>) {
        parts.array("tbl24", &self.tbl24);
        parts.array("tbllong", &self.tbl_long);
    }
}

impl<A: Addr, L: Leaf> Loadable for Dir24_8<A, L> {
    type Parameters = ();

    fn load((): (), stored: &PartReader<'_>) -> Result<Self, BadImage> {
        let tbl24: Table<L> = stored.array_of("tbl24", 1 << first_bits::<A>())?;
        let tbl_long: Table<L> = stored.array("tbllong")?;
        let blocks = tbl_long.len() >> long_bits::<A>();
        let sound = |entry: L| {
            let entry = entry.hop().0;
            entry & flag::<L>() == 0 || ((entry & !flag::<L>()) as usize) < blocks
        };
        stored.all("tbl24", &tbl24, "names a block beyond the end", sound)?;
        Ok(Self { tbl24, tbl_long, family: PhantomData })
    }
}

/// The builder of [`Dir24_8`].
#[derive(Debug)]
pub struct Dir24_8Builder<A: Addr, L: Leaf> {
    tbl24: Master<L>,
    tbl_long: Master<L>,
    /// The blocks of TBLlong that no entry leads to.
    free: BTreeSet<u32>,
    family: PhantomData<A>,
}

impl<A: Addr, L: Leaf> Dir24_8Builder<A, L> {
    /// Starts an empty table.
    pub fn new() -> Self {
        Self {
            tbl24: Master::new(vec![L::default(); 1 << first_bits::<A>()]),
            tbl_long: Master::new(Vec::new()),
            free: BTreeSet::new(),
            family: PhantomData,
        }
    }

    /// Returns the entry that is the hop.
    fn hop(hop: Hop) -> Result<L, Full> {
        if hop.0 >= flag::<L>() {
            return Err(full(hop, u64::from(flag::<L>()) - 1));
        }
        L::pack(hop)
    }

    /// Stores a block, in place of that of the present entry if it has one, and
    /// returns the entry that leads to it.
    fn store(&mut self, present: L, hops: &[L]) -> Result<L, Full> {
        let number = match self.block(present) {
            Some(number) => number,
            None => match self.free.pop_first() {
                Some(number) => number,
                None => (self.tbl_long.len() >> long_bits::<A>()) as u32,
            },
        };
        if number >= flag::<L>() {
            let limit = u64::from(flag::<L>());
            return Err(Full { what: Full::BLOCKS, limit, seen: limit + 1 });
        }
        self.tbl_long.write((number as usize) << long_bits::<A>(), hops);
        L::pack(Hop(flag::<L>() | number))
    }

    /// Returns the number of the block that `entry` leads to, if it does.
    fn block(&self, entry: L) -> Option<u32> {
        let entry = entry.hop().0;
        (entry & flag::<L>() != 0).then_some(entry & !flag::<L>())
    }

    /// Puts `fresh` in place of the entries from `first` on. A block that only the
    /// present entry names is free from now on.
    fn put(&mut self, first: usize, fresh: &[L]) {
        let present = &self.tbl24[first..first + fresh.len()];
        for (&old, &new) in present.iter().zip(fresh).filter(|(old, new)| old != new) {
            debug_assert!(
                self.block(new).is_none() || self.block(old).is_none(),
                "a block is kept where there is one"
            );
            self.free.extend(self.block(old));
        }
        self.tbl24.write(first, fresh);
        let mut end = (self.tbl_long.len() >> long_bits::<A>()) as u32;
        while end > 0 && self.free.remove(&(end - 1)) {
            end -= 1;
        }
        self.tbl_long.truncate((end as usize) << long_bits::<A>());
    }
}

impl<A: Addr, L: Leaf> Default for Dir24_8Builder<A, L> {
    fn default() -> Self {
        Self::new()
    }
}

impl<A: Addr, L: Leaf> Builder<A> for Dir24_8Builder<A, L> {
    type Engine = Dir24_8<A, L>;

    fn block_len(&self) -> u32 {
        first_bits::<A>()
    }

    fn share_len(&self) -> u32 {
        A::BITS / 2
    }

    fn patch(&mut self, block: Prefix<A>, runs: &[Run<A>]) -> Result<(), Full> {
        let d = first_bits::<A>();
        assert!(block.len() <= d, "a block to patch has at most the bits of TBL24");
        let first = block.addr().bits(0, d);
        let mut fresh = Vec::with_capacity(1 << (d - block.len()));
        let end = first + (1usize << (d - block.len()));
        let mut hops = vec![L::default(); 1 << long_bits::<A>()];
        let mut rest = runs;
        while let [run, later @ ..] = rest {
            // The entries that lie wholly in the run, up to the one in which, or at
            // which, the next begins.
            let hop = Self::hop(run.hop)?;
            let index = later.first().map_or(end, |next| next.start.bits(0, d));
            fresh.resize(index - first, hop);
            rest = later;
            let divided = later.first().is_some_and(|next| next.start.first(d) != next.start);
            if !divided {
                continue;
            }
            // The next begins inside of an entry: a block of this run's hop, on which
            // the later ones that begin there are painted in order.
            let within = later.iter().take_while(|run| run.start.bits(0, d) == index).count();
            hops.fill(hop);
            for run in &later[..within] {
                hops[run.start.bits(d, long_bits::<A>())..].fill(Self::hop(run.hop)?);
            }
            fresh.push(self.store(self.tbl24[index], &hops)?);
            // The last of them may reach beyond the entry.
            rest = &later[within - 1..];
        }
        self.put(first, &fresh);
        Ok(())
    }

    fn absorb(&mut self, part: &Self, first: A, last: A) -> Result<(), Full> {
        let (first, last) = (first.bits(0, first_bits::<A>()), last.bits(0, first_bits::<A>()));
        let mut fresh = part.tbl24[first..=last].to_vec();
        for (at, entry) in fresh.iter_mut().enumerate() {
            if let Some(number) = self.block(*entry) {
                let begin = (number as usize) << long_bits::<A>();
                let hops = &part.tbl_long[begin..begin + (1 << long_bits::<A>())];
                *entry = self.store(self.tbl24[first + at], hops)?;
            }
        }
        self.put(first, &fresh);
        Ok(())
    }

    fn freeze(&self) -> Dir24_8<A, L> {
        Dir24_8 {
            tbl24: self.tbl24.freeze(),
            tbl_long: self.tbl_long.freeze(),
            family: PhantomData,
        }
    }

    fn refresh(&self, idle: &mut Dir24_8<A, L>) {
        self.tbl24.refresh(&mut idle.tbl24);
        self.tbl_long.refresh(&mut idle.tbl_long);
    }

    fn written(&self) -> u64 {
        self.tbl24.written() + self.tbl_long.written()
    }
}
