//! The rival: DPDK's `rte_fib` and `rte_fib6`, in a process of its own.
//!
//! ```text
//!   routes, keys ─► memory that both map ─► bench/rivals/rte_fib.c ─► answers, seconds
//! ```
//!
//! It is the table that most software packet processing is done with (DIR-24-8,
//! looked up by AVX-512 gathers; for IPv6 a trie of 24 and then 8 bits), compiled by
//! others. What it takes to be fair is in `bench/METHOD.md`: next hops as narrow as
//! they can be, huge pages as for ours, its best lookup function, the same keys in
//! the same bursts, and a pass in turn with each of ours.

use std::marker::PhantomData;
use std::os::unix::fs::FileExt;

use anyhow::{Context, bail, ensure};
use fib::{Family, Hop, Prefix};

use super::contest::Contestant;
use super::keys::Stream;
use program::{Program, Shared};

mod program;

/// The bits of the first stage, and of each that follows.
const FIRST: u32 = 24;
const STRIDE: u32 = 8;
/// With 2 bytes a next hop, one bit says that there is a further stage.
const NARROW: u32 = (1 << 15) - 1;

/// Which of its lookup functions.
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

/// The rival with a table.
pub(super) struct Rival<A> {
    program: Program,
    name: String,
    burst: usize,
    bytes: usize,
    /// What it says of itself.
    version: String,
    /// The seconds that filling the table took.
    filled: f64,
    /// The bytes of its memory that lie on huge pages.
    huge: usize,
    /// The keys it has, and how many.
    keys: Option<(Shared, usize)>,
    family: PhantomData<A>,
}

impl<A: Family> Rival<A> {
    /// Starts it and fills its table with `routes`, which are sorted.
    pub(super) fn start(
        routes: &[(Prefix<A>, Hop)],
        function: Function,
        burst: usize,
    ) -> anyhow::Result<Self> {
        ensure!(A::BITS == 32 || A::BITS == 128, "DPDK has tables for IPv4 and IPv6 only");
        let most = routes.iter().map(|(_, hop)| hop.0).max().unwrap_or_default();
        let needed = groups(routes);
        // Room for what updates may bring. For IPv6 DPDK sets more aside than it comes to
        // use: about one a route, on the tables at hand.
        let set_aside = if A::BITS == 128 { needed.max(2 * routes.len()) } else { needed };
        let groups = set_aside + needed / 4 + 256;
        let wide = most > NARROW || groups > NARROW as usize;
        let width = if wide { 4 } else { 2 };
        let table = (width << FIRST) + (groups << STRIDE) * width;
        // Its own routing table takes some hundred bytes a route.
        let room = table + routes.len() * 800 + (96 << 20);
        let (mut program, version) = Program::start(room >> 20)?;
        let routes = shared(routes.iter().copied())?;
        let family = if A::BITS == 32 { 4 } else { 6 };
        let filled = program.ask(&format!("table {family} {} {width} {groups}", routes.path()))?;
        let filled: Vec<f64> = numbers(&filled)?;
        let [_, seconds, huge] = filled[..] else { bail!("the rival says `{filled:?}`") };
        let mut rival = Self {
            program,
            name: function.name().to_owned(),
            burst,
            bytes: (width << FIRST) + (needed << STRIDE) * width,
            version,
            filled: seconds,
            huge: huge as usize,
            keys: None,
            family: PhantomData,
        };
        rival.choose(function)?;
        Ok(rival)
    }

    /// Looks up with this function from now on.
    pub(super) fn choose(&mut self, function: Function) -> anyhow::Result<()> {
        let word = match function {
            Function::Vector => "vector",
            Function::Scalar => "scalar",
        };
        self.program
            .ask(&format!("lookup {word}"))
            .with_context(|| format!("DPDK has no {word} lookup on this processor"))?;
        self.name = function.name().to_owned();
        Ok(())
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
        let list = shared(changes.iter().copied())?;
        let said = self.program.ask(&format!("change {}", list.path()))?;
        numbers(&said)?.get(1).copied().context("the rival tells no time")
    }

