//! All 2^32 addresses of IPv4, against a flat painted array: 8 GiB and a few
//! minutes, so it runs only when asked for (`cargo xtask exhaustive`).
//!
//! The array is painted with the routes from the shortest to the longest, each over
//! the addresses it covers. What colour an address has in the end is its hop; no
//! search, no tree, no sweep has a part in it.

#[path = "tables/real.rs"]
mod real;
mod tables;

use fingerpost_fib::{Choice, Fib, Hop, Rib};

#[test]
fn every_address_of_the_full_table() {
    let loaded = real::load(real::V4);
    let routes = real::routes(&loaded.v4, Some(148));
    let mut canvas = vec![0u16; 1 << 32];
    let mut shortest_first = routes.clone();
    shortest_first.sort_by_key(|(prefix, _)| prefix.len());
    for (prefix, hop) in shortest_first {
        canvas[prefix.addr() as usize..=prefix.last() as usize].fill(hop.0 as u16);
    }
    let rib = Rib::from_sorted(routes);
    for name in ["D16X4R", "D16R"] {
        let fib = Fib::build(&rib, Choice::parse::<u32>(name).unwrap(), 2).unwrap();
        let wrong: usize = std::thread::scope(|scope| {
            let halves = [0u64..1 << 31, 1 << 31..1 << 32];
            let work = |range: std::ops::Range<u64>| {
                let (mut addrs, mut out) = (vec![0u32; 1 << 16], vec![Hop::NONE; 1 << 16]);
                let mut wrong = 0;
                for base in range.step_by(1 << 16) {
                    // An odd stride visits every address of the slice once, and
                    // mixes chunks within a batch as traffic does.
                    for (i, addr) in addrs.iter_mut().enumerate() {
                        *addr = base as u32 | (i as u32).wrapping_mul(40_503) & 0xffff;
                    }
                    fib.lookup_batch(&addrs, &mut out);
                    let differs =
                        |(&addr, hop): (&u32, &Hop)| canvas[addr as usize] != hop.0 as u16;
                    wrong += addrs.iter().zip(&out).filter(|&pair| differs(pair)).count();
                }
                wrong
            };
            let threads = halves.map(|range| scope.spawn(move || work(range)));
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!(wrong, 0, "{name}: addresses that differ from the painted array");
    }
}
