//! The routing table rebuiltst a model that compares every route with every query: a `BTreeMap` in the
//! order of `Prefix`, and `Prefix::covers`.

#[path = "tables/real.rs"]
mod real;

use std::collections::{BTreeMap, BTreeSet};

use fingerpost_fib::{Addr, Hop, Prefix, Rib};

/// A seeded generator, so that a failure can be reproduced.
struct Dice(fastrand::Rng);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0.u64(..)
    }

    fn below(&mut self, limit: u32) -> u32 {
        (self.roll() % u64::from(limit)) as u32
    }

    fn addr<A: Addr>(&mut self) -> A {
        let wide = u128::from(self.roll()) << 64 | u128::from(self.roll());
        let bits = wide >> (128 - A::BITS);
        // Half of them have few ones, so that they share long prefixes.
        A::from_u128(if self.below(2) == 0 { bits & bits >> 1 & bits >> 2 } else { bits })
    }

    fn prefix<A: Addr>(&mut self) -> Prefix<A> {
        Prefix::truncate(self.addr(), self.below(A::BITS + 1))
    }
}

#[derive(Default)]
struct Model<A: Addr> {
    routes: BTreeMap<Prefix<A>, Hop>,
    changed: BTreeSet<Prefix<A>>,
}

impl<A: Addr> Model<A> {
    fn insert(&mut self, prefix: Prefix<A>, hop: Hop) -> Option<Hop> {
        let old = self.routes.insert(prefix, hop);
        if old != Some(hop) {
            self.changed.insert(prefix);
        }
        old
    }

    fn remove(&mut self, prefix: Prefix<A>) -> Option<Hop> {
        let old = self.routes.remove(&prefix);
        if old.is_some() {
            self.changed.insert(prefix);
        }
        old
    }

    fn iter(&self) -> impl Iterator<Item = (Prefix<A>, Hop)> {
        self.routes.iter().map(|(&prefix, &hop)| (prefix, hop))
    }

    /// Shortest first: of the prefixes that hold one address there is at most
    /// one of each length.
    fn covering(&self, prefix: Prefix<A>) -> Vec<(Prefix<A>, Hop)> {
        let mut found: Vec<_> = self.iter().filter(|(other, _)| other.covers(prefix)).collect();
        found.sort_by_key(|(other, _)| other.len());
        found
    }

    fn covered(&self, prefix: Prefix<A>) -> impl Iterator<Item = (Prefix<A>, Hop)> {
        self.iter().filter(move |(other, _)| prefix.covers(*other))
    }

    /// Every block that some change falls into, unless another one covers it.
    fn take_dirty(&mut self, len: u32) -> Vec<Prefix<A>> {
        let cut = |prefix: &Prefix<A>| Prefix::truncate(prefix.addr(), prefix.len().min(len));
        let blocks: BTreeSet<_> = self.changed.iter().map(cut).collect();
        self.changed.clear();
        let outermost = |block: &&Prefix<A>| {
            !blocks.iter().any(|other| other != *block && other.covers(**block))
        };
        blocks.iter().filter(outermost).copied().collect()
    }
}

fn compare<A: Addr>(seed: u64, turns: u32) {
    let mut dice = Dice(fastrand::Rng::with_seed(seed));
    let mut rib = Rib::<A>::new();
    let mut model = Model::<A>::default();
    for turn in 0..turns {
        // Once in a while a prefix that is there, else mostly one that is not.
        let known = model.routes.keys().nth(dice.below(200) as usize).copied();
        let prefix = known.unwrap_or_else(|| dice.prefix());
        let hop = Hop(dice.below(4));
        match dice.below(5) {
            0 => assert_eq!(rib.remove(prefix), model.remove(prefix), "remove {prefix}"),
            _ if turn / 300 % 3 == 2 => assert_eq!(rib.remove(prefix), model.remove(prefix)),
            _ => assert_eq!(rib.insert(prefix, hop), model.insert(prefix, hop), "insert {prefix}"),
        }
        assert_eq!(rib.len(), model.routes.len());
        assert_eq!(rib.is_empty(), model.routes.is_empty());
        assert_eq!(rib.get(prefix), model.routes.get(&prefix).copied());
        assert_eq!(rib.dirty_len(), model.changed.len());

        let query: Prefix<A> = if dice.below(3) == 0 { prefix } else { dice.prefix() };
        assert_eq!(rib.get(query), model.routes.get(&query).copied());
        let covering = model.covering(query);
        assert!(rib.covering(query).eq(covering.iter().copied()), "covering {query}");
        let shorter = covering.iter().rfind(|(other, _)| *other != query).copied();
        assert_eq!(rib.cover(query), shorter, "cover of {query}");
        assert!(rib.covered(query).eq(model.covered(query)), "covered by {query}");
        for addr in [query.addr(), query.last(), dice.addr()] {
            let host = Prefix::truncate(addr, A::BITS);
            assert_eq!(rib.longest(addr), model.covering(host).last().copied());
        }
        if dice.below(50) == 0 {
            let len = dice.below(A::BITS + 1);
            assert_eq!(rib.take_dirty(len), model.take_dirty(len), "dirty blocks of /{len}");
            assert_eq!(rib.dirty_len(), 0);
            assert!(rib.iter().eq(model.iter()));
        }
    }
    let mut rebuilt = Rib::from_sorted(model.iter());
    assert!(rebuilt.iter().eq(model.iter()));
    assert_eq!((rebuilt.len(), rebuilt.dirty_len()), (model.routes.len(), 0));
    assert_eq!(rebuilt.take_dirty(A::BITS), []);
}

