//! Updates per second, and the words that an update writes.
//!
//! The list of changes is prepared beforehand: a real stream through the best path rule (`--updates`),
//! or random changes, each of which withdraws a route of the table, announces a withdrawn one, or
//! changes the hop of one. Withdrawals of absent routes are left out, so that all contestants do the
//! same work.
//!
//! There are two rates. *Published*: every change is committed and a reader picks it up, as in a
//! router that receives one message at a time. *Builder*: a reader pins the tables, so that changes
//! stay in the arrays of the builder; the papers measure this rate. The written words are counted
//! there. Afterwards the published table is compared with the routing table at every border of a
//! changed prefix.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, ensure};
use feed::{Change, Options, Update};
use fib::{Addr, Family, Hop, Prefix, Rib, Updater};
use output::progress;
use serde::Serialize;

use super::Args;
use crate::clock::{Clock, Summary};
use crate::contest::{check, right};
use crate::hop_of;

/// The number of parts of the list that are timed separately.
const WINDOWS: usize = 10;
/// The seconds after which no further part is started.
const PATIENCE: f64 = 2.0;

/// A prefix and its new hop, [`Hop::NONE`] for a withdrawal.
pub(crate) type List<A> = Vec<(Prefix<A>, Hop)>;

/// Mean, minimum and maximum of counts.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Count {
    pub(super) mean: f64,
    pub(super) min: u64,
    pub(super) max: u64,
    pub(super) samples: usize,
}

impl Count {
    /// Summarizes counts; needs at least one.
    pub(super) fn of(counts: &[u64]) -> Self {
        Self {
            mean: counts.iter().sum::<u64>() as f64 / counts.len() as f64,
            min: counts.iter().copied().min().unwrap_or_default(),
            max: counts.iter().copied().max().unwrap_or_default(),
            samples: counts.len(),
        }
    }
}

/// The cost of changes for one engine.
#[derive(Serialize)]
pub(super) struct Updates {
    /// Thousand updates per second, each published.
    pub(super) published: Summary,
    /// Thousand updates per second in the builder alone.
    pub(super) builder: Summary,
    /// Written 64-bit words of the table per update.
    pub(super) words: Count,
    /// The number of updates that rebuilt the whole table.
    pub(super) rebuilt: usize,
    pub(super) samples: usize,
}

/// Returns the list of changes.
pub(super) fn list<A: Family>(
    args: &Args,
    routes: &[(Prefix<A>, Hop)],
) -> anyhow::Result<(String, List<A>)> {
    match &args.updates {
        Some(path) => replayed(path, args.setting.hops, routes),
        None => Ok((format!("{} random changes", args.changes), random(routes, args.changes))),
    }
}

/// Returns the changes that the stream of updates in a file makes in a table whose labels are spread
/// over `hops` hops.
pub(crate) fn replayed<A: Family>(
    path: &Path,
    hops: u32,
    routes: &[(Prefix<A>, Hop)],
) -> anyhow::Result<(String, List<A>)> {
    let what = format!("loading {}", path.display());
    let stream = progress::during(&what, || feed::updates(path, &Options::default()))?;
    let mut rib = Rib::from_sorted(routes.iter().copied());
    let mut list = Vec::new();
    let mut push = |prefix: u128, len: u32, label: Option<feed::Label>| {
        let prefix = Prefix::truncate(A::from_u128(prefix), len);
        let hop = label.map_or(Hop::NONE, |label| hop_of(label.0, hops));
        let before = if hop == Hop::NONE { rib.remove(prefix) } else { rib.insert(prefix, hop) };
        if before.unwrap_or_default() != hop {
            list.push((prefix, hop));
        }
    };
    stream.replay(|_, update| match update {
        Update::V4(Change::Announce { prefix, label }) if A::BITS == 32 => {
            push(prefix.addr().into(), prefix.len(), Some(label));
        }
        Update::V4(Change::Withdraw { prefix }) if A::BITS == 32 => {
            push(prefix.addr().into(), prefix.len(), None);
        }
        Update::V6(Change::Announce { prefix, label }) if A::BITS == 128 => {
            push(prefix.addr(), prefix.len(), Some(label));
        }
        Update::V6(Change::Withdraw { prefix }) if A::BITS == 128 => {
            push(prefix.addr(), prefix.len(), None);
        }
        _ => {}
    });
    ensure!(!list.is_empty(), "{}: contains no change of this family", path.display());
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    Ok((format!("{} changes of {name}", list.len()), list))
}

/// Returns random changes.
pub(crate) fn random<A: Addr>(routes: &[(Prefix<A>, Hop)], count: usize) -> List<A> {
    let mut rng = fastrand::Rng::with_seed(11);
    let mut changed = BTreeMap::new();
    let mut list = Vec::with_capacity(count);
    while list.len() < count {
        let (prefix, hop) = routes[rng.usize(..routes.len())];
        let now = changed.entry(prefix).or_insert(hop);
        let other = routes[rng.usize(..routes.len())].1;
        let next = if *now == Hop::NONE {
            hop
        } else if rng.bool() || other == *now {
            Hop::NONE
        } else {
            other
        };
        *now = next;
        list.push((prefix, next));
    }
    list
}

