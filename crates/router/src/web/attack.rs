//! Attacks: when one began and ended, by a rule that anybody can check.
//!
//! A second is *hot* in which the gate drops at least [`PACKETS`] packets a second and at least
//! one in [`SHARE`] of all that it received. An attack begins with the first of [`BEGIN`] hot
//! seconds of [`WITHIN`], and ends with the last hot second before [`QUIET`] that are not. So it
//! is what the gate has to hold off that counts, and not how much there is: a flood that is
//! declined in the kernel is an attack until it ceases, a flood of granted traffic is none,
//! neither is one client over its rate beside others, nor a scan.
//!
//! Dropped are the packets that only a gate drops ([`Verdict::is_gates`]): requests that lost
//! their places, declined flows, those over their rate, and the rest. The last [`KEPT`] attacks
//! are remembered, with what they came to.
//!
//! [`Verdict::is_gates`]: crate::datapath::Verdict::is_gates

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};

/// Packets dropped in a hot second, at least.
const PACKETS: u64 = 100;
/// And one in so many of those received.
const SHARE: u64 = 10;
/// Hot seconds that make an attack.
const BEGIN: usize = 3;
/// Seconds within which these are.
const WITHIN: usize = 5;
/// Seconds without a hot one that end it.
const QUIET: usize = 10;
/// Attacks that are remembered.
const KEPT: usize = 64;

/// The rule, for who shows it.
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

/// What an attack was.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Attack {
    /// When its first hot second began, in seconds since 1970.
    pub(super) began: f64,
    /// When its last one ended; none while it lasts.
    pub(super) ended: Option<f64>,
    /// The most packets a second that were received.
    received_peak: u64,
    /// The most that were dropped.
    dropped_peak: u64,
    /// All that were dropped, by reason.
    dropped: BTreeMap<String, u64>,
}

/// What was seen in a second.
#[derive(Clone, Debug)]
pub(super) struct Second {
    /// When it ended.
    pub(super) time: f64,
    /// How long it was.
    pub(super) seconds: f64,
    /// Packets.
    pub(super) received: u64,
    /// Packets that the gate dropped, by reason.
    pub(super) dropped: Vec<(&'static str, u64)>,
}

impl Second {
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

/// All that are remembered, the newest last.
#[derive(Debug, Default)]
pub(super) struct Attacks {
    all: VecDeque<Attack>,
    on: bool,
    /// Attacks that have begun since the start.
    begun: u64,
    /// The last seconds: those that may turn out to be the beginning.
    last: VecDeque<Second>,
    /// Seconds since the last hot one, and when that ended.
    quiet: usize,
    hot_until: f64,
}

/// The attacks as they are kept over a restart.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Kept {
    all: VecDeque<Attack>,
    /// When the last hot second ended.
    hot_until: f64,
}

impl Attacks {
    /// Goes on with the attacks of before `now`; returns how many. The time in which nobody looked
    /// has no hot second.
    pub(super) fn resume(&mut self, kept: Kept, now: f64) -> usize {
        let Kept { mut all, hot_until } = kept;
        let over = all.len().saturating_sub(KEPT);
        all.drain(..over);
        let quiet = (now - hot_until).max(0.0) as usize;
        (self.quiet, self.hot_until) = (quiet, hot_until);
        if let Some(last) = all.back_mut().filter(|last| last.ended.is_none()) {
            self.on = quiet < QUIET;
            last.ended = (!self.on).then_some(hot_until);
        }
        self.all = all;
        self.all.len()
    }

    /// Returns what is to be kept over a restart.
    pub(super) fn kept(&self) -> Kept {
        Kept { all: self.all.clone(), hot_until: self.hot_until }
    }

    /// Looks at another second.
    pub(super) fn see(&mut self, second: Second) {
        let hot = second.is_hot();
        if hot {
            (self.quiet, self.hot_until) = (0, second.time);
        } else {
            self.quiet += 1;
        }
        if self.on {
            if let Some(attack) = self.all.back_mut() {
                attack.grow(&second);
                if self.quiet >= QUIET {
                    attack.ended = Some(self.hot_until);
                    self.on = false;
                    self.last.clear();
                }
            }
            return;
        }
        self.last.push_back(second);
        if self.last.len() > WITHIN {
            self.last.pop_front();
        }
        if self.last.iter().filter(|it| it.is_hot()).count() >= BEGIN {
            self.begin();
        }
    }

