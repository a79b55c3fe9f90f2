//! The full Internet tables of 2026: the map against the library's routing table, and its frozen
//! tables against the map.

use std::path::PathBuf;

use feed::Options;
use fib::{Family, Rib};
use fingerpost_lpm::{Choice, Hop, LpmMap, Prefix};

/// Loads a table of the data folder.
fn load(name: &str) -> feed::RoutingTable {
    let default = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data"));
    let folder = std::env::var_os("FINGERPOST_DATA").map_or(default, PathBuf::from);
    let path = folder.join(name);
    assert!(path.exists(), "{} is missing: set FINGERPOST_DATA to the data", path.display());
    feed::load(&path, &Options::default()).unwrap()
}

fn check<A: Family>(routes: &[(Prefix<A>, feed::Label)]) {
    assert!(routes.len() > 200_000);
    let mut rng = fastrand::Rng::with_seed(7);
    let mut shuffled = routes.to_vec();
    rng.shuffle(&mut shuffled);
    let mut map: LpmMap<Prefix<A>, u32> =
        shuffled.iter().map(|(prefix, label)| (*prefix, label.0)).collect();
    let sorted: LpmMap<Prefix<A>, u32> =
        routes.iter().map(|(prefix, label)| (*prefix, label.0)).collect();
    assert_eq!(map, sorted, "the order of insertion does not matter");
    assert!(map.iter().map(|(prefix, _)| prefix).is_sorted());

    let rib = Rib::from_sorted(map.iter().map(|(prefix, label)| (prefix, Hop(1 + label))));
    let table = map.freeze(Choice::Auto).unwrap();
    let within = |prefix: Prefix<A>, bits: u128| {
        let host = prefix.addr().to_u128() ^ prefix.last().to_u128();
        A::from_u128(prefix.addr().to_u128() | bits & host)
    };
    let addrs: Vec<A> = shuffled.iter().map(|(prefix, _)| within(*prefix, rng.u128(..))).collect();
    let mut values = vec![None; addrs.len()];
    table.lookup_many(&addrs, &mut values);
    for (&addr, value) in addrs.iter().zip(values) {
        let longest = map.longest(addr);
        assert_eq!(longest.map(|(prefix, label)| (prefix, Hop(1 + label))), rib.longest(addr));
        assert_eq!(value, longest.map(|(_, label)| label));
    }

    let full = map.len();
    map.aggregate();
    assert!(map.len() < full, "{full} prefixes, and {} that matter", map.len());
    for addr in addrs {
        assert_eq!(
            map.longest(addr).map(|(_, label)| *label),
            sorted.longest(addr).map(|(_, label)| *label)
        );
    }
    for (prefix, label) in &shuffled {
        assert_eq!(sorted.get(prefix), Some(&label.0));
    }
    let mut empty = sorted;
    for (prefix, label) in shuffled {
        assert_eq!(empty.remove(&prefix), Some(label.0));
    }
    assert!(empty.is_empty() && empty.iter().next().is_none());
}

#[test]
fn full_ipv4_table_is_answered_as_by_the_routing_table() {
    check(&load("ipv4-20260730-routeviews-origin.dat.gz").v4);
}

#[test]
fn full_ipv6_table_is_answered_as_by_the_routing_table() {
    check(&load("ipv6-20260730-routeviews-origin.dat.gz").v6);
}
