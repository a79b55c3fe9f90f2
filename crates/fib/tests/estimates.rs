//! The automatic choice's estimates against the built sizes, on generated tables.
//!
//! Estimates decide the engine of a table, so that a wrong one selects a slower and larger engine
//! than necessary. Each candidate of both families is built at several sizes
//! (`cargo xtask exhaustive` adds one and four million routes), and the choice is checked against
//! budgets. These tests are not in `src/selection.rs` because they build tables: the unit tests would
//! compile every engine once more.

#![expect(clippy::print_stdout, reason = "the figures, with --nocapture")]

use feed::{Recipe, generate};
use fingerpost_fib::{Caches, Choice, Estimate, Family, Fib, Hop, Prefix, Rib};

/// The greatest allowed relative error of an estimate.
const MAX_ERROR: f64 = 0.15;

fn estimates_hold<A: Family>(routes: Vec<(Prefix<A>, feed::Label)>) {
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

/// A table of /24s, dense, with `hops` hops.
fn dense(routes: u32, hops: u32) -> Rib<u32> {
    let route = |i: u32| (Prefix::truncate(0x0100_0000 + (i << 8), 24), Hop(1 + i * 7 % hops));
    Rib::from_sorted((0..routes).map(route))
}

#[test]
fn budget_is_respected_if_an_engine_is_small_enough() {
    for (rib, budgets) in [
        (dense(1000, 5), &[64 << 10, 1 << 30][..]),
        (dense(100_000, 5), &[1 << 20, 2 << 20, 8 << 20]),
        (dense(100_000, 70_000), &[4 << 20, 64 << 20]),
    ] {
        let mut before = 0;
        for &budget in budgets {
            let fib = Fib::build(&rib, Choice::Within(budget), 1).unwrap();
            assert!(fib.footprint() <= budget, "{} in {budget}", fib.name());
            assert!(fib.footprint() >= before, "a larger budget selects no smaller table");
            before = fib.footprint();
            assert!(fib.why().contains("the budget of"), "{}", fib.why());
        }
        let fib = Fib::build(&rib, Choice::Within(1), 1).unwrap();
        let least = Choice::estimates(&rib).iter().map(|estimate| estimate.bytes).min();
        let slack = least.unwrap() / 50 + 1024;
        assert!(fib.footprint().abs_diff(least.unwrap()) <= slack);
        assert!(fib.why().contains("exceeds"), "{}", fib.why());
    }
}

#[test]
fn reason_names_the_routes_and_the_cache() {
    let fib = Fib::build(&dense(10_000, 148), Choice::Auto, 1).unwrap();
    assert!(fib.why().contains("10000 routes, hops up to 148"), "{}", fib.why());
    assert!(fib.why().contains("second-level cache of"), "{}", fib.why());
    let named = Fib::build(&dense(1, 1), Choice::Linear, 1).unwrap();
    assert_eq!(named.why(), "named by the caller");
}

fn candidates_build<A: Family>() {
    for routes in [1, 10_000] {
        let mut rib = Rib::<A>::new();
        rib.insert(Prefix::ALL, Hop(1));
        for i in 1..routes {
            let addr = A::from_u128(i << (A::BITS - A::BITS.min(32)));
            rib.insert(Prefix::truncate(addr, A::BITS.min(32)), Hop(1));
        }
        let estimates = Choice::estimates(&rib);
        assert!(!estimates.is_empty());
        for Estimate { choice, .. } in estimates {
            assert!(choice.suits::<A>());
            assert_eq!(Fib::build(&rib, choice, 1).unwrap().lookup(A::MAX), Hop(1));
        }
    }
    assert!(!Choice::estimates(&Rib::<A>::new()).is_empty());
}

#[test]
fn every_candidate_builds_in_its_family() {
    candidates_build::<u8>();
    candidates_build::<u16>();
    candidates_build::<u32>();
    candidates_build::<u128>();
}

#[test]
fn estimate_of_halves_is_close_to_the_built_size() {
    let route = |i: u128| {
        let len = if i.is_multiple_of(50) { 128 } else { 32 + (i % 33) as u32 };
        let addr = 0x2001 << 112 | (i * 0x9e37_79b9) << 80 | i;
        (Prefix::truncate(addr, len), Hop(1 + i as u32 % 90))
    };
    let mut rib = Rib::new();
    for (prefix, hop) in (0..20_000).map(route) {
        rib.insert(prefix, hop);
    }
    let halves = |estimate: &Estimate| matches!(estimate.choice, Choice::Halves(_));
    let estimates: Vec<_> = Choice::estimates::<u128>(&rib).into_iter().filter(halves).collect();
    assert!(!estimates.is_empty());
    for estimate in estimates {
        let built = Fib::build(&rib, estimate.choice, 1).unwrap().footprint();
        let off = built.abs_diff(estimate.bytes) as f64 / built as f64;
        assert!(off < 0.05, "{:?}: about {}, was {built}", estimate.choice, estimate.bytes);
    }
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
