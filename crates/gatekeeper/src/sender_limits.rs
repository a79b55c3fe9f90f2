//! Limits for each sender, and the retraction of its decisions when it is removed.
//!
//! ```text
//!   authentic item ─► destination within the sender's prefixes? ─► expiry capped ─► room among its
//!                        │ no: outside_prefixes                                     prefix decisions? ─► workers
//!                        ▼                                                             │ no: over_prefix_limit
//!                     refused                                                          ▼ refused
//! ```
//!
//! A key proves the sender of a message, and not that its decisions are sound: an attacker that
//! compromises a grantor has its key. So a sender decides about its own destinations, for a bounded
//! time, and by a bounded number of prefixes, of which all senders together have few
//! ([`gate::gate::MAX_PREFIX_DECISIONS`]).
//!
//! **Retraction.** The removal of a sender or a key from the configuration, and
//! `fingerpost flow flush`, retract its decisions: each flow that it granted, declined or gave a
//! program sends requests again. Their stamps identify these decisions: the sender, and numbers up
//! to the highest received under the key. Decisions that remain from an earlier run of the gate
//! (`retained.rs`) have lower numbers than those of this session, and are retracted with any key.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use feed::netlink::AnyPrefix;
use gate::decision::v2::keys::Keys;
use gate::decision::{FlowCommand, Item, Scope};
use gate::state::{Decision, Stamp};

/// The default maximum lifetime of a decision, in seconds: a day.
pub(super) const MAX_EXPIRY: u32 = 86_400;
/// The default maximum number of a sender's prefix decisions in force.
pub(super) const MAX_PREFIX_DECISIONS: usize = 16;

/// The limits of a sender.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SenderLimits {
    /// The destinations that it may decide about; all if empty.
    pub prefixes: Vec<AnyPrefix>,
    /// The maximum lifetime of a decision, in seconds.
    pub max_expiry: u32,
    /// The maximum number of prefix decisions in force.
    pub max_prefix_decisions: usize,
}

impl Default for SenderLimits {
    fn default() -> Self {
        Self {
            prefixes: Vec::new(),
            max_expiry: MAX_EXPIRY,
            max_prefix_decisions: MAX_PREFIX_DECISIONS,
        }
    }
}

/// Why an item is refused; the names are those of counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LimitExceeded {
    /// Its destinations are outside of the sender's prefixes.
    Prefixes,
    /// The sender has too many prefix decisions in force.
    PrefixDecisions,
}

impl SenderLimits {
    /// Returns whether all destinations of a scope are within the sender's prefixes.
    fn covers(&self, scope: &Scope) -> bool {
        let within = |prefix: &AnyPrefix| match (prefix, scope) {
            (AnyPrefix::V4(prefix), Scope::V4(_, dst)) => prefix.covers(*dst),
            (AnyPrefix::V6(prefix), Scope::V6(_, dst)) => prefix.covers(*dst),
            _ => false,
        };
        self.prefixes.is_empty() || self.prefixes.iter().any(within)
    }

    /// Shortens a decision to its sender's maximum lifetime; returns whether it was longer.
    pub(super) fn cap(&self, command: &mut FlowCommand) -> bool {
        let expire_s = match command {
            FlowCommand::Decide(Decision::Decline { expire_s }) => expire_s,
            FlowCommand::Decide(Decision::Provisional(held)) => &mut held.expire_s,
            FlowCommand::Decide(Decision::Grant(grant)) => {
                // A flow requests a renewal before its grant expires.
                let latest = grant.expire_s.min(self.max_expiry).saturating_mul(1000);
                if grant.expire_s > self.max_expiry && grant.next_renewal_ms >= latest {
                    grant.next_renewal_ms = latest / 10 * 8;
                }
                &mut grant.expire_s
            }
            FlowCommand::Run(program) => &mut program.expire_s,
            FlowCommand::Flush => return false,
        };
        let longer = *expire_s > self.max_expiry;
        *expire_s = (*expire_s).min(self.max_expiry);
        longer
    }
}

/// Enforces the limits of all senders, and knows their prefix decisions in force.
#[derive(Debug, Default)]
pub(super) struct SenderPolicer {
    limits: BTreeMap<u32, SenderLimits>,
    /// Each sender's prefix decisions and their expiry.
    prefix_decisions: BTreeMap<u32, Vec<(Scope, Instant)>>,
    /// The numbers received from each sender in this session: the first, and the highest by key.
    received: BTreeMap<u32, (u64, BTreeMap<u16, u64>)>,
}

/// Decisions to retract: those of a sender, up to a number.
pub(super) type Retraction = Stamp;

impl SenderPolicer {
    /// Sets the limits of senders.
    pub(super) fn set_limits(&mut self, limits: &[(u32, SenderLimits)]) {
        self.limits = limits.iter().cloned().collect();
    }

