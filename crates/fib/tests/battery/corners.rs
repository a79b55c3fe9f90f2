//! Corner cases of tables, for every engine.
//!
//! Random tables hardly ever have no route, or two, or 129 nested ones, or as many next hops as
//! routes; and random changes hardly ever remove a parent before its children. Each of these is built here by hand, in every family, as a table of its
//! own and as a sequence of changes, and is compared with the oracle: at every address
//! of the small universes, at every border and at some random addresses of the others.

use std::collections::BTreeMap;

use fingerpost_fib::engine::linear::Linear;
use fingerpost_fib::{Addr, Choice, Engine, Family, Fib, Full, Hop, Prefix, Rib, Updater};

use crate::tables::{Dice, borders, engines};

type Table<A> = BTreeMap<Prefix<A>, Hop>;

/// The addresses at which a table is compared: all, if there are few.
fn probes<A: Family>(table: &Table<A>) -> Vec<A> {
    if A::BITS == 8 {
        return (0..1u128 << A::BITS).map(A::from_u128).collect();
    }
    let mut dice = Dice::new(5);
    let mut addrs = borders(table);
    addrs.extend([A::MIN, A::MAX]);
    addrs.extend((0..100).map(|_| dice.addr::<A>()));
    addrs
}

/// Compares all ways of looking up in `fib` with the expected answers.
fn agree<A: Family>(fib: &Fib<A>, addrs: &[A], expected: &[Hop], about: &str) {
    let name = fib.name();
    let mut out = vec![Hop(9); addrs.len()];
    fib.lookup_batch(addrs, &mut out);
    for ((&addr, &hop), &batched) in addrs.iter().zip(expected).zip(&out) {
        assert_eq!(batched, hop, "{name}: a batch, {addr:x?}, {about}");
        assert_eq!(fib.lookup(addr), hop, "{name}: {addr:x?}, {about}");
    }
    for (&addr, &hop) in addrs.iter().zip(expected).step_by(11) {
        assert_eq!(fib.trace(addr).0, hop, "{name}: a trace, {addr:x?}, {about}");
    }
}

fn oracle<A: Family>(table: &Table<A>, addrs: &[A]) -> Vec<Hop> {
    let oracle = Linear::new(table.iter().map(|(&prefix, &hop)| (prefix, hop)));
    addrs.iter().map(|&addr| oracle.lookup(addr)).collect()
}

fn rib<A: Addr>(table: &Table<A>) -> Rib<A> {
    Rib::from_sorted(table.iter().map(|(&prefix, &hop)| (prefix, hop)))
}

/// Builds a table with every engine.
fn build<A: Family>(table: &Table<A>, about: &str) {
    let addrs = probes(table);
    let expected = oracle(table, &addrs);
    for choice in engines::<A>() {
        let fib = Fib::build(&rib(table), choice, 1)
            .unwrap_or_else(|full| panic!("{choice:?}, {about}: {full}"));
        agree(&fib, &addrs, &expected, about);
    }
}

/// Three addresses: the ends of the space, and one of mixed bits.
fn places<A: Addr>() -> [A; 3] {
    [A::MIN, A::MAX, A::from_u128(0x9a5c_3d17_e286_4bf0_9a5c_3d17_e286_4bf1)]
}

/// One route: every length, and some of them at the ends of the space too.
fn one_route<A: Family>() {
    build::<A>(&Table::new(), "no route");
    let [low, high, within] = places::<A>();
    let few = (0..=A::BITS).step_by(A::BITS as usize / 4);
    let ends = few.flat_map(|len| [Prefix::truncate(low, len), Prefix::truncate(high, len)]);
    for prefix in (0..=A::BITS).map(|len| Prefix::truncate(within, len)).chain(ends) {
        build(&Table::from([(prefix, Hop(1 + prefix.len()))]), &format!("only {prefix}"));
    }
}

/// Two routes: each within, beside or far from the other, and with one hop for both.
fn two_routes<A: Family>() {
    let [_, top, place] = places::<A>();
    let step = A::BITS / 4;
    for outer in (0..A::BITS).step_by(step as usize) {
        for inner in [outer + 1, outer + step + 1, A::BITS] {
            let inner = inner.min(A::BITS);
            let within = (Prefix::truncate(place, outer), Prefix::truncate(place, inner));
            let apart = (Prefix::truncate(top, inner), Prefix::truncate(place, inner));
            for ((a, b), hop) in [(within, Hop(2)), (within, Hop(1)), (apart, Hop(1))] {
                build(&Table::from([(a, Hop(1)), (b, hop)]), &format!("{a} and {b} to {hop:?}"));
            }
        }
    }
}

