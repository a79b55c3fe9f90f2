//! ARP for IPv4 over Ethernet (RFC 826).
//!
//! ```text
//!   0      2      4    5    6      8        14       18       24       28
//!   +------+------+----+----+------+--------+--------+--------+--------+
//!   | 1    |0x0800| 6  | 4  |opera.| sender | sender | target | target |
//!   |      |      |    |    |      | MAC    | IPv4   | MAC    | IPv4   |
//!   +------+------+----+----+------+--------+--------+--------+--------+
//! ```
//!
//! The first four fields state the hardware and protocol of the addresses; any other than Ethernet
//! and IPv4 is [`BadHeader::Kind`].

use crate::BadHeader;
use crate::octets::{put, take, u16_at, u32_at};

/// The length of the message in bytes.
pub const LEN: usize = 28;

/// Operation: request the MAC of the target address.
pub const REQUEST: u16 = 1;
/// Operation: reply with the sender's MAC.
pub const REPLY: u16 = 2;

/// Ethernet, IPv4, and the lengths of their addresses.
const FIXED: [u8; 6] = [0, 1, 8, 0, 6, 4];

/// A view over a message.
#[derive(Clone, Copy, Debug)]
pub struct View<T> {
    bytes: T,
}

impl<T: AsRef<[u8]>> View<T> {
    /// Parses `bytes` as a message.
    ///
    /// # Errors
    ///
    /// [`BadHeader::Truncated`] below 28 bytes, [`BadHeader::Kind`] if it is not
    /// about IPv4 over Ethernet.
    pub fn parse(bytes: T) -> Result<Self, BadHeader> {
        let shown = bytes.as_ref();
        if shown.len() < LEN {
            return Err(BadHeader::Truncated);
        }
        if shown[..6] != FIXED {
            return Err(BadHeader::Kind);
        }
        Ok(Self { bytes })
    }

    /// Returns the operation: [`REQUEST`], [`REPLY`] or a rare one.
    pub fn operation(&self) -> u16 {
        u16_at(self.bytes.as_ref(), 6)
    }

    /// Returns the sender's MAC.
    pub fn sender_mac(&self) -> [u8; 6] {
        take(self.bytes.as_ref(), 8)
    }

    /// Returns the sender's address.
    pub fn sender(&self) -> u32 {
        u32_at(self.bytes.as_ref(), 14)
    }

    /// Returns the target's MAC, zero in a request.
    pub fn target_mac(&self) -> [u8; 6] {
        take(self.bytes.as_ref(), 18)
    }

    /// Returns the target's address.
    pub fn target(&self) -> u32 {
        u32_at(self.bytes.as_ref(), 24)
    }

    /// Returns the bytes after the message: the padding of a short frame.
    pub fn payload(&self) -> &[u8] {
        &self.bytes.as_ref()[LEN..]
    }

    /// Reads all fields.
    pub fn header(&self) -> Header {
        Header {
            operation: self.operation(),
            sender_mac: self.sender_mac(),
            sender: self.sender(),
            target_mac: self.target_mac(),
            target: self.target(),
        }
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> View<T> {
    /// Sets the operation.
    pub fn set_operation(&mut self, operation: u16) {
        put(self.bytes.as_mut(), 6, operation.to_be_bytes());
    }

    /// Sets the sender's MAC and address.
    pub fn set_sender(&mut self, mac: [u8; 6], address: u32) {
        put(self.bytes.as_mut(), 8, mac);
        put(self.bytes.as_mut(), 14, address.to_be_bytes());
    }

    /// Sets the target's MAC and address.
    pub fn set_target(&mut self, mac: [u8; 6], address: u32) {
        put(self.bytes.as_mut(), 18, mac);
        put(self.bytes.as_mut(), 24, address.to_be_bytes());
    }
}

/// The fields of the message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// [`REQUEST`] or [`REPLY`].
    pub operation: u16,
    /// The sender's MAC.
    pub sender_mac: [u8; 6],
    /// The sender's address.
    pub sender: u32,
    /// The target's MAC, zero in a request.
    pub target_mac: [u8; 6],
    /// The target's address.
    pub target: u32,
}

impl Header {
    /// Writes the message and returns its length.
    ///
    /// # Errors
    ///
    /// [`BadHeader::Truncated`] if there is no room.
    pub fn emit(&self, bytes: &mut [u8]) -> Result<usize, BadHeader> {
        if bytes.len() < LEN {
            return Err(BadHeader::Truncated);
        }
        put(bytes, 0, FIXED);
        let mut view = View { bytes };
        view.set_operation(self.operation);
        view.set_sender(self.sender_mac, self.sender);
        view.set_target(self.target_mac, self.target);
        Ok(LEN)
    }
}
