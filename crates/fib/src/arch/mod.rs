//! Instructions that not every CPU of an architecture has, picked at run time.
//!
//! The crate is built for the baseline: on x86-64 that has no instruction that
//! counts the ones of a word, and `count_ones` becomes a dozen operations. A scheme
//! that lives from counting (Poptrie, Tree Bitmap, Lulea) writes its lookups as a
//! [`Kernel`], plain code without any mention of a CPU; [`run`] compiles it twice,
//! for the baseline and for a CPU that counts, and enters the one that suits:
//!
//! ```text
//!   run(kernel) ──► has it popcnt, bmi1, bmi2? ──yes──► kernel.run(), with them
//!                                              └─no───► kernel.run(), the scalar twin
//! ```
//!
//! What is done in vectors is in [`lanes`] and [`search`], with the same way in. An
//! AArch64 counts ones in its baseline, and has vectors there too: what there is to pick
//! is whether they are used.
//!
//! Both are the same source, so that they cannot differ but in speed. To ask costs
//! a load and a test; a batch asks once. Without `std`, or where the whole build is
//! for such a CPU (`-C target-cpu`), nothing is asked.

#[cfg(all(feature = "std", target_arch = "aarch64", target_endian = "little"))]
mod aarch64;
pub(crate) mod lanes;
#[cfg(all(
    feature = "std",
    any(target_arch = "x86_64", all(target_arch = "aarch64", target_endian = "little"))
))]
mod level;
mod loads;
pub(crate) mod search;
pub(crate) mod vector;
#[cfg(all(feature = "std", target_arch = "x86_64"))]
mod x86_64;

pub use loads::Loads;

/// Work that is to be done with the best instructions there are.
pub(crate) trait Kernel {
    /// What comes of it.
    type Out;

    /// Does it. To be `#[inline(always)]`, and what it calls too: only what is
    /// inlined is compiled for the better CPU.
    fn run(self) -> Self::Out;
}

/// Does the work, counting ones by an instruction where the CPU has it.
#[inline(always)]
pub(crate) fn run<K: Kernel>(kernel: K) -> K::Out {
    #[cfg(all(feature = "std", target_arch = "x86_64"))]
    return x86_64::run(kernel);
    #[cfg(not(all(feature = "std", target_arch = "x86_64")))]
    kernel.run()
}

#[cfg(test)]
mod tests {
    use super::{Kernel, run};

    /// What Poptrie does with a word, by position.
    struct Ranks(u64);

    impl Kernel for Ranks {
        type Out = [u32; 64];

        #[inline(always)]
        fn run(self) -> [u32; 64] {
            core::array::from_fn(|at| (self.0 << (63 - at)).count_ones())
        }
    }

    #[test]
    fn both_twins_count_alike() {
        let mut state = 1u64;
        for _ in 0..1000 {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let word = state & state.rotate_left(23);
            let mut count = 0;
            for (at, &rank) in run(Ranks(word)).iter().enumerate() {
                count += (word >> at & 1) as u32;
                assert_eq!(rank, count);
            }
            assert_eq!(run(Ranks(word)), Ranks(word).run());
        }
    }
}
