//! `fingerpost-bench contestant`: one of our engines as a process that speaks the rivals' protocol.
//!
//! ```text
//!   run ── table, keys, pass, latency, change ──►  contestant D16X4R
//!             ◄── ok … ─────────────────────────────────
//! ```
//!
//! `fingerpost-bench run` measures every contestant in fresh processes, ours as well as others', so
//! that the placement of a table in memory is part of the spread and not of the result.
//! Our engines get the same commands (`bench/rivals/README.md`) and read the same files; this is
//! the contestant's side of that protocol. It reads the keys from the file and stores them on huge
//! pages, as the rivals in C do.
//!
//! Changes go through an [`Updater`] and are published one by one, as in a router that receives
//! one message at a time; a rival does less, since its table has no readers meanwhile. The updater
//! is created at the first change, outside the reported time.

use std::io::{BufRead, Write};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, bail, ensure};
use fib::{Choice, Family, Fib, Hop, Prefix, Rib, Table, Updater};

use super::clock::{Clock, pin};
use super::contest::{Answers, Lookups, Ours};
use super::keys::Stream;
use super::rival::{read_keys, read_routes, write_answers};

#[derive(clap::Args)]
pub(super) struct Args {
    /// The engine
    engine: String,
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    say(&format!("ok fingerpost {}", env!("CARGO_PKG_VERSION")))?;
    let mut lines = std::io::stdin().lock().lines();
    let Some(line) = lines.next() else { return Ok(ExitCode::SUCCESS) };
    let line = line?;
    let lines = lines.map(|line| line.map_err(anyhow::Error::from));
    match line.split_whitespace().collect::<Vec<_>>()[..] {
        ["table", "4", path] => serve::<u32>(&args.engine, path, lines),
        ["table", "6", path] => serve::<u128>(&args.engine, path, lines),
        _ => bail!("`{line}`: a table comes first"),
    }
}

#[expect(clippy::print_stdout, reason = "the answer")]
fn say(line: &str) -> anyhow::Result<()> {
    println!("{line}");
    Ok(std::io::stdout().flush()?)
}

/// The table: as built, or behind an updater.
enum Held<A: Family> {
    Frozen(Fib<A>),
    Followed(Updater<A>),
}

impl<A: Family> Held<A> {
    fn fib(&self) -> &Fib<A> {
        match self {
            Self::Frozen(fib) => fib,
            Self::Followed(updater) => updater.fib(),
        }
    }
}

struct Contestant<A: Family> {
    choice: Choice,
    routes: Vec<(Prefix<A>, Hop)>,
    held: Held<A>,
    keys: Table<A>,
}

fn serve<A: Family>(
    engine: &str,
    path: &str,
    lines: impl Iterator<Item = anyhow::Result<String>>,
) -> anyhow::Result<ExitCode> {
    let choice = Choice::parse::<A>(engine)?;
    let routes = read_routes::<A>(path)?;
    let clock = Clock::start();
    let rib = Rib::from_sorted(routes.iter().copied());
    let fib = match Fib::build(&rib, choice, 2) {
        Ok(fib) => fib,
        Err(full) => {
            say(&format!("full {full}"))?;
            return Ok(ExitCode::SUCCESS);
        }
    };
    let seconds = clock.seconds();
    // Its memory must not lie between the table and what follows.
    drop(rib);
    let (count, bytes) = (routes.len(), fib.footprint());
    say(&format!("ok {count} {seconds:.6} {bytes} {}", huge()))?;
    let mut contestant =
        Contestant { choice, routes, held: Held::Frozen(fib), keys: Table::new(&[]) };
    for line in lines {
        let line = line?;
        match contestant.answer(&line.split_whitespace().collect::<Vec<_>>()) {
            Ok(answer) => say(&format!("ok {answer}"))?,
            Err(error) => say(&format!("error {}", output::failure::explain(&error)))?,
        }
    }
    Ok(ExitCode::SUCCESS)
}

impl<A: Family> Contestant<A> {
    fn answer(&mut self, words: &[&str]) -> anyhow::Result<String> {
        match *words {
            ["keys", path] => {
                // The former ones go first.
                self.keys = Table::new(&[]);
                self.keys = Table::new(&read_keys(path)?);
                Ok((self.keys.len() * size_of::<A>()).to_string())
            }
            ["pass", how, burst, threads, ref path @ ..] => {
                self.pass(how, burst.parse()?, threads.parse()?, path.first().copied())
            }
            ["latency", chain] => self.latency(chain.parse()?),
            ["change", path] => self.change(path),
            _ => bail!("no such command: {}", words.join(" ")),
        }
    }

    fn pass(
        &self,
        how: &str,
        burst: usize,
        threads: usize,
        path: Option<&str>,
    ) -> anyhow::Result<String> {
        ensure!(burst > 0 && threads > 0, "some keys a call, and a thread");
        ensure!(!self.keys.is_empty(), "keys come first");
        // Of the streams, the one whose keys wait for each other is looked up otherwise.
        let stream = match how {
            "chain" => Stream::Seq,
            "burst" => Stream::Rnd,
            _ => bail!("burst or chain"),
        };
        let mut ours = Ours::new("", self.held.fib(), burst, Answers::Used);
        if let Some(path) = path {
            let mut out = vec![Hop::NONE; self.keys.len()];
            let clock = Clock::start();
            self.held.fib().pass(stream, burst, &self.keys, &mut out);
            let seconds = clock.seconds();
            write_answers(path, &out)?;
            return Ok(format!("{}:{seconds:.9}", self.keys.len()));
        }
        let times = ours.times(stream, &self.keys, threads);
        let parts: Vec<String> =
            times.iter().map(|(count, seconds)| format!("{count}:{seconds:.9}")).collect();
        Ok(parts.join(" "))
    }

    fn latency(&self, chain: usize) -> anyhow::Result<String> {
        ensure!(chain > 0 && chain <= self.keys.len(), "a number of lookups, at most the keys'");
        pin(0);
        let mut out = vec![Hop::NONE; chain];
        let mut times = Vec::with_capacity(self.keys.len() / chain);
        for keys in self.keys.chunks_exact(chain) {
            let start = Instant::now();
            self.held.fib().chained(keys, &mut out);
            times.push(start.elapsed().as_secs_f64() / chain as f64 * 1e9);
        }
        times.sort_by(f64::total_cmp);
        let at = |place: usize| format!("{:.3}", times[(times.len() - 1) * place / 1000]);
        Ok(format!("{} {} {} {} {}", times.len(), at(500), at(900), at(990), at(999)))
    }

    fn change(&mut self, path: &str) -> anyhow::Result<String> {
        let changes = read_routes::<A>(path)?;
        if let Held::Frozen(_) = self.held {
            let rib = Rib::from_sorted(self.routes.iter().copied());
            self.held = Held::Followed(Updater::new(rib, self.choice, 2)?);
        }
        let Held::Followed(updater) = &mut self.held else { unreachable!("it was just made") };
        let clock = Clock::start();
        for &(prefix, hop) in &changes {
            match hop {
                Hop::NONE => updater.withdraw(prefix),
                hop => updater.announce(prefix, hop),
            };
            updater.commit().context("following the changes")?;
        }
        Ok(format!("{} {:.6}", changes.len(), clock.seconds()))
    }
}

/// Counts the bytes of this process that lie on huge pages.
fn huge() -> usize {
    let text = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("AnonHugePages:"));
    let words = line.and_then(|line| line.split_whitespace().next()?.parse::<usize>().ok());
    words.unwrap_or(0) << 10
}
