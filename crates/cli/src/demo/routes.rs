//! The routes of a demonstration and their next hops.
//!
//! Routes are generated or loaded from files. The label of a prefix in a file (a next hop, an origin
//! AS) is hashed to one of [`NEXT_HOPS`] next hops, which share the two links: odd ones lead to sink
//! 0, even ones to sink 1. With only two next hops, many neighboring routes would merge into one run,
//! and the table would be far smaller than a real one.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use feed::{Label, Options, Recipe, RoutingTable};
use fib::{Addr, Hop, Prefix};

use super::network::EXITS;

/// The number of next hops: as many as fit a byte beside "no route".
const NEXT_HOPS: u64 = 254;

/// The routes of both families, sorted and unique.
#[derive(Debug)]
pub(super) struct Routes {
    /// IPv4 routes.
    pub(super) v4: Vec<(Prefix<u32>, Hop)>,
    /// IPv6 routes.
    pub(super) v6: Vec<(Prefix<u128>, Hop)>,
    /// Their origin, for the report.
    pub(super) origin: String,
    /// The time to load or generate them.
    pub(super) load_time: Duration,
}

impl Routes {
    /// Loads files; where two have the same prefix, the later file wins.
    pub(super) fn load(files: &[PathBuf]) -> Result<Self> {
        let start = Instant::now();
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for path in files {
            let loaded = feed::load(path, &Options::default())?;
            add(&loaded, &mut v4, &mut v6);
        }
        sort_and_deduplicate(&mut v4);
        sort_and_deduplicate(&mut v6);
        let name = |path: &PathBuf| {
            path.file_name()
                .map_or_else(|| path.display().to_string(), |n| n.to_string_lossy().into())
        };
        let origin = files.iter().map(name).collect::<Vec<String>>().join(", ");
        if v4.is_empty() && v6.is_empty() {
            bail!("{origin}: no routes");
        }
        Ok(Self { v4, v6, origin, load_time: start.elapsed() })
    }

    /// Generates a table with the size and the distribution of the Internet's.
    pub(super) fn generate(seed: u64) -> Self {
        let start = Instant::now();
        let loaded = feed::generate(&Recipe { seed, ..Recipe::default() });
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        add(&loaded, &mut v4, &mut v6);
        Self { v4, v6, origin: format!("generated, seed {seed}"), load_time: start.elapsed() }
    }

    /// Returns the number of routes.
    pub(super) fn len(&self) -> usize {
        self.v4.len() + self.v6.len()
    }
}

fn add(loaded: &RoutingTable, v4: &mut Vec<(Prefix<u32>, Hop)>, v6: &mut Vec<(Prefix<u128>, Hop)>) {
    let hops: Vec<Hop> = loaded.labels.iter().map(|(_, text)| hop_of(text)).collect();
    let hop = |label: Label| hops[label.0 as usize];
    v4.extend(loaded.v4.iter().map(|&(prefix, label)| (prefix, hop(label))));
    v6.extend(loaded.v6.iter().map(|&(prefix, label)| (prefix, hop(label))));
}

/// Sorts, and removes all but the last of routes with the same prefix.
fn sort_and_deduplicate<A: Addr>(routes: &mut Vec<(Prefix<A>, Hop)>) {
    // A stable sort keeps the order of routes with the same prefix.
    routes.sort_by_key(|&(prefix, _)| prefix);
    routes.dedup_by(|later, first| {
        let is_same = later.0 == first.0;
        if is_same {
            first.1 = later.1;
        }
        is_same
    });
}

/// Hashes a label to a next hop, the same one in every run: FNV-1a and another multiplication, because
/// the upper bits of FNV-1a are not uniform for short labels.
fn hop_of(label: &str) -> Hop {
    let hash = feed::fnv1a(label.bytes());
    let hash = (hash ^ hash >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    Hop(1 + ((hash >> 32) % NEXT_HOPS) as u32)
}

/// Iterates over all next hops of routes.
pub(super) fn hops() -> impl Iterator<Item = Hop> {
    (1..=NEXT_HOPS as u32).map(Hop)
}

/// Returns the sink that a next hop leads to.
pub(super) fn sink_of(hop: Hop) -> u8 {
    (hop.0 + 1) as u8 % EXITS.len() as u8
}

/// Returns each prefix with its sink, for the [`Oracle`](super::packets::Oracle).
pub(super) fn sinks<A: Addr>(routes: &[(Prefix<A>, Hop)]) -> Vec<(Prefix<A>, u8)> {
    routes.iter().map(|&(prefix, hop)| (prefix, sink_of(hop))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_route_of_a_prefix_wins() {
        let prefix = |text: &str| text.parse::<Prefix<u32>>().expect("a prefix");
        let (ten, eleven) = (prefix("10.0.0.0/8"), prefix("11.0.0.0/8"));
        let mut routes = vec![(eleven, Hop(1)), (ten, Hop(2)), (ten, Hop(3)), (eleven, Hop(4))];
        sort_and_deduplicate(&mut routes);
        assert_eq!(routes, [(ten, Hop(3)), (eleven, Hop(4))]);
    }

    #[test]
    fn labels_are_spread_over_all_next_hops_and_sinks() {
        let mut used = std::collections::BTreeSet::new();
        let mut sinks = [0; 2];
        for label in 0..10_000 {
            let hop = hop_of(&format!("AS{label}"));
            used.insert(hop);
            sinks[usize::from(sink_of(hop))] += 1;
        }
        assert!(used.iter().copied().eq(hops()), "{} are used", used.len());
        assert!(sinks.iter().all(|&n| n > 4_500), "{sinks:?}");
        assert_eq!(hop_of("nh1"), hop_of("nh1"));
    }
}
