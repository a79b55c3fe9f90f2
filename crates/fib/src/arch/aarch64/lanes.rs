//! Lanes with NEON: see `arch/lanes.rs`.
//!
//! Sixteen lanes are four vectors of four, and most operations are four of the same
//! instruction. Operations that NEON lacks are composed of those it has:
//!
//! ```text
//!   mask     u16 ──► vectors of all ones or zeros: its bits, tested lane by lane
//!            vectors ──► u16: narrowed to bytes, a bit left of each, added up
//!   permute  lane numbers, a byte each ──► numbers of bytes ──► one table of 64 bytes
//!   unpack   permute by how many of the mask come before a lane
//!   pack     permute by the mask's lane numbers, for each half of it from a table
//!   gather   sixteen loads, at place 0 where there is no item
//! ```
//!
//! So gathers save no time over single loads, and packing takes a dozen instructions: `AT_ONCE`
//! is false, and schemes that consist of little else are not looked up in lanes here.
//!
//! Every operation is safe to call: NEON is part of the architecture, and this file is compiled
//! only where the compiler may use it. The gathers read memory: each index that is
//! not below the table's length, or not in the mask, is made 0 first, and a table
//! without items is not read.
#![expect(
    unsafe_code,
    reason = "intrinsics that every CPU of the architecture has; loads by checked indices"
)]

use core::arch::aarch64::*;
use core::sync::atomic::Ordering;

use super::masks::{before, first, mask, narrow};
use super::{NEON, level};
use crate::arch::vector::{LANES, MAX_ITEMS, WideKernel, Words};

/// The proof that lanes are enabled, made by [`wide`] alone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wide(());

/// Sixteen numbers of 32 bits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lanes(pub(super) [uint32x4_t; 4]);

/// Runs a kernel in lanes, or returns it if they are disabled.
#[inline(always)]
pub(crate) fn wide<K: WideKernel<Wide>>(kernel: K) -> Result<K::Out, K> {
    if level() == NEON { Ok(kernel.run(Wide(()))) } else { Err(kernel) }
}

/// Applies `f` to each vector of four lanes.
#[inline(always)]
fn each(one: Lanes, f: impl Fn(uint32x4_t) -> uint32x4_t) -> Lanes {
    let [a, b, c, d] = one.0;
    Lanes([f(a), f(b), f(c), f(d)])
}

/// Applies `f` to each pair of vectors of four lanes.
#[inline(always)]
fn both(one: Lanes, two: Lanes, f: impl Fn(uint32x4_t, uint32x4_t) -> uint32x4_t) -> Lanes {
    let ([a, b, c, d], [e, f_, g, h]) = (one.0, two.0);
    Lanes([f(a, e), f(b, f_), f(c, g), f(d, h)])
}

/// NEON is part of the architecture.
impl Wide {
    /// Whether one instruction gathers, or packs, all lanes.
    pub(crate) const AT_ONCE: bool = false;

    #[inline(always)]
    pub(crate) fn load(self, numbers: [u32; LANES]) -> Lanes {
        let four = |at: usize| {
            // SAFETY: see above; `at` is at most 12, and from there on the array has
            // four numbers of any value. The load needs no alignment.
            unsafe { vld1q_u32(numbers.as_ptr().add(at)) }
        };
        Lanes([four(0), four(4), four(8), four(12)])
    }

    /// Returns the same number in all lanes.
    #[inline(always)]
    pub(crate) fn all(self, number: u32) -> Lanes {
        // SAFETY: see above.
        Lanes([unsafe { vdupq_n_u32(number) }; 4])
    }

    #[inline(always)]
    pub(crate) fn store(self, lanes: Lanes) -> [u32; LANES] {
        let mut numbers = [0; LANES];
        for (four, lanes) in numbers.as_chunks_mut::<4>().0.iter_mut().zip(lanes.0) {
            // SAFETY: see above; the four numbers are ours to write.
            unsafe { vst1q_u32(four.as_mut_ptr(), lanes) };
        }
        numbers
    }

