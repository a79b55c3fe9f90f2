//! Whether a member is worse off with a version than it was before: numbers held against numbers.
//!
//! ```text
//!   a sample a second ─► the last minute ─┬─ before the version: what is usual here
//!                                         └─ since: worse than that by more than is allowed?
//! ```
//!
//! Three things are looked at:
//!
//! - **failures** of policy scripts and flow programs, over the last five seconds: so many a second more
//!   than before;
//! - **grants**, over the last ten seconds: both the share of packets that are let through and
//!   their number a second have fallen below a part of what they were. One alone says nothing: in
//!   an attack the share falls and the number stays, at night it is the other way round;
//! - **grantors** that are silent: more than before.
//!
//! A member that has seen less than [`ENOUGH`] packets before, or since, says nothing of grants.

use std::collections::VecDeque;
use std::time::Duration;

use super::config::Limits;

/// Over how long failures are looked at.
const FAILING: Duration = Duration::from_secs(5);
/// Over how long grants are.
const GRANTING: Duration = Duration::from_secs(10);
/// How far back what is usual is looked for.
const USUAL: Duration = Duration::from_secs(60);
/// Packets that say something of a share.
pub(super) const ENOUGH: u64 = 20;

/// What a member counts: all but the last only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sample {
    /// Times that a script or flow program failed.
    pub(crate) failures: u64,
    /// Packets that were judged.
    pub(crate) judged: u64,
    /// Those that were let through.
    pub(crate) granted: u64,
    /// Grantors that are silent now.
    pub(crate) silent: u64,
}

/// What was usual.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Usual {
    failures: f64,
    /// The share of packets that were granted, and their number a second, if enough was seen.
    granted: Option<(f64, f64)>,
    silent: u64,
}

/// Samples by time.
#[derive(Debug, Default)]
pub(super) struct Samples(VecDeque<(Duration, Sample)>);

impl Samples {
    /// Adds one.
    pub(super) fn push(&mut self, at: Duration, sample: Sample) {
        self.0.push_back((at, sample));
        while self.0.front().is_some_and(|(first, _)| at.saturating_sub(*first) > USUAL) {
            self.0.pop_front();
        }
    }

    /// Forgets all but the last.
    pub(super) fn begin(&mut self) {
        let last = self.0.pop_back();
        self.0.clear();
        self.0.extend(last);
    }

    /// Returns what was counted within the last `span`, in how many seconds.
    fn within(&self, span: Duration) -> (Sample, f64) {
        let Some((now, last)) = self.0.back() else { return Default::default() };
        let young = |(at, _): &&(Duration, Sample)| now.saturating_sub(*at) <= span;
        let Some((from, first)) = self.0.iter().find(young) else { return Default::default() };
        let counted = Sample {
            failures: last.failures.saturating_sub(first.failures),
            judged: last.judged.saturating_sub(first.judged),
            granted: last.granted.saturating_sub(first.granted),
            silent: last.silent,
        };
        (counted, now.saturating_sub(*from).as_secs_f64())
    }

    /// Says what is usual.
    pub(super) fn usual(&self) -> Usual {
        let (counted, seconds) = self.within(USUAL);
        let rate = |count: u64| if seconds > 0.0 { count as f64 / seconds } else { 0.0 };
        let share = || counted.granted as f64 / counted.judged as f64;
        let enough = counted.judged >= ENOUGH && seconds > 0.0;
        Usual {
            failures: rate(counted.failures),
            granted: enough.then(|| (share(), rate(counted.granted))),
            silent: counted.silent,
        }
    }

