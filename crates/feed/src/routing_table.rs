//! A routing table of both families as it was read, and the report on how it was read.
//!
//! Both families are sorted by address, then length, and each prefix stands once: the input that
//! `Rib::from_sorted` and the sweep expect.

use fib::Prefix;

use crate::label::{Label, Labels};
use crate::options::{Compression, Format};
use crate::prefix::AnyPrefix;

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
    /// Calls `each` with each route, IPv4 first, until it returns an error.
    pub(crate) fn each_route<E>(
        &self,
        mut each: impl FnMut(AnyPrefix, Label) -> Result<(), E>,
    ) -> Result<(), E> {
        let v4 = self.v4.iter().map(|&(prefix, label)| (AnyPrefix::V4(prefix), label));
        let v6 = self.v6.iter().map(|&(prefix, label)| (AnyPrefix::V6(prefix), label));
        v4.chain(v6).try_for_each(|(prefix, label)| each(prefix, label))
    }
}
