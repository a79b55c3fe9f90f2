//! A routing table of both families as it was read, and the report on how it was read.
//!
//! Both families are sorted by address, then length, and each prefix stands once: the input that
//! `Rib::from_sorted` and the sweep expect.

use std::io::{self, Write};

use fib::{Addr, Prefix};

use crate::label::{Label, Labels};
use crate::options::{Compression, Format};

/// A routing table of both families.
#[derive(Clone, Debug, Default)]
pub struct RoutingTable {
    /// The IPv4 routes, sorted, each prefix once.
    pub v4: Vec<(Prefix<u32>, Label)>,
    /// The IPv6 routes, sorted, each prefix once.
    pub v6: Vec<(Prefix<u128>, Label)>,
    /// The texts of the labels.
    pub labels: Labels,
    /// The report on reading it.
    pub report: Report,
}

/// The properties and the content of a file, in numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The format; `None` for a generated table.
    pub format: Option<Format>,
    /// The compression of the file.
    pub compression: Compression,
    /// The size of the unpacked content, in bytes.
    pub bytes: u64,
    /// The lines or records read (for JSON, the objects).
    pub records: u64,
    /// The routes read: lines of a table, entries of a dump.
    pub entries: u64,
    /// The announcements in a stream of updates.
    pub announcements: u64,
    /// The withdrawals in a stream of updates.
    pub withdrawals: u64,
    /// The IPv4 prefixes of the table, or those that a stream changed.
    pub v4: usize,
    /// The IPv6 prefixes of the table, or those that a stream changed.
    pub v6: usize,
    /// The entries that were worse than another of the same prefix.
    pub duplicates: u64,
    /// The number of peers; 0 if the format names none.
    pub peers: usize,
    /// Warnings: damage (see [`Options::partial`](crate::Options::partial)), and skipped entries
    /// with the reason.
    pub warnings: Vec<String>,
}

impl RoutingTable {
    /// Writes the table as text, `PREFIX LABEL` a line, IPv4 first; it can be
    /// loaded again. A route with the empty label is its prefix alone.
    ///
    /// # Errors
    ///
    /// The writer's error.
    pub fn write_text(&self, out: &mut impl Write) -> io::Result<()> {
        write_routes(&self.v4, &self.labels, out)?;
        write_routes(&self.v6, &self.labels, out)
    }
}

fn write_routes<A: Addr>(
    routes: &[(Prefix<A>, Label)],
    labels: &Labels,
    out: &mut impl Write,
) -> io::Result<()> {
    for &(prefix, label) in routes {
        match labels.get(label) {
            "" => writeln!(out, "{prefix}")?,
            label => writeln!(out, "{prefix} {label}")?,
        }
    }
    Ok(())
}
