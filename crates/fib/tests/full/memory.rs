//! Memory after many random updates, for every engine.
//!
//! The bytes that lookups may touch (the footprint) are within a tenth of a fresh
//! build's. The bytes on the heap of the whole [`Updater`] but for its routes (the
//! builder, the table that is read and the one that is idle) may be up to twice those
//! of one that is built from the routes that are left: a `Vec` that has grown has
//! up to as much room again, and there are journals. But the second half of the updates
//! adds to them no more than a tenth: nothing is leaked. Both allow for [`STEP`], by
//! which a small heap may jump; of a full table and a million updates it is nothing.

use allocation_counter::measure;
use fingerpost_fib::{Choice, Family, Hop, Prefix, Rib, Updater};

use crate::tables::Dice;
use crate::{EXHAUSTIVE, agree, all_borders, every, longest, real};

/// The number of random updates.
const UPDATES: usize = if EXHAUSTIVE { 1_000_000 } else { 40_000 };

/// A map that doubles, or a table that comes to be rounded up to a huge page.
const STEP: usize = 2 << 20;

/// Withdraws and announces `updates` times at random, always about as many routes as
/// there were; mostly prefixes of the table, now and then a new one beside one of them.
fn churn<A: Family>(
    updater: &mut Updater<A>,
    known: &[(Prefix<A>, Hop)],
    updates: usize,
    seed: u64,
) {
    let mut reader = updater.reader();
    let mut dice = Dice::new(seed);
    let mut strange: Vec<Prefix<A>> = Vec::new();
    for update in 1..=updates {
        let (prefix, hop) = known[dice.below(known.len())];
        match dice.below(10) {
            0..4 => _ = updater.withdraw(prefix),
            4..7 => _ = updater.announce(prefix, hop),
            7 => _ = updater.announce(prefix, Hop(1 + dice.below(200) as u32)),
            8 => {
                let len = (prefix.len() + dice.below(9) as u32).min(A::BITS);
                let new = Prefix::truncate(A::from_u128(prefix.last().to_u128()), len);
                updater.announce(new, hop);
                strange.push(new);
            }
            _ => {
                if let Some(prefix) = strange.pop() {
                    updater.withdraw(prefix);
                }
            }
        }
        if update % 500 == 0 || update == updates {
            updater.commit().unwrap();
            reader.current();
        }
    }
}

/// Commits twice without changing the routes, so that both tables are current.
fn commit_twice<A: Family>(updater: &mut Updater<A>) {
    let (prefix, hop) = updater.rib().iter().next().unwrap();
    for hop in [Hop(hop.0 + 1), hop] {
        updater.announce(prefix, hop);
        assert!(updater.commit().unwrap().published);
    }
}

/// Makes an updater and returns it with its bytes on the heap, but for its routes.
fn weigh<A: Family>(make: impl FnOnce() -> Updater<A>) -> (Updater<A>, usize) {
    let mut made = None;
    let held = measure(|| made = Some(make())).bytes_current;
    let updater = made.unwrap();
    let held = usize::try_from(held).expect("an updater takes memory");
    let routes = updater.rib().footprint();
    (updater, held - routes)
}

/// Describes the excess memory of one engine, if there is any.
fn excess_memory<A: Family>(known: &[(Prefix<A>, Hop)], choice: Choice) -> Option<String> {
    let name = choice.name::<A>();
    let begin = std::time::Instant::now();
    let rib = |routes: &[(Prefix<A>, Hop)]| Rib::from_sorted(routes.iter().copied());
    let (mut used, half) = weigh(|| {
        let mut updater = Updater::new(rib(known), choice, 1).unwrap();
        churn(&mut updater, known, UPDATES / 2, 11);
        commit_twice(&mut updater);
        updater
    });
    let routes = used.rib().footprint() as i64;
    let grown = measure(|| {
        churn(&mut used, known, UPDATES / 2, 12);
        commit_twice(&mut used);
    });
    let grown = grown.bytes_current - (used.rib().footprint() as i64 - routes);
    let heap = (half as i64 + grown) as usize;
    let left: Vec<_> = used.rib().iter().collect();
    let (fresh, fresh_heap) = weigh(|| {
        let mut updater = Updater::new(rib(&left), choice, 1).unwrap();
        commit_twice(&mut updater);
        updater
    });
    let rib = rib(&left);
    let addrs = all_borders(&left);
    let mut out = vec![Hop::NONE; addrs.len()];
    agree(used.fib(), &addrs, &longest(&rib, &addrs), &mut out);
    let (bytes, fresh_bytes) = (used.fib().footprint(), fresh.fib().footprint());
    println!(
        "{name}: {UPDATES} updates, {} routes: table {bytes} and {fresh_bytes} fresh ({:.3}), \
         heap {half}, {heap} and {fresh_heap} ({:.3}), {:.1} s",
        left.len(),
        bytes as f64 / fresh_bytes as f64,
        heap as f64 / fresh_heap as f64,
        begin.elapsed().as_secs_f64(),
    );
    let returned = bytes * 10 <= fresh_bytes * 11 && heap <= fresh_heap * 2 + STEP;
    let good = returned && heap * 10 <= half * 11 + STEP * 10;
    (!good).then(|| {
        format!("{name}: table {bytes} ({fresh_bytes}), heap {half}, {heap} ({fresh_heap})")
    })
}

fn every_engine<A: Family>(known: &[(Prefix<A>, Hop)]) {
    let wrong: Vec<String> =
        every::<A>(&[]).into_iter().filter_map(|choice| excess_memory(known, choice)).collect();
    assert!(
        wrong.is_empty(),
        "after {UPDATES} updates these take more than a fresh build: {wrong:#?}"
    );
}

/// One route in `some` of a table.
fn sampled<A: Family>(routes: &[(Prefix<A>, Hop)], some: usize) -> Vec<(Prefix<A>, Hop)> {
    routes.iter().copied().step_by(some).collect()
}

#[test]
fn ipv4_tables_give_memory_back() {
    let routes = real::routes(&real::load(real::V4).v4, Some(148));
    let known = sampled(&routes, 20);
    every_engine(&known);
}

#[test]
fn ipv6_tables_give_memory_back() {
    let routes = real::routes(&real::load(real::V6).v6, Some(148));
    let known = sampled(&routes, 5);
    every_engine(&known);
}
