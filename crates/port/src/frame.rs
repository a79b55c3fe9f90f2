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
///
/// Two words, which the compiler passes, returns and moves in two registers. It passes four numbers of the
/// same size through memory.
#[must_use = "a frame that is dropped is lost to its arena; give it to Arena::free"]
pub struct Frame {
    /// Lower half: the offset of the packet, in bytes from the start of the arena. Upper half: the packet's
    /// length in bytes.
    packet: u64,
    /// Lower half: the tag of the arena it belongs to. Upper half: the number that the packet was handed over
    /// with.
    owner: u64,
}

impl Frame {
    /// Makes the token of a frame with a packet of `len` bytes at offset `at` of the arena with this tag.
    #[inline(always)]
    pub(crate) fn new(at: u32, len: u32, tag: u32) -> Self {
        Self { packet: pack(at, len), owner: tag.into() }
    }

    /// Returns the offset of the packet.
    #[inline(always)]
    pub(crate) fn at(&self) -> u32 {
        self.packet as u32
    }

    /// Returns the tag of the arena.
    #[inline(always)]
    pub(crate) fn tag(&self) -> u32 {
        self.owner as u32
    }

    /// Returns the frame with a packet of `len` bytes at the same offset.
    #[inline(always)]
    pub(crate) fn with_len(self, len: u32) -> Self {
        Self { packet: pack(self.at(), len), ..self }
    }

    /// Sets the packet's offset and length.
    #[inline(always)]
    pub(crate) fn set_packet(&mut self, at: u32, len: u32) {
        self.packet = pack(at, len);
    }

    /// Sets the number that the packet is handed over with.
    #[inline(always)]
    pub(crate) fn set_mark(&mut self, mark: u32) {
        self.owner = pack(self.tag(), mark);
    }

    /// Returns the packet's length in bytes, Ethernet header included.
    #[inline]
    #[expect(clippy::len_without_is_empty, reason = "a frame of length 0 is no special case")]
    pub fn len(&self) -> usize {
        (self.packet >> 32) as usize
    }

    /// Returns the number that the packet was handed over with; 0 if it was not handed over.
    #[inline]
    pub fn mark(&self) -> u32 {
        (self.owner >> 32) as u32
    }
}

impl std::fmt::Debug for Frame {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Frame")
            .field("at", &self.at())
            .field("len", &self.len())
            .field("tag", &self.tag())
            .field("mark", &self.mark())
            .finish()
    }
}

/// Returns a word of two halves.
#[inline(always)]
fn pack(low: u32, high: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

const _: () = assert!(size_of::<Frame>() == 16);
