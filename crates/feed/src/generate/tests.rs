//! The generator reproduces the tables it was measured on.

use std::collections::BTreeMap;

use fib::{Addr, Hop, Prefix, runs};

use super::model::{Model, top};
use super::{Recipe, generate};
use crate::{Format, Label, Options, RoutingTable, WriteOptions, fnv1a, write};

fn real(name: &str) -> RoutingTable {
    let folder = std::env::var("FINGERPOST_DATA").unwrap_or_else(|_| {
        concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data").to_owned()
    });
    let path = format!("{folder}/{name}");
    crate::load(&path, &Options::default()).unwrap_or_else(|error| {
        panic!("{error}: set FINGERPOST_DATA to the folder of routing data")
    })
}

/// The properties that two tables are compared by.
#[derive(Debug)]
struct Shape {
    lengths: BTreeMap<u32, usize>,
    nested: f64,
    /// Shares of the nested routes by length of the cover.
    covers: BTreeMap<u32, f64>,
    /// Shares of equal neighbors, and of nested routes equal to their cover.
    like_before: f64,
    like_cover: f64,
    labels: usize,
    runs: usize,
    blocks: Vec<usize>,
}

fn shape<A: Addr>(routes: &[(Prefix<A>, Label)]) -> Shape {
    let mut lengths = BTreeMap::new();
    let mut covers: BTreeMap<u32, f64> = BTreeMap::new();
    let mut stack: Vec<(Prefix<A>, Label)> = Vec::new();
    let (mut nested, mut like_cover) = (0usize, 0usize);
    for &(prefix, label) in routes {
        *lengths.entry(prefix.len()).or_default() += 1;
        stack.retain(|cover| cover.0.covers(prefix));
        if let Some(cover) = stack.last() {
            nested += 1;
            like_cover += usize::from(cover.1 == label);
            *covers.entry(cover.0.len()).or_default() += 1.0;
        }
        stack.push((prefix, label));
    }
    covers.values_mut().for_each(|share| *share /= nested as f64);
    let like_before = routes.windows(2).filter(|pair| pair[0].1 == pair[1].1).count();
    let mut names: Vec<_> = routes.iter().map(|route| route.1).collect();
    names.sort_unstable();
    names.dedup();
    let mut swept = Vec::new();
    let hops = routes.iter().map(|&(prefix, label)| (prefix, Hop(label.0 + 1)));
    runs::sweep(Prefix::ALL, Hop::NONE, hops, &mut swept);
    let same_block = |a: &(Prefix<A>, Label), b: &(Prefix<A>, Label)| {
        a.0.addr().common(b.0.addr()) >= top::<A>()
    };
    Shape {
        lengths,
        nested: nested as f64 / routes.len() as f64,
        covers,
        like_before: like_before as f64 / routes.len() as f64,
        like_cover: like_cover as f64 / nested as f64,
        labels: names.len(),
        runs: swept.len(),
        blocks: routes.chunk_by(same_block).map(<[_]>::len).collect(),
    }
}

fn assert_alike<A: Addr>(
    made: &[(Prefix<A>, Label)],
    real: &[(Prefix<A>, Label)],
    like_cover: f64,
    runs: f64,
) {
    assert!(made.windows(2).all(|pair| pair[0].0 < pair[1].0), "out of order");
    let (made, real) = (shape(made), shape(real));
    for (len, &count) in &real.lengths {
        let here = made.lengths.get(len).copied().unwrap_or(0);
        assert!(here.abs_diff(count) as f64 <= 0.01 * count as f64, "/{len}: {here} for {count}");
    }
    let near = |what: &str, a: f64, b: f64, by: f64| {
        assert!((a - b).abs() <= by, "{what}: {a} for {b}, more than {by} apart");
    };
    near("nested", made.nested, real.nested, 0.001);
    for (len, &share) in &real.covers {
        let here = made.covers.get(len).copied().unwrap_or(0.0);
        near(&format!("nested in a /{len}"), here, share, 0.02);
    }
    near("like the one before", made.like_before, real.like_before, 0.01);
    near("like the cover", made.like_cover, real.like_cover, like_cover);
    near("runs", made.runs as f64, real.runs as f64, runs * real.runs as f64);
    assert_eq!(made.labels, real.labels);
    // The crowding of the top blocks: how many routes lie in another of the
    // blocks, sorted by size, than they should.
    assert_eq!(made.blocks.len(), real.blocks.len());
    let sorted = |mut blocks: Vec<usize>| {
        blocks.sort_unstable();
        blocks
    };
    let total: usize = real.blocks.iter().sum();
    let apart: usize =
        sorted(made.blocks).iter().zip(sorted(real.blocks)).map(|(&a, b)| a.abs_diff(b)).sum();
    assert!(apart * 4 < total, "{apart} of {total} routes lie in blocks of other sizes");
}

