//! Rivals: tables in other processes, first of all DPDK's `rte_fib`.
//!
//! ```text
//!   routes, keys ─► memory that both map ─► bench/rivals/…  ─► answers, seconds
//! ```
//!
//! A [`Rival`] is a process that implements the line protocol of `bench/rivals/README.md`.
//! [`Rival::dpdk`] is the table of most software packet processing (DIR-24-8 with AVX-512 gathers;
//! for IPv6 a trie of 24 and then 8 bits), as its authors wrote it. `fingerpost-bench run` has more of
//! them (`registry.rs`), and runs our own engines in processes with the same protocol
//! (`contestant.rs`). `bench/METHOD.md` lists the conditions of a fair comparison: the narrowest next
//! hops, huge pages as for our tables, the best lookup function, the same keys in the same bursts,
//! passes in turns.

use std::marker::PhantomData;

use anyhow::{Context, bail, ensure};
use fib::{Family, Hop, Prefix};

use super::contest::Contestant;
use super::keys::Stream;

mod program;
mod registry;

pub(super) use program::{Program, Shared, read_keys, read_routes, write_answers};
pub(super) use registry::{Built, Registry};

/// A lookup function of DPDK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Function {
    Vector,
    Scalar,
}

impl Function {
    /// Returns the function with this contestant name.
    pub(super) fn parse(name: &str) -> Option<Self> {
        [Self::Vector, Self::Scalar].into_iter().find(|function| function.name() == name)
    }

    fn name(self) -> &'static str {
        match self {
            Self::Vector => "rte_fib",
            Self::Scalar => "rte_fib-scalar",
        }
    }
}

/// A table in another process.
pub(super) struct Rival<A> {
    program: Program,
    name: String,
    burst: usize,
    /// Its name and version, as it reports them.
    pub(super) version: String,
    /// The bytes that its lookups may touch.
    pub(super) bytes: usize,
    /// The time to fill the table, in seconds.
    pub(super) fill_time: f64,
    /// The bytes of its memory on huge pages.
    huge: usize,
    /// Its keys (with the memory, if no other process shares it) and their number.
    keys: Option<(Option<Shared>, usize)>,
    family: PhantomData<A>,
}

impl<A: Family> Rival<A> {
    /// Fills DPDK's table with `routes`, which are sorted.
    pub(super) fn dpdk(
        routes: &[(Prefix<A>, Hop)],
        function: Function,
        burst: usize,
    ) -> anyhow::Result<Self> {
        let routes = Shared::routes(routes)?;
        let mut rival = Self::fill(Program::dpdk()?, function.name(), &routes)?;
        rival.burst = burst;
        rival.choose(function)?;
        Ok(rival)
    }

    /// Fills the table of a program that has started and reported its version.
    pub(super) fn fill(
        (mut program, version): (Program, String),
        name: &str,
        routes: &Shared,
    ) -> anyhow::Result<Self> {
        ensure!(A::BITS == 32 || A::BITS == 128, "rivals have tables for IPv4 and IPv6 only");
        let family = if A::BITS == 32 { 4 } else { 6 };
        let reply = program.ask(&format!("table {family} {}", routes.path()))?;
        let [_, fill_time, bytes, huge] = numbers(&reply)?[..] else {
            bail!("the rival replied `{reply}`")
        };
        Ok(Self {
            program,
            name: name.to_owned(),
            burst: 1,
            version,
            bytes: bytes as usize,
            fill_time,
            huge: huge as usize,
            keys: None,
            family: PhantomData,
        })
    }

    /// Selects the lookup function of DPDK.
    pub(super) fn choose(&mut self, function: Function) -> anyhow::Result<()> {
        let word = match function {
            Function::Vector => "vector",
            Function::Scalar => "scalar",
        };
        self.lookup(word)
            .with_context(|| format!("DPDK has no {word} lookup on this processor"))?;
        self.name = function.name().to_owned();
        Ok(())
    }

    /// Selects one of the lookup functions of the rival.
    pub(super) fn lookup(&mut self, word: &str) -> anyhow::Result<()> {
        self.program.ask(&format!("lookup {word}")).map(drop)
    }

    /// Describes it in a line.
    pub(super) fn describe(&self) -> String {
        let Self { name, version, bytes, huge, fill_time, .. } = self;
        format!(
            "{name}: {version}, {bytes} bytes, filled in {fill_time:.2} s, {} MiB of its memory on \
             huge pages",
            huge >> 20
        )
    }

