//! The atomics, locks and reference counts of `publish`: those of the standard library, or those
//! of loom, which runs a test in every order that the memory model of C++20 allows, or those for
//! ThreadSanitizer. They are selected here and nowhere else.
//!
//! ThreadSanitizer sees only code that was compiled for it. The standard library is compiled
//! without it: a mutex taken on its contended path seems to order nothing, and neither does the
//! fence of the last `Arc`. With `--cfg tsan` the two therefore repeat their ordering with an
//! atomic of this module; suppressions would also hide the errors that the test looks for.

#[cfg(loom)]
pub(crate) use loom::sync::{
    Arc, Mutex, MutexGuard,
    atomic::{AtomicPtr, AtomicU64, Ordering, fence},
};

#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering, fence};

#[cfg(not(any(loom, tsan)))]
pub(crate) use std::sync::{Arc, Mutex, MutexGuard};

#[cfg(tsan)]
pub(crate) use self::tsan::{Arc, Mutex, MutexGuard};

/// A mutex and a reference count whose ordering ThreadSanitizer sees.
#[cfg(tsan)]
mod tsan {
    use core::ops::{Deref, DerefMut};
    use core::sync::atomic::{AtomicU64, Ordering};
    use std::sync::{LockResult, PoisonError};

    /// A reference-counted handle: all that happens before a handle is dropped happens before
    /// the value is dropped.
    pub(crate) struct Arc<T>(std::sync::Arc<Counted<T>>);

    struct Counted<T> {
        gone: AtomicU64,
        value: T,
    }

    impl<T> Arc<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(std::sync::Arc::new(Counted { gone: AtomicU64::new(0), value }))
        }

        pub(crate) fn ptr_eq(this: &Self, other: &Self) -> bool {
            std::sync::Arc::ptr_eq(&this.0, &other.0)
        }
    }

    impl<T> Clone for Arc<T> {
        fn clone(&self) -> Self {
            Self(std::sync::Arc::clone(&self.0))
        }
    }

    impl<T> Deref for Arc<T> {
        type Target = T;

        fn deref(&self) -> &T {
            &self.0.value
        }
    }

    impl<T> Drop for Arc<T> {
        fn drop(&mut self) {
            // The handle itself, and with it perhaps the value, is dropped after this.
            self.0.gone.fetch_add(1, Ordering::Release);
        }
    }

    impl<T> Drop for Counted<T> {
        fn drop(&mut self) {
            self.gone.load(Ordering::Acquire);
        }
    }

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
            // The fields, and with them the lock, are dropped after this.
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
