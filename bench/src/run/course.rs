//! The measurement: rounds, in each of which all contestants start in fresh processes and take turns.
//!
//! ```text
//!   round 1, 2, …
//!     the machine's limit                                  limit.rs
//!     start    every contestant: a process, a table        bytes, seconds
//!     stream   its keys, shown to all
//!       check  each looks up all of them once              every answer is compared with
//!       turns  threads × bursts: one pass of each          the routing table's
//!       SEQ    the latency of single lookups
//!     changes  one by one, then the answers at their borders
//!     end      every process
//! ```
//!
//! A fresh process has its table on other pages, and the pages decide about conflicts in the
//! caches. The spread over rounds therefore includes the effect of page placement, and no
//! contestant has one lucky placement for a whole run. The pass that checks the answers also
//! touches all memory for the first time.
//!
//! There are two exceptions: a rival that needs minutes to fill its table has one process for all rounds
//! (`single_process` in `rivals.toml`), and a contestant that cannot represent the table is left out, with the reason.

use std::process::Command;

use anyhow::{Context, bail, ensure};
use fib::{Family, Hop, Prefix, Rib};
use output::progress;

use super::definition::Measure;
use super::limit::{Limit, Sample};
use crate::contest::{check, right};
use crate::engines::changes;
use crate::keys::Stream;
use crate::rival::{Built, How, Program, Rival, Shared};

/// A contestant of a run.
pub(super) enum Entrant {
    /// An engine of ours, by name.
    Ours(String),
    Rival(Built),
}

impl Entrant {
    pub(super) fn name(&self) -> &str {
        match self {
            Self::Ours(name) => name,
            Self::Rival(built) => &built.name,
        }
    }

    fn start<A: Family>(&self, routes: &Shared) -> anyhow::Result<Rival<A>> {
        match self {
            Self::Ours(engine) => {
                let this = std::env::current_exe().context("finding this program")?;
                let mut command = Command::new(this);
                command.args(["contestant", engine]);
                Rival::fill(Program::start(command)?, engine, routes)
            }
            Self::Rival(built) => built.start(routes),
        }
    }

    fn has_single_process(&self) -> bool {
        matches!(self, Self::Rival(built) if built.single_process)
    }

    fn single(&self) -> bool {
        matches!(self, Self::Rival(built) if built.single)
    }
}

/// A stream's keys with the right answers.
pub(super) struct Course<A> {
    pub(super) stream: Stream,
    pub(super) keys: Vec<A>,
    pub(super) hops: Vec<Hop>,
}

/// A case that is measured for all contestants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Case {
    pub(super) stream: Stream,
    /// Keys a call; of SEQ always one.
    pub(super) burst: usize,
    pub(super) threads: usize,
}

/// The results of one contestant.
#[derive(Default)]
pub(super) struct Found {
    pub(super) version: String,
    pub(super) bytes: usize,
    /// Seconds, a round each.
    pub(super) fill_seconds: Vec<f64>,
    /// Million lookups a second of each case, a round each.
    pub(super) rates: Vec<Vec<f64>>,
    /// Nanoseconds of a lookup that waits for the one before: of chains, the median and
    /// 90, 99 and 99.9 %; a round each.
    pub(super) latency: Vec<[f64; 4]>,
    /// Thousand changes a second, a round each.
    pub(super) changes: Vec<f64>,
    /// Why it was left out.
    pub(super) out: Option<String>,
}

/// Lists the cases.
pub(super) fn cases(streams: &[Stream], measure: &Measure) -> Vec<Case> {
    let mut cases = Vec::new();
    for &stream in streams {
        for &threads in &measure.threads {
            let bursts = if stream == Stream::Seq { &[1][..] } else { &measure.bursts };
            cases.extend(bursts.iter().map(|&burst| Case { stream, burst, threads }));
        }
    }
    cases
}

