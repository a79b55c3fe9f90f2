//! MappedArray: 64-bit numbers that a program in the kernel and this process both write, without calls.
//!
//! ```text
//!   program ── map lookup, load, store ──►  │ word 0 │ word 1 │ … │  ◄── loads and stores ── process
//!                                            one page or more of the kernel's, mapped here
//! ```
//!
//! A [`Map`] of the kind array that was made to be mapped (`BPF_F_MMAPABLE`, Linux 5.5). A word is
//! aligned, so that neither side ever sees half of what the other has written; nothing else is
//! ordered between them, and no word may stand for memory with an owner.

#![expect(unsafe_code, reason = "memory that programs in the kernel write to, mapped from a map")]

use std::fmt;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

use super::Map;

/// An array of words; dropping it unmaps them, and a program that uses them goes on doing so.
pub struct MappedArray {
    map: Map,
    base: NonNull<AtomicU64>,
    count: usize,
}

// SAFETY: the words are reached as atomics only, from any thread, and the mapping is this value's
// own.
unsafe impl Send for MappedArray {}

// SAFETY: as above.
unsafe impl Sync for MappedArray {}

impl MappedArray {
    /// Makes `count` words of zero. `name` shows in `bpftool map`.
    ///
    /// # Errors
    ///
    /// As for [`Map::new`], and those of `mmap(2)`.
    pub fn new(name: &str, count: u32) -> io::Result<Self> {
        let map = Map::mappable(name, size_of::<AtomicU64>(), count)?;
        let count = count as usize;
        // SAFETY:
        // - a null hint: the kernel chooses fresh addresses, so nothing that exists is overwritten.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                count * size_of::<AtomicU64>(),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                map.as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or_else(|| io::Error::other("mmap gave null"))?;
        Ok(Self { map, base, count })
    }

    /// Returns a word, if there are that many.
    #[inline]
    pub fn get(&self, index: usize) -> Option<&AtomicU64> {
        if index >= self.count {
            return None;
        }
        // SAFETY: the kernel has mapped whole pages for `count` words of 8 bytes, which lie one
        // behind the other, and `index` is less than that.
        let word = unsafe { self.base.add(index) };
        // SAFETY: a page is aligned and so is each word in it, any bytes are a number, and the
        // mapping lives as long as `self`.
        Some(unsafe { word.as_ref() })
    }

    /// Returns the map, for a program to use.
    pub fn map(&self) -> &Map {
        &self.map
    }
}

impl Drop for MappedArray {
    fn drop(&mut self) {
        let len = self.count * size_of::<AtomicU64>();
        // SAFETY: `base` and `len` are what `mmap` gave and was given, and references into it
        // borrow from `self`.
        unsafe { libc::munmap(self.base.as_ptr().cast(), len) };
    }
}

impl fmt::Debug for MappedArray {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MappedArray").field("count", &self.count).finish_non_exhaustive()
    }
}