    #[inline(always)]
    pub(crate) fn and(self, one: Lanes, two: Lanes) -> Lanes {
        // SAFETY: see above.
        both(one, two, |one, two| unsafe { vandq_u32(one, two) })
    }

    #[inline(always)]
    pub(crate) fn or(self, one: Lanes, two: Lanes) -> Lanes {
        // SAFETY: see above.
        both(one, two, |one, two| unsafe { vorrq_u32(one, two) })
    }

    #[inline(always)]
    pub(crate) fn add(self, one: Lanes, two: Lanes) -> Lanes {
        // SAFETY: see above.
        both(one, two, |one, two| unsafe { vaddq_u32(one, two) })
    }

    #[inline(always)]
    pub(crate) fn sub(self, one: Lanes, two: Lanes) -> Lanes {
        // SAFETY: see above.
        both(one, two, |one, two| unsafe { vsubq_u32(one, two) })
    }

    /// Shifts all lanes left; by 32 and more gives 0.
    #[inline(always)]
    pub(crate) fn shl(self, lanes: Lanes, by: u32) -> Lanes {
        // SAFETY: see above.
        let by = unsafe { vdupq_n_s32(by.min(32) as i32) };
        // SAFETY: see above.
        each(lanes, |four| unsafe { vshlq_u32(four, by) })
    }

    /// Shifts all lanes right; by 32 and more gives 0.
    #[inline(always)]
    pub(crate) fn shr(self, lanes: Lanes, by: u32) -> Lanes {
        // A right shift is a left shift by a negative number.
        // SAFETY: see above.
        let by = unsafe { vdupq_n_s32(-(by.min(32) as i32)) };
        // SAFETY: see above.
        each(lanes, |four| unsafe { vshlq_u32(four, by) })
    }

    /// Returns the lanes in which any bit of `bits` is set.
    #[inline(always)]
    pub(crate) fn test(self, lanes: Lanes, bits: Lanes) -> u16 {
        // SAFETY: see above.
        mask(both(lanes, bits, |lanes, bits| unsafe { vtstq_u32(lanes, bits) }).0)
    }

    /// Returns the lanes in which `one` is at most `two`.
    #[inline(always)]
    pub(crate) fn at_most(self, one: Lanes, two: Lanes) -> u16 {
        // SAFETY: see above.
        mask(both(one, two, |one, two| unsafe { vcleq_u32(one, two) }).0)
    }

    /// Takes `one` in the lanes of the mask and `other` elsewhere.
    #[inline(always)]
    pub(crate) fn select(self, mask: u16, one: Lanes, other: Lanes) -> Lanes {
        // SAFETY: see above.
        let four = |i: usize, there| unsafe { vbslq_u32(there, one.0[i], other.0[i]) };
        let [a, b, c, d] = self.spread(mask).0;
        Lanes([four(0, a), four(1, b), four(2, c), four(3, d)])
    }

    /// Returns 1 shifted left by each lane; 0 for 32 and more.
    #[inline(always)]
    pub(crate) fn bit(self, by: Lanes) -> Lanes {
        self.shl_each(self.all(1), by)
    }

    /// Shifts each lane left by the other's number; by 32 and more gives 0.
    #[inline(always)]
    pub(crate) fn shl_each(self, lanes: Lanes, by: Lanes) -> Lanes {
        // The instruction uses the lowest byte of the number alone.
        let by = self.min(by, self.all(32));
        // SAFETY: see above.
        both(lanes, by, |lanes, by| unsafe { vshlq_u32(lanes, vreinterpretq_s32_u32(by)) })
    }

    /// Shifts each lane right by the other's number; by 32 and more gives 0.
    #[inline(always)]
    pub(crate) fn shr_each(self, lanes: Lanes, by: Lanes) -> Lanes {
        let by = self.sub(self.all(0), self.min(by, self.all(32)));
        // SAFETY: see above.
        both(lanes, by, |lanes, by| unsafe { vshlq_u32(lanes, vreinterpretq_s32_u32(by)) })
    }

