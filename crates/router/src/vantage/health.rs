//! Which grantors live: one that says nothing for too long gets no flows until it speaks again.
//!
//! ```text
//!   sender ── last heard ──► silent for longer than its set allows? ──► weight 0 in the policy
//!                                   all of the set? nobody is
//! ```
//!
//! A grantor of version 2 says something at least every 200 ms (docs/decision-protocol.md, 3.6),
//! so that silence means that it, or the way from it, is gone. Its flows go to the others of its set,
//! those that were granted with their grants; no other flow moves (`gate::policy`). Where all of
//! a set are silent nobody is taken out: something else must be wrong, perhaps only the way
//! back, and to send packets to none of them would make sure of the damage.
//!
//! Who has not been heard yet is waited for as long, from when he came into the policy on. A reload
//! does not give flows back to who is silent.

use std::collections::BTreeMap;
use std::time::Instant;

use gate::policy::Address;

use super::config::{Member, Rules, Silent};

/// Which grantors are taken to be gone.
#[derive(Debug, Default)]
pub(super) struct Health {
    /// Since when each is in the policy.
    since: BTreeMap<(String, Address), Instant>,
    silent: Silent,
}

impl Health {
    /// Returns who is taken to be gone.
    pub(super) fn silent(&self) -> &Silent {
        &self.silent
    }

    /// Judges anew by when each sender was heard last; returns what has changed, in words.
    pub(super) fn look(
        &mut self,
        rules: &Rules,
        heard: &BTreeMap<u32, Instant>,
        now: Instant,
    ) -> Vec<String> {
        let (mut silent, mut since) = (Silent::new(), BTreeMap::new());
        for set in &rules.sets {
            let Some(limit) = set.hold_time else { continue };
            let mut gone = Vec::new();
            for Member { grantor, sender } in &set.members {
                let who = (set.name.clone(), grantor.address);
                let there = self.since.get(&who).copied().unwrap_or(now);
                let last = sender.and_then(|sender| heard.get(&sender).copied());
                let last = last.map_or(there, |last| last.max(there));
                if now.saturating_duration_since(last) > limit {
                    gone.push(who.clone());
                }
                since.insert(who, there);
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
        let told = gone.chain(back).collect();
        self.silent = silent;
        told
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use gate::policy::Grantor;

    use super::super::config::Set;
    use super::*;

    #[test]
    fn who_is_silent_gets_no_flows_unless_all_are() {
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
        let mut health = Health::default();
        assert!(health.look(&rules, &BTreeMap::new(), begin).is_empty());
        let mut heard = BTreeMap::new();
        let one = ("site".to_owned(), Address::V4(1));
        // Time is given to who was not heard yet, and to both alike.
        assert!(health.look(&rules, &heard, at(700)).is_empty());
        assert!(health.look(&rules, &heard, at(10_000)).is_empty(), "all are silent");
        heard.insert(2, at(10_000));
        let told = health.look(&rules, &heard, at(10_100));
        assert_eq!(told, ["grantor 0.0.0.1 of site is silent: others get its flows"]);
        assert_eq!(health.silent().iter().collect::<Vec<_>>(), [&one]);
        assert!(health.look(&rules, &heard, at(10_200)).is_empty(), "it is said once");
        heard.insert(1, at(10_300));
        let told = health.look(&rules, &heard, at(10_300));
        assert_eq!(told, ["grantor 0.0.0.1 of site gets its flows again"]);
        heard.insert(1, at(11_000));
        assert_eq!(health.look(&rules, &heard, at(11_000)).len(), 1, "now the other one");
        assert!(!health.silent().contains(&one));
        // Another policy: who is new in it is waited for, who is silent stays so.
        let rules = Rules { sets: vec![set("site", Some(700), &[1, 2, 4])], ..Rules::default() };
        heard.insert(1, at(20_000));
        assert!(health.look(&rules, &heard, at(20_000)).is_empty());
        assert_eq!(health.silent().len(), 1);
        heard.insert(1, at(20_701));
        assert_eq!(health.look(&rules, &heard, at(20_701)).len(), 1, "the new one too");
    }
}
