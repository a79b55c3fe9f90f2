//! The full Internet tables of 2026, in every configuration, against the routing
//! table's own longest match: at every border and at 100 million addresses.
//!
//! The oracle is [`Rib::longest`], a trie that shares no code with the sweep or
//! with DXR, and is itself compared with brute force in `rib.rs`. Answers are
//! computed once and every configuration is held against them.

#[path = "tables/real.rs"]
mod real;
mod tables;

use fingerpost_fib::{Choice, Family, Fib, Hop, Prefix, Rib, Updater};
use tables::Dice;

/// How many random addresses a family is asked for.
const RANDOM: usize = 100_000_000;
/// How many at once, so that the answers of all need not be kept.
const SLICE: usize = 10_000_000;

/// Builds `names` over `routes` and compares them at all borders and at `random`
/// addresses drawn by `draw`.
fn compare<A: Family>(
    routes: &[(Prefix<A>, Hop)],
    names: &[&str],
    random: usize,
    draw: impl Fn(&mut Dice) -> A,
) {
    let rib = Rib::from_sorted(routes.iter().copied());
    let fibs: Vec<Fib<A>> = names
        .iter()
        .map(|name| Fib::build(&rib, Choice::parse::<A>(name).unwrap(), 2).unwrap())
        .collect();
    let step = |addr: A, by: u128| A::from_u128(addr.to_u128().wrapping_add(by));
    let borders: Vec<A> = routes
        .iter()
        .flat_map(|(prefix, _)| [prefix.addr(), prefix.last()])
        .flat_map(|end| [step(end, u128::MAX), end, step(end, 1)])
        .collect();
    check(&rib, &fibs, &borders);
    let mut dice = Dice::new(7);
    let mut left = random;
    while left > 0 {
        let addrs: Vec<A> = (0..left.min(SLICE)).map(|_| draw(&mut dice)).collect();
        check(&rib, &fibs, &addrs);
        left -= addrs.len();
    }
}

fn check<A: Family>(rib: &Rib<A>, fibs: &[Fib<A>], addrs: &[A]) {
    let half = addrs.len().div_ceil(2);
    std::thread::scope(|scope| {
        for addrs in addrs.chunks(half) {
            scope.spawn(move || {
                let longest = |&addr: &A| rib.longest(addr).map_or(Hop::NONE, |(_, hop)| hop);
                let expected: Vec<Hop> = addrs.iter().map(longest).collect();
                let mut out = vec![Hop(u32::MAX); addrs.len()];
                for fib in fibs {
                    fib.lookup_batch(addrs, &mut out);
                    if out != expected {
                        let at = out.iter().zip(&expected).position(|(a, b)| a != b).unwrap();
                        let (addr, got, want) = (addrs[at], out[at], expected[at]);
                        panic!("{}: {addr:x?} gives {got:?}, not {want:?}", fib.name());
                    }
                }
            });
        }
    });
}

#[test]
fn ipv4_in_every_configuration() {
    let loaded = real::load(real::V4);
    let random = |dice: &mut Dice| dice.addr::<u32>();
    let every = ["D16R", "D18R", "D20R", "D22R", "D12X4R", "D14X4R", "D16X2R", "D16X4R", "D16X6R"];
    compare(&real::routes(&loaded.v4, Some(148)), &every, RANDOM, random);
    // 78,468 next hops of their own, which take wide ranges.
    compare(&real::routes(&loaded.v4, None), &["D16R", "D16X4R", "auto"], RANDOM / 20, random);
}

