//! The four rings that a socket shares with the kernel.
//!
//! ```text
//!              we produce          the kernel consumes
//!   fill       free frames     ─►  to put received packets into     u64 place
//!   transmit   packets to send ─►                                   descriptor
//!              we consume          the kernel produces
//!   receive    packets         ◄─                                   descriptor
//!   completion frames sent     ◄─                                   u64 place
//!
//!   descriptor:  │ place, 8 bytes │ length, 4 │ options, 4 │
//! ```
//!
//! A ring is a power of two of slots between two counters that only grow and wrap at 2^32:
//! `producer` is the number of slots that were ever filled, `consumer` the number that were ever
//! emptied; each side writes only its own. The slots `consumer..producer` (modulo the size) belong
//! to the consumer, the others to the producer.
//!
//! Memory ordering, which is the whole protocol (Documentation/networking/af_xdp.rst and the
//! comment at the head of net/xdp/xsk_queue.h):
//!
//! - the producer writes slots, then stores `producer` with *release*; the consumer loads
//!   `producer` with *acquire*, then reads slots: so it sees the written data;
//! - the consumer reads slots, then stores `consumer` with *release*; the producer loads `consumer`
//!   with *acquire*, then overwrites slots: so it does not overwrite slots that are still being
//!   read.
//!
//! Our own counter is in a plain field and the other side's is cached: its cache line is fetched
//! from the other CPU only when the cached value is insufficient, which is about once a batch.
//!
//! `flags` has one bit, `XDP_RING_NEED_WAKEUP`: the kernel does not read the ring before a system
//! call.

#![expect(unsafe_code, reason = "memory that the kernel writes to, mapped from a socket")]

use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::mapping::{Access, Mapping};

/// The content of a slot: plain data for which all bit patterns are valid.
///
/// # Safety
///
/// Implementors are `repr(C)` (or primitive), of the size that the kernel's
/// ring has, and every bit pattern is valid.
pub(crate) unsafe trait Slot: Copy {}

// SAFETY: the fill and completion rings are of `__u64`.
unsafe impl Slot for u64 {}

// SAFETY: the other two are of `struct xdp_desc`, three integers of the C
// layout.
unsafe impl Slot for libc::xdp_desc {}

/// Returns the counter of a ring at `offset`.
fn counter(mapping: &Mapping, offset: u64) -> &AtomicU32 {
    assert!(offset.is_multiple_of(4), "the kernel's layout");
    let counter = mapping.address(offset as usize, 4);
    // SAFETY:
    // - inside the mapping and (its base being a page's) aligned;
    // - the mapping lives as long as the result, and both sides use this place with atomic operations
    //   only.
    unsafe { AtomicU32::from_ptr(counter.as_ptr().cast()) }
}

/// The number of waiting slots of a ring, for an observer.
#[derive(Debug)]
pub(crate) struct RingDepth {
    mapping: Arc<Mapping>,
    producer: u64,
    consumer: u64,
}

impl RingDepth {
    /// Counts the slots that are filled and not yet released.
    pub(crate) fn get(&self) -> u32 {
        let read = |offset| counter(&self.mapping, offset).load(Ordering::Acquire);
        // The consumer is read first: it never passes the producer.
        let consumer = read(self.consumer);
        read(self.producer).wrapping_sub(consumer)
    }
}

/// One ring, from either side.
struct Ring<T> {
    mapping: Arc<Mapping>,
    offsets: libc::xdp_ring_offset,
    slots: NonNull<T>,
    size: u32,
}

// SAFETY: the mapping is this value's own (the kernel apart), and nothing in
// it is bound to a thread.
unsafe impl<T: Slot + Send> Send for Ring<T> {}

impl<T: Slot> Ring<T> {
    fn new(
        socket: BorrowedFd<'_>,
        size: u32,
        offsets: libc::xdp_ring_offset,
        page_offset: libc::off_t,
    ) -> io::Result<Self> {
        assert!(size.is_power_of_two(), "the kernel accepts only powers of two");
        let len = offsets.desc as usize + size as usize * size_of::<T>();
        let mapping = Arc::new(Mapping::new(socket, len, page_offset, Access::POPULATED)?);
        assert!((offsets.desc as usize).is_multiple_of(align_of::<T>()), "the kernel's layout");
        let slots = mapping.address(offsets.desc as usize, 0).cast();
        let ring = Self { mapping, offsets, slots, size };
        // A new ring is at zero. Another start would give the kernel slots that were never written.
        let fresh = ring.producer().load(Ordering::Relaxed) == 0
            && ring.consumer().load(Ordering::Relaxed) == 0;
        if fresh { Ok(ring) } else { Err(io::Error::other("a ring of a new socket is in use")) }
    }

    #[inline]
    fn producer(&self) -> &AtomicU32 {
        counter(&self.mapping, self.offsets.producer)
    }

    #[inline]
    fn consumer(&self) -> &AtomicU32 {
        counter(&self.mapping, self.offsets.consumer)
    }

