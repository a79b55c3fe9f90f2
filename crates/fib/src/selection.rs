//! The automatic choice: selects an engine for this table on this machine, and states why.
//!
//! ```text
//!   Rib ──sweep──► Census: runs ──► each candidate's bytes, estimated
//!                                        │ the fastest that fits the budget,
//!   Caches ──► half of L2, or the        │ or the smallest if none does
//!              budget of Choice::Within ─┴──► Choice, and the reason
//! ```
//!
//! The cache level of the table decides. A table beyond the second-level cache loses more by
//! waiting for memory than it gains by shorter searches; so the selection takes the fastest
//! engine that fits this cache beside the rest of a datapath, and the smallest if none fits. The
//! sizes are computed from the runs of the table itself: the number of routes predicts little,
//! because equal hops merge and equal chunks are stored once.
//!
//! All but small IPv6 tables use rank6 where the CPU has vectors for it: on the table of July
//! 2026 it is smaller than the DXR of as many bits, its lookups of addresses drawn by prefix
//! took 0.57 of DXR's time in the same run, and an update a twelfth. Without vectors DXR is
//! faster.
//!
//! IPv4 tables likewise use rank: on the tables of 2023 and 2026 it answers more than twice as
//! many lookups as a DXR of about as many bytes.
//!
//! These figures were measured with AVX-512. With NEON the order is unmeasured and assumed to be
//! the same: both engines take fewer bytes and fewer loads there than the DXR that would be
//! selected instead, and fewer instructions for addresses drawn by prefix
//! (`docs/decisions/0020-neon.md`).
//!
//! To add an engine to the choice: a line in [`candidates`], in the order of speed, and an arm in
//! [`Census::bytes`], which estimates its size.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::arch::search::in_vectors;
use crate::engine::dxr::{self, Shape};
use crate::engine::{halves, rank, rank6};
use crate::runs::{Run, sweep_block};
use crate::{Caches, Choice, FamilyLayout, Hop, Prefix, Rib};

/// Up to this many routes a first stage of 2^16 entries would be most of the table.
const SMALL: usize = 4096;

/// Lists the engines from which the choice is made, the fastest first if all were in cache.
fn candidates<A: FamilyLayout>(routes: usize) -> Vec<Choice> {
    let shapes: &[(u32, u32)] = match A::BITS {
        ..16 => &[(2, 2)],
        16 => &[(4, 4)],
        32 if routes < SMALL => &[(12, 6)],
        32 => &[(20, 0), (18, 0), (16, 4)],
        _ if routes < SMALL => &[(12, 8)],
        _ => &[(16, 8)],
    };
    let dxr = |&(direct, extension): &(u32, u32)| {
        if A::BITS > 64 {
            Shape::new::<A::Upper>(direct, extension).ok().map(Choice::Halves)
        } else {
            Shape::new::<A>(direct, extension).ok().map(Choice::Dxr)
        }
    };
    let mut all: Vec<Choice> = shapes.iter().filter_map(dxr).collect();
    if A::BITS >= 32 && A::BITS != 64 && routes >= SMALL {
        let rank = if A::BITS == 32 { Choice::Rank } else { Choice::Rank6 };
        // Without vectors it is still the smallest.
        all.insert(if in_vectors() { 0 } else { all.len() }, rank);
    }
    all
}

/// Input of the estimates: the whole table's runs.
struct Census<A: FamilyLayout>(Vec<Run<A>>);

impl<A: FamilyLayout> Census<A> {
    fn of(rib: &Rib<A>) -> Self {
        let mut runs = Vec::new();
        sweep_block(rib, Prefix::ALL, &mut runs);
        Self(runs)
    }

    /// Estimates the bytes of the table in an engine.
    fn bytes(&self, choice: Choice) -> usize {
        match choice {
            Choice::Dxr(shape) => dxr::estimate::bytes(shape, &self.0),
            Choice::Halves(shape) => halves::bytes(shape, &self.0),
            // Laying these out takes no longer than an estimate.
            Choice::Rank => rank::bytes(&self.0).unwrap_or(usize::MAX),
            Choice::Rank6 => rank6::bytes(&self.0).unwrap_or(usize::MAX),
            _ => unreachable!("each candidate has an estimate"),
        }
    }
}

/// The estimated size of a table in an engine, computed without building it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Estimate {
    /// The engine.
    pub choice: Choice,
    /// The bytes that lookups could touch, estimated.
    pub bytes: usize,
}

