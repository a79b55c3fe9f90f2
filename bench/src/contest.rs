//! A comparison: contestants, whose answers are compared first, take turns.
//!
//! ```text
//!                     keys ─► prove ─► round 1, 2, …        ─► rates, a list a contestant
//!   Ours (any Lookups)  │      every answer   each looks up all keys
//!   Rival (a process) ──┘      of all
//! ```
//!
//! Before the measurement, each contestant's answers to each stream are compared: the
//! first million with the routing table's own longest match, all of them with each
//! other's. Then the contestants take turns, round after round, so that a slow minute of the machine
//! affects all. The result is the median of the passes of a contestant; ratios are between medians.
//! Each thread has its own core and its own section of the keys; all share one table, as workers do.

use std::hint::black_box;
use std::sync::Barrier;

use anyhow::bail;
use fib::{Addr, Family, Fib, Hop, Rib};
use output::progress;

use super::clock::{Clock, pin};
use super::keys::Stream;
use super::plain::Plain;

/// Answers that are compared with the routing table.
pub(super) const PROVEN: usize = 1 << 20;
/// Lookups of SEQ per chain, after which the answer buffer is reused.
const CHAIN: usize = 1 << 12;

/// A participant of a comparison: one of our tables, or another program.
pub(super) trait Contestant<A: Family> {
    fn name(&self) -> &str;

    /// Returns the bytes that its lookups may touch.
    fn bytes(&self) -> usize;

    /// Prepares for the keys of the next passes.
    fn expect(&mut self, _keys: &[A]) -> anyhow::Result<()> {
        Ok(())
    }

    /// Looks up all keys in the order of the stream and returns every answer.
    fn answer(&mut self, stream: Stream, keys: &[A], out: &mut [Hop]) -> anyhow::Result<()>;

    /// Looks up all keys and returns the million lookups per second of all threads.
    fn rate(&mut self, stream: Stream, keys: &[A], threads: usize) -> anyhow::Result<f64>;
}

/// A table in this process.
pub(super) trait Lookups<A: Family>: Sync {
    fn batch(&self, keys: &[A], out: &mut [Hop]);

    /// Looks up `keys[i]` into `out[i]`; each lookup depends on the answer before it.
    fn chained(&self, keys: &[A], out: &mut [Hop]);

    fn bytes(&self) -> usize;

    /// Looks up all keys, `batch` per call. Reuses `out` if it is shorter than the keys.
    fn pass(&self, stream: Stream, batch: usize, keys: &[A], out: &mut [Hop]) {
        let once = out.len() >= keys.len();
        let len = if stream == Stream::Seq { CHAIN.min(out.len()) } else { batch };
        for (i, keys) in keys.chunks(len).enumerate() {
            let at = if once { i * len } else { 0 };
            let out = &mut out[at..at + keys.len()];
            if stream == Stream::Seq {
                self.chained(keys, out);
            } else {
                self.batch(keys, out);
            }
            black_box(out);
        }
    }
}

impl<A: Family> Lookups<A> for Fib<A> {
    fn batch(&self, keys: &[A], out: &mut [Hop]) {
        self.lookup_batch(keys, out);
    }

    fn chained(&self, keys: &[A], out: &mut [Hop]) {
        self.lookup_chained(keys, out);
    }

    fn bytes(&self) -> usize {
        self.footprint()
    }
}

impl<A: Family, T: Lookups<A>> Lookups<A> for &T {
    fn batch(&self, keys: &[A], out: &mut [Hop]) {
        (**self).batch(keys, out);
    }

    fn chained(&self, keys: &[A], out: &mut [Hop]) {
        (**self).chained(keys, out);
    }

    fn bytes(&self) -> usize {
        (**self).bytes()
    }
}

impl Lookups<u32> for Plain {
    fn batch(&self, keys: &[u32], out: &mut [Hop]) {
        for (key, out) in keys.iter().zip(out) {
            *out = self.lookup(*key);
        }
    }

    /// Adds zero bits derived from the last answer to the next key: a data dependency that the optimizer
    /// cannot remove.
    fn chained(&self, keys: &[u32], out: &mut [Hop]) {
        let none = black_box(0);
        let mut before = Hop::NONE;
        for (&key, out) in keys.iter().zip(out) {
            before = self.lookup(key ^ before.0 & none);
            *out = before;
        }
    }

    fn bytes(&self) -> usize {
        self.footprint()
    }
}

/// Where the answers of a timed pass go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answers {
    /// Into an array as long as the keys.
    Stored,
    /// Into the buffer of one batch, which is reused, as in a datapath.
    Used,
}

/// A contestant in this process.
pub(super) struct Ours<T> {
    name: String,
    table: T,
    batch: usize,
    answers: Answers,
    out: Vec<Hop>,
}

impl<T> Ours<T> {
    pub(super) fn new(name: &str, table: T, batch: usize, answers: Answers) -> Self {
        Self { name: name.to_owned(), table, batch, answers, out: Vec::new() }
    }
}

impl<A: Family, T: Lookups<A>> Contestant<A> for Ours<T> {
    fn name(&self) -> &str {
        &self.name
    }

