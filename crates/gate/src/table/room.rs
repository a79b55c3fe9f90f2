//! Room in the table: who is over goes, and in a full one the cheapest requests.
//!
//! Cheapest is who expires soonest, by the wheel of requests: a request lives 16 times as
//! long as its sender has been patient, so the impatient and the spoofed go first and who
//! has waited longest stays longest. Grants and declines are in the other wheel and never
//! met. Entries leave in groups, in three passes, so that the waits for their memory and for
//! their index lines overlap as those of lookups do.

use fib::fetch_ahead;

use super::FlowTable;
use crate::expiry::Wheel;
use crate::index::Index;

/// The most victims of one pass.
const MOST: usize = 64;
/// How often victims are looked for.
const ROUNDS: usize = 4;

impl<I: Index> FlowTable<I> {
    /// Counts the entries that are free.
    pub fn room(&self) -> usize {
        self.free.len() + (self.entries.len() - self.unused as usize)
    }

    /// Gives up the cheapest requests until `wanted` entries, at most 64, are free, and
    /// returns how many were given up. Fewer are free after it where there are no more
    /// requests.
    pub fn make_room(&mut self, wanted: usize) -> usize {
        let wanted = wanted.min(MOST);
        let mut gone = 0;
        // Who was put off since he was filed is filed anew and not given up: a few rounds
        // find enough of the others, nearly always the first.
        for _ in 0..ROUNDS {
            let missing = wanted.saturating_sub(self.room());
            let mut victims = [(0, 0); MOST];
            let mut count = 0;
            while count < missing {
                let Some(victim) = self.wheels.nearest(Wheel::Requests) else { break };
                fetch_ahead(&self.entries[victim.0 as usize]);
                self.wheels.take_out(victim.0);
                victims[count] = victim;
                count += 1;
            }
            if count == 0 {
                break;
            }
            gone += self.sort_out(Wheel::Requests, &victims[..count]);
        }
        gone
    }

    /// Forgets flows that are over at `now`, with at most `work` entries of either wheel
    /// looked at, and returns how many.
    pub fn expire(&mut self, now: u64, work: u32) -> usize {
        let mut gone = 0;
        for wheel in [Wheel::Requests, Wheel::Decided] {
            let mut left = work;
            loop {
                let mut due = [(0, 0); MOST];
                let mut count = 0;
                while count < MOST
                    && let Some(entry) = self.wheels.due(wheel, now, &mut left)
                {
                    fetch_ahead(&self.entries[entry as usize]);
                    due[count] = (entry, now.saturating_add(1));
                    count += 1;
                }
                if count == 0 {
                    break;
                }
                gone += self.sort_out(wheel, &due[..count]);
            }
        }
        gone
    }

    /// Forgets those of some entries, taken out of their wheel, that expire before the time
    /// beside them, and files the others again. Returns how many are gone.
    fn sort_out(&mut self, wheel: Wheel, entries: &[(u32, u64)]) -> usize {
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
                self.wheels.file(entry, wheel, expire_at);
            }
        }
        gone
    }
}
