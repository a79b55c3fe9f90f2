//! The arena: the frames of one worker.
//!
//! A [`Region`] of equal frames and the list of the free ones. All ports of a worker receive into
//! it and send from it. With AF_XDP it is also the UMEM that their sockets share, so that a frame
//! changes ports without a copy.
//!
//! The free list is a stack, so that the frame used last, and still in the
//! cache, is used next. [`Arena::alloc`] and [`Arena::free`] are a pop and a
//! push; neither touches the frame.
//!
//! Invariant: a frame is on the free list, or exactly one [`Frame`] of it exists, or a port has
//! taken that `Frame` and holds its number in a ring. When the list is empty, `alloc` returns
//! `None` and the ports receive less: this is back-pressure, not an error.
//!
//! Some frames may be long (`long.rs`), for packets that exceed the others; everything here applies to both.
//!
//! Limits: frames of 2048 or 4096 bytes (what AF_XDP takes), long ones of 16,384, 4 GiB in all.

mod long;
mod region;
mod umem;

use std::io;
use std::ops::Range;

pub use long::LONG_FRAME;

use crate::{Frame, HEADROOM};
use long::LongFrames;
use region::Region;
use umem::Umem;

/// Frames of one size, and the list of those that are free.
pub struct Arena {
    region: Region,
    /// Offsets of the free frames (their first byte, not their packet's).
    free: Vec<u32>,
    frames: u32,
    frame_size: u32,
    long: LongFrames,
    umem: Umem,
}

impl Arena {
    /// Creates an arena of `frames` frames of `frame_size` bytes, all free.
    ///
    /// # Errors
    ///
    /// Those of [`Arena::with_long_frames`].
    pub fn new(frames: u32, frame_size: u32) -> io::Result<Self> {
        Self::with_long_frames(frames, frame_size, 0)
    }