/// Runs all rounds.
pub(super) fn run<A: Family>(
    measure: &Measure,
    routes: &[(Prefix<A>, Hop)],
    courses: &[Course<A>],
    entrants: &[Entrant],
) -> anyhow::Result<(Vec<Found>, Vec<Vec<Sample>>)> {
    let streams: Vec<Stream> = courses.iter().map(|course| course.stream).collect();
    let cases = cases(&streams, measure);
    let table = Shared::routes(routes)?;
    let keys: Vec<Shared> = progress::during("writing keys for all to read", || {
        courses.iter().map(|course| Shared::keys(&course.keys)).collect::<anyhow::Result<_>>()
    })?;
    let altered = Altered::new(routes, measure.changes);
    let limit = Limit::new();
    let mut limits = Vec::new();
    let mut found: Vec<Found> = entrants
        .iter()
        .map(|_| Found { rates: vec![Vec::new(); cases.len()], ..Found::default() })
        .collect();
    let mut held: Vec<Option<Rival<A>>> = entrants.iter().map(|_| None).collect();
    for round in 1..=measure.rounds {
        let of = |what: &str| format!("round {round} of {}, {what}", measure.rounds);
        limits.push(progress::during(&of("the machine's limit"), || limit.measure()));
        for ((entrant, held), found) in entrants.iter().zip(&mut held).zip(&mut found) {
            if held.is_some() || found.out.is_some() {
                continue;
            }
            let name = entrant.name();
            match progress::during(&of(&format!("filling {name}")), || entrant.start(&table)) {
                Ok(rival) => {
                    found.version.clone_from(&rival.version);
                    found.bytes = rival.bytes;
                    found.fill_seconds.push(rival.fill_time);
                    *held = Some(rival);
                }
                Err(error) if round == 1 => {
                    let why = output::failure::explain(&error);
                    eprintln!("fingerpost-bench: {name} is left out: {why}");
                    found.out = Some(why);
                }
                Err(error) => return Err(error.context(format!("starting {name} again"))),
            }
        }
        let mut turn = Turn { entrants, held: &mut held, found: &mut found, measure };
        for (course, keys) in courses.iter().zip(&keys) {
            progress::during(&of(&format!("{}", course.stream)), || {
                turn.check(course, keys)?;
                turn.passes(course.stream, &cases)
            })?;
        }
        if let Some(altered) = &altered {
            progress::during(&of("changes"), || turn.changes(altered))?;
        }
        for (entrant, held) in entrants.iter().zip(&mut held) {
            if !entrant.has_single_process() {
                *held = None;
            }
        }
    }
    Ok((found, limits))
}

/// A list of changes, and what is right after them.
struct Altered<A> {
    list: changes::List<A>,
    /// The changes that restore the table.
    back: changes::List<A>,
    keys: Vec<A>,
    right: Vec<Hop>,
}

impl<A: Family> Altered<A> {
    fn new(routes: &[(Prefix<A>, Hop)], count: usize) -> Option<Self> {
        if count == 0 {
            return None;
        }
        let list = changes::random(routes, count);
        let mut rib = Rib::from_sorted(routes.iter().copied());
        changes::apply(&mut rib, &list);
        let keys = changes::borders(&list);
        let right = right(&rib, &keys);
        let mut prefixes: Vec<Prefix<A>> = list.iter().map(|(prefix, _)| *prefix).collect();
        prefixes.sort_unstable();
        prefixes.dedup();
        let before = Rib::from_sorted(routes.iter().copied());
        let back = prefixes
            .into_iter()
            .map(|prefix| (prefix, before.get(prefix).unwrap_or_default()))
            .filter(|&(prefix, hop)| rib.get(prefix).unwrap_or_default() != hop)
            .collect();
        Some(Self { list, back, keys, right })
    }
}

/// All contestants in one round.
struct Turn<'a, A> {
    entrants: &'a [Entrant],
    held: &'a mut [Option<Rival<A>>],
    found: &'a mut [Found],
    measure: &'a Measure,
}

