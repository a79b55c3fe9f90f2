//! Random maps against a scan of all entries, and against the crate `prefix-trie`.
//!
//! The scan ([`Model`]) is a sorted list, in which every question is answered by the definition of
//! the operation: cover by cover. `prefix-trie` has another structure and another author. Prefixes
//! are drawn so that they nest, are siblings and repeat: from few bits, at few places of the address,
//! in all lengths from 0 to the family's width.

use std::collections::BTreeMap;
use std::fmt::Debug;

use fastrand::Rng;
use fib::Addr;
use fingerpost_lpm::{Choice, Entry, FrozenLpm, Hop, ImageError, LpmMap, Pair, Prefix, PrefixKey};
use ipnet::{Ipv4Net, Ipv6Net};
use prefix_trie::PrefixMap;

/// The entries in order; each answer is a scan.
type Model<A> = BTreeMap<Prefix<A>, u32>;

/// A key of ours that is one of `prefix-trie`, too.
trait Net: PrefixKey + prefix_trie::Prefix + Debug + PartialEq {}
impl Net for Ipv4Net {}
impl Net for Ipv6Net {}

/// Draws an address with few different bits, at places over the whole width.
fn draw_addr<A: Addr>(rng: &mut Rng) -> A {
    let mut addr = 0;
    for at in [0, 1, 5, 6, 7, 12, 13, 23, 24, 30, 31] {
        addr |= u128::from(rng.bool()) << (at * (A::BITS - 1) / 31);
    }
    A::from_u128(addr)
}

fn draw<A: Addr>(rng: &mut Rng) -> Prefix<A> {
    let len = match rng.u32(..8) {
        0 => [0, 1, A::BITS - 1, A::BITS][rng.usize(..4)],
        1 => rng.u32(..=A::BITS),
        // Around the borders of nodes.
        _ => (rng.u32(..=A::BITS / 6) * 6 + rng.u32(..3)).min(A::BITS),
    };
    Prefix::truncate(draw_addr(rng), len)
}

/// A map of ours, and two with the same entries.
type Equal<P> = (LpmMap<P, u32>, Model<<P as PrefixKey>::Bits>, PrefixMap<P, u32>);

/// Makes equal maps of ours, the model's and the other crate's.
fn make<P: Net>(rng: &mut Rng, count: usize) -> Equal<P> {
    let (mut map, mut model, mut other) = (LpmMap::new(), Model::new(), PrefixMap::new());
    for _ in 0..count {
        let (prefix, value) = (draw(rng), rng.u32(..5));
        let (key, old) = (P::from_prefix(prefix), model.insert(prefix, value));
        assert_eq!(map.insert(key, value), old);
        assert_eq!(other.insert(key, value), old);
    }
    for prefix in model.keys().copied().collect::<Vec<_>>() {
        if rng.u32(..4) == 0 {
            let (key, old) = (P::from_prefix(prefix), model.remove(&prefix));
            assert_eq!(map.remove(&key), old);
            assert_eq!(map.remove(&key), None);
            assert_eq!(other.remove(&key), old);
        }
    }
    (map, model, other)
}

fn entries<'a, P: PrefixKey>(
    found: impl Iterator<Item = (P, &'a u32)>,
) -> Vec<(Prefix<P::Bits>, u32)> {
    found.map(|(key, value)| (key.to_prefix(), *value)).collect()
}

