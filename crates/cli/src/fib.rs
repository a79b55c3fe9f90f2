//! `fingerpost fib diff kernel`: compares the tables of a running router with the kernel.
//!
//! ```text
//!   10.1.0.0/16: the kernel has via 10.0.1.2 dev r1, the router nothing
//!   10.2.3.4: the kernel has 10.2.0.0/16 via 10.0.1.2 dev r1, the router 10.2.3.0/24 blackhole
//! ```
//!
//! The router compares, over a separate netlink connection to the kernel
//! (`control/src/audit/diff.rs`). The command prints one line for each difference, and a
//! summary on standard error. As in diff(1), the exit status is 1 if there is a difference, else 0.
//! The command waits for a router that is starting: 30 s, or `--wait`.

use std::io::{BufWriter, Write};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::bail;
use api::{Compared, Item, Request};
use clap::Subcommand;
use control::items::difference;

use crate::client::{self, RESPONSE_TIMEOUT, SocketArgs};

/// Default of `--wait`.
const DEFAULT_WAIT: Duration = Duration::from_secs(30);
/// The longest `--settle`.
const MAX_SETTLE: Duration = Duration::from_secs(60);

/// The arguments of `fib`.
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
        target: Target,
    },
}

#[derive(Subcommand)]
enum Target {
    /// Compare with the kernel's routes and with its route lookups
    ///
    /// Exit status 1 if there is a difference.
    Kernel(KernelArgs),
}

#[derive(clap::Args)]
struct KernelArgs {
    #[command(flatten)]
    socket: SocketArgs,
    /// Write JSON: an array of the differences
    #[arg(short, long)]
    json: bool,
    /// Time for pending changes: a difference counts if it lasts longer, at most 60s
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = parse_settle)]
    settle: Duration,
    /// Addresses to look up in the kernel, for each thousand routes
    #[arg(long, value_name = "COUNT", default_value_t = 10)]
    sample: u32,
    /// Seed of the random addresses [default: random]
    #[arg(long, value_name = "NUMBER")]
    seed: Option<u64>,
}

/// Compares and prints the differences.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let Verb::Diff { target: Target::Kernel(args) } = &args.verb;
    let request = Request::Diff {
        settle: args.settle.as_millis() as u64,
        sample: args.sample,
        seed: args.seed.unwrap_or_else(|| fastrand::u64(..)),
    };
    let mut out = BufWriter::new(std::io::stdout().lock());
    let mut compared = None;
    let timeout = RESPONSE_TIMEOUT + args.settle;
    let socket = args.socket.with_default_wait(DEFAULT_WAIT);
    if args.json {
        let mut array = client::JsonArray::new(&mut out);
        client::send(&socket, &request, timeout, &mut |item| match item {
            Item::Difference(found) => array.push(&found),
            other => store_summary(&mut compared, other),
        })?;
        array.end()?;
    } else {
        client::send(&socket, &request, timeout, &mut |item| match item {
            Item::Difference(found) => Ok(writeln!(out, "{}", difference(&found))?),
            other => store_summary(&mut compared, other),
        })?;
        out.flush()?;
    }
    let Some(summary) = compared else { bail!("the response of the router has no summary") };
    eprintln!(
        "fingerpost: {} routes and {} addresses (seed {}) compared in {:.2} s: {} differences",
        summary.routes, summary.addresses, summary.seed, summary.seconds, summary.differences
    );
    Ok(if summary.differences == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn store_summary(summary: &mut Option<Compared>, item: Item) -> anyhow::Result<()> {
    if let Item::Compared(compared) = item {
        *summary = Some(compared);
    }
    Ok(())
}

fn parse_settle(text: &str) -> Result<Duration, String> {
    client::parse_time(text, MAX_SETTLE)
}

#[cfg(test)]
mod tests {
    use api::{Difference, RouteView};

    use super::*;

    fn route_view(prefix: &str, kind: &str) -> Option<RouteView> {
        Some(RouteView { prefix: prefix.to_owned(), kind: kind.to_owned(), via: Vec::new() })
    }

    #[test]
    fn difference_names_both_sides() {
        let mut found = Difference {
            what: "route".to_owned(),
            table: 254,
            of: "10.0.0.0/8".to_owned(),
            kernel: route_view("10.0.0.0/8", "blackhole"),
            router: None,
        };
        assert_eq!(difference(&found), "10.0.0.0/8: the kernel has blackhole, the router nothing");
        found.router = route_view("10.0.0.0/7", "throw");
        found.table = 100;
        let expect = "10.0.0.0/8 table 100: the kernel has blackhole, the router 10.0.0.0/7 throw";
        assert_eq!(difference(&found), expect);
        found.what = "table".to_owned();
        assert!(
            difference(&found).contains("the routes have blackhole, the workers' table 10.0.0.0/7")
        );
    }
}
