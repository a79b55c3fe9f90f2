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
//! keeps to the twins.
//!
//! Written and tested under emulation (`cargo xtask neon`); see
//! `docs/decisions/0020-neon.md` for what was counted there and what no machine has
//! told yet.

pub(super) mod lanes;
mod masks;
mod search;

use super::level::Level;

const BASE: u8 = 1;
const NEON: u8 = 2;

static LEVEL: Level = Level::new();

/// Returns the level of this process.
#[inline(always)]
fn level() -> u8 {
    LEVEL.get(find)
}

/// Returns what is asked for; what is not understood asks for nothing less than all.
fn find(asked: Option<&str>) -> u8 {
    match asked {
        Some("base") => BASE,
        _ => NEON,
    }
}

#[cfg(test)]
mod tests {
    use super::{BASE, NEON, find, level};

    #[test]
    fn the_environment_only_lowers_the_level() {
        let names = [Some("base"), Some("neon"), Some("wide"), Some("nonsense"), None];
        assert_eq!(names.map(find), [BASE, NEON, NEON, NEON, NEON]);
        let wanted = std::env::var("FINGERPOST_SIMD").ok();
        assert_eq!(level(), find(wanted.as_deref()));
        assert_eq!(level(), level());
    }
}