fn check_queries<P: Net>(rng: &mut Rng, address: impl Fn(P::Bits) -> P::Address) {
    for round in 0..300 {
        let (mut map, model, other) = make::<P>(rng, round);
        let all: Vec<_> = model.iter().map(|(prefix, value)| (*prefix, *value)).collect();
        assert_eq!(map.len(), all.len());
        assert_eq!(entries(map.iter()), all);
        assert_eq!(entries(other.iter()), all);
        assert_eq!(
            map.clone().into_iter().map(|(p, v)| (p.to_prefix(), v)).collect::<Vec<_>>(),
            all
        );
        assert!(map.iter_mut().map(|(p, v)| (p.to_prefix(), *v)).eq(all.iter().copied()));
        assert!(map.keys().map(|key| key.to_prefix()).eq(model.keys().copied()));
        assert!(map.values().eq(model.values()));
        let mut unordered: Vec<_> = map.values_unordered().collect();
        unordered.sort();
        let mut values: Vec<_> = model.values().collect();
        values.sort();
        assert_eq!(unordered, values);
        for _ in 0..40 {
            // Half of the questions are about a prefix of the map.
            let prefix = match all.get(rng.usize(..=2 * all.len())) {
                Some((prefix, _)) => *prefix,
                None => draw(rng),
            };
            let key = P::from_prefix(prefix);
            assert_eq!(map.get(&key), model.get(&prefix), "{prefix}");
            assert_eq!(map.contains_key(&key), other.contains_key(&key));

            let covering: Vec<_> =
                all.iter().copied().filter(|(cover, _)| cover.covers(prefix)).collect();
            assert_eq!(entries(map.covering(&key)), covering, "{prefix}");
            let longest = |found: Option<(P, &u32)>| found.map(|(p, v)| (p.to_prefix(), *v));
            assert_eq!(longest(map.longest_covering(&key)), covering.last().copied());
            assert_eq!(longest(other.get_lpm(&key)), covering.last().copied());
            let parent = covering.iter().rev().find(|(cover, _)| *cover != prefix);
            assert_eq!(longest(map.parent(&key)), parent.copied(), "{prefix}");

            let covered: Vec<_> =
                all.iter().copied().filter(|(inner, _)| prefix.covers(*inner)).collect();
            assert_eq!(entries(map.covered(&key)), covered, "{prefix}");
            assert_eq!(entries(other.children(&key)), covered);
            let below = covered.iter().filter(|(inner, _)| *inner != prefix);
            let first: Vec<_> = below
                .clone()
                .filter(|(inner, _)| {
                    !below.clone().any(|(cover, _)| cover != inner && cover.covers(*inner))
                })
                .copied()
                .collect();
            assert_eq!(entries(map.children(&key)), first, "{prefix}");

            let end = draw::<P::Bits>(rng);
            let last = P::from_prefix(end);
            let within = |from: bool, to: bool| -> Vec<_> {
                let follows = |p| prefix < p || from && prefix == p;
                let precedes = |p| p < end || to && p == end;
                all.iter().copied().filter(|(p, _)| follows(*p) && precedes(*p)).collect()
            };
            assert_eq!(entries(map.range(key..last)), within(true, false), "{prefix} {end}");
            assert_eq!(entries(map.range(key..=last)), within(true, true));
            let open = (std::ops::Bound::Excluded(key), std::ops::Bound::Excluded(last));
            assert_eq!(entries(map.range(open)), within(false, false));

            let bits = draw_addr::<P::Bits>(rng);
            let holding: Vec<_> = all.iter().copied().filter(|(p, _)| p.contains(bits)).collect();
            assert_eq!(longest(map.longest(address(bits))), holding.last().copied());
            assert_eq!(entries(map.matches(address(bits))), holding);
        }
    }
}

#[test]
fn queries_equal_a_scan_and_prefix_trie() {
    check_queries::<Ipv4Net>(&mut Rng::with_seed(4), |bits| bits.into());
    check_queries::<Ipv6Net>(&mut Rng::with_seed(6), |bits| bits.into());
}

fn check_sets<P: Net>(rng: &mut Rng) {
    for round in 0..200 {
        let (left, left_model, _) = make::<P>(rng, round);
        let (right, right_model, _) = make::<P>(rng, rng.clone().usize(..=round));
        let keys: std::collections::BTreeSet<_> =
            left_model.keys().chain(right_model.keys()).copied().collect();
        let union = keys.iter().map(|key| match (left_model.get(key), right_model.get(key)) {
            (Some(one), Some(two)) => (*key, Pair::Both(one, two)),
            (Some(one), None) => (*key, Pair::Left(one)),
            (None, two) => (*key, Pair::Right(two.unwrap())),
        });
        assert!(left.union(&right).map(|(key, pair)| (key.to_prefix(), pair)).eq(union));
        let both =
            left_model.iter().filter_map(|(key, one)| Some((*key, one, right_model.get(key)?)));
        let found = left.intersection(&right).map(|(key, one, two)| (key.to_prefix(), one, two));
        assert!(found.eq(both));
        let only = left_model.iter().filter(|(key, _)| !right_model.contains_key(key));
        let only: Vec<_> = only.map(|(key, value)| (*key, *value)).collect();
        assert_eq!(entries(left.difference(&right)), only);
        let bare = |key: &Prefix<P::Bits>| !right_model.keys().any(|cover| cover.covers(*key));
        let bare: Vec<_> =
            left_model.iter().filter(|(key, _)| bare(key)).map(|(k, v)| (*k, *v)).collect();
        assert_eq!(entries(left.covering_difference(&right)), bare);
        let longest = |model: &Model<P::Bits>, key: Prefix<P::Bits>| {
            model.iter().filter(|(cover, _)| cover.covers(key)).last().map(|(_, value)| *value)
        };
        let pairs: Vec<_> = left
            .covering_union(&right)
            .map(|(key, one, two)| (key.to_prefix(), one.copied(), two.copied()))
            .collect();
        let expected: Vec<_> = keys
            .iter()
            .map(|key| (*key, longest(&left_model, *key), longest(&right_model, *key)))
            .collect();
        assert_eq!(pairs, expected);
    }
}

