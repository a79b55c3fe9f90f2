//! Packets and bytes by policy rule and outcome.
//!
//! ```text
//!            0          8         16        24        32      40   48   56      64
//!   line     │ request  │ granted │ passed  │ dropped │ the same, in bytes       │
//!   lines    │ others │ no rule │ rule │ rule │ …                     one cache line each
//! ```
//!
//! Every packet that the gate counts is counted here once, by one rule
//! ([`GateCounters`](super::GateCounters)), so that the sum over all rules is what the gate
//! received. *No rule* ([`RuleId::NONE`]) has packets without a route, and those whose source is
//! blocked: their destination is never looked up. *Others* ([`RuleId::OTHERS`]) are rules without
//! counters of their own.
//!
//! The entry of a known flow does not store a rule: it has a grantor set, which each packet reads
//! anyway, and a rule with counters has a set of its own, which stores the rule (`policy.rs`). The
//! cost of a packet is an addition to two words of a cache line that the last packet to that prefix
//! has touched.
//!
//! One worker writes, any thread reads: relaxed loads and stores, which compile to plain additions.
//! The caller that numbers the rules knows the prefixes of each.

use std::ops::{Index, IndexMut};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::policy::RuleId;

/// Packets and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Packets.
    pub packets: u64,
    /// Bytes, Ethernet headers included.
    pub bytes: u64,
}

impl Count {
    pub(super) fn add(&mut self, bytes: u32) {
        self.packets += 1;
        self.bytes += u64::from(bytes);
    }
}

/// The outcome for a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RuleOutcome {
    /// A request, before the link's queues drop the lowest.
    Request,
    /// Forwarded by a decision: granted, direct or allowed.
    Granted,
    /// Forwarded past the gate: the destination is not protected.
    Passed,
    /// Dropped, for any reason.
    Dropped,
}

impl RuleOutcome {
    /// All outcomes.
    pub const ALL: [Self; 4] = [Self::Request, Self::Granted, Self::Passed, Self::Dropped];

    /// Returns its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Request => "request",
            Self::Granted => "granted",
            Self::Passed => "passed",
            Self::Dropped => "dropped",
        }
    }
}

/// Packets and bytes by [`RuleOutcome`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutcomeCounts([Count; RuleOutcome::ALL.len()]);

impl OutcomeCounts {
    /// Makes the counts that `f` returns for each outcome.
    pub fn from_fn(f: impl FnMut(RuleOutcome) -> Count) -> Self {
        Self(RuleOutcome::ALL.map(f))
    }

    /// Iterates over all outcomes and their counts.
    pub fn iter(&self) -> impl Iterator<Item = (RuleOutcome, Count)> {
        RuleOutcome::ALL.into_iter().zip(self.0)
    }
}

impl Index<RuleOutcome> for OutcomeCounts {
    type Output = Count;

    fn index(&self, outcome: RuleOutcome) -> &Count {
        &self.0[outcome as usize]
    }
}

impl IndexMut<RuleOutcome> for OutcomeCounts {
    fn index_mut(&mut self, outcome: RuleOutcome) -> &mut Count {
        &mut self.0[outcome as usize]
    }
}

#[derive(Debug, Default)]
#[repr(align(64))]
struct Words([AtomicU64; 2 * RuleOutcome::ALL.len()]);

/// The counters of one worker.
#[derive(Debug)]
pub struct RuleCounters(Box<[Words]>);

impl Default for RuleCounters {
    fn default() -> Self {
        Self((0..RuleId::COUNT).map(|_| Words::default()).collect())
    }
}

fn add(word: &AtomicU64, more: u64) {
    word.store(word.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
}

impl RuleCounters {
    /// Counts a packet; only the worker that owns the counters calls this.
    #[inline(always)]
    pub(super) fn enter(&self, line: RuleId, outcome: RuleOutcome, bytes: u32) {
        let Some(Words(words)) = self.0.get(line.index()) else { return };
        add(&words[outcome as usize], 1);
        add(&words[RuleOutcome::ALL.len() + outcome as usize], bytes.into());
    }

    /// Reads the counters of a rule.
    pub fn read(&self, line: RuleId) -> OutcomeCounts {
        let Some(Words(words)) = self.0.get(line.index()) else {
            return OutcomeCounts::default();
        };
        let word = |at: usize| words[at].load(Ordering::Relaxed);
        OutcomeCounts::from_fn(|outcome| {
            let (packets, bytes) =
                (word(outcome as usize), word(RuleOutcome::ALL.len() + outcome as usize));
            Count { packets, bytes }
        })
    }

    /// Iterates over all rules.
    pub fn lines(&self) -> impl Iterator<Item = (RuleId, OutcomeCounts)> {
        RuleId::all().map(|rule| (rule, self.read(rule)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::MAX_RULE_IDS;

    #[test]
    fn counters_of_a_rule_are_one_cache_line_with_words_by_outcome() {
        assert_eq!((size_of::<Words>(), align_of::<Words>()), (64, 64));
        let ledger = RuleCounters::default();
        let last = RuleId::of_rule(MAX_RULE_IDS - 1).unwrap();
        assert_eq!(RuleId::of_rule(MAX_RULE_IDS), None);
        for (at, outcome) in RuleOutcome::ALL.into_iter().enumerate() {
            for _ in 0..=at {
                ledger.enter(last, outcome, 100);
            }
        }
        ledger.enter(RuleId::NONE, RuleOutcome::Dropped, 60);
        let count = |packets: u64| Count { packets, bytes: packets * 100 };
        assert_eq!(ledger.read(last), OutcomeCounts([1, 2, 3, 4].map(count)));
        let used: Vec<_> =
            ledger.lines().filter(|(_, counts)| *counts != OutcomeCounts::default()).collect();
        assert_eq!(used.len(), 2);
        let mut expect = OutcomeCounts::default();
        expect[RuleOutcome::Dropped] = Count { packets: 1, bytes: 60 };
        assert_eq!(used[0], (RuleId::NONE, expect));
        assert_eq!(used[1].0, last);
    }
}
