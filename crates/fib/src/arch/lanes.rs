//! Sixteen lookups in the lanes of one vector: loads from sixteen places at once.
//!
//! A lookup in a table of 2^24 entries is one load that misses the near caches. The rate of a
//! batch is limited by the number of such loads in flight, and the processor looks ahead over
//! the more lookups the fewer instructions each of them takes. With AVX-512 a load by sixteen
//! indices (`gather`) is one instruction, and so is each step that computes the indices or
//! separates the answers.
//!
//! ```text
//!   addrs   │ a0 │ a1 │ … │ a15 │        Lanes, 32 bits each
//!   shift   │ i0 │ i1 │ … │ i15 │
//!   gather  │t[i0]│t[i1]│ … │t[i15]│     an index outside the table gives 0
//!   test    0 1 0 … 1                    a mask: the lanes that go on
//! ```
//!
//! A value of [`Wide`] proves that the processor has the instructions, and all operations are its
//! methods. An engine implements [`SimdLookup`], the lookup of a few vectors, without any mention
//! of a processor; [`batch`] divides a batch into such vectors, and returns false where there are
//! no lanes, so that the engine takes its scalar code. Items of 16 bits are loaded in pairs,
//! since no gather loads less than 32 bits; nothing outside the table is read.
//!
//! NEON has vectors of four lanes, no gather and no packing: sixteen lanes are four vectors, and
//! a gather is sixteen loads, each with its index taken out of a vector and its item inserted
//! into one. In a lookup that does little besides loading, this costs more instructions than it
//! saves; so a table is looked up in lanes there only if it declares that its other work
//! outweighs that cost ([`SimdLookup::LOADED_SINGLY`]).
//!
//! Several vectors are looked up together because a burst from a port is short. Code after a
//! mispredicted branch on loaded numbers does not begin before they arrive; so all loads of one
//! kind, of two vectors and more, precede the first such branch. In bursts of 32 SAIL_L answered
//! a quarter more lookups with two vectors together than with one after the other.

use crate::{Addr, Hop};

pub(crate) use super::vector::{LANES, MAX_ITEMS, WideKernel, Words};

#[cfg(all(feature = "std", target_arch = "aarch64", target_endian = "little"))]
pub(crate) use super::aarch64::lanes::{Lanes, Wide, wide};
#[cfg(all(feature = "std", target_arch = "x86_64"))]
pub(crate) use super::x86_64::lanes::{Lanes, Wide, wide};

#[cfg(not(any(
    all(feature = "std", target_arch = "x86_64"),
    all(feature = "std", target_arch = "aarch64", target_endian = "little"),
)))]
pub(crate) use none::{Lanes, Wide, wide};

/// A table that looks up whole vectors.
pub(crate) trait SimdLookup<A: Addr> {
    /// Whether lanes are worth their cost where a gather is one load for each lane.
    const LOADED_SINGLY: bool = false;

    /// Whether a lane is wide enough for an entry.
    const FITS: bool = true;

    /// See [`WideKernel::COUNTS`].
    const COUNTS: bool = false;

    /// Looks up `N` vectors, at most four, with overlapping loads. It must be
    /// `#[inline(always)]`, and so must all functions that it calls.
    fn lookup_vectors<const N: usize>(
        &self,
        wide: Wide,
        addrs: &[[A; LANES]; N],
        out: &mut [[Hop; LANES]; N],
    );

    /// Looks up the remainder of a batch, which fills no vector.
    fn remainder(&self, addrs: &[A], out: &mut [Hop]);
}

/// Looks a batch up in lanes; returns false, without looking up, if there are no lanes or none
/// that this table benefits from: none for addresses of more than 32 bits. `out` is as long as `addrs`.
#[inline(always)]
pub(crate) fn batch<A: Addr, T: SimdLookup<A>>(table: &T, addrs: &[A], out: &mut [Hop]) -> bool {
    // A constant block, behind which a kernel that never runs is not compiled: it takes the compiler seconds.
    if const { A::BITS <= 32 && T::FITS && (Wide::AT_ONCE || T::LOADED_SINGLY) } {
        wide(Batch { table, addrs, out }).is_ok()
    } else {
        false
    }
}

