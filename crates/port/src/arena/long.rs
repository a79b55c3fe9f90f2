//! Long frames: room for packets that exceed a frame of the usual size.
//!
//! ```text
//!   arena  │ frame │ frame │ … │ long frame                │ long frame                │ …
//!                              ├ chunk ┼ chunk ┼ … ┼ chunk ┤ chunks of the size of a frame
//! ```
//!
//! AF_XDP has no chunks larger than a page; a longer packet is received and sent in several buffers
//! (`XDP_USE_SG`). Here it lies in consecutive chunks, so that its bytes are one slice, as those of any
//! other packet: it is copied here when it is received, and its chunks are sent as the buffers of one packet.
//!
//! Invariant: a long frame is on the free list, or one [`Frame`](crate::Frame) of it exists, or the kernel
//! has `sent` of its chunks.

/// The size of a long frame in bytes, headroom included: a power of two, and a multiple of both sizes of a frame.
pub const LONG_FRAME: u32 = 16_384;

/// The long frames at the end of an arena.
#[derive(Debug)]
pub(super) struct LongFrames {
    /// The offset of the first; `u32::MAX`, which is the offset of no packet, if there are none.
    start: u32,
    /// Offsets of the free ones.
    free: Vec<u32>,
    /// The number of chunks of each that the kernel has for sending.
    sent: Vec<u8>,
}

impl LongFrames {
    /// Creates `count` free ones from `start` on, a multiple of [`LONG_FRAME`].
    pub(super) fn new(start: u32, count: u32) -> Self {
        let free = (0..count).rev().map(|frame| start + frame * LONG_FRAME).collect();
        let start = if count == 0 { u32::MAX } else { start };
        Self { start, free, sent: vec![0; count as usize] }
    }

    /// Returns whether this offset is in a long frame.
    #[inline]
    pub(super) fn contain(&self, at: u32) -> bool {
        at >= self.start
    }

    /// Takes a free one: its offset.
    pub(super) fn pop(&mut self) -> Option<u32> {
        self.free.pop()
    }

    /// Returns one to the free list.
    #[cold]
    pub(super) fn push(&mut self, start: u32) {
        // The list has the capacity for all.
        self.free.push(start);
    }

    /// Returns the number of free ones.
    pub(super) fn available(&self) -> usize {
        self.free.len()
    }

    /// Returns the number of long frames.
    pub(super) fn capacity(&self) -> usize {
        self.sent.len()
    }

    /// Records that the kernel has this number of chunks of the frame at `start`.
    pub(super) fn lend(&mut self, start: u32, chunks: u8) {
        let number = self.number(start);
        if let Some(sent) = self.sent.get_mut(number) {
            *sent = chunks;
        }
    }

    /// Records that the kernel has returned a chunk, and returns whether the frame is free with it.
    #[cold]
    pub(super) fn reclaim(&mut self, chunk: u32) -> bool {
        let number = self.number(chunk);
        let Some(sent) = self.sent.get_mut(number).filter(|sent| **sent > 0) else { return false };
        *sent -= 1;
        let is_free = *sent == 0;
        if is_free {
            self.push(self.start + number as u32 * LONG_FRAME);
        }
        is_free
    }

    fn number(&self, at: u32) -> usize {
        (at.wrapping_sub(self.start) / LONG_FRAME) as usize
    }
}
