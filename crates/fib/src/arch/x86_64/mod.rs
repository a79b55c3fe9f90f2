//! Kernels for an x86-64 with the instructions that Poptrie counts by.
#![expect(unsafe_code, reason = "a call of code for a CPU that was looked for just before")]

pub(super) mod lanes;
mod search;

use std::is_x86_feature_detected;

use super::Kernel;

/// Does the work: with `popcnt`, `bmi1` and `bmi2` if this CPU has the three.
#[inline(always)]
pub(super) fn run<K: Kernel>(kernel: K) -> K::Out {
    let has = is_x86_feature_detected!("popcnt")
        && is_x86_feature_detected!("bmi1")
        && is_x86_feature_detected!("bmi2");
    if has {
        // SAFETY: the function is safe but for the features that it is compiled
        // for, and the CPU was found to have each of them.
        unsafe { counting(kernel) }
    } else {
        kernel.run()
    }
}

/// The kernel, inlined into a function for which the compiler may use the three.
#[target_feature(enable = "popcnt,bmi1,bmi2")]
fn counting<K: Kernel>(kernel: K) -> K::Out {
    kernel.run()
}
