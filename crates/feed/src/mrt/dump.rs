//! `TABLE_DUMP` and `TABLE_DUMP_V2`: the routes of a collector's peers at one moment.
//!
//! The second version (RFC 6396, 4.3; RFC 8050, 4) lists its peers once, in a separate record, and
//! then has one record a prefix:
//!
//! ```text
//! PEER_INDEX_TABLE   collector id │ view name │ count │ (type, BGP id, address, AS) …
//! RIB_*              sequence │ prefix │ count │ entry …
//!   entry            peer index │ time │ [path id: add-path] │ length │ attributes
//! ```
//!
//! The first (4.2) has one record an entry, of one peer, with two-byte AS numbers. The best entry
//! of a record is selected here, so that the other entries (of twenty, nineteen) cost nothing
//! further.

use core::net::IpAddr;

use super::attributes::{self, Place};
use super::bytes::{Bytes, Family, ParseError};
use crate::Peer;
use crate::best::DecisionKey;
use crate::collector::RouteCollector;

/// A peer of the index table.
struct IndexedPeer {
    identifier: u32,
    peer: Peer,
    counted: bool,
}

/// The state of `TABLE_DUMP_V2` from record to record.
#[derive(Default)]
pub(super) struct Dump {
    peers: Option<Vec<IndexedPeer>>,
    /// Entries without a next hop.
    pub(super) unusable: u64,
}

pub(super) const PEER_INDEX_TABLE: u16 = 1;
pub(super) const RIB_IPV4_UNICAST: u16 = 2;
pub(super) const RIB_IPV6_UNICAST: u16 = 4;
const RIB_GENERIC: u16 = 6;
const RIB_IPV4_UNICAST_ADDPATH: u16 = 8;
const RIB_IPV6_UNICAST_ADDPATH: u16 = 10;
const RIB_GENERIC_ADDPATH: u16 = 12;

impl Dump {
    /// Reads a `TABLE_DUMP_V2` record; false if it is skipped.
    pub(super) fn record(
        &mut self,
        subtype: u16,
        body: &[u8],
        collector: &mut RouteCollector,
    ) -> Result<bool, ParseError> {
        let mut body = Bytes(body);
        let (family, add_path) = match subtype {
            PEER_INDEX_TABLE => {
                self.peers = Some(peers(body)?);
                return Ok(true);
            }
            RIB_IPV4_UNICAST => (Some(Family::V4), false),
            RIB_IPV6_UNICAST => (Some(Family::V6), false),
            RIB_IPV4_UNICAST_ADDPATH => (Some(Family::V4), true),
            RIB_IPV6_UNICAST_ADDPATH => (Some(Family::V6), true),
            RIB_GENERIC => (None, false),
            RIB_GENERIC_ADDPATH => (None, true),
            _ => return Ok(false),
        };
        body.u32("the sequence number")?;
        let family = match family {
            Some(family) => family,
            None => {
                let afi = body.u16("the address family")?;
                let safi = body.u8("the address family")?;
                match Family::of(afi).filter(|_| safi == 1) {
                    Some(family) => family,
                    None => return Ok(false),
                }
            }
        };
        self.rib(body, family, add_path, collector)?;
        Ok(true)
    }

