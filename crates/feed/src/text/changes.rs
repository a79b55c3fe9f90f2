//! Text updates: `UNIXTIME a|w PREFIX NEXTHOP`.
//!
//! The stream of one session, which has no name here: its peer is `0.0.0.0` of
//! AS 0. A withdrawal's next hop (`0.0.0.0` by custom) is not read and may be
//! missing. Seconds may have a fraction of up to six digits.

use core::net::{IpAddr, Ipv4Addr};
use std::io::Write;

use crate::collector::RouteCollector;
use crate::error::{Fault, WriteError};
use crate::routing_table::RoutingTable;
use crate::source::Source;
use crate::text::table::written_label;
use crate::text::{each_line, scan};
use crate::{Peer, Rank};

/// The one session of such a file.
const PEER: Peer = Peer { address: IpAddr::V4(Ipv4Addr::UNSPECIFIED), asn: 0 };

/// Reads all lines into `collector`.
pub(crate) fn read(source: &mut Source<'_>, collector: &mut RouteCollector) -> Result<(), Fault> {
    each_line(source, |_, line| {
        let (first, rest) = scan::field(line);
        if first.is_empty() || scan::is_comment(first) {
            return Ok(());
        }
        let time =
            micros(first).ok_or("the line does not begin with a time in seconds since 1970")?;
        let (verb, rest) = scan::field(rest);
        let (prefix, rest) = scan::field(rest);
        let prefix = scan::prefix(prefix, collector.truncate)?;
        match verb {
            b"a" | b"A" => {
                let next_hop = core::str::from_utf8(scan::label(rest))
                    .map_err(|_| "the next hop is not UTF-8 text")?;
                if next_hop.is_empty() {
                    return Err("an announcement without a next hop".into());
                }
                let label = collector.labels.intern(next_hop);
                collector.announce(time, PEER, prefix, 0, Rank::EVEN, label);
            }
            b"w" | b"W" => collector.withdraw(time, PEER, prefix, 0),
            _ => return Err("behind the time stands neither `a` nor `w`".into()),
        }
        collector.report.records += 1;
        Ok(())
    })
}

/// Writes an announcement for each route, all of one time.
pub(crate) fn write(
    table: &RoutingTable,
    time: u64,
    out: &mut impl Write,
) -> Result<(), WriteError> {
    let texts: Vec<_> = table.labels.iter().map(|(_, label)| written_label(label)).collect();
    table.each_route(|prefix, label| match &*texts[label.0 as usize] {
        "" => Err(WriteError::route(
            prefix,
            "an announcement needs a next hop, but the label is empty".into(),
        )),
        _ => Ok(()),
    })?;
    table.each_route(|prefix, label| {
        Ok(writeln!(out, "{time} a {prefix} {}", texts[label.0 as usize])?)
    })
}

/// Reads `SECONDS` or `SECONDS.FRACTION` as microseconds.
pub(crate) fn micros(text: &[u8]) -> Option<u64> {
    let (seconds, fraction) = match text.iter().position(|&b| b == b'.') {
        Some(dot) => (&text[..dot], &text[dot + 1..]),
        None => (text, &b"0"[..]),
    };
    if fraction.len() > 6 {
        return None;
    }
    let scale = 10u64.pow(6 - fraction.len() as u32);
    scan::number(seconds)?.checked_mul(1_000_000)?.checked_add(scan::number(fraction)? * scale)
}

#[cfg(test)]
mod tests {
    use super::micros;

    #[test]
    fn timestamp_fraction_is_read_as_microseconds() {
        assert_eq!(micros(b"1418774413"), Some(1_418_774_413_000_000));
        assert_eq!(micros(b"1.5"), Some(1_500_000));
        assert_eq!(micros(b"1.000001"), Some(1_000_001));
        for wrong in [&b""[..], b".", b"1.", b".5", b"1.0000001", b"-1", b"99999999999999999999"] {
            assert_eq!(micros(wrong), None);
        }
    }
}
