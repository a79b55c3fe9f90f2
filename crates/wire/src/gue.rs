//! Generic UDP Encapsulation, variant 0 (draft-ietf-intarea-gue-09, 3): a header between UDP and
//! the payload.
//!
//! ```text
//!    0               1               2               3
//!   +---+-+---------+---------------+-------------------------------+
//!   | 0 |C|  Hlen   |  Proto/ctype  |             Flags             |
//!   +---+-+---------+---------------+-------------------------------+
//!   |        extension fields, by the flags │ private data          |
//!   +---------------------------------------------------------------+
//! ```
//!
//! `Hlen` counts the words of four bytes behind the first. The bytes that the flags do not describe
//! are private data, whose meaning the two ends define. Variant 1 has no header: there the first
//! four bits are the inner packet's version. Control messages (C) and extension fields are
//! rejected: a receiver that does not know a flag must drop the packet (3.4).

use crate::BadHeader;
use crate::octets::put;

/// The length of the header in bytes, without private data.
pub const LEN: usize = 4;
/// The most bytes of private data.
pub const MAX_PRIVATE: usize = 4 * 31;

/// A view over a header and its payload.
#[derive(Clone, Copy, Debug)]
pub struct View<T> {
    bytes: T,
}

impl<T: AsRef<[u8]>> View<T> {
    /// Parses `bytes` as a message of variant 0.
    ///
    /// # Errors
    ///
    /// [`BadHeader::Truncated`] if it ends within its header, [`BadHeader::Version`] of
    /// another variant, [`BadHeader::Kind`] of a control message or one with extension fields.
    #[inline]
    pub fn parse(bytes: T) -> Result<Self, BadHeader> {
        let view = Self { bytes };
        match *view.bytes.as_ref() {
            [first, ..] if first >> 6 != 0 => Err(BadHeader::Version),
            [first, _, flags, more, ..] => {
                if first & 0x20 != 0 || flags | more != 0 {
                    return Err(BadHeader::Kind);
                }
                if view.bytes.as_ref().len() < view.header_len() {
                    return Err(BadHeader::Truncated);
                }
                Ok(view)
            }
            _ => Err(BadHeader::Truncated),
        }
    }

    /// Returns the length of the header in bytes, private data included.
    #[inline]
    pub fn header_len(&self) -> usize {
        LEN + 4 * usize::from(self.bytes.as_ref()[0] & 0x1f)
    }

    /// Returns the protocol number of the payload.
    #[inline]
    pub fn protocol(&self) -> u8 {
        self.bytes.as_ref()[1]
    }

    /// Returns the private data.
    #[inline]
    pub fn private(&self) -> &[u8] {
        &self.bytes.as_ref()[LEN..self.header_len()]
    }

    /// Returns the payload.
    #[inline]
    pub fn payload(&self) -> &[u8] {
        &self.bytes.as_ref()[self.header_len()..]
    }
}

/// The header as values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header<'p> {
    /// The protocol number of the payload.
    pub protocol: u8,
    /// Private data, a multiple of 4 bytes and at most [`MAX_PRIVATE`].
    pub private: &'p [u8],
}

impl Header<'_> {
    /// Writes the header to the front of `bytes` and returns its length.
    ///
    /// # Errors
    ///
    /// [`BadHeader::Length`] if the private data is too long or no multiple of 4 bytes,
    /// [`BadHeader::Truncated`] if there is no room.
    #[inline]
    pub fn emit(&self, bytes: &mut [u8]) -> Result<usize, BadHeader> {
        let Self { protocol, private } = *self;
        if private.len() > MAX_PRIVATE || private.len() % 4 != 0 {
            return Err(BadHeader::Length);
        }
        let len = LEN + private.len();
        let header = bytes.get_mut(..len).ok_or(BadHeader::Truncated)?;
        put(header, 0, [(private.len() / 4) as u8, protocol, 0, 0]);
        header[LEN..].copy_from_slice(private);
        Ok(len)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::vec::Vec;

    use super::*;

    #[test]
    fn emitted_header_parses_back() {
        for words in 0..=31 {
            let private: Vec<u8> = (0..4 * words as u8).collect();
            let mut bytes = [0xee; LEN + MAX_PRIVATE + 3];
            let len = Header { protocol: 41, private: &private }.emit(&mut bytes).unwrap();
            let view = View::parse(&bytes[..]).unwrap();
            assert_eq!((view.header_len(), view.protocol()), (len, 41));
            assert_eq!((view.private(), view.payload()), (&private[..], &bytes[len..]));
            assert!((0..len).all(|cut| View::parse(&bytes[..cut]).is_err()));
        }
        let long = [0; MAX_PRIVATE + 4];
        for private in [&long[..], &long[..3]] {
            let mut bytes = [0; 256];
            assert_eq!(Header { protocol: 4, private }.emit(&mut bytes), Err(BadHeader::Length));
        }
    }

    #[test]
    fn control_messages_extensions_and_other_variants_are_refused() {
        assert!(View::parse([0, 4, 0, 0]).is_ok());
        assert_eq!(View::parse([0x20, 4, 0, 0]).unwrap_err(), BadHeader::Kind);
        for bit in 0..16u16 {
            let [flags, more] = (1_u16 << bit).to_be_bytes();
            assert_eq!(View::parse([0, 4, flags, more]).unwrap_err(), BadHeader::Kind);
        }
        for first in [0x45, 0x60, 0x80, 0xc0] {
            assert_eq!(View::parse([first, 4, 0, 0]).unwrap_err(), BadHeader::Version);
        }
        assert_eq!(View::parse([1, 4, 0, 0]).unwrap_err(), BadHeader::Truncated);
    }
}