    fn rib(
        &mut self,
        mut body: Bytes<'_>,
        family: Family,
        add_path: bool,
        collector: &mut RouteCollector,
    ) -> Result<(), ParseError> {
        let prefix = body.prefix(family)?;
        let count = body.u16("the entry count")?;
        let Some(peers) = &mut self.peers else {
            return Err("a route before the table of peers".into());
        };
        let mut best: Option<(DecisionKey, IpAddr, Option<u32>)> = None;
        let mut usable = 0u64;
        for _ in 0..count {
            let index = usize::from(body.u16("an entry")?);
            body.u32("an entry")?; // when it was received
            if add_path {
                body.u32("an entry")?;
            }
            let length = usize::from(body.u16("an entry")?);
            let block = body.take(length, "an entry's attributes")?;
            let Some(from) = peers.get_mut(index) else {
                return Err(format!("an entry of peer {index}, of {}", peers.len()));
            };
            let found = attributes::read(block, Place::DumpV2)?;
            let next_hop = match (family, found.next_hop, &found.reach) {
                (Family::V4, Some(address), _) => Some(address),
                (_, _, Some(reach)) => reach.next_hop,
                (Family::V6, _, None) | (Family::V4, None, None) => None,
            };
            if !from.counted {
                from.counted = true;
                collector.add_peer(from.peer);
            }
            let Some(next_hop) = next_hop else {
                self.unusable += 1;
                continue;
            };
            usable += 1;
            let key =
                DecisionKey { rank: found.rank(), identifier: from.identifier, peer: from.peer };
            if best.is_none_or(|(kept, ..)| key < kept) {
                best = Some((key, next_hop, found.origin_as));
            }
        }
        collector.report.entries += u64::from(count);
        if let Some((key, next_hop, origin)) = best {
            collector.report.duplicates += usable - 1;
            let label = collector.label(next_hop, origin);
            collector.add_entry(prefix, key, label);
        }
        Ok(())
    }
}

fn peers(mut body: Bytes<'_>) -> Result<Vec<IndexedPeer>, ParseError> {
    const WHAT: &str = "the table of peers";
    body.u32(WHAT)?; // the collector's own identifier
    let name = body.u16(WHAT)?;
    body.take(usize::from(name), WHAT)?;
    let count = body.u16(WHAT)?;
    (0..count)
        .map(|_| {
            let kind = body.u8(WHAT)?;
            let identifier = body.u32(WHAT)?;
            let family = if kind & 1 != 0 { Family::V6 } else { Family::V4 };
            let address = body.address(family, WHAT)?;
            let asn = if kind & 2 != 0 { body.u32(WHAT)? } else { u32::from(body.u16(WHAT)?) };
            Ok(IndexedPeer { identifier, peer: Peer { address, asn }, counted: false })
        })
        .collect()
}

/// Reads a `TABLE_DUMP` record; false if it is skipped.
pub(super) fn first_version(
    subtype: u16,
    body: &[u8],
    collector: &mut RouteCollector,
) -> Result<bool, ParseError> {
    const WHAT: &str = "the entry";
    // The subtype is the address family (4.2).
    let Some(family) = Family::of(subtype) else { return Ok(false) };
    let mut body = Bytes(body);
    body.u32(WHAT)?; // view and sequence number
    let (mut addr, width) = match family {
        Family::V4 => (body.take(4, WHAT)?, 32),
        Family::V6 => (body.take(16, WHAT)?, 128),
    };
    let len = u32::from(body.u8(WHAT)?);
    if len > width {
        return Err(format!("a prefix of /{len} in a family of {width} bits"));
    }
    let prefix = match addr.address(family, WHAT)? {
        IpAddr::V4(addr) => crate::prefix::prefix4(addr.into(), len),
        IpAddr::V6(addr) => crate::prefix::prefix6(addr.into(), len),
    };
    body.u8(WHAT)?; // status, always 1
    body.u32(WHAT)?; // when it was received
    let address = body.address(family, WHAT)?;
    let asn = u32::from(body.u16(WHAT)?);
    let length = usize::from(body.u16(WHAT)?);
    let found = attributes::read(body.take(length, "the entry's attributes")?, Place::Dump)?;
    let next_hop = match (&found.reach, found.next_hop) {
        (Some(reach), _) if family == Family::V6 => reach.next_hop,
        (_, next_hop) => next_hop,
    };
    let Some(next_hop) = next_hop else {
        return Err("the entry has no next hop".into());
    };
    let peer = Peer { address, asn };
    collector.add_peer(peer);
    collector.report.entries += 1;
    let label = collector.label(next_hop, found.origin_as);
    collector.add_entry(prefix, DecisionKey { rank: found.rank(), identifier: 0, peer }, label);
    Ok(true)
}
