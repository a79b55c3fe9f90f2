//! The node: two bitmaps and two pointers.
//!
//! Positions of the internal bitmap are numbered as a heap: the route that takes
//! the `n` bits `b` of a node's stride is position `2^n + b`, so that the routes
//! above it are its halves, a longer one has a higher position, and position 0 is
//! free to mark an end node.
//!
//! ```text
//!                    1: *                      stride 3, internal
//!            2: 0*           3: 1*             bit  0  1 2 3 4 5 6 7
//!        4: 00*  5: 01*  6: 10*  7: 11*            end * 0 1 00 01 10 11
//!        000 001 010 011 100 101 110 111       external, bits 0 to 7
//! ```

use core::fmt::Debug;

/// A bitmap of 2^stride bits.
pub trait Bits: Copy + Default + Eq + Debug + Send + Sync + 'static {
    /// The stride: log2 of the width.
    const STRIDE: u32;

    /// Widens, so that the arithmetic is written once.
    fn wide(self) -> u64;

    /// Narrows a widened bitmap.
    fn narrow(bits: u64) -> Self;
}

impl Bits for u16 {
    const STRIDE: u32 = 4;

    #[inline(always)]
    fn wide(self) -> u64 {
        self.into()
    }

    fn narrow(bits: u64) -> Self {
        bits as Self
    }
}

impl Bits for u32 {
    const STRIDE: u32 = 5;

    #[inline(always)]
    fn wide(self) -> u64 {
        self.into()
    }

    fn narrow(bits: u64) -> Self {
        bits as Self
    }
}

impl Bits for u64 {
    const STRIDE: u32 = 6;

    #[inline(always)]
    fn wide(self) -> u64 {
        self
    }

    fn narrow(bits: u64) -> Self {
        bits
    }
}

/// The positions above each, which are at most 127 for a stride of 6.
static ABOVE: [u64; 128] = {
    let mut above = [0; 128];
    let mut position = 2;
    while position < above.len() {
        let up = position / 2;
        above[position] = above[up] | 1 << up;
        position += 1;
    }
    above
};

/// The mark of an end node.
const END: u64 = 1;

/// One node of the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Node<W> {
    internal: W,
    external: W,
    /// Where the block of its children begins; of no meaning in an end node.
    pub(super) children: u32,
    /// Where the block of its results begins.
    pub(super) results: u32,
}

/// Which of a node's results a lookup would take: the one after those of `before`,
/// in the block at `base`. They are counted once, when the lookup ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    pub(super) base: u32,
    pub(super) before: u64,
}

impl Found {
    /// Returns the place of the result.
    #[inline(always)]
    pub(super) fn place(self) -> usize {
        self.base as usize + self.before.count_ones() as usize
    }
}

impl<W: Bits> Node<W> {
    /// A node without routes and children.
    pub(super) fn empty() -> Self {
        Self { internal: W::narrow(END), external: W::default(), children: 0, results: 0 }
    }

    /// Makes a node of its bitmaps and pointers.
    pub(super) fn new(end: bool, internal: u64, external: u64) -> Self {
        let internal = W::narrow(internal | u64::from(end));
        Self { internal, external: W::narrow(external), children: 0, results: 0 }
    }

    /// Gives it pointers to its children's and its results' blocks.
    pub(super) fn pointing(self, children: u32, results: u32) -> Self {
        Self { children, results, ..self }
    }

    /// Returns whether the external bitmap is of routes and not of children.
    #[inline(always)]
    pub(super) fn is_end(self) -> bool {
        self.internal.wide() & END != 0
    }

    /// Returns the positions of the routes shorter than the stride.
    #[inline(always)]
    pub(super) fn internal(self) -> u64 {
        self.internal.wide() & !END
    }

    pub(super) fn external(self) -> u64 {
        self.external.wide()
    }

    /// Returns whether the node holds at most the route of length 0.
    pub(super) fn is_null(self) -> bool {
        self.internal.wide() & !(1 << 1) == END && self.external() == 0
    }

    /// Returns whether the node holds nothing.
    pub(super) fn is_empty(self) -> bool {
        self.internal() == 0 && self.external() == 0
    }

    /// Counts the routes.
    pub(super) fn routes(self) -> usize {
        let last = if self.is_end() { self.external() } else { 0 };
        (self.internal().count_ones() + last.count_ones()) as usize
    }

    /// Counts the children.
    pub(super) fn fanout(self) -> usize {
        if self.is_end() { 0 } else { self.external().count_ones() as usize }
    }

    /// Returns the place of the child that `chunk` leads to.
    pub(super) fn child(self, chunk: usize) -> Option<usize> {
        let there = !self.is_end() && self.external() >> chunk & 1 != 0;
        there.then(|| self.children as usize + below(self.external(), chunk).count_ones() as usize)
    }

    /// Reads the node for a `chunk` of one stride: notes a longer match in `found`, and
    /// returns the place of the child to go on with.
    #[inline(always)]
    pub(super) fn read(&self, chunk: usize, found: &mut Found) -> Option<usize> {
        let (internal, external) = (self.internal(), self.external.wide());
        let more = external >> chunk & 1 != 0;
        if more && self.is_end() {
            // Behind all internal ones.
            let base = self.results + internal.count_ones();
            *found = Found { base, before: below(external, chunk) };
            return None;
        }
        let matching = internal & ABOVE[1 << W::STRIDE | chunk];
        if matching != 0 {
            let longest = matching.ilog2() as usize;
            *found = Found { base: self.results, before: below(internal, longest) };
        }
        more.then(|| self.children as usize + below(external, chunk).count_ones() as usize)
    }
}

/// Returns the bits of `map` below `position`.
#[inline(always)]
pub(super) fn below(map: u64, position: usize) -> u64 {
    map & ((1 << position) - 1)
}

#[cfg(test)]
mod tests {
    use super::{ABOVE, Node};

    #[test]
    fn nodes_are_of_the_size_that_the_essay_draws() {
        assert_eq!(size_of::<Node<u16>>(), 12);
        assert_eq!(size_of::<Node<u32>>(), 16);
        assert_eq!(size_of::<Node<u64>>(), 24);
    }

    #[test]
    fn bits_above_a_position_are_its_leading_bits() {
        // 1 101: *, 1*, 11* (heap: 1, 3, 6).
        let of =
            |positions: &[u32]| positions.iter().fold(0, |map, position| map | 1u64 << position);
        assert_eq!(ABOVE[0b1101], of(&[1, 3, 6]));
        assert_eq!(ABOVE[127], of(&[1, 3, 7, 15, 31, 63]));
        assert_eq!(ABOVE[1], 0);
    }
}
