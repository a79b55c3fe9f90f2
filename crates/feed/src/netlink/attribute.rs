//! The attributes behind a message's header, and numbers in bytes.
//!
//! ```text
//! 0        2      4                length
//! ┌────────┬──────┬────────────────┬┈┈┈┐
//! │ length │ type │ value          │pad│ next …    type: two flags, then 14 bits
//! └────────┴──────┴────────────────┴┈┈┈┘
//! ```
//!
//! netlink(7), `struct nlattr`. A value may contain attributes. The walk copies and allocates
//! nothing; an impossible length ends it.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::error::Damage;

/// The type without `NLA_F_NESTED` and `NLA_F_NET_BYTEORDER`.
const TYPE: u16 = 0x3fff;

/// One attribute, borrowed from the buffer it was received in.
#[derive(Clone, Copy, Debug)]
pub struct Attribute<'a> {
    /// The type, in the numbering of the message or attribute that contains it.
    pub kind: u16,
    /// Its value.
    pub value: &'a [u8],
    /// The offset of the value in the receive buffer.
    pub at: usize,
}

impl<'a> Attribute<'a> {
    fn fixed<const N: usize>(&self, what: &'static str) -> Result<[u8; N], Damage> {
        self.value.try_into().map_err(|_| self.damage(what))
    }

    /// Returns the damage of this attribute.
    pub(crate) fn damage(&self, what: &'static str) -> Damage {
        Damage { at: self.at, what }
    }

    pub(crate) fn u16(&self) -> Result<u16, Damage> {
        self.fixed("a 16-bit number of another size").map(u16::from_ne_bytes)
    }

    #[inline]
    pub(crate) fn u32(&self) -> Result<u32, Damage> {
        self.fixed("a 32-bit number of another size").map(u32::from_ne_bytes)
    }

    /// Reads an address; its size determines the family.
    #[inline]
    pub(crate) fn address(&self) -> Result<IpAddr, Damage> {
        address(self.value).ok_or(self.damage("an address of neither 4 nor 16 bytes"))
    }

    /// Reads text that ends with the first zero byte, if there is one.
    pub(crate) fn text(&self) -> &'a [u8] {
        self.value.split(|&byte| byte == 0).next().unwrap_or_default()
    }

    /// Walks the attributes in the value.
    pub(crate) fn nested(&self) -> Attributes<'a> {
        Attributes::new(self.value, self.at)
    }
}

/// Walks attributes.
#[derive(Clone, Debug)]
pub struct Attributes<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Attributes<'a> {
    /// Begins the walk over `bytes`, which are at the offset `at` of the receive buffer.
    pub fn new(bytes: &'a [u8], at: usize) -> Self {
        Self { bytes, at }
    }

    #[inline]
    fn take(&mut self) -> Result<Attribute<'a>, Damage> {
        let at = self.at;
        let Some((head, _)) = self.bytes.split_first_chunk::<4>() else {
            return Err(Damage { at, what: "an attribute shorter than its header" });
        };
        let length = usize::from(head.u16(0));
        let Some(value) = self.bytes.get(4..length) else {
            return Err(Damage { at, what: "an attribute with an impossible length" });
        };
        let next = length.next_multiple_of(4).min(self.bytes.len());
        self.bytes = &self.bytes[next..];
        self.at += next;
        Ok(Attribute { kind: head.u16(2) & TYPE, value, at: at + 4 })
    }
}

impl<'a> Iterator for Attributes<'a> {
    type Item = Result<Attribute<'a>, Damage>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.bytes.is_empty() {
            return None;
        }
        let taken = self.take();
        if taken.is_err() {
            self.bytes = &[];
        }
        Some(taken)
    }
}

/// Numbers in host byte order at an offset of a fixed header.
///
/// Both panic beyond the end: the size of a header is fixed, so this is a programming error and
/// not one of the sender.
pub(crate) trait Bytes {
    fn u16(&self, at: usize) -> u16;
    fn u32(&self, at: usize) -> u32;
}

impl<const N: usize> Bytes for [u8; N] {
    #[inline]
    fn u16(&self, at: usize) -> u16 {
        u16::from_ne_bytes([self[at], self[at + 1]])
    }

    #[inline]
    fn u32(&self, at: usize) -> u32 {
        u32::from_ne_bytes([self[at], self[at + 1], self[at + 2], self[at + 3]])
    }
}

/// Reads an address of 4 or 16 bytes.
#[inline]
pub(crate) fn address(bytes: &[u8]) -> Option<IpAddr> {
    if let Ok(v4) = <[u8; 4]>::try_from(bytes) {
        return Some(Ipv4Addr::from(v4).into());
    }
    <[u8; 16]>::try_from(bytes).ok().map(|v6| Ipv6Addr::from(v6).into())
}