    fn pass(
        &mut self,
        stream: Stream,
        threads: usize,
        out: Option<&Shared>,
    ) -> anyhow::Result<String> {
        let how = if stream == Stream::Seq { "chain" } else { "burst" };
        let out = out.map(|out| out.path()).unwrap_or_default();
        self.program.ask(&format!("pass {how} {} {threads} {out}", self.burst))
    }
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
        let shared = if A::BITS == 32 {
            Shared::of("keys", keys.iter(), |key| (key.to_u128() as u32).to_ne_bytes())?
        } else {
            Shared::of("keys", keys.iter(), |key| key.to_u128().to_be_bytes())?
        };
        self.program.ask(&format!("keys {}", shared.path()))?;
        self.keys = Some((shared, keys.len()));
        Ok(())
    }

    fn answer(&mut self, stream: Stream, keys: &[A], out: &mut [Hop]) -> anyhow::Result<()> {
        self.has(keys)?;
        let answers = Shared::empty("answers")?;
        answers.file().set_len(keys.len() as u64 * 4).context("making room for answers")?;
        self.pass(stream, 1, Some(&answers))?;
        let mut bytes = vec![0; 4 << 16];
        for (i, out) in out.chunks_mut(1 << 16).enumerate() {
            let bytes = &mut bytes[..out.len() * 4];
            answers.file().read_exact_at(bytes, i as u64 * (4 << 16))?;
            for (bytes, hop) in bytes.chunks_exact(4).zip(out) {
                *hop = Hop(u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]));
            }
        }
        Ok(())
    }

    fn rate(&mut self, stream: Stream, keys: &[A], threads: usize) -> anyhow::Result<f64> {
        self.has(keys)?;
        let said = self.pass(stream, threads, None)?;
        let rates = said.split(' ').map(|part| {
            let (count, seconds) = part.split_once(':').context("no time")?;
            anyhow::Ok(count.parse::<f64>()? / seconds.parse::<f64>()? / 1e6)
        });
        rates.sum::<anyhow::Result<f64>>().with_context(|| format!("the rival says `{said}`"))
    }
}

impl<A: Family> Rival<A> {
    /// Says that the keys it was shown are these, as far as their number tells.
    fn has(&self, keys: &[A]) -> anyhow::Result<()> {
        let has = self.keys.as_ref().map_or(0, |(_, count)| *count);
        ensure!(has == keys.len(), "the rival has {has} keys, not these {}", keys.len());
        Ok(())
    }
}

/// Writes routes where the rival can read them.
fn shared<A: Family>(routes: impl Iterator<Item = (Prefix<A>, Hop)>) -> anyhow::Result<Shared> {
    if A::BITS == 32 {
        Shared::of("routes", routes, |(prefix, hop)| {
            let mut bytes = [0; 12];
            bytes[..4].copy_from_slice(&(prefix.addr().to_u128() as u32).to_ne_bytes());
            bytes[4..8].copy_from_slice(&prefix.len().to_ne_bytes());
            bytes[8..].copy_from_slice(&hop.0.to_ne_bytes());
            bytes
        })
    } else {
        Shared::of("routes", routes, |(prefix, hop)| {
            let mut bytes = [0; 24];
            bytes[..16].copy_from_slice(&prefix.addr().to_u128().to_be_bytes());
            bytes[16..20].copy_from_slice(&prefix.len().to_ne_bytes());
            bytes[20..].copy_from_slice(&hop.0.to_ne_bytes());
            bytes
        })
    }
}

fn numbers(said: &str) -> anyhow::Result<Vec<f64>> {
    let numbers: Result<_, _> = said.split(' ').map(str::parse).collect();
    numbers.with_context(|| format!("the rival says `{said}`"))
}

/// Counts the groups of 256 entries that its table takes behind the first stage: one
/// for each prefix of 24 bits, and each of 8 more, that has a longer route in it.
fn groups<A: Family>(routes: &[(Prefix<A>, Hop)]) -> usize {
    let mut count = 0;
    let mut len = FIRST;
    while len < A::BITS {
        // Sorted by address, routes of one block follow each other.
        let mut before = None;
        for (prefix, _) in routes.iter().filter(|(prefix, _)| prefix.len() > len) {
            let block = Some(prefix.addr().first(len));
            count += usize::from(block != before);
            before = block;
        }
        len += STRIDE;
    }
    count
}

#[cfg(test)]
mod tests {
    use super::{Function, groups};
    use fib::{Hop, Prefix};

    #[test]
    fn a_group_stands_behind_every_block_with_a_longer_route() {
        let route = |text: &str| (text.parse::<Prefix<u32>>().unwrap(), Hop(1));
        assert_eq!(groups(&[route("10.0.0.0/8"), route("10.0.0.0/24")]), 0);
        let routes = ["10.0.0.0/25", "10.0.0.128/32", "10.0.1.0/24", "10.0.2.0/30"];
        assert_eq!(groups(&routes.map(route)), 2);
        let route = |text: &str| (text.parse::<Prefix<u128>>().unwrap(), Hop(1));
        // 2001:db8::/32 takes one at 24; a /48 in it one more each at 32 and 40.
        assert_eq!(groups(&[route("2001:db8::/32")]), 1);
        assert_eq!(groups(&[route("2001:db8::/32"), route("2001:db8:1::/48")]), 3);
        assert_eq!(groups(&[route("2001:db8::/128")]), 13);
    }

    #[test]
    fn only_its_own_names_are_the_rivals() {
        assert_eq!(Function::parse("rte_fib"), Some(Function::Vector));
        assert_eq!(Function::parse("rte_fib-scalar"), Some(Function::Scalar));
        assert_eq!(Function::parse("dir24_8"), None);
    }
}
