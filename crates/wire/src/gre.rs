//! Generic Routing Encapsulation, version 0 (RFC 2784, RFC 2890): a header between IP and the payload.
//!
//! ```text
//!    0               1               2               3
//!   +-+-+-+-+---------------+-----+-------------------------------+
//!   |C|0|K|S|   reserved    | Ver |            Protocol           |
//!   +-+-+-+-+---------------+-----+-------------------------------+
//!   |          checksum (C)         |           reserved          |
//!   |                            key (K)                          |
//!   |                      sequence number (S)                    |
//!   +-------------------------------------------------------------+
//! ```
//!
//! A field is there if its bit is set, in this order. The second bit announced source routes (RFC 1701);
//! RFC 2784 (2.3) lets a receiver drop such packets. The checksum is not verified.

use crate::BadHeader;
use crate::octets::{put, u16_at, u32_at};

/// The length of the header in bytes, without the fields that may be absent.
pub const LEN: usize = 4;

/// The protocol number of GRE.
pub const PROTOCOL: u8 = 47;

/// The type of a payload that is an Ethernet frame (RFC 7637, 3.2).
pub const ETHERNET: u16 = 0x6558;

const CHECKSUM: u8 = 0x80;
const ROUTES: u8 = 0x40;
const KEY: u8 = 0x20;
const SEQUENCE: u8 = 0x10;

/// A view over a header and its payload.
#[derive(Clone, Copy, Debug)]
pub struct View<T> {
    bytes: T,
}

impl<T: AsRef<[u8]>> View<T> {
    /// Parses `bytes` as a packet of version 0.
    ///
    /// # Errors
    ///
    /// [`BadHeader::Truncated`] if it ends within its header, [`BadHeader::Version`] of another version,
    /// [`BadHeader::Kind`] of a packet with source routes.
    #[inline]
    pub fn parse(bytes: T) -> Result<Self, BadHeader> {
        let view = Self { bytes };
        let Some(&[flags, version, ..]) = view.bytes.as_ref().first_chunk::<LEN>() else {
            return Err(BadHeader::Truncated);
        };
        if version & 7 != 0 {
            return Err(BadHeader::Version);
        }
        if flags & ROUTES != 0 {
            return Err(BadHeader::Kind);
        }
        if view.bytes.as_ref().len() < view.header_len() {
            return Err(BadHeader::Truncated);
        }
        Ok(view)
    }

    /// Returns the length of the header in bytes.
    #[inline]
    pub fn header_len(&self) -> usize {
        self.offset(CHECKSUM | KEY | SEQUENCE)
    }

    /// Returns the length of the header with those of these fields that are there.
    fn offset(&self, fields: u8) -> usize {
        LEN + 4 * (self.bytes.as_ref()[0] & fields).count_ones() as usize
    }

    /// Returns the type of the payload, an EtherType.
    #[inline]
    pub fn kind(&self) -> u16 {
        u16_at(self.bytes.as_ref(), 2)
    }

    /// Returns the key.
    pub fn key(&self) -> Option<u32> {
        self.word(KEY, CHECKSUM)
    }

    /// Returns the sequence number.
    pub fn sequence(&self) -> Option<u32> {
        self.word(SEQUENCE, CHECKSUM | KEY)
    }

    /// Returns the field with this bit, behind those with the bits `before`.
    fn word(&self, field: u8, before: u8) -> Option<u32> {
        let bytes = self.bytes.as_ref();
        (bytes[0] & field != 0).then(|| u32_at(bytes, self.offset(before)))
    }

    /// Returns the payload.
    #[inline]
    pub fn payload(&self) -> &[u8] {
        &self.bytes.as_ref()[self.header_len()..]
    }
}

/// The header as values, without a checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The type of the payload, an EtherType.
    pub kind: u16,
    /// The key.
    pub key: Option<u32>,
    /// The sequence number.
    pub sequence: Option<u32>,
}

impl Header {
    /// Writes the header to the front of `bytes` and returns its length.
    ///
    /// # Errors
    ///
    /// [`BadHeader::Truncated`] if there is no room.
    pub fn emit(&self, bytes: &mut [u8]) -> Result<usize, BadHeader> {
        let Self { kind, key, sequence } = *self;
        let words = [(KEY, key), (SEQUENCE, sequence)];
        let present = || words.into_iter().filter_map(|(bit, word)| Some((bit, word?)));
        let len = LEN + 4 * present().count();
        let header = bytes.get_mut(..len).ok_or(BadHeader::Truncated)?;
        put(header, 0, [present().fold(0, |flags, (bit, _)| flags | bit), 0]);
        put(header, 2, kind.to_be_bytes());
        for (at, (_, word)) in (LEN..).step_by(4).zip(present()) {
            put(header, at, word.to_be_bytes());
        }
        Ok(len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn emitted_header_parses_back() {
        for key in [None, Some(0x0102_0304)] {
            for sequence in [None, Some(7)] {
                let header = Header { kind: 0x0800, key, sequence };
                let mut bytes = [0xee; LEN + 8 + 3];
                let len = header.emit(&mut bytes).unwrap();
                let view = View::parse(&bytes[..]).unwrap();
                let read = Header { kind: view.kind(), key: view.key(), sequence: view.sequence() };
                assert_eq!((read, view.header_len()), (header, len));
                assert_eq!(view.payload(), &bytes[len..]);
                for cut in 0..len {
                    assert_eq!(View::parse(&bytes[..cut]).unwrap_err(), BadHeader::Truncated);
                    assert_eq!(header.emit(&mut bytes[..cut]), Err(BadHeader::Truncated));
                }
            }
        }
    }

    /// The packet is the one that scapy makes:
    /// `GRE(chksum_present=1, key_present=1, seqnum_present=1, key=0x1020304, seqence_number=9, proto=0x86dd)`.
    #[test]
    fn fields_behind_a_checksum_are_read() {
        let bytes = [0xb0, 0, 0x86, 0xdd, 0x65, 0x12, 0, 0, 1, 2, 3, 4, 0, 0, 0, 9, 0x60];
        let view = View::parse(&bytes[..]).unwrap();
        assert_eq!(
            (view.kind(), view.key(), view.sequence()),
            (0x86dd, Some(0x0102_0304), Some(9))
        );
        assert_eq!(view.payload(), [0x60]);
    }

    #[test]
    fn other_versions_and_source_routes_are_refused() {
        assert_eq!(View::parse([0x20, 1, 0x88, 0x0b, 0, 0, 0, 1]).unwrap_err(), BadHeader::Version);
        assert_eq!(View::parse([0x40, 0, 8, 0, 0, 0, 0, 0]).unwrap_err(), BadHeader::Kind);
    }
}
