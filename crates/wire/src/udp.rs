//! The UDP header (RFC 768; RFC 8200, 8.1 over IPv6).
//!
//! ```text
//!    0               1               2               3
//!   +-------------------------------+-------------------------------+
//!   |          source port          |       destination port        |
//!   +-------------------------------+-------------------------------+
//!   |            length             |           checksum            |
//!   +-------------------------------+-------------------------------+
//! ```
//!
//! The length counts the header. The checksum covers a pseudo header; a computed 0 is sent as
//! 0xffff, and 0 means no checksum, which only IPv4 allows.

use crate::BadHeader;
use crate::checksum::Sum;
use crate::octets::{put, u16_at};

/// The length of the header in bytes.
pub const LEN: usize = 8;
/// The protocol number.
pub const PROTOCOL: u8 = 17;

/// A view over a datagram.
#[derive(Clone, Copy, Debug)]
pub struct View<T> {
    bytes: T,
}

impl<T: AsRef<[u8]>> View<T> {
    /// Parses `bytes` as a datagram.
    ///
    /// # Errors
    ///
    /// [`BadHeader::Truncated`] below 8 bytes or below the length field's,
    /// [`BadHeader::Length`] if that is below 8.
    #[inline]
    pub fn parse(bytes: T) -> Result<Self, BadHeader> {
        let shown = bytes.as_ref();
        if shown.len() < LEN {
            return Err(BadHeader::Truncated);
        }
        let len = usize::from(u16_at(shown, 4));
        if len < LEN {
            return Err(BadHeader::Length);
        }
        if shown.len() < len {
            return Err(BadHeader::Truncated);
        }
        Ok(Self { bytes })
    }

    /// Returns whether the checksum over `pseudo` and the whole datagram is right, or
    /// absent: over IPv6 the caller must refuse an absent one.
    pub fn checksum_ok(&self, pseudo: Sum) -> bool {
        self.checksum() == 0 || pseudo.bytes(self.datagram()).fold() == 0xffff
    }

    /// Returns the source port.
    #[inline]
    pub fn src_port(&self) -> u16 {
        u16_at(self.bytes.as_ref(), 0)
    }

    /// Returns the destination port.
    #[inline]
    pub fn dst_port(&self) -> u16 {
        u16_at(self.bytes.as_ref(), 2)
    }

    /// Returns the length of header and payload in bytes.
    #[inline]
    pub fn length(&self) -> u16 {
        u16_at(self.bytes.as_ref(), 4)
    }

    /// Returns the checksum field, 0 for none.
    #[inline]
    pub fn checksum(&self) -> u16 {
        u16_at(self.bytes.as_ref(), 6)
    }

    /// Returns the payload, up to the length field.
    #[inline]
    pub fn payload(&self) -> &[u8] {
        &self.datagram()[LEN..]
    }

    fn datagram(&self) -> &[u8] {
        &self.bytes.as_ref()[..usize::from(self.length())]
    }

    /// Reads all fields except the checksum.
    pub fn header(&self) -> Header {
        Header { src_port: self.src_port(), dst_port: self.dst_port(), length: self.length() }
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> View<T> {
    /// Sets the ports. The caller updates the checksum: see [`Self::fill_checksum`].
    pub fn set_ports(&mut self, src: u16, dst: u16) {
        put(self.bytes.as_mut(), 0, src.to_be_bytes());
        put(self.bytes.as_mut(), 2, dst.to_be_bytes());
    }

    /// Sets the checksum.
    pub fn set_checksum(&mut self, checksum: u16) {
        put(self.bytes.as_mut(), 6, checksum.to_be_bytes());
    }

    /// Computes the checksum over `pseudo` and the whole datagram, and sets it.
    pub fn fill_checksum(&mut self, pseudo: Sum) {
        self.set_checksum(0);
        let sum = pseudo.bytes(self.datagram()).checksum();
        self.set_checksum(if sum == 0 { 0xffff } else { sum });
    }
}

/// The fields of the header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// The source port.
    pub src_port: u16,
    /// The destination port.
    pub dst_port: u16,
    /// The length of header and payload in bytes, at least 8.
    pub length: u16,
}

impl Header {
    /// Writes the header in front of the payload that `bytes` hold from byte 8 on,
    /// with the checksum over `pseudo` and all of it, and returns the header's
    /// length.
    ///
    /// # Errors
    ///
    /// [`BadHeader::Length`] if the length is below 8, [`BadHeader::Truncated`] if
    /// the bytes are fewer than it.
    pub fn emit(&self, bytes: &mut [u8], pseudo: Sum) -> Result<usize, BadHeader> {
        let len = self.emit_unchecked(bytes)?;
        View { bytes }.fill_checksum(pseudo);
        Ok(len)
    }

    /// Writes the header without a checksum: with 0.
    ///
    /// # Errors
    ///
    /// As [`emit`](Self::emit).
    pub fn emit_unchecked(&self, bytes: &mut [u8]) -> Result<usize, BadHeader> {
        if usize::from(self.length) < LEN {
            return Err(BadHeader::Length);
        }
        if bytes.len() < usize::from(self.length) {
            return Err(BadHeader::Truncated);
        }
        put(bytes, 4, self.length.to_be_bytes());
        let mut view = View { bytes };
        view.set_ports(self.src_port, self.dst_port);
        view.set_checksum(0);
        Ok(LEN)
    }
}
