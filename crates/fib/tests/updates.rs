//! Any sequence of changes results in the table of a build from scratch.

mod tables;

use std::collections::BTreeMap;

use fingerpost_fib::{Choice, Family, Fib, Hop, Prefix, Rib, Updater};
use tables::{Dice, borders, engines};

/// Applies random changes in commits of random size; after each, every address of
/// `probes` and every border is compared with a rebuilt table.
fn replay<A: Family>(choice: Choice, seed: u64, probes: &[A], commits: usize) {
    let name = choice.name::<A>();
    let mut dice = Dice::new(seed);
    let mut table: BTreeMap<Prefix<A>, Hop> = dice.table(30, 300);
    let rib = Rib::from_sorted(table.iter().map(|(&prefix, &hop)| (prefix, hop)));
    let mut updater = Updater::new(rib, choice, 1).unwrap();
    let mut reader = updater.reader();
    for step in 0..commits {
        for _ in 0..dice.below(6) {
            if dice.below(5) < 2 && !table.is_empty() {
                let victim = *table.keys().nth(dice.below(table.len())).unwrap();
                assert_eq!(updater.withdraw(victim), table.remove(&victim));
            } else {
                let prefix = dice.prefix(&table);
                let hop = Hop(dice.below([4, 300, 70_000][step % 3]) as u32);
                assert_eq!(updater.announce(prefix, hop), table.insert(prefix, hop));
            }
        }
        let commit = updater.commit().unwrap();
        assert!(commit.published, "one reader that comes back holds up nothing");
        assert!(!updater.is_behind());
        let rebuilt = Fib::build(updater.rib(), choice, 1).unwrap();
        let mut addrs = borders(&table);
        addrs.extend_from_slice(probes);
        let (mut out, mut expected) = (vec![Hop(9); addrs.len()], vec![Hop(9); addrs.len()]);
        reader.current().lookup_batch(&addrs, &mut out);
        rebuilt.lookup_batch(&addrs, &mut expected);
        assert!(out == expected, "{name}, seed {seed}, commit {step}, {table:?}");
    }
}

/// All engines, and some shapes of DXR that are not listed.
fn every<A: Family>(shapes: &[&str]) -> Vec<Choice> {
    let mut every = engines::<A>();
    every.extend(shapes.iter().map(|name| Choice::parse::<A>(name).unwrap()));
    every
}

#[test]
fn updates_of_eight_bits_equal_rebuilds() {
    let universe: Vec<u8> = (0..=u8::MAX).collect();
    for seed in 0..100 {
        for choice in every::<u8>(&["D4R", "D2X3R", "D1X1R"]) {
            replay(choice, seed, &universe, 40);
        }
    }
}

#[test]
fn updates_of_sixteen_bits_equal_rebuilds() {
    let universe: Vec<u16> = (0..=u16::MAX).step_by(7).collect();
    for seed in 0..4 {
        for choice in every::<u16>(&["D2X3R/8"]) {
            replay(choice, seed, &universe, 30);
        }
    }
}

#[test]
fn updates_of_ipv4_equal_rebuilds() {
    for choice in every::<u32>(&["D12X6R"]) {
        replay::<u32>(choice, 1, &[], 40);
    }
}

#[test]
fn updates_of_ipv6_equal_rebuilds() {
    for choice in every::<u128>(&[]) {
        replay::<u128>(choice, 1, &[], 25);
    }
}

#[test]
fn sleeping_readers_cost_one_table_and_lose_no_change() {
    let mut updater = Updater::new(Rib::<u32>::new(), Choice::Auto, 1).unwrap();
    let mut sleeper = updater.reader();
    let mut lively = updater.reader();
    assert_eq!(sleeper.current().lookup(0x0a00_0001), Hop::NONE);
    let mut deferred = 0;
    for step in 1..=10u32 {
        updater.announce(Prefix::truncate(0x0a00_0000, 8), Hop(step));
        deferred += u32::from(!updater.commit().unwrap().published);
        lively.current();
    }
    // Two were published (the sleeper still holds its first table), the others waited.
    assert_eq!(deferred, 8);
    assert!(updater.is_behind());
    sleeper.idle();
    assert!(updater.commit().unwrap().published);
    assert_eq!(lively.current().lookup(0x0a00_0001), Hop(10));
    assert_eq!(sleeper.current().lookup(0x0a00_0001), Hop(10));
}

#[test]
fn limit_exceeded_by_an_update_widens_the_table() {
    let mut updater =
        Updater::new(Rib::<u32>::new(), Choice::parse::<u32>("D16X4R").unwrap(), 1).unwrap();
    let mut reader = updater.reader();
    let mut rebuilt = 0;
    // One chunk grows to 4,096 ranges, through every length that an entry can say.
    for low in 0..4096u32 {
        updater.announce(Prefix::truncate(0x0a01_0000 | low, 32), Hop(1 + low % 2));
        if low % 16 == 15 {
            rebuilt += u32::from(updater.commit().unwrap().rebuilt);
            for check in (0..=low).step_by(15) {
                let hop = reader.current().lookup(0x0a01_0000 | check);
                assert_eq!(hop, Hop(1 + check % 2));
            }
        }
    }
    assert!(rebuilt >= 1, "the first limit is 511 ranges");
    // And back again.
    for low in 0..4096u32 {
        updater.withdraw(Prefix::truncate(0x0a01_0000 | low, 32));
    }
    updater.commit().unwrap();
    assert_eq!(reader.current().lookup(0x0a01_0005), Hop::NONE);
}
