//! The writer: an updater that applies a list of changes and reverts them.
//!
//! ```text
//!   list      c1 c2 c3 … cn          from the initial table to the last state
//!   inverse   cn' … c3' c2' c1'      from the last state to the initial table
//! ```
//!
//! Every round starts with the same table, so that a list can be applied any number of times and
//! every change has an effect. The changes of a batch are prepared in the routing table
//! ([`fib::Rib::prepare`]), as by a feed that has read a whole message.

use std::time::{Duration, Instant};

use anyhow::Context;
use fib::{Choice, Family, Hop, Prefix, Rib, Updater};

use super::readers::Probe;
use crate::clock::Clock;
use crate::engines::changes::{List, stage_change};

/// Changes that are prepared together.
const GROUP: usize = 64;

/// The rate of changes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Load {
    /// No changes.
    None,
    /// Changes per second, each published.
    Paced(f64),
    /// At full speed, with `batch` changes per publication.
    Flood { batch: usize },
}

/// A table that applies a list of changes and reverts it.
pub(super) struct Feed<A: Family> {
    pub(super) updater: Updater<A>,
    list: List<A>,
    inverse: List<A>,
    /// The prefixes of a group, in a reused buffer.
    group: Vec<Prefix<A>>,
}

impl<A: Family> Feed<A> {
    pub(super) fn new(
        rib: &Rib<A>,
        choice: Choice,
        list: &[(Prefix<A>, Hop)],
    ) -> anyhow::Result<Self> {
        let mut rib = rib.clone();
        let mut inverse: List<A> =
            list.iter().map(|&(prefix, hop)| (prefix, put(&mut rib, prefix, hop))).collect();
        inverse.reverse();
        for &(prefix, hop) in &inverse {
            put(&mut rib, prefix, hop);
        }
        let updater = Updater::new(rib, choice, 1).context("building the table")?;
        Ok(Self { updater, list: list.to_vec(), inverse, group: Vec::new() })
    }

    /// Applies the first `count` changes, `batch` per publication; returns the rate in thousand changes
    /// per second of CPU time.
    pub(super) fn forward(&mut self, count: usize, batch: usize) -> anyhow::Result<f64> {
        let list = std::mem::take(&mut self.list);
        let clock = Clock::start();
        for part in list[..count].chunks(batch) {
            self.batch(part)?;
        }
        self.publish()?;
        let rate = count as f64 / clock.seconds() / 1e3;
        self.list = list;
        Ok(rate)
    }

    /// Reverts the first `count` changes.
    pub(super) fn revert(&mut self, count: usize) -> anyhow::Result<()> {
        let inverse = std::mem::take(&mut self.inverse);
        let skipped = inverse.len() - count;
        self.batch(&inverse[skipped..])?;
        self.publish()?;
        self.inverse = inverse;
        Ok(())
    }

    /// Applies and reverts the list for some time, calls `end`, and returns to the initial table.
    /// Returns the number of changes until `end`.
    pub(super) fn run_for(
        &mut self,
        time: Duration,
        load: Load,
        end: impl FnOnce(),
    ) -> anyhow::Result<usize> {
        let (list, inverse) = (std::mem::take(&mut self.list), std::mem::take(&mut self.inverse));
        let round = [&list[..], &inverse[..]].concat();
        let start = Instant::now();
        let mut made = 0;
        loop {
            let due = match load {
                Load::None => time,
                Load::Paced(pace) => Duration::from_secs_f64(made as f64 / pace),
                Load::Flood { .. } => Duration::ZERO,
            };
            std::thread::sleep(due.min(time).saturating_sub(start.elapsed()));
            if start.elapsed() >= time {
                break;
            }
            let at = made % round.len();
            let batch = if let Load::Flood { batch } = load { batch } else { 1 };
            let part = &round[at..round.len().min(at + batch)];
            self.batch(part)?;
            made += part.len();
        }
        end();
        self.batch(&round[made % round.len()..])?;
        self.publish()?;
        (self.list, self.inverse) = (list, inverse);
        Ok(made)
    }

    /// Makes one change and publishes it; waits for readers.
    pub(super) fn change(&mut self, change: (Prefix<A>, Hop)) -> anyhow::Result<()> {
        stage_change(&mut self.updater, change);
        self.publish()
    }

    /// Makes changes and publishes them, or leaves the publication to the next batch if a reader still
    /// uses the table before the last.
    fn batch(&mut self, part: &[(Prefix<A>, Hop)]) -> anyhow::Result<()> {
        if let &[change] = part {
            return self.change(change);
        }
        for group in part.chunks(GROUP) {
            self.group.clear();
            self.group.extend(group.iter().map(|&(prefix, _)| prefix));
            self.updater.rib().prepare(&self.group);
            for &change in group {
                stage_change(&mut self.updater, change);
            }
        }
        self.updater.commit().context("applying the changes")?;
        Ok(())
    }

