//! The decisions in force, by their ids, and the text of the list.
//!
//! ```text
//!   4 ─► 192.0.2.3/32, 02:36:01 ─┐
//!   5 ─► 192.0.2.3/32, 20:36:02 ─┴─► 192.0.2.3 expires=2026-11-29T20:36:02Z
//! ```
//!
//! Invariants: each decision is a ban of addresses. An end is a whole second, rounded up, and is
//! computed once: a decision that arrives again, in a full pull or because pulls overlap, keeps its
//! end unless the new one differs by more than [`JITTER`], which is the time of a response and the
//! rounding of newer engines to a whole second.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::mem;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use feed::AnyPrefix;
use fib::Prefix;
use jiff::{SignedDuration, Timestamp};

use super::duration;
use super::pull::{Decision, Pull};
use crate::lines::EXPIRES;

/// The difference of two computations of one end.
const JITTER: SignedDuration = SignedDuration::from_secs(3);

/// A ban of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ban {
    prefix: AnyPrefix,
    end: Timestamp,
}

/// The reasons why a decision is not applied, with an example of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusal {
    Type,
    Scope,
    Value,
    Duration,
}

/// The decisions of one kind that are not applied.
#[derive(Debug, Default)]
struct Refused {
    count: usize,
    example: String,
    is_logged: bool,
}

/// The decisions in force.
#[derive(Debug, Default)]
pub(super) struct Decisions {
    bans: HashMap<i64, Ban>,
    /// By the number of the [`Refusal`].
    refused: [Refused; 4],
}

impl Decisions {
    /// Applies a pull that arrived at `now`. Returns whether the bans in force may have changed; a
    /// decision that ends at its time changes nothing, since the text has that.
    pub(super) fn apply(&mut self, pull: &Pull<'_>, is_full: bool, now: Timestamp) -> bool {
        let former = if is_full { mem::take(&mut self.bans) } else { HashMap::new() };
        let mut changed = is_full;
        for decision in pull.new_decisions() {
            match read(decision, now) {
                Ok(Some(ban)) => changed |= self.insert(decision.id, ban, &former),
                Ok(None) => {}
                Err(refusal) => self.refuse(refusal, decision),
            }
        }
        if is_full {
            // These are the decisions that had ended before.
            return true;
        }
        // After the new ones: one that ended while the engine wrote the response is in both.
        for id in pull.ended_ids() {
            changed |= self.bans.remove(&id).is_some_and(|ban| ban.end > now);
        }
        changed
    }

    /// Adds a ban, with its former end if it has one; returns whether it is another than before.
    fn insert(&mut self, id: i64, mut ban: Ban, former: &HashMap<i64, Ban>) -> bool {
        let known = self.bans.get(&id).or_else(|| former.get(&id)).copied();
        if let Some(known) = known.filter(|known| known.prefix == ban.prefix)
            && ban.end.duration_since(known.end).abs() <= JITTER
        {
            ban.end = known.end;
        }
        self.bans.insert(id, ban) != Some(ban)
    }

    fn refuse(&mut self, refusal: Refusal, decision: &Decision<'_>) {
        let refused = &mut self.refused[refusal as usize];
        if refused.is_logged {
            return;
        }
        refused.count += 1;
        if refused.count == 1 {
            let Decision { id, kind, scope, value, duration } = decision;
            let text = format!("decision {id}, {kind} of {scope} {value} for {duration}");
            // The texts are the engine's, and of any length.
            refused.example = text.chars().take(200).flat_map(char::escape_debug).collect();
        }
    }

    /// Returns a warning for each kind of decision that was refused for the first time.
    pub(super) fn take_warnings(&mut self) -> Vec<String> {
        let mut warnings = Vec::new();
        let reasons = [
            "of another type than \"ban\"",
            "of another scope than \"Ip\" and \"Range\"",
            "without a valid address or prefix",
            "without a valid duration",
        ];
        for (refused, reason) in self.refused.iter_mut().zip(reasons) {
            if refused.count > 0 && !refused.is_logged {
                refused.is_logged = true;
                let Refused { count, example, .. } = refused;
                warnings.push(format!(
                    "decisions {reason} are not applied: {count}, the first is {example}"
                ));
            }
        }
        warnings
    }

    /// Returns the text of the list, and forgets the decisions that have ended.
    pub(super) fn render(&mut self, now: Timestamp) -> Vec<u8> {
        self.bans.retain(|_, ban| ban.end > now);
        let mut ends = BTreeMap::new();
        for ban in self.bans.values() {
            let end = ends.entry(ban.prefix).or_insert(ban.end);
            *end = ban.end.max(*end);
        }
        let mut text = String::new();
        for (prefix, end) in ends {
            // Writing to a string cannot fail.
            let _ = match prefix {
                AnyPrefix::V4(host) if host.len() == 32 => {
                    write!(text, "{}", Ipv4Addr::from(host.addr()))
                }
                AnyPrefix::V6(host) if host.len() == 128 => {
                    write!(text, "{}", Ipv6Addr::from(host.addr()))
                }
                prefix => write!(text, "{prefix}"),
            };
            let _ = writeln!(text, " {EXPIRES}{end}");
        }
        text.into_bytes()
    }
}

/// Reads a decision that arrived at `now`; `None` if it had ended before.
fn read(decision: &Decision<'_>, now: Timestamp) -> Result<Option<Ban>, Refusal> {
    let is = |text: &str, name| text.eq_ignore_ascii_case(name);
    if !is(&decision.scope, "ip") && !is(&decision.scope, "range") {
        return Err(Refusal::Scope);
    }
    if !is(&decision.kind, "ban") {
        return Err(Refusal::Type);
    }
    let prefix = parse_prefix(&decision.value).ok_or(Refusal::Value)?;
    let left = duration::parse(&decision.duration).ok_or(Refusal::Duration)?;
    if !left.is_positive() {
        return Ok(None);
    }
    let end = now.checked_add(left).ok().and_then(round_up).ok_or(Refusal::Duration)?;
    Ok(Some(Ban { prefix, end }))
}

/// Parses an address or a prefix. Bits beyond the length are cleared, as the engine does:
/// `198.51.100.77/24` bans the whole network.
fn parse_prefix(text: &str) -> Option<AnyPrefix> {
    let (addr, len) = match text.split_once('/') {
        Some((addr, len)) => (addr, Some(len)),
        None => (text, None),
    };
    let addr: IpAddr = addr.parse().ok()?;
    let width = if addr.is_ipv4() { 32 } else { 128 };
    let len = match len {
        None => width,
        // `parse` would accept a sign.
        Some(len) if len.bytes().all(|byte| byte.is_ascii_digit()) => len.parse().ok()?,
        Some(_) => return None,
    };
    (len <= width).then(|| match addr {
        IpAddr::V4(addr) => AnyPrefix::V4(Prefix::truncate(addr.into(), len)),
        IpAddr::V6(addr) => AnyPrefix::V6(Prefix::truncate(addr.into(), len)),
    })
}

/// Rounds up to a whole second, so that a ban does not end early.
fn round_up(time: Timestamp) -> Option<Timestamp> {
    let has_fraction = time.subsec_nanosecond() > 0;
    Timestamp::from_second(time.as_second() + i64::from(has_fraction)).ok()
}

#[cfg(test)]
mod tests;
