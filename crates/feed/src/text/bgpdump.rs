//! The one-line output of `bgpdump -m`, for tables and for updates.
//!
//! ```text
//! 0            1     2  3     4   5       6        7       8         9           10
//! TABLE_DUMP2 |time |B |peer |AS |prefix |AS path |origin |next hop |local pref |MED |…
//! BGP4MP      |time |A |  as above
//! BGP4MP      |time |W |peer |AS |prefix
//! BGP4MP      |time |STATE |peer |AS |old |new
//! ```
//!
//! The tool prints a `LOCAL_PREF` of 0 where a path has none, so a 0 is read as
//! none. In an AS path `{…}` is a set and counts 1, `(…)` and `[…]` are
//! confederations and count 0.

use core::net::IpAddr;
use std::io::Write;

use crate::best::DecisionKey;
use crate::bgp_label::bgp_labels;
use crate::collector::RouteCollector;
use crate::error::{Fault, WriteError};
use crate::routing_table::RoutingTable;
use crate::source::Source;
use crate::text::changes::micros;
use crate::text::{each_line, scan};
use crate::{Peer, Rank};

/// Reads all lines into `collector`.
pub(crate) fn read(source: &mut Source<'_>, collector: &mut RouteCollector) -> Result<(), Fault> {
    each_line(source, |_, line| {
        if line.trim_ascii().is_empty() || scan::is_comment(line) {
            return Ok(());
        }
        let mut fields = line.split(|&b| b == b'|');
        let mut next =
            |what: &str| fields.next().ok_or_else(|| format!("the line has no field for {what}"));
        let table = match next("the type")? {
            b"TABLE_DUMP" | b"TABLE_DUMP2" => true,
            b"BGP4MP" | b"BGP4MP_ET" => false,
            _ => return Err("the line is not of a table dump and not an update".into()),
        };
        let time = micros(next("the time")?).ok_or("the time is not in seconds since 1970")?;
        let verb = next("the kind")?;
        let peer = Peer {
            address: address(next("the peer")?).ok_or("the peer is not an address")?,
            asn: scan::number(next("the peer's AS")?)
                .and_then(|asn| u32::try_from(asn).ok())
                .ok_or("the peer's AS is not a number")?,
        };
        match (verb, table) {
            (b"B", true) | (b"A", false) => {
                let prefix = scan::prefix(next("the prefix")?, collector.truncate)?;
                let path = next("the AS path")?;
                let origin = match next("the origin")? {
                    b"IGP" => 0,
                    b"EGP" => 1,
                    _ => 2,
                };
                let next_hop =
                    address(next("the next hop")?).ok_or("the next hop is not an address")?;
                let local_pref = next("LOCAL_PREF")
                    .ok()
                    .and_then(scan::number)
                    .and_then(|n| u32::try_from(n).ok())
                    .filter(|&n| n != 0);
                let rank = Rank::new(local_pref, path_length(path), origin);
                let label = collector.label(next_hop, origin_as(path));
                if table {
                    collector.report.entries += 1;
                    collector.add_peer(peer);
                    collector.add_entry(prefix, DecisionKey { rank, identifier: 0, peer }, label);
                } else {
                    collector.announce(time, peer, prefix, 0, rank, label);
                }
            }
            (b"W", false) => {
                let prefix = scan::prefix(next("the prefix")?, collector.truncate)?;
                collector.withdraw(time, peer, prefix, 0);
            }
            (b"STATE", false) => {
                const ESTABLISHED: Option<u64> = Some(6);
                let old = scan::number(next("the old state")?);
                let new = scan::number(next("the new state")?);
                if old.is_none() || new.is_none() {
                    return Err("a state is not a number".into());
                }
                if old != new && (old == ESTABLISHED || new == ESTABLISHED) {
                    collector.set_session(time, peer, new == ESTABLISHED);
                }
            }
            _ => return Err("the kind is not B, A, W or STATE".into()),
        }
        collector.report.records += 1;
        Ok(())
    })
}

/// Writes a line of a table dump for each route, all of one peer without a name.
pub(crate) fn write(
    table: &RoutingTable,
    time: u64,
    out: &mut impl Write,
) -> Result<(), WriteError> {
    let labels = bgp_labels(table)?;
    table.each_route(|prefix, label| {
        let label = &labels[label.0 as usize];
        let next_hop = label.next_hop_of(&prefix);
        let path = match &label.origins[..] {
            [] => String::new(),
            [origin] => origin.to_string(),
            set => {
                let members: Vec<_> = set.iter().map(u32::to_string).collect();
                format!("{{{}}}", members.join(","))
            }
        };
        Ok(writeln!(
            out,
            "TABLE_DUMP2|{time}|B|0.0.0.0|0|{prefix}|{path}|IGP|{next_hop}|0|0||NAG||"
        )?)
    })
}

fn address(text: &[u8]) -> Option<IpAddr> {
    core::str::from_utf8(text).ok()?.parse().ok()
}

fn path_length(path: &[u8]) -> u32 {
    let mut length = 0;
    let mut confederation = false;
    for word in path.split(|&b| b == b' ').filter(|word| !word.is_empty()) {
        confederation |= matches!(word[0], b'(' | b'[');
        // A set is one word, with commas; a confederation's sequence is several.
        if !confederation {
            length += 1;
        }
        if matches!(word[word.len() - 1], b')' | b']') {
            confederation = false;
        }
    }
    length
}

/// Returns the last AS of a path, unless that is a member of a set.
fn origin_as(path: &[u8]) -> Option<u32> {
    let last = path.rsplit(|&b| b == b' ').find(|word| !word.is_empty())?;
    scan::number(last).and_then(|origin| origin.try_into().ok())
}

#[cfg(test)]
mod tests {
    use super::{origin_as, path_length};

    #[test]
    fn last_as_of_a_path_is_the_origin_unless_it_is_in_a_set() {
        assert_eq!(origin_as(b""), None);
        assert_eq!(origin_as(b"64500 4200000001"), Some(4_200_000_001));
        assert_eq!(origin_as(b"64500 {64501,64502}"), None);
    }

    #[test]
    fn as_path_length_counts_set_as_one_and_confederation_as_zero() {
        assert_eq!(path_length(b""), 0);
        assert_eq!(path_length(b"64500 64501 64501"), 3);
        assert_eq!(path_length(b"64500 {64501,64502}"), 2);
        assert_eq!(path_length(b"(65000 65001) 64500 [65002,65003] 64501"), 2);
    }
}