/// A batch of lookups, as a kernel.
struct Batch<'a, A: Addr, T> {
    table: &'a T,
    addrs: &'a [A],
    out: &'a mut [Hop],
}

impl<A: Addr, T: SimdLookup<A>> WideKernel<Wide> for Batch<'_, A, T> {
    type Out = ();

    const COUNTS: bool = T::COUNTS;

    #[inline(always)]
    fn run(self, wide: Wide) {
        let (addrs, remainder) = self.addrs.as_chunks::<LANES>();
        let (out, remainder_out) = self.out.as_chunks_mut::<LANES>();
        let (fours, addrs) = addrs.as_chunks::<4>();
        let (fours_out, out) = out.as_chunks_mut::<4>();
        for (addrs, out) in fours.iter().zip(fours_out) {
            self.table.lookup_vectors(wide, addrs, out);
        }
        let (twos, addrs) = addrs.as_chunks::<2>();
        let (twos_out, out) = out.as_chunks_mut::<2>();
        for (addrs, out) in twos.iter().zip(twos_out) {
            self.table.lookup_vectors(wide, addrs, out);
        }
        let (ones, _) = addrs.as_chunks::<1>();
        let (ones_out, _) = out.as_chunks_mut::<1>();
        for (addrs, out) in ones.iter().zip(ones_out) {
            self.table.lookup_vectors(wide, addrs, out);
        }
        if !remainder.is_empty() {
            self.table.remainder(remainder, remainder_out);
        }
    }
}

/// Iterates over the lanes of a mask of up to four vectors, first to last.
pub(crate) struct Ones(pub(crate) u64);

impl Iterator for Ones {
    type Item = usize;

    #[inline(always)]
    fn next(&mut self) -> Option<usize> {
        let lane = self.0.trailing_zeros() as usize;
        self.0 &= self.0.wrapping_sub(1);
        (lane < 64).then_some(lane)
    }
}

/// Returns the first 32 bits of each of [`LANES`] addresses; narrower ones are shifted
/// to the top, so that bit 0 of an address is the top bit of its lane.
#[inline(always)]
pub(crate) fn tops<A: Addr>(addrs: &[A]) -> [u32; LANES] {
    // A loop here and not a call: a call that is not inlined would store the items one by one
    // just before they are loaded as a vector, which stalls.
    let mut tops = [0; LANES];
    for (top, addr) in tops.iter_mut().zip(addrs) {
        *top = if A::BITS <= 32 {
            (addr.to_u128() as u32) << (32 - A::BITS)
        } else {
            (addr.to_u128() >> (A::BITS - 32)) as u32
        };
    }
    tops
}

/// The types of an architecture without lanes.
#[cfg(not(any(
    all(feature = "std", target_arch = "x86_64"),
    all(feature = "std", target_arch = "aarch64", target_endian = "little"),
)))]
mod none {
    use super::{LANES, WideKernel, Words};

    /// A proof that cannot be made.
    #[derive(Clone, Copy, Debug)]
    pub(crate) enum Wide {}

    /// Lanes that cannot exist.
    #[derive(Clone, Copy, Debug)]
    pub(crate) enum Lanes {}

    /// Returns the kernel.
    #[inline(always)]
    pub(crate) fn wide<K: WideKernel<Wide>>(kernel: K) -> Result<K::Out, K> {
        Err(kernel)
    }

    impl Wide {
        /// The value does not matter.
        pub(crate) const AT_ONCE: bool = true;

