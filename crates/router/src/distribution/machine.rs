//! What a member does with bundles, and when: a machine of states that asks no clock and no disk.
//!
//! ```text
//!                     offered, a higher version
//!   local, held ─┬─ a canary, or it is old enough ──► taken over ─► canary, watching
//!        ▲       └─ else: waiting ──(time, or a larger share)──┘       │
//!        ├──────────────── its time on trial is over ──────────────────┤
//!        └── rolled back: the version before, this one is refused ◄── worse than before
//! ```
//!
//! A trial ends well when its time is over and the version has decided [`ENOUGH`] requests: a
//! version without requests is untested. On a member with fewer requests, such as a spare one, the
//! trial ends later, with a warning.
//!
//! Everything that a member tells of itself is said by one of these states ([`Machine::state`]).
//! While a version is on trial no other is taken over. What is to be remembered is in the
//! [`Record`]; who drives this (`agent.rs`) writes it before it does what it was told to.

use std::time::Duration;

use super::bundle::Header;
use super::config::Settings;
use super::health::{ENOUGH, Sample, Samples, Usual};
use super::record::{Offer, Record};

/// A moment: by the clock on the wall, in seconds since 1970, and by one that is never set.
#[derive(Clone, Copy, Debug)]
pub(super) struct Now {
    pub(super) wall: u64,
    pub(super) steady: Duration,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Act {
    Nothing,
    /// The version that is offered is to be taken over.
    TakeOver,
    /// The version in force has stood its trial, or has been on it for as long as it may be: then
    /// with a warning.
    Settle(Option<String>),
    /// The version before is to be gone back to, for this reason.
    GoBack(String),
}

/// A version on trial.
#[derive(Debug)]
struct Trial {
    since: Duration,
    usual: Usual,
    canary: bool,
    /// The member's count of requests when the version was first checked, and since.
    first: Option<u64>,
    decided: u64,
}

impl Trial {
    fn new(since: Duration, usual: Usual, canary: bool) -> Self {
        Self { since, usual, canary, first: None, decided: 0 }
    }

    /// Records the member's count of requests. A count that restarts loses none.
    fn count(&mut self, judged: u64) {
        let first = self.first.get_or_insert(judged);
        if judged < *first {
            *first = 0;
        }
        self.decided = self.decided.max(judged - *first);
    }
}

/// The machine.
#[derive(Debug)]
pub(super) struct Machine {
    settings: Settings,
    pub(super) record: Record,
    offer: Option<Header>,
    trial: Option<Trial>,
    samples: Samples,
    /// The version that was taken back last, and why.
    back: Option<(u64, String)>,
}

impl Machine {
    /// Begins where a record ends. A version that was on trial is on trial again: what was usual
    /// before it is not known any more, so that only failures and silence count.
    pub(super) fn new(settings: Settings, record: Record, now: Now) -> Self {
        let trial = record.trial.map(|_| Trial::new(now.steady, Usual::default(), false));
        // The highest, as long as nothing higher was taken.
        let back = record.refused.last_key_value();
        let back = back.filter(|(version, _)| record.in_force().is_none_or(|it| it < **version));
        let back = back.map(|(version, why)| (*version, why.clone()));
        Self { settings, offer: None, trial, samples: Samples::default(), back, record }
    }

    /// Hears of a version; says what is to be made of it.
    pub(super) fn offer(&mut self, header: Header) -> Offer {
        let judged = self.record.judge(header.version);
        self.offer = (judged == Offer::New).then_some(header);
        judged
    }

    /// Looks at how things are.
    pub(super) fn look(&mut self, now: Now, sample: Sample) -> Act {
        self.samples.push(now.steady, sample);
        if let Some(trial) = &mut self.trial {
            trial.count(sample.judged);
            if let Some(why) = self.samples.worse(&trial.usual, &self.settings.limits) {
                return Act::GoBack(why);
            }
            let watched = now.steady.saturating_sub(trial.since);
            if watched >= self.settings.watch && trial.decided >= ENOUGH {
                return Act::Settle(None);
            }
            if watched >= self.settings.idle {
                return Act::Settle(Some(format!(
                    "warning: held after {} s although it has decided only {} requests",
                    watched.as_secs(),
                    trial.decided
                )));
            }
            return Act::Nothing;
        }
        match self.offer {
            Some(offer) if self.is_canary(&offer) || now.wall >= self.until(&offer) => {
                Act::TakeOver
            }
            _ => Act::Nothing,
        }
    }

    fn is_canary(&self, offer: &Header) -> bool {
        offer.canary.holds(&self.settings.name, offer.version)
    }

    /// When who is no canary takes a version.
    fn until(&self, offer: &Header) -> u64 {
        offer.created.saturating_add(self.settings.canary.as_secs())
    }

    /// The version that is offered is in force from now on.
    pub(super) fn taken(&mut self, now: Now) {
        let Some(offer) = self.offer.take() else { return };
        self.record.take(offer.version);
        let usual = self.samples.usual();
        self.samples.begin();
        let canary = self.is_canary(&offer);
        self.trial = Some(Trial::new(now.steady, usual, canary));
        self.back = None;
    }

    /// The version that is offered is not sound for this member.
    pub(super) fn refuse(&mut self, why: &str) {
        if let Some(offer) = self.offer.take() {
            self.record.refuse(offer.version, why);
        }
    }

    /// The version in force has stood its trial.
    pub(super) fn settle(&mut self) {
        self.trial = None;
        self.record.settle();
    }

    /// The version before is in force from now on; returns the one that was.
    pub(super) fn go_back(&mut self, why: &str) -> Option<u64> {
        self.trial = None;
        let gone = self.record.go_back(why)?;
        self.back = Some((gone, why.to_owned()));
        // Which was offered before is judged anew.
        self.offer = self.offer.take().filter(|it| self.record.judge(it.version) == Offer::New);
        Some(gone)
    }

    /// What was refused may be taken again, once it is offered anew; returns how much.
    pub(super) fn forgive(&mut self) -> usize {
        self.back = None;
        self.record.forgive()
    }

    /// Returns the version that is offered and not taken yet.
    pub(super) fn offered(&self) -> Option<u64> {
        self.offer.map(|offer| offer.version)
    }

    /// Names the state, with its reason, and how many seconds are left of it.
    pub(super) fn state(&self, now: Now) -> (&'static str, Option<String>, Option<u64>) {
        if let Some(trial) = &self.trial {
            let state = if trial.canary { "canary" } else { "trial" };
            let watched = now.steady.saturating_sub(trial.since);
            if watched < self.settings.watch {
                return (state, None, Some((self.settings.watch - watched).as_secs()));
            }
            let why = format!("it has decided {} of the {ENOUGH} required requests", trial.decided);
            return (state, Some(why), Some(self.settings.idle.saturating_sub(watched).as_secs()));
        }
        if let Some(offer) = &self.offer {
            let left = self.until(offer).saturating_sub(now.wall);
            let why = format!(
                "version {} is tried by {} of all, and this member is none of them",
                offer.version, offer.canary
            );
            return ("waiting", Some(why), Some(left));
        }
        if let Some((version, why)) = &self.back {
            return ("rolled_back", Some(format!("version {version}: {why}")), None);
        }
        (if self.record.in_force().is_some() { "confirmed" } else { "local" }, None, None)
    }
}

#[cfg(test)]
mod tests;
