//! The real tables, from `FINGERPOST_DATA`.

#![allow(unreachable_pub, dead_code, reason = "several test programs each use some of it")]

use std::path::PathBuf;

use feed::{Label, Options};
use fingerpost_fib::{Addr, Hop, Prefix};

pub const V4: &str = "ipv4-20260730-routeviews-origin.dat.gz";
pub const V6: &str = "ipv6-20260730-routeviews-origin.dat.gz";
pub const LINX6: &str = "ipv6-20170112-linx-nexthop.txt.gz";
pub const BART: &str = "ipv4+ipv6-2023-bart-prefixes.txt.gz";
pub const PCH: &str = "ipv4-20151023-pch-nexthop.txt.gz";

/// Returns the path of one of the data files.
///
/// # Panics
///
/// If it is not there: these tests do not skip.
pub fn path(name: &str) -> PathBuf {
    let default = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data");
    let folder = std::env::var_os("FINGERPOST_DATA").map_or(default.into(), PathBuf::from);
    let path = folder.join(name);
    assert!(path.exists(), "{} is missing: set FINGERPOST_DATA to the data", path.display());
    path
}

pub fn load(name: &str) -> feed::RoutingTable {
    feed::load(path(name), &Options::default()).unwrap()
}

/// Gives each label a hop: all their own, or one of `hops`.
pub fn routes<A: Addr>(table: &[(Prefix<A>, Label)], hops: Option<u32>) -> Vec<(Prefix<A>, Hop)> {
    let hop = |label: Label| match hops {
        None => Hop(1 + label.0),
        Some(hops) => Hop(1 + (label.0.wrapping_mul(0x9e37_79b9) >> 7) % hops),
    };
    table.iter().map(|&(prefix, label)| (prefix, hop(label))).collect()
}

/// Gives each prefix one of `hops` by itself: for tables without next hops.
pub fn by_prefix(table: &[(Prefix<u32>, Label)], hops: u32) -> Vec<(Prefix<u32>, Hop)> {
    let mix = |prefix: Prefix<u32>| (prefix.addr() ^ prefix.len()).wrapping_mul(0x9e37_79b9) >> 9;
    table.iter().map(|&(prefix, _)| (prefix, Hop(1 + mix(prefix) % hops))).collect()
}
