//! The battery of the engines at each level of SIMD instructions below this machine's own.
//!
//! The levels are those of `fib/src/arch/x86_64/mod.rs`, which also says what each needs. `FINGERPOST_SIMD` only lowers
//! the level: on a machine without AVX-512 the levels `counts` and `wide` are the machine's own, at which the
//! battery runs anyway.

use crate::programs::{KERNEL_ENGINES, Programs};
use crate::step::Step;

/// Runs the engines with what the slower twins of each SIMD kernel do.
pub(crate) fn steps(programs: &Programs) -> Vec<Step> {
    let step = |level| {
        let env = [("FINGERPOST_SIMD", level), ("FINGERPOST_ENGINES", KERNEL_ENGINES)];
        let name = format!("fib tests/battery, SIMD level {level}");
        programs.step_with("fingerpost-fib", "battery", &name, &env)
    };
    levels_below(has_avx512(), has_counts_in_lanes()).iter().copied().map(step).collect()
}

/// Lists the levels below the highest one, of a processor with AVX-512 F, BW and VL and with VPOPCNTDQ, or without.
/// `base` is among them always, so that a change of the machine leaves no kernel without its scalar version.
fn levels_below(has_avx512: bool, has_counts_in_lanes: bool) -> &'static [&'static str] {
    match (has_avx512, has_counts_in_lanes) {
        (false, _) => &["base"],
        (true, false) => &["base", "counts"],
        (true, true) => &["base", "counts", "wide"],
    }
}

#[cfg(target_arch = "x86_64")]
fn has_avx512() -> bool {
    is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512vl")
}

#[cfg(target_arch = "x86_64")]
fn has_counts_in_lanes() -> bool {
    is_x86_feature_detected!("avx512vpopcntdq")
}

#[cfg(not(target_arch = "x86_64"))]
fn has_avx512() -> bool {
    false
}

#[cfg(not(target_arch = "x86_64"))]
fn has_counts_in_lanes() -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_below_that_of_the_machine() {
        assert_eq!(levels_below(false, false), ["base"]);
        assert_eq!(levels_below(false, true), ["base"]);
        assert_eq!(levels_below(true, false), ["base", "counts"]);
        assert_eq!(levels_below(true, true), ["base", "counts", "wide"]);
    }
}
