//! Text tables: `PREFIX`, `PREFIX VALUE`, `PREFIX VALUE more`.
//!
//! RouteViews' origin tables (a tab, comments with `;`), tables of next hops (a blank, no
//! comments), netsets (`#`, addresses without a length) and plain lists of prefixes are all of this
//! one form. The value becomes the label unchanged: an address, an AS number, `{64500,64501}` or
//! `64500_64501` of a prefix with several origins, or the JSON of a record, whose strings may have blanks. A line
//! without a value has the empty label. The text behind the value is ignored.

use std::borrow::Cow;
use std::io::{self, Write};

use crate::error::Fault;
use crate::route_list::RouteList;
use crate::routing_table::RoutingTable;
use crate::source::Source;
use crate::text::{each_line, scan};

/// Reads all lines.
pub(crate) fn read(
    source: &mut Source<'_>,
    truncate: bool,
    routes: &mut RouteList<()>,
) -> Result<(), Fault> {
    each_line(source, |_, line| {
        let (first, rest) = scan::field(line);
        if first.is_empty() || scan::is_comment(first) {
            return Ok(());
        }
        let prefix = scan::prefix(first, truncate)?;
        let value = if scan::is_comment(rest) { b"" } else { scan::label(rest) };
        let value = core::str::from_utf8(value)
            .map_err(|_| "the value behind the prefix is not UTF-8 text".to_owned())?;
        let label = routes.labels.intern(value);
        routes.push(prefix, (), label);
        Ok(())
    })
}

/// Writes the routes, a line each.
pub(crate) fn write(table: &RoutingTable, out: &mut impl Write) -> io::Result<()> {
    let texts: Vec<_> = table.labels.iter().map(|(_, label)| written_label(label)).collect();
    table.each_route(|prefix, label| match &*texts[label.0 as usize] {
        "" => writeln!(out, "{prefix}"),
        label => writeln!(out, "{prefix} {label}"),
    })
}

/// Returns the text that is read as this label, or as its JSON string if no text is.
pub(crate) fn written_label(label: &str) -> Cow<'_, str> {
    let bytes = label.as_bytes();
    let is_read =
        !scan::is_comment(bytes) && !label.contains(['\n', '\r']) && scan::label(bytes) == bytes;
    if is_read { label.into() } else { serde_json::Value::from(label).to_string().into() }
}