/// Applies the list to `rib`.
pub(crate) fn apply<A: Addr>(rib: &mut Rib<A>, list: &[(Prefix<A>, Hop)]) {
    for &(prefix, hop) in list {
        match hop {
            Hop::NONE => rib.remove(prefix),
            hop => rib.insert(prefix, hop),
        };
    }
}

/// Returns the addresses at the borders of the prefixes of `list`.
pub(crate) fn borders<A: Addr>(list: &[(Prefix<A>, Hop)]) -> Vec<A> {
    let mut borders: Vec<A> = Vec::new();
    for (prefix, _) in list {
        let (first, last) = (prefix.addr(), prefix.last());
        borders.extend([first, last, A::from_u128(first.to_u128().wrapping_sub(1))]);
        borders.extend(last.succ());
    }
    borders.sort_unstable();
    borders.dedup();
    borders
}

/// Makes the changes in an updater's table and returns their cost.
pub(super) fn measure<A: Family>(
    updater: &mut Updater<A>,
    list: &[(Prefix<A>, Hop)],
) -> anyhow::Result<Updates> {
    // Half of the list for each rate. If the time ran out, the rest of the first half is applied at
    // once, because the second half depends on it.
    let (first, second) = list.split_at(list.len() / 2);
    let mut reader = updater.reader();
    let (published, made) = windows(first, |change| {
        reader.current();
        ensure!(
            announce(updater, change)?.published,
            "a commit was not published despite a current reader"
        );
        Ok(())
    })?;
    for &change in &first[made..] {
        stage_change(updater, change);
    }
    updater.commit().context("applying the changes")?;
    reader.idle();
    // A reader that never moves on: two more changes are published, then none.
    let mut sleeper = updater.reader();
    sleeper.current();
    let (warming, second) = second.split_at(second.len().min(3));
    for &change in warming {
        announce(updater, change)?;
    }
    let mut words = Vec::new();
    let mut rebuilt = 0;
    let (builder, made_too) = windows(second, |change| {
        let before = updater.written();
        let commit = announce(updater, change)?;
        rebuilt += usize::from(commit.rebuilt);
        // A new builder counts from zero.
        words.push(updater.written() - if commit.rebuilt { 0 } else { before });
        Ok(())
    })?;
    drop(sleeper);
    ensure!(updater.commit()?.published, "a commit was not published without readers");
    let borders = borders(&list[..first.len() + warming.len() + made_too]);
    let mut hops = vec![Hop::NONE; borders.len()];
    updater.fib().lookup_batch(&borders, &mut hops);
    let right = right(updater.rib(), &borders);
    check("after the updates, the table", &borders, &right, &hops)?;
    Ok(Updates {
        published: Summary::of(&published),
        builder: Summary::of(&builder),
        words: Count::of(&words),
        rebuilt,
        samples: made + made_too,
    })
}

/// Adds a change to the next commit of an updater.
pub(crate) fn stage_change<A: Family>(updater: &mut Updater<A>, (prefix, hop): (Prefix<A>, Hop)) {
    match hop {
        Hop::NONE => updater.withdraw(prefix),
        hop => updater.announce(prefix, hop),
    };
}

fn announce<A: Family>(
    updater: &mut Updater<A>,
    change: (Prefix<A>, Hop),
) -> anyhow::Result<fib::Commit> {
    stage_change(updater, change);
    updater.commit().context("applying the changes")
}

/// Makes the changes of a list in parts until the time is over. Returns the thousand changes per second of
/// each part and the number of changes.
fn windows<A: Addr>(
    list: &[(Prefix<A>, Hop)],
    mut work: impl FnMut((Prefix<A>, Hop)) -> anyhow::Result<()>,
) -> anyhow::Result<(Vec<f64>, usize)> {
    let mut rates = Vec::new();
    let mut spent = 0.0;
    let mut at = 0;
    // The time of the first change determines the size of a part.
    let mut len = 1;
    while at < list.len() && spent < PATIENCE {
        let part = &list[at..list.len().min(at + len)];
        let clock = Clock::start();
        for &change in part {
            work(change)?;
        }
        let seconds = clock.seconds().max(1e-9);
        spent += seconds;
        at += part.len();
        let rate = part.len() as f64 / seconds;
        rates.push(rate / 1e3);
        let affordable = (rate * PATIENCE / WINDOWS as f64) as usize;
        len = affordable.clamp(1, list.len().div_ceil(WINDOWS));
    }
    if rates.len() > 1 {
        // The first part was the single first change.
        rates.remove(0);
    }
    Ok((rates, at))
}
