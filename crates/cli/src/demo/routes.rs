//! The routes of a demonstration, and where each of them leads.
//!
//! They come from the generator or from files. What a file has behind a prefix
//! (a next hop, an origin AS) is hashed to one of [`NEXT_HOPS`] next hops,
//! which share the two links that there are: odd ones lead to sink 0, even ones
//! to sink 1. That many, and not two, because neighboring routes with one next
//! hop melt into one run: two would make the table far smaller than a real one.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use feed::{Label, Loaded, Options, Recipe};
use fib::{Addr, Hop, Prefix};

use super::network::EXITS;

/// How many next hops there are: as many as fit a byte beside "no route".
const NEXT_HOPS: u64 = 254;

/// The routes of both families, sorted and unique.
#[derive(Debug)]
pub(super) struct Routes {
    /// Those of IPv4.
    pub(super) v4: Vec<(Prefix<u32>, Hop)>,
    /// Those of IPv6.
    pub(super) v6: Vec<(Prefix<u128>, Hop)>,
    /// Where they come from, for people.
    pub(super) origin: String,
    /// How long it took to get them.
    pub(super) took: Duration,
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
        latest(&mut v4);
        latest(&mut v6);
        let name = |path: &PathBuf| {
            path.file_name()
                .map_or_else(|| path.display().to_string(), |n| n.to_string_lossy().into())
        };
        let origin = files.iter().map(name).collect::<Vec<String>>().join(", ");
        if v4.is_empty() && v6.is_empty() {
            bail!("{origin}: no routes");
        }
        Ok(Self { v4, v6, origin, took: start.elapsed() })
    }

    /// Makes a table of the size and shape of the Internet's.
    pub(super) fn generate(seed: u64) -> Self {
        let start = Instant::now();
        let loaded = feed::generate(&Recipe { seed, ..Recipe::default() });
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        add(&loaded, &mut v4, &mut v6);
        Self { v4, v6, origin: format!("generated, seed {seed}"), took: start.elapsed() }
    }

    /// Returns the number of routes.
    pub(super) fn len(&self) -> usize {
        self.v4.len() + self.v6.len()
    }
}

fn add(loaded: &Loaded, v4: &mut Vec<(Prefix<u32>, Hop)>, v6: &mut Vec<(Prefix<u128>, Hop)>) {
    let hops: Vec<Hop> = loaded.labels.iter().map(|(_, text)| hop_of(text)).collect();
    let hop = |label: Label| hops[label.0 as usize];
    v4.extend(loaded.v4.iter().map(|&(prefix, label)| (prefix, hop(label))));
    v6.extend(loaded.v6.iter().map(|&(prefix, label)| (prefix, hop(label))));
}

/// Sorts, and keeps the last of those alike.
fn latest<A: Addr>(routes: &mut Vec<(Prefix<A>, Hop)>) {
    // A stable sort: those alike stay in the order in which they came.
    routes.sort_by_key(|&(prefix, _)| prefix);
    routes.dedup_by(|later, kept| {
        let alike = later.0 == kept.0;
        if alike {
            kept.1 = later.1;
        }
        alike
    });
}

/// Hashes a label to a next hop, the same one in every run: FNV-1a, and a
/// multiplication more, since short labels leave its upper bits uneven.
fn hop_of(label: &str) -> Hop {
    let hash = label.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let hash = (hash ^ hash >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    Hop(1 + ((hash >> 32) % NEXT_HOPS) as u32)
}

/// Walks the next hops that routes may have.
pub(super) fn hops() -> impl Iterator<Item = Hop> {
    (1..=NEXT_HOPS as u32).map(Hop)
}

/// Returns the sink that a next hop leads to.
pub(super) fn sink_of(hop: Hop) -> u8 {
    (hop.0 + 1) as u8 % EXITS.len() as u8
}

/// Pairs each prefix with its sink: what the [`Oracle`](super::packets::Oracle)
/// learns.
pub(super) fn sinks<A: Addr>(routes: &[(Prefix<A>, Hop)]) -> Vec<(Prefix<A>, u8)> {
    routes.iter().map(|&(prefix, hop)| (prefix, sink_of(hop))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_later_route_counts() {
        let prefix = |text: &str| text.parse::<Prefix<u32>>().expect("a prefix");
        let (ten, eleven) = (prefix("10.0.0.0/8"), prefix("11.0.0.0/8"));
        let mut routes = vec![(eleven, Hop(1)), (ten, Hop(2)), (ten, Hop(3)), (eleven, Hop(4))];
        latest(&mut routes);
        assert_eq!(routes, [(ten, Hop(3)), (eleven, Hop(4))]);
    }

    #[test]
    fn labels_spread_over_all_next_hops_and_both_sinks() {
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
