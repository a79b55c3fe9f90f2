//! Detects the start and the end of attacks by a rule that can be verified by hand.
//!
//! A second is *hot* if the gate drops at least [`PACKETS`] packets a second and at least
//! one in [`SHARE`] of all that it received. An attack begins with the first of [`BEGIN`] hot
//! seconds within [`WITHIN`], and ends with the last hot second before [`QUIET`] others. The rule
//! measures what the gate drops and not the total: a declined flood is an attack until it ceases, a
//! flood of granted traffic is none, and neither is one client over its rate among others, nor a
//! scan.
//!
//! Only the verdicts of a gate count as drops ([`Verdict::is_gates`]): evicted requests, declined
//! flows, flows over their rate, and others. The last [`MAX_ATTACKS`] attacks are recorded, with
//! their totals.
//!
//! [`Verdict::is_gates`]: datapath::Verdict::is_gates

use std::collections::{BTreeMap, VecDeque};

use api::{AttackReport, AttackedDestination};
use serde::{Deserialize, Serialize};

use super::destinations::{Destination, DestinationList};

/// The least packets dropped in a hot second.
const PACKETS: u64 = 100;
/// At least one in this many received packets is dropped in a hot second.
const SHARE: u64 = 10;
/// The hot seconds with which an attack begins.
const BEGIN: usize = 3;
/// The seconds within which these occur.
const WITHIN: usize = 5;
/// The seconds without a hot one after which an attack has ended.
const QUIET: usize = 10;
/// The most destinations in a report.
const REPORTED: usize = 16;
/// The most attacks recorded.
const MAX_ATTACKS: usize = 64;

/// The constants of the rule, for display.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Rule {
    packets: u64,
    share: u64,
    begin: usize,
    within: usize,
    quiet: usize,
}

/// The rule in force.
pub(super) const RULE: Rule =
    Rule { packets: PACKETS, share: SHARE, begin: BEGIN, within: WITHIN, quiet: QUIET };

/// An attack.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Attack {
    /// The start of its first hot second, in seconds since 1970.
    pub(super) began: f64,
    /// The end of its last hot second; none while the attack lasts.
    pub(super) ended: Option<f64>,
    /// The highest rate of received packets, a second.
    received_peak: u64,
    /// The highest rate of dropped packets, a second.
    dropped_peak: u64,
    /// All dropped packets, by reason.
    dropped: BTreeMap<String, u64>,
}

/// The traffic of a second.
#[derive(Clone, Debug)]
pub(super) struct TrafficSecond {
    /// The time at its end.
    pub(super) time: f64,
    /// Its length.
    pub(super) seconds: f64,
    /// Packets received.
    pub(super) received: u64,
    /// Packets dropped by the gate, by reason.
    pub(super) dropped: Vec<(&'static str, u64)>,
}

impl TrafficSecond {
    fn all_dropped(&self) -> u64 {
        self.dropped.iter().map(|(_, count)| count).sum()
    }

    fn rate(&self, count: u64) -> u64 {
        (count as f64 / self.seconds.max(0.1)) as u64
    }

    fn is_hot(&self) -> bool {
        let dropped = self.all_dropped();
        self.rate(dropped) >= PACKETS && dropped.saturating_mul(SHARE) >= self.received
    }
}

/// The recorded attacks, the newest last.
#[derive(Debug, Default)]
pub(super) struct Attacks {
    all: VecDeque<Attack>,
    is_active: bool,
    /// Attacks that have begun since the start.
    begun: u64,
    /// The last seconds, which may become the beginning of an attack.
    last: VecDeque<TrafficSecond>,
    /// Seconds since the last hot one, and the time at the end of that.
    quiet: usize,
    hot_until: f64,
}

/// The attacks as they are saved for a restart.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct AttackLog {
    all: VecDeque<Attack>,
    /// The time at the end of the last hot second.
    hot_until: f64,
}

