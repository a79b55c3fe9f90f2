//! The ledger: what became of packets, by the rule of the policy that decided.
//!
//! ```text
//!            0          8         16        24        32      40   48   56      64
//!   line     │ request  │ granted │ passed  │ dropped │ the same, in bytes       │
//!   lines    │ others │ no rule │ rule │ rule │ …                     one cache line each
//! ```
//!
//! Every packet that the gate counts is entered once, on one line, in the same breath
//! ([`Counts`](super::Counts)), so that the sum over all lines is what the gate received. *No rule*
//! has decided of packets without a route, and of those whose source is blocked: their destination
//! is never asked about. *Others* are rules without a line of their own.
//!
//! A known flow has no rule in its entry and needs none: it has its grantor set, which is looked at
//! with each packet anyway, and a rule with a line has a set of its own that says which
//! (`policy.rs`). What a packet costs is an addition to two words of a line that the last
//! packet to that prefix has touched.
//!
//! One worker writes, anyone reads: relaxed loads and stores, which compile to plain additions. Which
//! rule a line is of is known to who numbers them, and nowhere here.

use std::sync::atomic::{AtomicU64, Ordering};

use super::Count;

/// Lines that rules can have.
pub const RULES: usize = 512;
/// All lines.
const LINES: usize = RULES + 2;

/// The number of a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RuleId(u16);

impl RuleId {
    /// That of all rules without one of their own.
    pub const OTHERS: Self = Self(0);
    /// That of packets of which no rule has decided.
    pub const NONE: Self = Self(1);
    /// Returns the line of this number among those of rules; beyond [`RULES`] there are none.
    pub fn of_rule(number: usize) -> Option<Self> {
        (number < RULES).then_some(Self(number as u16 + 2))
    }
}

/// What became of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RuleOutcome {
    /// A request, before the link's queues drop the lowest.
    Request,
    /// To the grantor or where it is, because somebody has said so: granted, direct or allowed.
    Granted,
    /// Past the gate: it is of nobody who is protected.
    Passed,
    /// Dropped, for whatever reason.
    Dropped,
}

impl RuleOutcome {
    /// All of them.
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

/// Packets and bytes by [`Fate`], in its order.
pub type OutcomeCounts = [Count; RuleOutcome::ALL.len()];

#[derive(Debug, Default)]
#[repr(align(64))]
struct Words([AtomicU64; 2 * RuleOutcome::ALL.len()]);

/// What one worker has counted.
#[derive(Debug)]
pub struct RuleCounters(Box<[Words]>);

impl Default for RuleCounters {
    fn default() -> Self {
        Self((0..LINES).map(|_| Words::default()).collect())
    }
}

fn add(word: &AtomicU64, more: u64) {
    word.store(word.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
}

impl RuleCounters {
    /// Enters a packet; for the one worker whose ledger this is.
    #[inline(always)]
    pub(super) fn enter(&self, line: RuleId, fate: RuleOutcome, bytes: u32) {
        let Some(Words(words)) = self.0.get(usize::from(line.0)) else { return };
        add(&words[fate as usize], 1);
        add(&words[RuleOutcome::ALL.len() + fate as usize], bytes.into());
    }

    /// Reads a line.
    pub fn read(&self, line: RuleId) -> OutcomeCounts {
        let Some(Words(words)) = self.0.get(usize::from(line.0)) else {
            return OutcomeCounts::default();
        };
        let word = |at: usize| words[at].load(Ordering::Relaxed);
        RuleOutcome::ALL.map(|fate| {
            let (packets, bytes) =
                (word(fate as usize), word(RuleOutcome::ALL.len() + fate as usize));
            Count { packets, bytes }
        })
    }

    /// Walks all lines.
    pub fn lines(&self) -> impl Iterator<Item = (RuleId, OutcomeCounts)> {
        (0..LINES as u16).map(|at| (RuleId(at), self.read(RuleId(at))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_cache_line_and_each_fate_has_its_words() {
        assert_eq!((size_of::<Words>(), align_of::<Words>()), (64, 64));
        let ledger = RuleCounters::default();
        let last = RuleId::of_rule(RULES - 1).unwrap();
        assert_eq!(RuleId::of_rule(RULES), None);
        for (at, fate) in RuleOutcome::ALL.into_iter().enumerate() {
            for _ in 0..=at {
                ledger.enter(last, fate, 100);
            }
        }
        ledger.enter(RuleId::NONE, RuleOutcome::Dropped, 60);
        let count = |packets: u64| Count { packets, bytes: packets * 100 };
        assert_eq!(ledger.read(last), [1, 2, 3, 4].map(count));
        let used: Vec<_> =
            ledger.lines().filter(|(_, it)| *it != OutcomeCounts::default()).collect();
        assert_eq!(used.len(), 2);
        assert_eq!(
            used[0],
            (RuleId::NONE, [count(0), count(0), count(0), Count { packets: 1, bytes: 60 }])
        );
        assert_eq!(used[1].0, last);
    }
}
