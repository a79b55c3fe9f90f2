//! The automatic choice's estimates against the built sizes, on generated tables.
//!
//! Estimates decide the engine of a table, so that a wrong one selects a slower and larger engine
//! than necessary. Each candidate of both families is built at several sizes
//! (`cargo xtask exhaustive` adds one and four million routes).

#![expect(clippy::print_stdout, reason = "the figures, with --nocapture")]

use feed::{Recipe, generate};
use fingerpost_fib::{Caches, Choice, Family, Fib, Hop, Rib};

/// The greatest allowed relative error of an estimate.
const MAX_ERROR: f64 = 0.15;

fn estimates_hold<A: Family>(routes: Vec<(fingerpost_fib::Prefix<A>, feed::Label)>) {
    let count = routes.len();
    let rib =
        Rib::from_sorted(routes.into_iter().map(|(prefix, label)| (prefix, Hop(label.0 + 1))));
    let mut built = Vec::new();
    for estimate in Choice::estimates(&rib) {
        let fib = Fib::build(&rib, estimate.choice, 2).expect("a candidate holds the table");
        let (name, bytes) = (fib.name(), fib.footprint());
        let off = estimate.bytes as f64 / bytes as f64 - 1.0;
        println!("{count} routes, {name}: {bytes} bytes, estimate {:+.1} %", 100.0 * off);
        assert!(off.abs() <= MAX_ERROR, "{count} routes, {name}: {bytes}, not {}", estimate.bytes);
        built.push(bytes);
    }
    let chosen = Fib::build(&rib, Choice::Auto, 2).expect("the choice holds the table");
    let budget = Caches::of_this_machine().second / 2;
    let least = built.iter().copied().min().expect("there are candidates");
    let about = (least as f64 * 1.25 * (1.0 + MAX_ERROR)) as usize;
    assert!(chosen.footprint() <= budget.max(about), "{count} routes: {}", chosen.name());
}

fn at(routes: usize) {
    for labels in [148, 5000] {
        let recipe = Recipe { v4: routes, v6: routes, labels: Some(labels), ..Recipe::default() };
        let table = generate(&recipe);
        assert!(table.report.warnings.is_empty(), "{:?}", table.report.warnings);
        estimates_hold(table.v4);
        estimates_hold(table.v6);
    }
}

#[test]
fn estimate_of_a_quarter_million_routes_is_near_the_built_size() {
    at(250_000);
}

#[cfg(feature = "exhaustive")]
#[test]
fn estimate_of_a_million_routes_is_near_the_built_size() {
    at(1_000_000);
}

#[cfg(feature = "exhaustive")]
#[test]
fn estimate_of_four_million_routes_is_near_the_built_size() {
    at(4_000_000);
}