impl Choice {
    /// Estimates the bytes of `rib` in each engine that [`Choice::Auto`] chooses from, the
    /// fastest first if all of them were in cache.
    ///
    /// # Examples
    ///
    /// ```
    /// use fingerpost_fib::{Choice, Hop, Rib};
    /// let mut rib: Rib<u32> = Rib::new();
    /// rib.insert("192.0.2.0/24".parse()?, Hop(1));
    /// let estimates = Choice::estimates(&rib);
    /// assert!(estimates.iter().any(|estimate| estimate.bytes < 16 << 10));
    /// # Ok::<(), fingerpost_fib::BadPrefix>(())
    /// ```
    ///
    /// # Complexity
    ///
    /// O(routes + first stages), about as long as a build.
    pub fn estimates<A: FamilyLayout>(rib: &Rib<A>) -> Vec<Estimate> {
        let census = Census::of(rib);
        let estimate = |choice| Estimate { choice, bytes: census.bytes(choice) };
        candidates::<A>(rib.len()).into_iter().map(estimate).collect()
    }
}

/// Replaces [`Choice::Auto`] and [`Choice::Within`] by an engine for `rib`, and returns the
/// reason.
pub(crate) fn select_engine<A: FamilyLayout>(choice: Choice, rib: &Rib<A>) -> (Choice, String) {
    let caches = Caches::of_this_machine();
    let budget = match choice {
        Choice::Auto => Budget { bytes: caches.second / 2, is_explicit: false },
        Choice::Within(bytes) => Budget { bytes, is_explicit: true },
        _ => return (choice, "named by the caller".to_string()),
    };
    let (chosen, how) = pick(&Choice::estimates(rib), budget);
    let hops = rib.iter().map(|(_, hop)| hop).max().unwrap_or(Hop::NONE).0;
    (chosen, format!("{} routes, hops up to {hops}: {how}", rib.len()))
}

/// The cache that a table may fill.
#[derive(Clone, Copy, Debug)]
struct Budget {
    bytes: usize,
    /// The caller set the budget.
    is_explicit: bool,
}

/// Takes the first engine that fits. If none fits, takes the smallest where the caller set the
/// budget; otherwise the first that is at most a quarter larger than the smallest, since a little
/// more waiting for memory costs less than the difference between two engines.
fn pick(estimates: &[Estimate], budget: Budget) -> (Choice, String) {
    let fits = estimates.iter().find(|estimate| estimate.bytes <= budget.bytes);
    let least = estimates.iter().map(|estimate| estimate.bytes).min().unwrap_or(0);
    let most = if budget.is_explicit { least } else { least.saturating_add(least / 4) };
    let small = estimates.iter().find(|estimate| estimate.bytes <= most);
    let Some(found) = fits.or(small) else {
        return (Choice::Linear, "no other engine supports this address family".to_string());
    };
    let kib = |bytes: usize| bytes.div_ceil(1024);
    let room = if budget.is_explicit {
        format!("the budget of {} KiB", kib(budget.bytes))
    } else {
        format!("half of a second-level cache of {} KiB", kib(budget.bytes * 2))
    };
    let how = match (fits, estimates.len()) {
        (Some(_), 1) => format!("fits {room}"),
        (Some(_), _) => format!("the fastest that fits {room}"),
        (None, 1) => format!("exceeds {room}, but no engine is smaller"),
        (None, _) if found.bytes == least => format!("the smallest, though it exceeds {room}"),
        (None, _) => {
            format!("about the smallest and faster than that, though it exceeds {room}")
        }
    };
    (found.choice, format!("about {} KiB, {how}", kib(found.bytes)))
}

#[cfg(test)]
mod tests {
    use super::{Budget, Estimate, pick};
    use crate::Choice;
    use alloc::string::String;
    use alloc::vec::Vec;

    fn estimates(sizes: &[(&str, usize)]) -> Vec<Estimate> {
        let estimate = |&(name, bytes): &(&str, usize)| Estimate {
            choice: Choice::parse::<u32>(name).unwrap(),
            bytes,
        };
        sizes.iter().map(estimate).collect()
    }

    fn name(sizes: &[(&str, usize)], bytes: usize) -> String {
        pick(&estimates(sizes), Budget { bytes, is_explicit: false }).0.name::<u32>()
    }

    #[test]
    fn fastest_that_fits_is_selected_or_else_the_smallest() {
        let sizes = [("D20R", 5000), ("D18R", 1939), ("D16X4R", 2111)];
        assert_eq!(name(&sizes, 6000), "D20R");
        assert_eq!(name(&sizes, 5000), "D20R");
        assert_eq!(name(&sizes, 4000), "D18R");
        assert_eq!(name(&sizes, 1000), "D18R");
        assert_eq!(name(&[("D18R", 1500), ("D16X4R", 800)], 1000), "D16X4R");
        assert_eq!(name(&[("rank", 2100), ("D18R", 1939)], 1000), "rank");
        assert_eq!(name(&[("rank", 2500), ("D18R", 1939)], 1000), "D18R");
        let explicit = Budget { bytes: 1000, is_explicit: true };
        let (choice, why) = pick(&estimates(&[("rank", 2100), ("D18R", 1939)]), explicit);
        assert_eq!(choice.name::<u32>(), "D18R", "{why}");
        assert_eq!(name(&[], 1000), "linear");
    }
}
