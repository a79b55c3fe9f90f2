//! Many FIBs that change at random, each against a list of its own routes.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

use super::{SailM, SailMBuilder};
use crate::engine::linear::Linear;
use crate::engine::{Engine, Leaf, Place};
use crate::{Addr, Hop, Prefix};

/// A seeded generator.
struct Dice(fastrand::Rng);

impl Dice {
    fn below(&mut self, end: usize) -> usize {
        self.0.usize(..end.max(1))
    }

    /// Draws a prefix close to one that some FIB has, so that FIBs share prefixes and nest them.
    fn prefix<A: Addr>(&mut self, fibs: &Fibs<A>) -> Prefix<A> {
        let random = A::from_u128(self.below(usize::MAX) as u128);
        let len = self.below(A::BITS as usize + 1) as u32;
        let with_routes: Vec<_> = fibs.values().filter(|routes| !routes.is_empty()).collect();
        if with_routes.is_empty() || self.below(4) == 0 {
            return Prefix::truncate(random, len);
        }
        let routes = with_routes[self.below(with_routes.len())];
        let near = *routes.keys().nth(self.below(routes.len())).unwrap();
        match self.below(3) {
            0 => near,
            1 => Prefix::truncate(near.addr(), len),
            _ => Prefix::truncate(near.last(), near.len().max(len)),
        }
    }
}

type Fibs<A> = BTreeMap<usize, BTreeMap<Prefix<A>, Hop>>;

fn compare<A: Addr, L: Leaf>(table: &SailM<A, L>, fibs: &Fibs<A>, addrs: &[A], what: &str) {
    assert!(table.fibs().eq(fibs.keys().copied()), "{what}");
    let mut out = vec![Hop(9); addrs.len()];
    let mut mixed = vec![Hop(9); addrs.len()];
    let numbers: Vec<usize> = (0..addrs.len()).map(|i| i % 7).collect();
    table.lookup_mixed(&numbers, addrs, &mut mixed);
    for fib in 0..7 {
        let routes = fibs.get(&fib).into_iter().flatten().map(|(&prefix, &hop)| (prefix, hop));
        let oracle = Linear::new(routes);
        let view = table.view(fib);
        let parts = view.parts();
        table.lookup_batch(fib, addrs, &mut out);
        for (i, &addr) in addrs.iter().enumerate() {
            let expected = oracle.lookup(addr);
            assert_eq!(out[i], expected, "{what}, FIB {fib}, {addr:x?}: {fibs:?}");
            assert_eq!(table.lookup(fib, addr), expected);
            assert_eq!(view.lookup(addr), expected);
            if numbers[i] == fib {
                assert_eq!(mixed[i], expected);
            }
            if i % 11 == 0 {
                let mut steps = Vec::new();
                assert_eq!(view.trace(addr, &mut steps), expected);
                let place = |name| parts.iter().find(|part| part.name == name).unwrap();
                for step in &steps {
                    assert!(step.index < place(step.part).items, "{step:?}, {parts:?}");
                }
                let off = |step: &&super::Step| place(step.part).place == Some(Place::OffChip);
                assert!(steps.iter().filter(off).count() <= 2);
            }
        }
    }
}

