//! Rivals: tables that other processes hold, DPDK's `rte_fib` the first of them.
//!
//! ```text
//!   routes, keys ─► memory that both map ─► bench/rivals/…  ─► answers, seconds
//! ```
//!
//! A [`Rival`] is whoever speaks the lines of `bench/rivals/README.md`. [`Rival::dpdk`]
//! is the table that most software packet processing is done with (DIR-24-8, looked up
//! by AVX-512 gathers; for IPv6 a trie of 24 and then 8 bits), compiled by others.
//! `fingerpost-bench run` has more of them (`registry.rs`), and our own engines in processes of
//! their own, which speak the same lines (`bench/contestant.rs`). What it takes to be
//! fair is in `bench/METHOD.md`: next hops as narrow as they can be, huge pages as for
//! ours, the best lookup function, the same keys in the same bursts, passes in turns.

use std::marker::PhantomData;

use anyhow::{Context, bail, ensure};
use fib::{Family, Hop, Prefix};

use super::contest::Contestant;
use super::keys::Stream;

mod program;
mod registry;

pub(super) use program::{Program, Shared, read_keys, read_routes, write_answers};
pub(super) use registry::{Built, Registry};

/// Which of DPDK's lookup functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Function {
    Vector,
    Scalar,
}

impl Function {
    /// Reads a contestant's name, if it is the rival's.
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
    /// What it says of itself.
    pub(super) version: String,
    /// The bytes that its lookups may touch.
    pub(super) bytes: usize,
    /// The seconds that filling the table took.
    pub(super) filled: f64,
    /// The bytes of its memory that lie on huge pages.
    huge: usize,
    /// The keys it has, where they are its alone, and how many.
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

    /// Fills the table of a program that has just started and told its version.
    pub(super) fn fill(
        (mut program, version): (Program, String),
        name: &str,
        routes: &Shared,
    ) -> anyhow::Result<Self> {
        ensure!(A::BITS == 32 || A::BITS == 128, "rivals have tables for IPv4 and IPv6 only");
        let family = if A::BITS == 32 { 4 } else { 6 };
        let said = program.ask(&format!("table {family} {}", routes.path()))?;
        let [_, filled, bytes, huge] = numbers(&said)?[..] else {
            bail!("the rival says `{said}`")
        };
        Ok(Self {
            program,
            name: name.to_owned(),
            burst: 1,
            version,
            bytes: bytes as usize,
            filled,
            huge: huge as usize,
            keys: None,
            family: PhantomData,
        })
    }

    /// Looks up with this function of DPDK's from now on.
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

    /// Looks up in one of the ways that the rival has, from now on.
    pub(super) fn lookup(&mut self, word: &str) -> anyhow::Result<()> {
        self.program.ask(&format!("lookup {word}")).map(drop)
    }

    /// Tells what it is, in a line.
    pub(super) fn describe(&self) -> String {
        let Self { name, version, bytes, huge, filled, .. } = self;
        format!(
            "{name}: {version}, {bytes} bytes, filled in {filled:.2} s, {} MiB of its memory on \
             huge pages",
            huge >> 20
        )
    }

    /// Makes changes one after the other, hop [`Hop::NONE`] being a withdrawal, and
    /// returns the seconds that took.
    pub(super) fn change(&mut self, changes: &[(Prefix<A>, Hop)]) -> anyhow::Result<f64> {
        let list = Shared::routes(changes)?;
        let said = self.program.ask(&format!("change {}", list.path()))?;
        numbers(&said)?.get(1).copied().context("the rival tells no time")
    }

    /// Shows it keys that others are shown too.
    pub(super) fn show(&mut self, keys: &Shared, count: usize) -> anyhow::Result<()> {
        self.keys = None;
        self.program.ask(&format!("keys {}", keys.path()))?;
        self.keys = Some((None, count));
        Ok(())
    }

    /// Looks all keys up, so many to a call, or each after the other, and returns the
    /// million lookups a second, over all threads.
    pub(super) fn pass(&mut self, how: How, threads: usize) -> anyhow::Result<f64> {
        let said = self.ask_pass(how, threads, None)?;
        let rates = said.split(' ').map(|part| {
            let (count, seconds) = part.split_once(':').context("no time")?;
            anyhow::Ok(count.parse::<f64>()? / seconds.parse::<f64>()? / 1e6)
        });
        rates.sum::<anyhow::Result<f64>>().with_context(|| format!("the rival says `{said}`"))
    }

    /// Does so once and tells every answer.
    pub(super) fn answers(&mut self, how: How, out: &mut [Hop]) -> anyhow::Result<()> {
        let answers = Shared::answers(out.len())?;
        self.ask_pass(how, 1, Some(&answers))?;
        answers.read(out)
    }

    /// Returns the nanoseconds of a lookup that waits for the one before it, on average
    /// over a chain of so many: of chains, the median, and 90, 99 and 99.9 %.
    pub(super) fn latency(&mut self, chain: usize) -> anyhow::Result<[f64; 4]> {
        let said = self.program.ask(&format!("latency {chain}"))?;
        match numbers(&said)?[..] {
            [_, p50, p90, p99, p999] => Ok([p50, p90, p99, p999]),
            _ => bail!("the rival says `{said}`"),
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

    /// Says that the keys it was shown are these, as far as their number tells.
    fn has(&self, keys: &[A]) -> anyhow::Result<()> {
        let has = self.keys.as_ref().map_or(0, |(_, count)| *count);
        ensure!(has == keys.len(), "the rival has {has} keys, not these {}", keys.len());
        Ok(())
    }
}

/// How keys are looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum How {
    /// One after the other, each waiting for the answer before it.
    Chain,
    /// So many to a call.
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
        // The former ones go first, so that there is never room for two.
        self.keys = None;
        let shared = Shared::keys(keys)?;
        self.show(&shared, keys.len())?;
        self.keys = Some((Some(shared), keys.len()));
        Ok(())
    }

    fn answer(&mut self, stream: Stream, keys: &[A], out: &mut [Hop]) -> anyhow::Result<()> {
        self.has(keys)?;
        self.answers(self.how(stream), out)
    }

    fn rate(&mut self, stream: Stream, keys: &[A], threads: usize) -> anyhow::Result<f64> {
        self.has(keys)?;
        self.pass(self.how(stream), threads)
    }
}

fn numbers(said: &str) -> anyhow::Result<Vec<f64>> {
    let numbers: Result<_, _> = said.split(' ').map(str::parse).collect();
    numbers.with_context(|| format!("the rival says `{said}`"))
}

#[cfg(test)]
mod tests {
    use super::Function;

    #[test]
    fn only_its_own_names_are_the_rivals() {
        assert_eq!(Function::parse("rte_fib"), Some(Function::Vector));
        assert_eq!(Function::parse("rte_fib-scalar"), Some(Function::Scalar));
        assert_eq!(Function::parse("dir24_8"), None);
    }
}
