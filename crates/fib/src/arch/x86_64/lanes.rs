//! Lanes with AVX-512: see `arch/lanes.rs`.
//!
//! Every operation is one intrinsic or a few, safe to call but for the features it
//! needs; [`Wide`] is the proof of those. The gathers read memory: each is masked by a
//! comparison of all indices with the table's length.
#![expect(unsafe_code, reason = "intrinsics of a detected CPU; loads by checked indices")]

use super::{ALL, WIDE, level};
use crate::arch::vector::{LANES, WideKernel, Words};
use core::arch::x86_64::*;

/// The proof that this CPU has AVX-512 F, BW and VL, made by [`wide`] alone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wide {
    /// It has VPOPCNTDQ too, and the kernel is compiled for it.
    counts: bool,
}

/// Sixteen numbers of 32 bits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lanes(pub(super) __m512i);

/// Runs a kernel in lanes, or returns it if the CPU has none.
#[inline(always)]
pub(crate) fn wide<K: WideKernel<Wide>>(kernel: K) -> Result<K::Out, K> {
    match level() {
        // SAFETY: the functions are safe but for the features that they are compiled
        // for, and the CPU was found to have each of them.
        ALL if K::COUNTS => Ok(unsafe { in_lanes_that_count(kernel) }),
        // SAFETY: as above.
        WIDE | ALL => Ok(unsafe { in_lanes(kernel) }),
        _ => Err(kernel),
    }
}

/// Runs the kernel, inlined into a function that is compiled for these features.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,popcnt,bmi1,bmi2")]
fn in_lanes<K: WideKernel<Wide>>(kernel: K) -> K::Out {
    kernel.run(Wide { counts: false })
}

/// Does the same for a CPU that counts the ones of each lane by an instruction.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vpopcntdq,popcnt,bmi1,bmi2")]
fn in_lanes_that_count<K: WideKernel<Wide>>(kernel: K) -> K::Out {
    kernel.run(Wide { counts: true })
}

/// Each operation needs AVX-512 F, which `self` proves.
impl Wide {
    /// Whether one instruction gathers, or packs, all lanes.
    pub(crate) const AT_ONCE: bool = true;

    #[inline(always)]
    pub(crate) fn load(self, numbers: [u32; LANES]) -> Lanes {
        // SAFETY: the array is as long as a vector, both are plain numbers of any
        // value, and the load needs no alignment; see above for the feature.
        Lanes(unsafe { _mm512_loadu_epi32(numbers.as_ptr().cast()) })
    }

    /// Returns the same number in all lanes.
    #[inline(always)]
    pub(crate) fn all(self, number: u32) -> Lanes {
        // SAFETY: see above for the feature.
        Lanes(unsafe { _mm512_set1_epi32(number as i32) })
    }

    #[inline(always)]
    pub(crate) fn store(self, lanes: Lanes) -> [u32; LANES] {
        let mut numbers = [0; LANES];
        // SAFETY: as for `load`; the array is ours to write.
        unsafe { _mm512_storeu_epi32(numbers.as_mut_ptr().cast(), lanes.0) };
        numbers
    }

    #[inline(always)]
    pub(crate) fn and(self, one: Lanes, two: Lanes) -> Lanes {
        // SAFETY: see above for the feature.
        Lanes(unsafe { _mm512_and_si512(one.0, two.0) })
    }

    #[inline(always)]
    pub(crate) fn or(self, one: Lanes, two: Lanes) -> Lanes {
        // SAFETY: see above for the feature.
        Lanes(unsafe { _mm512_or_si512(one.0, two.0) })
    }

    #[inline(always)]
    pub(crate) fn add(self, one: Lanes, two: Lanes) -> Lanes {
        // SAFETY: see above for the feature.
        Lanes(unsafe { _mm512_add_epi32(one.0, two.0) })
    }

    #[inline(always)]
    pub(crate) fn sub(self, one: Lanes, two: Lanes) -> Lanes {
        // SAFETY: see above for the feature.
        Lanes(unsafe { _mm512_sub_epi32(one.0, two.0) })
    }

