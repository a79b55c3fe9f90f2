//! The counts of loads, beside a scan of all addresses.

use std::collections::BTreeMap;

use fastrand::Rng;
use fingerpost_fib::{Choice, Fib, Hop, LoadCounts, Prefix, Rib};

use super::tables::engines;

/// Engines whose lookups can have other loads for another address of a block with one answer.
const APPROXIMATE: [&str; 3] = ["patricia", "pbf", "sail6_large"];

#[test]
fn load_counts_are_those_of_a_scan_of_all_addresses() {
    let mut rng = Rng::with_seed(7);
    for routes in [0, 1, 40, 400] {
        let mut rib = Rib::<u16>::new();
        for _ in 0..routes {
            let prefix = Prefix::truncate(rng.u16(..), rng.u32(0..=16));
            rib.insert(prefix, Hop(rng.u32(1..9)));
        }
        for choice in engines::<u16>() {
            let name = choice.name::<u16>();
            if APPROXIMATE.contains(&name.as_str()) {
                continue;
            }
            let fib = Fib::build(&rib, choice, 1).unwrap();
            let loads = |addr| fib.trace(addr).1.len();
            let mut scan = BTreeMap::new();
            for addr in 0..=u16::MAX {
                *scan.entry(loads(addr)).or_default() += 1;
            }
            let counts = LoadCounts::of_addresses(&fib, &rib).unwrap();
            assert_eq!(counts.iter().collect::<BTreeMap<_, u64>>(), scan, "{name}");
            assert_eq!(counts.total(), 1 << 16);
            let mut scan = BTreeMap::new();
            for (prefix, _) in &rib {
                *scan.entry(loads(prefix.addr())).or_default() += 1;
            }
            let counts = LoadCounts::of_routes(&fib, &rib);
            assert_eq!(counts.iter().collect::<BTreeMap<_, u64>>(), scan, "{name}");
        }
    }
}

#[test]
fn direct_coverage_of_chunks_is_the_share_of_addresses_without_a_search() {
    let mut rng = Rng::with_seed(8);
    let mut rib = Rib::<u16>::new();
    for _ in 0..300 {
        rib.insert(Prefix::truncate(rng.u16(..), rng.u32(3..=14)), Hop(rng.u32(1..9)));
    }
    for (name, direct_loads) in [("D6R", 1), ("D8R", 1), ("D4X4R", 2)] {
        let fib = Fib::build(&rib, Choice::parse::<u16>(name).unwrap(), 1).unwrap();
        let chunks = fib.engine().chunks().unwrap();
        let counts = LoadCounts::of_addresses(&fib, &rib).unwrap();
        let direct = counts.iter().find(|&(loads, _)| loads == direct_loads).unwrap().1;
        let share = direct as f64 / 65536.0;
        assert!(share > 0.0 && share < 1.0, "{name}: {share}");
        assert!((chunks.direct_coverage() - share).abs() < 1e-9, "{name}: {share} {chunks:?}");
    }
}
