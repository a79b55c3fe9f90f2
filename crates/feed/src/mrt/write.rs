//! Writes a table as MRT: a `PEER_INDEX_TABLE` with one peer, and a record of `TABLE_DUMP_V2` for each route.
//!
//! A route has the attributes that BGP requires (RFC 4271, 5.1): `ORIGIN`, `AS_PATH` of the AS that
//! originated it, and the next hop, in `NEXT_HOP` for IPv4 and in `MP_REACH_NLRI` otherwise, in the
//! short form of RFC 6396, 4.3.4. The peer has no name: address `0.0.0.0`, AS 0.

use core::net::{IpAddr, Ipv6Addr};
use std::io::Write;

use super::dump::{PEER_INDEX_TABLE, RIB_IPV4_UNICAST, RIB_IPV6_UNICAST};
use super::{HEADER, TABLE_DUMP_V2};
use crate::bgp_label::{BgpLabel, bgp_labels};
use crate::error::WriteError;
use crate::prefix::AnyPrefix;
use crate::routing_table::RoutingTable;

/// An attribute that each BGP speaker knows, or an optional one; its length has one byte.
const WELL_KNOWN: u8 = 0x40;
const OPTIONAL: u8 = 0x80;
/// Its length has two bytes.
const EXTENDED_LENGTH: u8 = 0x10;

/// Writes the peers and all routes.
pub(crate) fn write(
    table: &RoutingTable,
    time: u64,
    out: &mut impl Write,
) -> Result<(), WriteError> {
    let time = u32::try_from(time)
        .map_err(|_| WriteError::Table(format!("MRT has no time as late as {time}")))?;
    let labels = bgp_labels(table)?;
    let mut body = Vec::new();
    body.extend(0u32.to_be_bytes()); // the collector's identifier
    body.extend(0u16.to_be_bytes()); // the name of its view is empty
    body.extend(1u16.to_be_bytes());
    body.push(0b10); // an IPv4 address, and an AS number of four bytes
    body.extend([0; 12]); // identifier, address and AS of the peer
    record(time, PEER_INDEX_TABLE, &body, out)?;
    let mut sequence = 0u32;
    table.each_route(|prefix, label| {
        let (subtype, addr, len) = match prefix {
            AnyPrefix::V4(v4) => (RIB_IPV4_UNICAST, u128::from(v4.addr()) << 96, v4.len()),
            AnyPrefix::V6(v6) => (RIB_IPV6_UNICAST, v6.addr(), v6.len()),
        };
        body.clear();
        body.extend(sequence.to_be_bytes());
        body.push(len as u8);
        body.extend(&addr.to_be_bytes()[..len.div_ceil(8) as usize]);
        body.extend(1u16.to_be_bytes()); // entries
        body.extend(0u16.to_be_bytes()); // the peer
        body.extend(time.to_be_bytes());
        let attributes = attributes(&prefix, &labels[label.0 as usize]);
        body.extend((attributes.len() as u16).to_be_bytes());
        body.extend(attributes);
        sequence = sequence.wrapping_add(1);
        record(time, subtype, &body, out)
    })
}

/// Writes a record with its header.
fn record(time: u32, subtype: u16, body: &[u8], out: &mut impl Write) -> Result<(), WriteError> {
    let mut header = [0; HEADER];
    header[..4].copy_from_slice(&time.to_be_bytes());
    header[4..6].copy_from_slice(&TABLE_DUMP_V2.to_be_bytes());
    header[6..8].copy_from_slice(&subtype.to_be_bytes());
    header[8..].copy_from_slice(&(body.len() as u32).to_be_bytes());
    out.write_all(&header)?;
    out.write_all(body)?;
    Ok(())
}

/// Returns the path attributes of a route.
fn attributes(prefix: &AnyPrefix, label: &BgpLabel) -> Vec<u8> {
    let mut attributes = vec![WELL_KNOWN, 1, 1, 0]; // ORIGIN: IGP
    let segment = match label.origins[..] {
        [] => None,
        [_] => Some(2), // AS_SEQUENCE
        _ => Some(1),   // AS_SET
    };
    let path_len = segment.map_or(0, |_| 2 + 4 * label.origins.len() as u16);
    attributes.extend([WELL_KNOWN | EXTENDED_LENGTH, 2]);
    attributes.extend(path_len.to_be_bytes());
    if let Some(segment) = segment {
        attributes.extend([segment, label.origins.len() as u8]);
        attributes.extend(label.origins.iter().flat_map(|asn| asn.to_be_bytes()));
    }
    match (prefix, label.next_hop_of(prefix)) {
        (AnyPrefix::V4(_), IpAddr::V4(next_hop)) => {
            attributes.extend([WELL_KNOWN, 3, 4]);
            attributes.extend(next_hop.octets());
        }
        (_, next_hop) => {
            let next_hop: Ipv6Addr = match next_hop {
                IpAddr::V4(v4) => v4.to_ipv6_mapped(),
                IpAddr::V6(v6) => v6,
            };
            attributes.extend([OPTIONAL, 14, 17, 16]);
            attributes.extend(next_hop.octets());
        }
    }
    attributes
}