    fn publish(&mut self) -> anyhow::Result<()> {
        while !self.updater.commit().context("applying the changes")?.published {
            std::thread::yield_now();
        }
        Ok(())
    }
}

/// Selects the changes of a list that modify the answer of an address, given the selected changes before
/// it. Returns them with these addresses.
pub(super) fn visible<A: Family>(
    rib: &Rib<A>,
    list: &[(Prefix<A>, Hop)],
    most: usize,
) -> (List<A>, Vec<Probe<A>>) {
    let mut rib = rib.clone();
    let longest = |rib: &Rib<A>, addr| rib.longest(addr).map_or(Hop::NONE, |(_, hop)| hop);
    let (mut changes, mut probes) = (Vec::new(), Vec::new());
    for &(prefix, hop) in list {
        if changes.len() == most {
            break;
        }
        let ends = [prefix.addr(), prefix.last()];
        let before = ends.map(|addr| longest(&rib, addr));
        let old = put(&mut rib, prefix, hop);
        let after = ends.map(|addr| longest(&rib, addr));
        match (0..2).find(|&end| before[end] != after[end]) {
            Some(end) => {
                changes.push((prefix, hop));
                probes.push(Probe { addr: ends[end], hop: after[end] });
            }
            // Not selected, so it must not be made.
            None => _ = put(&mut rib, prefix, old),
        }
    }
    (changes, probes)
}

/// Makes a change; returns the former hop of the prefix.
fn put<A: Family>(rib: &mut Rib<A>, prefix: Prefix<A>, hop: Hop) -> Hop {
    let old = match hop {
        Hop::NONE => rib.remove(prefix),
        hop => rib.insert(prefix, hop),
    };
    old.unwrap_or(Hop::NONE)
}

#[cfg(test)]
mod tests {
    use super::{Feed, Load, visible};
    use crate::engines::changes::random;
    use fib::{Choice, Hop, Prefix, Rib};
    use std::time::Duration;

    fn routes() -> Vec<(Prefix<u32>, Hop)> {
        let deep = |i: u32| (Prefix::truncate(i << 22, 12), Hop(1 + i % 3));
        let all = [(Prefix::ALL, Hop(9))].into_iter().chain((0..200).map(deep));
        Rib::from_sorted(all).iter().collect()
    }

    #[test]
    fn feed_returns_to_the_initial_table() {
        let routes = routes();
        let rib = Rib::from_sorted(routes.iter().copied());
        let list = random(&routes, 500);
        let mut feed = Feed::new(&rib, Choice::Auto, &list).unwrap();
        let is_initial = |feed: &Feed<u32>| feed.updater.rib().iter().eq(routes.iter().copied());
        assert!(is_initial(&feed));
        for (count, batch) in [(500, 7), (123, 1)] {
            feed.forward(count, batch).unwrap();
            assert!(!is_initial(&feed));
            feed.revert(count).unwrap();
            assert!(is_initial(&feed));
        }
        // A busy machine may leave no time for a change: then the next run is longer.
        let mut times = (0..10).map(|n| Duration::from_millis(20 << n));
        let runs_on = |time| {
            let made = feed.run_for(time, Load::Flood { batch: 64 }, || {}).unwrap();
            assert!(is_initial(&feed));
            made > 64
        };
        assert!(times.clone().any(runs_on), "not two batches in 10 s");
        let makes_one = |time: Duration| {
            let made = feed.run_for(time, Load::Paced(1000.0), || {}).unwrap();
            assert!(is_initial(&feed));
            assert!(made as u128 <= time.as_millis(), "{made} changes in {time:?}");
            made > 0
        };
        assert!(times.any(makes_one), "not one change in 10 s");
        let time = Duration::from_millis(20);
        assert_eq!(feed.run_for(time, Load::None, || {}).unwrap(), 0);
    }

    #[test]
    fn visible_selects_changes_with_a_new_answer() {
        let routes = routes();
        let mut rib = Rib::from_sorted(routes.iter().copied());
        let (changes, probes) = visible(&rib, &random(&routes, 300), 100);
        assert_eq!((changes.len(), probes.len()), (100, 100));
        for (&(prefix, hop), probe) in changes.iter().zip(&probes) {
            let longest = |rib: &Rib<u32>| rib.longest(probe.addr).map_or(Hop::NONE, |r| r.1);
            assert_ne!(longest(&rib), probe.hop);
            super::put(&mut rib, prefix, hop);
            assert_eq!(longest(&rib), probe.hop);
        }
    }
}