/// Every length at once, each within the one before: 33 or 129 deep.
fn nested<A: Family>() {
    for place in places::<A>() {
        let nest = |hop: fn(u32) -> u32| -> Table<A> {
            (0..=A::BITS).map(|len| (Prefix::truncate(place, len), Hop(hop(len)))).collect()
        };
        build(&nest(|len| 1 + len), "every length, each its hop");
        build(&nest(|len| 1 + len % 2), "every length, two hops by turns");
        build(&nest(|len| len % 2), "every length, every other to nowhere");
        build(&nest(|_| 1), "every length, one hop");
    }
}

/// Builds tables of host routes only, in a row and scattered, with different and equal hops.
fn hosts<A: Family>() {
    let mut dice = Dice::new(8);
    let mut table = Table::<A>::new();
    let [_, top, place] = places::<A>();
    for at in 0..300u128 {
        for addr in [
            A::from_u128(place.to_u128().wrapping_add(at)),
            A::from_u128(top.to_u128() - at % (1 << 7)),
            dice.addr(),
        ] {
            table.insert(Prefix::truncate(addr, A::BITS), Hop(1 + (at % 5) as u32));
        }
    }
    build(&table, "only addresses");
    let alike: Table<A> = table.keys().map(|&prefix| (prefix, Hop(1))).collect();
    build(&alike, "only addresses, one hop");
    let mut dice = Dice::new(9);
    let alike: Table<A> =
        dice.table::<A>(200, 1).into_keys().map(|prefix| (prefix, Hop(7))).collect();
    build(&alike, "one hop");
}

/// Builds routes of one length to 65,000 next hops, which two bytes hold, and to more, which an
/// engine may refuse but must not confuse.
fn many_hops<A: Family>(len: u32) {
    let routes = 65_000.min(1usize << len);
    for (first, strict) in [(1, true), (65_530, false)] {
        // An odd factor scatters the indexes and keeps them apart.
        let table: Table<A> = (0..routes)
            .map(|index| {
                let block = index.wrapping_mul(0x9e37_79b1) & ((1 << len) - 1);
                (Prefix::truncate(A::from_bits(block, 0, len), len), Hop(first + index as u32))
            })
            .collect();
        assert_eq!(table.len(), routes);
        let rib = rib(&table);
        let mut addrs = borders(&table);
        addrs.truncate(6000);
        addrs.extend(table.keys().map(|prefix| prefix.last()));
        let longest = |&addr: &A| rib.longest(addr).map_or(Hop::NONE, |(_, hop)| hop);
        let expected: Vec<Hop> = addrs.iter().map(longest).collect();
        for choice in engines::<A>().into_iter().filter(|&choice| choice != Choice::Linear) {
            match Fib::build(&rib, choice, 1) {
                Ok(fib) => agree(&fib, &addrs, &expected, &format!("hops from {first} on")),
                Err(full) => {
                    assert!(!strict, "{}: {full}", choice.name::<A>());
                    assert_eq!(full.what, Full::HOPS, "{}", choice.name::<A>());
                }
            }
        }
    }
}

/// One step of a sequence of changes: a route to a hop, or none.
type Change<A> = (Prefix<A>, Option<Hop>);

/// Applies changes with every engine, a commit after each, and again with all in one commit.
fn play<A: Family>(changes: &[Change<A>], about: &str) {
    let mut table = Table::new();
    let mut exams = Vec::new();
    let all: Table<A> = changes.iter().map(|&(prefix, _)| (prefix, Hop(1))).collect();
    let addrs = probes(&all);
    for &(prefix, hop) in changes {
        let before = match hop {
            Some(hop) => table.insert(prefix, hop),
            None => table.remove(&prefix),
        };
        exams.push((before, oracle(&table, &addrs)));
    }
    let change = |updater: &mut Updater<A>, (prefix, hop): Change<A>| match hop {
        Some(hop) => updater.announce(prefix, hop),
        None => updater.withdraw(prefix),
    };
    for choice in engines::<A>() {
        let mut updater = Updater::new(Rib::new(), choice, 1).unwrap();
        let mut reader = updater.reader();
        for (&step, (before, expected)) in changes.iter().zip(&exams) {
            assert_eq!(change(&mut updater, step), *before, "{about}: {step:?}");
            assert!(updater.commit().unwrap().published);
            agree(reader.current(), &addrs, expected, &format!("{about}, at {step:?}"));
        }
        let mut updater = Updater::new(Rib::new(), choice, 1).unwrap();
        for &step in changes {
            change(&mut updater, step);
        }
        updater.commit().unwrap();
        let (_, last) = exams.last().unwrap();
        agree(updater.fib(), &addrs, last, &format!("{about}, in one commit"));
    }
}