    /// Admits an item of a sender, shortened to its limit, and returns whether it was shortened.
    pub(super) fn admit(
        &mut self,
        sender: u32,
        item: &mut Item,
        now: Instant,
    ) -> Result<bool, LimitExceeded> {
        let default = SenderLimits::default();
        let limits = self.limits.get(&sender).unwrap_or(&default);
        if !limits.covers(&item.scope) {
            return Err(LimitExceeded::Prefixes);
        }
        let capped = limits.cap(&mut item.command);
        if item.scope.flow().is_some() {
            return Ok(capped);
        }
        let expire_s = match item.command {
            FlowCommand::Decide(Decision::Decline { expire_s }) => expire_s,
            FlowCommand::Decide(Decision::Provisional(held)) => held.expire_s,
            FlowCommand::Decide(Decision::Grant(grant)) => grant.expire_s,
            FlowCommand::Run(program) => program.expire_s,
            FlowCommand::Flush => 0,
        };
        let in_force = self.prefix_decisions.entry(sender).or_default();
        in_force.retain(|(scope, until)| *until > now && *scope != item.scope);
        if in_force.len() >= limits.max_prefix_decisions {
            return Err(LimitExceeded::PrefixDecisions);
        }
        in_force.push((item.scope, now + Duration::from_secs(expire_s.into())));
        Ok(capped)
    }

    /// Records a decision received under a key.
    pub(super) fn record(&mut self, stamp: Stamp, key: u16) {
        let (_, by_key) =
            self.received.entry(stamp.sender).or_insert((stamp.number, BTreeMap::new()));
        let highest = by_key.entry(key).or_default();
        *highest = stamp.number.max(*highest);
    }

    /// Returns the retraction of all decisions of a sender so far.
    pub(super) fn flush(&mut self, sender: u32) -> Retraction {
        self.prefix_decisions.remove(&sender);
        let by_key = self.received.get(&sender).map(|(_, by_key)| by_key.values().max());
        Stamp { sender, number: by_key.flatten().copied().unwrap_or(u64::MAX) }
    }

    /// Returns the retractions for a change of senders' keys: all decisions of a removed sender, and
    /// the decisions received under a removed key or a key with another secret.
    pub(super) fn retractions(
        &mut self,
        before: &[(u32, Keys)],
        after: &[(u32, Keys)],
        session: u64,
    ) -> Vec<Retraction> {
        let mut retractions = Vec::new();
        for (sender, keys) in before {
            let Some((_, next)) = after.iter().find(|(id, _)| id == sender) else {
                self.prefix_decisions.remove(sender);
                retractions.push(Stamp { sender: *sender, number: u64::MAX });
                continue;
            };
            let secret = |keys: &Keys, number| keys.tunnel(number, session);
            let mut old = keys.numbers();
            old.retain(|&number| secret(keys, number) != secret(next, number));
            let received = self.received.get(sender);
            let highest = |key: u16| match received {
                // Only decisions of an earlier run can be of this key.
                Some((first, by_key)) => by_key.get(&key).copied().unwrap_or(first - 1),
                None => u64::MAX,
            };
            if let Some(number) = old.into_iter().map(highest).max() {
                self.prefix_decisions.remove(sender);
                retractions.push(Stamp { sender: *sender, number });
            }
        }
        retractions
    }
}

#[cfg(test)]
mod tests {
    use gate::flow::Flow;
    use gate::state::Grant;

    use super::*;

    const DST: u32 = 0xc000_0207;

    fn decline(scope: Scope, expire_s: u32) -> Item {
        Item { scope, command: FlowCommand::Decide(Decision::Decline { expire_s }) }
    }

    fn prefix_scope(source: &str, destination: &str) -> Scope {
        Scope::V4(source.parse().unwrap(), destination.parse().unwrap())
    }

    #[test]
    fn decision_is_shortened_to_its_senders_maximum_lifetime() {
        let mut policer = SenderPolicer::default();
        let flow = Scope::of(&Flow::v4(1, DST));
        for (sender, most) in [(1, MAX_EXPIRY), (2, 600)] {
            policer.set_limits(&[(2, SenderLimits { max_expiry: 600, ..SenderLimits::default() })]);
            for seconds in [1, 600, 601, MAX_EXPIRY, MAX_EXPIRY + 1, u32::MAX] {
                let mut item = decline(flow, seconds);
                let capped = policer.admit(sender, &mut item, Instant::now());
                assert_eq!(capped, Ok(seconds > most));
                assert_eq!(item, decline(flow, seconds.min(most)));
                let terms = Grant {
                    rate_kib: 1,
                    expire_s: seconds,
                    next_renewal_ms: seconds.saturating_mul(800),
                    renewal_step_ms: 1000,
                };
                let mut item =
                    Item { scope: flow, command: FlowCommand::Decide(Decision::Grant(terms)) };
                policer.admit(sender, &mut item, Instant::now()).unwrap();
                let FlowCommand::Decide(Decision::Grant(capped)) = item.command else {
                    panic!("{item:?}")
                };
                assert_eq!(capped.expire_s, seconds.min(most));
                assert!(capped.next_renewal_ms < capped.expire_s.saturating_mul(1000));
            }
        }
    }

