//! Instructions that not every CPU of an architecture has, selected at run time.
//!
//! The crate is built for the baseline: on x86-64 that has no instruction that counts the ones
//! of a word, and `count_ones` becomes a dozen operations. A scheme that depends on counting
//! (Poptrie, Tree Bitmap, Lulea) implements its lookups as a [`Kernel`], plain code without any
//! mention of a CPU; [`run`] compiles it twice, for the baseline and for a CPU with the
//! instruction, and calls the version for this CPU:
//!
//! ```text
//!   run(kernel) ──► has it popcnt, bmi1, bmi2? ──yes──► kernel.run(), with them
//!                                              └─no───► kernel.run(), the scalar twin
//! ```
//!
//! Vector code is in [`lanes`] and [`search`], selected in the same way. The baseline of AArch64
//! counts ones by an instruction and has vectors; there the selection is only whether vectors
//! are used.
//!
//! Both versions have the same source, so that they differ in speed alone. The selection costs
//! a load and a comparison, once a batch. Without `std`, or where the whole build is for such a
//! CPU (`-C target-cpu`), there is no selection.

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

/// Code to be compiled for the best instructions of this CPU.
pub(crate) trait Kernel {
    /// The result.
    type Out;

    /// Runs the kernel. It must be `#[inline(always)]`, and so must all functions that it calls:
    /// only inlined code is compiled for the better CPU.
    fn run(self) -> Self::Out;
}

/// Runs a kernel, compiled with the instruction that counts ones if the CPU has it.
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

    /// The rank of each position of a word, as Poptrie computes it.
    struct Ranks(u64);

    impl Kernel for Ranks {
        type Out = [u32; 64];

        #[inline(always)]
        fn run(self) -> [u32; 64] {
            core::array::from_fn(|at| (self.0 << (63 - at)).count_ones())
        }
    }

    #[test]
    fn both_versions_of_a_kernel_count_alike() {
        let mut rng = fastrand::Rng::with_seed(1);
        for _ in 0..1000 {
            let state = rng.u64(..);
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
