//! Runs the state machine with a clock that the test sets.

use std::path::PathBuf;

use super::super::config::BundleSource;
use super::super::share::CanaryShare;
use super::*;

const CREATED: u64 = 1_800_000_000;

fn config() -> DistributionConfig {
    DistributionConfig::for_tests(BundleSource::Path(PathBuf::new()))
}

/// A state machine with a simulated clock and counters.
struct TestMember {
    rollout: Rollout,
    seconds: u64,
    sum: HealthSample,
    /// Requests a second.
    requests: u64,
}

impl TestMember {
    fn new(record: RolloutRecord) -> Self {
        let now = Timestamp { wall: CREATED, monotonic: Duration::ZERO };
        Self {
            rollout: Rollout::new(config(), record, now),
            seconds: 0,
            sum: HealthSample::default(),
            requests: 10,
        }
    }

    /// Returns a canary of version 1 that has decided no request.
    fn without_requests() -> Self {
        let mut member = Self::new(RolloutRecord::default());
        member.requests = 0;
        member.offer(1, CanaryShare::ALL);
        member.run_until_action(0);
        member
    }

    fn now(&self) -> Timestamp {
        Timestamp { wall: CREATED + self.seconds, monotonic: Duration::from_secs(self.seconds) }
    }

    fn offer(&mut self, version: u64, canary: CanaryShare) -> Eligibility {
        let created = CREATED + self.seconds;
        self.rollout.offer(BundleHeader::new(version, created, canary))
    }

    fn offer_stage(&mut self, version: u64, canary: CanaryShare, label: &str) -> Eligibility {
        let header = BundleHeader::new(version, CREATED, canary);
        self.rollout.offer(BundleHeader { staged: true, label: label.parse().ok(), ..header })
    }

    /// Advances the clock by a second, and executes the action of that step.
    fn second(&mut self, failures: u64) -> Action {
        self.seconds += 1;
        self.sum.failures += failures;
        self.sum.decided += self.requests;
        let (now, act) = (self.now(), self.rollout.step(self.now(), self.sum));
        match &act {
            Action::None => {}
            Action::Apply => self.rollout.start_trial(now),
            Action::Confirm(_) => self.rollout.confirm(),
            Action::RollBack(reason) => assert!(self.rollout.roll_back(reason).is_some()),
        }
        act
    }

    /// Advances the clock until there is an action; returns it and the seconds.
    fn run_until_action(&mut self, failures: u64) -> (Action, u64) {
        let begin = self.seconds;
        for _ in 0..100_000 {
            let act = self.second(failures);
            if act != Action::None {
                return (act, self.seconds - begin);
            }
        }
        (Action::None, 100_000)
    }

    fn state(&self) -> &'static str {
        self.rollout.state(self.now()).0
    }

    fn in_force(&self) -> Option<u64> {
        self.rollout.record.in_force()
    }
}

#[test]
fn canary_applies_a_version_at_once_and_others_after_the_delay() {
    let (mut canary, mut other) =
        (TestMember::new(RolloutRecord::default()), TestMember::new(RolloutRecord::default()));
    assert_eq!(canary.state(), "local");
    assert_eq!(canary.offer(1, CanaryShare::ALL), Eligibility::New);
    assert_eq!(other.offer(1, CanaryShare::NONE), Eligibility::New);
    assert_eq!(canary.run_until_action(0), (Action::Apply, 1));
    assert_eq!((canary.state(), canary.in_force()), ("canary", Some(1)));
    assert_eq!(canary.run_until_action(0), (Action::Confirm(None), 30));
    assert_eq!((canary.state(), canary.run_until_action(0).0), ("confirmed", Action::None));
    assert_eq!(other.second(0), Action::None);
    assert_eq!((other.state(), other.in_force()), ("waiting", None));
    let (_, reason, remaining) = other.rollout.state(other.now());
    assert!(reason.unwrap().contains("version 1 is on trial at 0 %"));
    assert_eq!(remaining, Some(3599));
    assert_eq!(other.run_until_action(0), (Action::Apply, 3599));
    assert_eq!(other.state(), "trial");
}

#[test]
fn staged_version_is_applied_by_its_share_and_label_alone() {
    let none = CanaryShare::NONE;
    let mut member = TestMember::new(RolloutRecord::default());
    member.offer_stage(1, none, "");
    assert_eq!(member.run_until_action(0), (Action::None, 100_000));
    assert_eq!((member.state(), member.rollout.state(member.now()).2), ("waiting", None));
    member.offer_stage(1, none, "core");
    assert_eq!(member.second(0), Action::None);
    assert!(member.rollout.state(member.now()).1.unwrap().contains("and those of label core"));
    member.offer_stage(1, none, "edge");
    assert_eq!(member.run_until_action(0), (Action::Apply, 1));
    member.run_until_action(0);
    member.offer_stage(2, CanaryShare::ALL, "");
    assert_eq!(member.run_until_action(0), (Action::Apply, 1));
}

#[test]
fn waiting_member_applies_a_larger_share_at_once_and_skips_withdrawn_versions() {
    let none = CanaryShare::NONE;
    let mut member = TestMember::new(RolloutRecord::default());
    member.offer(1, none);
    assert_eq!(member.second(0), Action::None);
    // Released for all members.
    member.offer(1, CanaryShare::ALL);
    assert_eq!(member.run_until_action(0), (Action::Apply, 1));
    member.run_until_action(0);
    // Version 2 fails at the canaries; version 3 follows while this member waits.
    member.offer(2, none);
    member.second(0);
    member.offer(3, CanaryShare::ALL);
    assert_eq!(member.run_until_action(0), (Action::Apply, 1));
    assert_eq!(member.in_force(), Some(3));
    assert_eq!(member.offer(2, CanaryShare::ALL), Eligibility::BelowFloor);
    assert_eq!(member.offer(3, CanaryShare::ALL), Eligibility::InForce);
}

