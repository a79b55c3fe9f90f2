//! Real streams of updates over real tables, through every engine.
//!
//! After each publication the answers at the ends of what has changed, and at some
//! random addresses, are compared with the routing table's longest match; at the
//! end all borders and a million addresses, of the table that followed and of
//! one that is built from scratch of a routing table that never saw an update.

use std::sync::atomic::{AtomicUsize, Ordering};

use fingerpost_fib::{Choice, Fib, Hop, Prefix, Rib, Updater};

use crate::tables::Dice;
use crate::{EXHAUSTIVE, agree, all_borders, every, longest, real};

type Routes = Vec<(Prefix<u32>, Hop)>;
/// A route to a hop, or none.
type Change = (Prefix<u32>, Option<Hop>);

/// Reads the IPv4 changes of a stream: those that change the best route, of which there
/// are fewer than lines.
fn changes(stream: &str) -> Vec<Change> {
    let stream = feed::updates(real::path(stream), &feed::Options::default()).unwrap();
    let mut changes = Vec::new();
    stream.replay(|_, update| match update {
        feed::Update::V4(feed::Change::Announce { prefix, label }) => {
            changes.push((prefix, Some(Hop(1 + label.0))));
        }
        feed::Update::V4(feed::Change::Withdraw { prefix }) => changes.push((prefix, None)),
        feed::Update::V6(_) => {}
    });
    changes
}

/// The comparison at the end of a stream.
struct End {
    rib: Rib<u32>,
    addrs: Vec<u32>,
    expected: Vec<Hop>,
}

/// Replays `changes` over `base` with every one of `choices`, a commit after each `commit` changes;
/// returns the remaining routes.
fn replay(base: &Routes, changes: &[Change], commit: usize, choices: &[Choice]) -> Routes {
    let mut rib = Rib::from_sorted(base.iter().copied());
    for &(prefix, hop) in changes {
        match hop {
            Some(hop) => rib.insert(prefix, hop),
            None => rib.remove(prefix),
        };
    }
    let left: Routes = rib.iter().collect();
    let rib = Rib::from_sorted(left.iter().copied());
    let mut addrs = all_borders(&left);
    let mut dice = Dice::new(3);
    addrs.extend((0..1_000_000).map(|_| dice.addr::<u32>()));
    let expected = longest(&rib, &addrs);
    let end = End { rib, addrs, expected };
    // Engines differ a lot in what a commit costs: each thread takes the next one.
    let next = AtomicUsize::new(0);
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(&choice) = choices.get(next.fetch_add(1, Ordering::Relaxed)) {
                    follow(base, changes, commit, choice, &end);
                }
            });
        }
    });
    left
}

/// Replays `changes` with one engine.
fn follow(base: &Routes, changes: &[Change], commit: usize, choice: Choice, end: &End) {
    let name = choice.name::<u32>();
    let begin = std::time::Instant::now();
    let rib = Rib::from_sorted(base.iter().copied());
    let mut updater = Updater::new(rib, choice, 1).unwrap();
    let mut reader = updater.reader();
    let mut dice = Dice::new(4);
    let mut patched = 0;
    for changes in changes.chunks(commit) {
        let mut addrs: Vec<u32> = (0..200).map(|_| dice.addr()).collect();
        for &(prefix, hop) in changes {
            addrs.extend([prefix.addr(), prefix.last()]);
            match hop {
                Some(hop) => updater.announce(prefix, hop),
                None => updater.withdraw(prefix),
            };
        }
        let done = updater.commit().unwrap_or_else(|full| panic!("{name}: {full}"));
        assert!(done.published, "{name}: a reader that passes delays no publication");
        patched += usize::from(!done.rebuilt);
        let mut out = vec![Hop::NONE; addrs.len()];
        agree(reader.current(), &addrs, &longest(updater.rib(), &addrs), &mut out);
    }
    assert!(patched > 3, "{name}: only {patched} commits patched");
    assert!(updater.rib().iter().eq(end.rib.iter()), "{name}: the remaining routes differ");
    let mut out = vec![Hop::NONE; end.addrs.len()];
    agree(reader.current(), &end.addrs, &end.expected, &mut out);
    let rebuilt = Fib::build(&end.rib, choice, 1).unwrap();
    agree(&rebuilt, &end.addrs, &end.expected, &mut out);
    println!("{name}: {} changes agree, {:.1} s", changes.len(), begin.elapsed().as_secs_f64());
}

#[test]
fn engines_follow_fifteen_minutes_of_updates_of_2026() {
    let base = real::routes(&real::load(real::V4).v4, Some(20));
    let changes = changes("updates-20260222.1530-routeviews-bgp4mp_et.mrt.bz2");
    let commit = if EXHAUSTIVE { 300 } else { 4000 };
    let left = replay(&base, &changes, commit, &every::<u32>(&["D16R"]));
    assert!(left.len() > base.len() / 2);
}

#[test]
fn engines_follow_an_hour_of_updates_of_2015() {
    let base = real::routes(&real::load(real::PCH).v4, None);
    let changes = changes("updates-20141217.0000-linx-p52.txt.gz");
    assert!((10_000..=18_141 + 5_305).contains(&changes.len()), "{}", changes.len());
    let commit = if EXHAUSTIVE { 20 } else { 1000 };
    replay(&base, &changes, commit, &every::<u32>(&[]));
}

#[test]
fn engines_follow_a_session_that_sends_a_full_table() {
    let changes = changes("updates-20151023.0201-pch-fulltable-bgp4mp_et.mrt.gz");
    let parse = |name| Choice::parse::<u32>(name).unwrap();
    let some = vec![Choice::Auto, parse("D16X4R")];
    let choices = if EXHAUSTIVE { every::<u32>(&[]) } else { some };
    let left = replay(&Vec::new(), &changes, 10_000, &choices);
    // 577,706 prefixes were announced, 3 of them withdrawn (README of the data).
    assert_eq!(left.len(), 577_703);
    let dumped = real::load(real::PCH);
    let prefixes = dumped.v4.iter().map(|&(prefix, _)| prefix);
    assert!(left.iter().map(|&(prefix, _)| prefix).eq(prefixes));
}
