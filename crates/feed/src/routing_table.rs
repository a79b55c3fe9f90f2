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
    /// What the labels stand for.
    pub labels: Labels,
    /// What was found on the way.
    pub report: Report,
}

/// What a file was and what was found in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The format, `None` for a table that was not read but generated.
    pub format: Option<Format>,
    /// How the file was packed.
    pub compression: Compression,
    /// The size of the unpacked content, in bytes.
    pub bytes: u64,
    /// The lines or records read (for JSON, the objects).
    pub records: u64,
    /// The routes met: lines of a table, entries of a dump.
    pub entries: u64,
    /// The announcements met in a stream of updates.
    pub announcements: u64,
    /// The withdrawals met in a stream of updates.
    pub withdrawals: u64,
    /// The IPv4 prefixes of the table; of a stream, those it touched.
    pub v4: usize,
    /// The IPv6 prefixes of the table; of a stream, those it touched.
    pub v6: usize,
    /// The entries that lost against another of the same prefix.
    pub duplicates: u64,
    /// The peers whose routes these are, 0 where the format names none.
    pub peers: usize,
    /// What a user should know: damage (see [`Options::partial`](crate::Options::partial)), what was
    /// skipped and why.
    pub warnings: Vec<String>,
}

impl RoutingTable {
    /// Writes the table as text, `PREFIX LABEL` a line, IPv4 first; it can be
    /// loaded again. A route with the empty label is its prefix alone.
    ///
    /// # Errors
    ///
    /// What the writer says.
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
