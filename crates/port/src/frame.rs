//! The frame: the right to use one frame of an arena.
//!
//! A frame is a token of sixteen bytes, not the packet's bytes: it states the packet's offset in
//! the arena and its length. There is one token a frame; it cannot be cloned, and only an
//! [`Arena`](crate::Arena) can create one, so only its holder may access the frame. Dropping a
//! token without [`Arena::free`](crate::Arena::free) loses the frame until the arena is dropped.
//!
//! ```text
//!   frame of 2048 or 4096 bytes, or of 16,384, aligned to its size
//!   ├── headroom, 256 ──┼── packet, len ──┼── tailroom ──┤
//!                       ▲ at
//! ```
//!
//! AF_XDP leaves the headroom in front of a received packet (`XDP_PACKET_HEADROOM`); encapsulations
//! grow into it. Frames made by [`Arena::alloc`](crate::Arena::alloc) have the same, so that there
//! is one layout.
//!
//! `tag` identifies the arena. It costs one comparison an access, and makes the exclusive access
//! sound in a program with several arenas: a token is invalid in another one.
//!
//! `mark` carries the classification of a packet from one worker to another (`handover/`), so that
//! it is not repeated. Only the handover sets it.

/// Bytes in front of a packet in a fresh frame.
pub const HEADROOM: u32 = 256;

/// The right to use one frame of an [`Arena`](crate::Arena).
#[derive(Debug)]
#[must_use = "a frame that is dropped is lost to its arena; give it to Arena::free"]
pub struct Frame {
    /// The offset of the packet, in bytes from the start of the arena.
    pub(crate) at: u32,
    /// The packet's length in bytes.
    pub(crate) len: u32,
    /// The arena it belongs to.
    pub(crate) tag: u32,
    /// The number that the packet was handed over with.
    pub(crate) mark: u32,
}

impl Frame {
    /// Returns the packet's length in bytes, Ethernet header included.
    #[inline]
    #[expect(clippy::len_without_is_empty, reason = "a frame of length 0 is no special case")]
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Returns the number that the packet was handed over with; 0 if it was not handed over.
    #[inline]
    pub fn mark(&self) -> u32 {
        self.mark
    }
}

const _: () = assert!(size_of::<Frame>() == 16);
