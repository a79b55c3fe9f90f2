//! The full Internet tables of the data, in the kernel, beside their routes.
#![allow(unreachable_pub, dead_code, reason = "several test programs each use some of it")]
#![expect(clippy::print_stdout, reason = "`cargo xtask exhaustive` shows how far it is")]

use std::path::PathBuf;
use std::time::{Duration, Instant};

use feed::Label;
use fib::{Addr, Choice, Family, Hop, Prefix, Rib, Updater};
use fingerpost_xdp::probe::Keys;
use fingerpost_xdp::{BpfArrays, KernelTable, Probe};

pub const V4: &str = "ipv4-20260730-routeviews-origin.dat.gz";

/// The random addresses of a table: 2^24, or 10^9 of `cargo xtask exhaustive`.
const RANDOM: usize = if cfg!(feature = "exhaustive") { 1_000_000_000 } else { 1 << 24 };

/// The addresses of one run.
pub const SLICE: usize = 1 << 20;

pub fn path(name: &str) -> PathBuf {
    let default = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data");
    let folder = std::env::var_os("FINGERPOST_DATA").map_or(default.into(), PathBuf::from);
    let path = folder.join(name);
    assert!(path.exists(), "{} is missing: set FINGERPOST_DATA to the data", path.display());
    path
}

pub fn hop(label: Label) -> Hop {
    Hop(1 + (label.0.wrapping_mul(0x9e37_79b9) >> 7) % 300)
}

pub fn rib<A: Addr>(routes: &[(Prefix<A>, Label)]) -> Rib<A> {
    Rib::from_sorted(routes.iter().map(|&(prefix, label)| (prefix, hop(label))))
}

/// A table in the kernel, and a program that looks up in it.
pub struct InKernel<A: Family> {
    pub updater: Updater<A>,
    pub table: KernelTable<A>,
    pub probe: Probe,
}

impl<A: Family> InKernel<A> {
    pub fn new(rib: Rib<A>, choice: Choice) -> Self {
        let files = BpfArrays::new("chunks");
        let updater = Updater::new_in(rib, choice, 2, files.clone()).unwrap();
        let table = KernelTable::new(&files, updater.fib()).unwrap();
        let keys = Keys::new::<A>(SLICE as u32).unwrap();
        let begin = Instant::now();
        let probe = Probe::new(keys, table.arrays()).unwrap();
        assert!(
            begin.elapsed() < Duration::from_secs(2),
            "the verifier took {:?}",
            begin.elapsed()
        );
        Self { updater, table, probe }
    }

    /// Compares the kernel's answers to all of `addrs` with the routes, of which this process's table
    /// is a stand-in where `exact` is false.
    fn agree(&self, addrs: &[A], exact: bool) {
        let (mut answers, mut want) = (vec![Hop::NONE; SLICE], vec![Hop::NONE; SLICE]);
        for addrs in addrs.chunks(SLICE) {
            let (answers, want) = (&mut answers[..addrs.len()], &mut want[..addrs.len()]);
            self.probe.run(addrs, answers).unwrap();
            if exact {
                let longest = |&addr| self.updater.rib().longest(addr);
                let hops = addrs.iter().map(|addr| longest(addr).map_or(Hop::NONE, |(_, hop)| hop));
                want.iter_mut().zip(hops).for_each(|(want, hop)| *want = hop);
            } else {
                self.updater.fib().lookup_batch(addrs, want);
            }
            if let Some(at) = answers.iter().zip(&*want).position(|(is, want)| is != want) {
                panic!("{:?} gives {:?}, not {:?}", addrs[at], answers[at], want[at]);
            }
        }
    }

    pub fn agree_everywhere(&self) {
        let rib = self.updater.rib();
        let mut addrs: Vec<A> = Vec::with_capacity(4 * rib.len());
        let within = u128::MAX >> (128 - A::BITS);
        for (prefix, _) in rib {
            let (first, last) = (prefix.addr().to_u128(), prefix.last().to_u128());
            let around = [first.wrapping_sub(1), first, last, last.wrapping_add(1)];
            addrs.extend(around.map(|addr| A::from_u128(addr & within)));
        }
        self.agree(&addrs, true);
        let mut rng = fastrand::Rng::with_seed(24);
        let routes: Vec<Prefix<A>> = rib.iter().map(|(prefix, _)| prefix).collect();
        for _ in 0..RANDOM.div_ceil(SLICE) {
            addrs.clear();
            for i in 0..SLICE {
                let random = rng.u128(..) >> (128 - A::BITS);
                addrs.push(if i % 2 == 0 {
                    A::from_u128(random)
                } else {
                    // Within a route.
                    let prefix = routes[rng.usize(..routes.len())];
                    let host = within.checked_shr(prefix.len()).unwrap_or(0);
                    A::from_u128(prefix.addr().to_u128() | random & host)
                });
            }
            self.agree(&addrs, cfg!(feature = "exhaustive"));
        }
        println!("{} routes, {} borders, {RANDOM} addresses agree", rib.len(), 4 * rib.len());
    }
}