    /// Shifts all lanes left; by 32 and more gives 0.
    #[inline(always)]
    pub(crate) fn shl(self, lanes: Lanes, by: u32) -> Lanes {
        // SAFETY: see above for the feature.
        let by = unsafe { _mm_cvtsi32_si128(by as i32) };
        // SAFETY: see above for the feature.
        Lanes(unsafe { _mm512_sll_epi32(lanes.0, by) })
    }

    /// Shifts all lanes right; by 32 and more gives 0.
    #[inline(always)]
    pub(crate) fn shr(self, lanes: Lanes, by: u32) -> Lanes {
        // SAFETY: see above for the feature.
        let by = unsafe { _mm_cvtsi32_si128(by as i32) };
        // SAFETY: see above for the feature.
        Lanes(unsafe { _mm512_srl_epi32(lanes.0, by) })
    }

    /// Returns the lanes in which any bit of `bits` is set.
    #[inline(always)]
    pub(crate) fn test(self, lanes: Lanes, bits: Lanes) -> u16 {
        // SAFETY: see above for the feature.
        unsafe { _mm512_test_epi32_mask(lanes.0, bits.0) }
    }

    /// Returns the lanes in which `one` is at most `two`.
    #[inline(always)]
    pub(crate) fn at_most(self, one: Lanes, two: Lanes) -> u16 {
        // SAFETY: see above for the feature.
        unsafe { _mm512_cmple_epu32_mask(one.0, two.0) }
    }

    /// Takes `one` in the lanes of the mask and `other` elsewhere.
    #[inline(always)]
    pub(crate) fn select(self, mask: u16, one: Lanes, other: Lanes) -> Lanes {
        // SAFETY: see above for the feature.
        Lanes(unsafe { _mm512_mask_blend_epi32(mask, other.0, one.0) })
    }

    /// Returns 1 shifted left by each lane; 0 for 32 and more.
    #[inline(always)]
    pub(crate) fn bit(self, by: Lanes) -> Lanes {
        // SAFETY: see above for the feature.
        Lanes(unsafe { _mm512_sllv_epi32(self.all(1).0, by.0) })
    }

    /// Shifts each lane left by the other's number; by 32 and more gives 0.
    #[inline(always)]
    pub(crate) fn shl_each(self, lanes: Lanes, by: Lanes) -> Lanes {
        // SAFETY: see above for the feature.
        Lanes(unsafe { _mm512_sllv_epi32(lanes.0, by.0) })
    }

    /// Shifts each lane right by the other's number; by 32 and more gives 0.
    #[inline(always)]
    pub(crate) fn shr_each(self, lanes: Lanes, by: Lanes) -> Lanes {
        // SAFETY: see above for the feature.
        Lanes(unsafe { _mm512_srlv_epi32(lanes.0, by.0) })
    }

    /// Takes the lower of each two.
    #[inline(always)]
    pub(crate) fn min(self, one: Lanes, two: Lanes) -> Lanes {
        // SAFETY: see above for the feature.
        Lanes(unsafe { _mm512_min_epu32(one.0, two.0) })
    }

    /// Takes the higher of each two.
    #[inline(always)]
    pub(crate) fn max(self, one: Lanes, two: Lanes) -> Lanes {
        // SAFETY: see above for the feature.
        Lanes(unsafe { _mm512_max_epu32(one.0, two.0) })
    }

    /// Multiplies numbers whose products are below 2^16.
    #[inline(always)]
    pub(crate) fn multiply(self, one: Lanes, two: Lanes) -> Lanes {
        // A product of 32 bits would take twice as long.
        // SAFETY: see above for the feature.
        Lanes(unsafe { _mm512_mullo_epi16(one.0, two.0) })
    }

    /// Counts the ones of each lane.
    #[inline(always)]
    pub(crate) fn count(self, lanes: Lanes) -> Lanes {
        if self.counts {
            // SAFETY: `counts` is true only if the CPU has the feature.
            return Lanes(unsafe { _mm512_popcnt_epi32(lanes.0) });
        }
        self.count_by_bytes(lanes)
    }

