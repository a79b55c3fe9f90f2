//! The IPv4 header (RFC 791).
//!
//! ```text
//!    0               1               2               3
//!    0 1 2 3 4 5 6 7 0 1 2 3 4 5 6 7 0 1 2 3 4 5 6 7 0 1 2 3 4 5 6 7
//!   +-------+-------+-----------+---+-------------------------------+
//!   |   4   |  IHL  |   DSCP    |ECN|         total length          |
//!   +-------+-------+-----------+---+-----+-------------------------+
//!   |        identification         |0 D M|     fragment offset     |
//!   +---------------+---------------+-----+-------------------------+
//!   |      TTL      |   protocol    |        header checksum        |
//!   +---------------+---------------+-------------------------------+
//!   |                        source address                         |
//!   +---------------------------------------------------------------+
//!   |                      destination address                      |
//!   +---------------------------------------------------------------+
//!   |                  options, 0 to 40 bytes, padded               |
//!   +---------------------------------------------------------------+
//! ```
//!
//! `parse` makes the checks of RFC 1812, 5.2.2 for lengths and the version: at least 20 bytes,
//! version 4, IHL at least 5, total length at least the header's and at most the number of bytes.
//! Bytes beyond the total length are the link's padding and excluded from `payload`. The checksum
//! is checked separately ([`View::checksum_ok`]), because hardware may have checked it and because
//! a router counts a wrong one separately.

use crate::checksum::Sum;
use crate::octets::{put, u16_at, u32_at};
use crate::{BadHeader, checksum};

/// The length of a header without options, in bytes.
pub const LEN: usize = 20;
/// The most bytes of options.
pub const MAX_OPTIONS: usize = 40;

/// Flag: do not fragment.
pub const DONT_FRAGMENT: u8 = 0b010;
/// Flag: more fragments follow.
pub const MORE_FRAGMENTS: u8 = 0b001;

/// Reads the source, the destination and the total length of a packet's header, and checks nothing: for packets
/// that parse has accepted. `None` if there are fewer than 20 bytes.
#[inline(always)]
pub fn addresses(packet: &[u8]) -> Option<(u32, u32, u16)> {
    let header = packet.first_chunk::<LEN>()?;
    Some((u32_at(header, 12), u32_at(header, 16), u16_at(header, 2)))
}

/// A view over a packet.
#[derive(Clone, Copy, Debug)]
pub struct View<T> {
    bytes: T,
}

impl<T: AsRef<[u8]>> View<T> {
    /// Parses `bytes` as a packet, possibly followed by padding.
    ///
    /// # Errors
    ///
    /// [`BadHeader::Truncated`] below 20 bytes, below the header's length or below
    /// the total length; [`BadHeader::Version`] if that is not 4;
    /// [`BadHeader::HeaderLength`] if the IHL is below 5; [`BadHeader::Length`] if
    /// the total length is below the header's.
    #[inline]
    pub fn parse(bytes: T) -> Result<Self, BadHeader> {
        let shown = bytes.as_ref();
        if shown.len() < LEN {
            return Err(BadHeader::Truncated);
        }
        if shown[0] >> 4 != 4 {
            return Err(BadHeader::Version);
        }
        let header = usize::from(shown[0] & 0x0f) * 4;
        if header < LEN {
            return Err(BadHeader::HeaderLength);
        }
        let total = usize::from(u16_at(shown, 2));
        if total < header {
            return Err(BadHeader::Length);
        }
        if shown.len() < total {
            return Err(BadHeader::Truncated);
        }
        Ok(Self { bytes })
    }

    /// Returns whether the header checksum is right.
    #[inline]
    pub fn checksum_ok(&self) -> bool {
        let bytes = self.bytes.as_ref();
        match bytes.first_chunk::<LEN>() {
            // Nearly every header has no options; with a constant length the sum is five additions.
            Some(header) if header[0] == 0x45 => checksum::is_valid(header),
            _ => checksum::is_valid(&bytes[..self.header_len()]),
        }
    }

    /// Returns the header's length in bytes, 20 to 60.
    #[inline]
    pub fn header_len(&self) -> usize {
        usize::from(self.bytes.as_ref()[0] & 0x0f) * 4
    }

