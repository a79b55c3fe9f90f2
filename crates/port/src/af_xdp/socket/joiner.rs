//! Joins the buffers of a received packet that exceeds one of them (`XDP_USE_SG`), in a long frame.
//!
//! ```text
//!   receive ring │ buffer, continued │ buffer, continued │ buffer │ next packet │
//!                        └───────────────────┴──────────────┴──► long frame
//! ```
//!
//! The bytes are copied, so that everything behind it sees one slice, and the buffers return to the arena at once.
//!
//! A packet is lost if no long frame is free, or if it exceeds one: the rest of its buffers is freed.

use crate::{Arena, Frame};

/// The packet whose buffers are arriving.
#[derive(Debug, Default)]
pub(super) enum Joiner {
    /// None.
    #[default]
    Idle,
    /// One, with what has arrived of it.
    Joining(Frame),
    /// One that is lost.
    Discarding,
}

/// The result of a further buffer.
#[derive(Debug)]
pub(super) enum Joined {
    /// More of its packet is to come.
    Partly,
    /// It was the last one of this packet.
    Packet(Frame),
    /// It was the last one of a lost packet.
    Lost,
}

impl Joiner {
    /// Returns whether the next buffer begins a packet.
    #[inline]
    pub(super) fn is_idle(&self) -> bool {
        matches!(self, Self::Idle)
    }

    /// Returns the number of frames that it holds.
    pub(super) fn held(&self) -> usize {
        usize::from(matches!(self, Self::Joining(_)))
    }

    /// Appends a buffer to its packet.
    #[cold]
    pub(super) fn join(&mut self, arena: &mut Arena, buffer: Frame, is_last: bool) -> Joined {
        let before = match std::mem::take(self) {
            // A long one from the beginning, since more is to come.
            Self::Idle => arena.alloc_for(arena.room()).map(|frame| frame.with_len(0)),
            Self::Joining(frame) => Some(frame),
            Self::Discarding => None,
        };
        let joined = before.and_then(|mut frame| {
            let len = frame.len();
            if !arena.resize(&mut frame, len + buffer.len()) {
                arena.free(frame);
                return None;
            }
            arena.copy(&buffer, 0..buffer.len(), &frame, len);
            Some(frame)
        });
        arena.free(buffer);
        match (joined, is_last) {
            (Some(frame), true) => Joined::Packet(frame),
            (None, true) => Joined::Lost,
            (Some(frame), false) => {
                *self = Self::Joining(frame);
                Joined::Partly
            }
            (None, false) => {
                *self = Self::Discarding;
                Joined::Partly
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Passes a packet in buffers of 3840 bytes.
    fn pass(joiner: &mut Joiner, arena: &mut Arena, packet: &[u8]) -> Joined {
        let buffers = packet.chunks(3840).collect::<Vec<_>>();
        for (n, bytes) in buffers.iter().enumerate() {
            let buffer = arena.copy_in(bytes).expect("a free frame");
            let joined = joiner.join(arena, buffer, n + 1 == buffers.len());
            if n + 1 == buffers.len() {
                return joined;
            }
            assert!(matches!(joined, Joined::Partly) && !joiner.is_idle());
        }
        unreachable!("a packet has bytes")
    }

    #[test]
    fn buffers_become_one_packet() {
        let mut arena = Arena::with_long_frames(8, 4096, 1).unwrap();
        let mut joiner = Joiner::default();
        for len in [3841, 9014, 3 * 3840, 16_128] {
            let packet: Vec<u8> = (0..len).map(|n| (n % 251) as u8).collect();
            let Joined::Packet(frame) = pass(&mut joiner, &mut arena, &packet) else {
                panic!("{len}: there is room")
            };
            assert_eq!(arena.bytes(&frame), packet);
            assert_eq!((arena.available(), joiner.is_idle(), joiner.held()), (8, true, 0));
            arena.free(frame);
        }
    }

    #[test]
    fn packet_without_room_is_lost_and_the_next_is_not() {
        let mut arena = Arena::with_long_frames(8, 4096, 1).unwrap();
        let mut joiner = Joiner::default();
        // Longer than a long frame.
        assert!(matches!(pass(&mut joiner, &mut arena, &[1; 16_129]), Joined::Lost));
        assert_eq!((arena.available(), joiner.is_idle()), (9, true));
        // No long frame.
        let taken = arena.alloc_for(5000).unwrap();
        assert!(matches!(pass(&mut joiner, &mut arena, &[1; 9000]), Joined::Lost));
        assert_eq!((arena.available(), joiner.is_idle()), (8, true));
        arena.free(taken);
        let first = arena.copy_in(&[1; 3840]).unwrap();
        assert!(matches!(joiner.join(&mut arena, first, false), Joined::Partly));
        assert_eq!(arena.available() + joiner.held(), 9);
        let last = arena.copy_in(&[2; 10]).unwrap();
        let Joined::Packet(frame) = joiner.join(&mut arena, last, true) else {
            panic!("there is room again")
        };
        assert_eq!(arena.bytes(&frame)[3839..], [1, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2]);
        arena.free(frame);
        assert_eq!(arena.available(), 9);
    }
}