    fn bytes(&self) -> usize {
        self.table.bytes()
    }

    fn answer(&mut self, stream: Stream, keys: &[A], out: &mut [Hop]) -> anyhow::Result<()> {
        self.table.pass(stream, self.batch, keys, out);
        Ok(())
    }

    fn rate(&mut self, stream: Stream, keys: &[A], threads: usize) -> anyhow::Result<f64> {
        let times = self.times(stream, keys, threads);
        Ok(times.iter().map(|(count, seconds)| *count as f64 / seconds / 1e6).sum())
    }
}

impl<T> Ours<T> {
    /// Looks up all keys and returns the number of lookups and the seconds of each thread.
    pub(super) fn times<A: Family>(
        &mut self,
        stream: Stream,
        keys: &[A],
        threads: usize,
    ) -> Vec<(usize, f64)>
    where
        T: Lookups<A>,
    {
        let section = keys.len().div_ceil(threads);
        let room = match self.answers {
            Answers::Stored => section,
            Answers::Used if stream == Stream::Seq => CHAIN,
            Answers::Used => self.batch,
        };
        self.out.resize(room * threads, Hop::NONE);
        let (table, batch) = (&self.table, self.batch);
        let ready = &Barrier::new(keys.len().div_ceil(section));
        let work = |cpu: usize, keys: &[A], out: &mut [Hop]| {
            pin(cpu);
            ready.wait();
            let clock = Clock::start();
            table.pass(stream, batch, keys, out);
            (keys.len(), clock.seconds())
        };
        std::thread::scope(|scope| {
            let sections = keys.chunks(section).zip(self.out.chunks_mut(room)).enumerate();
            let running: Vec<_> = sections
                .map(|(cpu, (keys, out))| scope.spawn(move || work(cpu, keys, out)))
                .collect();
            let times = running.into_iter().map(|thread| {
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            });
            times.collect()
        })
    }
}

/// Returns the right answers to keys: the longest match in the routing table.
pub(super) fn right<A: Addr>(rib: &Rib<A>, keys: &[A]) -> Vec<Hop> {
    keys.iter().map(|&key| rib.longest(key).map_or(Hop::NONE, |(_, hop)| hop)).collect()
}

/// Compares `out` with the right answers to the first of the keys.
pub(super) fn check<A: Addr>(
    name: &str,
    keys: &[A],
    right: &[Hop],
    out: &[Hop],
) -> anyhow::Result<()> {
    if let Some(at) = right.iter().zip(out).position(|(right, hop)| right != hop) {
        let (key, right, hop) = (keys[at], right[at], out[at]);
        bail!("{name} is wrong: {key:x?} gives {hop:?}, the longest match is {right:?}");
    }
    Ok(())
}

/// Compares the answers of all contestants with the routing table and with each other.
pub(super) fn prove<A: Family>(
    rib: &Rib<A>,
    contestants: &mut [Box<dyn Contestant<A> + '_>],
    stream: Stream,
    keys: &[A],
) -> anyhow::Result<()> {
    let proven = progress::during(&format!("checking {stream}"), || {
        right(rib, &keys[..keys.len().min(PROVEN)])
    });
    let mut out = vec![Hop::NONE; keys.len()];
    let mut agreed = Vec::new();
    let mut first = None;
    for contestant in contestants {
        contestant.expect(keys)?;
        contestant.answer(stream, keys, &mut out)?;
        check(contestant.name(), keys, &proven, &out)?;
        match &first {
            None => {
                agreed.extend_from_slice(&out);
                first = Some(contestant.name().to_owned());
            }
            Some(first) => {
                if let Some(at) = agreed.iter().zip(&out).position(|(one, two)| one != two) {
                    let (name, key) = (contestant.name(), keys[at]);
                    bail!("{first} and {name} differ on {stream}: the hop of {key:x?}");
                }
            }
        }
        out.fill(Hop::NONE);
    }
    Ok(())
}

/// Measures all contestants in turns and returns the rates of each.
pub(super) fn rounds<A: Family>(
    contestants: &mut [Box<dyn Contestant<A> + '_>],
    stream: Stream,
    keys: &[A],
    threads: usize,
    rounds: usize,
) -> anyhow::Result<Vec<Vec<f64>>> {
    let mut rates = vec![Vec::new(); contestants.len()];
    for round in 0..rounds {
        let what = format!("{stream}, {threads} threads, round {} of {rounds}", round + 1);
        progress::during(&what, || {
            for (contestant, rates) in contestants.iter_mut().zip(&mut rates) {
                rates.push(contestant.rate(stream, keys, threads)?);
            }
            anyhow::Ok(())
        })?;
    }
    Ok(rates)
}

/// Returns an error if there are not enough cores for one per thread.
pub(super) fn enough_cores(threads: &[usize]) -> anyhow::Result<()> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    if let Some(threads) = threads.iter().find(|&&threads| threads > cores || threads == 0) {
        bail!("--threads {threads}: needs one core per thread; this machine has {cores}");
    }
    Ok(())
}
