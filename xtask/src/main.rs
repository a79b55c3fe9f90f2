//! One command per habit of this repository: `cargo xtask VERB`.
//!
//! ```text
//! test [--no-smoke]   everything: what CI runs and what a change must pass
//! check               formatting, lints and the rules of the house
//! language [PATH...]  lines that break the rules of the project's language
//! smoke [NAME...]     the program against independent ones, in namespaces
//! loom                the publication protocol under every interleaving
//! tsan                the same code with threads, under ThreadSanitizer
//! asan                tables, images and the arena under AddressSanitizer
//! exhaustive          all 2^32 IPv4 addresses, a million updates; 64 FIBs
//! neon                the library for AArch64, under emulation
//! fuzz [TARGET...]    the fuzz targets, for some seconds or hours
//! bench [ARGS...]     `fingerpost-bench` in a release build
//! ```
//!
//! Each verb is a list of steps ([`plan`]). A step runs one child process whose
//! output is streamed through as it comes ([`step`]) and read on the way for the
//! result lines of `cargo test` ([`results`]); the counts of all steps are added
//! up ([`tally`]). A failing step does not end the run: the summary at the end
//! is always whole, and its last line is always
//!
//! ```text
//! N passed, N failed, N skipped
//! ```
//!
//! Nothing is skipped in silence. A tool or package that is missing is installed
//! ([`needs`]) or named as a failure, a test program that runs no test is a
//! failure, and the only way to skip is to ask for it (`--no-smoke`), which is
//! counted and printed.

#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "a program for people: printing is what it does")]

use std::process::ExitCode;

use anyhow::{Context, Result, bail};

mod fuzz;
mod house;
mod language;
mod needs;
mod neon;
mod plan;
mod results;
mod smoke;
mod step;
mod tally;

const USAGE: &str = "\
usage: cargo xtask VERB

  test [--no-smoke]   every test there is; the last line counts them
                      (--no-smoke leaves out what needs root and namespaces)
  check               formatting, lints and the rules of the house
  language [PATH...]  lists the lines that break the rules of language (CONTRIBUTING.md);
                      --record writes how many are left, and never more than before
  smoke [NAME...]     the smoke tests in network namespaces, all or the named
  loom                the publication protocol under every interleaving
  tsan                the threaded tests under ThreadSanitizer
  asan                the tests of tables, images and the arena under AddressSanitizer
  exhaustive [--engines NAME,...]
                      all 2^32 IPv4 addresses against a painted array, 200 million
                      of IPv6, real streams and a million updates: every engine,
                      some minutes each, or the named ones; 64 FIBs
  neon                the library built for AArch64 and tested under emulation, its
                      kernels and their twins
  fuzz [TARGET...] [--seconds N] [--jobs N] [--keep]
                      all engines against the oracle on scripts that libFuzzer makes
                      up: each target for N seconds (60) in N processes (1);
                      --keep takes what was learnt into the corpus of the tree
  bench [ARGS...]     fingerpost-bench, in a release build";

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<bool> {
    let mut args = std::env::args().skip(1);
    let verb = args.next();
    let rest: Vec<String> = args.collect();
    let root = plan::root()?;
    std::env::set_current_dir(&root).with_context(|| format!("entering {}", root.display()))?;
    let none = |rest: &[String]| match rest {
        [] => Ok(()),
        [first, ..] => bail!("`{first}` is not understood here\n{USAGE}"),
    };
    let steps = match verb.as_deref() {
        Some("test") => {
            let smoke = match &rest[..] {
                [] => plan::Smoke::Run,
                [flag] if flag == "--no-smoke" => plan::Smoke::Skip,
                [other, ..] => bail!("`{other}` is not understood here\n{USAGE}"),
            };
            plan::test(smoke)?
        }
        Some("check") => none(&rest).and_then(|()| plan::check())?,
        Some("language") => return language::run(&rest).map(|()| true),
        Some("smoke") => plan::smoke(&rest)?,
        Some("loom") => none(&rest).and_then(|()| plan::loom())?,
        Some("tsan") => none(&rest).and_then(|()| plan::tsan())?,
        Some("asan") => none(&rest).and_then(|()| plan::asan())?,
        Some("exhaustive") => plan::exhaustive(&rest)?,
        Some("neon") => none(&rest).and_then(|()| neon::steps())?,
        Some("fuzz") => fuzz::steps(&rest)?,
        Some("bench") => return plan::bench(&rest),
        Some("help" | "-h" | "--help") => {
            println!("{USAGE}");
            return Ok(true);
        }
        Some(other) => bail!("there is no verb `{other}`\n{USAGE}"),
        None => bail!("a verb is needed\n{USAGE}"),
    };
    tally::run(&steps)
}
