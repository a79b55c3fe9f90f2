//! The upper bound of a table's speed: plain loads from random places of so many bytes.
//!
//! ```text
//!   independent   sum += words[place & mask]        many under way at once
//!   dependent     place = words[place' ^ …] & mask  each waits for the one before
//! ```
//!
//! A lookup in a table of that size is at least one such load. Measured beside engines
//! (`fingerpost-bench run`), the two rates are the machine's limit for a footprint, and
//! an engine's share of it shows how much could still be gained. Independent loads are measured in
//! scalar code and, where there are lanes, sixteen at a time ([`lanes`](super::lanes)): the faster
//! one depends on the cache level of the words.
//!
//! The words are in memory like the arrays of an engine: on huge pages from half of one on.

use super::lanes::{LANES, Wide, WideKernel, Words, wide};
use crate::table::Table;

/// An array of a given size to load from.
pub struct Loads {
    words: Table<u32>,
}

impl Loads {
    /// Makes 2^`log` bytes of words of 32 bits.
    ///
    /// # Panics
    ///
    /// If `log` is below 2 (one word) or above 32.
    pub fn new(log: u32) -> Self {
        assert!((2..=32).contains(&log), "from one word to as many as 32 bits can number");
        let words: alloc::vec::Vec<u32> = (0..1u64 << (log - 2)).map(|at| at as u32).collect();
        Self { words: Table::new(&words) }
    }

    /// Returns the size in bytes.
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.words)
    }

    /// Loads a word for each of `places`, of which the lower bits are used, and adds all up.
    pub fn scalar(&self, places: &[u32]) -> u32 {
        let words = &*self.words;
        let mask = words.len() - 1;
        places.iter().fold(0, |sum: u32, &place| sum.wrapping_add(words[place as usize & mask]))
    }

    /// Does the same sixteen at a time; `None` if the CPU has no lanes.
    pub fn in_lanes(&self, places: &[u32]) -> Option<u32> {
        wide(Gather { words: &self.words, places }).ok()
    }

    /// Loads a word for each of `places`, each place waiting for the word before it, and
    /// returns the last.
    pub fn dependent(&self, places: &[u32]) -> u32 {
        let words = &*self.words;
        let mask = words.len() - 1;
        // The top bit of every word is 0: a data dependency the optimizer cannot remove.
        places.iter().fold(0, |word: u32, &place| words[(place ^ (word >> 31)) as usize & mask])
    }
}

struct Gather<'a> {
    words: &'a [u32],
    places: &'a [u32],
}

impl WideKernel<Wide> for Gather<'_> {
    type Out = u32;

    #[inline(always)]
    fn run(self, wide: Wide) -> u32 {
        let mask = wide.all((self.words.len() - 1) as u32);
        let (sixteens, rest) = self.places.as_chunks::<LANES>();
        let mut sums = wide.all(0);
        for places in sixteens {
            let at = wide.and(wide.load(*places), mask);
            sums = wide.add(sums, wide.gather(Words::Whole(self.words), at, u16::MAX));
        }
        let sums = wide.store(sums).into_iter().fold(0, u32::wrapping_add);
        let rest = rest.iter().map(|&place| self.words[place as usize & (self.words.len() - 1)]);
        rest.fold(sums, u32::wrapping_add)
    }
}

#[cfg(test)]
mod tests {
    use super::Loads;

    #[test]
    fn loads_add_up_every_place_once() {
        for log in [2, 5, 12, 17] {
            let loads = Loads::new(log);
            assert_eq!(loads.bytes(), 1 << log);
            let count = 1u32 << (log - 2);
            // All places, then the first 19 once more, with unused upper bits set.
            let places: alloc::vec::Vec<u32> =
                (0..count + 19).map(|at| at.wrapping_mul(0x0100_0001)).collect();
            let sum = places.iter().fold(0u32, |sum, place| sum.wrapping_add(place & (count - 1)));
            assert_eq!(loads.scalar(&places), sum);
            assert!(loads.in_lanes(&places).is_none_or(|lanes| lanes == sum));
            assert_eq!(loads.dependent(&places), places[places.len() - 1] & (count - 1));
        }
    }
}
