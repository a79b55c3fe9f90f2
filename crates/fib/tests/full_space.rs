//! All 2^32 addresses of IPv4 in every engine, against a flat painted array: 8 GiB and
//! some minutes an engine, so that it runs only in `cargo xtask exhaustive`.
//!
//! The routes are written to the array from the shortest to the longest, each over the addresses it
//! covers. The final value of an address is its hop; no search, tree or sweep is involved.
//!
//! `FINGERPOST_ENGINES` and `FINGERPOST_TABLES` name some of the engines and of the tables
//! (`2026,2023,2015`).

#![expect(clippy::print_stdout, reason = "`cargo xtask exhaustive` shows how far it is")]

#[path = "tables/real.rs"]
mod real;
mod tables;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use fingerpost_fib::{Choice, Fib, Hop, Prefix, Rib};

/// The number of addresses in a batch.
const BATCH: usize = 1 << 16;

/// Paints the routes, shortest first.
fn paint(routes: &[(Prefix<u32>, Hop)]) -> Vec<u16> {
    let mut canvas = vec![0u16; 1 << 32];
    let mut shortest_first = routes.to_vec();
    shortest_first.sort_by_key(|(prefix, _)| prefix.len());
    for (prefix, hop) in shortest_first {
        let color = u16::try_from(hop.0).unwrap();
        canvas[prefix.addr() as usize..=prefix.last() as usize].fill(color);
    }
    canvas
}

/// Counts the addresses at which the table differs from the canvas, and prints the first.
fn wrong(fib: &Fib<u32>, canvas: &[u16]) -> u64 {
    let (next, wrong) = (AtomicU64::new(0), AtomicU64::new(0));
    let work = || {
        let (mut addrs, mut out) = (vec![0u32; BATCH], vec![Hop::NONE; BATCH]);
        loop {
            let base = next.fetch_add(BATCH as u64, Ordering::Relaxed);
            if base >= 1 << 32 {
                return;
            }
            if base % (1 << 30) == 0 {
                println!("{}: from {}.0.0.0 on", fib.name(), base >> 24);
            }
            // An odd stride visits every address of the slice once, and mixes
            // chunks within a batch as traffic does.
            for (i, addr) in addrs.iter_mut().enumerate() {
                *addr = base as u32 | (i as u32).wrapping_mul(40_503) & 0xffff;
            }
            fib.lookup_batch(&addrs, &mut out);
            let differs = |(addr, hop): &(&u32, &Hop)| u32::from(canvas[**addr as usize]) != hop.0;
            let here = addrs.iter().zip(&out).filter(differs).count() as u64;
            if here > 0 && wrong.fetch_add(here, Ordering::Relaxed) == 0 {
                let (addr, hop) = addrs.iter().zip(&out).find(differs).unwrap();
                let want = canvas[*addr as usize];
                println!("{}: {addr:08x} gives {hop:?}, not Hop({want})", fib.name());
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    wrong.into_inner()
}

/// Compares every engine over one table.
fn every_address(table: &str, routes: &[(Prefix<u32>, Hop)]) {
    let canvas = paint(routes);
    let rib = Rib::from_sorted(routes.iter().copied());
    let mut choices = tables::engines::<u32>();
    // The oracle would compare every route with every address.
    choices.retain(|choice| *choice != Choice::Linear);
    let mut bad = Vec::new();
    for (index, choice) in choices.iter().enumerate() {
        let begin = Instant::now();
        let name = choice.name::<u32>();
        let fib = Fib::build(&rib, *choice, 2).unwrap_or_else(|full| panic!("{name}: {full}"));
        let wrong = wrong(&fib, &canvas);
        println!(
            "{}/{} {name} over {table}: {wrong} of 2^32 addresses differ, {:.0} s",
            index + 1,
            choices.len(),
            begin.elapsed().as_secs_f64()
        );
        if wrong > 0 {
            bad.push(name);
        }
    }
    assert!(bad.is_empty(), "{table}: these differ from the painted array: {bad:?}");
}

/// One test and not three: each canvas takes 8 GiB.
#[test]
fn engines_answer_every_address_of_the_full_tables() {
    let wanted = std::env::var("FINGERPOST_TABLES").unwrap_or_else(|_| "2026,2023,2015".to_owned());
    for year in wanted.split(',') {
        let load = |name| real::load(name).v4;
        let routes = match year {
            "2026" => real::routes(&load(real::V4), Some(148)),
            "2023" => real::by_prefix(&load(real::BART), 148),
            "2015" => real::routes(&load(real::PCH), None),
            other => panic!("FINGERPOST_TABLES: {other} is none of 2026, 2023, 2015"),
        };
        every_address(&format!("the table of {year}"), &routes);
    }
}