impl Attacks {
    /// Continues saved attacks; returns their number. The time without a process counts as quiet.
    pub(super) fn resume(&mut self, saved: AttackLog, now: f64) -> usize {
        let AttackLog { mut all, hot_until } = saved;
        let excess = all.len().saturating_sub(MAX_ATTACKS);
        all.drain(..excess);
        let quiet = (now - hot_until).max(0.0) as usize;
        (self.quiet, self.hot_until) = (quiet, hot_until);
        if let Some(last) = all.back_mut().filter(|last| last.ended.is_none()) {
            self.is_active = quiet < QUIET;
            last.ended = (!self.is_active).then_some(hot_until);
        }
        self.all = all;
        self.all.len()
    }

    /// Returns the attacks to be saved for a restart.
    pub(super) fn to_log(&self) -> AttackLog {
        AttackLog { all: self.all.clone(), hot_until: self.hot_until }
    }

    /// Evaluates the next second.
    pub(super) fn add(&mut self, second: TrafficSecond) {
        if second.is_hot() {
            (self.quiet, self.hot_until) = (0, second.time);
        } else {
            self.quiet += 1;
        }
        if self.is_active {
            if let Some(attack) = self.all.back_mut() {
                attack.add(&second);
                if self.quiet >= QUIET {
                    attack.ended = Some(self.hot_until);
                    self.is_active = false;
                    self.last.clear();
                }
            }
            return;
        }
        self.last.push_back(second);
        if self.last.len() > WITHIN {
            self.last.pop_front();
        }
        if self.last.iter().filter(|second| second.is_hot()).count() >= BEGIN {
            self.begin();
        }
    }

    fn begin(&mut self) {
        let seconds = std::mem::take(&mut self.last);
        let mut hot = seconds.into_iter().skip_while(|second| !second.is_hot()).peekable();
        let Some(first) = hot.peek() else { return };
        let mut attack = Attack {
            began: first.time - first.seconds,
            ended: None,
            received_peak: 0,
            dropped_peak: 0,
            dropped: BTreeMap::new(),
        };
        hot.for_each(|second| attack.add(&second));
        if self.all.len() == MAX_ATTACKS {
            self.all.pop_front();
        }
        self.all.push_back(attack);
        self.is_active = true;
        self.begun += 1;
    }

    /// Returns the current attack, if there is one.
    pub(super) fn current(&self) -> Option<&Attack> {
        self.all.back().filter(|_| self.is_active)
    }

    /// Returns the number of attacks that have begun since the start.
    pub(super) fn begun(&self) -> u64 {
        self.begun
    }

    /// Lists the recorded attacks.
    pub(super) fn list(&self) -> &VecDeque<Attack> {
        &self.all
    }
}

impl Attack {
    /// Describes the beginning, for the log.
    pub(super) fn describe_start(&self) -> String {
        let Self { received_peak, dropped_peak, .. } = self;
        format!("{received_peak} packets/s, of which {dropped_peak} are dropped")
    }

    /// Describes the end, for the log.
    pub(super) fn describe_end(&self) -> String {
        let lasted = self.ended.map_or(0.0, |ended| ended - self.began);
        let total: u64 = self.dropped.values().sum();
        let most = self.dropped.iter().max_by_key(|(_, count)| **count);
        let most = most.map(|(reason, _)| format!(", most as {reason}")).unwrap_or_default();
        format!("after {lasted:.0} s: {total} packets dropped{most}")
    }

    /// Returns the report for a fleet, with the rates of the last second.
    pub(super) fn report(
        &self,
        second: &TrafficSecond,
        destinations: &DestinationList,
    ) -> AttackReport {
        let destination = |of: &Destination| AttackedDestination {
            destination: of.destination,
            received_rate: of.packets,
            dropped_rate: of.dropped,
        };
        AttackReport {
            began: self.began,
            ended: self.ended,
            received_rate: second.rate(second.received),
            dropped_rate: second.rate(second.all_dropped()),
            dropped_peak: self.dropped_peak,
            dropped: self.dropped.clone(),
            destinations: destinations
                .destinations
                .iter()
                .take(REPORTED)
                .map(destination)
                .collect(),
        }
    }

