//! The writer: an updater that is fed a list of changes, and takes them back.
//!
//! ```text
//!   list   c1 c2 c3 … cn          each leads from one state of the table to the next
//!   back   cn' … c3' c2' c1'      and from the last one home
//! ```
//!
//! Every round begins with the same table, so that a list of any length can be made
//! again and again, and no change is one that finds nothing to do. Changes of a batch
//! are announced to the routing table beforehand ([`fib::Rib::prepare`]), as a feed can
//! that has read a whole message.

use std::time::{Duration, Instant};

use anyhow::Context;
use fib::{Choice, Family, Hop, Prefix, Rib, Updater};

use super::readers::Sight;
use crate::clock::Clock;
use crate::engines::changes::{List, note};

/// How many changes are prepared together.
const NEAR: usize = 64;

/// How changes come.
#[derive(Clone, Copy, Debug)]
pub(super) enum Load {
    /// Not at all.
    None,
    /// So many a second, each published by itself.
    Paced(f64),
    /// As quickly as they are taken, so many to a publication.
    Flood { batch: usize },
}

/// A table that follows a list there and back.
pub(super) struct Feed<A: Family> {
    pub(super) updater: Updater<A>,
    list: List<A>,
    back: List<A>,
    /// Room for the prefixes that are prepared.
    near: Vec<Prefix<A>>,
}

impl<A: Family> Feed<A> {
    pub(super) fn new(
        rib: &Rib<A>,
        choice: Choice,
        list: &[(Prefix<A>, Hop)],
    ) -> anyhow::Result<Self> {
        let mut rib = rib.clone();
        let mut back: List<A> =
            list.iter().map(|&(prefix, hop)| (prefix, put(&mut rib, prefix, hop))).collect();
        back.reverse();
        for &(prefix, hop) in &back {
            put(&mut rib, prefix, hop);
        }
        let updater = Updater::new(rib, choice, 1).context("building the table")?;
        Ok(Self { updater, list: list.to_vec(), back, near: Vec::new() })
    }

    /// Makes the first `count` changes, `batch` to a publication; returns how many
    /// thousand that were a second of this thread's time.
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

    /// Takes the first `count` changes back.
    pub(super) fn home(&mut self, count: usize) -> anyhow::Result<()> {
        let back = std::mem::take(&mut self.back);
        let made = back.len() - count;
        self.batch(&back[made..])?;
        self.publish()?;
        self.back = back;
        Ok(())
    }

    /// Makes changes for some time, there and back, and says when it is over; then
    /// returns home. Returns how many changes there were, those home not counted.
    pub(super) fn go_on(
        &mut self,
        time: Duration,
        load: Load,
        over: impl FnOnce(),
    ) -> anyhow::Result<usize> {
        let (list, back) = (std::mem::take(&mut self.list), std::mem::take(&mut self.back));
        let round = [&list[..], &back[..]].concat();
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
        over();
        self.batch(&round[made % round.len()..])?;
        self.publish()?;
        (self.list, self.back) = (list, back);
        Ok(made)
    }

    /// Makes one change and publishes it, however long readers take.
    pub(super) fn change(&mut self, change: (Prefix<A>, Hop)) -> anyhow::Result<()> {
        note(&mut self.updater, change);
        self.publish()
    }

    /// Makes changes and publishes them, or leaves that to the next batch, where a
    /// reader still has the table before the last.
    fn batch(&mut self, part: &[(Prefix<A>, Hop)]) -> anyhow::Result<()> {
        if let &[change] = part {
            return self.change(change);
        }
        for group in part.chunks(NEAR) {
            self.near.clear();
            self.near.extend(group.iter().map(|&(prefix, _)| prefix));
            self.updater.rib().prepare(&self.near);
            for &change in group {
                note(&mut self.updater, change);
            }
        }
        self.updater.commit().context("following the changes")?;
        Ok(())
    }

    fn publish(&mut self) -> anyhow::Result<()> {
        while !self.updater.commit().context("following the changes")?.published {
            std::thread::yield_now();
        }
        Ok(())
    }
}

/// Takes those changes of a list by which some address is answered differently, each
/// after those before it, and says which address.
pub(super) fn visible<A: Family>(
    rib: &Rib<A>,
    list: &[(Prefix<A>, Hop)],
    most: usize,
) -> (List<A>, Vec<Sight<A>>) {
    let mut rib = rib.clone();
    let longest = |rib: &Rib<A>, addr| rib.longest(addr).map_or(Hop::NONE, |(_, hop)| hop);
    let (mut changes, mut sights) = (Vec::new(), Vec::new());
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
                sights.push(Sight { addr: ends[end], hop: after[end] });
            }
            // Left out, and so not made.
            None => _ = put(&mut rib, prefix, old),
        }
    }
    (changes, sights)
}

/// Makes a change, and returns the one that would take it back.
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
    fn a_feed_comes_home() {
        let routes = routes();
        let rib = Rib::from_sorted(routes.iter().copied());
        let list = random(&routes, 500);
        let mut feed = Feed::new(&rib, Choice::Auto, &list).unwrap();
        let here = |feed: &Feed<u32>| feed.updater.rib().iter().eq(routes.iter().copied());
        assert!(here(&feed));
        for (count, batch) in [(500, 7), (123, 1)] {
            feed.forward(count, batch).unwrap();
            assert!(!here(&feed));
            feed.home(count).unwrap();
            assert!(here(&feed));
        }
        let time = Duration::from_millis(20);
        assert!(feed.go_on(time, Load::Flood { batch: 64 }, || {}).unwrap() > 64);
        assert!(here(&feed));
        let paced = feed.go_on(time, Load::Paced(1000.0), || {}).unwrap();
        assert!((1..=22).contains(&paced), "{paced}");
        assert!(here(&feed));
        assert_eq!(feed.go_on(time, Load::None, || {}).unwrap(), 0);
    }

    #[test]
    fn what_is_watched_for_can_be_seen_and_was_not_there_before() {
        let routes = routes();
        let mut rib = Rib::from_sorted(routes.iter().copied());
        let (changes, sights) = visible(&rib, &random(&routes, 300), 100);
        assert_eq!((changes.len(), sights.len()), (100, 100));
        for (&(prefix, hop), sight) in changes.iter().zip(&sights) {
            let longest = |rib: &Rib<u32>| rib.longest(sight.addr).map_or(Hop::NONE, |r| r.1);
            assert_ne!(longest(&rib), sight.hop);
            super::put(&mut rib, prefix, hop);
            assert_eq!(longest(&rib), sight.hop);
        }
    }
}
