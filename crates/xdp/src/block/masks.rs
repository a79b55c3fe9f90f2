//! Prefixes with the lists that contain them.
//!
//! ```text
//!   own:    10.0.0.0/8 in list 2      10.1.0.0/16 in list 0     the lists that name the prefix
//!   hops:   10.0.0.0/8 ─► {2}         10.1.0.0/16 ─► {0, 2}     those, and those of covering prefixes
//! ```
//!
//! A longest match finds one prefix, whose hop therefore has the lists of all prefixes that cover it: a
//! bit for each list. A change of a prefix changes the hops of the prefixes within it; the changes
//! of one commit are gathered first, so that each is computed once.

use std::collections::HashSet;

use fib::{Family, Hop, Prefix, Rib, Updater};

/// One pass over all prefixes is made if more than one in so many has changed.
const MANY: usize = 16;

/// The lists of each prefix, and the prefixes whose lists have changed.
#[derive(Debug)]
pub struct ListMasks<A: Family> {
    /// The lists that name a prefix, as a hop.
    own: Rib<A>,
    changed: Vec<Prefix<A>>,
}

impl<A: Family> Default for ListMasks<A> {
    fn default() -> Self {
        Self { own: Rib::new(), changed: Vec::new() }
    }
}

impl<A: Family> ListMasks<A> {
    /// Puts `prefix` into a list or takes it out; returns whether that is a change.
    pub fn set(&mut self, list: usize, prefix: Prefix<A>, listed: bool) -> bool {
        let before = self.own.get(prefix).map_or(0, |hop| hop.0);
        let after = if listed { before | 1 << list } else { before & !(1 << list) };
        if after == before {
            return false;
        }
        if after == 0 {
            self.own.remove(prefix);
        } else {
            self.own.insert(prefix, Hop(after));
        }
        self.changed.push(prefix);
        true
    }

    /// Returns whether [`apply`](Self::apply) has anything to do.
    pub fn has_changed(&self) -> bool {
        !self.changed.is_empty()
    }

    /// Makes `prefixes` the content of a list; returns whether that is a change.
    pub fn replace(&mut self, list: usize, prefixes: &[Prefix<A>]) -> bool {
        let mut changes = false;
        let listed = self.own.iter().filter(|(_, lists)| lists.0 & 1 << list != 0);
        let listed: Vec<Prefix<A>> = listed.map(|(prefix, _)| prefix).collect();
        if !listed.is_empty() {
            let wanted: HashSet<Prefix<A>> = prefixes.iter().copied().collect();
            for prefix in listed {
                changes |= self.set(list, prefix, wanted.contains(&prefix));
            }
        }
        for &prefix in prefixes {
            changes |= self.set(list, prefix, true);
        }
        changes
    }

    /// Returns the lines that cover a prefix, the shortest first, each with a bit for each list that has it.
    pub fn covering(&self, prefix: Prefix<A>) -> impl Iterator<Item = (Prefix<A>, u32)> {
        self.own.covering(prefix).map(|(prefix, lists)| (prefix, lists.0))
    }

    /// Counts the lines within a prefix, itself not included.
    ///
    /// # Complexity
    ///
    /// O(that number).
    pub fn count_within(&self, prefix: Prefix<A>) -> usize {
        self.own.covered(prefix).filter(|(inner, _)| *inner != prefix).count()
    }

    /// Brings the routes of `updater` up to date.
    pub fn apply(&mut self, updater: &mut Updater<A>) {
        let mut changed = std::mem::take(&mut self.changed);
        changed.sort_unstable();
        changed.dedup();
        self.own.mark_clean();
        for &prefix in changed.iter().filter(|&&prefix| self.own.get(prefix).is_none()) {
            updater.withdraw(prefix);
        }
        if changed.len() > self.own.len() / MANY {
            return self.refresh(Prefix::ALL, updater);
        }
        let mut done: Option<Prefix<A>> = None;
        for prefix in changed {
            // A prefix comes before those within it.
            if done.is_none_or(|done| !done.covers(prefix)) {
                self.refresh(prefix, updater);
                done = Some(prefix);
            }
        }
    }

    /// Announces all prefixes within `top` with the lists that contain them.
    fn refresh(&self, top: Prefix<A>, updater: &mut Updater<A>) {
        let above = self.own.covering(top).filter(|(prefix, _)| prefix.len() < top.len());
        let inherited = above.fold(0, |lists, (_, hop)| lists | hop.0);
        // The prefixes that cover the present one, with their lists.
        let mut covering: Vec<(Prefix<A>, u32)> = Vec::new();
        for (prefix, hop) in self.own.covered(top) {
            while covering.pop_if(|(last, _)| !last.covers(prefix)).is_some() {}
            let lists = hop.0 | covering.last().map_or(inherited, |&(_, lists)| lists);
            covering.push((prefix, lists));
            updater.announce(prefix, Hop(lists));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::ListMasks;
    use fib::{Choice, Prefix, Rib, Updater};

    /// The lists that contain an address, by a scan of all.
    fn scan(lists: &[Vec<Prefix<u16>>], addr: u16) -> u32 {
        let contains = |list: &Vec<Prefix<u16>>| list.iter().any(|prefix| prefix.contains(addr));
        (0..).zip(lists).map(|(bit, list)| u32::from(contains(list)) << bit).sum()
    }

    #[test]
    fn hops_are_the_lists_that_contain_an_address() {
        let mut rng = fastrand::Rng::with_seed(8);
        let mut masks = ListMasks::<u16>::default();
        let mut updater = Updater::new(Rib::new(), Choice::Linear, 1).unwrap();
        let mut lists: [Vec<Prefix<u16>>; 4] = Default::default();
        for _ in 0..120 {
            for _ in 0..rng.usize(1..12) {
                let nth = rng.usize(..4);
                let random =
                    |rng: &mut fastrand::Rng| Prefix::truncate(rng.u16(..), rng.u32(0..=16));
                if rng.u8(..8) == 0 {
                    lists[nth] = (0..rng.usize(..30)).map(|_| random(&mut rng)).collect();
                    masks.replace(nth, &lists[nth]);
                    lists[nth].sort_unstable();
                    lists[nth].dedup();
                } else if rng.bool() || lists[nth].is_empty() {
                    let prefix = random(&mut rng);
                    let is_new = !lists[nth].contains(&prefix);
                    assert_eq!(masks.set(nth, prefix, true), is_new);
                    if is_new {
                        lists[nth].push(prefix);
                    }
                } else {
                    let at = rng.usize(..lists[nth].len());
                    assert!(masks.set(nth, lists[nth].swap_remove(at), false));
                }
            }
            masks.apply(&mut updater);
            updater.commit().unwrap();
            for addr in (0..=u16::MAX).step_by(7) {
                assert_eq!(updater.fib().lookup(addr).0, scan(&lists, addr), "{addr:x}");
            }
        }
    }
}