#[test]
fn generated_table_resembles_measured_table() {
    let (v4, v6) = (
        real("ipv4-20260730-routeviews-origin.dat.gz").v4,
        real("ipv6-20260730-routeviews-origin.dat.gz").v6,
    );
    for seed in [1, 99] {
        let made = generate(&Recipe { seed, labels: None, ..Recipe::default() });
        assert_eq!((made.v4.len(), made.v6.len()), (1_107_938, 258_956));
        assert_alike(&made.v4, &v4, 0.05, 0.07);
        assert_alike(&made.v6, &v6, 0.12, 0.12);
    }
}

fn assert_measured<A: Addr>(routes: &[(Prefix<A>, Label)], built_in: &str) {
    assert!(routes.iter().all(|route| route.0.len() >= top::<A>()));
    let measured = Model::measure(routes);
    let text: String = built_in
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| format!("{line}\n"))
        .collect();
    if text != measured.to_string() {
        let path = std::env::temp_dir().join(format!("fingerpost-{}.model", A::BITS));
        std::fs::write(&path, measured.to_string()).unwrap();
        panic!("the built-in model is not what the data gives; that is now in {}", path.display());
    }
    assert_eq!(built_in.parse::<Model>().unwrap().to_string(), text);
}

#[test]
fn built_in_models_equal_measured_data() {
    assert_measured(
        &real("ipv4-20260730-routeviews-origin.dat.gz").v4,
        include_str!("ipv4-20260730.model"),
    );
    assert_measured(
        &real("ipv6-20260730-routeviews-origin.dat.gz").v6,
        include_str!("ipv6-20260730.model"),
    );
}

/// The digest of a table that must never change.
fn digest(table: &RoutingTable) -> u64 {
    let mut text = Vec::new();
    write(table, Format::Table, &WriteOptions::default(), &mut text).unwrap();
    fnv1a(text)
}

#[test]
fn seed_yields_golden_table() {
    let recipe = Recipe { seed: 7, v4: 2000, v6: 500, labels: Some(16) };
    assert_eq!(digest(&generate(&recipe)), GOLDEN);
    assert_ne!(digest(&generate(&Recipe { seed: 8, ..recipe })), GOLDEN);
}

const GOLDEN: u64 = 15_528_094_132_551_061_353;

#[test]
fn generated_table_has_requested_size() {
    for (v4, v6) in [(0, 0), (1, 0), (0, 1), (50_000, 3_000), (1_500_000, 300_000)] {
        for labels in [None, Some(0), Some(300)] {
            let table = generate(&Recipe { seed: 3, v4, v6, labels });
            assert_eq!((table.v4.len(), table.v6.len()), (v4, v6), "{:?}", table.report.warnings);
            assert!(table.v4.is_sorted_by(|a, b| a.0 < b.0));
            assert!(table.v6.is_sorted_by(|a, b| a.0 < b.0));
            let bound = labels.map_or(100_000, |n| n.max(1) as usize);
            assert!(table.labels.len() <= bound.min(v4 + v6), "{labels:?}");
            if v4 >= 50_000
                && let Some(count) = labels
            {
                assert_eq!(table.labels.len(), count.max(1) as usize);
            }
        }
    }
}

#[test]
fn smaller_table_keeps_nesting() {
    let nested = |v4| shape(&generate(&Recipe { v4, v6: 0, ..Recipe::default() }).v4).nested;
    let (all, tenth) = (nested(1_107_938), nested(110_000));
    assert!((all - tenth).abs() < 0.08, "{all} and {tenth}");
}

#[test]
fn written_table_reads_back_equal() {
    let table = generate(&Recipe { seed: 5, v4: 20_000, v6: 5_000, labels: Some(40) });
    let mut text = Vec::new();
    write(&table, Format::Table, &WriteOptions::default(), &mut text).unwrap();
    let reread = crate::read(&text[..], "text".as_ref(), &Options::default()).unwrap();
    let named = |table: &RoutingTable| -> Vec<String> {
        let v4 = table.v4.iter().map(|&(prefix, l)| format!("{prefix} {}", table.labels.get(l)));
        let v6 = table.v6.iter().map(|&(prefix, l)| format!("{prefix} {}", table.labels.get(l)));
        v4.chain(v6).collect()
    };
    assert_eq!(named(&table), named(&reread));
}