#[test]
fn ipv6_in_every_configuration() {
    let loaded = real::load(real::V6);
    let routes = real::routes(&loaded.v6, Some(148));
    // Half of the addresses inside routes, half anywhere in what is assigned.
    let random = |dice: &mut Dice| {
        let anywhere: u128 = dice.addr();
        if dice.below(2) == 0 {
            return 1 << 125 | anywhere >> 3;
        }
        let (prefix, _) = routes[dice.below(routes.len())];
        prefix.addr() | anywhere & (prefix.addr() ^ prefix.last())
    };
    let every = ["D16R", "D16X4R", "D12X8R", "D16X8R", "D16R/64", "D16X4R/64", "D16X8R/64"];
    compare(&routes, &every, RANDOM, random);
    compare(&real::routes(&loaded.v6, None), &["D16X8R", "auto"], RANDOM / 20, random);
}

/// Replays a stream over `base`, committing every few hundred changes, and compares
/// with a table built from what is left.
fn replay(base: &[(Prefix<u32>, Hop)], stream: &str, name: &str) -> Updater<u32> {
    let choice = Choice::parse::<u32>(name).unwrap();
    let rib = Rib::from_sorted(base.iter().copied());
    let mut updater = Updater::new(rib, choice, 2).unwrap();
    let mut reader = updater.reader();
    let stream = feed::updates(real::path(stream), &feed::Options::default()).unwrap();
    let (mut changes, mut commits) = (0, 0);
    stream.replay(|_, update| {
        match update {
            feed::Update::V4(feed::Change::Announce { prefix, label }) => {
                updater.announce(prefix, Hop(1 + label.0));
            }
            feed::Update::V4(feed::Change::Withdraw { prefix }) => {
                updater.withdraw(prefix);
            }
            feed::Update::V6(_) => {}
        }
        changes += 1;
        if changes % 300 == 0 {
            reader.current();
            commits += usize::from(updater.commit().unwrap().published);
        }
    });
    reader.current();
    assert!(updater.commit().unwrap().published);
    assert!(commits > 3, "{commits} commits of {changes} changes test nothing");
    let routes: Vec<_> = updater.rib().iter().collect();
    // A table built from scratch from a routing table that never saw an update.
    let fresh = Rib::from_sorted(routes.iter().copied());
    let rebuilt = Fib::build(&fresh, choice, 1).unwrap();
    let step = |addr: u32, by: i32| addr.wrapping_add_signed(by);
    let mut addrs: Vec<u32> = routes
        .iter()
        .flat_map(|(prefix, _)| [prefix.addr(), prefix.last()])
        .flat_map(|end| [step(end, -1), end, step(end, 1)])
        .collect();
    let mut dice = Dice::new(3);
    addrs.extend((0..4_000_000).map(|_| dice.addr::<u32>()));
    let (mut out, mut expected) = (vec![Hop::NONE; addrs.len()], vec![Hop::NONE; addrs.len()]);
    reader.current().lookup_batch(&addrs, &mut out);
    rebuilt.lookup_batch(&addrs, &mut expected);
    assert!(out == expected, "{name}: the updated table differs from the rebuilt one");
    check(&fresh, &[rebuilt], &addrs);
    updater
}

#[test]
fn fifteen_minutes_of_updates_over_the_full_table() {
    let loaded = real::load(real::V4);
    let base = real::routes(&loaded.v4, Some(20));
    for name in ["D16X4R", "D16R"] {
        let updater = replay(&base, "updates-20260222.1530-routeviews-bgp4mp_et.mrt.bz2", name);
        assert!(updater.rib().len() > base.len() / 2);
    }
}

#[test]
fn a_session_that_comes_up_with_a_full_table() {
    let stream = "updates-20151023.0201-pch-fulltable-bgp4mp_et.mrt.gz";
    let updater = replay(&[], stream, "D16X4R");
    // 577,706 prefixes were announced, 3 of them withdrawn (README of the data).
    assert_eq!(updater.rib().len(), 577_703);
    let dumped = real::load(real::PCH);
    let prefixes: Vec<_> = dumped.v4.iter().map(|&(prefix, _)| prefix).collect();
    assert!(updater.rib().iter().map(|(prefix, _)| prefix).eq(prefixes));
}
