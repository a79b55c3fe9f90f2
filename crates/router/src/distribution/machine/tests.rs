//! A member's states by a clock that is set by hand.

use std::path::PathBuf;

use super::super::config::{Limits, Source};
use super::super::share::Share;
use super::*;

const CREATED: u64 = 1_800_000_000;

fn settings() -> Settings {
    Settings {
        source: Source::Path(PathBuf::new()),
        keys: Vec::new(),
        keep: PathBuf::new(),
        name: "gate-1".into(),
        poll: Duration::from_secs(1),
        canary: Duration::from_secs(3600),
        watch: Duration::from_secs(30),
        idle: Duration::from_secs(360),
        limits: Limits { failures: 0.5, granted: 0.5, lost: 0 },
    }
}

/// A member and its clocks.
struct Member {
    machine: Machine,
    seconds: u64,
    sum: Sample,
    /// Requests a second.
    requests: u64,
}

impl Member {
    fn new(record: Record) -> Self {
        let now = Now { wall: CREATED, steady: Duration::ZERO };
        Self {
            machine: Machine::new(settings(), record, now),
            seconds: 0,
            sum: Sample::default(),
            requests: 10,
        }
    }

    /// A canary member of version 1 that has decided no request.
    fn without_requests() -> Self {
        let mut member = Self::new(Record::default());
        member.requests = 0;
        member.offer(1, Share::ALL);
        member.until(0);
        member
    }

    fn now(&self) -> Now {
        Now { wall: CREATED + self.seconds, steady: Duration::from_secs(self.seconds) }
    }

    fn offer(&mut self, version: u64, canary: Share) -> Offer {
        self.machine.offer(Header { version, created: CREATED + self.seconds, canary })
    }

    /// Lets a second pass, and does what is to be done.
    fn second(&mut self, failures: u64) -> Act {
        self.seconds += 1;
        self.sum.failures += failures;
        self.sum.judged += self.requests;
        let (now, act) = (self.now(), self.machine.look(self.now(), self.sum));
        match &act {
            Act::Nothing => {}
            Act::TakeOver => self.machine.taken(now),
            Act::Settle(_) => self.machine.settle(),
            Act::GoBack(why) => assert!(self.machine.go_back(why).is_some()),
        }
        act
    }

    /// Lets seconds pass until something is to be done; says what and after how many.
    fn until(&mut self, failures: u64) -> (Act, u64) {
        let begin = self.seconds;
        for _ in 0..100_000 {
            let act = self.second(failures);
            if act != Act::Nothing {
                return (act, self.seconds - begin);
            }
        }
        (Act::Nothing, 100_000)
    }

    fn state(&self) -> &'static str {
        self.machine.state(self.now()).0
    }

    fn in_force(&self) -> Option<u64> {
        self.machine.record.in_force()
    }
}

#[test]
fn a_canary_takes_it_at_once_and_the_others_when_its_time_has_come() {
    let (mut canary, mut other) = (Member::new(Record::default()), Member::new(Record::default()));
    assert_eq!(canary.state(), "local");
    assert_eq!(canary.offer(1, Share::ALL), Offer::New);
    assert_eq!(other.offer(1, Share::of(0).unwrap()), Offer::New);
    assert_eq!(canary.until(0), (Act::TakeOver, 1));
    assert_eq!((canary.state(), canary.in_force()), ("canary", Some(1)));
    assert_eq!(canary.until(0), (Act::Settle(None), 30));
    assert_eq!((canary.state(), canary.until(0).0), ("confirmed", Act::Nothing));
    assert_eq!(other.second(0), Act::Nothing);
    assert_eq!((other.state(), other.in_force()), ("waiting", None));
    let (_, why, left) = other.machine.state(other.now());
    assert!(why.unwrap().contains("version 1 is tried by 0 %"));
    assert_eq!(left, Some(3599));
    assert_eq!(other.until(0), (Act::TakeOver, 3599));
    assert_eq!(other.state(), "trial");
}

#[test]
fn who_waits_takes_a_larger_share_at_once_and_never_what_was_withdrawn() {
    let none = Share::of(0).unwrap();
    let mut member = Member::new(Record::default());
    member.offer(1, none);
    assert_eq!(member.second(0), Act::Nothing);
    // Signed anew for all.
    member.offer(1, Share::ALL);
    assert_eq!(member.until(0), (Act::TakeOver, 1));
    member.until(0);
    // Version 2 fails at the canaries; version 3 comes while this one waits.
    member.offer(2, none);
    member.second(0);
    member.offer(3, Share::ALL);
    assert_eq!(member.until(0), (Act::TakeOver, 1));
    assert_eq!(member.in_force(), Some(3));
    assert_eq!(member.offer(2, Share::ALL), Offer::Older);
    assert_eq!(member.offer(3, Share::ALL), Offer::Held);
}

