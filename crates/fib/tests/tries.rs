//! The guarantees of the tries: one shape for any order of changes, memory that is given back, and
//! few words written.

mod tables;

use std::collections::BTreeMap;

use fingerpost_fib::{Addr, Choice, Family, Fib, Hop, Prefix, Rib, Updater};
use tables::{Dice, engines};

/// Routes below some common prefixes, so that they nest.
fn prefix<A: Addr>(dice: &mut Dice) -> Prefix<A> {
    let addr = dice.addr::<A>().to_u128() & !(3 << (A::BITS - 2));
    let len = A::BITS / 4 + dice.below(A::BITS as usize * 3 / 4 + 1) as u32;
    Prefix::truncate(A::from_u128(addr), len)
}

fn memory<A: Family>(choice: Choice, routes: usize) {
    let name = choice.name::<A>();
    let mut dice = Dice::new(5);
    let mut table: BTreeMap<Prefix<A>, Hop> = BTreeMap::new();
    while table.len() < routes {
        table.insert(prefix(&mut dice), Hop(1 + dice.below(9) as u32));
    }
    let rib = Rib::from_sorted(table.iter().map(|(&prefix, &hop)| (prefix, hop)));
    let mut updater = Updater::new(rib, choice, 1).unwrap();
    let mut live: Vec<Prefix<A>> = table.keys().copied().collect();
    // Replaces the table several times, then withdraws most of it.
    for step in 0..routes * 6 {
        if step % 2 == 0 || step > routes * 5 {
            if live.len() > routes / 8 {
                updater.withdraw(live.swap_remove(dice.below(live.len())));
            }
        } else {
            let prefix = prefix(&mut dice);
            if updater.announce(prefix, Hop(1 + dice.below(9) as u32)).is_none() {
                live.push(prefix);
            }
        }
        if step % 64 == 0 {
            let commit = updater.commit().unwrap();
            assert!(commit.published && !commit.rebuilt);
        }
        if step % 4096 == 0 {
            compare(&updater, choice, &name);
        }
    }
    updater.commit().unwrap();
    compare(&updater, choice, &name);
    for prefix in live {
        updater.withdraw(prefix);
        updater.commit().unwrap();
    }
    let empty = Fib::build(&Rib::<A>::new(), choice, 1).unwrap();
    assert_eq!(updater.fib().footprint(), empty.footprint(), "{name}");
}

fn compare<A: Family>(updater: &Updater<A>, choice: Choice, name: &str) {
    let fresh = Fib::build(updater.rib(), choice, 1).unwrap().footprint();
    let now = updater.fib().footprint();
    // A commit behind at most, and a sixteenth of holes.
    assert!(now <= fresh + fresh / 10, "{name}: {now} bytes, {fresh} when rebuilt");
}

fn tries<A: Family>() -> Vec<Choice> {
    let ours = |choice: &Choice| {
        matches!(choice, Choice::Binary | Choice::Patricia | Choice::Multibit(_) | Choice::LcTrie)
    };
    engines::<A>().into_iter().filter(ours).collect()
}

#[test]
fn memory_returns_to_that_of_a_build() {
    for choice in tries::<u16>() {
        memory::<u16>(choice, 500);
    }
    for choice in tries::<u32>() {
        memory::<u32>(choice, 3_000);
    }
    for choice in tries::<u128>() {
        memory::<u128>(choice, 1_000);
    }
}