    /// Takes the lower of each two.
    #[inline(always)]
    pub(crate) fn min(self, one: Lanes, two: Lanes) -> Lanes {
        // SAFETY: see above.
        both(one, two, |one, two| unsafe { vminq_u32(one, two) })
    }

    /// Takes the higher of each two.
    #[inline(always)]
    pub(crate) fn max(self, one: Lanes, two: Lanes) -> Lanes {
        // SAFETY: see above.
        both(one, two, |one, two| unsafe { vmaxq_u32(one, two) })
    }

    /// Multiplies numbers whose products are below 2^16.
    #[inline(always)]
    pub(crate) fn multiply(self, one: Lanes, two: Lanes) -> Lanes {
        // SAFETY: see above.
        both(one, two, |one, two| unsafe { vmulq_u32(one, two) })
    }

    /// Counts the ones of each lane.
    #[inline(always)]
    pub(crate) fn count(self, lanes: Lanes) -> Lanes {
        // By bytes, which are then added two by two.
        // SAFETY: see above.
        each(lanes, |four| unsafe { vpaddlq_u16(vpaddlq_u8(vcntq_u8(vreinterpretq_u8_u32(four)))) })
    }

    /// Takes from a table of 32 numbers those that the lanes' lowest five bits name.
    #[inline(always)]
    pub(crate) fn look_up(self, table: &[u32; 2 * LANES], at: Lanes) -> Lanes {
        let (mut low, mut high) = ([0; LANES], [0; LANES]);
        low.copy_from_slice(&table[..LANES]);
        high.copy_from_slice(&table[LANES..]);
        let (low, high) = (self.load(low), self.load(high));
        let at = self.and(at, self.all(31));
        // SAFETY: see above.
        let bytes = unsafe { (vdupq_n_u32(0x0404_0404), vdupq_n_u32(0x0302_0100)) };
        each(at, |at| {
            // SAFETY: see above.
            let at = unsafe { vreinterpretq_u8_u32(vaddq_u32(vmulq_u32(at, bytes.0), bytes.1)) };
            // A byte outside of one half of the table gives 0 there, and every byte is outside
            // of one of the two.
            // SAFETY: see above.
            let low = unsafe { vqtbl4q_u8(table_of(low), at) };
            // SAFETY: see above.
            let high = unsafe { vqtbl4q_u8(table_of(high), vsubq_u8(at, vdupq_n_u8(64))) };
            // SAFETY: see above.
            unsafe { vreinterpretq_u32_u8(vorrq_u8(low, high)) }
        })
    }

    /// Puts the first of `lanes`, in their order, into the lanes of the mask, and
    /// leaves `other` elsewhere: the inverse of [`pack`](Self::pack).
    #[inline(always)]
    pub(crate) fn unpack(self, mask: u16, lanes: Lanes, other: Lanes) -> Lanes {
        self.select(mask, pick(lanes, before(mask)), other)
    }

    /// Moves the lanes of the mask to the front, in their order; 0 follows.
    #[inline(always)]
    pub(crate) fn pack(self, mask: u16, lanes: Lanes) -> Lanes {
        pick(lanes, first(mask))
    }

    /// Returns the lowest byte of each lane of the mask, in their order; 0 follows.
    #[inline(always)]
    pub(crate) fn packed_bytes(self, mask: u16, lanes: Lanes) -> [u8; LANES] {
        let mut bytes = [0; LANES];
        // SAFETY: see above; the array is ours to write and has the sixteen bytes. Of a
        // number that no lane has, `vqtbl1q_u8` makes 0.
        unsafe { vst1q_u8(bytes.as_mut_ptr(), vqtbl1q_u8(narrow(lanes.0), first(mask))) };
        bytes
    }

    /// Takes lane `at` modulo 16 for each lane of `at`.
    #[inline(always)]
    pub(crate) fn permute(self, lanes: Lanes, at: Lanes) -> Lanes {
        // SAFETY: see above.
        pick(lanes, unsafe { vandq_u8(narrow(at.0), vdupq_n_u8(15)) })
    }

