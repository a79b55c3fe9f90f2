//! MaxMind databases: prefixes with any record, in a binary file.
//!
//! ```text
//! ┌─────────────┬────────┬──────────────┬──────────────────────┬──────────┐
//! │ search tree │ 16 × 0 │ data section │ ab cd ef MaxMind.com │ metadata │
//! └─────────────┴────────┴──────────────┴──────────────────────┴──────────┘
//!   a node: two records of               in the last 128 KiB
//!   24, 28 or 32 bits
//! ```
//!
//! The format is that of the MaxMind DB File Format Specification, version 2.0; the crate `maxminddb`
//! reads it, and `write.rs` and `encode.rs` write it. The label of a prefix is its record as JSON (`record.rs`), and prefixes that share a
//! record in the file share a label.
//!
//! A tree of IPv6 has IPv4 below `::/96`: those prefixes are IPv4 routes, and a shorter prefix around
//! `::/96` is a route to `0.0.0.0/0`, too. Where the tree leads to IPv4 a second time (`::ffff:0:0/96`,
//! `2001::/32`, `2002::/16`), the networks are left out, as by MaxMind's own readers.
//!
//! The file is held in memory as a whole, because only its end says how its beginning is read.

mod encode;
mod record;
mod write;

use core::net::{IpAddr, Ipv4Addr};

use fib::Prefix;
use hashbrown::HashMap;
use maxminddb::{MaxMindDbError, Reader, WithinOptions};

use crate::error::Fault;
use crate::label::Label;
use crate::prefix::AnyPrefix;
use crate::route_list::RouteList;
use crate::source::Source;
use record::Record;
pub(crate) use write::write;

/// The bytes before the metadata.
const MARKER: &[u8] = b"\xab\xcd\xefMaxMind.com";

/// The longest that the metadata is, with the marker.
const MAX_METADATA_LEN: usize = 128 * 1024;

/// A database that is longer is not read: its nodes and offsets have 32 bits.
const MAX_DATABASE_LEN: usize = u32::MAX as usize;

/// Returns whether content with this beginning may be a database: one that ends soon, or one whose root leads to
/// node 1. Writers number the nodes from the root on.
pub(crate) fn may_begin(head: &[u8]) -> bool {
    let Some(&[a, b, c, d, e, f, g, h]) = head.first_chunk() else { return false };
    let records = [
        [0, a, b, c],
        [0, d, e, f],
        [d >> 4, a, b, c],
        [d & 0xf, e, f, g],
        [a, b, c, d],
        [e, f, g, h],
    ];
    records.into_iter().any(|record| u32::from_be_bytes(record) == 1)
        || memchr::memmem::find(head, MARKER).is_some()
}

/// Returns whether the content of `source` is a database; it is read to its end for that.
pub(crate) fn is_database(source: &mut Source<'_>) -> bool {
    let content = source.peek(MAX_DATABASE_LEN);
    let end = &content[content.len().saturating_sub(MAX_METADATA_LEN)..];
    memchr::memmem::rfind(end, MARKER).is_some()
}

/// Returns the prefix of a network in the tree.
fn prefix(address: IpAddr, len: u8) -> Result<AnyPrefix, String> {
    let prefix = match address {
        IpAddr::V4(v4) => Prefix::new(v4.to_bits(), len.into()).map(AnyPrefix::V4),
        IpAddr::V6(v6) => Prefix::new(v6.to_bits(), len.into()).map(AnyPrefix::V6),
    };
    prefix.map_err(|error| format!("{address}/{len} in the search tree: {error}"))
}

/// Reads all networks that have a record.
pub(crate) fn read(source: &mut Source<'_>, routes: &mut RouteList<()>) -> Result<(), Fault> {
    source.peek(MAX_DATABASE_LEN);
    if let Some(reason) = source.broken() {
        return Err(damage(source.window().len() as u64, 1, reason.to_owned()));
    }
    let reader = Reader::from_source(source.window()).map_err(|error| fault(&error, 1))?;
    // Networks without a record, too: a tree without shared nodes has one leaf more than nodes, so that the
    // leaves of a damaged one, which leads from one node to others again and again, are counted.
    let mut options = WithinOptions::default().include_networks_without_data();
    if !has_ipv4_tree(&reader).map_err(|error| fault(&error, 1))? {
        // Where one record is for all of IPv4, the crate takes others with the same record for aliases.
        options = options.include_aliased_networks();
    }
    let leaves = u64::from(reader.metadata().node_count) + 1;
    let networks = reader.networks(options).map_err(|error| fault(&error, 1))?;
    let mut labels: HashMap<usize, Label> = HashMap::new();
    for (found, record) in networks.zip(1..) {
        let found = found.map_err(|error| fault(&error, record))?;
        if record > leaves {
            let what =
                format!("the search tree of {} nodes has more than {leaves} leaves", leaves - 1);
            return Err(damage(0, record, what));
        }
        let Some(offset) = found.offset() else { continue };
        let label = match labels.get(&offset) {
            Some(&label) => label,
            None => {
                let decoded: Option<Record> =
                    found.decode().map_err(|error| fault(&error, record))?;
                let label = routes.labels.intern(&decoded.unwrap_or_default().0);
                labels.insert(offset, label);
                label
            }
        };
        let network = found.network().map_err(|error| fault(&error, record))?;
        let prefix =
            prefix(network.ip(), network.prefix()).map_err(|what| damage(0, record, what))?;
        let covers_ipv4 = matches!(prefix, AnyPrefix::V6(v6) if v6.contains(0) && v6.len() <= 96);
        if covers_ipv4 {
            routes.push(AnyPrefix::V4(Prefix::ALL), (), label);
        }
        if !covers_ipv4 || network.prefix() < 96 {
            routes.push(prefix, (), label);
        }
    }
    Ok(())
}

/// Returns whether there are nodes below `::/96`, to which aliases may lead.
fn has_ipv4_tree(reader: &Reader<&[u8]>) -> Result<bool, MaxMindDbError> {
    let network = reader.lookup(Ipv4Addr::UNSPECIFIED.into())?.network()?;
    Ok(network.is_ipv4() && network.prefix() > 0)
}

fn damage(offset: u64, record: u64, what: String) -> Fault {
    Fault::Damage { offset, record, what }
}

fn fault(error: &MaxMindDbError, record: u64) -> Fault {
    let offset = match error {
        MaxMindDbError::InvalidDatabase { offset, .. }
        | MaxMindDbError::Decoding { offset, .. }
        | MaxMindDbError::ResourceLimit { offset, .. } => offset.unwrap_or(0),
        _ => 0,
    };
    damage(offset as u64, record, error.to_string())
}
