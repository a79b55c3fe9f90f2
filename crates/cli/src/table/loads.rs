//! The loads of lookups, as `table info --loads` prints them: how many routes and addresses need how many.

use std::collections::BTreeMap;

use fib::{Family, Fib, LoadCounts, Rib};
use output::progress;
use serde::Serialize;

/// The values on a line.
const PER_LINE: usize = 6;

/// The number of routes, and of IPv4 addresses, by the loads of their lookups.
#[derive(Debug, Serialize)]
pub(super) struct LoadSummary {
    /// By the first address of each route.
    routes_by_loads: BTreeMap<usize, u64>,
    /// Not for IPv6.
    #[serde(skip_serializing_if = "Option::is_none")]
    addresses_by_loads: Option<BTreeMap<usize, u64>>,
}

impl LoadSummary {
    /// Looks up each route, and each IPv4 address.
    pub(super) fn count<A: Family>(fib: &Fib<A>, rib: &Rib<A>) -> Self {
        progress::during("counting the loads of lookups", || Self {
            routes_by_loads: LoadCounts::of_routes(fib, rib).iter().collect(),
            addresses_by_loads: LoadCounts::of_addresses(fib, rib)
                .map(|counts| counts.iter().collect()),
        })
    }

    /// Returns the shares as lines with their titles.
    pub(super) fn lines(&self) -> Vec<String> {
        let addresses = self.addresses_by_loads.iter().map(|counts| ("addresses by loads", counts));
        let routes = [("routes by loads", &self.routes_by_loads)];
        addresses.chain(routes).flat_map(|(title, counts)| share_lines(title, counts)).collect()
    }
}

/// Formats the counts as percentages of their sum.
fn share_lines(title: &str, counts: &BTreeMap<usize, u64>) -> Vec<String> {
    let total: u64 = counts.values().sum();
    let share = |(loads, count): (&usize, &u64)| {
        let percent = 100.0 * *count as f64 / total as f64;
        if percent < 0.001 {
            return format!("{loads}: <0.001 %");
        }
        format!("{loads}: {percent:.3} %")
    };
    let shares: Vec<String> = counts.iter().map(share).collect();
    let lines = shares.chunks(PER_LINE).enumerate();
    lines
        .map(|(row, line)| format!("{:<20}{}", if row == 0 { title } else { "" }, line.join("  ")))
        .collect()
}
