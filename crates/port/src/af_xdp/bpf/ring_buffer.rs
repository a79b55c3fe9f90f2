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
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use super::super::mapping::{Access, Mapping};
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
        let consumer = Mapping::new(map.as_fd(), page, 0, Access::READ_WRITE)?;
        let records =
            Mapping::new(map.as_fd(), page + 2 * size, page as libc::off_t, Access::READ)?;
        Ok(Self { map, consumer, records, page, size, next: 0 })
    }

    /// Passes the records since the last call to `take`, in the order of their reservation, and frees their room.
    /// Ends before a record that a program is still writing. Returns the number of records.
    pub fn read(&mut self, mut take: impl FnMut(&[u8])) -> usize {
        let mut count = 0;
        // Acquire: the lengths of the records before it have been written.
        let produced = position(&self.records).load(Ordering::Acquire);
        while self.next != produced {
            let at = self.page + (self.next & (self.size - 1));
            // Acquire: a record that is not busy has been written.
            let head = word(&self.records, at).load(Ordering::Acquire);
            if head & BUSY != 0 {
                break;
            }
            let len = (head & !DISCARDED) as usize;
            let whole = (HEADER + len).next_multiple_of(8);
            assert!(whole <= produced.wrapping_sub(self.next), "the kernel's layout");
            if head & DISCARDED == 0 {
                // SAFETY: the record is neither busy nor passed: the consumer's position is stored below.
                take(unsafe { bytes(&self.records, at + HEADER, len) });
                count += 1;
            }
            self.next = self.next.wrapping_add(whole);
            // Release: the record has been read before the kernel sees this.
            position(&self.consumer).store(self.next, Ordering::Release);
        }
        count
    }

    /// Returns the map, to put it into a map of maps.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.map.as_fd()
    }
}

impl fmt::Debug for RingBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RingBuffer").field("size", &self.size).finish_non_exhaustive()
    }
}

/// Returns the position that the mapping begins with.
fn position(mapping: &Mapping) -> &AtomicUsize {
    let address = mapping.address(0, size_of::<AtomicUsize>());
    // SAFETY: the begin of a page is aligned, the mapping lives as long as the result, and both sides use the position
    // (an `unsigned long`) with atomic operations only. One that is mapped without the right to write is only
    // loaded: `read` stores to the consumer's alone.
    unsafe { AtomicUsize::from_ptr(address.as_ptr().cast()) }
}

/// Returns the first word of a record.
fn word(mapping: &Mapping, at: usize) -> &AtomicU32 {
    assert!(at.is_multiple_of(8), "the kernel's layout");
    let address = mapping.address(at, size_of::<AtomicU32>());
    // SAFETY: aligned by the check above, the mapping lives as long as the result, the kernel changes the word with
    // atomic operations only, and this process only loads it.
    unsafe { AtomicU32::from_ptr(address.as_ptr().cast()) }
}

/// Returns the bytes of a record.
///
/// # Safety
///
/// The record is not busy, and the consumer's position does not pass it while the result is used.
unsafe fn bytes(mapping: &Mapping, at: usize, len: usize) -> &[u8] {
    let address = mapping.address(at, len);
    // SAFETY:
    // - `address` checks that the bytes are inside the mapping, which lives as long as the result;
    // - by the caller's promise the record is written, and the kernel gives its room to no other one meanwhile: nothing
    //   writes the bytes.
    unsafe { std::slice::from_raw_parts(address.as_ptr(), len) }
}