    /// Says what is worse than it was, if anything is by more than the limits.
    pub(super) fn worse(&self, usual: &Usual, limits: &Limits) -> Option<String> {
        let (counted, _) = self.within(FAILING);
        // Over the whole time even where it has not passed yet: one failure is not many a second.
        let failing = counted.failures as f64 / FAILING.as_secs_f64();
        if failing > usual.failures + limits.failures {
            return Some(format!(
                "{failing:.1} failures of scripts and programs a second, {:.1} before",
                usual.failures
            ));
        }
        if counted.silent > usual.silent + limits.lost {
            return Some(format!(
                "{} grantors are silent, {} before",
                counted.silent, usual.silent
            ));
        }
        let (counted, seconds) = self.within(GRANTING);
        let whole = seconds >= 0.9 * GRANTING.as_secs_f64();
        if let Some((share, rate)) = usual.granted
            && whole
            && counted.judged >= ENOUGH
        {
            let now_share = counted.granted as f64 / counted.judged as f64;
            let now_rate = counted.granted as f64 / seconds;
            if now_share < limits.granted * share && now_rate < limits.granted * rate {
                return Some(format!(
                    "{:.1} % of packets are granted, {now_rate:.1} a second; {:.1} %, {rate:.1} a \
                     second before",
                    100.0 * now_share,
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

    const LIMITS: Limits = Limits { failures: 0.5, granted: 0.5, lost: 0 };

    /// Counts as so many a second.
    struct Counting {
        at: u64,
        sum: Sample,
        samples: Samples,
    }

    impl Counting {
        fn new() -> Self {
            Self { at: 0, sum: Sample::default(), samples: Samples::default() }
        }

        fn run(&mut self, seconds: u64, each: Sample) -> &mut Self {
            for _ in 0..seconds {
                self.at += 1;
                self.sum.failures += each.failures;
                self.sum.judged += each.judged;
                self.sum.granted += each.granted;
                self.sum.silent = each.silent;
                self.samples.push(Duration::from_secs(self.at), self.sum);
            }
            self
        }
    }

    fn each(failures: u64, judged: u64, granted: u64, silent: u64) -> Sample {
        Sample { failures, judged, granted, silent }
    }

    fn verdict(before: Sample, after: Sample, seconds: u64) -> Option<String> {
        let mut counting = Counting::new();
        counting.run(60, before);
        let usual = counting.samples.usual();
        counting.samples.begin();
        counting.run(seconds, after);
        counting.samples.worse(&usual, &LIMITS)
    }

    #[test]
    fn failures_are_seen_at_once_where_there_are_many() {
        assert_eq!(verdict(each(0, 100, 90, 0), each(0, 100, 90, 0), 60), None);
        assert!(verdict(each(0, 100, 90, 0), each(100, 100, 90, 0), 1).is_some());
        // One a second: not by its first, by its third.
        assert_eq!(verdict(each(0, 1, 1, 0), each(1, 1, 1, 0), 2), None);
        assert!(verdict(each(0, 1, 1, 0), each(1, 1, 1, 0), 3).is_some());
        // What was there before is no fault of this one's.
        assert_eq!(verdict(each(5, 100, 90, 0), each(5, 100, 90, 0), 30), None);
        assert!(verdict(each(5, 100, 90, 0), each(9, 100, 90, 0), 30).is_some());
    }

    #[test]
    fn grants_count_by_share_and_by_number() {
        let usual = each(0, 100, 80, 0);
        assert!(verdict(usual, each(0, 100, 30, 0), 11).unwrap().contains("30.0 % of packets"));
        assert_eq!(verdict(usual, each(0, 100, 30, 0), 5), None, "not yet");
        assert_eq!(verdict(usual, each(0, 100, 41, 0), 11), None);
        assert_eq!(verdict(usual, each(0, 9000, 80, 0), 11), None, "an attack");
        assert_eq!(verdict(usual, each(0, 10, 8, 0), 11), None, "night");
        assert!(verdict(usual, each(0, 9000, 8, 0), 11).is_some(), "an attack, and worse");
        assert_eq!(verdict(each(0, 0, 0, 0), each(0, 100, 0, 0), 11), None, "nothing was usual");
        assert_eq!(verdict(usual, each(0, 1, 0, 0), 11), None, "too few to say");
        let off = Limits { granted: 0.0, ..LIMITS };
        let mut counting = Counting::new();
        counting.run(60, usual);
        let usual = counting.samples.usual();
        counting.samples.begin();
        assert_eq!(counting.run(20, each(0, 100, 0, 0)).samples.worse(&usual, &off), None);
    }

    #[test]
    fn grantors_that_are_lost_count() {
        assert!(verdict(each(0, 9, 9, 1), each(0, 9, 9, 2), 1).unwrap().contains("2 grantors"));
        assert_eq!(verdict(each(0, 9, 9, 1), each(0, 9, 9, 1), 20), None);
        assert_eq!(verdict(each(0, 9, 9, 1), each(0, 9, 9, 0), 20), None);
    }

    #[test]
    fn counters_that_begin_anew_are_no_trouble() {
        let mut samples = Samples::default();
        assert_eq!(samples.usual(), Usual::default());
        samples.push(Duration::from_secs(1), each(9, 9, 9, 0));
        samples.push(Duration::from_secs(2), each(0, 0, 0, 0));
        assert_eq!(samples.worse(&Usual::default(), &LIMITS), None);
        for at in 0..1000 {
            samples.push(Duration::from_secs(3 + at), each(0, 0, 0, 0));
        }
        assert!(samples.0.len() <= 62);
    }
}