    /// Returns whether the kernel waits for a system call. Relaxed: a wakeup that is just missed is
    /// made with the next flush.
    #[inline]
    fn needs_wakeup(&self) -> bool {
        let flags = counter(&self.mapping, self.offsets.flags).load(Ordering::Relaxed);
        flags & libc::XDP_RING_NEED_WAKEUP != 0
    }

    #[inline]
    fn slot(&self, index: u32) -> NonNull<T> {
        // SAFETY: masked to less than `size`, and the mapping holds `size`
        // slots behind `slots`.
        unsafe { self.slots.add((index & (self.size - 1)) as usize) }
    }
}

/// The side that fills slots: that of fill and transmit rings.
pub(crate) struct Producer<T> {
    ring: Ring<T>,
    /// Total slots filled, published or not.
    next: u32,
    /// Total slots emptied, as last read.
    emptied: u32,
}

impl<T: Slot> Producer<T> {
    /// Maps a ring of a socket.
    pub(crate) fn new(
        socket: BorrowedFd<'_>,
        size: u32,
        offsets: libc::xdp_ring_offset,
        page_offset: libc::off_t,
    ) -> io::Result<Self> {
        Ok(Self { ring: Ring::new(socket, size, offsets, page_offset)?, next: 0, emptied: 0 })
    }

    /// Returns the number of free slots; reads the kernel's counter only if the cached one shows
    /// fewer than `wanted`.
    #[inline]
    pub(crate) fn free(&mut self, wanted: u32) -> u32 {
        let free = self.ring.size - self.next.wrapping_sub(self.emptied);
        if free >= wanted {
            return free;
        }
        // Acquire: slots counted here as emptied have been read.
        self.emptied = self.ring.consumer().load(Ordering::Acquire);
        self.ring.size - self.next.wrapping_sub(self.emptied)
    }

    /// Returns the number of slots that the kernel has not emptied yet.
    #[inline]
    pub(crate) fn pending(&mut self) -> u32 {
        self.ring.size - self.free(self.ring.size)
    }

    /// Writes the next slot, without publishing it.
    ///
    /// # Panics
    ///
    /// If no slot is free; ask [`Producer::free`] first.
    ///
    /// # Safety
    ///
    /// `value` names a frame of the socket's UMEM that is no longer in use: its token has been
    /// consumed.
    #[inline]
    pub(crate) unsafe fn push(&mut self, value: T) {
        assert!(self.next.wrapping_sub(self.emptied) < self.ring.size, "a slot is free");
        // SAFETY:
        // - `slot` is inside the mapping and aligned;
        // - the assertion and the acquire in `free` prove that the kernel has read it, and the
        //   kernel does not read it again before `publish`.
        unsafe { self.ring.slot(self.next).write(value) };
        self.next = self.next.wrapping_add(1);
    }

    /// Publishes every written slot to the kernel.
    #[inline]
    pub(crate) fn publish(&mut self) {
        // Release: a reader that sees the counter sees the slots.
        self.ring.producer().store(self.next, Ordering::Release);
    }

    /// Returns whether the kernel waits for a system call before it reads the ring.
    #[inline]
    pub(crate) fn needs_wakeup(&self) -> bool {
        self.ring.needs_wakeup()
    }
}

/// The side that empties slots: that of receive and completion rings.
pub(crate) struct Consumer<T> {
    ring: Ring<T>,
    /// Total slots emptied, released or not.
    next: u32,
    /// Total slots filled, as last read.
    filled: u32,
}

impl<T: Slot> Consumer<T> {
    /// Maps a ring of a socket.
    pub(crate) fn new(
        socket: BorrowedFd<'_>,
        size: u32,
        offsets: libc::xdp_ring_offset,
        page_offset: libc::off_t,
    ) -> io::Result<Self> {
        Ok(Self { ring: Ring::new(socket, size, offsets, page_offset)?, next: 0, filled: 0 })
    }

    /// Returns an observer of the number of waiting slots.
    pub(crate) fn depth(&self) -> RingDepth {
        let Ring { mapping, offsets, .. } = &self.ring;
        let (producer, consumer) = (offsets.producer, offsets.consumer);
        RingDepth { mapping: Arc::clone(mapping), producer, consumer }
    }

    /// Returns the number of waiting slots; reads the kernel's counter only if the cached one shows
    /// none.
    #[inline]
    pub(crate) fn waiting(&mut self) -> u32 {
        if self.filled == self.next {
            // Acquire: slots counted here as filled have been written.
            self.filled = self.ring.producer().load(Ordering::Acquire);
        }
        self.filled.wrapping_sub(self.next)
    }

    /// Reads the next slot, without releasing it.
    ///
    /// # Panics
    ///
    /// If none is waiting; ask [`Consumer::waiting`] first.
    #[inline]
    pub(crate) fn pop(&mut self) -> T {
        assert!(self.next != self.filled, "a slot is waiting");
        // SAFETY:
        // - `slot` is inside the mapping and aligned, any bytes are a `T`;
        // - the assertion and the acquire in `waiting` prove that the kernel has written it, and
        //   the kernel does not write it again before `release`.
        let value = unsafe { self.ring.slot(self.next).read() };
        self.next = self.next.wrapping_add(1);
        value
    }

