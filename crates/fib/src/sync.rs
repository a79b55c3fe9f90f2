//! The atomics, locks and counts of `publish`: those of the standard library, or
//! loom's, which runs a test through every order that the memory model of C++20
//! allows, or ThreadSanitizer's. The choice is made here and nowhere else.
//!
//! ThreadSanitizer sees only what was compiled for it. The standard library comes
//! compiled without: a mutex taken on its contended path looks to it as if it
//! ordered nothing. With `--cfg tsan` the mutex therefore says what it does a
//! second time, by an atomic of our own; the suppressions that would do instead
//! would also hide the mistakes one is looking for.

#[cfg(loom)]
pub(crate) use loom::sync::{
    Arc, Mutex, MutexGuard,
    atomic::{AtomicPtr, AtomicU64, Ordering, fence},
};

#[cfg(not(loom))]
pub(crate) use std::sync::{
    Arc,
    atomic::{AtomicPtr, AtomicU64, Ordering, fence},
};

#[cfg(not(any(loom, tsan)))]
pub(crate) use std::sync::{Mutex, MutexGuard};

#[cfg(tsan)]
pub(crate) use seen::{Mutex, MutexGuard};

/// A mutex whose order ThreadSanitizer sees.
#[cfg(tsan)]
mod seen {
    use core::ops::{Deref, DerefMut};
    use core::sync::atomic::{AtomicU64, Ordering};
    use std::sync::{LockResult, PoisonError};

    pub(crate) struct Mutex<T> {
        turn: AtomicU64,
        inner: std::sync::Mutex<T>,
    }

    pub(crate) struct MutexGuard<'a, T> {
        turn: &'a AtomicU64,
        inner: std::sync::MutexGuard<'a, T>,
    }

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Self { turn: AtomicU64::new(0), inner: std::sync::Mutex::new(value) }
        }

        pub(crate) fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
            let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
            self.turn.load(Ordering::Acquire);
            Ok(MutexGuard { turn: &self.turn, inner })
        }
    }

    impl<T> Drop for MutexGuard<'_, T> {
        fn drop(&mut self) {
            // The fields, and with them the lock, go after this.
            self.turn.store(0, Ordering::Release);
        }
    }

    impl<T> Deref for MutexGuard<'_, T> {
        type Target = T;

        fn deref(&self) -> &T {
            &self.inner
        }
    }

    impl<T> DerefMut for MutexGuard<'_, T> {
        fn deref_mut(&mut self) -> &mut T {
            &mut self.inner
        }
    }
}