#[test]
fn sets_equal_those_of_sorted_lists() {
    check_sets::<Ipv4Net>(&mut Rng::with_seed(14));
    check_sets::<Ipv6Net>(&mut Rng::with_seed(16));
}

/// All addresses at which a longest match can change: those of the drawn ones' kind, and borders.
fn probes<A: Addr>(rng: &mut Rng, model: &Model<A>) -> Vec<A> {
    let borders = model.keys().flat_map(|p| [Some(p.addr()), Some(p.last()), p.last().succ()]);
    borders.flatten().chain((0..50).map(|_| draw_addr(rng))).collect()
}

fn check_aggregate<P: Net>(rng: &mut Rng, address: impl Fn(P::Bits) -> P::Address) {
    for round in 0..300 {
        let (map, model, _) = make::<P>(rng, round);
        let mut fewer = map.clone();
        fewer.aggregate();
        assert!(fewer.len() <= map.len());
        for addr in probes(rng, &model) {
            let value = |map: &LpmMap<P, u32>| map.longest(address(addr)).map(|(_, value)| *value);
            assert_eq!(value(&fewer), value(&map), "{addr:x?}");
        }
        // Nothing is left that a step applies to.
        for (key, value) in &fewer {
            let prefix = key.to_prefix();
            assert_ne!(fewer.parent(&key).map(|(_, above)| above), Some(value));
            if let Some(above) = prefix.len().checked_sub(1) {
                let pair = Prefix::truncate(prefix.addr(), above);
                let halves = fewer.range(P::from_prefix(pair)..).filter(|(p, _)| {
                    p.to_prefix().len() == prefix.len() && pair.covers(p.to_prefix())
                });
                let values: Vec<_> = halves.map(|(_, value)| value).collect();
                assert!(values.len() < 2 || values[0] != values[1], "{prefix}");
            }
        }
        let once = fewer.clone();
        fewer.aggregate();
        assert_eq!(fewer, once);
    }
}

#[test]
fn aggregate_keeps_every_longest_match_with_fewer_prefixes() {
    check_aggregate::<Ipv4Net>(&mut Rng::with_seed(24), |bits| bits.into());
    check_aggregate::<Ipv6Net>(&mut Rng::with_seed(26), |bits| bits.into());
}

fn check_frozen<P: Net>(rng: &mut Rng, address: impl Fn(P::Bits) -> P::Address) {
    for round in [0, 1, 2, 3, 10, 100, 400] {
        let (map, model, _) = make::<P>(rng, round);
        let table = map.freeze(Choice::Auto).unwrap();
        let exact = map.freeze_entries(Choice::Auto).unwrap();
        assert!(table.values().len() <= 5, "equal values are stored once");
        let image = table.to_image(|value, bytes| bytes.extend(value.to_be_bytes())).unwrap();
        let decode = |bytes: &[u8]| bytes.try_into().map(u32::from_be_bytes);
        let loaded = FrozenLpm::<P, u32>::from_image(&image, decode).unwrap();

        let addrs = probes(rng, &model);
        let addresses: Vec<_> = addrs.iter().map(|addr| address(*addr)).collect();
        let mut many = vec![None; addresses.len()];
        table.lookup_many(&addresses, &mut many);
        for (&address, many) in addresses.iter().zip(many) {
            let longest = map.longest(address);
            assert_eq!(table.lookup(address), longest.map(|(_, value)| value));
            assert_eq!(many, table.lookup(address));
            assert_eq!(loaded.lookup(address), table.lookup(address));
            assert_eq!(exact.lookup(address).map(|(key, value)| (*key, value)), longest);
        }
    }
}

