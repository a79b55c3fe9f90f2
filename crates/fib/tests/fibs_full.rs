//! Full tables that differ in 5 % of their routes, in one memory: their size together, against each
//! on its own and against `SAIL_M`, and the answers of each.

#![expect(clippy::print_stdout, reason = "the figures, with --nocapture")]

#[path = "tables/real.rs"]
mod real;
mod tables;

use std::time::Instant;

use fingerpost_fib::engine::sail::SailMBuilder;
use fingerpost_fib::{Choice, Fib, FibsUpdater, Hop, Prefix, Rib};
use tables::Dice;

const FIBS: usize = 8;

type Routes = Vec<(Prefix<u32>, Hop)>;

/// Makes a table with another hop for one route in 20: scattered, or in rows of 500, as by a
/// neighbor's preference for some region.
fn variant(base: &Routes, fib: usize, row: usize) -> Rib<u32> {
    let mut dice = Dice::new(fib as u64);
    let mut routes = base.clone();
    if fib > 0 {
        for _ in 0..base.len() / 20 / row {
            let at = dice.below(base.len() - row);
            for (_, hop) in &mut routes[at..at + row] {
                *hop = Hop(1 + (hop.0 + 1 + dice.below(140) as u32) % 148);
            }
        }
    }
    Rib::from_sorted(routes)
}

#[test]
fn eight_full_tables_that_differ_in_a_twentieth() {
    let loaded = real::load(real::V4);
    let base = real::routes(&loaded.v4, Some(148));
    for (how, row, most) in [("scattered", 1, 6.5), ("in rows of 500", 500, 3.0)] {
        let ribs: Vec<Rib<u32>> = (0..FIBS).map(|fib| variant(&base, fib, row)).collect();
        let mut updater = FibsUpdater::new().unwrap();
        let mut sizes = Vec::new();
        for rib in &ribs {
            let start = Instant::now();
            updater.add(rib.clone());
            updater.commit().unwrap();
            sizes.push(updater.fibs().footprint());
            println!(
                "{how}: {} tables: {} bytes, the last in {:.2} s",
                sizes.len(),
                updater.fibs().footprint(),
                start.elapsed().as_secs_f64()
            );
        }
        for part in updater.fibs().parts() {
            println!("  {:<14} {:>9} bytes", part.name, part.bytes);
        }
        let each = |name| {
            let choice = Choice::parse::<u32>(name).unwrap();
            let fibs = ribs.iter().map(|rib| Fib::build(rib, choice, 1).unwrap().footprint());
            fibs.sum::<usize>()
        };
        let (extended, direct) = (each("D16X4R"), each("D18R"));
        let mut sail = SailMBuilder::<u32, u16>::new();
        for rib in &ribs {
            let fib = sail.add_fib();
            sail.load(fib, rib.iter()).unwrap();
        }
        let all = sizes[FIBS - 1];
        let ratio = all as f64 / sizes[0] as f64;
        println!(
            "{how}: {ratio:.2} times one; by themselves {extended} bytes as D16X4R, {direct} as \
             D18R; SAIL_M {}",
            sail.freeze().footprint()
        );
        assert!(ratio < most, "{ratio:.2} times one table");
        let mut dice = Dice::new(3);
        let random: Vec<u32> = (0..200_000).map(|_| dice.addr()).collect();
        for (fib, rib) in ribs.iter().enumerate() {
            let within = rib.iter().map(|(prefix, _)| prefix.addr() | (prefix.last() & 0x55));
            let addrs: Vec<u32> = within.chain(random.iter().copied()).collect();
            let mut out = vec![Hop::NONE; addrs.len()];
            updater.fibs().lookup_batch(fib, &addrs, &mut out);
            for (&addr, &hop) in addrs.iter().zip(&out) {
                let right = rib.longest(addr).map_or(Hop::NONE, |(_, hop)| hop);
                assert_eq!(hop, right, "table {fib}, {addr:x}");
            }
        }
        // Single changes, each published, and the end is right and no larger.
        let start = Instant::now();
        for i in 0..5000 {
            let (prefix, hop) = base[dice.below(base.len())];
            updater.announce(i % FIBS, prefix, Hop(1 + hop.0 % 148));
            updater.commit().unwrap();
        }
        println!("{how}: {:.1} µs a change", start.elapsed().as_secs_f64() * 1e6 / 5000.0);
        for fib in 0..FIBS {
            let rib = updater.rib(fib).unwrap();
            for &addr in &random[..20_000] {
                let right = rib.longest(addr).map_or(Hop::NONE, |(_, hop)| hop);
                assert_eq!(updater.fibs().lookup(fib, addr), right, "table {fib}, {addr:x}");
            }
        }
        for fib in 1..FIBS {
            updater.remove(fib);
        }
        updater.commit().unwrap();
        let left = updater.fibs().footprint();
        println!("{how}: one left: {left} bytes");
        assert!(left < sizes[0] + sizes[0] / 8, "{left} bytes where {} were", sizes[0]);
    }
}
