//! The routes of a file that has one label for a prefix: a text table, `ip -j route`, a MaxMind database.

use crate::label::{Label, Labels};
use crate::prefix::AnyPrefix;
use crate::routing_table::{Report, RoutingTable};
use crate::table_builder::TableBuilder;

/// The routes read so far; `R` ranks those of one prefix, as in [`TableBuilder`].
pub(crate) struct RouteList<R> {
    pub(crate) labels: Labels,
    v4: TableBuilder<u32, R>,
    v6: TableBuilder<u128, R>,
    entries: u64,
}

impl<R: Copy + Ord> RouteList<R> {
    pub(crate) fn new() -> Self {
        Self { labels: Labels::new(), v4: TableBuilder::new(), v6: TableBuilder::new(), entries: 0 }
    }

    /// Counts the routes read, those of equal prefixes included.
    pub(crate) fn entries(&self) -> u64 {
        self.entries
    }

    /// Adds a route.
    pub(crate) fn push(&mut self, prefix: AnyPrefix, rank: R, label: Label) {
        match prefix {
            AnyPrefix::V4(prefix) => self.v4.push(prefix, rank, label),
            AnyPrefix::V6(prefix) => self.v6.push(prefix, rank, label),
        }
        self.entries += 1;
    }

    /// Returns the table.
    pub(crate) fn into_table(self) -> RoutingTable {
        let Self { labels, v4, v6, entries } = self;
        let (v4, lost4) = v4.finish();
        let (v6, lost6) = v6.finish();
        let report =
            Report { entries, records: entries, duplicates: lost4 + lost6, ..Report::default() };
        RoutingTable { v4, v6, labels, report }
    }
}
