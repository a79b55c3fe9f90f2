//! Health of a member on trial: compares its counts with those before the version was applied.
//!
//! ```text
//!   a sample each second ─► window of 60 s ─┬─ before the version: the baseline
//!                                           └─ since then: worse by more than the limits?
//! ```
//!
//! A trial fails on any of three criteria:
//!
//! - **failures** of policy scripts and flow programs, over the last five seconds: their rate exceeds
//!   that of the baseline by more than the limit;
//! - **grants**, over the last ten seconds: both the granted share of the packets and the rate of
//!   grants have fallen below a ratio of the baseline. Neither is enough alone: in an attack the
//!   share falls and the rate stays, at night the rate falls and the share stays;
//! - **silent grantors**: more than in the baseline, by more than the limit.
//!
//! The criterion of grants needs at least [`MIN_REQUESTS`] decided packets both in the baseline and
//! since.

use std::collections::VecDeque;
use std::time::Duration;

use super::config::TrialLimits;

/// Window of the failure rate.
const FAILURE_WINDOW: Duration = Duration::from_secs(5);
/// Window of the grants.
const GRANT_WINDOW: Duration = Duration::from_secs(10);
/// Window of the baseline, and age at which samples are dropped.
const BASELINE_WINDOW: Duration = Duration::from_secs(60);
/// Fewest packets for a granted share.
pub(super) const MIN_REQUESTS: u64 = 20;

/// Counts of a member. All but the last are cumulative.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HealthSample {
    /// Failures of scripts and flow programs.
    pub failures: u64,
    /// Packets, or requests at a grantor, that the policy has decided.
    pub decided: u64,
    /// Those of them that it has granted.
    pub granted: u64,
    /// Grantors that are silent now.
    pub silent_grantors: u64,
}

/// The rates of a member before a version.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Baseline {
    /// Failures a second.
    failures: f64,
    /// The granted share of packets and the grants a second, if there were enough packets.
    granted: Option<(f64, f64)>,
    silent_grantors: u64,
}

/// The samples of the last minute, by time.
#[derive(Debug, Default)]
pub(super) struct SampleWindow(VecDeque<(Duration, HealthSample)>);

impl SampleWindow {
    /// Adds a sample and drops those older than [`BASELINE_WINDOW`].
    pub(super) fn push(&mut self, at: Duration, sample: HealthSample) {
        self.0.push_back((at, sample));
        while self.0.front().is_some_and(|(first, _)| at.saturating_sub(*first) > BASELINE_WINDOW) {
            self.0.pop_front();
        }
    }

    /// Drops all samples but the last.
    pub(super) fn reset(&mut self) {
        let last = self.0.pop_back();
        self.0.clear();
        self.0.extend(last);
    }

    /// Returns the increase of the counts within the last `span`, and the seconds it covers.
    fn increase(&self, span: Duration) -> (HealthSample, f64) {
        let Some((now, last)) = self.0.back() else { return Default::default() };
        let in_span = |(at, _): &&(Duration, HealthSample)| now.saturating_sub(*at) <= span;
        let Some((from, first)) = self.0.iter().find(in_span) else { return Default::default() };
        let increase = HealthSample {
            failures: last.failures.saturating_sub(first.failures),
            decided: last.decided.saturating_sub(first.decided),
            granted: last.granted.saturating_sub(first.granted),
            silent_grantors: last.silent_grantors,
        };
        (increase, now.saturating_sub(*from).as_secs_f64())
    }

    /// Returns the rates of the last minute.
    pub(super) fn baseline(&self) -> Baseline {
        let (increase, seconds) = self.increase(BASELINE_WINDOW);
        let rate = |count: u64| if seconds > 0.0 { count as f64 / seconds } else { 0.0 };
        let share = || increase.granted as f64 / increase.decided as f64;
        let enough = increase.decided >= MIN_REQUESTS && seconds > 0.0;
        Baseline {
            failures: rate(increase.failures),
            granted: enough.then(|| (share(), rate(increase.granted))),
            silent_grantors: increase.silent_grantors,
        }
    }

