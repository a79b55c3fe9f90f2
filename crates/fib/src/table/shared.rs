//! An array with several owners, by reference count: a table's, or one mapped from a file.

use alloc::sync::Arc;
use core::any::Any;
use core::fmt;
use core::ops::Deref;
use core::ptr::NonNull;

#[cfg(all(feature = "std", target_os = "linux"))]
use core::sync::atomic::AtomicU32;

use super::Table;
#[cfg(all(feature = "std", target_os = "linux"))]
use crate::mapped::MappedWords;

/// A handle to an array that several owners read without an indirection.
pub(crate) struct Shared<T> {
    /// The pointer of the owner, copied here.
    ptr: NonNull<T>,
    len: usize,
    /// A `Table<T>` or a `MappedWords`.
    owner: Arc<dyn Any + Send + Sync>,
}

// SAFETY: sending a handle shares the items, and the last handle may be dropped on another
// thread: the same requirements as for an `Arc` of the items, into which the pointer leads.
unsafe impl<T: Send + Sync> Send for Shared<T> {}
// SAFETY: as above; a shared owner gives out only `&T`.
unsafe impl<T: Send + Sync> Sync for Shared<T> {}

impl<T: Send + Sync + 'static> Shared<T> {
    /// Makes the first handle to a table.
    pub(crate) fn new(table: Table<T>) -> Self {
        Self { ptr: table.ptr, len: table.len, owner: Arc::new(table) }
    }

    /// Returns a handle to the first `len` items, or to all if there are fewer.
    pub(crate) fn first(&self, len: usize) -> Self {
        Self { len: len.min(self.len), ..self.clone() }
    }
}

#[cfg(all(feature = "std", target_os = "linux"))]
impl Shared<AtomicU32> {
    /// Makes the first handle to words in a file.
    pub(crate) fn mapped(words: MappedWords) -> Self {
        let ptr = NonNull::from(&words[..]).cast();
        Self { ptr, len: words.len(), owner: Arc::new(words) }
    }

    /// Returns the mapping in which the words lie, if it is one.
    pub(crate) fn mapping(&self) -> Option<&MappedWords> {
        self.owner.downcast_ref()
    }
}

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        Self { ptr: self.ptr, len: self.len, owner: Arc::clone(&self.owner) }
    }
}

impl<T> Deref for Shared<T> {
    type Target = [T];

    #[inline(always)]
    fn deref(&self) -> &[T] {
        // SAFETY: the pointer is the one that the owner derefs to, and the length is at most that
        // of the owner. The owner neither moves its memory nor frees it before it is dropped,
        // which `owner` prevents. There is no `&mut` to it: it was moved into the `Arc`, which
        // gives out none.
        unsafe { core::slice::from_raw_parts(self.ptr.as_ptr(), self.len) }
    }
}

impl<T> fmt::Debug for Shared<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Shared({} items)", self.len)
    }
}
