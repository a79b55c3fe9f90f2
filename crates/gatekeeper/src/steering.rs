//! Software steering: every packet of a flow is processed by the worker that owns the flow.
//!
//! ```text
//!   queue ─► received ─► flow, hash ─► owner? ─ this worker ─────► processed here
//!                                         │ another worker
//!                                         └► its ring, with the hash ─► processed there
//! ```
//!
//! A flow is an address pair, and its state is known to one worker. A card that hashes addresses only
//! brings all packets of a flow to one queue. veth and cheap cards hash the ports too, or their hash is
//! unknown. Then the worker that receives a packet hands it over to the owner: by the hash that finds
//! the flow in the table, mixed once more so that each worker's flows are spread over all of its table.
//!
//! A packet is parsed and hashed once, by the worker that receives it (`hook/ingress.rs`). Its hash
//! goes with it through the ring, and the owner uses both.
//!
//! Decisions go to every worker; the owner applies a decision about a flow.
//!
//! The owner counts the packet. A packet that finds the owner's ring full ends here, as
//! `handover_full`. A packet of no flow stays with the worker that received it.

use port::handover::HandoverSender;

/// A worker's part in the steering of flows.
#[derive(Debug)]
pub struct SoftwareSteering {
    worker: usize,
    workers: usize,
    giver: HandoverSender,
}

/// Returns the worker that owns the flow with this hash.
fn owner(hash: u32, workers: usize) -> usize {
    let mixed = u64::from(hash.wrapping_mul(0x9e37_79b1));
    ((mixed * workers as u64) >> 32) as usize
}

impl SoftwareSteering {
    /// Makes the steering of one of `workers` workers.
    pub fn new(worker: usize, workers: usize, giver: HandoverSender) -> Self {
        Self { worker, workers, giver }
    }

    /// Returns whether this worker owns the flow with this hash.
    pub(super) fn is_owner(&self, hash: u32) -> bool {
        owner(hash, self.workers) == self.worker
    }

    /// Hands a packet over to the worker that owns the flow with this hash, and returns whether the
    /// owner's ring had room; `None` if this worker is the owner.
    #[inline]
    pub(super) fn hand_over(&mut self, hash: u32, packet: &[u8]) -> Option<bool> {
        let owner = owner(hash, self.workers);
        (owner != self.worker).then(|| self.giver.send(owner, hash, packet))
    }

    /// Wakes the workers that received packets.
    #[inline]
    pub(super) fn notify(&mut self) {
        self.giver.wake_receivers();
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
