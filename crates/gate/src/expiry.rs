//! Timer wheels: which entries have expired, and which request expires first.
//!
//! ```text
//!   level 0   │ 512 slots of 16.8 ms │      8.6 s        a slot: a list of entries
//!   level 1   │ 512 slots of  8.6 s  │     73 min
//!   level 2   │ 512 slots of 73 min  │     26 days
//!   level 3   │ 512 slots of 26 days │     36 years
//!
//!   links     │ before:32 after:32 │ …   8 bytes an entry, by its number
//! ```
//!
//! Hierarchical timing wheels (Varghese, Lauck, SOSP 1987, scheme 7). An entry is in the list of
//! the slot of its expiry, at the lowest level that reaches so far; when the wheel reaches a slot
//! of a higher level its entries are scheduled again, lower. Scheduling and canceling are O(1), and
//! each entry is scheduled once or twice in a lifetime, however many there are: the cost is that of
//! arrivals, where a scan of the table costs its size.
//!
//! **Lazy.** A packet that postpones its flow's expiry does not touch the wheel. The caller checks
//! the true expiry of a due entry, and schedules it again if that is later. Only an earlier expiry,
//! as by a decision, is scheduled at once.
//!
//! **Bounded.** [`Wheels::pop_due`] does as much work as it is allowed and continues there next
//! time; a late entry does no harm, since states expire by themselves (`state.rs`).
//!
//! **Three wheels over the same links**, for requests, for granted flows and for declined flows.
//! The first list of the first wheel has the request that expires soonest, which is the least
//! patient and, among equals, the oldest: the one to evict when the table is full. The first list
//! of the last has the decline that expires soonest: the one to evict when declines have used their
//! share, or a grant would find no room. Granted flows are in neither, so eviction never reads
//! them.

use fib::{Table, fetch_ahead};

/// A tick in nanoseconds, as a power of two: 16.8 ms.
const TICK: u32 = 24;
/// Slots of a level, as a power of two. The lifetime of a new request, 262 ticks, is within the
/// first level.
const WIDTH: u32 = 9;
const SLOTS: usize = 1 << WIDTH;
const LEVELS: usize = 4;
const WORDS: usize = SLOTS / 64;

/// The end of a list.
const NONE: u32 = u32::MAX;
/// Marks a link back to a list rather than an entry.
const HEAD: u32 = 1 << 31;

/// The wheel of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wheel {
    /// Requests.
    Requests,
    /// Granted flows, and flows run by a program.
    Decided,
    /// Declined flows.
    Declined,
}

/// All wheels.
pub const WHEELS: [Wheel; 3] = [Wheel::Requests, Wheel::Decided, Wheel::Declined];

/// The wheels.
#[derive(Debug)]
pub struct Wheels {
    /// The previous and the next entry, by entry.
    links: Table<[u32; 2]>,
    /// The first entry of each list: wheel, level, slot.
    heads: Box<[u32]>,
    /// A bit for each list with entries.
    occupied: Box<[[u64; WORDS]]>,
    /// The next tick of each wheel.
    ticks: [u64; WHEELS.len()],
}

impl Wheels {
    /// Creates wheels for `entries` entries, starting at `now`.
    pub fn new(entries: usize, now: u64) -> Self {
        Self {
            links: Table::filled([NONE; 2], entries),
            heads: vec![NONE; WHEELS.len() * LEVELS * SLOTS].into(),
            occupied: vec![[0; WORDS]; WHEELS.len() * LEVELS].into(),
            ticks: [now >> TICK; WHEELS.len()],
        }
    }

    /// Schedules `entry`, which is in no wheel.
    pub fn schedule(&mut self, entry: u32, wheel: Wheel, expire_at: u64) {
        let now = self.ticks[wheel as usize];
        let tick = (expire_at >> TICK).saturating_add(1).max(now);
        let at = |level: usize| WIDTH * level as u32;
        let level = (0..LEVELS - 1)
            .find(|&level| (tick >> at(level)) - (now >> at(level)) < SLOTS as u64)
            .unwrap_or(LEVELS - 1);
        // Beyond the highest level: into its last slot, and scheduled again from there.
        let furthest = (now >> at(level)) + SLOTS as u64 - 1;
        let slot = (tick >> at(level)).min(furthest) as usize % SLOTS;
        self.link(entry, list(wheel, level, slot));
    }

    /// Removes `entry` from its wheel, if it is in one.
    pub fn cancel(&mut self, entry: u32) {
        let [before, after] = self.links[entry as usize];
        if before == NONE {
            return;
        }
        if before & HEAD != 0 {
            let list = (before & !HEAD) as usize;
            self.heads[list] = after;
            if after == NONE {
                self.occupied[list / SLOTS][list % SLOTS / 64] &= !(1 << (list % 64));
            }
        } else {
            self.links[before as usize][1] = after;
        }
        if after != NONE {
            self.links[after as usize][0] = before;
        }
        self.links[entry as usize] = [NONE; 2];
    }

