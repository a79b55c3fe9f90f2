//! The machine's limit: loads from random places, at each size from 32 KiB to 64 MiB.
//!
//! The limit is measured once a round, on huge pages, on the core of the lookups, by the same
//! clock: independent loads, the better of one by one and sixteen in a vector; and dependent ones,
//! each of which waits for the last. The limit of a size between two measured ones is interpolated
//! linearly on logarithmic scales.
//!
//! An engine's share of the limit is its rate over the rate of a lookup that consists only of its
//! loads, each from anywhere in the footprint: `limit(bytes) / lines`, with `lines` the cache lines
//! that a lookup touches, counted by the traced lookup. The limit is a reference and no bound: some
//! parts of a table are small and stay in the caches, and on streams with locality a share can
//! exceed 100 %.

use std::collections::BTreeSet;
use std::hint::black_box;

use fib::{Family, Fib, Loads};
use serde::Serialize;

use crate::clock::{Clock, Summary, pin};
use crate::keys::Stream;

/// The sizes, as powers of two.
const SIZES: std::ops::RangeInclusive<u32> = 15..=26;
/// The numbers of independent loads, and of dependent ones.
const PLACES: usize = 1 << 22;
const CHAINED: usize = 1 << 18;
/// Lookups of which the lines are counted.
const TRACED: usize = 20_000;
/// The bytes of a cache line.
const LINE: usize = 64;

/// The arrays to load from, and the random places in them.
pub(super) struct Limit {
    all: Vec<Loads>,
    places: Vec<u32>,
}

/// One measurement of one size.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    bytes: usize,
    /// Million loads a second.
    scalar: f64,
    lanes: f64,
    /// Nanoseconds a load.
    dependent: f64,
}

/// The limit for one size.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Point {
    pub(super) bytes: usize,
    /// Million independent loads a second, the better of the two ways.
    pub(super) independent: Summary,
    /// Of those, one by one.
    pub(super) scalar: f64,
    /// Nanoseconds of a dependent one.
    pub(super) dependent: Summary,
}

impl Limit {
    pub(super) fn new() -> Self {
        let mut rng = fastrand::Rng::with_seed(7);
        Self {
            all: SIZES.map(Loads::new).collect(),
            places: (0..PLACES).map(|_| rng.u32(..)).collect(),
        }
    }

    /// Measures each size, in a thread bound to the first core.
    pub(super) fn measure(&self) -> Vec<Sample> {
        let work = || {
            pin(0);
            self.all.iter().map(|loads| self.sample(loads)).collect()
        };
        std::thread::scope(|scope| {
            let done = scope.spawn(work).join();
            done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    fn sample(&self, loads: &Loads) -> Sample {
        // Warms the caches: the first touches after other tables are not part of the limit.
        black_box(loads.scalar(&self.places[..loads.bytes() / 16]));
        let clock = Clock::start();
        black_box(loads.scalar(&self.places));
        let scalar = PLACES as f64 / clock.seconds() / 1e6;
        let clock = Clock::start();
        let lanes = loads.in_lanes(&self.places).map(black_box);
        let lanes = lanes.map_or(0.0, |_| PLACES as f64 / clock.seconds() / 1e6);
        let clock = Clock::start();
        black_box(loads.dependent(&self.places[..CHAINED]));
        let dependent = clock.seconds() / CHAINED as f64 * 1e9;
        Sample { bytes: loads.bytes(), scalar, lanes, dependent }
    }
}

/// Summarizes the rounds as a curve.
pub(super) fn curve(rounds: &[Vec<Sample>]) -> Vec<Point> {
    let sizes = rounds.first().map_or(0, Vec::len);
    let point = |at: usize| {
        let of = |figure: fn(&Sample) -> f64| -> Summary {
            Summary::of(&rounds.iter().map(|round| figure(&round[at])).collect::<Vec<_>>())
        };
        Point {
            bytes: rounds[0][at].bytes,
            independent: of(|sample| sample.scalar.max(sample.lanes)),
            scalar: of(|sample| sample.scalar).median,
            dependent: of(|sample| sample.dependent),
        }
    };
    (0..sizes).map(point).collect()
}

/// Interpolates a curve at `bytes`; beyond its ends, returns the value at the end.
pub(super) fn at(curve: &[Point], bytes: usize, figure: fn(&Point) -> f64) -> f64 {
    let next = curve.partition_point(|point| point.bytes < bytes);
    match (next.checked_sub(1).map(|before| &curve[before]), curve.get(next)) {
        (Some(one), Some(two)) => {
            let ln = |value: f64| value.max(1e-9).ln();
            let weight = (ln(bytes as f64) - ln(one.bytes as f64))
                / (ln(two.bytes as f64) - ln(one.bytes as f64));
            (ln(figure(one)) * (1.0 - weight) + ln(figure(two)) * weight).exp()
        }
        (Some(end), None) | (None, Some(end)) => figure(end),
        (None, None) => f64::NAN,
    }
}

/// The loads of a lookup, on average.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Touched {
    #[serde(serialize_with = "crate::run::by_name")]
    pub(super) stream: Stream,
    pub(super) loads: f64,
    /// Different cache lines.
    pub(super) lines: f64,
}

/// Counts the loads by an engine's traced lookup.
pub(super) fn touched<A: Family>(fib: &Fib<A>, stream: Stream, keys: &[A]) -> Touched {
    let keys = &keys[..keys.len().min(TRACED)];
    let (mut loads, mut lines) = (0, 0);
    for &key in keys {
        let (_, steps) = fib.trace(key);
        loads += steps.len();
        let places: BTreeSet<_> =
            steps.iter().map(|step| (step.part, step.index * step.bytes / LINE)).collect();
        lines += places.len();
    }
    let mean = |sum: usize| sum as f64 / keys.len() as f64;
    Touched { stream, loads: mean(loads), lines: mean(lines) }
}

#[cfg(test)]
mod tests {
    use super::{Point, Sample, at, curve};

    #[test]
    fn a_curve_is_read_between_its_points() {
        let sample = |bytes, lanes| Sample { bytes, scalar: 90.0, lanes, dependent: 5.0 };
        let rounds = [
            vec![sample(1 << 15, 800.0), sample(1 << 17, 50.0)],
            vec![sample(1 << 15, 800.0), sample(1 << 17, 60.0)],
        ];
        let curve = curve(&rounds);
        let independent: fn(&Point) -> f64 = |point| point.independent.median;
        assert_eq!(curve[1].independent.median, 90.0, "the better of the two ways");
        assert_eq!(at(&curve, 1 << 10, independent), 800.0);
        assert_eq!(at(&curve, 1 << 30, independent), 90.0);
        let middle = at(&curve, 1 << 16, independent);
        assert!((middle - (800.0f64 * 90.0).sqrt()).abs() < 0.01, "{middle}");
        assert!(at(&[], 1 << 16, independent).is_nan());
    }
}
