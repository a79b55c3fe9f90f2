//! The host address cache returns the answers of the engine behind it, for any sequence of lookups
//! and changes of the table.

#![cfg(feature = "std")]

mod tables;

use std::collections::BTreeMap;

use fingerpost_fib::engine::hac::{Hac, HacShape};
use fingerpost_fib::engine::linear::Linear;
use fingerpost_fib::{Choice, Engine, Family, Fib, Hop, Prefix, Rib, Updater};
use tables::{Dice, engines};

/// The paper's degrees with and without the duplicate, and what is between them.
fn shapes(entries: usize) -> Vec<HacShape> {
    let degrees = [(1, false), (1, true), (2, false), (3, true), (3, false), (4, false)];
    let more = [(5, true), (6, false), (7, true), (7, false), (8, false)];
    let shape = |&(ways, duplicate): &(u32, bool)| HacShape::new(entries, ways, duplicate);
    degrees.iter().chain(&more).map(|degree| shape(degree).unwrap()).collect()
}

fn rib<A: Family>(table: &BTreeMap<Prefix<A>, Hop>) -> Rib<A> {
    Rib::from_sorted(table.iter().map(|(&prefix, &hop)| (prefix, hop)))
}

/// Addresses in trains: each several times, some again later.
fn trains<A: Family>(dice: &mut Dice, count: usize) -> Vec<A> {
    let mut addrs: Vec<A> = Vec::new();
    while addrs.len() < count {
        let repeats = dice.below(3) > 0 && !addrs.is_empty();
        let addr = if repeats { addrs[dice.below(addrs.len())] } else { dice.addr() };
        addrs.extend(std::iter::repeat_n(addr, 1 + dice.below(4)));
    }
    addrs
}

/// Looks up every address of `addrs`, one by one and in batches of all sizes.
fn same<A: Family>(
    hac: &mut Hac<A>,
    engine: &dyn Engine<A>,
    generation: u64,
    addrs: &[A],
    expected: &[Hop],
    dice: &mut Dice,
) {
    let (hits, misses) = (hac.hits(), hac.misses());
    for (&addr, &hop) in addrs.iter().zip(expected) {
        let answer = hac.before(engine, generation).lookup(addr);
        assert_eq!(answer, hop, "{addr:x?}, {:?}", hac.shape());
    }
    let mut out = vec![Hop(9); addrs.len()];
    let mut at = 0;
    while at < addrs.len() {
        let end = (at + 1 + dice.below(200)).min(addrs.len());
        hac.before(engine, generation).lookup_batch(&addrs[at..end], &mut out[at..end]);
        at = end;
    }
    assert!(out == expected, "a batch differs, {:?}", hac.shape());
    let lookups = hac.hits() - hits + hac.misses() - misses;
    assert_eq!(lookups, 2 * addrs.len() as u64, "every lookup is a hit or a miss");
}

/// Every address of a small universe, in order and at random, before and after the
/// table has changed.
fn universe<A: Family>(seeds: u64, sample: usize) {
    let all: Vec<A> = (0..1u128 << A::BITS).map(A::from_u128).collect();
    for seed in 0..seeds {
        let mut dice = Dice::new(seed);
        let mut caches: Vec<Hac<A>> = shapes(16 << (seed % 3)).into_iter().map(Hac::new).collect();
        for generation in 0..3 {
            let table = dice.table::<A>(40, 300);
            let oracle = Linear::new(table.iter().map(|(&prefix, &hop)| (prefix, hop)));
            let answers = |addrs: &[A]| -> Vec<Hop> {
                addrs.iter().map(|&addr| oracle.lookup(addr)).collect()
            };
            let random = trains(&mut dice, sample);
            let (in_order, at_random) = (answers(&all), answers(&random));
            for (n, hac) in caches.iter_mut().enumerate() {
                if n as u64 % 4 == seed % 4 {
                    same(hac, &oracle, generation, &all, &in_order, &mut dice);
                }
                same(hac, &oracle, generation, &random, &at_random, &mut dice);
            }
        }
    }
}

#[test]
fn cache_answers_every_address_of_eight_bits() {
    universe::<u8>(200, 300);
}

#[test]
fn cache_answers_every_address_of_sixteen_bits() {
    universe::<u16>(4, 2_000);
}

/// Compares every engine behind the same cache.
fn every_engine<A: Family>() {
    let mut dice = Dice::new(5);
    let tables: Vec<_> = (0..3).map(|_| dice.table::<A>(100, 300)).collect();
    for choice in engines::<A>() {
        let mut hac = Hac::new(HacShape::new(64, 3, true).unwrap());
        for (generation, table) in tables.iter().enumerate() {
            let fib = Fib::build(&rib(table), choice, 1).unwrap();
            let addrs = trains(&mut dice, 3_000);
            let expected: Vec<Hop> = addrs.iter().map(|&addr| fib.lookup(addr)).collect();
            same(&mut hac, fib.engine(), generation as u64, &addrs, &expected, &mut dice);
        }
        assert!(hac.hits() > hac.misses(), "{choice:?}: trains hit");
    }
}

#[test]
fn cache_answers_in_front_of_every_engine() {
    every_engine::<u8>();
    every_engine::<u16>();
    every_engine::<u32>();
    every_engine::<u64>();
    every_engine::<u128>();
}

/// No answer outlives the table it is from, when tables take turns in place.
#[test]
fn cache_is_emptied_by_a_publication() {
    let mut updater = Updater::new(Rib::<u8>::new(), Choice::Auto, 1).unwrap();
    let mut reader = updater.reader();
    let mut hac = Hac::new(HacShape::new(16, 2, false).unwrap());
    let mut dice = Dice::new(3);
    let mut known = BTreeMap::new();
    for step in 0..2_000 {
        let prefix = dice.prefix(&known);
        if dice.below(3) > 0 {
            let hop = Hop(dice.below(300) as u32);
            known.insert(prefix, hop);
            updater.announce(prefix, hop);
        } else {
            known.remove(&prefix);
            updater.withdraw(prefix);
        }
        if step % 5 == 0 {
            updater.commit().unwrap();
        }
        let fib = reader.current();
        assert_eq!(fib.generation(), updater.fib().generation());
        let addrs: Vec<u8> = (0..30).map(|_| dice.addr()).collect();
        let mut out = vec![Hop(9); addrs.len()];
        hac.before(fib.engine(), fib.generation()).lookup_batch(&addrs, &mut out);
        for (&addr, &hop) in addrs.iter().zip(&out) {
            assert_eq!(hop, fib.lookup(addr), "step {step}, {addr:x}");
        }
    }
    assert!(hac.hits() > 1_000, "{} hits", hac.hits());
}

/// The counters equal those of a plain array of the sets.
#[test]
fn direct_mapped_hits_are_those_of_a_plain_array() {
    let mut dice = Dice::new(8);
    let addrs = trains::<u32>(&mut dice, 20_000);
    let table = Linear::new([(Prefix::ALL, Hop(1))]);
    let mut hac = Hac::new(HacShape::new(256, 1, false).unwrap().with_skip(2));
    let (mut sets, mut hits) = (vec![None; 256], 0);
    for &addr in &addrs {
        assert_eq!(hac.before(&table, 0).lookup(addr), Hop(1));
        let set = (addr >> 2) as usize % 256;
        hits += u64::from(sets[set] == Some(addr));
        sets[set] = Some(addr);
    }
    assert_eq!((hac.hits(), hac.misses()), (hits, addrs.len() as u64 - hits));
}
