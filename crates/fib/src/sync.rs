//! The atomics, locks and counts of `publish`: those of the
//! standard library, or loom's, which runs a test through every order that
//! the memory model of C++20 allows. The choice is made here and nowhere else.

#[cfg(loom)]
pub(crate) use loom::sync::{
    Arc, Mutex, MutexGuard,
    atomic::{AtomicPtr, AtomicU64, Ordering, fence},
};

#[cfg(not(loom))]
pub(crate) use std::sync::{
    Arc, Mutex, MutexGuard,
    atomic::{AtomicPtr, AtomicU64, Ordering, fence},
};