    /// Makes changes one after the other ([`Hop::NONE`] is a withdrawal), and returns the time in
    /// seconds.
    pub(super) fn change(&mut self, changes: &[(Prefix<A>, Hop)]) -> anyhow::Result<f64> {
        let list = Shared::routes(changes)?;
        let reply = self.program.ask(&format!("change {}", list.path()))?;
        numbers(&reply)?.get(1).copied().context("the rival reports no time")
    }

    /// Gives it keys that other processes share.
    pub(super) fn use_keys(&mut self, keys: &Shared, count: usize) -> anyhow::Result<()> {
        self.keys = None;
        self.program.ask(&format!("keys {}", keys.path()))?;
        self.keys = Some((None, count));
        Ok(())
    }

    /// Looks up all keys, in bursts or as a chain, and returns the million lookups per second of all
    /// threads.
    pub(super) fn pass(&mut self, how: How, threads: usize) -> anyhow::Result<f64> {
        let reply = self.ask_pass(how, threads, None)?;
        let rates = reply.split(' ').map(|part| {
            let (count, seconds) = part.split_once(':').context("no time")?;
            anyhow::Ok(count.parse::<f64>()? / seconds.parse::<f64>()? / 1e6)
        });
        rates.sum::<anyhow::Result<f64>>().with_context(|| format!("the rival replied `{reply}`"))
    }

    /// Looks up all keys once and returns every answer.
    pub(super) fn answers(&mut self, how: How, out: &mut [Hop]) -> anyhow::Result<()> {
        let answers = Shared::answers(out.len())?;
        self.ask_pass(how, 1, Some(&answers))?;
        answers.read(out)
    }

    /// Returns the nanoseconds of a lookup that depends on the one before it, as averages over chains
    /// of this length: the 50th, 90th, 99th and 99.9th percentile of the chains.
    pub(super) fn latency(&mut self, chain: usize) -> anyhow::Result<[f64; 4]> {
        let reply = self.program.ask(&format!("latency {chain}"))?;
        match numbers(&reply)?[..] {
            [_, p50, p90, p99, p999] => Ok([p50, p90, p99, p999]),
            _ => bail!("the rival replied `{reply}`"),
        }
    }

    fn ask_pass(
        &mut self,
        how: How,
        threads: usize,
        out: Option<&Shared>,
    ) -> anyhow::Result<String> {
        let out = out.map(Shared::path).unwrap_or_default();
        let how = match how {
            How::Chain => "chain 1".to_owned(),
            How::Burst(burst) => format!("burst {burst}"),
        };
        self.program.ask(&format!("pass {how} {threads} {out}"))
    }

    fn how(&self, stream: Stream) -> How {
        if stream == Stream::Seq { How::Chain } else { How::Burst(self.burst) }
    }

    /// Checks that it has as many keys as `keys`.
    fn check_keys(&self, keys: &[A]) -> anyhow::Result<()> {
        let has = self.keys.as_ref().map_or(0, |(_, count)| *count);
        ensure!(has == keys.len(), "the rival has {has} keys, not these {}", keys.len());
        Ok(())
    }
}

/// The order of lookups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum How {
    /// One after the other; each depends on the answer before it.
    Chain,
    /// This many keys per call.
    Burst(usize),
}

impl<A: Family> Contestant<A> for Rival<A> {
    fn name(&self) -> &str {
        &self.name
    }

    fn bytes(&self) -> usize {
        self.bytes
    }

    fn expect(&mut self, keys: &[A]) -> anyhow::Result<()> {
        // Releases the memory of the former keys first.
        self.keys = None;
        let shared = Shared::keys(keys)?;
        self.use_keys(&shared, keys.len())?;
        self.keys = Some((Some(shared), keys.len()));
        Ok(())
    }

    fn answer(&mut self, stream: Stream, keys: &[A], out: &mut [Hop]) -> anyhow::Result<()> {
        self.check_keys(keys)?;
        self.answers(self.how(stream), out)
    }

    fn rate(&mut self, stream: Stream, keys: &[A], threads: usize) -> anyhow::Result<f64> {
        self.check_keys(keys)?;
        self.pass(self.how(stream), threads)
    }
}

fn numbers(reply: &str) -> anyhow::Result<Vec<f64>> {
    let numbers: Result<_, _> = reply.split(' ').map(str::parse).collect();
    numbers.with_context(|| format!("the rival replied `{reply}`"))
}

#[cfg(test)]
mod tests {
    use super::Function;

    #[test]
    fn parse_accepts_only_the_names_of_dpdk_functions() {
        assert_eq!(Function::parse("rte_fib"), Some(Function::Vector));
        assert_eq!(Function::parse("rte_fib-scalar"), Some(Function::Scalar));
        assert_eq!(Function::parse("dir24_8"), None);
    }
}