    fn add(&mut self, second: &TrafficSecond) {
        self.received_peak = self.received_peak.max(second.rate(second.received));
        self.dropped_peak = self.dropped_peak.max(second.rate(second.all_dropped()));
        for &(reason, count) in second.dropped.iter().filter(|(_, count)| *count > 0) {
            *self.dropped.entry(reason.to_owned()).or_default() += count;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Evaluates seconds with these numbers of received and dropped packets, from time 1000 on.
    fn after(seconds: &[(u64, u64)]) -> Attacks {
        let mut attacks = Attacks::default();
        for (at, &(received, dropped)) in seconds.iter().enumerate() {
            let dropped = vec![("declined", dropped / 4), ("low_priority", dropped - dropped / 4)];
            let time = 1000.0 + at as f64;
            attacks.add(TrafficSecond { time, seconds: 1.0, received, dropped });
        }
        attacks
    }

    const QUIETLY: (u64, u64) = (5000, 99);
    const HOT: (u64, u64) = (1000, 100);

    #[test]
    fn attack_begins_with_its_first_hot_second_and_ends_with_its_last() {
        let mut seconds = vec![QUIETLY; 4];
        seconds.extend([HOT, QUIETLY, HOT, (9000, 4000), QUIETLY, QUIETLY, HOT]);
        assert!(after(&seconds[..7]).all.is_empty());
        let begun = after(&seconds);
        assert_eq!((begun.all.len(), begun.all[0].began, begun.all[0].ended), (1, 1003.0, None));
        seconds.extend([QUIETLY; QUIET]);
        let Attack { began, ended, received_peak, dropped_peak, dropped } =
            after(&seconds).all[0].clone();
        assert_eq!((began, ended), (1003.0, Some(1010.0)));
        assert_eq!((received_peak, dropped_peak), (9000, 4000));
        // All seconds from its beginning until its end was detected.
        let all: u64 = seconds[4..].iter().map(|second| second.1).sum();
        assert_eq!(dropped.values().sum::<u64>(), all);
        assert!(dropped["low_priority"] > dropped["declined"]);
    }

    #[test]
    fn log_lines_have_the_numbers_of_the_attack() {
        let mut seconds = vec![QUIETLY; 4];
        seconds.extend([HOT, QUIETLY, HOT, (9000, 4000)]);
        let begun = after(&seconds);
        assert_eq!(begun.begun(), 1);
        let line = begun.current().unwrap().describe_start();
        assert_eq!(line, "9000 packets/s, of which 4000 are dropped");
        seconds.extend([QUIETLY; QUIET]);
        let ended = after(&seconds);
        assert!(ended.current().is_none() && ended.begun() == 1);
        let line = ended.list()[0].describe_end();
        assert!(
            line.starts_with("after 4 s: ") && line.ends_with(", most as low_priority"),
            "{line}"
        );
    }

    #[test]
    fn few_or_rare_drops_are_no_attack() {
        // Two hot seconds; many drops with a small share of all; few drops of few packets.
        for seconds in [[(1000, 500), (1000, 0)], [(5_000_000, 400_000), (0, 0)], [(50, 50); 2]] {
            let seconds: Vec<_> = seconds.into_iter().cycle().take(40).collect();
            let alternating = seconds[0] == (1000, 500);
            let seconds = if alternating { &seconds[..4] } else { &seconds[..] };
            assert!(after(seconds).all.is_empty(), "{seconds:?}");
        }
    }

    #[test]
    fn oldest_attacks_are_discarded() {
        let attack: Vec<_> = [[HOT; BEGIN].as_slice(), &[QUIETLY; QUIET]].concat();
        let attacks = after(&attack.repeat(MAX_ATTACKS + 3));
        assert_eq!(attacks.all.len(), MAX_ATTACKS);
        let is_whole = |attack: &Attack| attack.ended == Some(attack.began + BEGIN as f64);
        assert!(attacks.all.iter().all(is_whole));
    }
}