/// Applies changes in orders that random changes hardly ever take.
fn orders<A: Family>() {
    let place = places::<A>()[2];
    // A length in each quarter of the address, and its ends.
    let (q, bits) = (A::BITS / 4, A::BITS);
    let lens = [1, q, q + 1, 2 * q, 2 * q + 1, 3 * q, 3 * q + 1, bits - 1, bits];
    let nest = lens.map(|len| Prefix::truncate(place, len));
    let add = |index: usize| (nest[index], Some(Hop(1 + index as u32)));
    let gone = |index: usize| (nest[index], None);
    let down = || 0..nest.len();

    let parents_first = down().map(add).chain(down().map(gone));
    play(&parents_first.collect::<Vec<_>>(), "each parent goes before its child");
    let children_first = down().rev().map(add).chain(down().rev().map(gone));
    play(&children_first.collect::<Vec<_>>(), "each child comes and goes before its parent");
    let turned = down().map(add).chain(down().rev().map(gone));
    play(&turned.collect::<Vec<_>>(), "each child goes before its parent");

    let default = |hop: Option<u32>| (Prefix::ALL, hop.map(Hop));
    let around = down().map(add).chain([default(Some(99)), default(None)]).chain(down().map(gone));
    play(&around.collect::<Vec<_>>(), "a default comes last and goes first");
    let first = [default(Some(99))].into_iter().chain(down().map(add)).chain([default(None)]);
    play(&first.collect::<Vec<_>>(), "a default comes first and goes first");

    let twice = down().flat_map(|index| [add(index), add(index)]).collect::<Vec<_>>();
    play(&twice, "each route twice");
    let turns = down()
        .flat_map(|index| [(nest[index], Some(Hop(50))), (nest[index], Some(Hop(60))), add(index)]);
    play(&turns.collect::<Vec<_>>(), "each route to three hops in turn");
    let absent = down().flat_map(|index| [gone(index), add(index), gone(index), gone(index)]);
    play(&absent.collect::<Vec<_>>(), "withdrawals of what is not there");
    let nowhere = down().map(add).chain(down().map(|index| (nest[index], Some(Hop::NONE))));
    play(&nowhere.collect::<Vec<_>>(), "each route ends up leading nowhere");

    // Both halves of a block: they merge into one run, and part again.
    let halves: Vec<Change<A>> = [q, 2 * q, 3 * q, bits - 1]
        .into_iter()
        .flat_map(|len| {
            let low = Prefix::truncate(place.first(len), len + 1);
            let high = Prefix::truncate(place.last(len), len + 1);
            let one = Some(Hop(1));
            [(low, one), (high, one), (low, Some(Hop(2))), (high, Some(Hop(2))), (low, None)]
        })
        .collect();
    play(&halves, "two halves agree and differ");
}

#[test]
fn corner_tables_of_eight_bits_are_right() {
    one_route::<u8>();
    two_routes::<u8>();
    nested::<u8>();
    hosts::<u8>();
    many_hops::<u8>(8);
}

#[test]
fn corner_orders_of_eight_bits_are_right() {
    orders::<u8>();
}

#[test]
fn corner_tables_of_sixteen_bits_are_right() {
    one_route::<u16>();
    two_routes::<u16>();
    nested::<u16>();
    hosts::<u16>();
}

#[test]
fn corner_orders_of_sixteen_bits_are_right() {
    orders::<u16>();
}

#[test]
fn many_hops_of_sixteen_bits_are_right() {
    many_hops::<u16>(16);
}

#[test]
fn corner_tables_of_ipv4_are_right() {
    one_route::<u32>();
}

#[test]
fn pairs_nests_and_hosts_of_ipv4_are_right() {
    two_routes::<u32>();
    nested::<u32>();
    hosts::<u32>();
}

#[test]
fn corner_orders_of_ipv4_are_right() {
    orders::<u32>();
}

#[test]
fn many_hops_of_ipv4_are_right() {
    many_hops::<u32>(24);
}

#[test]
fn corner_tables_of_ipv6_are_right() {
    one_route::<u128>();
}

#[test]
fn pairs_nests_and_hosts_of_ipv6_are_right() {
    two_routes::<u128>();
    nested::<u128>();
    hosts::<u128>();
}

#[test]
fn corner_orders_of_ipv6_are_right() {
    orders::<u128>();
}

#[test]
fn many_hops_of_ipv6_are_right() {
    many_hops::<u128>(32);
}

#[test]
fn the_upper_half_of_ipv6() {
    nested::<u64>();
    hosts::<u64>();
    orders::<u64>();
}
