//! Steering in software: every packet of a flow comes to the worker whose flow it is.
//!
//! ```text
//!   queue ─► received ─► flow, hash ─► whose? ─ mine ──────────► judged here
//!                                        │ another's
//!                                        └► his ring, with hash ─► received by him, judged there
//! ```
//!
//! A flow is a pair of addresses, and what is known of it is known to one worker. A card that
//! spreads by addresses alone brings all of its packets to one queue; veth and cheap cards spread
//! by ports too, or do not say. Then the worker that a packet came to hands it on, by the hash that
//! finds the flow in the table, mixed once more so that each worker's hashes are spread over
//! all of its table.
//!
//! A packet is parsed and hashed once, by the worker that it came to (`hook/sift.rs`): its hash
//! goes with it through the ring, and who receives it there takes both as said.
//!
//! Decisions go to every worker; one about a flow is left to the worker whose it is.
//!
//! A packet is counted by who judges it. One that the other has no room for ends here, as
//! `handover_full`. What is no packet of a flow is judged where it came.

use port::handover::Giver;

/// A worker's place among those that share the flows.
#[derive(Debug)]
pub struct Steering {
    me: usize,
    workers: usize,
    giver: Giver,
}

/// Returns whose a flow is.
fn owner(hash: u32, workers: usize) -> usize {
    let mixed = u64::from(hash.wrapping_mul(0x9e37_79b1));
    ((mixed * workers as u64) >> 32) as usize
}

impl Steering {
    /// Makes worker `me` one of so many.
    pub fn new(me: usize, workers: usize, giver: Giver) -> Self {
        Self { me, workers, giver }
    }

    /// Says whether this worker has the flow with this hash.
    pub(super) fn has(&self, hash: u32) -> bool {
        owner(hash, self.workers) == self.me
    }

    /// Hands a packet of the flow with this hash to the worker whose it is, and says whether that
    /// had room for it; nothing if the flow is this worker's own.
    #[inline]
    pub(super) fn hand_over(&mut self, hash: u32, packet: &[u8]) -> Option<bool> {
        let owner = owner(hash, self.workers);
        (owner != self.me).then(|| self.giver.give(owner, hash, packet))
    }

    /// Wakes those who were given something and sleep.
    #[inline]
    pub(super) fn ring(&mut self) {
        self.giver.ring();
    }
}

#[cfg(test)]
mod tests {
    use super::owner;

    #[test]
    fn flows_are_shared_evenly_and_each_share_is_spread_over_a_table() {
        for workers in 1..9 {
            let mut shares = vec![[0; 16]; workers];
            for hash in (0..=u32::MAX).step_by(4099) {
                shares[owner(hash, workers)][hash as usize % 16] += 1;
            }
            let all: usize = shares.iter().flatten().sum();
            let fair = all / workers / 16;
            for share in shares.iter().flatten() {
                assert!(share.abs_diff(fair) < fair / 20, "{workers} workers: {shares:?}");
            }
        }
    }
}