    fn begin(&mut self) {
        let seconds = std::mem::take(&mut self.last);
        let mut hot = seconds.into_iter().skip_while(|it| !it.is_hot()).peekable();
        let Some(first) = hot.peek() else { return };
        let mut attack = Attack {
            began: first.time - first.seconds,
            ended: None,
            received_peak: 0,
            dropped_peak: 0,
            dropped: BTreeMap::new(),
        };
        hot.for_each(|second| attack.grow(&second));
        if self.all.len() == KEPT {
            self.all.pop_front();
        }
        self.all.push_back(attack);
        self.on = true;
        self.begun += 1;
    }

    /// Returns the attack that is going on, if there is one.
    pub(super) fn current(&self) -> Option<&Attack> {
        self.all.back().filter(|_| self.on)
    }

    /// Counts the attacks that have begun since the start.
    pub(super) fn begun(&self) -> u64 {
        self.begun
    }

    /// Tells of all.
    pub(super) fn told(&self) -> &VecDeque<Attack> {
        &self.all
    }
}

impl Attack {
    /// Returns how it began, in words.
    pub(super) fn beginning(&self) -> String {
        let Self { received_peak, dropped_peak, .. } = self;
        format!("{received_peak} packets/s, of which {dropped_peak} are dropped")
    }

    /// Returns how it ended, in words.
    pub(super) fn end(&self) -> String {
        let lasted = self.ended.map_or(0.0, |ended| ended - self.began);
        let total: u64 = self.dropped.values().sum();
        let most = self.dropped.iter().max_by_key(|(_, count)| **count);
        let most = most.map(|(reason, _)| format!(", most as {reason}")).unwrap_or_default();
        format!("after {lasted:.0} s: {total} packets dropped{most}")
    }

    fn grow(&mut self, second: &Second) {
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

    /// Sees seconds in which so many were received and dropped, from 1000 on.
    fn after(seconds: &[(u64, u64)]) -> Attacks {
        let mut attacks = Attacks::default();
        for (at, &(received, dropped)) in seconds.iter().enumerate() {
            let dropped = vec![("declined", dropped / 4), ("low_priority", dropped - dropped / 4)];
            attacks.see(Second { time: 1000.0 + at as f64, seconds: 1.0, received, dropped });
        }
        attacks
    }

    const QUIETLY: (u64, u64) = (5000, 99);
    const HOT: (u64, u64) = (1000, 100);

    #[test]
    fn an_attack_begins_with_its_first_hot_second_and_ends_with_its_last() {
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
        // All seconds from its beginning to where it was known to be over.
        let all: u64 = seconds[4..].iter().map(|it| it.1).sum();
        assert_eq!(dropped.values().sum::<u64>(), all);
        assert!(dropped["low_priority"] > dropped["declined"]);
    }

    #[test]
    fn log_lines_have_the_numbers_of_the_attack() {
        let mut seconds = vec![QUIETLY; 4];
        seconds.extend([HOT, QUIETLY, HOT, (9000, 4000)]);
        let begun = after(&seconds);
        assert_eq!(begun.begun(), 1);
        let line = begun.current().unwrap().beginning();
        assert_eq!(line, "9000 packets/s, of which 4000 are dropped");
        seconds.extend([QUIETLY; QUIET]);
        let ended = after(&seconds);
        assert!(ended.current().is_none() && ended.begun() == 1);
        let line = ended.told()[0].end();
        assert!(
            line.starts_with("after 4 s: ") && line.ends_with(", most as low_priority"),
            "{line}"
        );
    }

    #[test]
    fn what_is_none() {
        // Two hot seconds; many drops that are few of all; few of few.
        for seconds in [[(1000, 500), (1000, 0)], [(5_000_000, 400_000), (0, 0)], [(50, 50); 2]] {
            let seconds: Vec<_> = seconds.into_iter().cycle().take(40).collect();
            let alternating = seconds[0] == (1000, 500);
            let seconds = if alternating { &seconds[..4] } else { &seconds[..] };
            assert!(after(seconds).all.is_empty(), "{seconds:?}");
        }
    }

    #[test]
    fn the_oldest_are_forgotten() {
        let one: Vec<_> = [[HOT; BEGIN].as_slice(), &[QUIETLY; QUIET]].concat();
        let attacks = after(&one.repeat(KEPT + 3));
        assert_eq!(attacks.all.len(), KEPT);
        assert!(attacks.all.iter().all(|it| it.ended == Some(it.began + BEGIN as f64)));
    }
}