    /// Counts the ones of each lane by looking up its halves of bytes.
    #[inline(always)]
    pub(crate) fn count_by_bytes(self, lanes: Lanes) -> Lanes {
        // The counts of 0 to 15, a byte each, four to a lane.
        const COUNTS: [u32; 4] = [0x0201_0100, 0x0302_0201, 0x0302_0201, 0x0403_0302];
        let counts = self.load(core::array::from_fn(|i| COUNTS[i % 4]));
        let low = self.all(0x0f0f_0f0f);
        let (even, odd) = (self.and(lanes, low), self.and(self.shr(lanes, 4), low));
        let (bytes, pairs) = (self.all(0x0101_0101), self.all(0x0001_0001));
        // SAFETY: see above for the feature; BW has what works on bytes.
        let even = unsafe { _mm512_shuffle_epi8(counts.0, even.0) };
        // SAFETY: as above.
        let odd = unsafe { _mm512_shuffle_epi8(counts.0, odd.0) };
        // SAFETY: as above.
        let each = unsafe { _mm512_add_epi8(even, odd) };
        // SAFETY: as above.
        let twos = unsafe { _mm512_maddubs_epi16(each, bytes.0) };
        // SAFETY: as above.
        Lanes(unsafe { _mm512_madd_epi16(twos, pairs.0) })
    }

    /// Takes from a table of 32 numbers those that the lanes' lowest five bits name.
    #[inline(always)]
    pub(crate) fn look_up(self, table: &[u32; 2 * LANES], at: Lanes) -> Lanes {
        let (mut low, mut high) = ([0; LANES], [0; LANES]);
        low.copy_from_slice(&table[..LANES]);
        high.copy_from_slice(&table[LANES..]);
        let (low, high) = (self.load(low), self.load(high));
        // SAFETY: see above for the feature.
        Lanes(unsafe { _mm512_permutex2var_epi32(low.0, at.0, high.0) })
    }

    /// Puts the first of `lanes`, in their order, into the lanes of the mask, and
    /// leaves `other` elsewhere: the inverse of [`pack`](Self::pack).
    #[inline(always)]
    pub(crate) fn unpack(self, mask: u16, lanes: Lanes, other: Lanes) -> Lanes {
        // SAFETY: see above for the feature.
        Lanes(unsafe { _mm512_mask_expand_epi32(other.0, mask, lanes.0) })
    }

    /// Moves the lanes of the mask to the front, in their order; 0 follows.
    #[inline(always)]
    pub(crate) fn pack(self, mask: u16, lanes: Lanes) -> Lanes {
        // SAFETY: see above for the feature.
        Lanes(unsafe { _mm512_maskz_compress_epi32(mask, lanes.0) })
    }

    /// Returns the lowest byte of each lane of the mask, in their order; 0 follows.
    #[inline(always)]
    pub(crate) fn packed_bytes(self, mask: u16, lanes: Lanes) -> [u8; LANES] {
        let mut bytes = [0; LANES];
        // SAFETY: see above for the feature.
        let low = unsafe { _mm512_cvtepi32_epi8(self.pack(mask, lanes).0) };
        // SAFETY: the array is ours to write and has the sixteen bytes of that vector,
        // and the store needs no alignment.
        unsafe { _mm_storeu_si128(bytes.as_mut_ptr().cast(), low) };
        bytes
    }

    /// Takes lane `at` modulo 16 for each lane of `at`.
    #[inline(always)]
    pub(crate) fn permute(self, lanes: Lanes, at: Lanes) -> Lanes {
        // SAFETY: see above for the feature.
        Lanes(unsafe { _mm512_permutexvar_epi32(at.0, lanes.0) })
    }

