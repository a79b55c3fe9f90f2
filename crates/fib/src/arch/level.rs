//! Which kernels a process uses: found once, then a load and a comparison a batch.
//!
//! Asking the CPU for each feature took a twentieth of a burst of 32. `FINGERPOST_SIMD` in
//! the environment lowers what is found, so that every kernel's twin can be tested and
//! measured on the machine at hand; it is read with it.

use core::sync::atomic::{AtomicU8, Ordering};

const UNKNOWN: u8 = 0;

/// A level of kernels, once somebody has asked for it.
pub(super) struct Level(AtomicU8);

impl Level {
    pub(super) const fn new() -> Self {
        Self(AtomicU8::new(UNKNOWN))
    }

    /// Returns the level, above 0. `find` makes it of the CPU and of what the environment
    /// says; several threads may do so at once, and all find the same.
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
