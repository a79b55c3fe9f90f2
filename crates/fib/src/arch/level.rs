//! The level of kernels that a process uses: detected once, then a load and a comparison a batch.
//!
//! Testing the CPU for each feature took a twentieth of the time of a burst of 32.
//! `FINGERPOST_SIMD` in the environment, read at the detection, lowers the level, so that every
//! kernel's scalar version can be tested and measured on the same machine.

use core::sync::atomic::{AtomicU8, Ordering};

const UNKNOWN: u8 = 0;

/// A level of kernels, detected at its first use.
pub(super) struct Level(AtomicU8);

impl Level {
    pub(super) const fn new() -> Self {
        Self(AtomicU8::new(UNKNOWN))
    }

    /// Returns the level, above 0. `find` determines it from the CPU and the environment; several
    /// threads may call it at once, and all get the same result.
    #[inline(always)]
    pub(super) fn get(&self, find: fn(Option<&str>) -> u8) -> u8 {
        match self.0.load(Ordering::Relaxed) {
            UNKNOWN => self.find(find),
            level => level,
        }
    }

    #[cold]
    fn find(&self, find: fn(Option<&str>) -> u8) -> u8 {
        let level = find(std::env::var("FINGERPOST_SIMD").ok().as_deref());
        self.0.store(level, Ordering::Relaxed);
        level
    }
}
