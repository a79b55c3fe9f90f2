//! The worst case: filters that answer "perhaps" for every key.
//!
//! Real filters are wrong one time in 2^13, and small ones hardly ever, so that the
//! other tests seldom come to the pivots.

use alloc::vec::Vec;
use core::ops::ControlFlow;

use super::{Sail6Large, Sail6LargeBuilder};
use crate::engine::overlap::Walk;
use crate::engine::{Engine, RouteBuilder};
use crate::{FamilyLayout, Hop, Prefix, Rib};

/// Routes that nest, as one grows inside another.
fn routes<A: FamilyLayout>(rng: &mut fastrand::Rng, count: usize) -> Rib<A> {
    let mut rib: Rib<A> = Rib::new();
    let mut at = A::MIN;
    for _ in 0..count {
        let wide = u128::from(rng.u64(..)) << 64 | u128::from(rng.u64(..));
        // Some first bits of the last one, the rest random.
        let shared = rng.u64(..) as u32 % (A::BITS + 1);
        let fresh = A::from_u128(wide);
        at = A::from_u128(
            at.first(shared).to_u128() | (fresh.to_u128() ^ fresh.first(shared).to_u128()),
        );
        let len = rng.u64(..) as u32 % (A::BITS + 1);
        rib.insert(Prefix::truncate(at, len), Hop(rng.u64(..) as u32 % 500));
    }
    rib
}

/// Looks up step by step; returns the number of steps too.
fn steps<A: FamilyLayout>(engine: &Sail6Large<A, u16>, addr: A) -> (Hop, usize) {
    let mut at = engine.begin(addr);
    for count in 1.. {
        match engine.step(at) {
            ControlFlow::Continue(next) => at = next,
            ControlFlow::Break(hop) => return (hop, count),
        }
    }
    unreachable!("a lookup ends")
}

fn worst<A: FamilyLayout>(rib: &Rib<A>) -> Sail6Large<A, u16> {
    let mut builder = Sail6LargeBuilder::<A, u16>::default();
    builder.fill(rib).unwrap();
    let mut engine = builder.freeze();
    engine.lengths.deny_nothing();
    engine
}

#[test]
fn answers_are_right_with_filters_that_deny_nothing() {
    let mut rng = fastrand::Rng::with_seed(1);
    for round in 0..60 {
        let rib: Rib<u16> = routes(&mut rng, 1 + round * 4);
        let engine = worst(&rib);
        for addr in 0..=u16::MAX {
            let longest = rib.longest(addr).map_or(Hop::NONE, |(_, hop)| hop);
            assert_eq!(
                engine.lookup(addr),
                longest,
                "{addr:x}: {:?}",
                rib.iter().collect::<Vec<_>>()
            );
        }
    }
    for round in 0..30 {
        let rib: Rib<u128> = routes(&mut rng, 1 + round * 8);
        let engine = worst(&rib);
        let ends = rib.iter().flat_map(|(prefix, _)| [prefix.addr(), prefix.last()]);
        for addr in ends.flat_map(|end| [end.wrapping_sub(1), end, end.wrapping_add(1)]) {
            let longest = rib.longest(addr).map_or(Hop::NONE, |(_, hop)| hop);
            let mut trace = Vec::new();
            assert_eq!(steps(&engine, addr).0, longest, "{addr:x}");
            assert_eq!(engine.trace(addr, &mut trace), longest, "{addr:x}");
        }
    }
}

#[test]
fn worst_case_up_to_64_bits_takes_thirteen_probes() {
    let mut rib: Rib<u128> = Rib::new();
    let mut rng = fastrand::Rng::with_seed(7);
    // A route of every length, far away from one another, so that every table is
    // there; and a chain of nested ones, each on another's way.
    for len in 0..=64 {
        rib.insert(Prefix::truncate(u128::from(rng.u64(..)) << 64, len), Hop(1));
        rib.insert(Prefix::truncate(0x2001_0db8 << 96, len), Hop(100 + len));
    }
    // Matches that end everywhere along the chain.
    let base = 0x2001_0db8_0000_0000_u128 << 64;
    let ends: Vec<u128> = (24..64).map(|bit| base ^ 1 << (127 - bit)).collect();
    let mut most = 0;
    for keep in 0..64 {
        // Without the longer ones of the chain, whose tables stay.
        let mut shorter = rib.clone();
        for len in keep + 1..=64 {
            shorter.remove(Prefix::truncate(base, len));
        }
        let engine = worst(&shorter);
        for &addr in ends.iter().chain([&base]) {
            let longest = shorter.longest(addr).map_or(Hop::NONE, |(_, hop)| hop);
            let (hop, count) = steps(&engine, addr);
            assert_eq!(hop, longest);
            most = most.max(count);
        }
    }
    assert_eq!(most, 13);
}