#[test]
fn worse_version_is_rolled_back_and_stays_refused() {
    let mut member = TestMember::new(RolloutRecord::default());
    member.offer(1, CanaryShare::ALL);
    member.run_until_action(0);
    assert_eq!(member.run_until_action(0).0, Action::Confirm(None));
    member.offer(2, CanaryShare::ALL);
    assert_eq!(member.run_until_action(0).0, Action::Apply);
    let (act, after) = member.run_until_action(10);
    assert!(matches!(act, Action::RollBack(_)) && after == 1, "{act:?} after {after}");
    assert_eq!((member.state(), member.in_force()), ("rolled_back", Some(1)));
    assert!(member.rollout.state(member.now()).1.unwrap().starts_with("version 2: 2.0 failures"));
    // The source still offers version 2.
    assert!(matches!(member.offer(2, CanaryShare::ALL), Eligibility::Refused(_)));
    assert_eq!(member.run_until_action(0), (Action::None, 100_000));
    // It stays refused after a restart.
    let mut member = TestMember::new(member.rollout.record);
    assert_eq!((member.state(), member.in_force()), ("rolled_back", Some(1)));
    assert!(matches!(member.offer(2, CanaryShare::ALL), Eligibility::Refused(_)));
    // A higher version is eligible, and so is version 2 after a retry by the operator.
    assert_eq!(member.rollout.clear_refused(), 1);
    assert_eq!(member.offer(2, CanaryShare::ALL), Eligibility::New);
    member.offer(3, CanaryShare::ALL);
    assert_eq!(member.run_until_action(0), (Action::Apply, 1));
    assert_eq!(member.run_until_action(0), (Action::Confirm(None), 30));
    assert_eq!((member.state(), member.in_force()), ("confirmed", Some(3)));
}

#[test]
fn failing_first_version_is_rolled_back_to_the_local_policy() {
    let mut member = TestMember::new(RolloutRecord::default());
    member.offer(4, CanaryShare::ALL);
    member.run_until_action(0);
    assert!(matches!(member.run_until_action(9).0, Action::RollBack(_)));
    assert_eq!((member.state(), member.in_force()), ("rolled_back", None));
}

#[test]
fn version_offered_during_a_trial_is_applied_after_it() {
    let mut member = TestMember::new(RolloutRecord::default());
    member.offer(1, CanaryShare::ALL);
    member.run_until_action(0);
    member.offer(2, CanaryShare::ALL);
    assert_eq!(member.run_until_action(0), (Action::Confirm(None), 30));
    assert_eq!(member.in_force(), Some(1));
    assert_eq!(member.run_until_action(0), (Action::Apply, 1));
    assert_eq!(member.in_force(), Some(2));
}

#[test]
fn trial_continues_after_a_restart_and_fails_on_failures() {
    let mut member = TestMember::new(RolloutRecord::default());
    member.offer(1, CanaryShare::ALL);
    member.run_until_action(0);
    member.run_until_action(0);
    member.offer(2, CanaryShare::ALL);
    member.run_until_action(0);
    let mut restarted = TestMember::new(member.rollout.record.clone());
    assert_eq!(restarted.state(), "trial");
    assert_eq!(restarted.run_until_action(0), (Action::Confirm(None), 30));
    let mut restarted = TestMember::new(member.rollout.record);
    assert!(matches!(restarted.run_until_action(9).0, Action::RollBack(_)));
    assert_eq!(restarted.in_force(), Some(1));
}

#[test]
fn invalid_version_is_refused_and_changes_nothing() {
    let mut member = TestMember::new(RolloutRecord::default());
    member.offer(1, CanaryShare::ALL);
    member.run_until_action(0);
    member.run_until_action(0);
    member.offer(2, CanaryShare::ALL);
    member.rollout.refuse("no policy");
    assert_eq!((member.state(), member.in_force()), ("confirmed", Some(1)));
    assert_eq!(member.offer(2, CanaryShare::ALL), Eligibility::Refused("no policy".into()));
    assert_eq!(member.run_until_action(0), (Action::None, 100_000));
}

#[test]
fn version_without_requests_is_confirmed_late_with_a_warning() {
    let mut member = TestMember::without_requests();
    (0..31).for_each(|_| assert_eq!(member.second(0), Action::None));
    let (state, reason, remaining) = member.rollout.state(member.now());
    assert_eq!((state, remaining), ("canary", Some(329)));
    assert_eq!(reason.as_deref(), Some("it has decided 0 of the 20 required requests"));
    let (act, after) = member.run_until_action(0);
    let Action::Confirm(Some(warning)) = &act else { panic!("{act:?}") };
    assert!(warning.contains("only 0 requests") && after == 329, "{warning} after {after}");
}

#[test]
fn version_is_confirmed_once_it_has_decided_enough_requests() {
    let mut member = TestMember::without_requests();
    (0..100).for_each(|_| assert_eq!(member.second(0), Action::None));
    member.requests = 7;
    assert_eq!(member.run_until_action(0), (Action::Confirm(None), 3));
    assert_eq!(member.state(), "confirmed");
}

#[test]
fn version_without_requests_is_rolled_back_after_a_failure() {
    let mut member = TestMember::without_requests();
    (0..100).for_each(|_| assert_eq!(member.second(0), Action::None));
    assert!(matches!(member.run_until_action(10).0, Action::RollBack(_)));
}
