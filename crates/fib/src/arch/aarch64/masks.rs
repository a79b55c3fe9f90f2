//! Converts masks between their two forms: a bit a lane in 16 bits, and a byte or a number a lane.
//!
//! ```text
//!   lanes   ones zero ones zero …   ── narrow, and a bit of each ──► 0101…
//!   mask    0 1 0 1 …                (lane 0 is bit 0)
//!   before  0 0 1 1 2 …             how many of the mask lie before a lane
//!   first   1 3 … 16 16 …           the mask's lanes in their order, then none
//! ```
//!
//! A comparison with NEON gives a vector of all ones or zeros, where AVX-512 gives a mask, and
//! schemes count and combine masks as numbers. `before` and `first` serve packing and unpacking,
//! which are permutations (`lanes.rs`).
#![expect(unsafe_code, reason = "intrinsics that every CPU of the architecture has")]

use core::arch::aarch64::*;

use crate::arch::vector::LANES;

/// Returns the lowest byte of each lane.
#[inline(always)]
pub(super) fn narrow(lanes: [uint32x4_t; 4]) -> uint8x16_t {
    // SAFETY: NEON is part of the architecture.
    let halves = lanes.map(|four| unsafe { vreinterpretq_u16_u32(four) });
    // The even ones of two vectors: the lower halves, then the lower bytes of those.
    // SAFETY: as above.
    unsafe {
        let low = vreinterpretq_u8_u16(vuzp1q_u16(halves[0], halves[1]));
        let high = vreinterpretq_u8_u16(vuzp1q_u16(halves[2], halves[3]));
        vuzp1q_u8(low, high)
    }
}

/// The bit of a lane in its byte of a mask.
const BITS: [u8; LANES] = [1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128];

/// Makes a mask of lanes that are all ones or zeros.
#[inline(always)]
pub(super) fn mask(lanes: [uint32x4_t; 4]) -> u16 {
    // SAFETY: NEON is part of the architecture; the array has the sixteen bytes.
    let bits = unsafe { vandq_u8(narrow(lanes), vld1q_u8(BITS.as_ptr())) };
    // Neighbors added up thrice: eight of them in each of the first two bytes.
    // SAFETY: as above.
    unsafe {
        let twos = vpaddq_u8(bits, bits);
        let fours = vpaddq_u8(twos, twos);
        vgetq_lane_u16::<0>(vreinterpretq_u16_u8(vpaddq_u8(fours, fours)))
    }
}

/// Returns, for each lane, how many of the mask come before it.
#[inline(always)]
pub(super) fn before(mask: u16) -> uint8x16_t {
    let [low, high] = mask.to_le_bytes();
    // SAFETY: NEON is part of the architecture; the array has the sixteen bytes.
    unsafe {
        let lower = vsubq_u8(vld1q_u8(BITS.as_ptr()), vdupq_n_u8(1));
        let own = vcombine_u8(vdup_n_u8(low), vdup_n_u8(high));
        let others = vcombine_u8(vdup_n_u8(0), vdup_n_u8(low.count_ones() as u8));
        vaddq_u8(vcntq_u8(vandq_u8(own, lower)), others)
    }
}

/// The numbers of the ones of each byte, in their order; 0 follows.
static ONES: [[u8; 8]; 256] = {
    let mut ones = [[0; 8]; 256];
    let mut byte = 0;
    while byte < 256 {
        let (mut count, mut bit) = (0, 0);
        while bit < 8 {
            if byte >> bit & 1 == 1 {
                ones[byte][count] = bit as u8;
                count += 1;
            }
            bit += 1;
        }
        byte += 1;
    }
    ones
};

/// Returns the numbers of the mask's lanes in order, one byte each, followed by numbers that no
/// lane has.
#[inline(always)]
pub(super) fn first(mask: u16) -> uint8x16_t {
    const AT: [u8; LANES] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];
    let [low, high] = mask.to_le_bytes();
    let (low_ones, high_ones) = (&ONES[usize::from(low)], &ONES[usize::from(high)]);
    // SAFETY: NEON is part of the architecture; a row has the eight bytes, and the array
    // the sixteen.
    unsafe {
        let at = vld1q_u8(AT.as_ptr());
        let none = vdup_n_u8(0);
        let low_ones = vcombine_u8(vld1_u8(low_ones.as_ptr()), none);
        let high_ones = vcombine_u8(vadd_u8(vld1_u8(high_ones.as_ptr()), vdup_n_u8(8)), none);
        // The lanes of the second half follow those of the first. Other bytes are 0, the result
        // of `vqtbl1q_u8` for an index outside of its table.
        let behind = vsubq_u8(at, vdupq_n_u8(low.count_ones() as u8));
        let lanes = vorrq_u8(low_ones, vqtbl1q_u8(high_ones, behind));
        // Bit 4 marks the remaining bytes as numbers of no lane.
        let over = vcgeq_u8(at, vdupq_n_u8(mask.count_ones() as u8));
        vorrq_u8(lanes, vandq_u8(over, vdupq_n_u8(16)))
    }
}
