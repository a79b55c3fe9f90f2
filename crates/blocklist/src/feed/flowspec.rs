//! The sources that BGP flow specifications (RFC 8955, RFC 8956) discard: a feed of GoBGP, BIRD or a controller of DDoS
//! defence.
//!
//! ```text
//!   BGP session ─► rules ─► those that discard by the source alone ─► prefixes ─► list
//! ```
//!
//! A list has sources only, so that a specification with other conditions, with a rate, or for some destinations is left
//! out, and so is one for a source that a specification before it accepts in part: no packet is dropped that the
//! specifications let pass. A router applies all of them by `[flowspec]`.
//!
//! When a session ends, its specifications are withdrawn, as BGP has it.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ::feed::AnyPrefix;
use acl::{Action, Addresses, Rule};
use fib::{Addr, Prefix};
use flowspec::{FlowspecOptions, Speaker, SpeakerEvent};
use threads::Stop;

use super::Feed;

/// The interval at which rules are looked for.
const INTERVAL: Duration = Duration::from_millis(100);

/// The flow specifications of BGP sessions.
#[derive(Debug)]
pub struct FlowspecFeed {
    _speaker: Speaker,
    /// The rules that the list does not have yet.
    rules: Arc<Mutex<Option<Vec<Rule>>>>,
    /// The number of rules that were left out at the last change.
    omitted: usize,
}

impl FlowspecFeed {
    /// Starts to listen in the network namespace of the calling thread.
    ///
    /// # Errors
    ///
    /// The system's error, for example if another process listens on the address.
    pub fn new(options: FlowspecOptions) -> Result<Self, String> {
        let listen = options.listen;
        // Without a session the list is empty: a file of the last time has no meaning.
        let rules = Arc::new(Mutex::new(Some(Vec::new())));
        let shared = Arc::clone(&rules);
        let report = move |event| match event {
            SpeakerEvent::Rules(rules) => {
                *shared.lock().unwrap_or_else(PoisonError::into_inner) = Some(rules.rules);
            }
            SpeakerEvent::Established(peer) => {
                log::info!(peer:%; "flowspec: session with {peer} established");
            }
            SpeakerEvent::Ended(peer, reason) => {
                log::warn!(peer:%, reason:%; "flowspec: session with {peer} ended: {reason}");
            }
        };
        let speaker = Speaker::start(options, report);
        let speaker = speaker.map_err(|error| format!("listening for BGP at {listen}: {error}"))?;
        Ok(Self { _speaker: speaker, rules, omitted: 0 })
    }
}

impl Feed for FlowspecFeed {
    fn poll(&mut self, _: &Stop) -> Result<Option<Vec<u8>>, String> {
        let rules = self.rules.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(rules) = rules else { return Ok(None) };
        let (prefixes, omitted) = discarded(&rules);
        if omitted != self.omitted && omitted > 0 {
            log::warn!(
                "flowspec: the list has not the {omitted} rules that match more than a source"
            );
        }
        self.omitted = omitted;
        let mut text = String::new();
        for prefix in prefixes {
            let _ = writeln!(text, "{prefix}");
        }
        Ok(Some(text.into_bytes()))
    }

    fn interval(&self) -> Duration {
        INTERVAL
    }
}

/// Returns the sources whose packets are all dropped, and the number of dropping rules that say more than that.
fn discarded(rules: &[Rule]) -> (BTreeSet<AnyPrefix>, usize) {
    let (mut prefixes, mut omitted) = (BTreeSet::new(), 0);
    let mut permitted: Vec<Option<&Addresses>> = Vec::new();
    for rule in rules {
        let by_source = Rule { from: rule.from.clone(), ..Rule::all(rule.action.clone()) };
        match (&rule.action, &rule.from) {
            (Action::Permit, from) => permitted.push(from.as_ref()),
            (Action::Deny, Some(from)) if *rule == by_source => {
                let is_accepted = permitted.iter().any(|permitted| overlap(*permitted, from));
                if is_accepted {
                    omitted += 1;
                    continue;
                }
                prefixes.extend(from.v4.iter().copied().map(AnyPrefix::V4));
                prefixes.extend(from.v6.iter().copied().map(AnyPrefix::V6));
            }
            (Action::Count, _) => {}
            _ => omitted += 1,
        }
    }
    (prefixes, omitted)
}

/// Returns whether some packets have a source in both; `None` has all.
fn overlap(permitted: Option<&Addresses>, from: &Addresses) -> bool {
    fn any<A: Addr>(some: &[Prefix<A>], others: &[Prefix<A>]) -> bool {
        let both = |one: Prefix<A>, other: Prefix<A>| one.covers(other) || other.covers(one);
        some.iter().any(|&one| others.iter().any(|&other| both(one, other)))
    }
    permitted.is_none_or(|permitted| any(&permitted.v4, &from.v4) || any(&permitted.v6, &from.v6))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(action: Action, from: Option<&str>) -> Rule {
        let addresses = |text: &str| {
            let mut addresses = Addresses::default();
            addresses.add(text).unwrap();
            addresses
        };
        Rule { from: from.map(addresses), ..Rule::all(action) }
    }

    #[test]
    fn sources_that_are_discarded_as_a_whole_are_listed() {
        let protocol = Rule {
            protocols: Some(acl::Ranges::single(6)),
            ..rule(Action::Deny, Some("198.51.100.0/24"))
        };
        let to = Rule {
            to: rule(Action::Deny, Some("192.0.2.9")).from,
            ..rule(Action::Deny, Some("203.0.113.9"))
        };
        let rules = [
            rule(Action::Permit, Some("192.0.2.64/26")),
            rule(Action::Deny, Some("192.0.2.0/24")),
            rule(Action::Deny, Some("203.0.113.0/24")),
            rule(Action::Count, None),
            protocol,
            to,
            rule(Action::Deny, Some("2001:db8::/32")),
            rule(Action::Permit, None),
            rule(Action::Deny, Some("100.64.0.1")),
        ];
        let (prefixes, omitted) = discarded(&rules);
        let listed: Vec<String> = prefixes.iter().map(ToString::to_string).collect();
        assert_eq!(listed, ["203.0.113.0/24", "2001:db8::/32"]);
        assert_eq!(omitted, 4);
    }
}
