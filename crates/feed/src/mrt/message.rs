//! `BGP4MP` and `BGP4MP_ET`: the messages of BGP sessions, as a collector received them.
//!
//! ```text
//! BGP4MP_MESSAGE*        peer AS │ local AS │ interface │ family │ peer │ local │ message
//! BGP4MP_STATE_CHANGE*   …                                                    │ old │ new
//!   message (UPDATE)     marker 16 │ length 2 │ type 1 │
//!                        length │ withdrawn prefixes │ length │ attributes │ prefixes
//! ```
//!
//! RFC 6396, 4.4 for the frame (AS numbers of two or four bytes), RFC 8050, 3 for the add-path
//! variants, where an identifier precedes each prefix; RFC 4271, 4.3 for the UPDATE and RFC 4760
//! for the prefixes of IPv6, which are in attributes. OPEN, KEEPALIVE and NOTIFICATION messages are
//! skipped: a state change reports the end of a session.

use super::attributes::{self, Place};
use super::bytes::{Bytes, Family, ParseError};
use crate::Peer;
use crate::collector::RouteCollector;

/// The state of a session in which it exchanges routes: Established (RFC 4271, 8.2.2).
const ESTABLISHED: u16 = 6;
/// The type of the only message that carries routes.
const UPDATE: u8 = 2;

/// Reads a `BGP4MP_ET` record, whose time has microseconds (RFC 6396, 3).
pub(super) fn extended(
    subtype: u16,
    time: u64,
    body: &[u8],
    collector: &mut RouteCollector,
) -> Result<bool, ParseError> {
    let mut body = Bytes(body);
    let fraction = body.u32("the microseconds")?;
    if fraction >= 1_000_000 {
        return Err(format!("{fraction} microseconds are more than a second"));
    }
    record(subtype, time + u64::from(fraction), body.0, collector)
}

/// Reads a `BGP4MP` record; false if it is skipped.
pub(super) fn record(
    subtype: u16,
    time: u64,
    body: &[u8],
    collector: &mut RouteCollector,
) -> Result<bool, ParseError> {
    // (a change of state, AS numbers of four bytes, add-path)
    let (state, wide, add_path) = match subtype {
        0 => (true, false, false),
        5 => (true, true, false),
        1 | 6 => (false, false, false),
        4 | 7 => (false, true, false),
        8 | 10 => (false, false, true),
        9 | 11 => (false, true, true),
        _ => return Ok(false),
    };
    const WHAT: &str = "the session's description";
    let mut body = Bytes(body);
    let asn = if wide { body.u32(WHAT)? } else { u32::from(body.u16(WHAT)?) };
    body.take(if wide { 4 } else { 2 } + 2, WHAT)?; // local AS, interface
    let afi = body.u16(WHAT)?;
    let Some(family) = Family::of(afi) else {
        return Err(format!("a session over the address family {afi}"));
    };
    let address = body.address(family, WHAT)?;
    body.address(family, WHAT)?; // our end
    let peer = Peer { address, asn };
    if state {
        let before = body.u16("the state")?;
        let after = body.u16("the state")?;
        if before != after && (before == ESTABLISHED || after == ESTABLISHED) {
            collector.set_session(time, peer, after == ESTABLISHED);
        }
        return Ok(true);
    }
    body.array::<16>("the BGP message")?; // marker
    let length = usize::from(body.u16("the BGP message")?);
    let kind = body.u8("the BGP message")?;
    let Some(length) = length.checked_sub(19) else {
        return Err(format!("a BGP message of {length} bytes"));
    };
    let message = body.take(length, "the BGP message")?;
    if kind == UPDATE {
        update(message, time, peer, wide, add_path, collector)?;
    }
    Ok(true)
}

fn update(
    mut message: Bytes<'_>,
    time: u64,
    peer: Peer,
    wide: bool,
    add_path: bool,
    collector: &mut RouteCollector,
) -> Result<(), ParseError> {
    let length = usize::from(message.u16("the withdrawn routes")?);
    let withdrawn = message.take(length, "the withdrawn routes")?;
    let length = usize::from(message.u16("the attributes")?);
    let block = message.take(length, "the attributes")?;
    let found = attributes::read(block, Place::Message { wide })?;
    // The whole message is checked before it is applied: half an UPDATE would be neither the state
    // before nor the state after it.
    check(withdrawn, Family::V4, add_path)?;
    check(message, Family::V4, add_path)?;
    if let Some((family, prefixes)) = found.unreach {
        check(prefixes, family, add_path)?;
    }
    let reach = found.reach.as_ref().and_then(|reach| Some((reach.next_hop, reach.prefixes?)));
    if let Some((next_hop, (family, prefixes))) = reach {
        check(prefixes, family, add_path)?;
        if next_hop.is_none() && !prefixes.is_empty() {
            return Err("routes without a next hop".into());
        }
    }
    if found.next_hop.is_none() && !message.is_empty() {
        return Err("routes without a next hop".into());
    }

    let mut withdraw = |mut prefixes: Bytes<'_>, family: Family| -> Result<(), ParseError> {
        while !prefixes.is_empty() {
            let (path, prefix) = route(&mut prefixes, family, add_path)?;
            collector.withdraw(time, peer, prefix, path);
        }
        Ok(())
    };
    withdraw(withdrawn, Family::V4)?;
    if let Some((family, prefixes)) = found.unreach {
        withdraw(prefixes, family)?;
    }
    let rank = found.rank();
    let plain = found.next_hop.map(|next_hop| (next_hop, (Family::V4, message)));
    let multi = reach.and_then(|(next_hop, prefixes)| Some((next_hop?, prefixes)));
    for (next_hop, (family, mut prefixes)) in plain.into_iter().chain(multi) {
        let label = collector.label(next_hop, found.origin_as);
        while !prefixes.is_empty() {
            let (path, prefix) = route(&mut prefixes, family, add_path)?;
            collector.announce(time, peer, prefix, path, rank, label);
        }
    }
    Ok(())
}

fn check(mut prefixes: Bytes<'_>, family: Family, add_path: bool) -> Result<(), ParseError> {
    while !prefixes.is_empty() {
        route(&mut prefixes, family, add_path)?;
    }
    Ok(())
}

fn route(
    prefixes: &mut Bytes<'_>,
    family: Family,
    add_path: bool,
) -> Result<(u32, crate::prefix::AnyPrefix), ParseError> {
    let path = if add_path { prefixes.u32("a path identifier")? } else { 0 };
    Ok((path, prefixes.prefix(family)?))
}
