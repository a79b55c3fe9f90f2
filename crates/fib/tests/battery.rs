//! Every engine, without code specific to it, against the oracle.
//!
//! The space of `u8` has 256 addresses, so that every address of a table is compared: every border
//! is hit, and every nesting and overlap of stages occurs, thousands of times. Real families share
//! all of that code and differ in widths alone; they are compared at all borders and at random
//! addresses.
//!
//! `FINGERPOST_ENGINES=NAME,…` restricts the battery to some engines during work on them.

// Modules and not programs of their own, because every engine of every family is compiled into each
// program.
#[path = "battery/corners.rs"]
mod corners;
#[path = "battery/loads.rs"]
mod loads;
mod tables;

use std::collections::BTreeMap;

use fingerpost_fib::engine::linear::Linear;
use fingerpost_fib::{Choice, Engine, Family, Fib, Hop, Prefix, Rib};
use tables::{Dice, borders, engines};

/// Compares all ways of looking up with the oracle at every address of `addrs`, and traces, which
/// are slow, at every `sparse`th.
fn compare<A: Family>(
    table: &BTreeMap<Prefix<A>, Hop>,
    choices: &[Choice],
    addrs: &[A],
    sparse: usize,
) {
    let routes = || table.iter().map(|(&prefix, &hop)| (prefix, hop));
    let oracle = Linear::new(routes());
    let rib = Rib::from_sorted(routes());
    let expected: Vec<Hop> = addrs.iter().map(|&addr| oracle.lookup(addr)).collect();
    let mut out = vec![Hop(9); addrs.len()];
    for choice in choices {
        let name = choice.name::<A>();
        let fib = Fib::build(&rib, *choice, 1).unwrap();
        let check = |how: &str, out: &mut [Hop]| {
            assert!(out == expected, "{how}, {name}, {}", differs(addrs, out, &expected, table));
            out.fill(Hop(9));
        };
        fib.lookup_batch(addrs, &mut out);
        check("lookup_batch", &mut out);
        fib.lookup_chained(addrs, &mut out);
        check("lookup_chained", &mut out);
        if let Some(overlapped) = fib.overlapped() {
            overlapped.alone(addrs, &mut out);
            check("one by one", &mut out);
            overlapped.group(addrs, &mut out, 16);
            check("group", &mut out);
            overlapped.coroutines(addrs, &mut out, 9);
            check("coroutines", &mut out);
        }
        for (&addr, &hop) in addrs.iter().zip(&expected) {
            assert_eq!(fib.lookup(addr), hop, "{name}, {addr:x?}, {table:?}");
        }
        let parts = fib.parts();
        for (&addr, &hop) in addrs.iter().zip(&expected).step_by(sparse) {
            let (traced, steps) = fib.trace(addr);
            assert_eq!(traced, hop, "trace, {name}, {addr:x?}, {table:?}");
            for step in steps {
                let part = parts.iter().find(|part| part.name == step.part);
                let items = part.map(|part| part.items);
                assert!(items > Some(step.index), "{name}: {step:?} is in none of {parts:?}");
            }
        }
    }
}

/// Describes the first difference of two answers.
fn differs<A: Family>(
    addrs: &[A],
    out: &[Hop],
    expected: &[Hop],
    table: &BTreeMap<Prefix<A>, Hop>,
) -> String {
    let at = out.iter().zip(expected).position(|(out, expected)| out != expected);
    at.map_or_else(String::new, |at| {
        format!("{:x?} gives {:?}, not {:?}: {table:?}", addrs[at], out[at], expected[at])
    })
}

/// Draws a table: with few hops, which merge, up to many, which need every width.
fn table<A: Family>(dice: &mut Dice, routes: usize) -> BTreeMap<Prefix<A>, Hop> {
    let routes = dice.below(routes);
    let hops = [2, 3, 200, 300, 70_000][dice.below(5)];
    dice.table::<A>(routes, hops)
}

#[test]
fn engines_answer_every_address_of_eight_bits() {
    let universe: Vec<u8> = (0..=u8::MAX).collect();
    let mut choices = engines::<u8>();
    let shapes = ["D1R", "D4R", "D1X1R", "D3X3R", "D4X1R"];
    choices.extend(shapes.map(|name| Choice::parse::<u8>(name).unwrap()));
    for seed in 0..3_000 {
        let table = table(&mut Dice::new(seed), 40);
        compare(&table, &choices, &universe, 1);
    }
}

#[test]
fn engines_answer_every_address_of_sixteen_bits() {
    let universe: Vec<u16> = (0..=u16::MAX).collect();
    let mut choices = engines::<u16>();
    let shapes = ["D2R", "D12R", "D8X4R", "D2X10R", "D2R/8", "D2X2R/8", "D3X3R/8"];
    choices.extend(shapes.map(|name| Choice::parse::<u16>(name).unwrap()));
    for seed in 0..60 {
        let table = table(&mut Dice::new(seed), 60);
        compare(&table, &choices, &universe, 13);
    }
}

/// Compares tables of a real family at all borders and some random addresses.
fn compare_family<A: Family>(seeds: u64) {
    let choices = engines::<A>();
    for seed in 0..seeds {
        let mut dice = Dice::new(seed);
        let table = table::<A>(&mut dice, 150);
        let mut addrs = borders(&table);
        addrs.extend((0..500).map(|_| dice.addr::<A>()));
        compare(&table, &choices, &addrs, 7);
    }
}

#[test]
fn engines_answer_ipv4_tables() {
    compare_family::<u32>(12);
}

#[test]
fn engines_answer_ipv6_tables() {
    compare_family::<u128>(12);
}

#[test]
fn engine_refuses_families_that_it_does_not_suit() {
    let rib: Rib<u128> = Rib::new();
    for choice in engines::<u32>() {
        let built = Fib::build(&rib, choice, 1);
        assert_eq!(built.is_ok(), choice.suits::<u128>(), "{choice:?}");
    }
}
