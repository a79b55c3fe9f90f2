//! The agent's part in a fleet's blocks: takes the signed list, has the gate apply it, and writes it to disk.
//!
//! The list is written after it was applied: a process that ends in between applies its successor, or the
//! same list, again. A member that is no gate has no blocks.

use super::AgentLoop;
use crate::blocks::{self, AppliedBlocks, FleetBlocks};
use crate::config::BundleSource;

impl AgentLoop {
    /// Applies the blocks of before the start again.
    pub(super) fn restore_blocks(&mut self) {
        if let Some(signed) = self.store.read_blocks() {
            self.apply_blocks(&signed);
        }
    }

    /// Applies the list of blocks that the fleet has delivered, if it is a new one.
    pub(super) fn take_blocks(&mut self) {
        if let Some(signed) = self.poller.take_blocks()
            && self.apply_blocks(&signed)
            && let Err(error) = self.store.write_blocks(&signed)
        {
            self.last_error = Some(error);
        }
    }

    /// Applies a signed list. Returns whether it is higher than the one before.
    fn apply_blocks(&mut self, signed: &[u8]) -> bool {
        let BundleSource::Fleet(membership) = &self.config.source else { return false };
        let list = match FleetBlocks::open(signed, membership.url.fleet(), &self.config.keys) {
            Ok(list) => list,
            Err(error) => {
                let error = format!("{}: blocked prefixes: {error}", membership.url);
                self.status.queue_messages([format!("distribution: refused: {error}")]);
                self.last_error = Some(error);
                return false;
            }
        };
        let mut is_gate = true;
        let mut applied = self.blocks.take().unwrap_or_default();
        let sequence = list.sequence;
        let is_new = applied.apply(list, blocks::now(), |change| {
            self.member.change_block(change).unwrap_or_else(|| {
                is_gate = false;
                Ok(String::new())
            })
        });
        if is_new && is_gate {
            let AppliedBlocks { list, refused } = &applied;
            let count = list.prefixes.len() - refused.len();
            let mut messages =
                vec![format!("fleet: blocks of list {sequence} applied: {count} prefixes")];
            let refusal = |(prefix, reason)| format!("fleet: {prefix} is not blocked: {reason}");
            messages.extend(refused.iter().map(refusal));
            self.status.queue_messages(messages);
        }
        self.blocks = is_gate.then_some(applied);
        is_new
    }
}