#[test]
fn frozen_table_equals_the_map_and_its_image() {
    check_frozen::<Ipv4Net>(&mut Rng::with_seed(34), |bits| bits.into());
    check_frozen::<Ipv6Net>(&mut Rng::with_seed(36), |bits| bits.into());
}

#[test]
fn damaged_image_is_refused() {
    let map = LpmMap::from([((std::net::Ipv4Addr::new(192, 0, 2, 0), 24), 7_u8)]);
    let table = map.freeze(Choice::Auto).unwrap();
    let image = table.to_image(|value, bytes| bytes.push(*value)).unwrap();
    type Frozen = FrozenLpm<(std::net::Ipv4Addr, u8), u8>;
    let decode = |bytes: &[u8]| bytes.first().copied().ok_or("empty");
    for at in 0..image.len() {
        let mut damaged = image.clone();
        damaged[at] ^= 1;
        assert!(Frozen::from_image(&damaged, decode).is_err(), "byte {at}");
        assert!(Frozen::from_image(&image[..at], decode).is_err(), "{at} bytes");
    }
    let refuse = |_: &[u8]| Err("unknown value");
    let error = Frozen::from_image(&image, refuse).unwrap_err();
    assert!(matches!(error, ImageError::Value { index: 0, .. }));
    assert_eq!(error.to_string(), "value 0 of the image cannot be decoded: unknown value");
    type Other = FrozenLpm<(std::net::Ipv6Addr, u8), u8>;
    assert!(Other::from_image(&image, decode).is_err(), "another family");
    assert_eq!(table.value(Hop(2)), None, "a hop that no value has");
}

#[test]
fn entry_inserts_changes_and_removes_as_get_does() {
    let mut rng = Rng::with_seed(44);
    let mut map: LpmMap<Ipv6Net, u32> = LpmMap::new();
    let mut model = Model::<u128>::new();
    for _ in 0..5000 {
        let prefix = draw(&mut rng);
        let key = Ipv6Net::from_prefix(prefix);
        assert_eq!(map.entry(key).key(), key);
        match (rng.u32(..3), map.entry(key)) {
            (0, Entry::Occupied(entry)) => assert_eq!(Some(entry.remove()), model.remove(&prefix)),
            (1, entry) => {
                let value = *entry.and_modify(|value| *value += 1).or_insert(7);
                let expected = model.entry(prefix).and_modify(|value| *value += 1).or_insert(7);
                assert_eq!(value, *expected);
            }
            (_, Entry::Vacant(entry)) => {
                *entry.insert(1) += 1;
                assert_eq!(model.insert(prefix, 2), None);
            }
            (_, Entry::Occupied(mut entry)) => {
                assert_eq!(Some(entry.insert(3)), model.insert(prefix, 3));
                assert_eq!(*entry.get(), 3);
            }
        }
        assert_eq!(map.len(), model.len());
    }
    assert!(map.iter().map(|(p, v)| (p.to_prefix(), *v)).eq(model.iter().map(|(p, v)| (*p, *v))));
}

#[test]
fn retain_and_remove_covered_keep_what_remains() {
    let mut rng = Rng::with_seed(54);
    for round in 0..100 {
        let (mut map, mut model, _) = make::<Ipv4Net>(&mut rng, round);
        let mut order = Vec::new();
        map.retain(|key, value| {
            order.push(key.to_prefix());
            *value += 1;
            *value % 2 == 0
        });
        assert!(order.is_sorted());
        model.retain(|_, value| {
            *value += 1;
            *value % 2 == 0
        });
        let expected: Vec<_> = model.iter().map(|(p, v)| (*p, *v)).collect();
        assert_eq!(entries(map.iter()), expected);
        let prefix = draw(&mut rng);
        let before = model.len();
        model.retain(|inner, _| !prefix.covers(*inner));
        assert_eq!(map.remove_covered(&Ipv4Net::from_prefix(prefix)), before - model.len());
        assert!(map.keys().map(|key| key.to_prefix()).eq(model.keys().copied()));
        map.for_each_mut(|key, value| *value = u32::from(key.prefix_len()));
        assert!(map.iter().all(|(key, value)| *value == u32::from(key.prefix_len())));
    }
}
