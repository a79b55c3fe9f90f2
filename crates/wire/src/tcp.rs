//! The TCP header (RFC 9293, 3.1).
//!
//! ```text
//!    0               1               2               3
//!    0 1 2 3 4 5 6 7 0 1 2 3 4 5 6 7 0 1 2 3 4 5 6 7 0 1 2 3 4 5 6 7
//!   +-------------------------------+-------------------------------+
//!   |          source port          |       destination port        |
//!   +-------------------------------+-------------------------------+
//!   |                        sequence number                        |
//!   +---------------------------------------------------------------+
//!   |                    acknowledgement number                     |
//!   +-------+-------+---------------+-------------------------------+
//!   |offset |   0   |C E U A P R S F|            window             |
//!   +-------+-------+---------------+-------------------------------+
//!   |           checksum            |        urgent pointer         |
//!   +-------------------------------+-------------------------------+
//!   |                  options, 0 to 40 bytes, padded               |
//!   +---------------------------------------------------------------+
//! ```
//!
//! The checksum covers a pseudo header, so its functions take an initial sum:
//! [`checksum::pseudo_ipv4`](crate::checksum::pseudo_ipv4) or `pseudo_ipv6`.

use crate::BadHeader;
use crate::checksum::Sum;
use crate::octets::{put, u16_at, u32_at};

/// The length of a header without options, in bytes.
pub const LEN: usize = 20;
/// The most bytes of options.
pub const MAX_OPTIONS: usize = 40;
/// The protocol number.
pub const PROTOCOL: u8 = 6;

/// Flag: no more data from the sender.
pub const FIN: u8 = 0x01;
/// Flag: synchronize sequence numbers.
pub const SYN: u8 = 0x02;
/// Flag: reset the connection.
pub const RST: u8 = 0x04;
/// Flag: push.
pub const PSH: u8 = 0x08;
/// Flag: the acknowledgement number is valid.
pub const ACK: u8 = 0x10;
/// Flag: the urgent pointer is valid.
pub const URG: u8 = 0x20;
/// Flag: ECN echo, congestion experienced (RFC 3168).
pub const ECE: u8 = 0x40;
/// Flag: the congestion window was reduced (RFC 3168).
pub const CWR: u8 = 0x80;

/// A view over a segment.
#[derive(Clone, Copy, Debug)]
pub struct View<T> {
    bytes: T,
}

impl<T: AsRef<[u8]>> View<T> {
    /// Parses `bytes`, the whole payload of the packet, as a segment.
    ///
    /// # Errors
    ///
    /// [`BadHeader::Truncated`] below 20 bytes or below the header's length,
    /// [`BadHeader::HeaderLength`] if the data offset is below 5.
    #[inline]
    pub fn parse(bytes: T) -> Result<Self, BadHeader> {
        let shown = bytes.as_ref();
        if shown.len() < LEN {
            return Err(BadHeader::Truncated);
        }
        let header = usize::from(shown[12] >> 4) * 4;
        if header < LEN {
            return Err(BadHeader::HeaderLength);
        }
        if shown.len() < header {
            return Err(BadHeader::Truncated);
        }
        Ok(Self { bytes })
    }

    /// Returns whether the checksum over `pseudo` and the whole segment is right.
    pub fn checksum_ok(&self, pseudo: Sum) -> bool {
        pseudo.bytes(self.bytes.as_ref()).fold() == 0xffff
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

    /// Returns the sequence number.
    #[inline]
    pub fn sequence(&self) -> u32 {
        u32_at(self.bytes.as_ref(), 4)
    }

    /// Returns the acknowledgement number.
    #[inline]
    pub fn acknowledgement(&self) -> u32 {
        u32_at(self.bytes.as_ref(), 8)
    }

    /// Returns the header's length in bytes, 20 to 60.
    #[inline]
    pub fn header_len(&self) -> usize {
        usize::from(self.bytes.as_ref()[12] >> 4) * 4
    }

    /// Returns the eight flags, [`FIN`] to [`CWR`].
    #[inline]
    pub fn flags(&self) -> u8 {
        self.bytes.as_ref()[13]
    }

    /// Returns the window.
    #[inline]
    pub fn window(&self) -> u16 {
        u16_at(self.bytes.as_ref(), 14)
    }

    /// Returns the checksum field.
    #[inline]
    pub fn checksum(&self) -> u16 {
        u16_at(self.bytes.as_ref(), 16)
    }

    /// Returns the urgent pointer.
    #[inline]
    pub fn urgent(&self) -> u16 {
        u16_at(self.bytes.as_ref(), 18)
    }

    /// Returns the options, padding included.
    #[inline]
    pub fn options(&self) -> &[u8] {
        &self.bytes.as_ref()[LEN..self.header_len()]
    }

    /// Returns the payload.
    #[inline]
    pub fn payload(&self) -> &[u8] {
        &self.bytes.as_ref()[self.header_len()..]
    }

    /// Reads all fields except the checksum.
    pub fn header(&self) -> Header<'_> {
        Header {
            src_port: self.src_port(),
            dst_port: self.dst_port(),
            sequence: self.sequence(),
            acknowledgement: self.acknowledgement(),
            flags: self.flags(),
            window: self.window(),
            urgent: self.urgent(),
            options: self.options(),
        }
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
        put(self.bytes.as_mut(), 16, checksum.to_be_bytes());
    }

    /// Computes the checksum over `pseudo` and the whole segment, and sets it.
    pub fn fill_checksum(&mut self, pseudo: Sum) {
        self.set_checksum(0);
        let sum = pseudo.bytes(self.bytes.as_ref()).checksum();
        self.set_checksum(sum);
    }
}

/// The fields of the header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header<'a> {
    /// The source port.
    pub src_port: u16,
    /// The destination port.
    pub dst_port: u16,
    /// The sequence number.
    pub sequence: u32,
    /// The acknowledgement number.
    pub acknowledgement: u32,
    /// The eight flags.
    pub flags: u8,
    /// The window.
    pub window: u16,
    /// The urgent pointer.
    pub urgent: u16,
    /// The options, a multiple of 4 bytes, at most 40.
    pub options: &'a [u8],
}

impl Header<'_> {
    /// Writes the header in front of the payload that `bytes` hold from there to
    /// their end, with the checksum over `pseudo` and all of it, and returns the
    /// header's length.
    ///
    /// # Errors
    ///
    /// [`BadHeader::HeaderLength`] if the options are not a multiple of 4 bytes or
    /// too many, [`BadHeader::Truncated`] if there is no room.
    pub fn emit(&self, bytes: &mut [u8], pseudo: Sum) -> Result<usize, BadHeader> {
        if !self.options.len().is_multiple_of(4) || self.options.len() > MAX_OPTIONS {
            return Err(BadHeader::HeaderLength);
        }
        let len = LEN + self.options.len();
        if bytes.len() < len {
            return Err(BadHeader::Truncated);
        }
        put(bytes, 4, self.sequence.to_be_bytes());
        put(bytes, 8, self.acknowledgement.to_be_bytes());
        bytes[12] = ((len / 4) as u8) << 4;
        bytes[13] = self.flags;
        put(bytes, 14, self.window.to_be_bytes());
        put(bytes, 18, self.urgent.to_be_bytes());
        bytes[LEN..len].copy_from_slice(self.options);
        let mut view = View { bytes };
        view.set_ports(self.src_port, self.dst_port);
        view.fill_checksum(pseudo);
        Ok(len)
    }
}
