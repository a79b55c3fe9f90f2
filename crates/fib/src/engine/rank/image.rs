//! `rank` and `flat` in images: all chunks are validated.
//!
//! A lookup computes its indexes from entries and from the counts in words. So `load` checks each
//! chunk that an entry leads to against the layout of `chunk.rs`: its window exists, the count of
//! each word is the number of ones before it, and its leaves, one more than there are ones, are
//! within the array. Leaves that are entries lead to the last level, whose leaves are hops.

use alloc::vec::Vec;
use core::marker::PhantomData;

use super::builder::RankBuilder;
use super::chunk::{entries, len};
use super::entry::{Entry, PLACES, WINDOWS};
use super::{Chunked, Form, direct_bits, stages};
use crate::Addr;
use crate::image::{BadImage, Loadable, PartReader, PartWriter, Storable};
use crate::shared_pool::PoolSnapshot;

impl<A: Addr, F: Form> Storable for Chunked<A, F> {
    fn save(&self, parts: &mut PartWriter<'_>) {
        parts.number("grain", self.grain);
        parts.array("direct", &self.direct);
        parts.array("chunks", &self.chunks.to_vec());
    }
}

impl<A: Addr, F: Form> Loadable for Chunked<A, F> {
    type Parameters = ();

    fn load((): (), stored: &PartReader<'_>) -> Result<Self, BadImage> {
        let grain = stored.number("grain")?;
        if !RankBuilder::<A, F>::GRAINS.contains(&grain) {
            return Err(stored.bad("grain", 0, "is not 0, 2, 4 or 6"));
        }
        let chunks = stored.array("chunks")?;
        let table = Self {
            direct: stored.array_of("direct", 1 << direct_bits::<A>())?,
            chunks: PoolSnapshot::alone(&chunks),
            grain,
            form: PhantomData,
        };
        table.check(stored, &chunks)?;
        Ok(table)
    }
}

impl<A: Addr, F: Form> Chunked<A, F> {
    fn check(&self, stored: &PartReader<'_>, chunks: &[u32]) -> Result<(), BadImage> {
        if chunks.len() as u64 > PLACES << self.grain {
            return Err(stored.bad("chunks", chunks.len(), "is beyond the last place"));
        }
        let bad = |entry, what| {
            let at = chunks.iter().position(|&there| there == entry);
            stored.bad("chunks", at.unwrap_or(0), what)
        };
        let mut deeper = Vec::new();
        for entry in distinct(self.direct.to_vec()) {
            let leaves = self.chunk(chunks, entry).map_err(|what| {
                let at = self.direct.iter().position(|&there| there == entry.0);
                stored.bad("direct", at.unwrap_or(0), what)
            })?;
            deeper.extend_from_slice(leaves);
        }
        for _ in stages::<A>().skip(1) {
            for entry in distinct(core::mem::take(&mut deeper)) {
                let leaves = self.chunk(chunks, entry).map_err(|what| bad(entry.0, what))?;
                deeper.extend_from_slice(leaves);
            }
        }
        match deeper.iter().find(|&&leaf| !Entry(leaf).is_hop()) {
            Some(&leaf) => Err(bad(leaf, "is no hop, beyond the last bit")),
            None => Ok(()),
        }
    }

    /// Checks the chunk that `entry` leads to, and returns its leaves that are entries, or the
    /// fault.
    fn chunk<'a>(&self, chunks: &'a [u32], entry: Entry) -> Result<&'a [u32], &'static str> {
        if WINDOWS[(entry.0 >> 25 & 31) as usize] == 0 {
            return Err("has an undefined window");
        }
        let at = (entry.place() as usize) << self.grain;
        let words = entry.word_count() as usize;
        let first = chunks.get(at..at + words).ok_or("leads beyond the end of the array")?;
        let mut before = 0;
        if F::WORDS {
            for &word in first {
                if word & 0xff != before {
                    return Err("leads to a word with a wrong count");
                }
                before += (word >> 8).count_ones();
            }
        }
        let len = len::<F>(entry, first[words - 1], self.grain);
        let chunk = chunks.get(at..at + len).ok_or("leads beyond the end of the array")?;
        Ok(entries::<F>(entry).map_or(&[], |leaves| &chunk[leaves..]))
    }
}

/// Returns those of the entries that lead to chunks, each once.
fn distinct(mut entries: Vec<u32>) -> impl Iterator<Item = Entry> {
    entries.retain(|&entry| !Entry(entry).is_hop());
    entries.sort_unstable();
    entries.dedup();
    entries.into_iter().map(Entry)
}
