//! The CPU time of a thread, and the summary of several times.
//!
//! The machine is shared. The wall clock includes the time of other programs; the CPU time that the
//! kernel counts for a thread does not. Neither shows the effect of others on the caches: hence medians
//! and ratios.

use std::time::{Duration, Instant};

use nix::sched::{CpuSet, sched_setaffinity};
use nix::time::ClockId;
use nix::unistd::Pid;

/// A running measurement of one thread.
pub(super) struct Clock {
    wall: Instant,
    on_cpu: Option<Duration>,
}

impl Clock {
    pub(super) fn start() -> Self {
        Self { wall: Instant::now(), on_cpu: on_cpu() }
    }

    /// Returns the CPU time of this thread since the start in seconds, or the wall time if the kernel
    /// does not count CPU time.
    pub(super) fn seconds(&self) -> f64 {
        match (on_cpu(), self.on_cpu) {
            (Some(now), Some(then)) => (now - then).as_secs_f64(),
            _ => self.wall.elapsed().as_secs_f64(),
        }
    }
}

/// The kernel updates this clock at each read, unlike
/// `/proc/thread-self/schedstat`, which goes by the timer's ticks.
fn on_cpu() -> Option<Duration> {
    ClockId::CLOCK_THREAD_CPUTIME_ID.now().ok().map(Duration::from)
}

/// Binds the calling thread to one CPU; a machine that forbids it is measured
/// unpinned.
pub(super) fn pin(cpu: usize) {
    let mut set = CpuSet::new();
    if set.set(cpu).and_then(|()| sched_setaffinity(Pid::from_raw(0), &set)).is_err() {
        eprintln!("fingerpost-bench: cannot run on CPU {cpu} alone: measuring unpinned");
    }
}

/// Reads the clock of the first CPU as the kernel states it.
pub(super) fn hertz() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("cpu MHz"))?;
    Some(line.split(':').nth(1)?.trim().parse::<f64>().ok()? * 1e6)
}

/// Several measurements of one thing.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub(super) struct Summary {
    pub(super) median: f64,
    /// The median distance from the median.
    pub(super) mad: f64,
    pub(super) min: f64,
    pub(super) max: f64,
}

impl Summary {
    /// Summarizes measurements; needs at least one.
    pub(super) fn of(values: &[f64]) -> Self {
        let median = middle(values.to_vec());
        let mad = middle(values.iter().map(|value| (value - median).abs()).collect());
        let min = values.iter().copied().fold(f64::INFINITY, f64::min);
        let max = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        Self { median, mad, min, max }
    }
}

fn middle(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => values[n / 2],
        n => (values[n / 2 - 1] + values[n / 2]) / 2.0,
    }
}

#[cfg(test)]
mod tests {
    use super::Summary;

    #[test]
    fn summary_is_robust_against_an_outlier() {
        let summary = Summary::of(&[3.0, 1.0, 2.0, 100.0, 2.5]);
        assert_eq!(summary, Summary { median: 2.5, mad: 0.5, min: 1.0, max: 100.0 });
        assert_eq!(Summary::of(&[1.0, 2.0]).median, 1.5);
    }
}
