//! `fingerpost fib diff kernel`: what a running router and the kernel do not agree on.
//!
//! ```text
//!   10.1.0.0/16: the kernel has via 10.0.1.2 dev r1, the router nothing
//!   10.2.3.4: the kernel has 10.2.0.0/16 via 10.0.1.2 dev r1, the router 10.2.3.0/24 blackhole
//! ```
//!
//! The router compares, with a connection to the kernel of its own
//! (`router/src/control/audit/diff.rs`). Nothing is printed where all is the same; what was
//! compared is said beside it, on standard error. As diff(1): exit status 1 if there is a
//! difference, else 0. The command waits for a router that is starting: 30 s, or `--wait`.

use std::io::{BufWriter, Write};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::bail;
use clap::Subcommand;
use router::control::answer::difference;
use router::control::api::{Item, Request};

use crate::client::{self, At, PATIENCE};

/// The time to wait for a router that was just started.
const START: Duration = Duration::from_secs(30);
/// The longest `--settle`.
const LONGEST_SETTLE: Duration = Duration::from_secs(60);

/// What `fib` takes.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Compare the tables of a running router
    Diff {
        #[command(subcommand)]
        with: With,
    },
}

#[derive(Subcommand)]
enum With {
    /// With the kernel's routes, read anew, and with its own lookups
    ///
    /// Exit status 1 if there is a difference.
    Kernel(Kernel),
}

#[derive(clap::Args)]
struct Kernel {
    #[command(flatten)]
    at: At,
    /// Write JSON: an array of the differences
    #[arg(short, long)]
    json: bool,
    /// How long what differs may take to agree: changes on their way are no difference
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = settle)]
    settle: Duration,
    /// Addresses that are asked of the kernel, for each thousand routes
    #[arg(long, value_name = "COUNT", default_value_t = 10)]
    sample: u32,
    /// Draw the same addresses again [default: others each time]
    #[arg(long, value_name = "NUMBER")]
    seed: Option<u64>,
}

/// Compares, and prints.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let Verb::Diff { with: With::Kernel(args) } = &args.verb;
    let request = Request::Diff {
        settle: args.settle.as_millis() as u64,
        sample: args.sample,
        seed: args.seed.unwrap_or_else(|| fastrand::u64(..)),
    };
    let mut out = BufWriter::new(std::io::stdout().lock());
    let mut compared = None;
    let patience = PATIENCE + args.settle;
    let at = args.at.or_wait(START);
    if args.json {
        let mut array = client::Array::new(&mut out);
        client::ask(&at, &request, patience, &mut |item| match item {
            Item::Difference(it) => array.item(&it),
            other => keep(&mut compared, other),
        })?;
        array.end()?;
    } else {
        client::ask(&at, &request, patience, &mut |item| match item {
            Item::Difference(it) => Ok(writeln!(out, "{}", difference(&it))?),
            other => keep(&mut compared, other),
        })?;
        out.flush()?;
    }
    let Some(it) = compared else { bail!("the router does not say what it has compared") };
    eprintln!(
        "fingerpost: {} routes and {} addresses (seed {}) compared in {:.2} s: {} differences",
        it.routes, it.addresses, it.seed, it.seconds, it.differences
    );
    Ok(if it.differences == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn keep(compared: &mut Option<router::control::api::Compared>, item: Item) -> anyhow::Result<()> {
    if let Item::Compared(it) = item {
        *compared = Some(it);
    }
    Ok(())
}

fn settle(text: &str) -> Result<Duration, String> {
    client::time(text, LONGEST_SETTLE)
}

#[cfg(test)]
mod tests {
    use router::control::api::{Difference, Said};

    use super::*;

    fn said(prefix: &str, kind: &str) -> Option<Said> {
        Some(Said { prefix: prefix.to_owned(), kind: kind.to_owned(), via: Vec::new() })
    }

    #[test]
    fn differences_in_words() {
        let mut it = Difference {
            what: "route".to_owned(),
            table: 254,
            of: "10.0.0.0/8".to_owned(),
            kernel: said("10.0.0.0/8", "blackhole"),
            router: None,
        };
        assert_eq!(difference(&it), "10.0.0.0/8: the kernel has blackhole, the router nothing");
        it.router = said("10.0.0.0/7", "throw");
        it.table = 100;
        let expect = "10.0.0.0/8 table 100: the kernel has blackhole, the router 10.0.0.0/7 throw";
        assert_eq!(difference(&it), expect);
        it.what = "table".to_owned();
        assert!(
            difference(&it).contains("the routes have blackhole, the workers' table 10.0.0.0/7")
        );
    }
}
