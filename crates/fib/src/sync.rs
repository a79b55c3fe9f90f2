//! The atomics, locks and counts of `publish`: those of the standard library, or
//! loom's, which runs a test through every order that the memory model of C++20
//! allows, or ThreadSanitizer's. The choice is made here and nowhere else.
//!
//! ThreadSanitizer sees only what was compiled for it. The standard library comes
//! compiled without: a mutex taken on its contended path looks to it as if it
//! ordered nothing, and so does the fence of the last `Arc`. With `--cfg tsan` the
//! two therefore say what they do a second time, by an atomic of our own; the
//! suppressions that would do instead would also hide the mistakes one is looking
//! for.

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
pub(crate) use seen::{Arc, Mutex, MutexGuard};

/// A mutex and a count whose order ThreadSanitizer sees.
#[cfg(tsan)]
mod seen {
    use core::ops::{Deref, DerefMut};
    use core::sync::atomic::{AtomicU64, Ordering};
    use std::sync::{LockResult, PoisonError};

    /// A counted handle: what happened before any handle went happens before the
    /// value does.
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
            // The handle itself, and with it perhaps the value, goes after this.
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
