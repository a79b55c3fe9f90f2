//! A table with several owners, by reference count.

use alloc::sync::Arc;
use core::fmt;
use core::ops::Deref;
use core::ptr::NonNull;

use super::Table;

/// A handle to a table that several owners read without an indirection.
pub(crate) struct Shared<T> {
    /// The pointer of the table, copied here.
    ptr: NonNull<T>,
    len: usize,
    table: Arc<Table<T>>,
}

// SAFETY: sending a handle shares the items, and the last handle may be dropped on another
// thread: the same requirements as for an `Arc` of the table, into which the pointer leads.
unsafe impl<T: Send + Sync> Send for Shared<T> {}
// SAFETY: as above; a shared owner gives out only `&T`.
unsafe impl<T: Send + Sync> Sync for Shared<T> {}

impl<T> Shared<T> {
    /// Makes the first handle to a table.
    pub(crate) fn new(table: Table<T>) -> Self {
        Self { ptr: table.ptr, len: table.len, table: Arc::new(table) }
    }

    /// Returns a handle to the first `len` items, or to all if there are fewer.
    pub(crate) fn first(&self, len: usize) -> Self {
        Self { len: len.min(self.len), ..self.clone() }
    }
}

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        Self { ptr: self.ptr, len: self.len, table: Arc::clone(&self.table) }
    }
}

impl<T> Deref for Shared<T> {
    type Target = [T];

    #[inline(always)]
    fn deref(&self) -> &[T] {
        // SAFETY: the pointer is the one that the table derefs to, and the length is at most that
        // of the table. The table neither moves its memory nor frees it before it is dropped,
        // which `table` prevents. There is no `&mut` to it: it was moved into the `Arc`, which
        // gives out none.
        unsafe { core::slice::from_raw_parts(self.ptr.as_ptr(), self.len) }
    }
}

impl<T> fmt::Debug for Shared<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.table.fmt(f)
    }
}
