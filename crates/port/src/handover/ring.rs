//! A ring of packets, one behind the other as bytes, from one thread to another.
//!
//! ```text
//!   │ length:2 │ mark:4 │ packet … │ length:2 │ mark:4 │ packet … │      of `rtrb`, wait-free
//! ```
//!
//! Short packets take little room, so that a flood of them has many before there is none. The
//! length is seen before the packet is whole; who reads waits for all of it.

use rtrb::{Consumer, Producer, RingBuffer};

use crate::{Arena, Frame};

/// Bytes of the length and the mark.
const HEAD: usize = 6;

/// The end that packets go into.
#[derive(Debug)]
pub(super) struct Writer(Producer<u8>);

/// The end that they come out of.
#[derive(Debug)]
pub(super) struct Reader(Consumer<u8>);

/// What came out.
pub(super) enum PopResult {
    /// A packet, in a frame of the arena.
    Packet(Frame),
    /// One that is longer than the arena's frames; it is gone.
    TooLong,
    /// None is there, or there is no frame for it.
    Empty,
}

/// Makes a ring of at least so many bytes.
pub(super) fn ring(bytes: usize) -> (Writer, Reader) {
    let (writer, reader) = RingBuffer::new(bytes);
    (Writer(writer), Reader(reader))
}

impl Writer {
    /// Appends a packet with its mark, and says whether there was room.
    #[inline]
    pub(super) fn push(&mut self, mark: u32, packet: &[u8]) -> bool {
        let Ok(len) = u16::try_from(packet.len()) else { return false };
        if self.0.is_abandoned() || self.0.slots() < HEAD + packet.len() {
            return false;
        }
        // Both find the room that there was.
        let ([a, b], [c, d, e, f]) = (len.to_le_bytes(), mark.to_le_bytes());
        let head = self.0.push_entire_slice(&[a, b, c, d, e, f]);
        head.is_ok() && self.0.push_entire_slice(packet).is_ok()
    }
}

impl Reader {
    /// Takes the oldest packet, if it is all there and a frame is free.
    #[inline]
    pub(super) fn pop(&mut self, arena: &mut Arena) -> PopResult {
        let Ok(head) = self.0.read_chunk(HEAD) else { return PopResult::Empty };
        let (first, second) = head.as_slices();
        let mut head = [0; HEAD];
        for (to, byte) in head.iter_mut().zip(first.iter().chain(second)) {
            *to = *byte;
        }
        let [a, b, c, d, e, f] = head;
        let len = usize::from(u16::from_le_bytes([a, b]));
        let Ok(chunk) = self.0.read_chunk(HEAD + len) else { return PopResult::Empty };
        if len > arena.room() {
            chunk.commit_all();
            return PopResult::TooLong;
        }
        let Some(mut frame) = arena.alloc() else { return PopResult::Empty };
        arena.resize(&mut frame, len);
        frame.mark = u32::from_le_bytes([c, d, e, f]);
        let (first, second) = chunk.as_slices();
        // The head may lie across the end of the ring.
        let (first, second) = match first.len().checked_sub(HEAD) {
            Some(_) => (&first[HEAD..], second),
            None => (&[][..], &second[HEAD - first.len()..]),
        };
        let (here, there) = arena.bytes_mut(&frame).split_at_mut(first.len());
        here.copy_from_slice(first);
        there.copy_from_slice(second);
        chunk.commit_all();
        PopResult::Packet(frame)
    }

    /// Returns whether anything is in it.
    pub(super) fn has_any(&self) -> bool {
        !self.0.is_empty()
    }
}