/// Applies random changes to up to six FIBs; tables frozen before must not change.
fn replay<A: Addr, L: Leaf>(seed: u64, steps: usize, hops: usize, addrs: &[A]) {
    let mut dice = Dice(fastrand::Rng::with_seed(seed));
    let mut builder = SailMBuilder::<A, L>::new();
    let mut fibs: Fibs<A> = BTreeMap::new();
    let mut before = None;
    for step in 0..steps {
        for _ in 0..dice.below(12) {
            let some = fibs.keys().nth(dice.below(fibs.len())).copied();
            match (dice.below(20), some) {
                (0, _) | (_, None) if fibs.len() < 6 => {
                    let fib = builder.add_fib();
                    assert_eq!(fibs.insert(fib, BTreeMap::new()), None);
                }
                (1, Some(fib)) => {
                    assert!(builder.remove_fib(fib));
                    assert!(!builder.remove_fib(fib));
                    fibs.remove(&fib);
                }
                (2, Some(fib)) => {
                    let many: Vec<_> = (0..dice.below(30))
                        .map(|_| (dice.prefix(&fibs), Hop(dice.below(hops) as u32)))
                        .collect();
                    builder.load(fib, many.iter().copied()).unwrap();
                    fibs.get_mut(&fib).unwrap().extend(many);
                }
                (3..9, Some(fib)) => {
                    let victim = dice.prefix(&fibs);
                    let had = fibs.get_mut(&fib).unwrap().remove(&victim).is_some();
                    assert_eq!(builder.withdraw(fib, victim), had);
                }
                (_, Some(fib)) => {
                    let (prefix, hop) = (dice.prefix(&fibs), Hop(dice.below(hops) as u32));
                    builder.announce(fib, prefix, hop).unwrap();
                    fibs.get_mut(&fib).unwrap().insert(prefix, hop);
                }
                (_, None) => unreachable!("there is room for a first FIB"),
            }
        }
        let frozen = builder.freeze();
        compare(&frozen, &fibs, addrs, &alloc::format!("seed {seed}, step {step}"));
        if step % 5 == 0 {
            if let Some((table, fibs)) = &before {
                compare(table, fibs, addrs, "what was frozen before");
            }
            before = Some((frozen, fibs.clone()));
        }
    }
    // A rebuild has the same shape, but for the gaps that are allowed.
    let mut rebuilt = SailMBuilder::<A, L>::new();
    for routes in fibs.values() {
        let fib = rebuilt.add_fib();
        rebuilt.load(fib, routes.iter().map(|(&prefix, &hop)| (prefix, hop))).unwrap();
    }
    let items = |table: SailM<A, L>| table.parts().iter().map(|part| part.items).sum::<usize>();
    let (patched, fresh) = (items(builder.freeze()), items(rebuilt.freeze()));
    assert!(patched >= fresh && patched <= fresh + fresh / 10, "{patched} items, {fresh} rebuilt");
    // And without routes nothing is left of it.
    for fib in fibs.keys() {
        builder.remove_fib(*fib);
    }
    assert_eq!(items(builder.freeze()), items(SailMBuilder::<A, L>::new().freeze()));
}

#[test]
fn every_fib_answers_every_address_of_eight_bits() {
    let universe: Vec<u8> = (0..=u8::MAX).collect();
    for seed in 0..60 {
        replay::<u8, u16>(seed, 30, 200, &universe);
    }
    replay::<u8, u32>(1, 30, 70_000, &universe);
}

#[test]
fn every_fib_answers_every_address_of_sixteen_bits() {
    let universe: Vec<u16> = (0..=u16::MAX).collect();
    for seed in 0..2 {
        replay::<u16, u16>(seed, 6, 300, &universe);
    }
}

#[test]
fn hop_beyond_the_width_is_refused_without_a_change() {
    let mut builder = SailMBuilder::<u16, u16>::new();
    let fib = builder.add_fib();
    let p = |text: &str| text.parse::<Prefix<u16>>().unwrap();
    builder.announce(fib, p("1200/8"), Hop(65_534)).unwrap();
    let full = builder.announce(fib, p("1230/12"), Hop(65_535)).unwrap_err();
    assert_eq!((full.limit, full.seen), (65_534, 65_535));
    assert_eq!(builder.freeze().lookup(fib, 0x1234), Hop(65_534));
    assert!(!builder.withdraw(fib, p("1230/12")));
}

#[test]
fn shape_is_the_same_for_any_number_of_fibs() {
    let mut dice = Dice(fastrand::Rng::with_seed(5));
    let mut fibs: Fibs<u32> = BTreeMap::from([(0, BTreeMap::new())]);
    for i in 0..300 {
        let prefix = dice.prefix(&fibs);
        fibs.get_mut(&0).unwrap().insert(prefix, Hop(i));
    }
    let mut builder = SailMBuilder::<u32, u16>::new();
    let mut on_chip = Vec::new();
    for i in 0..9 {
        let fib = builder.add_fib();
        let routes = fibs[&0].iter().map(|(&prefix, &hop)| (prefix, Hop(hop.0 + i)));
        builder.load(fib, routes).unwrap();
        on_chip.push(builder.freeze().on_chip_bytes());
    }
    on_chip.dedup();
    assert_eq!(on_chip.len(), 1, "{on_chip:?}");
}