    /// Creates an arena of `frames` frames of `frame_size` bytes, and `long` of [`LONG_FRAME`] bytes, all free.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if `frame_size` is neither 2048 nor 4096, or `frames` is 0, or all are more than fit
    /// in 4 GiB; else the system's error of the memory allocation.
    pub fn with_long_frames(frames: u32, frame_size: u32, long: u32) -> io::Result<Self> {
        if frame_size != 2048 && frame_size != 4096 {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("a frame is 2048 or 4096 bytes, not {frame_size}"),
            ));
        }
        let mut bytes = u64::from(frames) * u64::from(frame_size);
        let start = bytes.next_multiple_of(LONG_FRAME.into());
        if long > 0 && frames > 0 {
            bytes = start + u64::from(long) * u64::from(LONG_FRAME);
        }
        let region = Region::new(usize::try_from(bytes).unwrap_or(usize::MAX))?;
        // Reversed, so that the first frames are used first.
        let free = (0..frames).rev().map(|frame| frame * frame_size).collect();
        // In the region, which ends at 4 GiB, unless there are none.
        let long = LongFrames::new(start as u32, long);
        Ok(Self { region, free, frames, frame_size, long, umem: Umem::default() })
    }

    /// Takes a free frame: an empty packet with [`HEADROOM`] in front of it.
    /// `None` when there is none.
    #[inline]
    pub fn alloc(&mut self) -> Option<Frame> {
        let at = self.free.pop()? + HEADROOM;
        Some(Frame::new(at, 0, self.region.tag()))
    }

    /// Takes a free frame for a packet of `len` bytes, with that length and the previous content: a long one
    /// where the packet exceeds the others. `None` if no such frame is free, or `len` exceeds [`Arena::room`].
    #[inline]
    pub fn alloc_for(&mut self, len: usize) -> Option<Frame> {
        if len > self.frame_room() {
            return self.alloc_long(len);
        }
        self.alloc().map(|frame| frame.with_len(len as u32))
    }

    /// Takes a free long frame for a packet of `len` bytes.
    #[cold]
    fn alloc_long(&mut self, len: usize) -> Option<Frame> {
        if len > self.room() {
            return None;
        }
        let at = self.long.pop()? + HEADROOM;
        Some(Frame::new(at, len as u32, self.region.tag()))
    }

    /// Returns a frame to the free list.
    ///
    /// # Panics
    ///
    /// If the frame is of another arena.
    #[inline]
    #[expect(clippy::needless_pass_by_value, reason = "the token ends here, by being taken")]
    pub fn free(&mut self, frame: Frame) {
        let start = self.start(frame.at(), frame.tag());
        // The list has the capacity for all frames, and frames cannot be forged, so this never
        // allocates.
        if self.long.contain(start) { self.long.push(start) } else { self.free.push(start) }
    }

    /// Returns the packet.
    ///
    /// # Panics
    ///
    /// If the frame is of another arena.
    #[inline]
    pub fn bytes(&self, frame: &Frame) -> &[u8] {
        self.region.bytes(frame)
    }

    /// Returns the packet for writing.
    ///
    /// # Panics
    ///
    /// If the frame is of another arena.
    #[inline]
    pub fn bytes_mut(&mut self, frame: &Frame) -> &mut [u8] {
        self.region.bytes_mut(frame)
    }

    /// Prefetches the packet's first cache line.
    ///
    /// # Panics
    ///
    /// If the frame is of another arena.
    #[inline]
    pub fn prefetch(&self, frame: &Frame) {
        self.region.prefetch(frame);
    }

    /// Sets the packet's length to `len` bytes, and returns whether the frame has room; if not,
    /// nothing changes. The beginning stays; new bytes have their previous content.
    ///
    /// # Panics
    ///
    /// If the frame is of another arena.
    #[inline]
    pub fn resize(&self, frame: &mut Frame, len: usize) -> bool {
        let room = self.size_at(frame.at()) - (frame.at() - self.start(frame.at(), frame.tag()));
        let fits = len <= room as usize;
        if fits {
            frame.set_packet(frame.at(), len as u32);
        }
        fits
    }

    /// Grows the packet by `bytes` at its front, into the headroom, and returns whether there is
    /// room; if not, nothing changes.
    ///
    /// # Panics
    ///
    /// If the frame is of another arena.
    #[inline]
    pub fn grow_front(&self, frame: &mut Frame, bytes: usize) -> bool {
        let fits = bytes <= (frame.at() - self.start(frame.at(), frame.tag())) as usize;
        if fits {
            frame.set_packet(frame.at() - bytes as u32, (frame.len() + bytes) as u32);
        }
        fits
    }

    /// Removes `bytes` from the packet's front, and returns whether it had more than that; if not,
    /// nothing changes. At least one byte stays, so that the packet's offset never leaves its
    /// frame.
    ///
    /// # Panics
    ///
    /// If the frame is of another arena.
    #[inline]
    pub fn shrink_front(&self, frame: &mut Frame, bytes: usize) -> bool {
        let _ = self.start(frame.at(), frame.tag());
        let fits = bytes < frame.len();
        if fits {
            frame.set_packet(frame.at() + bytes as u32, (frame.len() - bytes) as u32);
        }
        fits
    }

    /// Takes a free frame and copies `packet` into it. `None` if no frame is
    /// free or the packet is longer than [`Arena::room`].
    #[inline]
    pub fn copy_in(&mut self, packet: &[u8]) -> Option<Frame> {
        let frame = self.alloc_for(packet.len())?;
        self.bytes_mut(&frame).copy_from_slice(packet);
        Some(frame)
    }

    /// Copies a range of one packet into another one, from byte `start` of that on.
    ///
    /// # Panics
    ///
    /// If a frame is of another arena, or a range exceeds its packet.
    #[inline]
    pub fn copy(&mut self, frame: &Frame, range: Range<usize>, to: &Frame, start: usize) {
        self.region.copy(frame, range, to, start);
    }

    /// Returns the number of free frames, long ones included.
    #[inline]
    pub fn available(&self) -> usize {
        self.free.len() + self.long.available()
    }

    /// Returns the number of free frames for packets of `len` bytes, as [`Arena::alloc_for`] takes them.
    #[inline]
    pub fn available_for(&self, len: usize) -> usize {
        match len {
            len if len <= self.frame_room() => self.free.len(),
            len if len <= self.room() => self.long.available(),
            _ => 0,
        }
    }

    /// Returns the number of frames, free or not, long ones included.
    #[inline]
    pub fn capacity(&self) -> usize {
        self.frames as usize + self.long.capacity()
    }

    /// Returns whether some frames are long.
    #[inline]
    pub fn has_long_frames(&self) -> bool {
        self.long.capacity() > 0
    }

    /// Returns the size of a frame that is not long in bytes, headroom included.
    #[inline]
    pub fn frame_size(&self) -> usize {
        self.frame_size as usize
    }

    /// Returns the longest packet that fits behind the headroom of a frame, in bytes.
    #[inline]
    pub fn room(&self) -> usize {
        let size = if self.has_long_frames() { LONG_FRAME } else { self.frame_size };
        (size - HEADROOM) as usize
    }

    /// Returns the longest packet that fits a frame that is not long, in bytes.
    #[inline]
    pub(crate) fn frame_room(&self) -> usize {
        (self.frame_size - HEADROOM) as usize
    }

    /// Returns the number of buffers in which AF_XDP sends a packet: the chunks that its bytes lie in.
    #[inline]
    pub(crate) fn chunks(&self, frame: &Frame) -> u32 {
        if self.long.contain(frame.at()) { self.parts(frame).count() as u32 } else { 1 }
    }

    /// Iterates over the offsets and lengths of the parts of a packet in its chunks.
    pub(crate) fn parts(&self, frame: &Frame) -> impl Iterator<Item = (u32, u32)> + use<> {
        let (size, mut at, mut left) = (self.frame_size, frame.at(), frame.len() as u32);
        std::iter::from_fn(move || {
            let part = (at, left.min(size - (at & (size - 1))));
            (at, left) = (at.wrapping_add(part.1), left - part.1);
            (part.1 > 0).then_some(part)
        })
    }

    /// Takes the token of a packet whose chunks the kernel gets to send, each of which it returns
    /// ([`Arena::reclaim`]).
    #[inline]
    #[expect(clippy::needless_pass_by_value, reason = "the token ends here, by being taken")]
    pub(crate) fn lend(&mut self, frame: Frame) {
        if self.long.contain(frame.at()) {
            let chunks = self.chunks(&frame) as u8;
            self.long.lend(self.start(frame.at(), frame.tag()), chunks);
        }
    }

    /// Takes back a chunk that the kernel has sent, by its offset, and returns whether its frame is free with it.
    #[inline]
    pub(crate) fn reclaim(&mut self, chunk: u32) -> bool {
        if self.long.contain(chunk) {
            return self.long.reclaim(chunk);
        }
        self.free.push(chunk);
        true
    }

    /// Returns the identity that this arena's frames carry.
    #[inline]
    pub(crate) fn tag(&self) -> u32 {
        self.region.tag()
    }

    /// Returns the address of the first frame.
    pub(crate) fn base(&self) -> usize {
        self.region.base()
    }

    /// Returns the bytes of all frames together.
    pub(crate) fn bytes_in_all(&self) -> usize {
        self.region.len()
    }

    /// Returns the sockets that share this memory.
    pub(crate) fn umem(&mut self) -> &mut Umem {
        &mut self.umem
    }

    /// Returns the offset of the frame that holds the packet at `at`.
    ///
    /// A frame's size is a power of two and a packet's first byte never leaves
    /// its frame, so the upper bits of that place are the frame's.
    #[inline]
    fn start(&self, at: u32, tag: u32) -> u32 {
        assert!(tag == self.region.tag(), "a frame was passed to a foreign arena");
        at & !(self.size_at(at) - 1)
    }

    /// Returns the size of the frame that holds the packet at `at`.
    #[inline]
    fn size_at(&self, at: u32) -> u32 {
        if self.long.contain(at) { LONG_FRAME } else { self.frame_size }
    }
}

