//! Path attributes: those of the decision process, and the next hop.
//!
//! ```text
//! ┌───────┬──────┬────────────┬─────────────┐
//! │ flags │ code │ length 1/2 │ value       │ next attribute …     (RFC 4271, 4.3)
//! └───────┴──────┴────────────┴─────────────┘
//! 1 ORIGIN  2 AS_PATH  3 NEXT_HOP  5 LOCAL_PREF  14 MP_REACH_NLRI  15 MP_UNREACH_NLRI
//! ```
//!
//! All others are skipped. Of the path only its length and the origin AS are read. `AS4_PATH` (17) is among them: beside a path of two-byte numbers it
//! changes the numbers of the members, but not their count (RFC 6793, 4.2.3).
//!
//! In a dump `MP_REACH_NLRI` is reduced to its next hop (RFC 6396, 4.3.4); some collectors wrote
//! the whole attribute. The whole form begins with the address family, so with a zero byte, which
//! is not the length of any next hop.

use core::net::{IpAddr, Ipv6Addr};

use super::bytes::{Bytes, Family, ParseError};
use crate::Rank;

/// The place of the attributes, which determines the form of two of them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// In a `TABLE_DUMP` entry: AS numbers have two bytes.
    Dump,
    /// In a `TABLE_DUMP_V2` entry: AS numbers have four bytes.
    DumpV2,
    /// In a BGP message; AS numbers have four bytes if this is true.
    Message {
        /// Whether AS numbers have four bytes.
        wide: bool,
    },
}

/// The attributes that were read.
#[derive(Default)]
pub(super) struct Attributes<'b> {
    origin: Option<u8>,
    path_length: u32,
    /// The AS that originated the route.
    pub(super) origin_as: Option<u32>,
    local_pref: Option<u32>,
    pub(super) next_hop: Option<IpAddr>,
    pub(super) reach: Option<Reach<'b>>,
    pub(super) unreach: Option<(Family, Bytes<'b>)>,
}

/// `MP_REACH_NLRI` (RFC 4760, 3): a next hop, and in a message prefixes.
pub(super) struct Reach<'b> {
    pub(super) next_hop: Option<IpAddr>,
    pub(super) prefixes: Option<(Family, Bytes<'b>)>,
}

impl Attributes<'_> {
    pub(super) fn rank(&self) -> Rank {
        // A path without ORIGIN is malformed; it is ranked last.
        Rank::new(self.local_pref, self.path_length, self.origin.unwrap_or(2))
    }
}

const EXTENDED_LENGTH: u8 = 0x10;

/// Reads a block of attributes to its end.
pub(super) fn read(mut block: Bytes<'_>, place: Place) -> Result<Attributes<'_>, ParseError> {
    let mut found = Attributes::default();
    while !block.is_empty() {
        let flags = block.u8("an attribute")?;
        let code = block.u8("an attribute")?;
        let length = if flags & EXTENDED_LENGTH != 0 {
            usize::from(block.u16("an attribute's length")?)
        } else {
            usize::from(block.u8("an attribute's length")?)
        };
        let mut value = block.take(length, "an attribute")?;
        match code {
            1 => found.origin = Some(value.u8("ORIGIN")?),
            2 => {
                let wide = matches!(place, Place::DumpV2 | Place::Message { wide: true });
                (found.path_length, found.origin_as) = path(value, if wide { 4 } else { 2 })?;
            }
            3 => found.next_hop = Some(value.address(Family::V4, "NEXT_HOP")?),
            5 => found.local_pref = Some(value.u32("LOCAL_PREF")?),
            14 => found.reach = reach(value, place)?,
            15 => found.unreach = unreach(value)?,
            _ => {}
        }
    }
    Ok(found)
}

/// Stands for a number of four bytes in a path of two-byte numbers (RFC 6793, 9).
const AS_TRANS: u32 = 23456;

/// Counts the length of an `AS_PATH` (RFC 4271, 9.1.2.2 a; RFC 5065, 5.3), and returns its last AS, unless
/// that is a member of a set (RFC 6811, 2).
fn path(mut path: Bytes<'_>, width: usize) -> Result<(u32, Option<u32>), ParseError> {
    let (mut length, mut origin) = (0, None);
    while !path.is_empty() {
        let kind = path.u8("AS_PATH")?;
        let count = path.u8("AS_PATH")?;
        let members = path.take(usize::from(count) * width, "AS_PATH")?;
        match kind {
            1 => origin = None,
            2 => {
                let last = members.0.rchunks_exact(width).next();
                origin = last
                    .map(|last| last.iter().fold(0, |number, byte| number << 8 | u32::from(*byte)));
            }
            _ => {}
        }
        length += match kind {
            1 => 1,                // AS_SET
            2 => u32::from(count), // AS_SEQUENCE
            3 | 4 => 0,            // confederation segments
            _ => return Err(format!("AS_PATH has a segment of type {kind}")),
        };
    }
    Ok((length, origin.filter(|origin| width == 4 || *origin != AS_TRANS)))
}

fn reach(mut value: Bytes<'_>, place: Place) -> Result<Option<Reach<'_>>, ParseError> {
    const WHAT: &str = "MP_REACH_NLRI";
    let whole = matches!(place, Place::Message { .. }) || value.0.first() == Some(&0);
    let mut family = None;
    if whole {
        let afi = value.u16(WHAT)?;
        let safi = value.u8(WHAT)?;
        family = Family::of(afi).filter(|_| safi == 1);
        if family.is_none() {
            // Multicast, VPN, labels: these belong to other tables.
            return Ok(None);
        }
    }
    let length = usize::from(value.u8(WHAT)?);
    let next_hop = next_hop(value.take(length, WHAT)?)?;
    let mut prefixes = None;
    if let (Some(family), Place::Message { .. }) = (family, place) {
        value.u8(WHAT)?; // reserved (RFC 4760, 3)
        prefixes = Some((family, value));
    }
    Ok(Some(Reach { next_hop, prefixes }))
}

/// Reads a next hop of 4, 16 or 32 bytes: two addresses are a global and a link-local one (RFC
/// 2545, 3); the global one is returned if there is one.
fn next_hop(mut value: Bytes<'_>) -> Result<Option<IpAddr>, ParseError> {
    const WHAT: &str = "the next hop of MP_REACH_NLRI";
    match value.0.len() {
        0 => Ok(None),
        4 => value.address(Family::V4, WHAT).map(Some),
        16 => value.address(Family::V6, WHAT).map(Some),
        32 => {
            let global = value.address(Family::V6, WHAT)?;
            let local = value.address(Family::V6, WHAT)?;
            Ok(Some(if global == Ipv6Addr::UNSPECIFIED { local } else { global }))
        }
        length => Err(format!("MP_REACH_NLRI has a next hop of {length} bytes")),
    }
}

fn unreach(mut value: Bytes<'_>) -> Result<Option<(Family, Bytes<'_>)>, ParseError> {
    const WHAT: &str = "MP_UNREACH_NLRI";
    let afi = value.u16(WHAT)?;
    let safi = value.u8(WHAT)?;
    Ok(Family::of(afi).filter(|_| safi == 1).map(|family| (family, value)))
}
