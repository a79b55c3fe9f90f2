//! Eviction from the table: expired entries, and in a full table the cheapest requests, or
//! declines.
//!
//! The cheapest request is the one that expires soonest, by the wheel of requests: a request lives
//! 16 times as long as its sender has been patient, so impatient and spoofed sources are evicted
//! first and the most patient ones last. Grants are in a wheel of their own and are never visited.
//! Declines are in another: they have a share of the table, a [`DECLINED_SHARE`]th, since an
//! attacker that forges sources could otherwise fill it with declines. Beyond that share, or where
//! a grant would find no room, the decline that expires soonest is evicted: its flow sends requests
//! again. Entries leave in groups, in three passes, so that the waits for their memory and for
//! their index lines overlap as those of lookups do.

use fib::fetch_ahead;

use super::FlowTable;
use crate::expiry::{WHEELS, Wheel};
use crate::index::Index;

/// Maximum number of victims in one pass.
const MAX_VICTIMS: usize = 64;
/// Maximum number of passes.
const ROUNDS: usize = 4;
/// The share of declines is one in this many entries.
pub(super) const DECLINED_SHARE: usize = 4;

impl<I: Index> FlowTable<I> {
    /// Counts the entries that are free.
    pub fn room(&self) -> usize {
        self.free.len() + (self.entries.len() - self.unused as usize)
    }

    /// Evicts the cheapest requests until `wanted` entries, at most 64, are free, and returns the
    /// number of evicted ones. Fewer are free if there are no more requests.
    pub fn make_room(&mut self, wanted: usize) -> usize {
        self.evict(Wheel::Requests, wanted.saturating_sub(self.room()))
    }

    /// Makes room for a granted flow: evicts the cheapest request, or, without one, the decline
    /// that expires soonest. Returns the number of evicted entries.
    pub fn make_room_for_grant(&mut self) -> usize {
        let gone = self.make_room(1);
        if self.room() > 0 { gone } else { gone + self.evict(Wheel::Declined, 1) }
    }

    /// Makes room for another decline within the share of declines: if the share is used up, evicts
    /// the one that expires soonest. Returns the number of evicted entries.
    pub fn enforce_declined_share(&mut self) -> usize {
        let share = (self.entries.len() / DECLINED_SHARE).max(1);
        if self.declined < share { 0 } else { self.evict(Wheel::Declined, 1) }
    }

    /// Evicts up to `wanted` entries of a wheel, at most 64: those that expire soonest. Returns how
    /// many.
    fn evict(&mut self, wheel: Wheel, wanted: usize) -> usize {
        let wanted = wanted.min(MAX_VICTIMS);
        let mut gone = 0;
        // A postponed entry is scheduled again and not evicted: a few passes find enough of the
        // others, nearly always the first.
        for _ in 0..ROUNDS {
            let missing = wanted - gone;
            let mut victims = [(0, 0); MAX_VICTIMS];
            let mut count = 0;
            while count < missing {
                let Some(victim) = self.wheels.nearest(wheel) else { break };
                fetch_ahead(&self.entries[victim.0 as usize]);
                self.wheels.cancel(victim.0);
                victims[count] = victim;
                count += 1;
            }
            if count == 0 {
                break;
            }
            gone += self.evict_or_reschedule(wheel, &victims[..count]);
        }
        gone
    }

    /// Removes flows that have expired at `now`, reading at most `work` entries of each wheel, and
    /// returns how many.
    pub fn expire(&mut self, now: u64, work: u32) -> usize {
        let mut gone = 0;
        for wheel in WHEELS {
            let mut left = work;
            loop {
                let mut due = [(0, 0); MAX_VICTIMS];
                let mut count = 0;
                while count < MAX_VICTIMS
                    && let Some(entry) = self.wheels.pop_due(wheel, now, &mut left)
                {
                    fetch_ahead(&self.entries[entry as usize]);
                    due[count] = (entry, now.saturating_add(1));
                    count += 1;
                }
                if count == 0 {
                    break;
                }
                gone += self.evict_or_reschedule(wheel, &due[..count]);
            }
        }
        gone
    }

    /// Removes those entries, already out of their wheel, that expire before the given time, and
    /// schedules the others again. Returns the number of removed ones.
    fn evict_or_reschedule(&mut self, wheel: Wheel, entries: &[(u32, u64)]) -> usize {
        for &(entry, _) in entries {
            self.index.fetch(self.entries[entry as usize].hash);
        }
        let mut gone = 0;
        for &(entry, until) in entries {
            let expire_at = self.entries[entry as usize].record.expire_at();
            if expire_at < until {
                self.forget(entry);
                gone += 1;
            } else {
                self.wheels.schedule(entry, wheel, expire_at);
            }
        }
        gone
    }
}
