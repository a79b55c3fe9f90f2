//! The trie's invariants after every change, in a family of 8 bits, of which all prefixes fit, and in
//! IPv6, whose paths are compressed.

use alloc::vec::Vec;

use fastrand::Rng;
use fib::{Family, Prefix};

use super::LpmMap;

fn check_changes<A: Family>(seed: u64, draw: impl Fn(&mut Rng) -> Prefix<A>) {
    let mut rng = Rng::with_seed(seed);
    let mut map: LpmMap<Prefix<A>, u32> = LpmMap::new();
    let mut model: Vec<(Prefix<A>, u32)> = Vec::new();
    for step in 0..4000 {
        let prefix = draw(&mut rng);
        let found = model.binary_search_by_key(&prefix, |(prefix, _)| *prefix);
        // It grows, shrinks to nearly nothing, and grows again.
        if rng.u32(..10) < if step % 2000 < 1200 { 8 } else { 1 } {
            let old = map.insert(prefix, step);
            match found {
                Ok(at) => assert_eq!(old, Some(core::mem::replace(&mut model[at].1, step))),
                Err(at) => {
                    assert_eq!(old, None);
                    model.insert(at, (prefix, step));
                }
            }
        } else {
            assert_eq!(map.remove(&prefix), found.ok().map(|at| model.remove(at).1));
        }
        map.trie.check();
        assert_eq!(map.len(), model.len());
        if step % 50 == 0 {
            assert!(map.iter().eq(model.iter().map(|(prefix, value)| (*prefix, value))));
        }
    }
    for (prefix, value) in model {
        assert_eq!(map.remove(&prefix), Some(value));
        map.trie.check();
    }
    assert!(map.is_empty());
    assert_eq!(map.trie.nodes().links[0].children, 0, "only the root is left");
}

#[test]
fn invariants_hold_after_every_change_of_small_prefixes() {
    check_changes::<u8>(1, |rng| Prefix::truncate(rng.u8(..), rng.u32(..=8)));
    check_changes::<u16>(2, |rng| Prefix::truncate(rng.u16(..), rng.u32(..=16)));
}

#[test]
fn invariants_hold_on_compressed_paths() {
    check_changes::<u32>(3, |rng| {
        Prefix::truncate(rng.u32(..4) << 30 | rng.u32(..4) << 11, rng.u32(..=32))
    });
    check_changes::<u128>(4, |rng| {
        let addr = rng.u128(..2) << 127 | rng.u128(..3) << 77 | rng.u128(..5);
        Prefix::truncate(addr, rng.u32(..=128))
    });
}
