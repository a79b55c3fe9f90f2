//! The entry of the first table and of the widest leaves: a hop, or where and how wide
//! a chunk is.
//!
//! ```text
//!   31 30 29     25 24 22 21                    0
//!  ┌─────┬─────────┬─────┬───────────────────────┐
//!  │ 0 0 │ hop                                   │
//!  │width│ window  │ low │ place                 │
//!  └─────┴─────────┴─────┴───────────────────────┘
//! ```
//!
//! The width of the chunk's leaves is 1, 2 or 4 bytes (1, 2, 3). `low` times 32 is the
//! first address that the chunk's bits stand for; there, no change begins. The window is one
//! of [`WINDOWS`]: how many addresses a bit stands for, and how many words of 24 bits
//! there are. Every pair that 256 addresses can need is among them: 22, which is
//! why the two share five bits and are looked up.

/// How many bits of a word are of the bitmap; the others count.
pub const WORD_BITS: u32 = 24;

/// By how much at most the addresses of one bit are shifted.
const MOST_SHIFT: u32 = 3;

/// The bits of a place, the lowest of an entry.
pub const PLACE_BITS: u32 = 22;

/// The bits of width and window, the highest of an entry.
pub const SHAPE_BITS: u32 = 7;

/// How many places there are.
pub(super) const PLACES: u64 = 1 << PLACE_BITS;

/// The unit of `low`, in bits.
const LOW_SHIFT: u32 = 5;

/// The bits that say how wide leaves are.
pub(super) const KIND: u32 = 3 << 30;

/// The highest hop that an entry can be.
pub(super) const MAX_HOP: u32 = !KIND;

/// Every window, packed for a look-up: the shift, the number of words from bit 4 on, and
/// the last bit from bit 8 on.
pub(super) const WINDOWS: [u32; 32] = {
    let mut windows = [0; 32];
    let (mut next, mut shift) = (0, 0);
    while shift <= MOST_SHIFT {
        let mut words = 1;
        while words <= (256u32 >> shift).div_ceil(WORD_BITS) {
            windows[next] = shift | words << 4 | (words * WORD_BITS - 1) << 8;
            next += 1;
            words += 1;
        }
        shift += 1;
    }
    windows
};

/// Where in its 256 addresses a chunk has changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Window {
    /// The first address that a bit stands for.
    pub(super) low: u32,
    /// The logarithm of how many addresses each bit stands for.
    pub(super) shift: u32,
    /// How many words of bits there are.
    pub(super) words: u32,
}

impl Window {
    /// Finds the smallest window for changes at `places`, which ascend, none at 0.
    pub(super) fn of(places: impl Iterator<Item = u32> + Clone) -> Self {
        let all = places.clone().fold(0, |all, place| all | place);
        let shift = all.trailing_zeros().min(MOST_SHIFT);
        let first = places.clone().next().unwrap_or(1);
        let end = places.last().unwrap_or(1);
        let low = (first - 1) >> LOW_SHIFT << LOW_SHIFT;
        Self { low, shift, words: ((end - low) >> shift) / WORD_BITS + 1 }
    }

    /// Counts the bits.
    pub(super) fn bits(self) -> u32 {
        self.words * WORD_BITS
    }

    /// Returns the number of the window.
    fn number(self) -> u32 {
        let packed = self.shift | self.words << 4 | (self.bits() - 1) << 8;
        let found = WINDOWS.iter().position(|&window| window == packed);
        found.unwrap_or_else(|| unreachable!("there is a window for any changes")) as u32
    }
}

/// An entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Entry(pub(super) u32);

impl Entry {
    /// Makes the entry of a chunk whose leaves have 2^`width` bytes.
    pub(super) fn chunk(width: u32, window: Window, place: u32) -> Self {
        let low = window.low >> LOW_SHIFT;
        Self((width + 1) << 30 | window.number() << 25 | low << PLACE_BITS | place)
    }

    /// Returns the entry of an equal chunk at another place.
    pub(super) fn moved(self, place: u32) -> Self {
        Self(self.0 >> PLACE_BITS << PLACE_BITS | place)
    }

    #[inline(always)]
    pub(super) fn is_hop(self) -> bool {
        self.0 & KIND == 0
    }

    #[inline(always)]
    fn window(self) -> u32 {
        WINDOWS[(self.0 >> 25 & 31) as usize]
    }

    /// Returns how many words the chunk has.
    #[inline(always)]
    pub(super) fn word_count(self) -> u32 {
        self.window() >> 4 & 15
    }

    /// Returns how many bits the chunk has.
    pub(super) fn bits(self) -> u32 {
        self.word_count() * WORD_BITS
    }

