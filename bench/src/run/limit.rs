//! The machine's limit: loads from random places, at each size from 32 KiB to 64 MiB.
//!
//! Measured once a round, on huge pages, on the core that lookups are measured on, by the
//! same clock: independent loads, the better of one by one and sixteen in a vector; and
//! dependent ones, each of which waits for the last. A footprint between two sizes is read
//! off a straight line between them on logarithmic scales.
//!
//! An engine's share of the limit is its rate over what the machine could do if a lookup
//! were nothing but its loads, each from anywhere in the footprint: `limit(bytes) / lines`,
//! with `lines` the cache lines that a lookup touches, counted on the twin that tells every
//! load. It is a yardstick and no bound: of a table's parts some are small and near, and on
//! streams with locality a share can pass 100 %.

use std::collections::BTreeSet;
use std::hint::black_box;

use fib::{Family, Fib, Loads};
use serde::Serialize;

use super::course::Course;
use crate::clock::{Clock, Summary, pin};
use crate::keys::Stream;

/// The sizes, as powers of two.
const SIZES: std::ops::RangeInclusive<u32> = 15..=26;
/// How many places are loaded from, independently and each after the other.
const PLACES: usize = 1 << 22;
const CHAINED: usize = 1 << 18;
/// Lookups of which the lines are counted.
const TRACED: usize = 20_000;
/// The bytes of a cache line.
const LINE: usize = 64;

/// What is loaded from.
pub(super) struct Limit {
    all: Vec<Loads>,
    places: Vec<u32>,
}

/// What was found for one size, once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    bytes: usize,
    /// Million loads a second.
    scalar: f64,
    lanes: f64,
    /// Nanoseconds a load.
    dependent: f64,
}

/// What was found for one size.
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
        // The first touches after others' tables are not what is asked for.
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

/// Sums rounds up to a curve.
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

/// Reads a figure off a curve at so many bytes; beyond its ends, the one there.
pub(super) fn at(curve: &[Point], bytes: usize, figure: fn(&Point) -> f64) -> f64 {
    let next = curve.partition_point(|point| point.bytes < bytes);
    match (next.checked_sub(1).map(|before| &curve[before]), curve.get(next)) {
        (Some(one), Some(two)) => {
            let ln = |value: f64| value.max(1e-9).ln();
            let way = (ln(bytes as f64) - ln(one.bytes as f64))
                / (ln(two.bytes as f64) - ln(one.bytes as f64));
            (ln(figure(one)) * (1.0 - way) + ln(figure(two)) * way).exp()
        }
        (Some(end), None) | (None, Some(end)) => figure(end),
        (None, None) => f64::NAN,
    }
}

/// What a lookup loads, on average.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Touched {
    #[serde(serialize_with = "crate::run::by_name")]
    pub(super) stream: Stream,
    pub(super) loads: f64,
    /// Different cache lines.
    pub(super) lines: f64,
}

/// Counts them on an engine's slow twin.
pub(super) fn touched<A: Family>(fib: &Fib<A>, course: &Course<A>) -> Touched {
    let keys = &course.keys[..course.keys.len().min(TRACED)];
    let (mut loads, mut lines) = (0, 0);
    for &key in keys {
        let (_, steps) = fib.trace(key);
        loads += steps.len();
        let places: BTreeSet<_> =
            steps.iter().map(|step| (step.part, step.index * step.bytes / LINE)).collect();
        lines += places.len();
    }
    let mean = |sum: usize| sum as f64 / keys.len() as f64;
    Touched { stream: course.stream, loads: mean(loads), lines: mean(lines) }
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
