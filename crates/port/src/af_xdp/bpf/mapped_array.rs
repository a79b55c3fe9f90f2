//! Mapped arrays: 64-bit numbers that a program in the kernel and this process both write, without
//! system calls.
//!
//! ```text
//!   program ── map lookup, load, store ──►  │ word 0 │ word 1 │ … │  ◄── loads and stores ── process
//!                                            one page or more of the kernel's, mapped here
//! ```
//!
//! A [`Map`] of type array that can be mapped (`BPF_F_MMAPABLE`, Linux 5.5). A word is aligned, so
//! that neither side ever sees a partial write of the other; accesses are not ordered otherwise, so
//! no word may transfer the ownership of memory.

#![expect(unsafe_code, reason = "memory that programs in the kernel write to, mapped from a map")]

use std::fmt;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

use super::Map;

/// An array of words; dropping it unmaps them, but a program can still use them.
pub struct MappedArray {
    map: Map,
    base: NonNull<AtomicU64>,
    count: usize,
}

// SAFETY: the words are accessed as atomics only, from any thread, and this value owns the mapping.
unsafe impl Send for MappedArray {}

// SAFETY: as above.
unsafe impl Sync for MappedArray {}

impl MappedArray {
    /// Creates `count` words of zero. `bpftool map` shows `name`.
    ///
    /// # Errors
    ///
    /// As for [`Map::new`], and those of `mmap(2)`.
    pub fn new(name: &str, count: u32) -> io::Result<Self> {
        Self::mapping(Map::mappable(name, size_of::<AtomicU64>(), count)?, count as usize)
    }

    /// Creates `count` words of zero that are one value: a program addresses them without a lookup
    /// ([`Assembler::load_map_value`](super::asm::Assembler::load_map_value)).
    ///
    /// # Errors
    ///
    /// As for [`new`](Self::new).
    pub fn one_value(name: &str, count: u32) -> io::Result<Self> {
        let count = count as usize;
        Self::mapping(Map::mappable(name, count * size_of::<AtomicU64>(), 1)?, count)
    }

    /// Maps the `count` words of a map.
    fn mapping(map: Map, count: usize) -> io::Result<Self> {
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

    /// Returns a word, if the index is within the array.
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
        // SAFETY: `base` and `len` are those of `mmap`, and references into the mapping borrow from
        // `self`.
        unsafe { libc::munmap(self.base.as_ptr().cast(), len) };
    }
}

impl fmt::Debug for MappedArray {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MappedArray").field("count", &self.count).finish_non_exhaustive()
    }
}