    /// Loads the items of 16 or 32 bits from `at` on, if there are as many as lanes.
    #[inline(always)]
    pub(crate) fn row(self, table: Words<'_>, at: usize) -> Option<Lanes> {
        match table {
            Words::Half(table) => {
                let row: &[u16; LANES] = table.get(at..)?.first_chunk()?;
                // SAFETY: see above; the row has twice eight numbers, and the loads
                // need no alignment.
                let (low, high) =
                    unsafe { (vld1q_u16(row.as_ptr()), vld1q_u16(row.as_ptr().add(8))) };
                // SAFETY: see above.
                Some(Lanes(unsafe {
                    [
                        vmovl_u16(vget_low_u16(low)),
                        vmovl_high_u16(low),
                        vmovl_u16(vget_low_u16(high)),
                        vmovl_high_u16(high),
                    ]
                }))
            }
            Words::Whole(table) => Some(self.load(*table.get(at..)?.first_chunk()?)),
            Words::Shared(_) | Words::Double(_) => None,
        }
    }

    /// Loads the items at the indices, in the lanes of the mask; 0 in the others, and
    /// where there is no such item.
    #[inline(always)]
    pub(crate) fn gather(self, table: Words<'_>, at: Lanes, mask: u16) -> Lanes {
        match table {
            Words::Whole(table) => self.gather_by(at, mask, table.len(), |at| {
                // SAFETY: `gather_by` calls this with indices below the slice's length only.
                unsafe { *table.get_unchecked(at) }
            }),
            Words::Shared(table) => self.gather_by(at, mask, table.len(), |at| {
                // SAFETY: as above.
                unsafe { table.get_unchecked(at) }.load(Ordering::Relaxed)
            }),
            Words::Half(table) => self.gather_by(at, mask, table.len(), |at| {
                // SAFETY: as above.
                u32::from(unsafe { *table.get_unchecked(at) })
            }),
            Words::Double(table) => self.gather_by(at, mask, table.len() * 2, |at| {
                // SAFETY: as above, with twice as many items of half the size.
                let both = unsafe { *table.get_unchecked(at / 2) };
                (both >> (at % 2 * 32)) as u32
            }),
        }
    }

    /// Gathers items of a table of `len`, loaded by `item`, which is called with indices below
    /// `len` only.
    #[inline(always)]
    fn gather_by(self, at: Lanes, mask: u16, len: usize, item: impl Fn(usize) -> u32) -> Lanes {
        if len == 0 {
            return self.all(0);
        }
        // An index is a number below 2^31, here as on other architectures.
        let len = self.all(len.min(MAX_ITEMS) as u32);
        // SAFETY: see above.
        let below = both(at, len, |at, len| unsafe { vcltq_u32(at, len) });
        let there = self.and(below, self.spread(mask));
        // Every index is now in the mask and below `len`, or 0, which is below `len`.
        let at = self.store(self.and(at, there));
        self.and(self.load(at.map(|at| item(at as usize))), there)
    }

    /// Returns all ones in the lanes of the mask.
    #[inline(always)]
    fn spread(self, mask: u16) -> Lanes {
        let bits = self.load(core::array::from_fn(|lane| 1 << lane));
        // SAFETY: see above.
        both(self.all(mask.into()), bits, |mask, bit| unsafe { vtstq_u32(mask, bit) })
    }
}

/// The bytes of lanes, as a table.
#[inline(always)]
fn table_of(lanes: Lanes) -> uint8x16x4_t {
    // SAFETY: NEON is part of the architecture.
    let [a, b, c, d] = lanes.0.map(|four| unsafe { vreinterpretq_u8_u32(four) });
    uint8x16x4_t(a, b, c, d)
}

