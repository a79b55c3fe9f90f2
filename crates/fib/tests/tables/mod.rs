//! Random tables for the batteries, seeded and small.
//!
//! Uniformly random routes hardly nest, and hardly ever share a border. So prefixes are drawn close
//! to one another: mostly inside, beside or around an existing one.
#![allow(unreachable_pub, dead_code, reason = "several test programs each use some of it")]

use std::collections::BTreeMap;

use fingerpost_fib::{Addr, Choice, Family, Hop, Prefix};

/// A xorshift generator. It is not `fastrand`, because the digests in `tests/image.rs` depend on its
/// sequence.
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn roll(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Draws a number below `end`.
    pub fn below(&mut self, end: usize) -> usize {
        (self.roll() >> 33) as usize % end.max(1)
    }

    pub fn addr<A: Addr>(&mut self) -> A {
        A::from_u128(u128::from(self.roll()) << 64 | u128::from(self.roll()))
    }

    /// Draws a prefix that is likely to overlap or touch one of `known`.
    pub fn prefix<A: Addr>(&mut self, known: &BTreeMap<Prefix<A>, Hop>) -> Prefix<A> {
        let near = known.keys().nth(self.below(known.len())).copied();
        let len = self.below(A::BITS as usize + 1) as u32;
        match (self.below(4), near) {
            (0, _) | (_, None) => Prefix::truncate(self.addr(), len),
            // Around or inside it, sharing its address.
            (1, Some(near)) => Prefix::truncate(near.addr(), len),
            // Beside it: the next block of the same length.
            (2, Some(near)) => {
                let next = near.last().succ().unwrap_or(A::MIN);
                Prefix::truncate(next, near.len())
            }
            // Deep inside it, at its far end.
            (_, Some(near)) => Prefix::truncate(near.last(), near.len().max(len)),
        }
    }

    /// Draws a table of at most `routes` routes with hops below `hops`.
    pub fn table<A: Addr>(&mut self, routes: usize, hops: usize) -> BTreeMap<Prefix<A>, Hop> {
        let mut table = BTreeMap::new();
        for _ in 0..routes {
            let prefix = self.prefix(&table);
            table.insert(prefix, Hop(self.below(hops) as u32));
        }
        table
    }
}

/// Lists the addresses at which an answer may change: the first and the last of every route, and
/// their neighbors.
pub fn borders<A: Addr>(table: &BTreeMap<Prefix<A>, Hop>) -> Vec<A> {
    let step = |addr: A, up: bool| {
        let moved =
            if up { addr.to_u128().wrapping_add(1) } else { addr.to_u128().wrapping_sub(1) };
        A::from_u128(moved)
    };
    let ends = table.keys().flat_map(|prefix| [prefix.addr(), prefix.last()]);
    ends.flat_map(|end| [step(end, false), end, step(end, true)]).collect()
}

/// Lists the engines to test: all that suit the family, or those that the environment names in
/// `FINGERPOST_ENGINES`.
pub fn engines<A: Family>() -> Vec<Choice> {
    let mut every = Choice::every::<A>();
    if let Ok(names) = std::env::var("FINGERPOST_ENGINES") {
        let known = [every_name::<u32>(), every_name::<u128>()].concat();
        for name in names.split(',') {
            assert!(
                known.contains(&name.to_lowercase()),
                "FINGERPOST_ENGINES={names}: there is no {name}"
            );
        }
        every.retain(|choice| {
            let name = choice.name::<A>();
            names.split(',').any(|wanted| wanted.eq_ignore_ascii_case(&name))
        });
    }
    every
}

/// Lists the names of a family's engines, in lower case.
fn every_name<A: Family>() -> Vec<String> {
    Choice::every::<A>().iter().map(|choice| choice.name::<A>().to_lowercase()).collect()
}
