//! The verdicts of recently dropped packets by flow, for `flow explain`.
//!
//! ```text
//!   hash ── lower 12 bits ──► │ hash │ verdict │ when │     4096 slots, 64 KiB
//! ```
//!
//! A drop costs one store. A flow with the same lower hash bits overwrites the slot: an entry that is
//! found is correct, but during a flood it may be missing. Flows without a table entry are recorded
//! too.

use datapath::Verdict;

const SLOTS: usize = 4096;

#[derive(Clone, Copy, Debug)]
struct Drop {
    hash: u32,
    verdict: Verdict,
    when: u64,
}

/// A table of the last drops.
#[derive(Debug)]
pub(super) struct RecentDrops {
    slots: Box<[Option<Drop>]>,
}

impl RecentDrops {
    pub(super) fn new() -> Self {
        Self { slots: vec![None; SLOTS].into() }
    }

    /// Records the drop of a packet of the flow with this hash.
    #[inline]
    pub(super) fn record(&mut self, hash: u32, verdict: Verdict, when: u64) {
        if let Some(slot) = self.slots.get_mut(hash as usize % SLOTS) {
            *slot = Some(Drop { hash, verdict, when });
        }
    }

    /// Returns the verdict and the time of a flow's last drop, if it is still recorded.
    pub(super) fn find(&self, hash: u32) -> Option<(Verdict, u64)> {
        let drop = (*self.slots.get(hash as usize % SLOTS)?)?;
        (drop.hash == hash).then_some((drop.verdict, drop.when))
    }
}

#[cfg(test)]
mod tests {
    use super::{RecentDrops, SLOTS};
    use datapath::Verdict;

    #[test]
    fn lookup_returns_the_last_drop_of_that_flow_only() {
        let mut drops = RecentDrops::new();
        assert_eq!(drops.find(7), None);
        drops.record(7, Verdict::Declined, 1);
        drops.record(7, Verdict::OverRate, 2);
        assert_eq!(drops.find(7), Some((Verdict::OverRate, 2)));
        drops.record(7 + SLOTS as u32, Verdict::Policy, 3);
        assert_eq!(drops.find(7), None);
    }
}
