//! Kernels for AArch64: NEON, which every one of them has.
//!
//! ```text
//!   level    needs                                       gives
//!   base     nothing                                     the scalar versions
//!   neon     nothing more: part of the architecture      `lanes`, `search`
//! ```
//!
//! NEON counts the ones of bytes, and the compiler uses that for words in any code, so that
//! `arch::run` has nothing to select. The level selects between vectors and their scalar
//! versions, for tests and measurements: `FINGERPOST_SIMD=base` in the environment selects the
//! scalar versions.
//!
//! This code was written and tested under emulation (`cargo xtask neon`);
//! `docs/decisions/0020-neon.md` lists the instruction counts and the speeds that remain
//! unmeasured.

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

/// Returns the level of this name, the highest for an unknown name or none.
fn find(limit: Option<&str>) -> u8 {
    match limit {
        Some("base") => BASE,
        _ => NEON,
    }
}

#[cfg(test)]
mod tests {
    use super::{BASE, NEON, find, level};

    #[test]
    fn environment_only_lowers_the_level() {
        let names = [Some("base"), Some("neon"), Some("wide"), Some("nonsense"), None];
        assert_eq!(names.map(find), [BASE, NEON, NEON, NEON, NEON]);
        let limit = std::env::var("FINGERPOST_SIMD").ok();
        assert_eq!(level(), find(limit.as_deref()));
        assert_eq!(level(), level());
    }
}
