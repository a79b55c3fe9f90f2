//! `SAIL_M` with 64 FIBs, each of the size of the full Internet table of 2026: its memory, and the
//! answers of every FIB. It takes minutes and gigabytes, and runs only in `cargo xtask exhaustive`.

#![expect(clippy::print_stdout, reason = "the figures, with --nocapture")]

#[path = "tables/real.rs"]
mod real;
mod tables;

use std::time::Instant;

use fingerpost_fib::engine::sail::{SailM, SailMBuilder};
use fingerpost_fib::{Hop, Prefix, Rib};
use tables::Dice;

const FIBS: usize = 64;
/// The number of random addresses looked up in each FIB, and as many within its routes.
const ADDRS: usize = 200_000;

type Routes = Vec<(Prefix<u32>, Hop)>;

/// Makes the table of another router: one route in 64 is missing, one in 8 has another hop, and
/// 200 routes exist in no other FIB, half of them long.
fn variant(base: &Routes, fib: usize) -> Rib<u32> {
    let mut dice = Dice::new(fib as u64);
    let mut routes = Vec::with_capacity(base.len());
    for &(prefix, hop) in base {
        match dice.below(64) {
            0 => {}
            1..9 => routes.push((prefix, Hop(1 + dice.below(148) as u32))),
            _ => routes.push((prefix, hop)),
        }
    }
    let mut rib = Rib::from_sorted(routes);
    for i in 0..200 {
        let len = if i % 2 == 0 { 25 + dice.below(8) } else { 9 + dice.below(16) };
        let near = base[dice.below(base.len())].0.addr();
        let addr = near ^ dice.addr::<u32>() >> 12;
        rib.insert(Prefix::truncate(addr, len as u32), Hop(200 + fib as u32));
    }
    rib.mark_clean();
    rib
}

/// Compares a FIB with its routes: at random addresses, and within them.
fn check(table: &SailM<u32, u16>, fib: usize, rib: &Rib<u32>) {
    let mut dice = Dice::new(1_000 + fib as u64);
    let mut addrs: Vec<u32> = (0..ADDRS).map(|_| dice.addr()).collect();
    let every = rib.len() / ADDRS + 1;
    for (i, (prefix, _)) in rib.iter().enumerate() {
        if prefix.len() > 24 || i % every == 0 {
            addrs.push(prefix.addr() | dice.addr::<u32>() & (prefix.addr() ^ prefix.last()));
        }
    }
    let mut out = vec![Hop(u32::MAX); addrs.len()];
    table.lookup_batch(fib, &addrs, &mut out);
    for (&addr, &hop) in addrs.iter().zip(&out) {
        let expected = rib.longest(addr).map_or(Hop::NONE, |(_, hop)| hop);
        assert_eq!(hop, expected, "FIB {fib}, {addr:x}");
    }
}

#[test]
fn sixty_four_full_fibs_answer_as_their_routes() {
    let loaded = real::load(real::V4);
    let base = real::routes(&loaded.v4, Some(148));
    let mut builder = SailMBuilder::<u32, u16>::new();
    let mut seconds = 0.0;
    for fib in 0..FIBS {
        let rib = variant(&base, fib);
        let start = Instant::now();
        assert_eq!(builder.add_fib(), fib);
        builder.load(fib, rib.iter()).unwrap();
        seconds += start.elapsed().as_secs_f64();
        if [1, 2, 8, 64].contains(&(fib + 1)) {
            let table = builder.freeze();
            println!(
                "{} FIBs: {} bytes on chip, {} in all, {} of the builder's own, built in {seconds:.1} s",
                fib + 1,
                table.on_chip_bytes(),
                table.footprint(),
                builder.overhead(),
            );
            assert!(table.on_chip_bytes() <= ((1 << 16) * 17 + (1 << 24)) / 8, "table 3.2");
        }
    }
    let table = builder.freeze();
    for fib in 0..FIBS {
        check(&table, fib, &variant(&base, fib));
    }
    // One FIB is added and one removed while all others are used, and a few routes change;
    // tables frozen before do not change.
    let written = builder.written();
    assert!(builder.remove_fib(7));
    assert_eq!(builder.add_fib(), 7);
    let mut other = variant(&base, 999);
    builder.load(7, other.iter()).unwrap();
    println!("one FIB exchanged: {} words written", builder.written() - written);
    let (mut dice, written) = (Dice::new(5), builder.written());
    let start = Instant::now();
    for i in 0..20_000u32 {
        let (prefix, _) = base[dice.below(base.len())];
        if i % 5 == 0 {
            assert_eq!(builder.withdraw(7, prefix), other.remove(prefix).is_some());
        } else {
            other.insert(prefix, Hop(1 + i % 200));
            builder.announce(7, prefix, Hop(1 + i % 200)).unwrap();
        }
    }
    println!(
        "{:.2} words and {:.1} µs a change",
        (builder.written() - written) as f64 / 20_000.0,
        start.elapsed().as_secs_f64() * 1e6 / 20_000.0,
    );
    check(&table, 7, &variant(&base, 7));
    let now = builder.freeze();
    check(&now, 7, &other);
    for fib in [0, 6, 8, 63] {
        check(&now, fib, &variant(&base, fib));
    }
}
