//! Memory of a descriptor that the kernel also accesses: the rings of sockets, ring buffers and arrays of programs.
//!
//! The value owns its mapping, which is shared with the kernel alone. Its users state by which accesses they share it.

#![expect(unsafe_code, reason = "memory that the kernel writes to, mapped from a descriptor")]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;

/// The rights to a mapping, and its flags (`PROT_*`, `MAP_*`).
#[derive(Clone, Copy, Debug)]
pub(super) struct Access {
    protection: libc::c_int,
    flags: libc::c_int,
}

impl Access {
    pub(super) const READ: Self = Self { protection: libc::PROT_READ, flags: libc::MAP_SHARED };
    pub(super) const READ_WRITE: Self =
        Self { protection: libc::PROT_READ | libc::PROT_WRITE, ..Self::READ };
    /// The same, with all pages at once.
    pub(super) const POPULATED: Self =
        Self { flags: libc::MAP_SHARED | libc::MAP_POPULATE, ..Self::READ_WRITE };
}

/// A mapping; dropping it unmaps the memory.
#[derive(Debug)]
pub(super) struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: this value alone owns the mapping (besides the kernel), and nothing in it is bound to a thread. It gives out
// addresses only; the accesses by them are those that its users prove.
unsafe impl Send for Mapping {}

// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `len` bytes of a descriptor from `offset` on.
    ///
    /// # Errors
    ///
    /// Those of `mmap(2)`.
    pub(super) fn new(
        descriptor: BorrowedFd<'_>,
        len: usize,
        offset: libc::off_t,
        Access { protection, flags }: Access,
    ) -> io::Result<Self> {
        let number = descriptor.as_raw_fd();
        // SAFETY: a null hint: the kernel chooses fresh addresses, so nothing that exists is overwritten.
        let base =
            unsafe { libc::mmap(std::ptr::null_mut(), len, protection, flags, number, offset) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or_else(|| io::Error::other("mmap gave null"))?;
        Ok(Self { base, len })
    }

    /// Returns the address of `len` bytes at `at`, which must be inside the mapping.
    ///
    /// # Panics
    ///
    /// If they are not: the kernel's layout is another one.
    pub(super) fn address(&self, at: usize, len: usize) -> NonNull<u8> {
        let is_inside = at.checked_add(len).is_some_and(|end| end <= self.len);
        assert!(is_inside, "the kernel's layout");
        // SAFETY: checked above to be inside the mapping.
        unsafe { self.base.add(at) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: `base` and `len` are those of `mmap`, and references into the mapping borrow from `self`.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}
