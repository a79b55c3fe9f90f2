//! The size of a host address cache, and the search of its sets.
//!
//! ```text
//!   degree       words of a set            searched   takes up
//!   1 (1)        1                         1          1
//!   3 (4)        copy, 1, 2, 3             4          4
//!   7            1 … 7                     7          8, one unused
//!   7 (8)        copy, 1 … 7               8          8
//! ```

use core::fmt;

use super::WORDS;

/// The size of a cache and the search of its sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HacShape {
    pub(super) index_bits: u32,
    pub(super) ways: u32,
    pub(super) duplicate: bool,
    pub(super) skip: u32,
}

impl HacShape {
    /// Makes a shape of `entries` words in all, in sets of `ways` addresses, with
    /// or without the duplicate of the last hit. A set takes as many words as that
    /// needs, rounded up to a power of two.
    ///
    /// # Errors
    ///
    /// [`BadHac`] if `entries` is no power of two of at least 16 words, which are
    /// two sets at least, or a set is not 1 to 8 words.
    ///
    /// # Examples
    ///
    /// ```
    /// use fingerpost_fib::engine::hac::HacShape;
    /// let paper = HacShape::new(1024, 7, true)?;
    /// assert_eq!((paper.sets(), paper.words_per_set()), (128, 8));
    /// assert_eq!(paper.to_string(), "7 (8)");
    /// # Ok::<(), fingerpost_fib::engine::hac::BadHac>(())
    /// ```
    pub fn new(entries: usize, ways: u32, duplicate: bool) -> Result<Self, BadHac> {
        if !entries.is_power_of_two() || !(16..=1 << 24).contains(&entries) {
            return Err(BadHac::Entries(entries));
        }
        let words = ways as usize + usize::from(duplicate);
        if ways == 0 || words > WORDS {
            return Err(BadHac::Words(words));
        }
        let index_bits = (entries / words.next_power_of_two()).ilog2();
        Ok(Self { index_bits, ways, duplicate, skip: 0 })
    }

    /// Leaves the last `skip` bits of an address out of the index: addresses that
    /// differ only there share a set. The paper leaves out 2.
    #[must_use]
    pub fn with_skip(self, skip: u32) -> Self {
        Self { skip, ..self }
    }

    /// Returns the number of sets.
    pub fn sets(self) -> usize {
        1 << self.index_bits
    }

    /// Returns how many different addresses a set holds: the paper's logical
    /// associativity.
    pub fn ways(self) -> u32 {
        self.ways
    }

    /// Returns how many words a set is searched in: a duplicate is one more.
    pub fn words_per_set(self) -> usize {
        self.ways as usize + usize::from(self.duplicate)
    }

    /// Returns whether the first word of a set is a copy of the latest hit.
    pub fn has_duplicate(self) -> bool {
        self.duplicate
    }

    /// Returns the words that a set takes up: the paper's physical associativity.
    pub fn stride(self) -> usize {
        self.words_per_set().next_power_of_two()
    }

    /// Returns the words of all sets.
    pub fn entries(self) -> usize {
        self.stride() << self.index_bits
    }
}

/// Writes the degree as the paper does, logical and then physical.
impl fmt::Display for HacShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.ways, self.stride())
    }
}

/// The error of a shape that a cache cannot have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadHac {
    /// The number of words is not a power of two, too small or too large.
    Entries(usize),
    /// A set cannot have this number of words.
    Words(usize),
}

impl fmt::Display for BadHac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Entries(n) => {
                write!(f, "a cache of {n} words: give a power of two from 16 to 2^24")
            }
            Self::Words(n) => write!(f, "a set of {n} words: give 1 to {WORDS}"),
        }
    }
}

impl core::error::Error for BadHac {}

#[cfg(test)]
mod tests {
    use super::{BadHac, HacShape};
    use alloc::string::ToString;

    #[test]
    fn impossible_shapes_are_refused() {
        assert_eq!(HacShape::new(1000, 1, false), Err(BadHac::Entries(1000)));
        assert_eq!(HacShape::new(8, 1, false), Err(BadHac::Entries(8)));
        assert_eq!(HacShape::new(1024, 0, true), Err(BadHac::Words(1)));
        assert_eq!(HacShape::new(1024, 8, true), Err(BadHac::Words(9)));
        let seven = HacShape::new(1024, 7, false).unwrap();
        assert_eq!((seven.words_per_set(), seven.stride(), seven.sets()), (7, 8, 128));
        assert_eq!(HacShape::new(1024, 3, true).unwrap().to_string(), "3 (4)");
    }
}