#[test]
fn what_is_worse_is_taken_back_and_not_taken_again() {
    let mut member = Member::new(Record::default());
    member.offer(1, Share::ALL);
    member.until(0);
    assert_eq!(member.until(0).0, Act::Settle(None));
    member.offer(2, Share::ALL);
    assert_eq!(member.until(0).0, Act::TakeOver);
    let (act, after) = member.until(10);
    assert!(matches!(act, Act::GoBack(_)) && after == 1, "{act:?} after {after}");
    assert_eq!((member.state(), member.in_force()), ("rolled_back", Some(1)));
    assert!(member.machine.state(member.now()).1.unwrap().starts_with("version 2: 2.0 failures"));
    // The source has it still.
    assert!(matches!(member.offer(2, Share::ALL), Offer::Refused(_)));
    assert_eq!(member.until(0), (Act::Nothing, 100_000));
    // Also after a restart.
    let mut member = Member::new(member.machine.record);
    assert_eq!((member.state(), member.in_force()), ("rolled_back", Some(1)));
    assert!(matches!(member.offer(2, Share::ALL), Offer::Refused(_)));
    // A higher version is another matter, and so is what the operator says.
    assert_eq!(member.machine.forgive(), 1);
    assert_eq!(member.offer(2, Share::ALL), Offer::New);
    member.offer(3, Share::ALL);
    assert_eq!(member.until(0), (Act::TakeOver, 1));
    assert_eq!(member.until(0), (Act::Settle(None), 30));
    assert_eq!((member.state(), member.in_force()), ("confirmed", Some(3)));
}

#[test]
fn a_first_version_that_fails_leaves_the_local_policy() {
    let mut member = Member::new(Record::default());
    member.offer(4, Share::ALL);
    member.until(0);
    assert!(matches!(member.until(9).0, Act::GoBack(_)));
    assert_eq!((member.state(), member.in_force()), ("rolled_back", None));
}

#[test]
fn nothing_else_is_taken_while_one_is_on_trial() {
    let mut member = Member::new(Record::default());
    member.offer(1, Share::ALL);
    member.until(0);
    member.offer(2, Share::ALL);
    assert_eq!(member.until(0), (Act::Settle(None), 30));
    assert_eq!(member.in_force(), Some(1));
    assert_eq!(member.until(0), (Act::TakeOver, 1));
    assert_eq!(member.in_force(), Some(2));
}

#[test]
fn a_trial_goes_on_after_a_restart_and_failures_count_in_it() {
    let mut member = Member::new(Record::default());
    member.offer(1, Share::ALL);
    member.until(0);
    member.until(0);
    member.offer(2, Share::ALL);
    member.until(0);
    let mut again = Member::new(member.machine.record.clone());
    assert_eq!(again.state(), "trial");
    assert_eq!(again.until(0), (Act::Settle(None), 30));
    let mut again = Member::new(member.machine.record);
    assert!(matches!(again.until(9).0, Act::GoBack(_)));
    assert_eq!(again.in_force(), Some(1));
}

#[test]
fn what_is_not_sound_is_refused_and_leaves_everything() {
    let mut member = Member::new(Record::default());
    member.offer(1, Share::ALL);
    member.until(0);
    member.until(0);
    member.offer(2, Share::ALL);
    member.machine.refuse("no policy in it");
    assert_eq!((member.state(), member.in_force()), ("confirmed", Some(1)));
    assert_eq!(member.offer(2, Share::ALL), Offer::Refused("no policy in it".into()));
    assert_eq!(member.until(0), (Act::Nothing, 100_000));
}

#[test]
fn version_without_requests_is_held_late_and_with_a_warning() {
    let mut member = Member::without_requests();
    (0..31).for_each(|_| assert_eq!(member.second(0), Act::Nothing));
    let (state, why, left) = member.machine.state(member.now());
    assert_eq!((state, left), ("canary", Some(329)));
    assert_eq!(why.as_deref(), Some("it has decided 0 of the 20 required requests"));
    let (act, after) = member.until(0);
    let Act::Settle(Some(warning)) = &act else { panic!("{act:?}") };
    assert!(warning.contains("only 0 requests") && after == 329, "{warning} after {after}");
}

#[test]
fn version_is_held_as_soon_as_it_has_decided_enough() {
    let mut member = Member::without_requests();
    (0..100).for_each(|_| assert_eq!(member.second(0), Act::Nothing));
    member.requests = 7;
    assert_eq!(member.until(0), (Act::Settle(None), 3));
    assert_eq!(member.state(), "confirmed");
}

#[test]
fn version_without_requests_is_rolled_back_after_a_failure() {
    let mut member = Member::without_requests();
    (0..100).for_each(|_| assert_eq!(member.second(0), Act::Nothing));
    assert!(matches!(member.until(10).0, Act::GoBack(_)));
}
