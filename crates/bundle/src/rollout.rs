//! The state machine of a rollout: decides when a member applies, confirms or rolls back a version.
//!
//! ```text
//!                        a higher version is offered
//!   local, confirmed ─┬─ canary, or canary_delay over ──► applied ─► canary, trial
//!           ▲         └─ else: waiting ──(time, or a larger canary share)─┘  │
//!           ├──────────────── trial_time over, enough requests ──────────────┤
//!           └── rolled_back: the previous version; this one is refused ◄─────┘ worse than before
//! ```
//!
//! A trial succeeds when `trial_time` is over and the version has decided [`MIN_REQUESTS`] requests:
//! a version without requests is untested. On a member with fewer requests, such as a standby, the
//! trial ends after `max_trial_time`, with a warning.
//!
//! The status of a member is one of these states ([`Rollout::state`]). While a version is on trial
//! the member applies no other one. The module reads no clock and no file. The persistent part of
//! the state is the [`RolloutRecord`]; the caller (`agent.rs`) writes it to disk before it executes
//! an [`Action`].

use std::time::Duration;

use super::bundle::BundleHeader;
use super::config::DistributionConfig;
use super::health::{Baseline, HealthSample, MIN_REQUESTS, SampleWindow};
use super::record::{Eligibility, RolloutRecord};

/// A moment by two clocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timestamp {
    /// Seconds since 1970, as a bundle states them.
    pub(super) wall: u64,
    /// Time since the start of the agent, from a clock that is never set.
    pub(super) monotonic: Duration,
}

/// The next action of the agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Action {
    None,
    /// Apply the offered version.
    Apply,
    /// Confirm the version in force: its trial succeeded, or reached its longest time, in which
    /// case there is a warning.
    Confirm(Option<String>),
    /// Roll back to the previous version, for this reason.
    RollBack(String),
}

/// A version on trial.
#[derive(Debug)]
struct Trial {
    since: Duration,
    baseline: Baseline,
    canary: bool,
    /// The member's count of decided requests at the first sample of the trial.
    first: Option<u64>,
    /// Requests that the version has decided since.
    decided: u64,
}

impl Trial {
    fn new(since: Duration, baseline: Baseline, canary: bool) -> Self {
        Self { since, baseline, canary, first: None, decided: 0 }
    }

    /// Records the member's count of requests. A count that restarts loses none.
    fn count(&mut self, decided: u64) {
        let first = self.first.get_or_insert(decided);
        if decided < *first {
            *first = 0;
        }
        self.decided = self.decided.max(decided - *first);
    }
}

/// The state machine.
#[derive(Debug)]
pub(super) struct Rollout {
    config: DistributionConfig,
    pub(super) record: RolloutRecord,
    offer: Option<BundleHeader>,
    trial: Option<Trial>,
    samples: SampleWindow,
    /// The version of the last rollback, and its reason.
    rolled_back: Option<(u64, String)>,
}

impl Rollout {
    /// Continues from a record. A version that was on trial is on trial again. The baseline from
    /// before it is lost, so that only failures and silent grantors can end that trial.
    pub(super) fn new(config: DistributionConfig, record: RolloutRecord, now: Timestamp) -> Self {
        let trial =
            record.trial_crashes.map(|_| Trial::new(now.monotonic, Baseline::default(), false));
        // The highest refused version, unless a higher one is in force.
        let refused = record.refused.last_key_value();
        let rolled_back = refused
            .filter(|(version, _)| record.in_force().is_none_or(|current| current < **version))
            .map(|(version, reason)| (*version, reason.clone()));
        Self { config, offer: None, trial, samples: SampleWindow::default(), rolled_back, record }
    }

    /// Takes an offered version, and returns whether it is eligible.
    pub(super) fn offer(&mut self, header: BundleHeader) -> Eligibility {
        let eligibility = self.record.eligibility(header.version);
        self.offer = (eligibility == Eligibility::New).then_some(header);
        eligibility
    }