impl std::fmt::Debug for Arena {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Arena")
            .field("frames", &self.frames)
            .field("frame_size", &self.frame_size)
            .field("long_frames", &self.long.capacity())
            .field("available", &self.available())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn arena() -> Arena {
        Arena::new(4, 2048).unwrap()
    }

    #[test]
    fn allocated_frames_are_distinct_and_do_not_overlap() {
        for frame_size in [2048, 4096] {
            let mut arena = Arena::new(100, frame_size).unwrap();
            let mut frames: Vec<Frame> = std::iter::from_fn(|| arena.alloc()).collect();
            assert_eq!((frames.len(), arena.available()), (100, 0));
            let room = arena.room();
            for (n, frame) in frames.iter_mut().enumerate() {
                assert!(arena.grow_front(frame, HEADROOM as usize));
                assert!(!arena.grow_front(frame, 1), "that is the frame before");
                assert!(arena.resize(frame, arena.frame_size()));
                assert!(!arena.resize(frame, arena.frame_size() + 1), "that is the frame behind");
                arena.bytes_mut(frame).fill(n as u8);
            }
            for (n, frame) in frames.iter().enumerate() {
                assert!(arena.bytes(frame).iter().all(|&byte| byte == n as u8), "frame {n}");
            }
            frames.drain(..).for_each(|frame| arena.free(frame));
            let reused: HashSet<u32> =
                std::iter::from_fn(|| arena.alloc()).map(|frame| frame.at()).collect();
            assert_eq!(reused.len(), 100, "no frame is on the list twice");
            assert_eq!(room, frame_size as usize - 256);
        }
    }

