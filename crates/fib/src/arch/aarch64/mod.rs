//! Kernels for AArch64: NEON, which every one of them has.
//!
//! ```text
//!   level    needs                                       gives
//!   base     nothing                                     the scalar twins
//!   neon     nothing more: part of the architecture      `lanes`, `search`
//! ```
//!
//! NEON counts the ones of bytes, and the compiler uses that for a word's in any code,
//! so that `arch::run` has nothing to choose. What is chosen is between vectors and
//! their twins, for tests and measurements: `FINGERPOST_SIMD=base` in the environment
//! keeps to the twins. It is read once for the process.
//!
//! Written and tested under emulation (`cargo xtask neon`); see
//! `docs/decisions/0020-neon.md` for what was counted there and what no machine has
//! told yet.

pub(super) mod lanes;
mod masks;
mod search;

use core::sync::atomic::{AtomicU8, Ordering};

const UNKNOWN: u8 = 0;
const BASE: u8 = 1;
const NEON: u8 = 2;

/// The level of this process, once somebody has asked.
static LEVEL: AtomicU8 = AtomicU8::new(UNKNOWN);

/// Returns the level of this process.
#[inline(always)]
fn level() -> u8 {
    match LEVEL.load(Ordering::Relaxed) {
        UNKNOWN => find_level(),
        level => level,
    }
}

/// Asks the environment. Several threads may do so at once; all find the same.
#[cold]
fn find_level() -> u8 {
    let level = highest(std::env::var("FINGERPOST_SIMD").ok().as_deref());
    LEVEL.store(level, Ordering::Relaxed);
    level
}

/// Returns the level that is asked for at the most; what is not understood asks for none.
fn highest(name: Option<&str>) -> u8 {
    match name {
        Some("base") => BASE,
        _ => NEON,
    }
}

#[cfg(test)]
mod tests {
    use super::{BASE, NEON, highest, level};

    #[test]
    fn the_environment_only_lowers_the_level() {
        let names = [Some("base"), Some("neon"), Some("wide"), Some("nonsense"), None];
        assert_eq!(names.map(highest), [BASE, NEON, NEON, NEON, NEON]);
        let asked = std::env::var("FINGERPOST_SIMD").ok();
        assert_eq!(level(), highest(asked.as_deref()));
        assert_eq!(level(), level());
    }
}
