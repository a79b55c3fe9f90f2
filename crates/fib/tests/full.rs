//! The full Internet tables, in every engine, against the routing table's own
//! longest match: at every border and at millions of addresses.
//!
//! The oracle is [`Rib::longest`], a trie that shares no code with the sweep or
//! with any engine, and is itself compared with brute force in `rib.rs`. Answers
//! are computed once and every engine is compared with them.
//!
//! `cargo xtask exhaustive` runs the same with 200 million addresses a table, over
//! more tables, and with a million updates (feature `exhaustive`).

#![expect(clippy::print_stdout, reason = "`cargo xtask exhaustive` shows how far it is")]

#[path = "full/memory.rs"]
mod memory;
#[path = "tables/real.rs"]
mod real;
#[path = "full/streams.rs"]
mod streams;
mod tables;

use fingerpost_fib::{Choice, Family, Fib, Hop, Prefix, Rib};
use tables::{Dice, engines};

/// Whether the exhaustive tests run.
const EXHAUSTIVE: bool = cfg!(feature = "exhaustive");
/// The number of random addresses looked up in a table.
const RANDOM: usize = if EXHAUSTIVE { 200_000_000 } else { 10_000_000 };
/// The number of addresses compared at a time, to limit the memory for answers.
const SLICE: usize = 10_000_000;

/// Every engine but the oracle, which compares a million routes for each address,
/// and with them some shapes of DXR that are not listed.
fn every<A: Family>(shapes: &[&str]) -> Vec<Choice> {
    let shapes = shapes.iter().map(|name| Choice::parse::<A>(name).unwrap());
    let mut every = engines::<A>();
    every.retain(|choice| *choice != Choice::Linear);
    let missing: Vec<Choice> = shapes.filter(|shape| !every.contains(shape)).collect();
    // If the environment names some engines, these shapes are left out.
    if std::env::var_os("FINGERPOST_ENGINES").is_none() {
        every.extend(missing);
        assert!(every.len() > 5);
    }
    every
}

/// Builds `choices` over `routes` and compares them at all borders and at `random`
/// addresses, half of them within routes and half anywhere in `space`.
fn compare<A: Family>(
    routes: &[(Prefix<A>, Hop)],
    choices: &[Choice],
    random: usize,
    space: Prefix<A>,
) {
    let rib = Rib::from_sorted(routes.iter().copied());
    let build = |choice: &Choice| match Fib::build(&rib, *choice, 2) {
        Ok(fib) => fib,
        Err(full) => panic!("{}: {full}", choice.name::<A>()),
    };
    let fibs: Vec<Fib<A>> = choices.iter().map(build).collect();
    check(&rib, &fibs, &all_borders(routes));
    let mut dice = Dice::new(7);
    let mut draw = || {
        let anywhere: A = dice.addr();
        let within = if dice.below(2) == 0 { space } else { routes[dice.below(routes.len())].0 };
        let host = within.addr().to_u128() ^ within.last().to_u128();
        A::from_u128(within.addr().to_u128() | anywhere.to_u128() & host)
    };
    let mut left = random;
    while left > 0 {
        let addrs: Vec<A> = (0..left.min(SLICE)).map(|_| draw()).collect();
        check(&rib, &fibs, &addrs);
        left -= addrs.len();
    }
    let names: Vec<String> = choices.iter().map(|choice| choice.name::<A>()).collect();
    println!("{} routes, {random} addresses: {} agree", routes.len(), names.join(" "));
}

/// Lists the first and the last address of every route, and their neighbors.
fn all_borders<A: Family>(routes: &[(Prefix<A>, Hop)]) -> Vec<A> {
    let step = |addr: A, by: u128| A::from_u128(addr.to_u128().wrapping_add(by));
    routes
        .iter()
        .flat_map(|(prefix, _)| [prefix.addr(), prefix.last()])
        .flat_map(|end| [step(end, u128::MAX), end, step(end, 1)])
        .collect()
}

/// Returns the routing table's answers.
fn longest<A: Family>(rib: &Rib<A>, addrs: &[A]) -> Vec<Hop> {
    addrs.iter().map(|&addr| rib.longest(addr).map_or(Hop::NONE, |(_, hop)| hop)).collect()
}

/// Compares a batch with the expected answers, and panics at the first difference.
fn agree<A: Family>(fib: &Fib<A>, addrs: &[A], expected: &[Hop], out: &mut [Hop]) {
    out.fill(Hop(u32::MAX));
    fib.lookup_batch(addrs, out);
    if out != expected {
        let at = out.iter().zip(expected).position(|(a, b)| a != b).unwrap();
        let (addr, got, want) = (addrs[at], out[at], expected[at]);
        panic!("{}: {addr:x?} gives {got:?}, not {want:?}", fib.name());
    }
}

fn check<A: Family>(rib: &Rib<A>, fibs: &[Fib<A>], addrs: &[A]) {
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    std::thread::scope(|scope| {
        for addrs in addrs.chunks(addrs.len().div_ceil(threads)) {
            scope.spawn(move || {
                let expected = longest(rib, addrs);
                let mut out = vec![Hop::NONE; addrs.len()];
                for fib in fibs {
                    agree(fib, addrs, &expected, &mut out);
                }
                // Single lookups are separate code, and slow.
                for (&addr, &hop) in addrs.iter().zip(&expected).step_by(997) {
                    for fib in fibs {
                        assert_eq!(fib.lookup(addr), hop, "{}: {addr:x?}", fib.name());
                    }
                }
            });
        }
    });
}

#[test]
fn engines_answer_the_ipv4_table_of_2026() {
    let loaded = real::load(real::V4);
    let every = every::<u32>(&["D16R", "D22R", "D12X4R", "D14X4R", "D16X2R", "D16X6R"]);
    compare(&real::routes(&loaded.v4, Some(148)), &every, RANDOM, Prefix::ALL);
    // 78,468 next hops of their own, which take wide entries.
    compare(&real::routes(&loaded.v4, None), &every, RANDOM / 20, Prefix::ALL);
}

#[test]
fn engines_answer_the_ipv6_tables_of_2026_and_2017() {
    // Half of the addresses anywhere in the assigned space.
    let assigned = Prefix::truncate(1u128 << 125, 3);
    let loaded = real::load(real::V6);
    let every = every::<u128>(&["D16R", "D16X4R", "D12X8R", "D16R/64", "D16X4R/64"]);
    compare(&real::routes(&loaded.v6, Some(148)), &every, RANDOM, assigned);
    compare(&real::routes(&loaded.v6, None), &every, RANDOM / 20, assigned);
    let loaded = real::load(real::LINX6);
    compare(&real::routes(&loaded.v6, None), &every, RANDOM / 20, assigned);
}

#[test]
fn engines_answer_the_ipv4_table_of_2015() {
    // The tests of all 2^32 addresses have this one too.
    let loaded = real::load(real::PCH);
    let some = if EXHAUSTIVE { RANDOM } else { RANDOM / 20 };
    compare(&real::routes(&loaded.v4, None), &every::<u32>(&[]), some, Prefix::ALL);
}