    #[test]
    fn packet_grows_and_shrinks_within_its_frame() {
        let mut arena = arena();
        let mut frame = arena.copy_in(&[1, 2, 3, 4]).unwrap();
        assert!(arena.shrink_front(&mut frame, 1));
        assert_eq!(arena.bytes(&frame), [2, 3, 4]);
        assert!(arena.grow_front(&mut frame, 2));
        assert_eq!(arena.bytes(&frame)[1..], [1, 2, 3, 4]);
        assert!(!arena.shrink_front(&mut frame, 5), "one byte stays");
        assert!(arena.resize(&mut frame, 0));
        assert!(!arena.shrink_front(&mut frame, 0), "there is none to stay");
        assert_eq!(arena.bytes(&frame), []);
        arena.free(frame);

        // The last byte of the last frame, from the front and from behind.
        let mut last = std::iter::from_fn(|| arena.alloc()).last().unwrap();
        assert!(arena.resize(&mut last, arena.room()));
        assert!(!arena.shrink_front(&mut last, arena.room()));
        assert!(arena.shrink_front(&mut last, arena.room() - 1));
        assert!(!arena.resize(&mut last, 2));
        arena.bytes_mut(&last)[0] = 7;
        arena.free(last);
        assert_eq!(arena.available(), 1);
        assert_eq!(arena.alloc().map(|frame| frame.at() % 2048), Some(HEADROOM));
    }

    #[test]
    fn long_frames_hold_what_exceeds_the_others() {
        for frame_size in [2048, 4096] {
            // An odd number, so that the long ones do not follow at once.
            let mut arena = Arena::with_long_frames(5, frame_size, 3).unwrap();
            let room = frame_size as usize - HEADROOM as usize;
            assert_eq!((arena.capacity(), arena.available(), arena.room()), (8, 8, 16_384 - 256));
            assert_eq!([room, room + 1, 16_129].map(|len| arena.available_for(len)), [5, 3, 0]);
            let mut frames: Vec<Frame> =
                (0..3).map(|n| arena.copy_in(&vec![n; room + 1]).unwrap()).collect();
            assert!(arena.alloc_for(room + 1).is_none() && arena.alloc_for(16_129).is_none());
            frames.extend((3..8).map(|n| arena.copy_in(&vec![n; room]).unwrap()));
            assert_eq!((arena.available(), arena.alloc_for(1).is_none()), (0, true));
            for (n, frame) in frames.iter_mut().enumerate() {
                let size = if n < 3 { 16_384 } else { frame_size as usize };
                assert!(arena.grow_front(frame, HEADROOM as usize) && !arena.grow_front(frame, 1));
                assert!(arena.resize(frame, size) && !arena.resize(frame, size + 1), "{n}");
                arena.bytes_mut(frame).fill(n as u8);
            }
            for (n, frame) in frames.iter_mut().enumerate() {
                assert!(arena.bytes(frame).iter().all(|&byte| byte == n as u8), "frame {n}");
                // The last byte is still in the frame.
                assert!(arena.shrink_front(frame, frame.len() - 1));
            }
            frames.drain(..).for_each(|frame| arena.free(frame));
            assert_eq!((arena.available_for(room), arena.available_for(room + 1)), (5, 3));
        }
    }