    /// Adds a sample, and returns the next action.
    pub(super) fn step(&mut self, now: Timestamp, sample: HealthSample) -> Action {
        self.samples.push(now.monotonic, sample);
        if let Some(trial) = &mut self.trial {
            trial.count(sample.decided);
            if let Some(reason) = self.samples.regression(&trial.baseline, &self.config.limits) {
                return Action::RollBack(reason);
            }
            let elapsed = now.monotonic.saturating_sub(trial.since);
            if elapsed >= self.config.trial_time && trial.decided >= MIN_REQUESTS {
                return Action::Confirm(None);
            }
            if elapsed >= self.config.max_trial_time {
                return Action::Confirm(Some(format!(
                    "warning: confirmed after {} s although it has decided only {} requests",
                    elapsed.as_secs(),
                    trial.decided
                )));
            }
            return Action::None;
        }
        match self.offer {
            Some(offer) if self.is_canary(&offer) => Action::Apply,
            Some(offer) if self.available_at(&offer).is_some_and(|at| now.wall >= at) => {
                Action::Apply
            }
            _ => Action::None,
        }
    }

    fn is_canary(&self, offer: &BundleHeader) -> bool {
        offer.is_for(&self.config.name, &self.config.labels)
    }

    /// Returns the time, in seconds since 1970, at which a member that is no canary applies a
    /// version; none if the version will be signed again for it.
    fn available_at(&self, offer: &BundleHeader) -> Option<u64> {
        let at = offer.created.saturating_add(self.config.canary_delay.as_secs());
        (!offer.staged).then_some(at)
    }

    /// Puts the offered version in force, on trial.
    pub(super) fn start_trial(&mut self, now: Timestamp) {
        let Some(offer) = self.offer.take() else { return };
        self.record.start_trial(offer.version);
        let baseline = self.samples.baseline();
        self.samples.reset();
        let canary = self.is_canary(&offer);
        self.trial = Some(Trial::new(now.monotonic, baseline, canary));
        self.rolled_back = None;
    }

    /// Refuses the offered version, which is not valid for this member.
    pub(super) fn refuse(&mut self, reason: &str) {
        if let Some(offer) = self.offer.take() {
            self.record.refuse(offer.version, reason);
        }
    }

    /// Ends the trial of the version in force with success.
    pub(super) fn confirm(&mut self) {
        self.trial = None;
        self.record.confirm();
    }

    /// Puts the previous version in force, and refuses and returns the current one.
    pub(super) fn roll_back(&mut self, reason: &str) -> Option<u64> {
        self.trial = None;
        let refused = self.record.roll_back(reason)?;
        self.rolled_back = Some((refused, reason.to_owned()));
        // The record has changed: the pending offer may not be eligible any more.
        let offer = self.offer.take();
        self.offer =
            offer.filter(|offer| self.record.eligibility(offer.version) == Eligibility::New);
        Some(refused)
    }

    /// Makes refused versions eligible again for their next offer; returns their number.
    pub(super) fn clear_refused(&mut self) -> usize {
        self.rolled_back = None;
        self.record.clear_refused()
    }

    /// Returns the version that is offered and not applied yet.
    pub(super) fn offered(&self) -> Option<u64> {
        self.offer.map(|offer| offer.version)
    }

    /// Returns the name of the state, its reason, and the seconds that remain until it changes.
    pub(super) fn state(&self, now: Timestamp) -> (&'static str, Option<String>, Option<u64>) {
        if let Some(trial) = &self.trial {
            let state = if trial.canary { "canary" } else { "trial" };
            let elapsed = now.monotonic.saturating_sub(trial.since);
            if elapsed < self.config.trial_time {
                return (state, None, Some((self.config.trial_time - elapsed).as_secs()));
            }
            let reason =
                format!("it has decided {} of the {MIN_REQUESTS} required requests", trial.decided);
            let remaining = self.config.max_trial_time.saturating_sub(elapsed);
            return (state, Some(reason), Some(remaining.as_secs()));
        }
        if let Some(offer) = &self.offer {
            let remaining = self.available_at(offer).map(|at| at.saturating_sub(now.wall));
            let label = offer.label.map(|label| format!(" and those of label {label}"));
            let reason = format!(
                "version {} is on trial at {} of the members{}, and this member is none of these \
                 canaries",
                offer.version,
                offer.canary,
                label.unwrap_or_default()
            );
            return ("waiting", Some(reason), remaining);
        }
        if let Some((version, reason)) = &self.rolled_back {
            return ("rolled_back", Some(format!("version {version}: {reason}")), None);
        }
        (if self.record.in_force().is_some() { "confirmed" } else { "local" }, None, None)
    }
}

#[cfg(test)]
mod tests;
