//! Text tables: `PREFIX`, `PREFIX VALUE`, `PREFIX VALUE more`.
//!
//! RouteViews' origin tables (a tab, comments with `;`), tables of next hops (a blank, no
//! comments), netsets (`#`, addresses without a length) and plain lists of prefixes are all of this
//! one form. The value becomes the label unchanged: an address, an AS number, `{64500,64501}` or
//! `64500_64501` of a prefix with several origins. A line without a value has the empty label. The
//! text behind the value is ignored.

use crate::error::Fault;
use crate::route_list::RouteList;
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
        let (value, _) = scan::field(rest);
        let value = if scan::is_comment(value) { b"" } else { value };
        let value = core::str::from_utf8(value)
            .map_err(|_| "the value behind the prefix is not UTF-8 text".to_owned())?;
        let label = routes.labels.intern(value);
        routes.push(prefix, (), label);
        Ok(())
    })
}