    #[test]
    fn sent_frame_is_free_with_its_last_chunk() {
        let mut arena = Arena::with_long_frames(4, 4096, 1).unwrap();
        let packet: Vec<u8> = (0..9014).map(|n| n as u8).collect();
        let mut frame = arena.copy_in(&packet).unwrap();
        let start = frame.at() - HEADROOM;
        assert!(arena.grow_front(&mut frame, 4));
        let parts: Vec<_> = arena.parts(&frame).collect();
        let first = (start + 252, 4096 - 252);
        assert_eq!(parts, [first, (start + 4096, 4096), (start + 8192, 9018 - 4096 - 3844)]);
        assert_eq!(arena.chunks(&frame), 3);
        arena.lend(frame);
        for (n, (at, _)) in parts.iter().enumerate() {
            assert_eq!((arena.available(), arena.alloc_for(9014).is_none()), (4, true), "{n}");
            assert_eq!(arena.reclaim(at & !4095), n == 2);
        }
        assert_eq!((arena.available(), arena.available_for(9014)), (5, 1));
        // A packet that has become short, in the last of its chunks.
        let mut frame = arena.copy_in(&packet).unwrap();
        assert!(arena.shrink_front(&mut frame, 8000));
        assert_eq!(arena.chunks(&frame), 1);
        assert_eq!(arena.parts(&frame).collect::<Vec<_>>(), [(start + 8256, 1014)]);
        arena.lend(frame);
        assert!(arena.reclaim(start + 8192));
        // And one in a frame of the usual size.
        let frame = arena.copy_in(&packet[..60]).unwrap();
        let at = frame.at();
        assert_eq!((arena.chunks(&frame), arena.parts(&frame).collect()), (1, vec![(at, 60)]));
        arena.lend(frame);
        assert!(arena.reclaim(at - HEADROOM));
        assert_eq!(arena.available(), 5);
    }

    #[test]
    fn copy_in_refuses_packet_longer_than_frame() {
        let mut arena = arena();
        assert!(arena.copy_in(&[0; 2048 - 255]).is_none());
        assert_eq!(arena.available(), 4);
        let fits = arena.copy_in(&[9; 2048 - 256]).unwrap();
        assert_eq!(fits.len(), 2048 - 256);
        (0..3).for_each(|_| assert!(arena.alloc().is_some()));
        assert!(arena.alloc().is_none());
        assert!(arena.copy_in(&[]).is_none());
    }

    #[test]
    fn copy_moves_a_range_between_packets() {
        let mut arena = arena();
        let from = arena.copy_in(&[1, 2, 3, 4]).unwrap();
        let to = arena.copy_in(&[9; 5]).unwrap();
        arena.copy(&from, 1..3, &to, 3);
        assert_eq!(arena.bytes(&to), [9, 9, 9, 2, 3]);
        arena.copy(&from, 0..4, &to, 0);
        arena.copy(&from, 4..4, &to, 5);
        assert_eq!(arena.bytes(&to), [1, 2, 3, 4, 3]);
        assert_eq!(arena.bytes(&from), [1, 2, 3, 4]);
    }

    #[test]
    fn copy_beyond_a_packet_panics() {
        for (range, start) in [(0..5, 0), (0..2, 4), (0..1, 5), (4..5, 0), (0..0, usize::MAX)] {
            let copied = std::panic::catch_unwind(|| {
                let mut arena = arena();
                let from = arena.copy_in(&[1; 4]).unwrap();
                let to = arena.copy_in(&[9; 5]).unwrap();
                arena.copy(&from, range.clone(), &to, start);
            });
            assert!(copied.is_err(), "{range:?} to {start}");
        }
    }

    #[test]
    #[should_panic(expected = "foreign arena")]
    fn foreign_frame_panics_on_copy() {
        let mut other = arena();
        let (mut arena, foreign) = (arena(), other.copy_in(&[1; 4]).unwrap());
        let to = arena.copy_in(&[9; 4]).unwrap();
        arena.copy(&foreign, 0..4, &to, 0);
    }

    #[test]
    #[should_panic(expected = "foreign arena")]
    fn foreign_frame_panics_on_read() {
        let frame = arena().alloc().unwrap();
        let _ = arena().bytes(&frame);
    }

    #[test]
    #[should_panic(expected = "foreign arena")]
    fn foreign_frame_panics_on_free() {
        let frame = arena().alloc().unwrap();
        arena().free(frame);
    }

    #[test]
    fn long_frames_beyond_the_region_are_refused() {
        for (frames, long) in [(1, 1 << 18), (1 << 20, 1), (0, 1), (1, u32::MAX)] {
            let error = Arena::with_long_frames(frames, 4096, long).map(drop).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{frames} and {long}: {error}");
        }
    }

    #[test]
    fn invalid_arena_size_is_refused() {
        let beyond = [(1 << 22, 2048), ((1 << 20) + 1, 4096), (u32::MAX, 2048), (u32::MAX, 4096)];
        let odd = [(0, 2048), (4, 0), (4, 1024), (4, 3000), (4, 8192), (4, u32::MAX)];
        for (frames, size) in odd.into_iter().chain(beyond) {
            let error = Arena::new(frames, size).map(drop).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{frames} of {size}: {error}");
        }
    }
}
