//! rank6 in images: all entries are validated.
//!
//! `load` checks the entries stage by stage, each distinct one once. The kinds allowed are:
//!
//! ```text
//!   blocks        hop, node, table
//!   behind nodes  hop, few, many, deep      (values of bytes and halves are hops)
//!   behind deep   hop, few, many, deep
//!   behind those  hop, long
//! ```
//!
//! The words that an entry names must be within their array, and a chunk of many must have the size
//! that its entry states. Nothing else is used as an index: a rank is at most the number of starts,
//! whatever their values.

use alloc::vec::Vec;

use super::chunk::{is_large, many_values};
use super::entry::{self, counted, kind, kind_of, many_at, payload};
use super::layout::{entries_of, words_of};
use super::{Cuts, Rank6};
use crate::FamilyLayout;
use crate::arch::search::HALVES;
use crate::image::{BadImage, Loadable, PartReader, PartWriter, Storable};

impl<A: FamilyLayout> Storable for Rank6<A> {
    fn save(&self, parts: &mut PartWriter<'_>) {
        parts.array("direct", &self.direct);
        parts.array("blocks", &self.blocks);
        parts.array("nodes", &self.nodes);
        parts.array("chunks", &self.chunks);
        parts.array("deep", &self.deep);
        parts.array("long", &self.long);
    }
}

impl<A: FamilyLayout> Loadable for Rank6<A> {
    type Parameters = ();

    fn load((): (), stored: &PartReader<'_>) -> Result<Self, BadImage> {
        let table = Self {
            direct: stored.array_of("direct", 1 << Cuts::<A>::DIRECT)?,
            blocks: stored.array("blocks")?,
            nodes: stored.array("nodes")?,
            chunks: stored.array("chunks")?,
            deep: stored.array("deep")?,
            long: stored.array("long")?,
        };
        let blocks = table.blocks.len() >> Cuts::<A>::NODE;
        let beyond = "names a block beyond the end";
        stored.all("direct", &table.direct, beyond, |block| usize::from(block) < blocks)?;
        // Where entries were found, and those of them that lead further.
        let mut level = ("blocks", distinct(table.blocks.to_vec()));
        let stages: [(&str, Stage<A>); 4] = [
            ("nodes", Self::node_entries),
            ("deep", Self::chunk_entries),
            ("deep", Self::chunk_entries),
            ("long", Self::long_entries),
        ];
        for (name, stage) in stages {
            let mut below = Vec::new();
            for &entry in &level.1 {
                let led = stage(&table, entry).ok_or_else(|| {
                    let within = if level.0 == "blocks" { &table.blocks } else { &table.nodes };
                    let within = if level.0 == "deep" { &table.deep } else { within };
                    let at = within.iter().position(|&there| there == entry).unwrap_or(0);
                    stored.bad(level.0, at, "leads beyond the end of an array")
                })?;
                below.extend_from_slice(led);
            }
            level = (name, distinct(below));
        }
        Ok(table)
    }
}

/// Checks the words that an entry names, and returns the entries in them; `None` if invalid.
type Stage<A> = fn(&Rank6<A>, u32) -> Option<&[u32]>;

impl<A: FamilyLayout> Rank6<A> {
    fn node_entries(&self, entry: u32) -> Option<&[u32]> {
        match kind_of(entry) {
            kind::NODE | kind::TABLE => {
                let node = self.nodes.get(words_of(entry, &self.nodes, 1 << Cuts::<A>::NODE))?;
                Some(&node[entries_of(entry, node)])
            }
            _ => None,
        }
    }

    fn chunk_entries(&self, entry: u32) -> Option<&[u32]> {
        let words = match kind_of(entry) {
            kind::FEW_BYTES | kind::FEW_HALVES => {
                (counted(entry).1 <= HALVES).then_some(())?;
                &self.chunks
            }
            kind::MANY_BYTES | kind::MANY_HALVES => &self.chunks,
            kind::DEEP => &self.deep,
            _ => return None,
        };
        if matches!(kind_of(entry), kind::MANY_BYTES | kind::MANY_HALVES | kind::DEEP) {
            let at = many_at(entry);
            let starts = *words.get(at)? as usize;
            let sound = (1..words.len() * 2).contains(&starts)
                && is_large(starts) == entry::is_large(entry);
            (sound && at + many_values(starts) <= words.len()).then_some(())?;
        }
        let chunk = words.get(words_of(entry, words, 0))?;
        Some(&chunk[entries_of(entry, chunk)])
    }

    fn long_entries(&self, entry: u32) -> Option<&[u32]> {
        let at = payload(entry) as usize;
        let ranges = self.long.get(at)?.1 as usize;
        let sound = kind_of(entry) == kind::LONG && ranges > 0;
        (sound && at + 1 + ranges <= self.long.len()).then_some(&[])
    }
}

/// Returns those of the entries that lead further, each once.
fn distinct(mut entries: Vec<u32>) -> Vec<u32> {
    entries.retain(|&entry| kind_of(entry) != kind::HOP);
    entries.sort_unstable();
    entries.dedup();
    entries
}
