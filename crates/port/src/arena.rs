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
//! Limits: frames of 2048 or 4096 bytes (what AF_XDP takes), 4 GiB in all.

mod region;
mod umem;

use std::io;
use std::ops::Range;

use crate::{Frame, HEADROOM};
use region::Region;
use umem::Umem;

/// Frames of one size, and the list of those that are free.
pub struct Arena {
    region: Region,
    /// Offsets of the free frames (their first byte, not their packet's).
    free: Vec<u32>,
    frames: u32,
    frame_size: u32,
    umem: Umem,
}

impl Arena {
    /// Creates an arena of `frames` frames of `frame_size` bytes, all free.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if `frame_size` is neither 2048 nor 4096, or `frames` is 0 or more than fit
    /// in 4 GiB; else the system's error of the memory allocation.
    pub fn new(frames: u32, frame_size: u32) -> io::Result<Self> {
        if frame_size != 2048 && frame_size != 4096 {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("a frame is 2048 or 4096 bytes, not {frame_size}"),
            ));
        }
        let region = Region::new(frames as usize * frame_size as usize)?;
        // Reversed, so that the first frames are used first.
        let free = (0..frames).rev().map(|frame| frame * frame_size).collect();
        Ok(Self { region, free, frames, frame_size, umem: Umem::default() })
    }

    /// Takes a free frame: an empty packet with [`HEADROOM`] in front of it.
    /// `None` when there is none.
    #[inline]
    pub fn alloc(&mut self) -> Option<Frame> {
        let at = self.free.pop()? + HEADROOM;
        Some(Frame { at, len: 0, tag: self.region.tag(), mark: 0 })
    }

    /// Returns a frame to the free list.
    ///
    /// # Panics
    ///
    /// If the frame is of another arena.
    #[inline]
    #[expect(clippy::needless_pass_by_value, reason = "the token ends here, by being taken")]
    pub fn free(&mut self, frame: Frame) {
        let Frame { at, tag, .. } = frame;
        let start = self.start(at, tag);
        // The list has the capacity for all frames, and frames cannot be forged, so this never
        // allocates.
        self.free.push(start);
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
        let room = self.frame_size - (frame.at - self.start(frame.at, frame.tag));
        let fits = len <= room as usize;
        if fits {
            frame.len = len as u32;
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
        let fits = bytes <= (frame.at - self.start(frame.at, frame.tag)) as usize;
        if fits {
            frame.at -= bytes as u32;
            frame.len += bytes as u32;
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
        let _ = self.start(frame.at, frame.tag);
        let fits = bytes < frame.len();
        if fits {
            frame.at += bytes as u32;
            frame.len -= bytes as u32;
        }
        fits
    }

    /// Takes a free frame and copies `packet` into it. `None` if no frame is
    /// free or the packet is longer than [`Arena::room`].
    #[inline]
    pub fn copy_in(&mut self, packet: &[u8]) -> Option<Frame> {
        if packet.len() > self.room() {
            return None;
        }
        let mut frame = self.alloc()?;
        frame.len = packet.len() as u32;
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

    /// Returns the number of free frames.
    #[inline]
    pub fn available(&self) -> usize {
        self.free.len()
    }

    /// Returns the number of frames, free or not.
    #[inline]
    pub fn capacity(&self) -> usize {
        self.frames as usize
    }

    /// Returns the size of a frame in bytes, headroom included.
    #[inline]
    pub fn frame_size(&self) -> usize {
        self.frame_size as usize
    }

    /// Returns the longest packet that fits behind the headroom, in bytes.
    #[inline]
    pub fn room(&self) -> usize {
        (self.frame_size - HEADROOM) as usize
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
        at & !(self.frame_size - 1)
    }
}

impl std::fmt::Debug for Arena {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Arena")
            .field("frames", &self.frames)
            .field("frame_size", &self.frame_size)
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
                std::iter::from_fn(|| arena.alloc()).map(|frame| frame.at).collect();
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
        assert_eq!(arena.alloc().map(|frame| frame.at % 2048), Some(HEADROOM));
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
    fn invalid_arena_size_is_refused() {
        let beyond = [(1 << 22, 2048), ((1 << 20) + 1, 4096), (u32::MAX, 2048), (u32::MAX, 4096)];
        let odd = [(0, 2048), (4, 0), (4, 1024), (4, 3000), (4, 8192), (4, u32::MAX)];
        for (frames, size) in odd.into_iter().chain(beyond) {
            let error = Arena::new(frames, size).map(drop).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{frames} of {size}: {error}");
        }
    }
}
