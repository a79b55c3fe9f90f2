//! The frame: the right to use one frame of an arena.
//!
//! It is a token, not the bytes: sixteen bytes that say where in the arena the
//! packet begins and how long it is. There is one token a frame; it cannot be
//! cloned and only an [`Arena`](crate::Arena) can make one, so who holds it
//! is the only one who may touch the frame. Dropping a token without
//! [`Arena::free`](crate::Arena::free) loses the frame until the arena goes.
//!
//! ```text
//!   frame of 2048 or 4096 bytes, aligned to its size
//!   ├── headroom, 256 ──┼── packet, len ──┼── tailroom ──┤
//!                       ▲ at
//! ```
//!
//! The headroom is what AF_XDP leaves in front of a received packet
//! (`XDP_PACKET_HEADROOM`); later encapsulations grow into it. Frames made by
//! [`Arena::alloc`](crate::Arena::alloc) have the same, so that there is one
//! layout.
//!
//! `tag` names the arena. It costs one comparison an access and makes the
//! claim above hold when a program has several arenas: a token is worth
//! nothing in another one.
//!
//! `mark` is what a worker that hands a packet over tells the other about it
//! (`handover/`), so that it need not be found out twice. Nobody else sets it.

/// Bytes in front of a packet in a fresh frame.
pub const HEADROOM: u32 = 256;

/// The right to use one frame of an [`Arena`](crate::Arena).
#[derive(Debug)]
#[must_use = "a frame that is dropped is lost to its arena; give it to Arena::free"]
pub struct Frame {
    /// Where the packet begins, in bytes from the start of the arena.
    pub(crate) at: u32,
    /// The packet's length in bytes.
    pub(crate) len: u32,
    /// The arena it belongs to.
    pub(crate) tag: u32,
    /// What was said of the packet when it was handed over.
    pub(crate) mark: u32,
}

impl Frame {
    /// Returns the packet's length in bytes, Ethernet header included.
    #[inline]
    #[expect(clippy::len_without_is_empty, reason = "a frame of length 0 is no special case")]
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Returns the number that the packet was handed over with; 0 where nobody did.
    #[inline]
    pub fn mark(&self) -> u32 {
        self.mark
    }
}

const _: () = assert!(size_of::<Frame>() == 16);
