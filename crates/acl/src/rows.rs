//! Rows: sets of rules as bits, of which the words without a bit are not stored.
//!
//! ```text
//!   row ─► present │ …1000010 │   which words of the set have a bit
//!          start   │ 40       │   where the first of them is
//!                        └────► words │ … │ w40 │ w41 │ …
//! ```
//!
//! A set of n rules has n / 64 words, and each 64 words have one summary. Most sets have few rules, so
//! that the rows of ten thousand rules fit a CPU's cache. Equal sets are stored once. (Bit vectors
//! with a summary: Baboescu and Varghese, "Scalable packet classification", SIGCOMM 2001.)

use std::collections::HashMap;

/// 64 words of a set.
#[derive(Clone, Copy, Debug, Default)]
struct Summary {
    /// The words that have a bit.
    present: u64,
    /// The index of the first of them.
    start: u32,
}

/// Sets of rules, each with a number.
#[derive(Debug)]
pub(crate) struct Rows {
    summaries: Box<[Summary]>,
    words: Box<[u64]>,
    /// The number of summaries of each set.
    width: usize,
}

impl Rows {
    /// Returns which of the 64 words from number 64 × `part` on have a bit in a row.
    #[inline(always)]
    pub(crate) fn present(&self, row: u32, part: usize) -> u64 {
        self.summary(row, part).present
    }

    /// Returns word `at` of the 64 words from number 64 × `part` on.
    #[inline(always)]
    pub(crate) fn word(&self, row: u32, part: usize, at: u32) -> u64 {
        let Summary { present, start } = self.summary(row, part);
        if present >> at & 1 == 0 {
            return 0;
        }
        // Most rows have one word; counting ones takes long without an instruction for it.
        let before = present & ((1 << at) - 1);
        let before = if before == 0 { 0 } else { before.count_ones() };
        self.words.get((start + before) as usize).copied().unwrap_or(0)
    }

    #[inline(always)]
    fn summary(&self, row: u32, part: usize) -> Summary {
        self.summaries.get(row as usize * self.width + part).copied().unwrap_or_default()
    }

    /// Returns the size in bytes.
    pub(crate) fn footprint(&self) -> usize {
        size_of_val(&*self.summaries) + size_of_val(&*self.words)
    }
}

/// Collects different sets.
#[derive(Debug)]
pub(crate) struct RowsBuilder {
    sets: HashMap<Box<[u64]>, u32>,
    summaries: Vec<Summary>,
    words: Vec<u64>,
    width: usize,
}

impl RowsBuilder {
    /// Begins a collection of sets of `words` words.
    pub(crate) fn new(words: usize) -> Self {
        let width = words.div_ceil(64);
        Self { sets: HashMap::new(), summaries: Vec::new(), words: Vec::new(), width }
    }

    /// Returns the number of a set, which is added if it is a new one.
    pub(crate) fn add(&mut self, set: &[u64]) -> u32 {
        if let Some(&row) = self.sets.get(set) {
            return row;
        }
        let row = self.sets.len() as u32;
        self.sets.insert(set.into(), row);
        for part in set.chunks(64) {
            let start = self.words.len() as u32;
            let mut present = 0;
            for (at, &word) in part.iter().enumerate().filter(|(_, word)| **word != 0) {
                present |= 1 << at;
                self.words.push(word);
            }
            self.summaries.push(Summary { present, start });
        }
        row
    }

    /// Ends the collection.
    pub(crate) fn finish(self) -> Rows {
        let (summaries, words) = (self.summaries.into(), self.words.into());
        Rows { summaries, words, width: self.width }
    }
}
