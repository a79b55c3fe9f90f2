//! The automatic choice: an engine for this table on this machine, and why.
//!
//! What decides is where the table will live. A DXR of few direct bits is the
//! smallest; more direct bits save steps of the search but take room, and whatever
//! leaves the second-level cache loses more by waiting than it gains by steps. So
//! the largest shape is taken that still fits the cache beside the rest of a
//! datapath, and the smallest if none does:
//!
//! ```text
//!   routes × bytes a route (by the width of the hops) + first stage  ≤  half of L2 ?
//! ```
//!
//! Of IPv6, all but small tables are laid out by rank6 where the CPU has vectors for it: on
//! the table of July 2026 it is smaller than the DXR of as many bits, its lookups of
//! addresses drawn by prefix took 0.57 of that one's time in the same run, and an update a
//! twelfth. Its bytes a route are a start of two and a hop, where the runs of most routes
//! merge; the rest is the first stages. Without vectors DXR is the quicker.
//!
//! Bytes a route are those of the tables under `bench/record/`, rounded up: two with
//! short ranges (hops below 256), three with medium ones, eight with wide ones; in
//! IPv6 twice as many, its starts being longer.

use alloc::format;
use alloc::string::{String, ToString};

use crate::arch::search::in_vectors;
use crate::engine::dxr::Shape;
use crate::{Caches, Choice, Family, Hop, Rib};

/// Up to this many routes a first stage of 2^16 entries would be most of the table.
const SMALL: usize = 4096;

/// What the first stages of rank6 take, about.
const RANK6: usize = 200 << 10;

/// What an automatic choice goes by.
#[derive(Clone, Copy, Debug)]
struct Facts {
    routes: usize,
    /// The highest hop index.
    hops: u32,
    caches: Caches,
    /// Whether ranks are found by vectors.
    vectors: bool,
}

/// Replaces [`Choice::Auto`] by an engine for `rib`, and says why it is that.
pub(crate) fn settle<A: Family>(choice: Choice, rib: &Rib<A>) -> (Choice, String) {
    if choice != Choice::Auto {
        return (choice, "it was asked for".to_string());
    }
    let hops = rib.iter().map(|(_, hop)| hop).max().unwrap_or(Hop::NONE).0;
    let caches = Caches::of_this_machine();
    pick::<A>(Facts { routes: rib.len(), hops, caches, vectors: in_vectors() })
}

fn pick<A: Family>(facts: Facts) -> (Choice, String) {
    let Facts { routes, hops, caches, vectors } = facts;
    let width = match hops {
        ..256 => 2,
        256..=0xffff => 3,
        _ => 8,
    };
    let kib = |bytes: usize| bytes.div_ceil(1024);
    if A::BITS > 64 && routes >= SMALL && vectors {
        let why = format!(
            "{routes} routes, hops up to {hops}: about {} KiB, the smallest and the quickest for IPv6; \
             the second-level cache has {} KiB",
            kib(RANK6 + routes * (width + 1)),
            kib(caches.second),
        );
        return (Choice::Rank6, why);
    }
    let family = if A::BITS > 32 { 2 } else { 1 };
    let ranges = routes * width * family;
    // (direct, extension, bytes of the first stages), the quickest first. With an
    // extension, equal blocks are shared: half of what it could take.
    let shapes: &[(u32, u32, usize)] = match A::BITS {
        ..16 => &[(2, 2, 0)],
        16 => &[(4, 4, 0)],
        32 if routes < SMALL => &[(12, 6, 16 << 10)],
        32 => &[(20, 0, 4 << 20), (18, 0, 1 << 20), (16, 4, 512 << 10)],
        _ if routes < SMALL => &[(12, 8, 16 << 10)],
        _ => &[(16, 8, 512 << 10)],
    };
    let room = caches.second / 2;
    let fits = |&&(_, _, first): &&(u32, u32, usize)| first + ranges <= room;
    let found = shapes.iter().find(fits);
    let &(direct, extension, first) = found.unwrap_or(&shapes[shapes.len() - 1]);
    let shape = if A::BITS > 64 {
        Shape::new::<A::Upper>(direct, extension).map(Choice::Halves)
    } else {
        Shape::new::<A>(direct, extension).map(Choice::Dxr)
    };
    let chosen = shape.unwrap_or(Choice::Linear);
    let why = format!(
        "{routes} routes, hops up to {hops}: about {} KiB; {} half of a second-level cache of {} KiB",
        kib(first + ranges),
        if found.is_some() { "the quickest that fits" } else { "the smallest, though beyond" },
        kib(caches.second),
    );
    (chosen, why)
}

#[cfg(test)]
mod tests {
    use super::{Facts, pick};
    use crate::{Caches, Family};

    fn facts(routes: usize, hops: u32, second: usize, vectors: bool) -> Facts {
        Facts { routes, hops, caches: Caches { second, ..Caches::MODEST }, vectors }
    }

    fn name<A: Family>(routes: usize, hops: u32, second: usize) -> alloc::string::String {
        pick::<A>(facts(routes, hops, second, true)).0.name::<A>()
    }

    #[test]
    fn the_quickest_shape_that_fits_the_cache_is_taken() {
        assert_eq!(name::<u32>(100, 4, 1 << 20), "D12X6R");
        assert_eq!(name::<u32>(1_100_000, 148, 2 << 20), "D16X4R");
        assert_eq!(name::<u32>(20_000, 148, 4 << 20), "D18R");
        assert_eq!(name::<u32>(20_000, 148, 16 << 20), "D20R");
        assert_eq!(name::<u32>(1_100_000, 148, 16 << 20), "D20R");
        // Wide hops take the room that a larger shape would have had.
        assert_eq!(name::<u32>(1_100_000, 80_000, 16 << 20), "D16X4R");
        assert_eq!(name::<u128>(100, 4, 1 << 20), "D12X8R/64");
        assert_eq!(name::<u128>(259_000, 148, 2 << 20), "rank6");
        let plain = pick::<u128>(facts(259_000, 148, 2 << 20, false)).0;
        assert_eq!(plain.name::<u128>(), "D16X8R/64");
    }

    #[test]
    fn why_names_what_decided() {
        let facts = Facts { caches: Caches::MODEST, ..facts(1_100_000, 148, 0, true) };
        let (_, why) = pick::<u32>(facts);
        assert!(why.contains("1100000 routes") && why.contains("1024 KiB"), "{why}");
    }
}
