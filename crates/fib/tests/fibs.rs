//! Many tables in one memory: each answers as a single table does, whatever changes in the others,
//! and costs little more than the memory of its own routes.

#![expect(clippy::print_stdout, reason = "the figures, with --nocapture")]

mod tables;

use std::collections::BTreeMap;

use fingerpost_fib::{Choice, Family, Fib, Fibs, FibsUpdater, Hop, Prefix, Rib};
use tables::{Dice, borders};

/// Adds, changes and removes tables at random; after each commit compares every one with the oracle
/// over its own routes, at `probes` and at the borders of all tables.
fn churn<A: Family>(seed: u64, probes: &[A], commits: usize) {
    let mut dice = Dice::new(seed);
    let mut updater = FibsUpdater::<A>::new().unwrap();
    let mut reader = updater.reader();
    let mut models: BTreeMap<usize, BTreeMap<Prefix<A>, Hop>> = BTreeMap::new();
    for step in 0..commits {
        let hops = [4, 300, 70_000][step % 3];
        match dice.below(6) {
            0 if models.len() < 6 => {
                // Empty, or a copy of another table.
                let known = models.values().nth(dice.below(models.len())).cloned();
                let routes = known.filter(|_| dice.below(2) == 0);
                let routes = routes.unwrap_or_else(|| dice.table(20, hops));
                let table = updater.add(routes.iter().map(|(&p, &h)| (p, h)).fold(
                    Rib::new(),
                    |mut rib, (prefix, hop)| {
                        rib.insert(prefix, hop);
                        rib
                    },
                ));
                assert!(models.insert(table, routes).is_none(), "{table} was given twice");
            }
            1 if models.len() > 1 => {
                let table = *models.keys().nth(dice.below(models.len())).unwrap();
                let rib = updater.remove(table).unwrap();
                let routes = models.remove(&table).unwrap();
                assert!(rib.iter().eq(routes));
                assert!(updater.remove(table).is_none() && updater.rib(table).is_none());
            }
            _ => {}
        }
        for _ in 0..dice.below(8) {
            let Some((&table, routes)) = models.iter_mut().nth(dice.below(6)) else { continue };
            if dice.below(5) < 2 && !routes.is_empty() {
                let victim = *routes.keys().nth(dice.below(routes.len())).unwrap();
                assert_eq!(updater.withdraw(table, victim), routes.remove(&victim));
            } else {
                let (prefix, hop) = (dice.prefix(routes), Hop(dice.below(hops) as u32));
                assert_eq!(updater.announce(table, prefix, hop), routes.insert(prefix, hop));
            }
        }
        assert!(updater.commit().unwrap().published);
        assert!(!updater.is_behind());
        assert!(updater.tables().eq(models.keys().copied()));
        let mut addrs: Vec<A> = models.values().flat_map(borders).collect();
        addrs.extend_from_slice(probes);
        let fibs = reader.current();
        let mut out = vec![Hop(9); addrs.len()];
        for table in 0..8 {
            fibs.lookup_batch(table, &addrs, &mut out);
            let oracle = models.get(&table).map(|routes| {
                let rib = Rib::from_sorted(routes.iter().map(|(&p, &h)| (p, h)));
                Fib::build(&rib, Choice::Linear, 1).unwrap()
            });
            for (&addr, &hop) in addrs.iter().zip(&out) {
                let right = oracle.as_ref().map_or(Hop::NONE, |fib| fib.lookup(addr));
                assert_eq!(hop, right, "seed {seed}, commit {step}, table {table}, {addr:x?}");
                assert_eq!(fibs.lookup(table, addr), right);
            }
        }
    }
}

#[test]
fn each_table_answers_as_a_single_table_does() {
    let universe: Vec<u8> = (0..=u8::MAX).collect();
    (0..30).for_each(|seed| churn::<u8>(seed, &universe, 60));
    let some: Vec<u16> = (0..=u16::MAX).step_by(61).collect();
    (0..6).for_each(|seed| churn::<u16>(seed, &some, 60));
    (0..6).for_each(|seed| churn::<u32>(seed, &[], 60));
    (0..4).for_each(|seed| churn::<u128>(seed, &[], 60));
}

