//! The generator's own random numbers, the same on every machine and in every version.
//!
//! xoshiro256** of Blackman and Vigna ("Scrambled linear pseudorandom number
//! generators", 2021), seeded by splitmix64 as they advise. A library's default
//! generator may change with its version; a table named by its seed may not.

/// A stream of random numbers.
#[derive(Clone, Debug)]
pub(super) struct Random([u64; 4]);

impl Random {
    /// Starts the stream of `seed`; `part` separates the streams of one seed.
    pub(super) fn new(seed: u64, part: u64) -> Self {
        let mut state = seed ^ part.wrapping_mul(0xd1b5_4a32_d192_ed03);
        Self(core::array::from_fn(|_| {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut word = state;
            word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            word ^ (word >> 31)
        }))
    }

    /// Draws 64 random bits.
    #[inline]
    pub(super) fn next(&mut self) -> u64 {
        let s = &mut self.0;
        let drawn = s[1].wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        drawn
    }

    /// Draws a number below `bound`, which is not 0. The bias of the multiply
    /// (Lemire 2019, without its rejection) is below `bound` / 2^64.
    #[inline]
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::Random;

    /// The first outputs of splitmix64 for the seed 1234567, and of xoshiro256**
    /// for the state 1, 2, 3, 4, as the authors' programs print them.
    #[test]
    fn random_equals_published_generator() {
        let Random(state) = Random::new(1_234_567, 0);
        assert_eq!(state[0], 6_457_827_717_110_365_317);
        assert_eq!(state[1], 3_203_168_211_198_807_973);
        let mut random = Random([1, 2, 3, 4]);
        let drawn: [u64; 4] = core::array::from_fn(|_| random.next());
        assert_eq!(drawn, [11520, 0, 1_509_978_240, 1_215_971_899_390_074_240]);
    }

    #[test]
    fn random_below_bound_is_uniform() {
        let mut random = Random::new(1, 2);
        let mut seen = [0u32; 7];
        for _ in 0..70_000 {
            seen[random.below(7) as usize] += 1;
        }
        assert!(seen.iter().all(|&n| (9_600..10_400).contains(&n)), "{seen:?}");
    }
}
