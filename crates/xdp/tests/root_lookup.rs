//! The lookup in the kernel: the same answers as the table of this process and as the routes themselves, on
//! random addresses and all borders of routes, while routes change and the table outgrows its arrays.
//!
//! Needs root (`CAP_BPF`), hence the feature `root-tests`.

use std::thread::sleep;
use std::time::{Duration, Instant};

use fib::{Addr, Choice, Family, Hop, Prefix, Rib, Updater};
use fingerpost_xdp::probe::Keys;
use fingerpost_xdp::{BpfArrays, KernelTable, Probe, Publication, TableError};

/// A prefix among few upper bits, so that changes meet.
fn prefix<A: Addr>(rng: &mut fastrand::Rng) -> Prefix<A> {
    let upper = 0x0a00 + rng.u128(..3);
    let addr = (upper << 112 | rng.u128(..) >> 16) >> (128 - A::BITS);
    Prefix::truncate(A::from_u128(addr), rng.u32(8..=A::BITS))
}

/// The first and last address of each route, and those beside it.
fn borders<A: Addr>(rib: &Rib<A>) -> Vec<A> {
    let beside = |addr: A, by: i8| {
        let moved = addr.to_u128().wrapping_add_signed(by.into());
        A::from_u128(moved & (u128::MAX >> (128 - A::BITS)))
    };
    rib.iter()
        .flat_map(|(prefix, _)| [(prefix.addr(), -1), (prefix.last(), 1)])
        .flat_map(|(addr, by)| [addr, beside(addr, by)])
        .collect()
}

/// Compares the kernel's answers with the routes and with this process's slow twin.
fn agree<A: Family>(probe: &Probe, table: &KernelTable<A>, rib: &Rib<A>, addrs: &[A]) {
    let mut answers = vec![Hop::NONE; addrs.len()];
    probe.run(addrs, &mut answers).unwrap();
    for (&addr, &answer) in addrs.iter().zip(&answers) {
        let want = rib.longest(addr).map_or(Hop::NONE, |(_, hop)| hop);
        let twin = table.arrays().lookup(addr);
        assert_eq!((answer, twin), (want, want), "{addr:?}");
    }
}

fn follows_changes<A: Family>(choice: Choice, seed: u64) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let files = BpfArrays::new("chunks");
    let mut updater = Updater::<A>::new_in(Rib::new(), choice, 1, files.clone()).unwrap();
    let mut table = KernelTable::new(&files, updater.fib()).unwrap();
    let load = |table: &KernelTable<A>| {
        Probe::new(Keys::new::<A>(1 << 15).unwrap(), table.arrays()).unwrap()
    };
    let mut probe = load(&table);
    let mut routes = Vec::new();
    let mut replaced = 0;
    for round in 0..200 {
        for _ in 0..rng.usize(1..60) {
            if round < 150 && (routes.len() < 50 || rng.u8(..) > 60) {
                let prefix = prefix::<A>(&mut rng);
                // Leaves of one, two and four bytes.
                let most = *rng.choice(&[200, 60_000, 1 << 30]).unwrap();
                updater.announce(prefix, Hop(rng.u32(1..most)));
                routes.push(prefix);
            } else if !routes.is_empty() {
                let nth = rng.usize(..routes.len());
                updater.withdraw(routes.swap_remove(nth));
            }
        }
        assert!(updater.commit().unwrap().published);
        if table.publish(updater.fib()).unwrap() == Publication::Replaced {
            replaced += 1;
            probe = load(&table);
        }
        let mut addrs = borders(updater.rib());
        addrs.extend((0..500).map(|_| prefix::<A>(&mut rng).last()));
        addrs.extend((0..500).map(|_| A::from_u128(rng.u128(..) >> (128 - A::BITS))));
        agree(&probe, &table, updater.rib(), &addrs);
    }
    assert!(replaced > 1, "the table has outgrown its arrays");
}

#[test]
fn kernel_follows_changes_of_ipv4() {
    follows_changes::<u32>(Choice::Flat, 1);
}

#[test]
fn kernel_follows_changes_of_ipv4_by_rank() {
    follows_changes::<u32>(Choice::Rank, 3);
}

#[test]
fn kernel_follows_changes_of_ipv6() {
    follows_changes::<u128>(Choice::Flat, 2);
}

/// A program that was loaded before the table moved answers from the table of that time.
#[test]
fn former_arrays_keep_their_table() {
    let mut rng = fastrand::Rng::with_seed(4);
    let files = BpfArrays::new("chunks");
    let mut updater = Updater::<u32>::new_in(Rib::new(), Choice::Flat, 1, files.clone()).unwrap();
    for _ in 0..100 {
        updater.announce(prefix(&mut rng), Hop(rng.u32(1..200)));
    }
    updater.commit().unwrap();
    let mut table = KernelTable::new(&files, updater.fib()).unwrap();
    let probe = Probe::new(Keys::new::<u32>(1 << 12).unwrap(), table.arrays()).unwrap();
    let addrs: Vec<u32> = (0..4096).map(|_| prefix(&mut rng).last()).collect();
    let (mut before, mut after) = (vec![Hop::NONE; 4096], vec![Hop::NONE; 4096]);
    probe.run(&addrs, &mut before).unwrap();
    let mut moved = false;
    for _ in 0..200 {
        for _ in 0..100 {
            updater.announce(prefix(&mut rng), Hop(rng.u32(1..200)));
        }
        updater.commit().unwrap();
        moved |= table.publish(updater.fib()).unwrap() == Publication::Replaced;
        if !moved {
            probe.run(&addrs, &mut before).unwrap();
        }
    }
    assert!(moved);
    probe.run(&addrs, &mut after).unwrap();
    assert_eq!(before, after);
}

#[test]
fn table_of_another_engine_or_in_memory_is_refused() {
    let files = BpfArrays::new("chunks");
    let new = |choice| Updater::<u32>::new(Rib::new(), choice, 1).unwrap();
    let refused = KernelTable::new(&files, new(Choice::Poptrie(16)).fib()).unwrap_err();
    assert!(
        matches!(&refused, TableError::Engine(name) if name.starts_with("poptrie")),
        "{refused}"
    );
    let refused = KernelTable::new(&files, new(Choice::Flat).fib()).unwrap_err();
    assert!(matches!(refused, TableError::NoArray(None)), "{refused}");
}

#[test]
fn grace_period_begins_and_ends() {
    let files = BpfArrays::new("chunks");
    let updater = Updater::<u32>::new_in(Rib::new(), Choice::Flat, 1, files.clone()).unwrap();
    let table = KernelTable::new(&files, updater.fib()).unwrap();
    assert!(table.has_passed());
    let mut waits = 0;
    for _ in 0..20 {
        table.begin_grace_period();
        let begin = Instant::now();
        while !table.has_passed() {
            waits += 1;
            assert!(begin.elapsed() < Duration::from_secs(10), "it does not end");
            sleep(Duration::from_millis(1));
        }
    }
    assert!(waits > 0, "it has passed at once");
}
