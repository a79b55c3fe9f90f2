//! The ICMP header, for IPv4 (RFC 792) and IPv6 (RFC 4443).
//!
//! ```text
//!    0               1               2               3
//!   +---------------+---------------+-------------------------------+
//!   |     type      |     code      |           checksum            |
//!   +---------------+---------------+-------------------------------+
//!   |  identifier and sequence, MTU, pointer, or unused: by type    |
//!   +---------------------------------------------------------------+
//! ```
//!
//! The layout is the same for both, but the types and the checksum differ: that of ICMPv6 covers a
//! pseudo header. Hence the checksum functions take an initial sum: [`Sum::ZERO`] or
//! [`checksum::pseudo_ipv6`].

use crate::BadHeader;
use crate::checksum::{self, Sum};
use crate::octets::{put, take, u16_at};

/// The length of the header in bytes.
pub const LEN: usize = 8;

/// The protocol number of ICMP.
pub const PROTOCOL: u8 = 1;
/// The next header number of ICMPv6.
pub const PROTOCOL_V6: u8 = 58;

/// ICMP: echo reply.
pub const ECHO_REPLY: u8 = 0;
/// ICMP: destination unreachable.
pub const UNREACHABLE: u8 = 3;
/// ICMP: echo request.
pub const ECHO: u8 = 8;
/// ICMP: time exceeded.
pub const TIME_EXCEEDED: u8 = 11;
/// ICMPv6: destination unreachable.
pub const V6_UNREACHABLE: u8 = 1;
/// ICMPv6: packet too big.
pub const V6_TOO_BIG: u8 = 2;
/// ICMPv6: time exceeded.
pub const V6_TIME_EXCEEDED: u8 = 3;
/// ICMPv6: echo request.
pub const V6_ECHO: u8 = 128;
/// ICMPv6: echo reply.
pub const V6_ECHO_REPLY: u8 = 129;
/// ICMPv6: router solicitation, the first of the five messages of neighbor
/// discovery (RFC 4861).
pub const V6_ROUTER_SOLICITATION: u8 = 133;
/// ICMPv6: neighbor solicitation.
pub const V6_NEIGHBOR_SOLICITATION: u8 = 135;
/// ICMPv6: neighbor advertisement.
pub const V6_NEIGHBOR_ADVERTISEMENT: u8 = 136;
/// ICMPv6: redirect, the last of the five.
pub const V6_REDIRECT: u8 = 137;

/// A view over a message.
#[derive(Clone, Copy, Debug)]
pub struct View<T> {
    bytes: T,
}

impl<T: AsRef<[u8]>> View<T> {
    /// Parses `bytes`, the whole payload of the packet, as a message.
    ///
    /// # Errors
    ///
    /// [`BadHeader::Truncated`] below 8 bytes.
    pub fn parse(bytes: T) -> Result<Self, BadHeader> {
        if bytes.as_ref().len() < LEN {
            return Err(BadHeader::Truncated);
        }
        Ok(Self { bytes })
    }

    /// Returns whether the checksum over `pseudo` and the whole message is right.
    pub fn checksum_ok(&self, pseudo: Sum) -> bool {
        pseudo.bytes(self.bytes.as_ref()).fold() == 0xffff
    }

    /// Returns the type.
    pub fn kind(&self) -> u8 {
        self.bytes.as_ref()[0]
    }

    /// Returns the code, which qualifies the type.
    pub fn code(&self) -> u8 {
        self.bytes.as_ref()[1]
    }

    /// Returns the checksum field.
    pub fn checksum(&self) -> u16 {
        u16_at(self.bytes.as_ref(), 2)
    }

    /// Returns the four bytes whose meaning depends on the type.
    pub fn rest(&self) -> [u8; 4] {
        take(self.bytes.as_ref(), 4)
    }

    /// Returns the payload.
    pub fn payload(&self) -> &[u8] {
        &self.bytes.as_ref()[LEN..]
    }

    /// Reads all fields but the checksum.
    pub fn header(&self) -> Header {
        Header { kind: self.kind(), code: self.code(), rest: self.rest() }
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> View<T> {
    /// Computes the checksum over `pseudo` and the whole message, and sets it.
    pub fn fill_checksum(&mut self, pseudo: Sum) {
        put(self.bytes.as_mut(), 2, [0, 0]);
        let sum = pseudo.bytes(self.bytes.as_ref()).checksum();
        put(self.bytes.as_mut(), 2, sum.to_be_bytes());
    }

    /// Sets one word of the header or the payload, `at` an even offset other than
    /// the checksum's and within the message, and updates the checksum.
    pub fn set_word(&mut self, at: usize, word: u16) {
        let sum = checksum::update(self.checksum(), u16_at(self.bytes.as_ref(), at), word);
        put(self.bytes.as_mut(), at, word.to_be_bytes());
        put(self.bytes.as_mut(), 2, sum.to_be_bytes());
    }
}

/// The fields of the header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// The type.
    pub kind: u8,
    /// The code.
    pub code: u8,
    /// The four bytes whose meaning depends on the type.
    pub rest: [u8; 4],
}

impl Header {
    /// Writes the header in front of the payload that `bytes` hold from byte 8 to
    /// their end, with the checksum over `pseudo` and all of it, and returns the
    /// header's length.
    ///
    /// # Errors
    ///
    /// [`BadHeader::Truncated`] if there is no room.
    pub fn emit(&self, bytes: &mut [u8], pseudo: Sum) -> Result<usize, BadHeader> {
        let mut view = View::parse(bytes)?;
        view.bytes[0] = self.kind;
        view.bytes[1] = self.code;
        put(view.bytes, 4, self.rest);
        view.fill_checksum(pseudo);
        Ok(LEN)
    }
}
