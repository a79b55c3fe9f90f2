//! The grantor monitor: takes a silent grantor out of the policy until it sends again.
//!
//! ```text
//!   sender ── last message ──► older than the set's hold time? ──► weight 0 in the policy
//!                                   all members of the set? no change
//! ```
//!
//! A grantor of version 2 sends a message at least every 200 ms (docs/decision-protocol.md, 3.6), so
//! that silence means a failed grantor or path. Its flows go to the other members of its set, granted
//! flows with their grants; no other flow moves (`gate::policy`). If all members of a set are silent,
//! none is taken out: the cause is probably elsewhere, perhaps only the path back, and a set without
//! members would drop all of its packets.
//!
//! A grantor that has not sent yet gets the same time, from its first appearance in the policy. A
//! reload does not give flows back to a silent grantor.

use std::collections::BTreeMap;
use std::time::Instant;

use gate::policy::Address;

use super::config::{Member, Rules, Silent};

/// The grantors that are considered silent.
#[derive(Debug, Default)]
pub(super) struct GrantorMonitor {
    /// The time at which each grantor came into the policy.
    since: BTreeMap<(String, Address), Instant>,
    silent: Silent,
}

impl GrantorMonitor {
    /// Returns the silent grantors.
    pub(super) fn silent(&self) -> &Silent {
        &self.silent
    }

    /// Updates the silent grantors by each sender's last message; returns a log line for each change.
    pub(super) fn update(
        &mut self,
        rules: &Rules,
        last_messages: &BTreeMap<u32, Instant>,
        now: Instant,
    ) -> Vec<String> {
        let (mut silent, mut since) = (Silent::new(), BTreeMap::new());
        for set in &rules.sets {
            let Some(limit) = set.hold_time else { continue };
            let mut gone = Vec::new();
            for Member { grantor, sender } in &set.members {
                let member = (set.name.clone(), grantor.address);
                let appeared = self.since.get(&member).copied().unwrap_or(now);
                let last = sender.and_then(|sender| last_messages.get(&sender).copied());
                let last = last.map_or(appeared, |last| last.max(appeared));
                if now.saturating_duration_since(last) > limit {
                    gone.push(member.clone());
                }
                since.insert(member, appeared);
            }
            if gone.len() < set.members.len() {
                silent.extend(gone);
            }
        }
        self.since = since;
        let gone = silent.difference(&self.silent).map(|(set, address)| {
            format!("grantor {address} of {set} is silent: others get its flows")
        });
        let back = self
            .silent
            .difference(&silent)
            .map(|(set, address)| format!("grantor {address} of {set} gets its flows again"));
        let lines = gone.chain(back).collect();
        self.silent = silent;
        lines
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use gate::policy::Grantor;

    use super::*;
    use crate::config::Set;

    #[test]
    fn silent_grantor_gets_no_flows_unless_all_are_silent() {
        let member = |number: u32| Member {
            grantor: Grantor { address: Address::V4(number), weight: 1 },
            sender: Some(number),
        };
        let set = |name: &str, hold_time: Option<u64>, members: &[u32]| Set {
            name: name.to_owned(),
            members: members.iter().copied().map(member).collect(),
            hold_time: hold_time.map(Duration::from_millis),
        };
        let sets = vec![set("site", Some(700), &[1, 2]), set("other", None, &[1, 3])];
        let rules = Rules { sets, ..Rules::default() };
        let begin = Instant::now();
        let at = |ms: u64| begin + Duration::from_millis(ms);
        let mut monitor = GrantorMonitor::default();
        assert!(monitor.update(&rules, &BTreeMap::new(), begin).is_empty());
        let mut heard = BTreeMap::new();
        let one = ("site".to_owned(), Address::V4(1));
        // A grantor without a message has the hold time too.
        assert!(monitor.update(&rules, &heard, at(700)).is_empty());
        assert!(monitor.update(&rules, &heard, at(10_000)).is_empty(), "all are silent");
        heard.insert(2, at(10_000));
        let lines = monitor.update(&rules, &heard, at(10_100));
        assert_eq!(lines, ["grantor 0.0.0.1 of site is silent: others get its flows"]);
        assert_eq!(monitor.silent().iter().collect::<Vec<_>>(), [&one]);
        assert!(monitor.update(&rules, &heard, at(10_200)).is_empty(), "one line a change");
        heard.insert(1, at(10_300));
        let lines = monitor.update(&rules, &heard, at(10_300));
        assert_eq!(lines, ["grantor 0.0.0.1 of site gets its flows again"]);
        heard.insert(1, at(11_000));
        assert_eq!(monitor.update(&rules, &heard, at(11_000)).len(), 1, "now the other one");
        assert!(!monitor.silent().contains(&one));
        // Another policy: a new grantor has its hold time, a silent one stays silent.
        let rules = Rules { sets: vec![set("site", Some(700), &[1, 2, 4])], ..Rules::default() };
        heard.insert(1, at(20_000));
        assert!(monitor.update(&rules, &heard, at(20_000)).is_empty());
        assert_eq!(monitor.silent().len(), 1);
        heard.insert(1, at(20_701));
        assert_eq!(monitor.update(&rules, &heard, at(20_701)).len(), 1, "the new one too");
    }
}