    /// Loads the items of 16 or 32 bits from `at` on, if there are as many as lanes.
    #[inline(always)]
    pub(crate) fn row(self, table: Words<'_>, at: usize) -> Option<Lanes> {
        match table {
            Words::Half(table) => {
                let row: &[u16; LANES] = table.get(at..)?.first_chunk()?;
                // SAFETY: the row is as long as half a vector, of plain numbers, and the
                // load needs no alignment; AVX is part of what AVX-512 F takes.
                let row = unsafe { _mm256_loadu_si256(row.as_ptr().cast()) };
                // SAFETY: see above for the feature.
                Some(Lanes(unsafe { _mm512_cvtepu16_epi32(row) }))
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
            Words::Whole(table) => {
                let mask = self.below(at, table.len(), mask);
                let none = self.all(0).0;
                // SAFETY: lanes outside the mask load nothing. In the others the index
                // is below the slice's length and below 2^31, so that it is not
                // negative, and 4 bytes at 4 times the index from its start are one
                // item of the slice.
                Lanes(unsafe {
                    _mm512_mask_i32gather_epi32::<4>(none, mask, at.0, table.as_ptr().cast())
                })
            }
            Words::Shared(table) => {
                let mask = self.below(at, table.len(), mask);
                let none = self.all(0).0;
                // SAFETY: as above; an atomic has the memory of its number, and the load of
                // an aligned lane is one access, which gets what some store has left there.
                Lanes(unsafe {
                    _mm512_mask_i32gather_epi32::<4>(none, mask, at.0, table.as_ptr().cast())
                })
            }
            Words::Double(table) => {
                let mask = self.below(at, table.len() * 2, mask);
                let none = self.all(0).0;
                // SAFETY: as above, with twice as many items of half the size; on this
                // architecture the lower half of a number comes first.
                Lanes(unsafe {
                    _mm512_mask_i32gather_epi32::<4>(none, mask, at.0, table.as_ptr().cast())
                })
            }
            Words::Half(table) => {
                // A pair holds the item of an even index in its lower half. An item
                // without a partner, at the end of an odd table, is read by itself.
                let pair = self.shr(at, 1);
                let pairs = self.gather_pairs(table, pair, mask);
                let odd = self.and(at, self.all(1));
                let by = self.shl(odd, 4);
                // SAFETY: see above for the feature.
                let item = Lanes(unsafe { _mm512_srlv_epi32(pairs.0, by.0) });
                let item = self.and(item, self.all(0xffff));
                match table {
                    [.., last] if table.len() % 2 == 1 => {
                        let end = self.all((table.len() - 1) as u32);
                        let here = self.at_most(at, end) & self.at_most(end, at) & mask;
                        self.select(here, self.all(u32::from(*last)), item)
                    }
                    _ => item,
                }
            }
        }
    }

    /// Masks out the lanes that are not below `len`.
    #[inline(always)]
    fn below(self, at: Lanes, len: usize, mask: u16) -> u16 {
        // An index is taken as signed by the load.
        let len = self.all(len.min(1 << 31) as u32);
        // SAFETY: see above for the feature.
        unsafe { _mm512_mask_cmplt_epu32_mask(mask, at.0, len.0) }
    }

    /// Loads items 2i and 2i + 1 in the lower and upper half of a lane with index i.
    #[inline(always)]
    fn gather_pairs(self, table: &[u16], at: Lanes, mask: u16) -> Lanes {
        let mask = self.below(at, table.len() / 2, mask);
        let none = self.all(0);
        // SAFETY: lanes outside the mask load nothing. In the others the index is
        // below half of the slice's length and below 2^31, so that it is not negative,
        // and 4 bytes at 4 times the index from its start are two items of the slice;
        // the load needs no alignment.
        Lanes(unsafe {
            _mm512_mask_i32gather_epi32::<4>(none.0, mask, at.0, table.as_ptr().cast())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Wide, wide};
    use crate::arch::vector::{LANES, WideKernel};

    /// Counts ones as on a CPU that does not count lanes by an instruction.
    struct ByBytes([u32; LANES]);

    impl WideKernel<Wide> for ByBytes {
        type Out = [u32; LANES];

        #[inline(always)]
        fn run(self, wide: Wide) -> [u32; LANES] {
            wide.store(wide.count_by_bytes(wide.load(self.0)))
        }
    }

    #[test]
    fn count_by_bytes_agrees_with_count_ones() {
        for step in [1u32, 0x0101_0101, 0x0f0e_0d0b, 0x9e37_79b9, u32::MAX] {
            let numbers = core::array::from_fn(|lane| step.wrapping_mul(lane as u32));
            if let Ok(counts) = wide(ByBytes(numbers)) {
                assert_eq!(counts, numbers.map(u32::count_ones));
            }
        }
    }
}
