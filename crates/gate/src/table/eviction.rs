//! Eviction from the table: expired entries, and in a full table the cheapest requests, or
//! declines.
//!
//! Cheapest is who expires soonest, by the wheel of requests: a request lives 16 times as
//! long as its sender has been patient, so the impatient and the spoofed go first and who
//! has waited longest stays longest. Grants are in a wheel of their own and never
//! met. Declines are in another: they have a share of the table, a [`DECLINED_SHARE`]th, since an
//! attacker that forges sources could otherwise fill it with declines, and beyond that, or where a
//! grant would find no room, the one that expires soonest is evicted: its flow sends requests
//! again. Entries leave in groups, in three passes, so that the waits for their memory and for
//! their index lines overlap as those of lookups do.

use fib::fetch_ahead;

use super::FlowTable;
use crate::expiry::{WHEELS, Wheel};
use crate::index::Index;

/// The most victims of one pass.
const MOST: usize = 64;
/// How often victims are looked for.
const ROUNDS: usize = 4;
/// Declines may have one in so many of a table's entries.
pub(super) const DECLINED_SHARE: usize = 4;

impl<I: Index> FlowTable<I> {
    /// Counts the entries that are free.
    pub fn room(&self) -> usize {
        self.free.len() + (self.entries.len() - self.unused as usize)
    }

    /// Gives up the cheapest requests until `wanted` entries, at most 64, are free, and
    /// returns how many were given up. Fewer are free after it where there are no more
    /// requests.
    pub fn make_room(&mut self, wanted: usize) -> usize {
        self.evict(Wheel::Requests, wanted.saturating_sub(self.room()))
    }

    /// Makes room for a flow that is granted: evicts the cheapest request, or, without one,
    /// the decline that is over soonest. Returns how many entries were given up.
    pub fn make_room_for_grant(&mut self) -> usize {
        let gone = self.make_room(1);
        if self.room() > 0 { gone } else { gone + self.evict(Wheel::Declined, 1) }
    }

    /// Makes room for another decline within the share of declines: if it is used up, evicts the
    /// one that is over soonest. Returns how many entries were given up.
    pub fn enforce_declined_share(&mut self) -> usize {
        let share = (self.entries.len() / DECLINED_SHARE).max(1);
        if self.declined < share { 0 } else { self.evict(Wheel::Declined, 1) }
    }

    /// Evicts so many entries of a wheel, at most 64: those that expire soonest. Returns how many,
    /// which is fewer where there are no more.
    fn evict(&mut self, wheel: Wheel, wanted: usize) -> usize {
        let wanted = wanted.min(MOST);
        let mut gone = 0;
        // An entry whose expiry was put off since it was filed is filed again and not evicted: a
        // few rounds find enough of the others, nearly always the first.
        for _ in 0..ROUNDS {
            let missing = wanted - gone;
            let mut victims = [(0, 0); MOST];
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

    /// Forgets flows that are over at `now`, with at most `work` entries of each wheel
    /// looked at, and returns how many.
    pub fn expire(&mut self, now: u64, work: u32) -> usize {
        let mut gone = 0;
        for wheel in WHEELS {
            let mut left = work;
            loop {
                let mut due = [(0, 0); MOST];
                let mut count = 0;
                while count < MOST
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

    /// Forgets those of some entries, taken out of their wheel, that expire before the time
    /// beside them, and files the others again. Returns how many are gone.
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