    /// Returns the logarithm of the bytes of a leaf.
    #[inline(always)]
    pub(super) fn width(self) -> u32 {
        (self.0 >> 30).wrapping_sub(1)
    }

    /// Returns the chunk's place.
    #[inline(always)]
    pub(super) fn place(self) -> u32 {
        self.0 & ((1 << PLACE_BITS) - 1)
    }

    /// Returns the chunk's place and which of its bits `bits` of an address come to.
    #[inline(always)]
    pub(super) fn find(self, bits: u32) -> (u32, u32) {
        let window = self.window();
        let low = (self.0 >> PLACE_BITS & 7) << LOW_SHIFT;
        let at = bits.saturating_sub(low) >> (window & 15);
        (self.place(), at.min(window >> 8))
    }

    /// Returns the first of the addresses that a bit of the chunk stands for.
    pub(super) fn address(self, bit: u32) -> u32 {
        ((self.0 >> PLACE_BITS & 7) << LOW_SHIFT) + (bit << (self.window() & 15))
    }

    /// Returns in which word after the chunk's first leaf is number `leaf`, and the
    /// shift and the mask that take it out.
    #[inline(always)]
    pub(super) fn leaf(self, leaf: u32) -> (usize, u32, u32) {
        let width = self.width();
        let byte = leaf << width;
        // The mask of 1, 2 or 4 bytes.
        (byte as usize / 4, byte % 4 * 8, u32::MAX >> (32 - (8 << width)))
    }
}

/// How an address leads to a leaf of a chunk: for a program that looks up in the same words.
///
/// The bits `SHAPE_BITS..SHAPE_BITS + 3` of an entry, from the top, times 32 are the chunk's `low`. Bits of an
/// address lead to the bit of number `(bits - low, at least 0) >> shift`, at most `last`. In `flat` that is the
/// leaf; in `rank`, the leaf is the count of ones from bit 1 of the chunk to this one, and the leaves begin
/// after `words` words. A leaf has 2^`width` bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkShape {
    /// The binary logarithm of how many addresses a leaf stands for.
    pub shift: u32,
    /// The number of the last leaf.
    pub last: u32,
    /// The binary logarithm of the bytes of a leaf.
    pub width: u32,
    /// How many words of bits there are, in `rank`.
    pub words: u32,
}

impl ChunkShape {
    /// Returns what the upper [`SHAPE_BITS`] of an entry mean; `None` for a hop, and for
    /// windows that no entry has.
    pub fn of(upper: u32) -> Option<Self> {
        let entry = Entry(upper << (32 - SHAPE_BITS));
        let window = entry.window();
        (!entry.is_hop() && window != 0).then(|| Self {
            shift: window & 15,
            last: window >> 8,
            width: entry.width(),
            words: entry.word_count(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{ChunkShape, Entry, WINDOWS, Window};

    #[test]
    fn number_of_windows_is_22() {
        assert_eq!(WINDOWS.iter().filter(|&&window| window != 0).count(), 22);
    }

    #[test]
    fn window_distinguishes_any_two_changes() {
        for first in 1..256u32 {
            for last in first..256 {
                let window = Window::of([first, last].into_iter());
                let entry = Entry::chunk(0, window, 77);
                let at = |bits| {
                    let (place, at) = entry.find(bits);
                    assert_eq!(place, 77);
                    assert!(at < entry.bits());
                    at
                };
                assert_eq!(at(0), 0);
                assert!(at(first) > 0, "bit 0 is before the first change");
                for change in [first, last] {
                    assert!(at(change - 1) < at(change), "{first}, {last}: {change}");
                    assert_eq!((change - window.low) >> window.shift, at(change));
                }
                assert!(at(255) >= at(last));
            }
        }
    }

    #[test]
    fn shape_of_an_entry_leads_to_the_same_leaf() {
        let mut shapes = 0;
        for upper in 0..128 {
            let Some(shape) = ChunkShape::of(upper) else { continue };
            shapes += 1;
            for low in 0..8 {
                let entry = Entry(upper << 25 | low << 22 | 1234);
                for bits in 0..256u32 {
                    let leaf = (bits.saturating_sub(low * 32) >> shape.shift).min(shape.last);
                    assert_eq!(entry.find(bits), (1234, leaf));
                    assert_eq!(entry.width(), shape.width);
                }
            }
        }
        assert_eq!(shapes, 3 * 22);
    }

    #[test]
    fn leaves_of_each_width_are_taken_out() {
        let window = Window::of([9].into_iter());
        assert_eq!(Entry::chunk(0, window, 0).leaf(5), (1, 8, 0xff));
        assert_eq!(Entry::chunk(1, window, 0).leaf(5), (2, 16, 0xffff));
        assert_eq!(Entry::chunk(2, window, 0).leaf(5), (5, 0, u32::MAX));
    }
}