/// The routes of a customer: a default route, some networks of its own, some hosts.
fn customer(number: u32) -> Rib<u32> {
    let mut dice = Dice::new(u64::from(number));
    let mut rib = Rib::new();
    rib.insert(Prefix::ALL, Hop(1));
    for _ in 0..3 + dice.below(20) {
        let base = [0x0a00_0000, 0xac10_0000, 0xc0a8_0000][dice.below(3)];
        let addr = base | dice.addr::<u32>() & 0x0003_ffff;
        rib.insert(Prefix::truncate(addr, 20 + dice.below(13) as u32), Hop(2 + number % 60));
    }
    rib
}

#[test]
fn small_tables_take_kilobytes_and_give_them_back() {
    let customers: Vec<Rib<u32>> = (0..256).map(customer).collect();
    let mut updater = FibsUpdater::new().unwrap();
    let mut reader = updater.reader();
    for rib in &customers {
        updater.add(rib.clone());
    }
    updater.commit().unwrap();
    let bytes = reader.current().footprint();
    let alone: usize =
        customers.iter().map(|rib| Fib::build(rib, Choice::Auto, 1).unwrap().footprint()).sum();
    println!("256 small tables: {bytes} bytes together, {alone} each by itself");
    for part in reader.current().parts() {
        println!("  {:<14} {:>9} bytes", part.name, part.bytes);
    }
    assert!(bytes < 256 * 8 * 1024, "{bytes} bytes for 256 small tables");
    assert_eq!(bytes, Fibs::build(&customers).unwrap().footprint());
    // All but the first are removed, and added again.
    for table in 1..256 {
        updater.remove(table);
    }
    updater.commit().unwrap();
    let one = reader.current().footprint();
    println!("one of them left: {one} bytes");
    assert!(one < 256 * 1024 + 64 * 1024 + 16 * 1024, "{one} bytes are left");
    assert_eq!(reader.current().lookup(255, 0x0a00_0001), Hop::NONE);
    for rib in &customers[1..] {
        updater.add(rib.clone());
    }
    updater.commit().unwrap();
    let restored = reader.current().footprint();
    assert!(restored.abs_diff(bytes) <= bytes / 16, "{restored} bytes, {bytes} before");
    for (table, rib) in customers.iter().enumerate() {
        for (prefix, _) in rib {
            let right = rib.longest(prefix.addr()).unwrap().1;
            assert_eq!(reader.current().lookup(table, prefix.addr()), right);
        }
    }
}

#[test]
fn table_with_too_many_hops_widens_all() {
    let mut updater = FibsUpdater::<u32>::new().unwrap();
    let mut reader = updater.reader();
    let (small, large) = (updater.add(customer(1)), updater.add(Rib::new()));
    updater.commit().unwrap();
    // More ranges in one chunk than 8 bits count, and then hops past 16 bits.
    for low in 0..2048u32 {
        updater.announce(large, Prefix::truncate(0x0a01_0000 | low, 32), Hop(1 + low % 2));
    }
    assert!(updater.commit().unwrap().rebuilt);
    for low in 0..64u32 {
        updater.announce(large, Prefix::truncate(0x0b01_0000 | low, 32), Hop(70_000 + low));
    }
    updater.commit().unwrap();
    let fibs = reader.current();
    assert_eq!(fibs.lookup(large, 0x0a01_0007), Hop(2));
    assert_eq!(fibs.lookup(large, 0x0b01_0007), Hop(70_007));
    assert_eq!(fibs.lookup(small, 0x0b01_0007), Hop(1));
}

#[test]
fn sleeping_readers_delay_memory_and_not_changes() {
    let mut updater = FibsUpdater::<u32>::new().unwrap();
    let table = updater.add(Rib::new());
    updater.commit().unwrap();
    let (mut sleeper, mut lively) = (updater.reader(), updater.reader());
    sleeper.current();
    let mut deferred = 0;
    for step in 1..=10u32 {
        updater.announce(table, Prefix::ALL, Hop(step));
        deferred += u32::from(!updater.commit().unwrap().published);
        lively.current();
    }
    assert!(deferred >= 8 && updater.is_behind(), "{deferred}");
    sleeper.idle();
    assert!(updater.commit().unwrap().published);
    assert_eq!(lively.current().lookup(table, 5), Hop(10));
}
