//! The library's small errors.

use core::fmt;

/// Says which structural limit of an engine the table exceeds.
///
/// A value, not a panic and never a wrong answer: the caller picks a wider
/// layout or another engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full {
    /// What there is too much of, in the plural ("ranges in one chunk").
    pub what: &'static str,
    /// How many the layout can hold.
    pub limit: u64,
    /// How many there were when it was found out; there may be more.
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