#[test]
fn table_agrees_with_the_model() {
    for seed in 0..6 {
        compare::<u8>(seed, 2000);
        compare::<u16>(seed, 2000);
        compare::<u32>(seed, 2000);
        compare::<u64>(seed, 2000);
        compare::<u128>(seed, 2000);
    }
}

/// Every table of at most three routes, over a universe of three bits held in
/// the top of a `u8`: whatever the order of insertion and of removal.
#[test]
fn every_small_table_is_right_in_every_order_of_changes() {
    let all: Vec<Prefix<u8>> = (0..=3)
        .flat_map(|len| {
            (0..1 << len).map(move |index| Prefix::truncate(u8::from_bits(index, 0, len), len))
        })
        .collect();
    assert_eq!(all.len(), 15);
    for a in &all {
        for b in &all {
            for c in &all {
                let mut rib = Rib::new();
                let mut model = Model::default();
                for (prefix, hop) in [(*a, Hop(1)), (*b, Hop(2)), (*c, Hop(3))] {
                    assert_eq!(rib.insert(prefix, hop), model.insert(prefix, hop));
                    assert!(rib.iter().eq(model.iter()));
                }
                for query in &all {
                    assert!(rib.covering(*query).eq(model.covering(*query)));
                    assert!(rib.covered(*query).eq(model.covered(*query)));
                }
                for len in 0..=3 {
                    let mut dirty =
                        Model { routes: BTreeMap::new(), changed: model.changed.clone() };
                    assert_eq!(rib.clone().take_dirty(len), dirty.take_dirty(len));
                }
                for prefix in [*b, *a, *c] {
                    assert_eq!(rib.remove(prefix), model.remove(prefix));
                    assert!(rib.iter().eq(model.iter()));
                }
            }
        }
    }
}

#[test]
fn unchanged_routes_are_not_dirty() {
    let p = |text: &str| text.parse::<Prefix<u32>>().unwrap();
    let mut rib = Rib::from_sorted([(p("10.0.0.0/8"), Hop(1))]);
    assert_eq!(rib.insert(p("10.0.0.0/8"), Hop(1)), Some(Hop(1)));
    assert_eq!(rib.remove(p("10.0.0.0/9")), None);
    assert_eq!(rib.dirty_len(), 0);

    rib.insert(p("10.0.0.0/8"), Hop(2));
    rib.insert(p("10.0.0.0/8"), Hop(1));
    assert_eq!(rib.take_dirty(32), [p("10.0.0.0/8")], "changed back is changed");
    rib.insert(p("0.0.0.0/0"), Hop(1));
    rib.mark_clean();
    assert_eq!(rib.take_dirty(32), []);
}

/// A route to `Hop::NONE` is a route: it hides the shorter one.
#[test]
fn route_to_hop_none_hides_the_shorter_one() {
    let p = |text: &str| text.parse::<Prefix<u32>>().unwrap();
    let mut rib = Rib::from_sorted([(Prefix::ALL, Hop(1)), (p("10.0.0.0/8"), Hop::NONE)]);
    assert_eq!(rib.len(), 2);
    assert_eq!(rib.longest(0x0a00_0001), Some((p("10.0.0.0/8"), Hop::NONE)));
    assert_eq!(rib.remove(p("10.0.0.0/8")), Some(Hop::NONE));
    assert_eq!(rib.longest(0x0a00_0001), Some((Prefix::ALL, Hop(1))));
}

fn whole<A: Addr>(routes: &[(Prefix<A>, Hop)], count: usize) {
    assert_eq!(routes.len(), count, "the number of routes that the README of the data states");
    let shuffled = {
        let mut dice = Dice(fastrand::Rng::with_seed(3));
        let mut routes = routes.to_vec();
        for at in (1..routes.len()).rev() {
            routes.swap(at, dice.below(at as u32 + 1) as usize);
        }
        routes
    };
    let rib = Rib::from_sorted(routes.iter().copied());
    let mut by_hand = Rib::new();
    for &(prefix, hop) in &shuffled {
        assert_eq!(by_hand.insert(prefix, hop), None);
    }
    assert_eq!(rib.len(), count);
    assert!(rib.iter().eq(routes.iter().copied()));
    assert!(by_hand.iter().eq(routes.iter().copied()));
    for &(prefix, hop) in &shuffled[..count / 2] {
        assert_eq!(rib.get(prefix), Some(hop));
        assert_eq!(by_hand.remove(prefix), Some(hop));
    }
    let rest: BTreeMap<_, _> = shuffled[count / 2..].iter().copied().collect();
    assert!(by_hand.iter().eq(rest));
}

#[test]
fn table_of_2026_is_loaded_and_half_of_it_withdrawn() {
    let table = real::load(real::V4);
    whole::<u32>(&real::routes(&table.v4, None), 1_107_938);
    let table = real::load(real::V6);
    whole::<u128>(&real::routes(&table.v6, None), 258_956);
}