impl<A: Family> Turn<'_, A> {
    /// Calls `work` for all contestants.
    fn each(
        &mut self,
        mut work: impl FnMut(&Entrant, &mut Rival<A>, &mut Found) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let all = self.entrants.iter().zip(&mut *self.held).zip(&mut *self.found);
        for ((entrant, held), found) in all {
            if let Some(rival) = held {
                work(entrant, rival, found).with_context(|| entrant.name().to_owned())?;
            }
        }
        Ok(())
    }

    /// Gives keys to all contestants and compares their answers.
    fn check(&mut self, course: &Course<A>, keys: &Shared) -> anyhow::Result<()> {
        let mut out = vec![Hop::NONE; course.keys.len()];
        let how = match course.stream {
            Stream::Seq => How::Chain,
            _ => How::Burst(self.measure.bursts[0]),
        };
        self.each(|entrant, rival, _| {
            rival.use_keys(keys, course.keys.len())?;
            rival.answers(how, &mut out)?;
            check(entrant.name(), &course.keys, &course.hops, &out)
        })
    }

    /// Measures each case of a stream with all contestants, and the latency of single lookups.
    fn passes(&mut self, stream: Stream, cases: &[Case]) -> anyhow::Result<()> {
        for (at, case) in cases.iter().enumerate().filter(|(_, case)| case.stream == stream) {
            let same = cases.iter().position(|other| Case { burst: case.burst, ..*other } == *case);
            self.each(|entrant, rival, found| {
                let known = same.filter(|_| entrant.single()).and_then(|same| {
                    // It was measured with the first burst already.
                    (same < at).then(|| found.rates[same].last().copied()).flatten()
                });
                let how = match stream {
                    Stream::Seq => How::Chain,
                    _ => How::Burst(case.burst),
                };
                let rate = match known {
                    Some(rate) => rate,
                    None => rival.pass(how, case.threads)?,
                };
                found.rates[at].push(rate);
                Ok(())
            })?;
        }
        if stream == Stream::Seq {
            let chain = self.measure.chain;
            self.each(|_, rival, found| {
                found.latency.push(rival.latency(chain)?);
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Changes the tables of all contestants and compares answers at the borders of changed prefixes.
    fn changes(&mut self, altered: &Altered<A>) -> anyhow::Result<()> {
        let Altered { list, back, keys, right } = altered;
        let shared = Shared::keys(keys)?;
        let mut out = vec![Hop::NONE; keys.len()];
        self.each(|entrant, rival, found| {
            let seconds = rival.change(list)?;
            ensure!(seconds > 0.0, "the rival reports no time for changes");
            found.changes.push(list.len() as f64 / seconds / 1e3);
            rival.use_keys(&shared, keys.len())?;
            rival.answers(How::Burst(1), &mut out)?;
            if let Err(error) = check(entrant.name(), keys, right, &out) {
                bail!("after {} changes, {error}", list.len());
            }
            if entrant.has_single_process() {
                rival.change(back)?;
            }
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Altered, changes};
    use fib::{Hop, Prefix, Rib};

    #[test]
    fn inverse_changes_restore_the_table() {
        let routes: Vec<(Prefix<u32>, Hop)> =
            (0..500u32).map(|i| (Prefix::truncate(i << 20, 14), Hop(1 + i % 9))).collect();
        // Several lie in one block of 14 bits: of those the last counts.
        let mut rib: Rib<u32> = Rib::new();
        changes::apply(&mut rib, &routes);
        let routes: Vec<_> = rib.iter().collect();
        let altered = Altered::new(&routes, 2000).unwrap();
        changes::apply(&mut rib, &altered.list);
        assert_ne!(rib.iter().collect::<Vec<_>>(), routes);
        changes::apply(&mut rib, &altered.back);
        assert_eq!(rib.iter().collect::<Vec<_>>(), routes);
    }
}
