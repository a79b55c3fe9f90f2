//! The region: the memory of packets.
//!
//! It is one anonymous mapping, page-aligned and zeroed, divided into frames of one size. It is the
//! memory of an [`Arena`](crate::Arena) and, when AF_XDP sockets are bound to it, also the kernel's
//! UMEM. Huge pages are requested but not required: without them the program only needs more page
//! walks.
//!
//! Two writers share these bytes without a lock: this process and the kernel. The token of a frame
//! ([`Frame`]) separates them: the accessors below return a slice only for a token, while both the
//! token and the region are borrowed, and a frame's number enters a kernel ring only when its token
//! has been consumed (`af_xdp/socket/`). So while a slice of a frame exists, the kernel does not have
//! the frame.
//!
//! The kernel pins the pages while a socket is bound: if the region is unmapped before the sockets
//! close, they write to pages that no mapping refers to, which is harmless.

#![expect(unsafe_code, reason = "maps memory that is shared with the kernel, and slices it")]

use std::io;
use std::ops::Range;
use std::ptr::NonNull;
use std::slice;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::Frame;

/// Memory is mapped in multiples of this, so that it can consist of huge pages.
const HUGE_PAGE: usize = 2 << 20;

/// The next region's tag. Tags are identities, not state: no lookup uses them.
static NEXT_TAG: AtomicU32 = AtomicU32::new(0);

/// A page-aligned zeroed mapping that returns slices for frame tokens.
pub(crate) struct Region {
    base: NonNull<u8>,
    /// Bytes that frames may lie in.
    len: usize,
    /// Bytes mapped, a multiple of [`HUGE_PAGE`].
    mapped: usize,
    tag: u32,
}

// SAFETY:
// - `base` points to a mapping that this value alone owns and that any thread
//   of the process may use;
// - the tag and the sizes are plain numbers.
unsafe impl Send for Region {}

// SAFETY:
// - `&Region` gives only `&[u8]`, against a token that the caller borrows
//   too, so no one holds a `&mut [u8]` of the same frame meanwhile (that
//   needs `&mut Region`), nor has the kernel the frame.
unsafe impl Sync for Region {}

impl Region {
    /// Maps at least `len` zeroed bytes.
    ///
    /// # Errors
    ///
    /// The system's error of the allocation; `InvalidInput` for a `len` of 0 or beyond a frame's
    /// 32-bit offset.
    pub(crate) fn new(len: usize) -> io::Result<Self> {
        if len == 0 || len > 1 << 32 {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "an arena holds between one frame and 4 GiB",
            ));
        }
        let tag = NEXT_TAG
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |tag| tag.checked_add(1))
            .map_err(|_| io::Error::other("this process has created 2^32 arenas"))?;
        let mapped = len.next_multiple_of(HUGE_PAGE);
        // SAFETY:
        // - a null hint and MAP_ANONYMOUS: the kernel chooses fresh addresses,
        //   so nothing that exists is overwritten.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                mapped,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // SAFETY:
        // - the range was mapped just above and the advice changes no content.
        // The result is ignored: huge pages are optional.
        unsafe { libc::madvise(base, mapped, libc::MADV_HUGEPAGE) };
        let base = NonNull::new(base.cast()).ok_or_else(|| io::Error::other("mmap gave null"))?;
        Ok(Self { base, len, mapped, tag })
    }

    /// Returns the identity that this region's frames carry.
    #[inline]
    pub(crate) fn tag(&self) -> u32 {
        self.tag
    }

    /// Returns the address of the mapping, to register it as a UMEM.
    pub(crate) fn base(&self) -> usize {
        self.base.as_ptr().expose_provenance()
    }

    /// Returns the bytes that frames may lie in.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Checks that the token is of this region and inside it.
    #[inline]
    fn check(&self, frame: &Frame) -> usize {
        assert!(frame.tag() == self.tag, "a frame was passed to a foreign arena");
        let at = frame.at() as usize;
        assert!(at + frame.len() <= self.len, "a frame reaches beyond its arena");
        at
    }

    /// Returns the packet.
    #[inline]
    pub(crate) fn bytes(&self, frame: &Frame) -> &[u8] {
        let at = self.check(frame);
        // SAFETY:
        // - `check` has shown that `at` is inside the mapping;
        let first = unsafe { self.base.as_ptr().add(at) };
        // SAFETY:
        // - `check` has shown that `len` bytes from there are inside too, the
        //   mapping is readable, zeroed at birth and lives as long as `self`;
        // - the token proves that the kernel does not have the frame, and a
        //   `&mut [u8]` of it would need `&mut self`.
        unsafe { slice::from_raw_parts(first, frame.len()) }
    }

    /// Returns the packet for writing.
    #[inline]
    pub(crate) fn bytes_mut(&mut self, frame: &Frame) -> &mut [u8] {
        let at = self.check(frame);
        // SAFETY:
        // - `check` has shown that `at` is inside the mapping;
        let first = unsafe { self.base.as_ptr().add(at) };
        // SAFETY:
        // - `check` has shown that `len` bytes from there are inside too, the
        //   mapping is writable, zeroed at birth and lives as long as `self`;
        // - the token proves that the kernel does not have the frame, and
        //   `&mut self` that no other slice of the region exists.
        unsafe { slice::from_raw_parts_mut(first, frame.len()) }
    }

    /// Copies a range of one packet into another one, from byte `start` on.
    ///
    /// # Panics
    ///
    /// If a frame is of another region, or a range exceeds its packet.
    #[inline]
    pub(crate) fn copy(&mut self, frame: &Frame, range: Range<usize>, to: &Frame, start: usize) {
        let (source, target) = (self.check(frame), self.check(to));
        assert!(range.start <= range.end && range.end <= frame.len(), "beyond the frame");
        let len = range.end - range.start;
        assert!(start <= to.len() && len <= to.len() - start, "no room in the frame");
        // SAFETY:
        // - `check` and the assertion have shown that this is inside the mapping.
        let source = unsafe { self.base.as_ptr().add(source + range.start) };
        // SAFETY:
        // - as above.
        let target = unsafe { self.base.as_ptr().add(target + start) };
        // SAFETY:
        // - the assertions have shown that `len` bytes from both are inside the mapping, which is
        //   readable, writable and zeroed at birth;
        // - the tokens prove that the kernel has neither frame, and `&mut self` that no slice of the
        //   region exists;
        // - `copy` permits ranges that overlap.
        unsafe { std::ptr::copy(source, target, len) };
    }

    /// Prefetches the packet's first cache line.
    #[inline]
    pub(crate) fn prefetch(&self, frame: &Frame) {
        let at = self.check(frame);
        #[cfg(target_arch = "x86_64")]
        {
            use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            let first = self.base.as_ptr().wrapping_add(at);
            // SAFETY:
            // - SSE is part of x86_64, and a prefetch reads nothing that the
            //   program can see, wherever it points.
            unsafe { _mm_prefetch(first.cast(), _MM_HINT_T0) };
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = at;
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY:
        // - `base` and `mapped` are what `mmap` gave in `new`, and every slice
        //   borrowed from `self`, so none is left.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.mapped) };
    }
}
