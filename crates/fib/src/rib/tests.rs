//! Tests of the shape of the trie, which is private to this module. `tests/rib.rs` compares the
//! table's answers with a model.

extern crate std;
use super::{NIL, Node, ROOT, Rib};
use crate::{Addr, Hop, Prefix};
use alloc::vec::Vec;
use std::collections::BTreeSet;

/// A seeded generator, so that a failure can be reproduced.
struct Dice(fastrand::Rng);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0.u64(..)
    }

    /// Draws a prefix of which many others share the beginning.
    fn prefix<A: Addr>(&mut self) -> Prefix<A> {
        let wide = u128::from(self.roll()) << 64 | u128::from(self.roll());
        let bits = wide >> (128 - A::BITS);
        let sparse = if self.roll() & 1 == 0 { bits & bits >> 1 & bits >> 2 } else { bits };
        Prefix::truncate(A::from_u128(sparse), self.roll() as u32 % (A::BITS + 1))
    }
}

/// Walks all nodes and checks the invariants that `rib.rs` states.
fn check<A: Addr>(rib: &Rib<A>) {
    let mut seen = BTreeSet::from([ROOT]);
    let mut todo = Vec::from([ROOT]);
    let mut routes = 0;
    while let Some(at) = todo.pop() {
        let node = &rib.nodes[at as usize];
        routes += usize::from(node.routed);
        assert!(node.routed || node.hop == Hop::NONE);
        assert_eq!(node.addr.first(node.len.into()), node.addr);
        assert!(at == ROOT || node.routed || !node.child.contains(&NIL), "an unneeded node");
        for (side, &child) in node.child.iter().enumerate().filter(|&(_, &child)| child != NIL) {
            let below = &rib.nodes[child as usize];
            assert!(seen.insert(child), "node {child} has two parents");
            assert!(below.len > node.len && node.covers(below.prefix()));
            assert_eq!(node.side(below.addr), side);
            todo.push(child);
        }
    }
    assert_eq!(rib.nodes[ROOT as usize].len, 0);
    assert_eq!(routes, rib.len());
    assert!(seen.len() <= 2 * rib.len().max(1), "{} nodes, {routes} routes", seen.len());
    let mut free = rib.free;
    let mut freed = 0;
    while free != NIL {
        assert!(seen.insert(free), "node {free} is freed and in use, or freed twice");
        free = rib.nodes[free as usize].child[0];
        freed += 1;
    }
    assert_eq!(freed, rib.freed);
    assert_eq!(seen.len(), rib.nodes.len(), "nodes are lost");
}

fn churn<A: Addr>(seed: u64) {
    let mut dice = Dice(fastrand::Rng::with_seed(seed));
    let mut rib = Rib::<A>::new();
    let mut held = Vec::new();
    for turn in 0..3000 {
        // Grow and shrink in turns.
        let grow = if turn / 700 % 2 == 0 { 3 } else { 1 };
        if held.is_empty() || dice.roll() % 4 < grow {
            let prefix = dice.prefix();
            if rib.insert(prefix, Hop(dice.roll() as u32 % 5)).is_none() {
                held.push(prefix);
            }
        } else {
            let prefix = held.swap_remove(dice.roll() as usize % held.len());
            assert!(rib.remove(prefix).is_some());
            assert_eq!(rib.remove(prefix), None);
        }
        check(&rib);
        assert_eq!(rib.len(), held.len());
        // One descent returns the same cover and the same routes of a block as two.
        let block = dice.prefix();
        let (cover, within) = rib.block(block);
        assert_eq!(cover, rib.cover(block).map_or(Hop::NONE, |(_, hop)| hop), "cover of {block}");
        assert!(within.eq(rib.covered(block)), "covered by {block}");
        let prefixes: Vec<Prefix<A>> = (0..turn % 40).map(|_| dice.prefix()).collect();
        rib.prepare(&prefixes);
    }
    let rebuilt = Rib::from_sorted(&rib);
    check(&rebuilt);
    assert_eq!(rebuilt.dirty_len(), 0);
    assert!(rebuilt.iter().eq(&rib));
    // Equal routes have equal tries, whatever the order of changes.
    assert_eq!(rebuilt.nodes.len(), rib.nodes.len() - rib.freed);
    let room = rib.nodes.len();
    for prefix in held.drain(..) {
        rib.remove(prefix);
    }
    check(&rib);
    assert_eq!(rib.freed, room - 1, "an empty table holds nodes other than the root");
    for (prefix, hop) in &rebuilt {
        rib.insert(prefix, hop);
    }
    check(&rib);
    assert_eq!(rib.nodes.len(), room, "freed nodes were not used again");
}

#[test]
fn trie_keeps_its_invariants_through_random_changes() {
    for seed in 0..8 {
        churn::<u8>(seed);
        churn::<u16>(seed);
        churn::<u32>(seed);
        churn::<u64>(seed);
        churn::<u128>(seed);
    }
}

#[test]
fn routes_out_of_order_make_the_same_table() {
    let mut dice = Dice(fastrand::Rng::with_seed(7));
    let routes: Vec<_> = (0..2000).map(|n| (dice.prefix::<u32>(), Hop(n))).collect();
    let mut by_hand = Rib::new();
    for &(prefix, hop) in &routes {
        by_hand.insert(prefix, hop);
    }
    let at_once = Rib::from_sorted(routes);
    check(&at_once);
    assert!(at_once.iter().eq(&by_hand));
    assert_eq!(at_once.dirty_len(), 0);
}

#[test]
fn later_of_two_routes_with_one_prefix_is_kept() {
    let routes = [(Prefix::ALL, Hop(1)), (Prefix::ALL, Hop(2)), (Prefix::truncate(1u8, 8), Hop(3))];
    let rib = Rib::from_sorted(routes);
    check(&rib);
    assert!(rib.iter().eq([routes[1], routes[2]]));
}

#[test]
fn nodes_have_the_documented_sizes() {
    assert_eq!(size_of::<Node<u32>>(), 20);
    assert_eq!(size_of::<Node<u64>>(), 24);
    assert_eq!(size_of::<Node<u128>>(), 32);
}
