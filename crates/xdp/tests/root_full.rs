//! The full Internet tables in the kernel: all borders of routes and 2^24 random addresses, three tables at
//! once. `cargo xtask exhaustive` takes 10^9 addresses a table, and compares each with the routes.
//!
//! Needs root (`CAP_BPF`), hence the feature `root-tests`, and the data of `FINGERPOST_DATA`.

mod full;

use feed::Options;
use fib::Choice;
use full::{InKernel, V4, path, rib};

const V6: &str = "ipv6-20260730-routeviews-origin.dat.gz";

#[test]
fn three_full_tables_in_the_kernel_answer_as_the_routes() {
    let v4 = feed::load(path(V4), &Options::default()).unwrap().v4;
    let v6 = feed::load(path(V6), &Options::default()).unwrap().v6;
    // A table of a VRF: every third route.
    let vrf: Vec<_> = v4.iter().copied().step_by(3).collect();
    let v6 = InKernel::new(rib(&v6), Choice::Flat);
    let (v4, vrf) = (InKernel::new(rib(&v4), Choice::Flat), InKernel::new(rib(&vrf), Choice::Rank));
    assert!(v4.updater.rib().len() > 1_100_000 && v6.updater.rib().len() > 250_000);
    v4.agree_everywhere();
    vrf.agree_everywhere();
    v6.agree_everywhere();
}
