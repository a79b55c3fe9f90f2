//! The table of next hops against a model, and at its limits.

use std::collections::BTreeMap;

use fingerpost_fib::{Full, Hop, HopTable};

/// Acquires and releases at random. The model is the rule itself: the lowest index that no next
/// hop has.
#[test]
fn lowest_free_index_is_assigned() {
    let mut rng = fastrand::Rng::with_seed(1);
    let mut roll = |limit: u64| rng.u64(..limit);
    let mut hops = HopTable::new();
    let mut model = BTreeMap::<u32, (u64, u64)>::new();
    for turn in 0..60_000 {
        let grow = if turn / 10_000 % 2 == 0 { 6 } else { 4 };
        if roll(10) < grow || model.is_empty() {
            let next = roll(900);
            let known = model.iter().find(|(_, held)| held.0 == next).map(|(&index, _)| index);
            let free = (1..).find(|index| !model.contains_key(index)).unwrap();
            let index = known.unwrap_or(free);
            assert_eq!(hops.find(&next), known.map(Hop));
            assert_eq!(hops.acquire(&next), Ok(Hop(index)));
            model.entry(index).or_insert((next, 0)).1 += 1;
        } else {
            let at = roll(model.len() as u64) as usize;
            let (&index, held) = model.iter_mut().nth(at).unwrap();
            held.1 -= 1;
            let last = (held.1 == 0).then_some(held.0);
            assert_eq!(hops.release(Hop(index)), last);
            if last.is_some() {
                model.remove(&index);
                assert_eq!(hops.get(Hop(index)), None);
            }
        }
        assert_eq!((hops.len(), hops.is_empty()), (model.len(), model.is_empty()));
        if turn % 100 == 0 {
            let held = model.iter().map(|(&index, held)| (Hop(index), held.0, held.1));
            assert!(hops.iter().map(|(hop, &next, count)| (hop, next, count)).eq(held));
            for (&index, held) in &model {
                assert_eq!(hops.get(Hop(index)), Some(&held.0));
            }
        }
    }
}

#[test]
fn hop_none_has_no_entry() {
    let mut hops = HopTable::<u8>::new();
    assert_eq!(hops.get(Hop::NONE), None);
    assert_eq!(hops.release(Hop::NONE), None);
    assert_eq!(hops.acquire(&7), Ok(Hop(1)));
    assert_eq!(hops.get(Hop::NONE), None);
    assert_eq!(hops.get(Hop(2)), None);
}

#[test]
fn full_table_refuses_new_hops_and_stays_valid() {
    let mut hops = HopTable::new().limited(3);
    for next in 0..3 {
        hops.acquire(&next).unwrap();
    }
    assert_eq!(hops.acquire(&3), Err(Full { what: "next hops", limit: 3, seen: 4 }));
    assert_eq!(hops.acquire(&2), Ok(Hop(3)), "a known next hop needs no new index");
    assert_eq!(hops.release(Hop(2)), Some(1));
    assert_eq!(hops.acquire(&3), Ok(Hop(2)));
    assert_eq!(hops.acquire(&4), Err(Full { what: "next hops", limit: 3, seen: 4 }));

    // A later limit keeps existing hops, and assigns none above it.
    let mut hops = HopTable::ranked((0..5).map(|next| (next, 1))).unwrap().limited(2);
    assert_eq!(hops.release(Hop(4)), Some(3));
    assert_eq!(hops.acquire(&9), Err(Full { what: "next hops", limit: 2, seen: 3 }));
    assert_eq!(hops.release(Hop(1)), Some(0));
    assert_eq!(hops.acquire(&9), Ok(Hop(1)));
}

#[test]
fn ranked_table_has_the_most_frequent_hops_first() {
    let counts = [("c", 5), ("a", 2), ("zero", 0), ("b", 9), ("a", 4), ("d", 5)];
    let mut hops = HopTable::ranked(counts).unwrap();
    let ranks: Vec<_> = hops.iter().map(|(hop, &next, count)| (hop.0, next, count)).collect();
    assert_eq!(ranks, [(1, "b", 9), (2, "a", 6), (3, "c", 5), (4, "d", 5)]);
    for _ in 1..6 {
        assert_eq!(hops.release(Hop(2)), None);
    }
    assert_eq!(hops.release(Hop(2)), Some("a"));
    assert_eq!(hops.acquire(&"e"), Ok(Hop(2)));
}

#[test]
#[should_panic(expected = "a hop is released only while it is held")]
fn release_without_a_reference_panics() {
    let mut hops = HopTable::new();
    let hop = hops.acquire(&"east").unwrap();
    hops.release(hop);
    hops.release(hop);
}
