//! Builds a table from routes in any order: sorted, one route a prefix.
//!
//! Most files are sorted already; this is detected while routes are added, and the sort is omitted.
//! If a prefix occurs more than once, the lowest rank wins, and among equal ranks the last one: a
//! text table has no ranks, so its last line wins. In a sorted file the decision is made
//! immediately, and a dump of many peers never holds more than one candidate a prefix.

use fib::{Addr, Prefix};

use crate::Label;

/// Builds the table of one family; `R` ranks the candidates of a prefix.
pub(crate) struct TableBuilder<A, R> {
    rows: Vec<(Prefix<A>, R, Label)>,
    disordered: bool,
    duplicates: u64,
}

impl<A: Addr, R: Copy + Ord> TableBuilder<A, R> {
    pub(crate) fn new() -> Self {
        Self { rows: Vec::new(), disordered: false, duplicates: 0 }
    }

    /// Adds a candidate.
    #[inline]
    pub(crate) fn push(&mut self, prefix: Prefix<A>, rank: R, label: Label) {
        if let Some(last) = self.rows.last_mut()
            && last.0 >= prefix
        {
            if last.0 == prefix {
                self.duplicates += 1;
                if rank <= last.1 {
                    *last = (prefix, rank, label);
                }
                return;
            }
            self.disordered = true;
        }
        self.rows.push((prefix, rank, label));
    }

    /// Returns the table and the number of rejected candidates.
    pub(crate) fn finish(mut self) -> (Vec<(Prefix<A>, Label)>, u64) {
        if self.disordered {
            // Stable: among equal prefixes the order of arrival decides.
            self.rows.sort_by_key(|row| row.0);
            let before = self.rows.len();
            self.rows.dedup_by(|next, kept| {
                let same = next.0 == kept.0;
                if same && next.1 <= kept.1 {
                    *kept = *next;
                }
                same
            });
            self.duplicates += (before - self.rows.len()) as u64;
        }
        let routes = self.rows.into_iter().map(|(prefix, _, label)| (prefix, label)).collect();
        (routes, self.duplicates)
    }
}

#[cfg(test)]
mod tests {
    use super::TableBuilder;
    use crate::Label;
    use fib::Prefix;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn table_builder_equals_ordered_map(rows in prop::collection::vec((0u8..16, 0u32..5, 0u8..4), 0..60),
                                 sorted: bool) {
            let mut rows: Vec<_> = rows
                .iter()
                .enumerate()
                .map(|(n, &(addr, len, rank))| {
                    (Prefix::truncate(addr << 4, len), rank, Label(n as u32))
                })
                .collect();
            if sorted {
                rows.sort_by_key(|row| row.0);
            }
            let mut builder = TableBuilder::new();
            let mut map = BTreeMap::new();
            for &(prefix, rank, label) in &rows {
                builder.push(prefix, rank, label);
                let best = map.entry(prefix).or_insert((rank, label));
                if rank <= best.0 {
                    *best = (rank, label);
                }
            }
            let (routes, duplicates) = builder.finish();
            let expected: Vec<_> = map.iter().map(|(&p, &(_, l))| (p, l)).collect();
            prop_assert_eq!(duplicates as usize, rows.len() - expected.len());
            prop_assert_eq!(routes, expected);
        }
    }
}