/// Takes the lanes with these numbers, one byte each; 0 for a number that no lane has.
#[inline(always)]
fn pick(lanes: Lanes, at: uint8x16_t) -> Lanes {
    const FOURS: [u8; 64] = {
        let mut fours = [0; 64];
        let mut i = 0;
        while i < 64 {
            fours[i] = (i / 4) as u8;
            i += 1;
        }
        fours
    };
    let table = table_of(lanes);
    // The first byte of a lane; for a number that no lane has, a byte behind the table.
    // SAFETY: NEON is part of the architecture.
    let begin = unsafe { vqshlq_n_u8::<2>(at) };
    let four = |i: usize| {
        // SAFETY: as above; sixteen bytes from 16 i, at most 48, are in the array of 64.
        unsafe {
            let each = vqtbl1q_u8(begin, vld1q_u8(FOURS.as_ptr().add(16 * i)));
            let byte = vreinterpretq_u8_u32(vdupq_n_u32(0x0302_0100));
            vreinterpretq_u32_u8(vqtbl4q_u8(table, vorrq_u8(each, byte)))
        }
    };
    Lanes([four(0), four(1), four(2), four(3)])
}

#[cfg(test)]
mod tests {
    use super::{Lanes, Wide, before, first, mask};
    use crate::arch::vector::LANES;
    use alloc::vec::Vec;
    use core::arch::aarch64::{uint8x16_t, vst1q_u8};

    fn bytes(vector: uint8x16_t) -> [u8; LANES] {
        let mut bytes = [0; LANES];
        // SAFETY: the array is ours to write and has the sixteen bytes.
        unsafe { vst1q_u8(bytes.as_mut_ptr(), vector) };
        bytes
    }

    #[test]
    fn every_mask_is_spread_packed_and_unpacked() {
        let wide = Wide(());
        let numbers: [u32; LANES] = core::array::from_fn(|lane| 0x0234_5601 * (lane as u32 + 1));
        let lanes: Lanes = wide.load(numbers);
        for set in 0..=u16::MAX {
            let is_set = |lane: &usize| set >> lane & 1 == 1;
            assert_eq!(mask(wide.spread(set).0), set);
            let of: Vec<u8> = (0..LANES).filter(is_set).map(|lane| lane as u8).collect();
            let (at, earlier) = (bytes(first(set)), bytes(before(set)));
            assert_eq!(at[..of.len()], of);
            assert!(at[of.len()..].iter().all(|&lane| lane >= 16), "{set:x}");
            for lane in 0..LANES {
                let count = of.iter().filter(|&&other| usize::from(other) < lane).count();
                assert_eq!(usize::from(earlier[lane]), count, "{set:x}, {lane}");
            }
            let mut packed = [0; LANES];
            for (to, from) in packed.iter_mut().zip(&of) {
                *to = numbers[usize::from(*from)];
            }
            assert_eq!(wide.store(wide.pack(set, lanes)), packed);
            let back = wide.store(wide.unpack(set, wide.load(packed), wide.all(7)));
            for lane in 0..LANES {
                assert_eq!(back[lane], if is_set(&lane) { numbers[lane] } else { 7 });
            }
        }
    }

    #[test]
    fn shifts_by_32_and_more_give_zero() {
        let wide = Wide(());
        let by = [0, 1, 5, 31, 32, 33, 63, 64, 127, 128, 224, 255, 256, 288, 1 << 31, u32::MAX];
        let number = 0x9876_5431u32;
        let (left, right) = (
            wide.store(wide.shl_each(wide.all(number), wide.load(by))),
            wide.store(wide.shr_each(wide.all(number), wide.load(by))),
        );
        let bit = wide.store(wide.bit(wide.load(by)));
        for (i, &by) in by.iter().enumerate() {
            let shifted = number.checked_shl(by).unwrap_or(0);
            assert_eq!(
                (left[i], wide.store(wide.shl(wide.all(number), by))[i]),
                (shifted, shifted)
            );
            let shifted = number.checked_shr(by).unwrap_or(0);
            assert_eq!(
                (right[i], wide.store(wide.shr(wide.all(number), by))[i]),
                (shifted, shifted)
            );
            assert_eq!(bit[i], 1u32.checked_shl(by).unwrap_or(0));
        }
    }
}
