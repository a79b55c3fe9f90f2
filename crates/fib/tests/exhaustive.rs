//! Every address of thousands of small universes, against the oracle.
//!
//! The space of `u8` has 256 addresses, so that nothing of a table can hide: every
//! border is hit, every nesting and overlap of stages occurs. Real families share
//! all of this code and differ in widths alone, which `engines.rs` covers.

mod tables;

use fingerpost_fib::engine::linear::Linear;
use fingerpost_fib::{Choice, Engine, Family, Fib, Hop, Rib};
use tables::Dice;

/// Compares `lookup`, `lookup_batch` and `trace` with the oracle on every address.
fn compare<A: Family>(universe: &[A], names: &[&str], seeds: std::ops::Range<u64>) {
    for seed in seeds {
        let mut dice = Dice::new(seed);
        let routes = dice.below(40);
        // From a few hops, that merge, to many, that need every width.
        let hops = [2, 3, 200, 300, 70_000][dice.below(5)];
        let table = dice.table::<A>(routes, hops);
        let oracle = Linear::new(table.iter().map(|(&prefix, &hop)| (prefix, hop)));
        let rib = Rib::from_sorted(table.iter().map(|(&prefix, &hop)| (prefix, hop)));
        let expected: Vec<Hop> = universe.iter().map(|&addr| oracle.lookup(addr)).collect();
        for name in names {
            let fib = Fib::build(&rib, Choice::parse::<A>(name).unwrap(), 1).unwrap();
            let mut out = vec![Hop(9); universe.len()];
            fib.lookup_batch(universe, &mut out);
            assert_eq!(out, expected, "batch, {name}, seed {seed}, {table:?}");
            for (&addr, &hop) in universe.iter().zip(&expected) {
                assert_eq!(fib.lookup(addr), hop, "{name}, seed {seed}, {addr:?}, {table:?}");
                assert_eq!(fib.trace(addr).0, hop, "trace, {name}, seed {seed}, {addr:?}");
            }
        }
    }
}

#[test]
fn every_address_of_eight_bits() {
    let universe: Vec<u8> = (0..=u8::MAX).collect();
    let names = ["auto", "D1R", "D2R", "D4R", "D6R", "D1X1R", "D1X5R", "D2X2R", "D3X3R", "D4X1R"];
    compare(&universe, &names, 0..4_000);
}

#[test]
fn every_address_of_sixteen_bits() {
    let universe: Vec<u16> = (0..=u16::MAX).collect();
    let names = ["auto", "D2R", "D12R", "D4X4R", "D8X4R", "D2X10R", "D2R/8", "D2X2R/8", "D3X3R/8"];
    compare(&universe, &names, 0..100);
}
