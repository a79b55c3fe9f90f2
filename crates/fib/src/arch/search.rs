//! The rank of a probe among sorted starts: one comparison of a whole vector.
//!
//! A cache line holds 64 starts of one byte, or 32 of two. A binary search among them takes six
//! steps, each of which waits for the one before. A vector compares all of them with the probe
//! at once, and the number of ones in the result is the rank:
//!
//! ```text
//!   starts  │ 3 │ 9 │ 20 │ 31 │ … (other words)
//!   probe     20  20   20   20
//!   ≤         1   1    1    0    0    …        count: 3
//! ```
//!
//! Words behind the starts are not counted, and not read if the slice ends before the vector
//! does. Otherwise the whole vector is read and the mask is applied to the result: that takes
//! one instruction, and a mask for the load four. Starts are packed in words of 32 bits, the
//! first in the lowest bits of its word. [`byte_rank`] and [`half_rank`] are the scalar versions,
//! by binary search; [`Wide`] has methods of the same names.

use core::hint::select_unpredictable;

use super::lanes::{Wide, WideKernel, wide};

pub(crate) use super::vector::{BYTES, HALVES};

/// Returns item `at` of numbers of a byte.
#[inline(always)]
pub(crate) fn byte(words: &[u32], at: usize) -> u32 {
    words[at / 4] >> (at % 4 * 8) & 0xff
}

/// Returns item `at` of numbers of two bytes.
#[inline(always)]
pub(crate) fn half(words: &[u32], at: usize) -> u32 {
    words[at / 2] >> (at % 2 * 16) & 0xffff
}

/// Counts those of the first `count` starts of a byte that are not above the probe.
///
/// # Panics
///
/// If `words` do not hold as many.
#[inline(always)]
pub(crate) fn byte_rank(words: &[u32], count: usize, probe: u32) -> usize {
    rank(count, |at| byte(words, at) <= probe)
}

/// Counts those of the first `count` starts of two bytes that are not above the probe.
///
/// # Panics
///
/// If `words` do not hold as many.
#[inline(always)]
pub(crate) fn half_rank(words: &[u32], count: usize, probe: u32) -> usize {
    rank(count, |at| half(words, at) <= probe)
}

/// Counts the items for which `holds` is true, which come before all others.
#[inline(always)]
fn rank(count: usize, holds: impl Fn(usize) -> bool) -> usize {
    let (mut base, mut len) = (0, count + 1);
    while len > 1 {
        let next = base + len / 2;
        base = select_unpredictable(holds(next - 1), next, base);
        len -= len / 2;
    }
    base
}

/// Returns whether this process searches with vectors.
pub(crate) fn in_vectors() -> bool {
    struct Nothing;
    impl WideKernel<Wide> for Nothing {
        type Out = ();
        #[inline(always)]
        fn run(self, _: Wide) {}
    }
    wide(Nothing).is_ok()
}

/// The methods of an architecture without lanes.
#[cfg(not(any(
    all(feature = "std", target_arch = "x86_64"),
    all(feature = "std", target_arch = "aarch64", target_endian = "little"),
)))]
impl Wide {
    pub(crate) fn byte_rank(self, _: &[u32], _: usize, _: u32) -> usize {
        match self {}
    }
    pub(crate) fn half_rank(self, _: &[u32], _: usize, _: u32) -> usize {
        match self {}
    }
}

#[cfg(test)]
mod tests {
    use super::{BYTES, HALVES, byte_rank, half_rank};
    use crate::arch::lanes::{Wide, WideKernel, wide};
    use alloc::vec::Vec;

    /// Computes both ranks of a probe in lanes.
    struct Ranks<'a>(&'a [u32], usize, &'a [u32], usize, u32);

    impl WideKernel<Wide> for Ranks<'_> {
        type Out = (usize, usize);

        #[inline(always)]
        fn run(self, wide: Wide) -> (usize, usize) {
            (wide.byte_rank(self.0, self.1, self.4), wide.half_rank(self.2, self.3, self.4))
        }
    }

    fn pack(starts: &[u32], bits: usize) -> Vec<u32> {
        let join = |starts: &[u32]| {
            starts.iter().enumerate().fold(0, |word, (at, start)| word | start << (at * bits))
        };
        starts.chunks(32 / bits).map(join).collect()
    }

    #[test]
    fn ranks_agree_with_a_count_for_every_number_of_starts() {
        let mut rng = fastrand::Rng::with_seed(3);
        for count in 1..=BYTES {
            for _ in 0..20 {
                let mut draw = |top: u32| {
                    let state = rng.u64(..);
                    (state >> 33) as u32 % (top + 1)
                };
                let mut bytes: Vec<u32> = (0..count).map(|_| draw(255)).collect();
                let mut halves: Vec<u32> =
                    (0..count.min(HALVES)).map(|_| draw(65_535) >> draw(15)).collect();
                bytes.sort_unstable();
                halves.sort_unstable();
                let (mut byte_words, mut half_words) = (pack(&bytes, 8), pack(&halves, 16));
                // Zeros behind the starts, which a rank must not count; or no words behind.
                let behind = draw(2 * HALVES as u32) as usize / 2;
                byte_words.resize(byte_words.len() + behind, 0);
                half_words.resize(half_words.len() + behind, 0);
                let probes: Vec<u32> = bytes
                    .iter()
                    .chain(&halves)
                    .flat_map(|&start| [start.wrapping_sub(1), start, start + 1])
                    .filter(|&probe| probe <= 65_535)
                    .chain([0, 255, 65_535])
                    .collect();
                for probe in probes {
                    let below = |starts: &[u32]| starts.iter().filter(|&&s| s <= probe).count();
                    let expected = (below(&bytes), below(&halves));
                    let scalar = (
                        byte_rank(&byte_words, count, probe),
                        half_rank(&half_words, halves.len(), probe),
                    );
                    assert_eq!(scalar, expected, "{probe} in {bytes:?}, {halves:?}");
                    if probe > 255 {
                        continue;
                    }
                    let ranks = Ranks(&byte_words, count, &half_words, halves.len(), probe);
                    if let Ok(lanes) = wide(ranks) {
                        assert_eq!(lanes, expected, "{probe} in {bytes:?}, {halves:?}");
                    }
                }
            }
        }
    }
}
