//! Words in the memory of a file that other programs read too, such as eBPF programs in the kernel.
//!
//! ```text
//!   SharedPool ── stores spans ──► MappedWords ══ the file's pages ══► a program in the kernel
//!                                       │                                      │ looks up
//!   tables of this process ── read ─────┘            the same bytes ───────────┘
//! ```
//!
//! A [`WordFiles`] creates the files: BPF arrays that can be mapped, or memory files. The pool
//! (`shared_pool.rs`) asks it for a larger file when it grows, and copies its words there; the
//! former file is not written to any more. If no file can be created, the words lie in ordinary memory
//! until the pool moves them again, so that no change of the routes fails; a table states where its
//! words are ([`PoolSnapshot::mapping`](crate::PoolSnapshot::mapping)).
//!
//! All access is by atomics, and any bytes are words: what another process writes to the file is
//! never undefined behavior here, only a wrong table.

#![expect(
    unsafe_code,
    reason = "memory that this process shares with the kernel, mapped from a file"
)]

use alloc::sync::Arc;
use core::any::Any;
use core::fmt;
use core::ops::Deref;
use core::ptr::{self, NonNull};
use core::sync::atomic::AtomicU32;
use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// A file whose memory can be mapped; it stays open as long as a table's words lie in it.
pub trait WordFile: AsFd + Any + Send + Sync {}

/// Creates the files in which a table's words lie.
pub trait WordFiles: Send + Sync {
    /// Creates a file of at least `words` words of 32 bits, which are zero. If it is shorter, the
    /// process gets SIGBUS when it accesses what is missing.
    ///
    /// # Errors
    ///
    /// Those of the system; the table then stays in ordinary memory.
    fn create(&self, words: usize) -> io::Result<Arc<dyn WordFile>>;
}

/// The words of a file, mapped into this process.
pub struct MappedWords {
    ptr: NonNull<AtomicU32>,
    len: usize,
    file: Arc<dyn WordFile>,
}

// SAFETY: the words are accessed as atomics only, from any thread, and this value owns the mapping.
unsafe impl Send for MappedWords {}

// SAFETY: as above.
unsafe impl Sync for MappedWords {}

impl MappedWords {
    /// Maps the first `len` words of `file`, at least one, for reading and writing.
    ///
    /// # Errors
    ///
    /// Those of `mmap(2)`; `EINVAL` without words, or if they exceed the address space.
    pub fn new(file: Arc<dyn WordFile>, len: usize) -> io::Result<Self> {
        let bytes = len.checked_mul(size_of::<AtomicU32>()).unwrap_or(0);
        // SAFETY: a null hint: the kernel chooses fresh addresses, so nothing that exists is
        // overwritten.
        let base = unsafe {
            libc::mmap(
                ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_fd().as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let ptr = NonNull::new(base.cast()).ok_or(io::ErrorKind::InvalidData)?;
        Ok(Self { ptr, len, file })
    }

    /// Returns the file.
    pub fn file(&self) -> &Arc<dyn WordFile> {
        &self.file
    }
}

impl Deref for MappedWords {
    type Target = [AtomicU32];

    #[inline(always)]
    fn deref(&self) -> &[AtomicU32] {
        // SAFETY: the kernel has mapped `len` words of 4 bytes from a page's begin on, so they are
        // aligned; any bytes are an atomic word, and the mapping lives as long as `self`.
        unsafe { core::slice::from_raw_parts(self.ptr.as_ptr(), self.len) }
    }
}

impl Drop for MappedWords {
    fn drop(&mut self) {
        // SAFETY: address and length are those of `mmap`, and references into the mapping borrow
        // from `self`.
        unsafe { libc::munmap(self.ptr.as_ptr().cast(), self.len * size_of::<AtomicU32>()) };
    }
}

impl fmt::Debug for MappedWords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MappedWords").field("len", &self.len).finish_non_exhaustive()
    }
}