    /// Returns the type of service: DSCP in the upper six bits, ECN in the lower two.
    #[inline]
    pub fn tos(&self) -> u8 {
        self.bytes.as_ref()[1]
    }

    /// Returns the length of header and payload in bytes.
    #[inline]
    pub fn total_len(&self) -> u16 {
        u16_at(self.bytes.as_ref(), 2)
    }

    /// Returns the identification, equal among the fragments of one packet.
    #[inline]
    pub fn id(&self) -> u16 {
        u16_at(self.bytes.as_ref(), 4)
    }

    /// Returns the three flags: reserved, [`DONT_FRAGMENT`], [`MORE_FRAGMENTS`].
    #[inline]
    pub fn flags(&self) -> u8 {
        self.bytes.as_ref()[6] >> 5
    }

    /// Returns the fragment's offset in the packet, in units of 8 bytes.
    #[inline]
    pub fn fragment_offset(&self) -> u16 {
        u16_at(self.bytes.as_ref(), 6) & 0x1fff
    }

    /// Returns whether this is a fragment.
    #[inline]
    pub fn is_fragment(&self) -> bool {
        u16_at(self.bytes.as_ref(), 6) & 0x3fff != 0
    }

    /// Returns the time to live.
    #[inline]
    pub fn ttl(&self) -> u8 {
        self.bytes.as_ref()[8]
    }

    /// Returns the protocol of the payload.
    #[inline]
    pub fn protocol(&self) -> u8 {
        self.bytes.as_ref()[9]
    }

    /// Returns the header checksum field.
    #[inline]
    pub fn checksum(&self) -> u16 {
        u16_at(self.bytes.as_ref(), 10)
    }

    /// Returns the source address.
    #[inline]
    pub fn src(&self) -> u32 {
        u32_at(self.bytes.as_ref(), 12)
    }

    /// Returns the destination address.
    #[inline]
    pub fn dst(&self) -> u32 {
        u32_at(self.bytes.as_ref(), 16)
    }

    /// Returns the options, padding included.
    #[inline]
    pub fn options(&self) -> &[u8] {
        &self.bytes.as_ref()[LEN..self.header_len()]
    }

    /// Returns the payload, without the link's padding.
    #[inline]
    pub fn payload(&self) -> &[u8] {
        &self.bytes.as_ref()[self.header_len()..usize::from(self.total_len())]
    }

