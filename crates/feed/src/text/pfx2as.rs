//! CAIDA's prefix-to-AS mappings: `ADDRESS LENGTH AS`, with tabs between.
//!
//! ```text
//! 1.0.0.0      24    13335
//! 1.2.4.0      24    64500_64501    several origins
//! 2001:db8::   32    64500,64501    an AS set
//! ```
//!
//! Such files are made from the tables of RouteViews each day (`routeviews-rv2-*.pfx2as.gz`), for each family one.
//! The third field becomes the label unchanged.

use core::net::IpAddr;
use std::io::Write;

use crate::bgp_label::bgp_labels;
use crate::error::{Fault, WriteError};
use crate::route_list::RouteList;
use crate::routing_table::RoutingTable;
use crate::source::Source;
use crate::text::{each_line, scan};

/// Returns whether a line has this form: three fields, and the first is an address without a length.
pub(crate) fn is_line(line: &[u8]) -> bool {
    let Some([address, length, origins]) = fields(line) else { return false };
    let address: Option<IpAddr> =
        core::str::from_utf8(address).ok().and_then(|text| text.parse().ok());
    let width = address.map_or(0, |address| if address.is_ipv6() { 128 } else { 32 });
    scan::number(length).is_some_and(|length| width > 0 && length <= width)
        && origins.iter().all(|b| b.is_ascii_digit() || matches!(b, b'_' | b','))
        && origins[0].is_ascii_digit()
}

/// Splits a line of three fields.
fn fields(line: &[u8]) -> Option<[&[u8]; 3]> {
    let (address, rest) = scan::field(line);
    let (length, rest) = scan::field(rest);
    let (origins, rest) = scan::field(rest);
    (rest.is_empty() && !origins.is_empty()).then_some([address, length, origins])
}

/// Reads all lines.
pub(crate) fn read(
    source: &mut Source<'_>,
    truncate: bool,
    routes: &mut RouteList<()>,
) -> Result<(), Fault> {
    let mut text = Vec::new();
    each_line(source, |_, line| {
        let (first, _) = scan::field(line);
        if first.is_empty() || scan::is_comment(first) {
            return Ok(());
        }
        let [address, length, origins] =
            fields(line).ok_or("the line has not three fields: an address, a length and an AS")?;
        text.clear();
        for part in [address, b"/", length] {
            text.extend_from_slice(part);
        }
        let prefix = scan::prefix(&text, truncate)?;
        let origins =
            core::str::from_utf8(origins).map_err(|_| "the AS is not UTF-8 text".to_owned())?;
        let label = routes.labels.intern(origins);
        routes.push(prefix, (), label);
        Ok(())
    })
}

/// Writes the routes, a line each.
pub(crate) fn write(table: &RoutingTable, out: &mut impl Write) -> Result<(), WriteError> {
    let labels = bgp_labels(table)?;
    let text = |origins: &[u32], separator| {
        origins.iter().map(u32::to_string).collect::<Vec<_>>().join(separator)
    };
    let texts: Vec<String> = table
        .labels
        .iter()
        .zip(&labels)
        .map(|((_, label), parsed)| {
            text(&parsed.origins, if label.contains(',') { "," } else { "_" })
        })
        .collect();
    table.each_route(|prefix, label| match texts[label.0 as usize].is_empty() {
        true => Err(WriteError::route(prefix, "has no AS that originated it".into())),
        false => Ok(()),
    })?;
    table.each_route(|prefix, label| {
        let prefix = prefix.to_string().replace('/', "\t");
        Ok(writeln!(out, "{prefix}\t{}", texts[label.0 as usize])?)
    })
}