    /// Releases every read slot to the kernel.
    #[inline]
    pub(crate) fn release(&mut self) {
        // Release: the slots have been read before the kernel sees this.
        self.ring.consumer().store(self.next, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::{AsFd, FromRawFd};
    use std::thread;

    use super::*;

    const OFFSETS: libc::xdp_ring_offset =
        libc::xdp_ring_offset { producer: 0, consumer: 64, flags: 128, desc: 192 };
    const SIZE: u32 = 64;

    /// Returns both ends of one ring, in memory that two mappings share as a socket and the kernel
    /// do, with counters of `start`.
    fn ring(start: u32) -> (Producer<u64>, Consumer<u64>) {
        // SAFETY: the name is a string that ends in NUL; it makes a descriptor.
        let fd = unsafe { libc::memfd_create(c"ring".as_ptr(), libc::MFD_CLOEXEC) };
        assert!(fd >= 0, "{}", io::Error::last_os_error());
        // SAFETY: created just above, and not yet shared.
        let file = unsafe { File::from_raw_fd(fd) };
        file.set_len(4096).unwrap();
        let mut producer = Producer::new(file.as_fd(), SIZE, OFFSETS, 0).unwrap();
        let mut consumer = Consumer::new(file.as_fd(), SIZE, OFFSETS, 0).unwrap();
        producer.ring.producer().store(start, Ordering::Relaxed);
        producer.ring.consumer().store(start, Ordering::Relaxed);
        (producer.next, producer.emptied) = (start, start);
        (consumer.next, consumer.filled) = (start, start);
        (producer, consumer)
    }

    fn push(producer: &mut Producer<u64>, value: u64) {
        // SAFETY: no frame is behind the numbers of this test.
        unsafe { producer.push(value) };
    }

    #[test]
    fn slots_are_reused_across_counter_wrap() {
        let (mut producer, mut consumer) = ring(u32::MAX - 100);
        for round in 0..10 {
            assert_eq!(consumer.waiting(), 0);
            assert_eq!(producer.free(SIZE), SIZE);
            (0..50).for_each(|n| push(&mut producer, round * 50 + n));
            assert_eq!(consumer.waiting(), 0, "not before they are published");
            producer.publish();
            assert_eq!((producer.pending(), consumer.waiting()), (50, 50));
            (0..50).for_each(|n| assert_eq!(consumer.pop(), round * 50 + n));
            assert_eq!(producer.pending(), 50, "not before they are released");
            consumer.release();
            assert_eq!(producer.pending(), 0);
        }
    }

    #[test]
    fn full_ring_has_no_free_slot() {
        let (mut producer, mut consumer) = ring(0);
        (0..u64::from(SIZE)).for_each(|n| {
            assert!(producer.free(1) >= 1);
            push(&mut producer, n);
        });
        producer.publish();
        assert_eq!(producer.free(1), 0);
        assert_eq!(consumer.waiting(), SIZE);
        assert_eq!(consumer.pop(), 0);
        consumer.release();
        assert_eq!(producer.free(1), 1);
    }

    #[test]
    #[should_panic(expected = "a slot is free")]
    fn push_to_full_ring_panics() {
        let (mut producer, _consumer) = ring(7);
        (0..=u64::from(SIZE)).for_each(|n| push(&mut producer, n));
    }

    #[test]
    #[should_panic(expected = "a slot is waiting")]
    fn pop_from_empty_ring_panics() {
        ring(7).1.pop();
    }

    #[test]
    fn ring_in_use_is_refused() {
        // SAFETY: as in `ring`.
        let fd = unsafe { libc::memfd_create(c"ring".as_ptr(), libc::MFD_CLOEXEC) };
        // SAFETY: as in `ring`.
        let file = unsafe { File::from_raw_fd(fd) };
        file.set_len(4096).unwrap();
        let first = Producer::<u64>::new(file.as_fd(), SIZE, OFFSETS, 0).unwrap();
        first.ring.producer().store(1, Ordering::Relaxed);
        assert!(Consumer::<u64>::new(file.as_fd(), SIZE, OFFSETS, 0).is_err());
    }

    #[test]
    fn slots_cross_threads_once_and_in_order() {
        const COUNT: u64 = 300_000;
        let (mut producer, mut consumer) = ring(u32::MAX - 1000);
        let writer = thread::spawn(move || {
            let mut next = 0;
            while next < COUNT {
                let fit = u64::from(producer.free(16)).min(COUNT - next);
                for _ in 0..fit {
                    push(&mut producer, next.wrapping_mul(0x9e37_79b9_7f4a_7c15));
                    next += 1;
                }
                producer.publish();
                if fit == 0 {
                    thread::yield_now();
                }
            }
        });
        let mut next: u64 = 0;
        while next < COUNT {
            let waiting = consumer.waiting();
            for _ in 0..waiting {
                assert_eq!(consumer.pop(), next.wrapping_mul(0x9e37_79b9_7f4a_7c15));
                next += 1;
            }
            consumer.release();
            if waiting == 0 {
                thread::yield_now();
            }
        }
        writer.join().unwrap();
        assert_eq!(consumer.waiting(), 0);
    }
}
