//! A table with several owners.

use alloc::sync::Arc;
use core::fmt;
use core::ops::Deref;
use core::ptr::NonNull;

use super::Table;

/// A table of which each owner looks at the same memory, as directly as at its own.
pub(crate) struct Shared<T> {
    /// The table's, at hand.
    ptr: NonNull<T>,
    len: usize,
    table: Arc<Table<T>>,
}

// SAFETY: to send an owner is to share the items, and the last owner may drop them
// elsewhere: as for an `Arc` of the table, which the pointer leads into.
unsafe impl<T: Send + Sync> Send for Shared<T> {}
// SAFETY: as above; a shared owner gives out only `&T`.
unsafe impl<T: Send + Sync> Sync for Shared<T> {}

impl<T> Shared<T> {
    /// Makes it of a table.
    pub(crate) fn new(table: Table<T>) -> Self {
        Self { ptr: table.ptr, len: table.len, table: Arc::new(table) }
    }

    /// Returns an owner who sees the first `len` items, at the most.
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
        // SAFETY: the pointer is the one that the table derefs to, the length at most its. It neither
        // moves its memory nor gives it back before it is dropped, which `table` prevents,
        // and nobody has a `&mut` to it: it was moved into the `Arc`, which gives out none.
        unsafe { core::slice::from_raw_parts(self.ptr.as_ptr(), self.len) }
    }
}

impl<T> fmt::Debug for Shared<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.table.fmt(f)
    }
}
