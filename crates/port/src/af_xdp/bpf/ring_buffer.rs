//! BPF ring buffers: records that programs write and one reader of this process reads, in order over all CPUs.
//!
//! ```text
//!   page 0     consumer: bytes read        written here alone
//!   page 1     producer: bytes reserved    written by the kernel
//!   then       records, twice in a row, so that none is cut at the end
//!
//!   a record   │ length:30 │ discarded │ busy │ page:32 │ bytes … │ to a multiple of 8
//! ```
//!
//! A program reserves a record, fills it and submits it (`BPF_MAP_TYPE_RINGBUF`, Linux 5.8). The kernel never
//! overwrites a record that was not read: a full ring refuses the reservation, and the program counts the loss.
//! The reader makes no system call and needs no capability; the creation of the ring takes `CAP_BPF`.
//!
//! The kernel clears the bit `busy` of a record with release semantics once the record is written, and reserves room
//! up to the consumer's position, which it reads with acquire semantics (`kernel/bpf/ringbuf.c`). So the
//! bytes of a record that is not busy are constant until the consumer's position passes them.

#![expect(unsafe_code, reason = "memory that programs in the kernel write to, mapped from a map")]

use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use super::{Kind, Map};

/// The smallest ring that every page size allows, in bytes.
pub const MIN_RING: u32 = 1 << 16;

/// The bits of a record's first word that are no length (`BPF_RINGBUF_BUSY_BIT`, `BPF_RINGBUF_DISCARD_BIT`).
const BUSY: u32 = 1 << 31;
const DISCARDED: u32 = 1 << 30;
/// The bytes before those of a record (`BPF_RINGBUF_HDR_SZ`).
const HEADER: usize = 8;

/// A ring buffer and its only reader. A program finds it in a map of maps
/// ([`Map::of_maps`]), and can write to it until it is removed there.
pub struct RingBuffer {
    map: Map,
    consumer: Mapping,
    /// The page of the producer's position, then the records twice.
    records: Mapping,
    page: usize,
    size: usize,
    /// The bytes read.
    next: usize,
}

impl RingBuffer {
    /// Creates a ring of `size` bytes, a power of two and at least [`MIN_RING`]. `bpftool map` shows `name`.
    ///
    /// # Errors
    ///
    /// As for [`Map::new`], and those of `mmap(2)`; `EINVAL` before Linux 5.8.
    pub fn new(name: &str, size: u32) -> io::Result<Self> {
        let map = Map::new(Kind::RingBuffer, name, 0, 0, size)?;
        let size = size as usize;
        // SAFETY: a query without pointers.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        let page = usize::try_from(page).map_err(|_| io::Error::last_os_error())?;
        let consumer = Mapping::new(map.as_raw_fd(), page, 0, true)?;
        let records = Mapping::new(map.as_raw_fd(), page + 2 * size, page, false)?;
        Ok(Self { map, consumer, records, page, size, next: 0 })
    }

    /// Passes the records since the last call to `take`, in the order of their reservation, and frees their room.
    /// Ends before a record that a program is still writing. Returns the number of records.
    pub fn read(&mut self, mut take: impl FnMut(&[u8])) -> usize {
        let mut count = 0;
        // Acquire: the lengths of the records before it have been written.
        let produced = self.records.position().load(Ordering::Acquire);
        while self.next != produced {
            let at = self.page + (self.next & (self.size - 1));
            // Acquire: a record that is not busy has been written.
            let head = self.records.word(at).load(Ordering::Acquire);
            if head & BUSY != 0 {
                break;
            }
            let len = (head & !DISCARDED) as usize;
            let whole = (HEADER + len).next_multiple_of(8);
            assert!(whole <= produced.wrapping_sub(self.next), "the kernel's layout");
            if head & DISCARDED == 0 {
                // SAFETY: the record is neither busy nor passed: the consumer's position is stored below.
                take(unsafe { self.records.bytes(at + HEADER, len) });
                count += 1;
            }
            self.next = self.next.wrapping_add(whole);
            // Release: the record has been read before the kernel sees this.
            self.consumer.position().store(self.next, Ordering::Release);
        }
        count
    }

    /// Returns the map, to put it into a map of maps.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        std::os::fd::AsFd::as_fd(&self.map)
    }
}

impl fmt::Debug for RingBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RingBuffer").field("size", &self.size).finish_non_exhaustive()
    }
}

/// A part of the ring, mapped.
struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: this value alone owns the mapping (besides the kernel), and nothing in it is bound to a thread.
unsafe impl Send for Mapping {}

// SAFETY: as above; the bytes of records are read by `RingBuffer::read` alone, which has the ring exclusively.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `len` bytes from `offset` on.
    fn new(map: i32, len: usize, offset: usize, is_written: bool) -> io::Result<Self> {
        let writes = if is_written { libc::PROT_WRITE } else { 0 };
        let offset = offset as libc::off_t;
        // SAFETY: a null hint: the kernel chooses fresh addresses, so nothing that exists is overwritten.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ | writes,
                libc::MAP_SHARED,
                map,
                offset,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or_else(|| io::Error::other("mmap gave null"))?;
        Ok(Self { base, len })
    }

    /// Returns the address of `len` bytes at `at`.
    fn address(&self, at: usize, len: usize) -> *mut u8 {
        let is_inside = at.checked_add(len).is_some_and(|end| end <= self.len);
        assert!(is_inside, "the kernel's layout");
        // SAFETY: checked above to be inside the mapping.
        unsafe { self.base.as_ptr().add(at) }
    }

    /// Returns the position that the mapping begins with.
    fn position(&self) -> &AtomicUsize {
        let address = self.address(0, size_of::<AtomicUsize>());
        // SAFETY: the begin of a page is aligned, the mapping lives as long as `self`, and both sides use the position
        // (an `unsigned long`) with atomic operations only. One that is mapped without the right to write is only
        // loaded: `read` stores to the consumer's alone.
        unsafe { AtomicUsize::from_ptr(address.cast()) }
    }

    /// Returns the first word of a record.
    fn word(&self, at: usize) -> &AtomicU32 {
        assert!(at.is_multiple_of(8), "the kernel's layout");
        let address = self.address(at, size_of::<AtomicU32>());
        // SAFETY: aligned by the check above, the mapping lives as long as `self`, the kernel changes the word with
        // atomic operations only, and this process only loads it.
        unsafe { AtomicU32::from_ptr(address.cast()) }
    }

    /// Returns the bytes of a record.
    ///
    /// # Safety
    ///
    /// The record is not busy, and the consumer's position does not pass it while the result is used.
    unsafe fn bytes(&self, at: usize, len: usize) -> &[u8] {
        let address = self.address(at, len);
        // SAFETY:
        // - `address` checks that the bytes are inside the mapping, which lives as long as `self`;
        // - by the caller's promise the record is written, and the kernel gives its room to no other one meanwhile: nothing
        //   writes the bytes.
        unsafe { std::slice::from_raw_parts(address, len) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: `base` and `len` are those of `mmap`, and references into the mapping borrow from `self`.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}
