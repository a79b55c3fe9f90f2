//! Ranks with AVX-512: see `arch/search.rs`.
#![expect(unsafe_code, reason = "intrinsics of a detected CPU; masked loads")]

use core::arch::x86_64::*;

use super::lanes::Wide;
use crate::arch::vector::{BYTES, HALVES};

/// The words of a vector.
const LINE: usize = 16;

/// Each operation needs AVX-512 F and BW, which `self` proves.
impl Wide {
    /// Counts those of the first `count` starts of a byte, 1 to 64, that are not above
    /// the probe, which is below 256.
    #[inline(always)]
    pub(crate) fn byte_rank(self, words: &[u32], count: usize, probe: u32) -> usize {
        assert!((1..=BYTES).contains(&count) && words.len() * 4 >= count, "starts there are");
        let mask = u64::MAX >> (BYTES - count);
        // SAFETY: see above for the features.
        let probe = unsafe { _mm512_set1_epi8(probe as i8) };
        let starts = match words.first_chunk::<LINE>() {
            // SAFETY: see above for the features; as many bytes are there.
            Some(line) => unsafe { _mm512_loadu_epi8(line.as_ptr().cast()) },
            // SAFETY: see above for the features. Bytes outside the mask are not read; those
            // in it are the first `count` of the slice, which has as many.
            None => unsafe { _mm512_maskz_loadu_epi8(mask, words.as_ptr().cast()) },
        };
        // SAFETY: see above for the features.
        let below = unsafe { _mm512_cmple_epu8_mask(starts, probe) };
        (below & mask).count_ones() as usize
    }

    /// Counts those of the first `count` starts of two bytes, 1 to 32, that are not
    /// above the probe, which is below 65,536.
    #[inline(always)]
    pub(crate) fn half_rank(self, words: &[u32], count: usize, probe: u32) -> usize {
        assert!((1..=HALVES).contains(&count) && words.len() * 2 >= count, "starts there are");
        let mask = u32::MAX >> (HALVES - count);
        // SAFETY: see above for the features.
        let probe = unsafe { _mm512_set1_epi16(probe as i16) };
        let starts = match words.first_chunk::<LINE>() {
            // SAFETY: see above for the features; as many bytes are there.
            Some(line) => unsafe { _mm512_loadu_epi16(line.as_ptr().cast()) },
            // SAFETY: see above for the features. Items outside the mask are not read; those
            // in it are the first `count` pairs of bytes of the slice, which has as many.
            None => unsafe { _mm512_maskz_loadu_epi16(mask, words.as_ptr().cast()) },
        };
        // SAFETY: see above for the features.
        let below = unsafe { _mm512_cmple_epu16_mask(starts, probe) };
        (below & mask).count_ones() as usize
    }
}
