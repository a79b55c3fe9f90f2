//! The Ethernet II header (IEEE 802.3, RFC 894 for IPv4, RFC 2464 for IPv6).
//!
//! ```text
//!   0        6        12   14
//!   +--------+--------+----+-----------
//!   |  dst   |  src   |kind| payload …
//!   +--------+--------+----+-----------
//! ```
//!
//! `kind` is the EtherType. Below 0x0600 it is a length instead (802.3 with LLC), which an IP
//! router does not use: such frames parse, with an unknown kind. The frame check sequence never
//! reaches user space. Frames are padded to 60 bytes on the wire, so the payload may be longer than
//! the packet in it.

use crate::BadHeader;
use crate::octets::{put, take, u16_at};

/// The length of the header in bytes.
pub const LEN: usize = 14;

/// EtherType of IPv4.
pub const IPV4: u16 = 0x0800;
/// EtherType of ARP.
pub const ARP: u16 = 0x0806;
/// EtherType of a customer VLAN tag (802.1Q).
pub const VLAN: u16 = 0x8100;
/// EtherType of IPv6.
pub const IPV6: u16 = 0x86dd;
/// EtherType of a service VLAN tag (802.1ad), the outer of two.
pub const SERVICE_VLAN: u16 = 0x88a8;

/// The broadcast address.
pub const BROADCAST: [u8; 6] = [0xff; 6];

/// Returns whether a MAC address is a group address: multicast or broadcast.
#[inline]
pub fn is_group(mac: [u8; 6]) -> bool {
    mac[0] & 1 == 1
}

/// A view over a frame.
#[derive(Clone, Copy, Debug)]
pub struct View<T> {
    bytes: T,
}

impl<T: AsRef<[u8]>> View<T> {
    /// Parses `bytes` as a frame.
    ///
    /// # Errors
    ///
    /// [`BadHeader::Truncated`] below 14 bytes.
    #[inline]
    pub fn parse(bytes: T) -> Result<Self, BadHeader> {
        if bytes.as_ref().len() < LEN {
            return Err(BadHeader::Truncated);
        }
        Ok(Self { bytes })
    }

    /// Returns the destination MAC.
    #[inline]
    pub fn dst(&self) -> [u8; 6] {
        take(self.bytes.as_ref(), 0)
    }

    /// Returns the source MAC.
    #[inline]
    pub fn src(&self) -> [u8; 6] {
        take(self.bytes.as_ref(), 6)
    }

    /// Returns the EtherType.
    #[inline]
    pub fn kind(&self) -> u16 {
        u16_at(self.bytes.as_ref(), 12)
    }

    /// Returns the payload, padding included.
    #[inline]
    pub fn payload(&self) -> &[u8] {
        &self.bytes.as_ref()[LEN..]
    }

    /// Reads all fields.
    pub fn header(&self) -> Header {
        Header { dst: self.dst(), src: self.src(), kind: self.kind() }
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> View<T> {
    /// Sets the destination MAC.
    #[inline]
    pub fn set_dst(&mut self, mac: [u8; 6]) {
        put(self.bytes.as_mut(), 0, mac);
    }

    /// Sets the source MAC.
    #[inline]
    pub fn set_src(&mut self, mac: [u8; 6]) {
        put(self.bytes.as_mut(), 6, mac);
    }

    /// Sets the EtherType.
    #[inline]
    pub fn set_kind(&mut self, kind: u16) {
        put(self.bytes.as_mut(), 12, kind.to_be_bytes());
    }
}

/// The fields of the header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// The destination MAC.
    pub dst: [u8; 6],
    /// The source MAC.
    pub src: [u8; 6],
    /// The EtherType of the payload.
    pub kind: u16,
}

impl Header {
    /// Writes the header and returns its length.
    ///
    /// # Errors
    ///
    /// [`BadHeader::Truncated`] if there is no room.
    pub fn emit(&self, bytes: &mut [u8]) -> Result<usize, BadHeader> {
        let mut view = View::parse(bytes)?;
        view.set_dst(self.dst);
        view.set_src(self.src);
        view.set_kind(self.kind);
        Ok(LEN)
    }
}