        pub(crate) fn load(self, _: [u32; LANES]) -> Lanes {
            match self {}
        }
        pub(crate) fn all(self, _: u32) -> Lanes {
            match self {}
        }
        pub(crate) fn store(self, _: Lanes) -> [u32; LANES] {
            match self {}
        }
        pub(crate) fn row(self, _: Words<'_>, _: usize) -> Option<Lanes> {
            match self {}
        }
        pub(crate) fn and(self, _: Lanes, _: Lanes) -> Lanes {
            match self {}
        }
        pub(crate) fn or(self, _: Lanes, _: Lanes) -> Lanes {
            match self {}
        }
        pub(crate) fn add(self, _: Lanes, _: Lanes) -> Lanes {
            match self {}
        }
        pub(crate) fn sub(self, _: Lanes, _: Lanes) -> Lanes {
            match self {}
        }
        pub(crate) fn shl(self, _: Lanes, _: u32) -> Lanes {
            match self {}
        }
        pub(crate) fn shr(self, _: Lanes, _: u32) -> Lanes {
            match self {}
        }
        pub(crate) fn test(self, _: Lanes, _: Lanes) -> u16 {
            match self {}
        }
        pub(crate) fn at_most(self, _: Lanes, _: Lanes) -> u16 {
            match self {}
        }
        pub(crate) fn select(self, _: u16, _: Lanes, _: Lanes) -> Lanes {
            match self {}
        }
        pub(crate) fn bit(self, _: Lanes) -> Lanes {
            match self {}
        }
        pub(crate) fn shl_each(self, _: Lanes, _: Lanes) -> Lanes {
            match self {}
        }
        pub(crate) fn shr_each(self, _: Lanes, _: Lanes) -> Lanes {
            match self {}
        }
        pub(crate) fn min(self, _: Lanes, _: Lanes) -> Lanes {
            match self {}
        }
        pub(crate) fn max(self, _: Lanes, _: Lanes) -> Lanes {
            match self {}
        }
        pub(crate) fn multiply(self, _: Lanes, _: Lanes) -> Lanes {
            match self {}
        }
        pub(crate) fn count(self, _: Lanes) -> Lanes {
            match self {}
        }
        pub(crate) fn look_up(self, _: &[u32; 2 * LANES], _: Lanes) -> Lanes {
            match self {}
        }
        pub(crate) fn permute(self, _: Lanes, _: Lanes) -> Lanes {
            match self {}
        }
        pub(crate) fn unpack(self, _: u16, _: Lanes, _: Lanes) -> Lanes {
            match self {}
        }
        pub(crate) fn pack(self, _: u16, _: Lanes) -> Lanes {
            match self {}
        }
        pub(crate) fn packed_bytes(self, _: u16, _: Lanes) -> [u8; LANES] {
            match self {}
        }
        pub(crate) fn gather(self, _: Words<'_>, _: Lanes, _: u16) -> Lanes {
            match self {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{LANES, Ones, Wide, WideKernel, Words, tops, wide};
    use alloc::vec::Vec;

    /// Runs every operation on some numbers.
    struct Everything {
        at: [u32; LANES],
        half: Vec<u16>,
        whole: Vec<u32>,
        double: Vec<u64>,
        mask: u16,
        begin: usize,
    }

    impl WideKernel<Wide> for &Everything {
        type Out = ([[u32; LANES]; 20], [Option<[u32; LANES]>; 2], [u8; LANES]);

        const COUNTS: bool = true;

        #[inline(always)]
        fn run(self, wide: Wide) -> Self::Out {
            let at = wide.load(self.at);
            let three = wide.all(3);
            let small = wide.and(at, wide.all(31));
            let rows = [Words::Half(&self.half), Words::Whole(&self.whole)]
                .map(|table| wide.row(table, self.begin).map(|row| wide.store(row)));
            let lanes = [
                wide.gather(Words::Half(&self.half), at, self.mask),
                wide.gather(Words::Whole(&self.whole), at, self.mask),
                wide.select(wide.test(at, three), wide.shl(at, 5), wide.shr(at, 1)),
                wide.select(wide.at_most(at, wide.all(50)), at, three),
                wide.sub(at, three),
                wide.or(at, wide.all(8)),
                wide.bit(small),
                wide.shr(at, 32),
                wide.gather(Words::Double(&self.double), at, self.mask),
                wide.add(at, three),
                wide.pack(self.mask, at),
                wide.shl_each(at, small),
                wide.shr_each(at, wide.add(small, three)),
                wide.min(at, wide.all(50)),
                wide.max(at, wide.all(50)),
                wide.multiply(wide.and(at, wide.all(255)), wide.all(171)),
                wide.count(at),
                wide.look_up(&core::array::from_fn(|i| i as u32 * 1000), small),
                wide.unpack(self.mask, at, three),
                wide.permute(at, small),
            ];
            (lanes.map(|lanes| wide.store(lanes)), rows, wide.packed_bytes(self.mask, at))
        }
    }

    #[test]
    fn lanes_agree_with_scalar_operations() {
        let mut rng = fastrand::Rng::with_seed(7);
        let mut random = move || rng.u32(..);
        for len in (0..70).chain([1 << 16]) {
            let everything = Everything {
                // Some indices are out of range: by one, by far, and by the most possible.
                at: core::array::from_fn(|i| match i {
                    0 => u32::MAX,
                    1 => 1 << 31,
                    2 => len as u32,
                    3 => (len as u32).wrapping_sub(1),
                    _ => random() % (len as u32 + 9),
                }),
                half: (0..len).map(|_| random() as u16).collect(),
                whole: (0..len).map(|_| random()).collect(),
                double: (0..len).map(|_| u64::from(random()) << 32 | u64::from(random())).collect(),
                mask: random() as u16 | 0xf,
                begin: random() as usize % (len + 9),
            };
            let Everything { at, half, whole, double, mask, begin } = &everything;
            let Ok((found, rows, bytes)) = wide(&everything) else { return };
            for (i, &at) in at.iter().enumerate() {
                let is_set = mask >> i & 1 == 1;
                let half = half.get(at as usize).filter(|_| is_set);
                assert_eq!(found[0][i], half.map_or(0, |&item| item.into()), "{len}, {at}");
                let whole = whole.get(at as usize).filter(|_| is_set);
                assert_eq!(found[1][i], whole.map_or(0, |&item| item), "{len}, {at}");
                assert_eq!(found[2][i], if at & 3 == 0 { at >> 1 } else { at << 5 });
                assert_eq!(found[3][i], if at <= 50 { at } else { 3 });
                assert_eq!(found[4][i], at.wrapping_sub(3));
                assert_eq!(found[5][i], at | 8);
                assert_eq!(found[6][i], 1 << (at & 31));
                assert_eq!(found[7][i], 0);
                let double = double.get(at as usize / 2).filter(|_| is_set);
                let part = double.map_or(0, |&item| (item >> (at % 2 * 32)) as u32);
                assert_eq!(found[8][i], part, "{len}, {at}");
                assert_eq!(found[9][i], at.wrapping_add(3));
            }
            let packed: Vec<u32> =
                (0..LANES).filter(|i| mask >> i & 1 == 1).map(|i| at[i]).collect();
            assert_eq!(found[10][..packed.len()], packed);
            assert!(found[10][packed.len()..].iter().all(|&lane| lane == 0));
            assert_eq!(bytes, found[10].map(|lane| lane as u8));
            let mut next = 0;
            for (i, &number) in at.iter().enumerate() {
                let small = number & 31;
                assert_eq!(found[11][i], number << small);
                assert_eq!(found[12][i], number.checked_shr(small + 3).unwrap_or(0));
                assert_eq!(found[13][i], number.min(50));
                assert_eq!(found[14][i], number.max(50));
                assert_eq!(found[15][i], (number & 255) * 171);
                assert_eq!(found[16][i], number.count_ones());
                assert_eq!(found[17][i], small * 1000);
                let is_set = mask >> i & 1 == 1;
                assert_eq!(found[18][i], if is_set { at[next] } else { 3 });
                next += usize::from(is_set);
                assert_eq!(found[19][i], at[small as usize % LANES]);
            }
            let row = half.get(*begin..*begin + LANES);
            assert_eq!(rows[0].map(|row| row.map(|item| item as u16).to_vec()).as_deref(), row);
            let row = whole.get(*begin..*begin + LANES);
            assert_eq!(rows[1].as_ref().map(|row| &row[..]), row);
        }
    }

    #[test]
    fn the_lanes_of_a_mask_come_in_order() {
        assert_eq!(Ones(0).count(), 0);
        assert!(Ones(u64::MAX).eq(0..64));
        assert!(Ones(1 | 1 << 17 | 1 << 63).eq([0, 17, 63]));
    }

    #[test]
    fn addresses_of_any_family_begin_at_the_top() {
        assert_eq!(tops(&[0x12u8; LANES]), [0x1200_0000; LANES]);
        assert_eq!(tops(&[0x1234_5678u32; LANES]), [0x1234_5678; LANES]);
        assert_eq!(tops(&[0x1234_5678_9abc_def0u64; LANES]), [0x1234_5678; LANES]);
    }
}
