//! Kernels for features of x86-64 beyond its baseline.
//!
//! ```text
//!   level    needs                                       gives
//!   base     nothing                                     the scalar versions
//!   counts   popcnt, bmi1, bmi2                          `arch::run`
//!   wide     + AVX-512 F, BW, VL                         `lanes`, `search`
//!   all      + VPOPCNTDQ                                 counts in lanes by one instruction
//! ```
//!
//! `FINGERPOST_SIMD=base` (or `counts`, or `wide`) in the environment limits the level; the tests run at each
//! level below the machine's own (`xtask/src/simd.rs`).
#![expect(unsafe_code, reason = "a call of code for features that were just detected")]

pub(super) mod lanes;
mod search;

use std::is_x86_feature_detected;

use super::Kernel;
use super::level::Level;

const BASE: u8 = 1;
const COUNTS: u8 = 2;
const WIDE: u8 = 3;
const ALL: u8 = 4;

static LEVEL: Level = Level::new();

/// Returns the level of this process.
#[inline(always)]
fn level() -> u8 {
    LEVEL.get(find)
}

/// Returns the level of this CPU, or the limit if that is lower.
fn find(limit: Option<&str>) -> u8 {
    let counts = is_x86_feature_detected!("popcnt")
        && is_x86_feature_detected!("bmi1")
        && is_x86_feature_detected!("bmi2");
    let wide = counts
        && is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512vl");
    let all = wide && is_x86_feature_detected!("avx512vpopcntdq");
    let has = BASE + u8::from(counts) + u8::from(wide) + u8::from(all);
    has.min(highest(limit))
}

/// Returns the level of this name, the highest for an unknown name or none.
fn highest(name: Option<&str>) -> u8 {
    match name {
        Some("base") => BASE,
        Some("counts") => COUNTS,
        Some("wide") => WIDE,
        _ => ALL,
    }
}

/// Runs a kernel, with `popcnt`, `bmi1` and `bmi2` if this CPU has all three.
#[inline(always)]
pub(super) fn run<K: Kernel>(kernel: K) -> K::Out {
    if level() >= COUNTS {
        // SAFETY: the function is safe but for the features that it is compiled
        // for, and the CPU was found to have each of them.
        unsafe { counting(kernel) }
    } else {
        kernel.run()
    }
}

/// Runs the kernel, inlined into a function that is compiled for the three features.
#[target_feature(enable = "popcnt,bmi1,bmi2")]
fn counting<K: Kernel>(kernel: K) -> K::Out {
    kernel.run()
}

#[cfg(test)]
mod tests {
    use super::{ALL, BASE, COUNTS, WIDE, highest, level};

    #[test]
    fn environment_only_lowers_the_level() {
        let names = [Some("base"), Some("counts"), Some("wide"), Some("nonsense"), None];
        assert_eq!(names.map(highest), [BASE, COUNTS, WIDE, ALL, ALL]);
        let limit = std::env::var("FINGERPOST_SIMD").ok();
        assert!((BASE..=highest(limit.as_deref())).contains(&level()));
        assert_eq!(level(), level());
    }
}
