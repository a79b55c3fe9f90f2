//! Code words, and the table that counts for them.
//!
//! Where a 16-bit piece of a bit vector says which positions begin a leaf (a *head*),
//! not every mask can occur: the leaves are those of a complete prefix tree, in which
//! a node has two children or none, so that a piece is one leaf, or two halves, each
//! again such a piece. That makes `a(0) = 1, a(n) = 1 + a(n-1)^2`: 677 masks of 16
//! bits, and the mask of zeros within a longer leaf. A mask is thus named by 10 bits,
//! the row of a table that says for each position which of the heads it belongs to:
//!
//! ```text
//!  code word   ┃ row 10 ┃ offset 6 ┃        mask       1 0 0 0  1 0 1 1  1 0 0 0  0 0 0 0
//!                  │  heads before ┘        row (4 bits) 0 0 0 0  1 1 2 3  4 4 4 4  4 4 4 4
//!                  └► maptable, 678 rows of 64 bits
//! ```

use alloc::vec::Vec;

/// Positions in a piece of a bit vector that one code word is for.
pub(super) const MASK: usize = 16;
/// Code words that share a base index.
pub(super) const WORDS: usize = 4;

/// Lists the masks of a complete prefix tree with `2^height` leaves at most, the
/// first position in the highest of `2^height` bits.
fn masks(height: u32) -> Vec<u16> {
    if height == 0 {
        return Vec::from([1]);
    }
    let half = masks(height - 1);
    let width = 1 << (height - 1);
    let pairs = half.iter().flat_map(|high| half.iter().map(move |low| high << width | low));
    core::iter::once(1 << (2 * width - 1)).chain(pairs).collect()
}

/// The masks that can occur, in order: where a mask is here, its row is in the
/// maptable.
#[derive(Debug)]
pub(super) struct Masks(Vec<u16>);

impl Masks {
    /// Enumerates them.
    pub(super) fn new() -> Self {
        let mut all = masks(MASK.ilog2());
        all.push(0);
        all.sort_unstable();
        Self(all)
    }

    /// Writes the maptable out.
    pub(super) fn table(&self) -> Vec<u64> {
        self.0.iter().map(|&mask| row(mask)).collect()
    }

    /// Makes the code words of a stretch that begins with a head, `heads` its heads'
    /// positions in order, `words` the number of its pieces.
    pub(super) fn encode(&self, heads: &[usize], words: usize) -> Vec<u16> {
        let mut rest = heads;
        let word = |piece: usize| {
            let within = rest.iter().take_while(|&&head| head / MASK == piece).count();
            let before = heads.len() - rest.len();
            let mask = rest[..within].iter().fold(0, |mask, head| mask | 0x8000 >> (head % MASK));
            rest = &rest[within..];
            // A piece without a head belongs to the last head before it.
            let offset = if mask == 0 { before - 1 } else { before };
            self.row(mask) << 6 | offset as u16
        };
        (0..words).map(word).collect()
    }

    fn row(&self, mask: u16) -> u16 {
        match self.0.binary_search(&mask) {
            Ok(row) => row as u16,
            Err(_) => unreachable!("heads are those of a complete prefix tree"),
        }
    }
}

/// Returns for each position of a mask, in 4 bits, the number of heads before its own.
fn row(mask: u16) -> u64 {
    let count = |position: usize| (mask >> (MASK - 1 - position)).count_ones().saturating_sub(1);
    (0..MASK).fold(0, |row, position| row | u64::from(count(position)) << (4 * position))
}

/// Returns the number of the head that a position belongs to, counted from the base.
#[inline(always)]
pub(super) fn rank(maptable: &[u64], word: u16, position: usize) -> usize {
    let row = maptable[usize::from(word >> 6)];
    usize::from(word & 63) + (row >> (4 * (position % MASK)) & 15) as usize
}

/// Lists where the leaves begin of the smallest complete prefix tree over `slots`.
pub(super) fn heads<T: Eq>(slots: &[T]) -> Vec<usize> {
    let mut heads = Vec::new();
    gather(slots, 0, &mut heads);
    heads
}

fn gather<T: Eq>(slots: &[T], at: usize, heads: &mut Vec<usize>) {
    if slots[1..].iter().all(|slot| *slot == slots[0]) {
        heads.push(at);
    } else {
        let (low, high) = slots.split_at(slots.len() / 2);
        gather(low, at, heads);
        gather(high, at + low.len(), heads);
    }
}

#[cfg(test)]
mod tests {
    use super::{MASK, Masks, heads, masks, rank};
    use alloc::vec::Vec;

    #[test]
    fn number_of_masks_is_that_of_the_paper() {
        let counts: Vec<usize> = (0..=4).map(|height| masks(height).len()).collect();
        assert_eq!(counts, [1, 2, 5, 26, 677]);
        let all = Masks::new();
        assert_eq!(all.0.len(), 678);
        assert!(all.0.is_sorted_by(|a, b| a < b), "no mask twice");
        assert_eq!(all.table().len() * size_of::<u64>(), 5_424);
    }

    #[test]
    fn code_words_count_the_heads_before_every_position() {
        let all = Masks::new();
        let table = all.table();
        let mut rng = fastrand::Rng::with_seed(9);
        for _ in 0..2_000 {
            // Blocks of equal values, of any aligned size.
            let mut slots = [0u8; 64];
            for _ in 0..6 {
                let state = rng.u64(..);
                let size = 1 << (state >> 60 & 7).min(6);
                let at = (state >> 33) as usize % 64 / size * size;
                slots[at..at + size].fill((state >> 50) as u8 & 3);
            }
            let heads = heads(&slots);
            let words = all.encode(&heads, slots.len() / MASK);
            for (position, slot) in slots.iter().enumerate() {
                let head = heads[rank(&table, words[position / MASK], position)];
                assert!(head <= position);
                assert_eq!(slots[head], *slot);
                assert!(slots[head..=position].iter().all(|between| between == slot));
            }
        }
    }
}
