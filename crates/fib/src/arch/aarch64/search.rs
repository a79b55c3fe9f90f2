//! Ranks with NEON: see `arch/search.rs`.
//!
//! A line of starts is four vectors. No load skips lanes, so the whole line is read if the slice
//! has it, and the comparison excludes the items behind the starts; at the end of a slice the
//! starts are copied to a line first. A comparison gives −1 where it holds: the sum of the four
//! vectors, lane by lane and then across lanes, is the negated rank.
#![expect(unsafe_code, reason = "intrinsics that every CPU of the architecture has")]

use core::arch::aarch64::*;

use super::lanes::{Lanes, Wide};
use crate::arch::vector::{BYTES, HALVES, LANES};

/// The numbers of a line's bytes.
const AT: [u8; BYTES] = {
    let mut at = [0; BYTES];
    let mut i = 0;
    while i < BYTES {
        at[i] = i as u8;
        i += 1;
    }
    at
};

/// NEON is part of the architecture.
impl Wide {
    /// Counts those of the first `count` starts of a byte, 1 to 64, that are not above
    /// the probe, which is below 256.
    #[inline(always)]
    pub(crate) fn byte_rank(self, words: &[u32], count: usize, probe: u32) -> usize {
        assert!((1..=BYTES).contains(&count) && words.len() * 4 >= count, "starts there are");
        let line = self.line(words);
        let below = |i: usize| {
            // SAFETY: see above; sixteen bytes from 16 i, which is at most 48, are in
            // the array of 64.
            let at = unsafe { vld1q_u8(AT.as_ptr().add(16 * i)) };
            // SAFETY: see above.
            unsafe {
                let there = vcltq_u8(at, vdupq_n_u8(count as u8));
                let starts = vreinterpretq_u8_u32(line.0[i]);
                vandq_u8(vcleq_u8(starts, vdupq_n_u8(probe as u8)), there)
            }
        };
        let (one, two, three, four) = (below(0), below(1), below(2), below(3));
        // SAFETY: see above.
        let sum = unsafe {
            let all = vaddq_u8(vaddq_u8(one, two), vaddq_u8(three, four));
            vaddlvq_s8(vreinterpretq_s8_u8(all))
        };
        usize::from(sum.wrapping_neg() as u16)
    }

    /// Counts those of the first `count` starts of two bytes, 1 to 32, that are not
    /// above the probe, which is below 65,536.
    #[inline(always)]
    pub(crate) fn half_rank(self, words: &[u32], count: usize, probe: u32) -> usize {
        assert!((1..=HALVES).contains(&count) && words.len() * 2 >= count, "starts there are");
        let line = self.line(words);
        let below = |i: usize| {
            // SAFETY: see above; eight bytes from 8 i, which is at most 24, are in the
            // array of 64.
            let at = unsafe { vmovl_u8(vld1_u8(AT.as_ptr().add(8 * i))) };
            // SAFETY: see above.
            unsafe {
                let there = vcltq_u16(at, vdupq_n_u16(count as u16));
                let starts = vreinterpretq_u16_u32(line.0[i]);
                vandq_u16(vcleq_u16(starts, vdupq_n_u16(probe as u16)), there)
            }
        };
        let (one, two, three, four) = (below(0), below(1), below(2), below(3));
        // SAFETY: see above.
        let sum = unsafe {
            let all = vaddq_u16(vaddq_u16(one, two), vaddq_u16(three, four));
            vaddvq_s16(vreinterpretq_s16_u16(all))
        };
        usize::from(sum.wrapping_neg() as u16)
    }

    /// Loads the first sixteen words; zeros in place of missing words.
    #[inline(always)]
    fn line(self, words: &[u32]) -> Lanes {
        match words.first_chunk() {
            Some(line) => self.load(*line),
            None => self.load(ended(words)),
        }
    }
}

/// Copies fewer words than a line has into a line, followed by zeros.
#[cold]
fn ended(words: &[u32]) -> [u32; LANES] {
    let mut line = [0; LANES];
    for (to, word) in line.iter_mut().zip(words) {
        *to = *word;
    }
    line
}
