//! A cursor over the bytes of one record.
//!
//! Every step checks that its bytes exist; an error names the missing field. The numbers of MRT and
//! BGP are in network byte order.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::prefix::{AnyPrefix, prefix4, prefix6};

/// The error in a record.
pub(super) type ParseError = String;

/// The unread bytes of a record or of a part of it.
#[derive(Clone, Copy)]
pub(super) struct Bytes<'b>(pub(super) &'b [u8]);

/// The address family of a route (RFC 4760; numbers assigned by IANA).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    V4,
    V6,
}

impl Family {
    /// Reads an AFI; `None` for one that is neither.
    pub(super) fn of(afi: u16) -> Option<Self> {
        match afi {
            1 => Some(Self::V4),
            2 => Some(Self::V6),
            _ => None,
        }
    }
}

impl<'b> Bytes<'b> {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    #[inline]
    pub(super) fn array<const N: usize>(&mut self, what: &str) -> Result<[u8; N], ParseError> {
        match self.0.split_first_chunk::<N>() {
            Some((array, rest)) => {
                self.0 = rest;
                Ok(*array)
            }
            None => Err(short(what)),
        }
    }

    #[inline]
    pub(super) fn u8(&mut self, what: &str) -> Result<u8, ParseError> {
        self.array::<1>(what).map(|[b]| b)
    }

    #[inline]
    pub(super) fn u16(&mut self, what: &str) -> Result<u16, ParseError> {
        self.array(what).map(u16::from_be_bytes)
    }

    #[inline]
    pub(super) fn u32(&mut self, what: &str) -> Result<u32, ParseError> {
        self.array(what).map(u32::from_be_bytes)
    }

    #[inline]
    pub(super) fn take(&mut self, count: usize, what: &str) -> Result<Bytes<'b>, ParseError> {
        match self.0.split_at_checked(count) {
            Some((head, rest)) => {
                self.0 = rest;
                Ok(Bytes(head))
            }
            None => Err(short(what)),
        }
    }

    pub(super) fn address(&mut self, family: Family, what: &str) -> Result<IpAddr, ParseError> {
        match family {
            Family::V4 => self.array::<4>(what).map(|a| Ipv4Addr::from(a).into()),
            Family::V6 => self.array::<16>(what).map(|a| Ipv6Addr::from(a).into()),
        }
    }

    /// Reads a prefix in BGP's encoding: its length, then the bytes of the address that the length
    /// covers (RFC 4271, 4.3).
    #[inline]
    pub(super) fn prefix(&mut self, family: Family) -> Result<AnyPrefix, ParseError> {
        let len = u32::from(self.u8("a prefix")?);
        let width = if family == Family::V4 { 32 } else { 128 };
        if len > width {
            return Err(format!("a prefix of /{len} in a family of {width} bits"));
        }
        let bytes = self.take(len.div_ceil(8) as usize, "a prefix")?.0;
        let mut whole = [0u8; 16];
        whole[..bytes.len()].copy_from_slice(bytes);
        let addr = u128::from_be_bytes(whole);
        Ok(match family {
            Family::V4 => prefix4((addr >> 96) as u32, len),
            Family::V6 => prefix6(addr, len),
        })
    }
}

#[cold]
fn short(what: &str) -> ParseError {
    format!("the record ends within {what}")
}
