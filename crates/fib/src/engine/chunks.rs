//! The numbers of the chunks of a DXR table, before and after equal ones are stored once.
//!
//! The thesis has the numbers of chunks and of their ranges, which it calls range fragments, the longest
//! chunk, and the sizes of short and long ranges after equal chunks are shared (section 3.5, table 3.2,
//! figures 3.9 and 3.10); the web page has the chunks by their length, and `rt.stat`.

use alloc::vec::Vec;

/// The chunks of a DXR table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunks {
    /// The number of first parts of an address, 2^K, each of which has a hop or a chunk.
    pub indices: usize,
    /// The chunks of each format of ranges, by the name of the [`Part`](crate::engine::Part) with its ranges.
    pub formats: Vec<(&'static str, ChunkCounts)>,
    /// The ranges of the longest chunk; 0 if there is none.
    pub longest: usize,
    /// The chunks by their length: `by_ranges[i]` have more than 2^i ranges, and at most 2^(i + 1).
    pub by_ranges: Vec<usize>,
}

/// The numbers of chunks and of their ranges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChunkCounts {
    /// The number of chunks.
    pub chunks: usize,
    /// The ranges of them all.
    pub ranges: usize,
    /// The number of different chunks, which are stored.
    pub stored_chunks: usize,
    /// The ranges of the different chunks.
    pub stored_ranges: usize,
}

impl Chunks {
    /// Adds the chunks of all formats up.
    pub fn total(&self) -> ChunkCounts {
        let mut total = ChunkCounts::default();
        for (_, format) in &self.formats {
            total.chunks += format.chunks;
            total.ranges += format.ranges;
            total.stored_chunks += format.stored_chunks;
            total.stored_ranges += format.stored_ranges;
        }
        total
    }

    /// Returns the share of the address space whose answers are in the first stage, 0 to 1.
    pub fn direct_coverage(&self) -> f64 {
        1.0 - self.total().chunks as f64 / self.indices as f64
    }
}
