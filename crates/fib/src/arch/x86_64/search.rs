//! Ranks by AVX-512: see `arch/search.rs`.
#![expect(unsafe_code, reason = "intrinsics of a CPU that was looked for; masked loads")]

use core::any::TypeId;
use core::arch::x86_64::*;

use super::lanes::{Lanes, Wide};
use crate::Addr;
use crate::arch::lanes::{LANES, tops};
use crate::arch::search::{BYTES, HALVES};

/// Each operation needs AVX-512 F and BW, which `self` proves.
impl Wide {
    /// Counts those of the first `count` starts of a byte, 1 to 64, that are not above
    /// the probe, which is below 256.
    #[inline(always)]
    pub(crate) fn byte_rank(self, words: &[u32], count: usize, probe: u32) -> usize {
        assert!((1..=BYTES).contains(&count) && words.len() * 4 >= count, "starts there are");
        let mask = u64::MAX >> (BYTES - count);
        // SAFETY: see above for the features. Bytes outside the mask are not read; those
        // in it are the first `count` of the slice, which has as many.
        let starts = unsafe { _mm512_maskz_loadu_epi8(mask, words.as_ptr().cast()) };
        // SAFETY: see above for the features.
        let probe = unsafe { _mm512_set1_epi8(probe as i8) };
        // SAFETY: see above for the features.
        let below = unsafe { _mm512_mask_cmple_epu8_mask(mask, starts, probe) };
        below.count_ones() as usize
    }

    /// Counts those of the first `count` starts of two bytes, 1 to 32, that are not
    /// above the probe, which is below 65,536.
    #[inline(always)]
    pub(crate) fn half_rank(self, words: &[u32], count: usize, probe: u32) -> usize {
        assert!((1..=HALVES).contains(&count) && words.len() * 2 >= count, "starts there are");
        let mask = u32::MAX >> (HALVES - count);
        // SAFETY: see above for the features. Items outside the mask are not read; those
        // in it are the first `count` pairs of bytes of the slice, which has as many.
        let starts = unsafe { _mm512_maskz_loadu_epi16(mask, words.as_ptr().cast()) };
        // SAFETY: see above for the features.
        let probe = unsafe { _mm512_set1_epi16(probe as i16) };
        // SAFETY: see above for the features.
        let below = unsafe { _mm512_mask_cmple_epu16_mask(mask, starts, probe) };
        below.count_ones() as usize
    }

    /// Returns what [`tops`] does, in lanes.
    #[inline(always)]
    pub(crate) fn tops<A: Addr>(self, addrs: &[A]) -> Lanes {
        if TypeId::of::<A>() != TypeId::of::<u128>() || addrs.len() != LANES {
            return self.load(tops(addrs));
        }
        let four = |at: usize| addrs[at..at + 4].as_ptr().cast();
        let (a, b, c, d) = (four(0), four(4), four(8), four(12));
        // SAFETY: see above for the features. Four numbers of 128 bits, plain and of any
        // value, are a vector.
        let a = unsafe { _mm512_loadu_si512(a) };
        // SAFETY: as for the first.
        let b = unsafe { _mm512_loadu_si512(b) };
        // SAFETY: as for the first.
        let c = unsafe { _mm512_loadu_si512(c) };
        // SAFETY: as for the first.
        let d = unsafe { _mm512_loadu_si512(d) };
        // On this architecture the last of a number's four parts is the highest.
        // SAFETY: see above for the features.
        let last = unsafe {
            _mm512_set_epi32(63, 59, 55, 51, 47, 43, 39, 35, 31, 27, 23, 19, 15, 11, 7, 3)
        };
        // SAFETY: see above for the features. An index beyond a pair's 32 parts wraps.
        let low = unsafe { _mm512_permutex2var_epi32(a, last, b) };
        // SAFETY: see above for the features.
        let high = unsafe { _mm512_permutex2var_epi32(c, last, d) };
        // SAFETY: see above for the features. Both halves of `high` are the same.
        Lanes(unsafe { _mm512_mask_blend_epi32(0xff00, low, high) })
    }
}