    #[test]
    fn decision_outside_the_prefixes_of_its_sender_is_refused() {
        let mut policer = SenderPolicer::default();
        let prefixes = vec![
            AnyPrefix::V4("192.0.2.0/24".parse().unwrap()),
            AnyPrefix::V6("2001:db8::/32".parse().unwrap()),
        ];
        policer.set_limits(&[(1, SenderLimits { prefixes, ..SenderLimits::default() })]);
        let six = 0x2001_0db8 << 96;
        for (scope, expect) in [
            (Scope::of(&Flow::v4(9, DST)), true),
            (Scope::of(&Flow::v4(DST, 9)), false),
            (Scope::of(&Flow::v6(9, six | 1)), true),
            (Scope::of(&Flow::v6(six | 1, 9)), false),
            (prefix_scope("0.0.0.0/0", "192.0.2.128/25"), true),
            (prefix_scope("0.0.0.0/0", "192.0.2.0/23"), false),
            (prefix_scope("192.0.2.0/24", "0.0.0.0/0"), false),
        ] {
            for mut item in [decline(scope, 5), Item { scope, command: FlowCommand::Flush }] {
                let admitted = policer.admit(1, &mut item, Instant::now());
                let refused = if expect { Ok(false) } else { Err(LimitExceeded::Prefixes) };
                assert_eq!(admitted, refused, "{scope:?}");
                assert_eq!(
                    policer.admit(2, &mut item, Instant::now()),
                    Ok(false),
                    "another sender"
                );
            }
        }
    }

    #[test]
    fn prefix_decisions_beyond_the_senders_limit_are_refused() {
        let mut policer = SenderPolicer::default();
        policer.set_limits(&[(
            1,
            SenderLimits { max_prefix_decisions: 3, ..SenderLimits::default() },
        )]);
        let begin = Instant::now();
        let scope = |n: u32| prefix_scope(&format!("10.{n}.0.0/16"), "192.0.2.0/24");
        let mut admit = |sender, n, expire_s, after| {
            let now = begin + Duration::from_secs(after);
            policer.admit(sender, &mut decline(scope(n), expire_s), now)
        };
        assert!((0..3).all(|n| admit(1, n, 10 + n, 0) == Ok(false)));
        assert_eq!(admit(1, 3, 10, 0), Err(LimitExceeded::PrefixDecisions));
        assert_eq!(admit(2, 3, 10, 0), Ok(false), "another sender has its own");
        assert_eq!(admit(1, 1, 99, 1), Ok(false), "the same prefixes again");
        assert_eq!(admit(1, 3, 10, 9), Err(LimitExceeded::PrefixDecisions));
        assert_eq!(admit(1, 3, 10, 10), Ok(false), "the first has expired");
    }

    #[test]
    fn removed_key_retracts_decisions_received_under_it_only() {
        let both = || {
            let mut keys = Keys::new(1, &[1; 32]);
            keys.add(2, &[2; 32]);
            keys
        };
        let retractions = |policer: &mut SenderPolicer, after: Option<Keys>| {
            let after: Vec<_> = after.into_iter().map(|keys| (7, keys)).collect();
            policer.retractions(&[(7, both())], &after, 99)
        };
        let all = Stamp { sender: 7, number: u64::MAX };
        let mut policer = SenderPolicer::default();
        assert_eq!(retractions(&mut policer, None), [all]);
        assert_eq!(retractions(&mut policer, Some(both())), []);
        assert_eq!(
            retractions(&mut policer, Some(Keys::new(2, &[2; 32]))),
            [all],
            "no message was received"
        );
        for (number, key) in [(100, 1), (105, 1), (104, 2), (110, 2)] {
            policer.record(Stamp { sender: 7, number }, key);
        }
        let up_to = |number| [Stamp { sender: 7, number }];
        assert_eq!(retractions(&mut policer, Some(Keys::new(2, &[2; 32]))), up_to(105));
        assert_eq!(retractions(&mut policer, Some(Keys::new(1, &[1; 32]))), up_to(110));
        let mut other = both();
        other.add(1, &[9; 32]);
        assert_eq!(
            retractions(&mut policer, Some(other)),
            up_to(105),
            "another secret under the number"
        );
        assert_eq!(retractions(&mut policer, None), [all]);
        assert_eq!(policer.flush(7), up_to(110)[0]);
        assert_eq!(policer.flush(8), Stamp { sender: 8, number: u64::MAX });
        let mut policer = SenderPolicer::default();
        policer.record(Stamp { sender: 7, number: 50 }, 2);
        assert_eq!(
            retractions(&mut policer, Some(Keys::new(2, &[2; 32]))),
            up_to(49),
            "of an earlier run"
        );
    }
}