    fn link(&mut self, entry: u32, list: usize) {
        let after = self.heads[list];
        self.links[entry as usize] = [HEAD | list as u32, after];
        if after != NONE {
            self.links[after as usize][0] = entry;
        }
        self.heads[list] = entry;
        self.occupied[list / SLOTS][list % SLOTS / 64] |= 1 << (list % 64);
    }

    /// Removes and returns the next entry of a wheel that was scheduled for a time up to `now`;
    /// `work` is the remaining work, a unit an entry or a step of the wheel. Returns nothing when
    /// no entry is due or no work is left.
    ///
    /// The caller checks the entry's true expiry, and [`schedule`](Self::schedule)s it again if
    /// that is later.
    pub fn pop_due(&mut self, wheel: Wheel, now: u64, work: &mut u32) -> Option<u32> {
        let last = now >> TICK;
        while *work > 0 && self.ticks[wheel as usize] <= last {
            *work -= 1;
            let Some(entry) = self.head_at(wheel, self.ticks[wheel as usize]) else {
                self.advance(wheel, last);
                continue;
            };
            let next = self.links[entry as usize][1];
            if let Some(next) = self.links.get(next as usize) {
                fetch_ahead(next);
            }
            self.cancel(entry);
            return Some(entry);
        }
        None
    }

    /// Returns an entry that the wheel has to handle at this tick: first of the higher levels that
    /// have just reached a slot, then of the lowest.
    fn head_at(&self, wheel: Wheel, tick: u64) -> Option<u32> {
        for level in (0..LEVELS).rev() {
            let at = WIDTH * level as u32;
            if tick & ((1 << at) - 1) == 0 {
                let head = self.heads[list(wheel, level, (tick >> at) as usize % SLOTS)];
                if head != NONE {
                    return Some(head);
                }
            }
        }
        None
    }

    /// Advances to the next tick with entries, at most to the end of the first level that has some, or one
    /// tick beyond `last`.
    fn advance(&mut self, wheel: Wheel, last: u64) {
        let tick = self.ticks[wheel as usize];
        let mut next = last;
        for level in 0..LEVELS {
            let at = WIDTH * level as u32;
            let now = tick >> at;
            let round = now - now % SLOTS as u64;
            let slot = self.occupied_from(wheel, level, now as usize % SLOTS + 1);
            next = (round + slot.unwrap_or(SLOTS) as u64) << at;
            // Slots before this one are of the next round.
            if slot.or_else(|| self.occupied_from(wheel, level, 0)).is_some() {
                break;
            }
        }
        self.ticks[wheel as usize] = next.min(last + 1);
    }

    /// Returns the first slot of a level, from `from` on, that has entries.
    fn occupied_from(&self, wheel: Wheel, level: usize, from: usize) -> Option<usize> {
        let words = &self.occupied[wheel as usize * LEVELS + level];
        (from / 64..WORDS).find_map(|at| {
            let below = if at == from / 64 { (1u64 << (from % 64)) - 1 } else { 0 };
            let word = words[at] & !below;
            (word != 0).then(|| at * 64 + word.trailing_zeros() as usize)
        })
    }

    /// Returns the entry of a wheel that was scheduled for the nearest time, or one of several in
    /// its list, and the end of that list's time.
    pub fn nearest(&self, wheel: Wheel) -> Option<(u32, u64)> {
        (0..LEVELS).find_map(|level| {
            let at = WIDTH * level as u32;
            let now = self.ticks[wheel as usize] >> at;
            let from = now as usize % SLOTS;
            let slot = self.occupied_from(wheel, level, from);
            let slot = slot.or_else(|| self.occupied_from(wheel, level, 0))?;
            let ahead = slot.wrapping_sub(from) % SLOTS;
            let end = now.saturating_add(ahead as u64 + 1).saturating_mul(1 << at);
            let until = end.saturating_mul(1 << TICK);
            Some((self.heads[list(wheel, level, slot)], until))
        })
    }
}