    /// Returns a description of the first criterion that is worse than the baseline by more than
    /// the limits.
    pub(super) fn regression(&self, baseline: &Baseline, limits: &TrialLimits) -> Option<String> {
        let (increase, _) = self.increase(FAILURE_WINDOW);
        // Divided by the whole window even before it is full: one failure is not a high rate.
        let failures = increase.failures as f64 / FAILURE_WINDOW.as_secs_f64();
        if failures > baseline.failures + limits.max_failure_rate {
            return Some(format!(
                "{failures:.1} failures of scripts and programs a second, {:.1} before",
                baseline.failures
            ));
        }
        if increase.silent_grantors > baseline.silent_grantors + limits.max_lost_grantors {
            return Some(format!(
                "{} grantors are silent, {} before",
                increase.silent_grantors, baseline.silent_grantors
            ));
        }
        let (increase, seconds) = self.increase(GRANT_WINDOW);
        let full = seconds >= 0.9 * GRANT_WINDOW.as_secs_f64();
        if let Some((share, rate)) = baseline.granted
            && full
            && increase.decided >= MIN_REQUESTS
        {
            let new_share = increase.granted as f64 / increase.decided as f64;
            let new_rate = increase.granted as f64 / seconds;
            let least = limits.min_granted_ratio;
            if new_share < least * share && new_rate < least * rate {
                return Some(format!(
                    "{:.1} % of packets are granted, {new_rate:.1} a second; {:.1} %, {rate:.1} a \
                     second before",
                    100.0 * new_share,
                    100.0 * share
                ));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: TrialLimits =
        TrialLimits { max_failure_rate: 0.5, min_granted_ratio: 0.5, max_lost_grantors: 0 };

    /// A simulated member with constant rates.
    struct Simulation {
        at: u64,
        sum: HealthSample,
        samples: SampleWindow,
    }

    impl Simulation {
        fn new() -> Self {
            Self { at: 0, sum: HealthSample::default(), samples: SampleWindow::default() }
        }

        fn run(&mut self, seconds: u64, each: HealthSample) -> &mut Self {
            for _ in 0..seconds {
                self.at += 1;
                self.sum.failures += each.failures;
                self.sum.decided += each.decided;
                self.sum.granted += each.granted;
                self.sum.silent_grantors = each.silent_grantors;
                self.samples.push(Duration::from_secs(self.at), self.sum);
            }
            self
        }
    }

    fn each(failures: u64, decided: u64, granted: u64, silent_grantors: u64) -> HealthSample {
        HealthSample { failures, decided, granted, silent_grantors }
    }

    fn verdict(before: HealthSample, after: HealthSample, seconds: u64) -> Option<String> {
        let mut simulation = Simulation::new();
        simulation.run(60, before);
        let baseline = simulation.samples.baseline();
        simulation.samples.reset();
        simulation.run(seconds, after);
        simulation.samples.regression(&baseline, &LIMITS)
    }

    #[test]
    fn failures_above_the_limit_are_a_regression() {
        assert_eq!(verdict(each(0, 100, 90, 0), each(0, 100, 90, 0), 60), None);
        assert!(verdict(each(0, 100, 90, 0), each(100, 100, 90, 0), 1).is_some());
        // One failure a second: the third one exceeds the limit.
        assert_eq!(verdict(each(0, 1, 1, 0), each(1, 1, 1, 0), 2), None);
        assert!(verdict(each(0, 1, 1, 0), each(1, 1, 1, 0), 3).is_some());
        // Failures of the baseline do not count.
        assert_eq!(verdict(each(5, 100, 90, 0), each(5, 100, 90, 0), 30), None);
        assert!(verdict(each(5, 100, 90, 0), each(9, 100, 90, 0), 30).is_some());
    }

    #[test]
    fn grants_below_the_ratio_in_share_and_rate_are_a_regression() {
        let before = each(0, 100, 80, 0);
        assert!(verdict(before, each(0, 100, 30, 0), 11).unwrap().contains("30.0 % of packets"));
        assert_eq!(verdict(before, each(0, 100, 30, 0), 5), None, "not yet");
        assert_eq!(verdict(before, each(0, 100, 41, 0), 11), None);
        assert_eq!(verdict(before, each(0, 9000, 80, 0), 11), None, "an attack");
        assert_eq!(verdict(before, each(0, 10, 8, 0), 11), None, "night");
        assert!(verdict(before, each(0, 9000, 8, 0), 11).is_some(), "an attack and fewer grants");
        assert_eq!(verdict(each(0, 0, 0, 0), each(0, 100, 0, 0), 11), None, "no baseline");
        assert_eq!(verdict(before, each(0, 1, 0, 0), 11), None, "too few packets");
        let off = TrialLimits { min_granted_ratio: 0.0, ..LIMITS };
        let mut simulation = Simulation::new();
        simulation.run(60, before);
        let baseline = simulation.samples.baseline();
        simulation.samples.reset();
        let samples = &simulation.run(20, each(0, 100, 0, 0)).samples;
        assert_eq!(samples.regression(&baseline, &off), None);
    }

    #[test]
    fn more_silent_grantors_are_a_regression() {
        assert!(verdict(each(0, 9, 9, 1), each(0, 9, 9, 2), 1).unwrap().contains("2 grantors"));
        assert_eq!(verdict(each(0, 9, 9, 1), each(0, 9, 9, 1), 20), None);
        assert_eq!(verdict(each(0, 9, 9, 1), each(0, 9, 9, 0), 20), None);
    }

    #[test]
    fn restarted_counters_are_no_regression() {
        let mut samples = SampleWindow::default();
        assert_eq!(samples.baseline(), Baseline::default());
        samples.push(Duration::from_secs(1), each(9, 9, 9, 0));
        samples.push(Duration::from_secs(2), each(0, 0, 0, 0));
        assert_eq!(samples.regression(&Baseline::default(), &LIMITS), None);
        for at in 0..1000 {
            samples.push(Duration::from_secs(3 + at), each(0, 0, 0, 0));
        }
        assert!(samples.0.len() <= 62);
    }
}
