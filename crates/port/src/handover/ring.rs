//! A ring of bytes that carries packets from one thread to another.
//!
//! ```text
//!   │ length:2 │ mark:4 │ packet … │ length:2 │ mark:4 │ packet … │      of `rtrb`, wait-free
//! ```
//!
//! Short packets take little room, so that the ring holds many of them in a flood. The length is
//! visible before the packet is complete; the reader waits for all of it.

use rtrb::{Consumer, Producer, RingBuffer};

use crate::{Arena, Frame};

/// The size of length and mark in bytes.
const HEADER: usize = 6;

/// The writing end.
#[derive(Debug)]
pub(super) struct Writer(Producer<u8>);

/// The reading end.
#[derive(Debug)]
pub(super) struct Reader(Consumer<u8>);

/// The result of a read.
pub(super) enum PopResult {
    /// A packet, in a frame of the arena.
    Packet(Frame),
    /// A packet longer than the arena's frames; it was dropped.
    TooLong,
    /// No packet, or no free frame for it.
    Empty,
}

/// Creates a ring of at least this many bytes.
pub(super) fn ring(bytes: usize) -> (Writer, Reader) {
    let (writer, reader) = RingBuffer::new(bytes);
    (Writer(writer), Reader(reader))
}

impl Writer {
    /// Appends a packet with its mark, and returns whether there was room.
    #[inline]
    pub(super) fn push(&mut self, mark: u32, packet: &[u8]) -> bool {
        let Ok(len) = u16::try_from(packet.len()) else { return false };
        if self.0.is_abandoned() || self.0.slots() < HEADER + packet.len() {
            return false;
        }
        // There is room for both.
        let ([a, b], [c, d, e, f]) = (len.to_le_bytes(), mark.to_le_bytes());
        let head = self.0.push_entire_slice(&[a, b, c, d, e, f]);
        head.is_ok() && self.0.push_entire_slice(packet).is_ok()
    }
}

impl Reader {
    /// Takes the oldest packet, if it is complete and a frame is free.
    #[inline]
    pub(super) fn pop(&mut self, arena: &mut Arena) -> PopResult {
        let Ok(head) = self.0.read_chunk(HEADER) else { return PopResult::Empty };
        let (first, second) = head.as_slices();
        let mut head = [0; HEADER];
        for (to, byte) in head.iter_mut().zip(first.iter().chain(second)) {
            *to = *byte;
        }
        let [a, b, c, d, e, f] = head;
        let len = usize::from(u16::from_le_bytes([a, b]));
        let Ok(chunk) = self.0.read_chunk(HEADER + len) else { return PopResult::Empty };
        if len > arena.room() {
            chunk.commit_all();
            return PopResult::TooLong;
        }
        let Some(mut frame) = arena.alloc_for(len) else { return PopResult::Empty };
        frame.set_mark(u32::from_le_bytes([c, d, e, f]));
        let (first, second) = chunk.as_slices();
        // The header may wrap at the end of the ring.
        let (first, second) = match first.len().checked_sub(HEADER) {
            Some(_) => (&first[HEADER..], second),
            None => (&[][..], &second[HEADER - first.len()..]),
        };
        let (here, there) = arena.bytes_mut(&frame).split_at_mut(first.len());
        here.copy_from_slice(first);
        there.copy_from_slice(second);
        chunk.commit_all();
        PopResult::Packet(frame)
    }

    /// Returns whether the ring has data.
    pub(super) fn has_any(&self) -> bool {
        !self.0.is_empty()
    }
}
