//! The error of a table that exceeds its engine's limits.

use core::fmt;

/// The structural limit of an engine that a table exceeds.
///
/// The build fails with this value, without a panic and never with a wrong answer: the caller
/// takes a wider layout or another engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full {
    /// The limited quantity, in the plural ("ranges in one chunk").
    pub what: &'static str,
    /// The most that the layout can hold.
    pub limit: u64,
    /// The number found when the build stopped; the table may have more.
    pub seen: u64,
}

impl Full {
    /// The limit on the ranges of one chunk.
    pub const CHUNK: &'static str = "ranges in one chunk";
    /// The limit on the ranges of a whole table.
    pub const RANGES: &'static str = "ranges";
    /// The limit on blocks of a further table.
    pub const BLOCKS: &'static str = "blocks";
    /// The limit on the chunks of one level.
    pub const CHUNKS: &'static str = "chunks of one level";
    /// The limit on the words of all chunks.
    pub const WORDS: &'static str = "words of chunks";
    /// The limit on next hops.
    pub const HOPS: &'static str = "next hops";
    /// The limit on the width of an address.
    pub const BITS: &'static str = "bits of address";
}

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, limit, seen } = self;
        write!(f, "the table is full: {seen} {what}, and room for {limit}")
    }
}

impl core::error::Error for Full {}