    /// Reads all fields except the checksum, which [`Header::emit`] computes.
    pub fn header(&self) -> Header<'_> {
        Header {
            tos: self.tos(),
            total_len: self.total_len(),
            id: self.id(),
            flags: self.flags(),
            fragment_offset: self.fragment_offset(),
            ttl: self.ttl(),
            protocol: self.protocol(),
            src: self.src(),
            dst: self.dst(),
            options: self.options(),
        }
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> View<T> {
    /// Decrements the TTL, which must not be 0, and updates the checksum (RFC 1624).
    #[inline]
    pub fn decrement_ttl(&mut self) {
        let old = u16_at(self.bytes.as_ref(), 8);
        let new = old.wrapping_sub(0x0100);
        let sum = checksum::update(self.checksum(), old, new);
        put(self.bytes.as_mut(), 8, new.to_be_bytes());
        put(self.bytes.as_mut(), 10, sum.to_be_bytes());
    }

    /// Sets the TTL, and updates the checksum (RFC 1624).
    #[inline]
    pub fn set_ttl(&mut self, ttl: u8) {
        let old = u16_at(self.bytes.as_ref(), 8);
        let new = u16::from(ttl) << 8 | old & 0x00ff;
        let sum = checksum::update(self.checksum(), old, new);
        put(self.bytes.as_mut(), 8, new.to_be_bytes());
        put(self.bytes.as_mut(), 10, sum.to_be_bytes());
    }

    /// Sets the type of service, DSCP and ECN, and updates the checksum.
    #[inline]
    pub fn set_tos(&mut self, tos: u8) {
        let old = u16_at(self.bytes.as_ref(), 0);
        let new = old & 0xff00 | u16::from(tos);
        let sum = checksum::update(self.checksum(), old, new);
        put(self.bytes.as_mut(), 0, new.to_be_bytes());
        put(self.bytes.as_mut(), 10, sum.to_be_bytes());
    }

    /// Sets the source address and updates the header checksum.
    #[inline]
    pub fn set_src(&mut self, src: u32) {
        let sum = checksum::update32(self.checksum(), self.src(), src);
        put(self.bytes.as_mut(), 12, src.to_be_bytes());
        put(self.bytes.as_mut(), 10, sum.to_be_bytes());
    }

    /// Sets the destination address and updates the header checksum.
    #[inline]
    pub fn set_dst(&mut self, dst: u32) {
        let sum = checksum::update32(self.checksum(), self.dst(), dst);
        put(self.bytes.as_mut(), 16, dst.to_be_bytes());
        put(self.bytes.as_mut(), 10, sum.to_be_bytes());
    }

    /// Computes the header checksum from scratch and sets it.
    pub fn fill_checksum(&mut self) {
        let len = self.header_len();
        put(self.bytes.as_mut(), 10, [0, 0]);
        let sum = checksum::checksum(&self.bytes.as_ref()[..len]);
        put(self.bytes.as_mut(), 10, sum.to_be_bytes());
    }
}

/// The fields of the header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header<'a> {
    /// DSCP in the upper six bits, ECN in the lower two.
    pub tos: u8,
    /// The length of header and payload in bytes.
    pub total_len: u16,
    /// The identification.
    pub id: u16,
    /// The three flags.
    pub flags: u8,
    /// The fragment's offset, in units of 8 bytes, 13 bits.
    pub fragment_offset: u16,
    /// The time to live.
    pub ttl: u8,
    /// The protocol of the payload.
    pub protocol: u8,
    /// The source address.
    pub src: u32,
    /// The destination address.
    pub dst: u32,
    /// The options, a multiple of 4 bytes, at most 40.
    pub options: &'a [u8],
}

impl Header<'_> {
    /// Writes the header with its checksum and returns its length.
    ///
    /// # Errors
    ///
    /// [`BadHeader::HeaderLength`] if the options are not a multiple of 4 bytes or
    /// too many, [`BadHeader::Length`] if the total length is below the header's or
    /// a value is too large for its field, [`BadHeader::Truncated`] if there is no
    /// room for the header.
    // Inlined into its caller, where most fields are constants: fields that go through memory are
    // read back in other sizes than they were stored in (`fingerpost-bench gate --worker`: 4 % of
    // all packets).
    #[inline(always)]
    pub fn emit(&self, bytes: &mut [u8]) -> Result<usize, BadHeader> {
        if !self.options.len().is_multiple_of(4) || self.options.len() > MAX_OPTIONS {
            return Err(BadHeader::HeaderLength);
        }
        let len = LEN + self.options.len();
        if usize::from(self.total_len) < len || self.flags > 7 || self.fragment_offset > 0x1fff {
            return Err(BadHeader::Length);
        }
        let bytes = bytes.get_mut(..len).ok_or(BadHeader::Truncated)?;
        bytes[0] = 0x40 | (len / 4) as u8;
        bytes[1] = self.tos;
        put(bytes, 2, self.total_len.to_be_bytes());
        put(bytes, 4, self.id.to_be_bytes());
        let fragment = u16::from(self.flags) << 13 | self.fragment_offset;
        put(bytes, 6, fragment.to_be_bytes());
        bytes[8] = self.ttl;
        bytes[9] = self.protocol;
        put(bytes, 12, self.src.to_be_bytes());
        put(bytes, 16, self.dst.to_be_bytes());
        bytes[LEN..].copy_from_slice(self.options);
        // From the fields: reading the just written bytes back as words would wait until all stores
        // have reached the cache.
        let sum = Sum::ZERO
            .word(u16::from_be_bytes([0x40 | (len / 4) as u8, self.tos]))
            .word(self.total_len)
            .word(self.id)
            .word(fragment)
            .word(u16::from_be_bytes([self.ttl, self.protocol]))
            .bytes(&self.src.to_be_bytes())
            .bytes(&self.dst.to_be_bytes())
            .bytes(self.options);
        put(bytes, 10, sum.checksum().to_be_bytes());
        Ok(len)
    }
}
