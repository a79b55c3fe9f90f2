//! Writes a table in any format that is read.
//!
//! ```text
//! RoutingTable ─► write ─┬─ text table, ip -j route, text updates: the label as it is
//!                        ├─ bgpdump -m, MRT, pfx2as: the label's next hop and origin (`bgp_label.rs`)
//!                        ├─ Click configuration: the label as a gateway or an output
//!                        └─ MaxMind database: the label as a record
//! ```
//!
//! A format that has no place for a label refuses the table and names the first such prefix, before
//! it writes anything; only the errors of the writer itself leave half a file.

use std::io::Write;

use crate::error::WriteError;
use crate::options::{Format, WriteOptions};
use crate::routing_table::RoutingTable;
use crate::{mmdb, mrt, text};

/// Writes a table in a format; [`read`](crate::read) reads it again.
///
/// | format | labels it has a place for | reading gives |
/// |---|---|---|
/// | text table | all | the label; one with blanks outside of JSON, or with a comment's sign at its beginning, as a JSON string |
/// | CAIDA pfx2as | an AS number, several, either behind a next hop | the AS numbers |
/// | Click configuration | a gateway of the route's family, an output's number below 65,536 | the label |
/// | `ip -j route` | addresses, `dev NAME`, several of both with commas between, types of routes such as `blackhole` | the label |
/// | text updates | all but the empty one | the label, as in a text table |
/// | `bgpdump -m`, MRT | an address, an AS number, both with a blank between, several AS numbers (`{64500,64501}`, `64500_64501`), nothing | the next hop, `0.0.0.0` or `::` if there is none |
/// | MaxMind database | all; IPv6 outside of `::/96` only | the label as JSON; a divided prefix in parts |
///
/// # Errors
///
/// See [`WriteError`].
///
/// # Complexity
///
/// One pass; for a MaxMind database, memory for the tree (16 bytes a node, some 1.6 nodes a prefix)
/// and for the records.
///
/// # Examples
///
/// ```
/// use fingerpost_feed::{Format, Options, WriteOptions, read, write};
/// let table = read(&b"192.0.2.0/24 64500\n"[..], "inline".as_ref(), &Options::default())?;
/// let options = WriteOptions {
///     time: 1_785_420_000,
///     record_key: Some("autonomous_system_number".into()),
///     database_type: "GeoLite2-ASN".into(),
/// };
/// let mut database = Vec::new();
/// write(&table, Format::Mmdb, &options, &mut database)?;
/// let table = read(&database[..], "inline".as_ref(), &Options::default())?;
/// assert_eq!(table.labels.get(table.v4[0].1), r#"{"autonomous_system_number":64500}"#);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn write(
    table: &RoutingTable,
    format: Format,
    options: &WriteOptions,
    out: &mut impl Write,
) -> Result<(), WriteError> {
    match format {
        Format::Table => text::table::write(table, out).map_err(WriteError::Io),
        Format::Pfx2as => text::pfx2as::write(table, out),
        Format::Click => text::click::write(table, out),
        Format::IpRoute => text::iproute::write(table, out),
        Format::UpdateText => text::changes::write(table, options.time, out),
        Format::Bgpdump => text::bgpdump::write(table, options.time, out),
        Format::Mrt => mrt::write(table, options.time, out),
        Format::Mmdb => mmdb::write(table, options, out),
    }
}