/// Returns the number of a list.
fn list(wheel: Wheel, level: usize, slot: usize) -> usize {
    (wheel as usize * LEVELS + level) * SLOTS + slot
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::{WHEELS, Wheel, Wheels};

    const SECOND: u64 = 1_000_000_000;

    /// Removes all expired entries, `work` at a time.
    fn drain(wheels: &mut Wheels, now: u64, work: u32, expires: &[u64]) -> Vec<u32> {
        let mut gone = Vec::new();
        for wheel in WHEELS {
            let mut idle = 0;
            while idle < 3 {
                let mut left = work;
                let before = gone.len();
                while let Some(entry) = wheels.pop_due(wheel, now, &mut left) {
                    match expires[entry as usize] {
                        over if over <= now => gone.push(entry),
                        later => wheels.schedule(entry, wheel, later),
                    }
                }
                idle = if left > 0 && gone.len() == before { idle + 1 } else { 0 };
            }
        }
        gone
    }

    #[test]
    fn entries_expire_at_their_time_within_a_tick() {
        // Many entries; and few, over whose empty slots the wheel goes in large steps.
        for (seed, work, entries, pause) in [
            (1, 1, 500, 34),
            (2, 7, 500, 34),
            (3, 10_000, 500, 34),
            (4, 7, 3, 54),
            (5, 100, 12, 50),
        ] {
            let mut rng = fastrand::Rng::with_seed(seed);
            let mut now = rng.u64(..1 << 50);
            let mut wheels = Wheels::new(entries, now);
            let mut expires = vec![0; entries];
            let mut model: BTreeMap<u32, Wheel> = BTreeMap::new();
            for step in 0..20_000 {
                let entry = rng.u32(..entries as u32);
                let magnitude = rng.u32(20..60);
                let later = now + rng.u64(..1 << magnitude);
                match model.get(&entry) {
                    None => {
                        let wheel = WHEELS[rng.usize(..WHEELS.len())];
                        expires[entry as usize] = later;
                        wheels.schedule(entry, wheel, later);
                        model.insert(entry, wheel);
                    }
                    // Postponed without a change to the wheel.
                    Some(_) if rng.bool() => {
                        expires[entry as usize] = expires[entry as usize].max(later);
                    }
                    Some(&wheel) => {
                        wheels.cancel(entry);
                        expires[entry as usize] = later;
                        wheels.schedule(entry, wheel, later);
                    }
                }
                let magnitude = rng.u32(..pause);
                now += rng.u64(..1 << magnitude);
                for entry in drain(&mut wheels, now, work, &expires) {
                    assert!(expires[entry as usize] <= now, "step {step}");
                    assert!(model.remove(&entry).is_some(), "step {step}");
                }
                let tick = 1 << super::TICK;
                let late = model.keys().find(|&&left| expires[left as usize] + tick <= now);
                assert_eq!(late, None, "step {step}");
            }
        }
    }

    #[test]
    fn expiry_after_a_century_is_scheduled() {
        let mut wheels = Wheels::new(2, 0);
        let expires = [100 * 365 * 86_400 * SECOND, 5];
        wheels.schedule(0, Wheel::Decided, expires[0]);
        wheels.schedule(1, Wheel::Decided, expires[1]);
        assert_eq!(drain(&mut wheels, SECOND, 100, &expires), [1]);
        assert_eq!(drain(&mut wheels, expires[0] - SECOND, 100_000, &expires), []);
        assert_eq!(drain(&mut wheels, expires[0] + SECOND, 100_000, &expires), [0]);
    }

    #[test]
    fn work_is_bounded_and_continues() {
        let mut wheels = Wheels::new(1000, 0);
        let expires = [SECOND; 1000];
        (0..1000).for_each(|entry| wheels.schedule(entry, Wheel::Requests, SECOND));
        let mut rounds = 0;
        let mut gone = 0;
        while gone < 1000 {
            let mut work = 64;
            while let Some(entry) = wheels.pop_due(Wheel::Requests, 2 * SECOND, &mut work) {
                assert!(expires[entry as usize] <= 2 * SECOND);
                gone += 1;
            }
            rounds += 1;
        }
        assert!((16..=18).contains(&rounds), "{rounds} rounds");
    }

    #[test]
    fn nearest_entry_has_the_earliest_scheduled_time() {
        let mut rng = fastrand::Rng::with_seed(4);
        let now = rng.u64(..1 << 40);
        let mut wheels = Wheels::new(300, now);
        let expires: Vec<u64> = (0..300).map(|_| now + rng.u64(..60 * SECOND)).collect();
        for entry in 0..300 {
            wheels.schedule(entry, Wheel::Requests, expires[entry as usize]);
        }
        let mut last = 0;
        while let Some((entry, until)) = wheels.nearest(Wheel::Requests) {
            wheels.cancel(entry);
            assert!(expires[entry as usize] < until);
            let expire_at = expires[entry as usize];
            // Within a slot of its level there is no order.
            let slot = if expire_at - now < 8 * SECOND { 1 << 24 } else { 1u64 << 33 };
            assert!(expire_at + slot >= last, "{expire_at} after {last}");
            last = last.max(expire_at);
        }
        assert!(last > now + 59 * SECOND);
    }
}
