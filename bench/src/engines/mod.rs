//! `fingerpost-bench engines`: all figures of every engine on one table.
//!
//! ```text
//!   engines                   one engine after the other: build, look up, change, drop
//!     survey.rs               ─► bytes, build time, lookups, accesses   of each
//!     changes.rs              ─► updates per second, written words       of each
//!   engines --against rte_fib
//!     duel.rs                 a few engines and the rival, all in memory, in turns
//!                             ─► ratios between medians
//! ```
//!
//! The survey has one table in memory at a time, so that its memory is bounded and no other table is
//! in the caches. Its figures of different engines are therefore from different minutes of the
//! machine; for ratios use the duel. Both check answers before they measure: the survey compares
//! each engine with the routing table and, over all timed keys, with one reference engine; the duel
//! works like `fingerpost-bench lookup` (`contest.rs`).

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail};
use fib::{Choice, Family, Hop, Prefix};

use super::keys::Stream;
use super::{Routes, Setting};

pub(super) mod changes;
mod duel;
mod report;
mod survey;

/// The default engines of a duel, and its keys per call: the usual burst of packet processing on DPDK.
const DUEL: &[&str] = &["sail_l", "poptrie", "D16X4R", "dir24_8"];
const DUEL6: &[&str] = &["poptrie", "D16X8R/64", "D16X4R/64"];
const BURST: usize = 32;
/// Keys per call in the survey, as in our datapath.
const BATCH: usize = 256;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    setting: Setting,
    /// Measure IPv6
    #[arg(short = '6')]
    v6: bool,
    /// The engines [default: all of the family; against a rival a few]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    engines: Vec<String>,
    /// Compare in turns with this contestant, to which ratios refer: `rte_fib` (of DPDK, vectorized),
    /// `rte_fib-scalar`, or an engine
    #[arg(long, value_name = "NAME")]
    against: Option<String>,
    /// The streams [default: all; against a rival RND and SEQ]
    #[arg(long, value_enum, value_delimiter = ',')]
    streams: Vec<Stream>,
    /// Numbers of threads
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1,2")]
    threads: Vec<usize>,
    /// Passes of each
    #[arg(long, value_name = "N", default_value_t = 7)]
    rounds: usize,
    /// Keys; a pass of the survey uses as many as its time permits
    #[arg(long, value_name = "N", default_value_t = 1 << 24)]
    keys: usize,
    /// Keys per call [default: 256; against a rival 32]
    #[arg(long, value_name = "N")]
    burst: Option<usize>,
    /// Changes to make
    #[arg(long, value_name = "N", default_value_t = 20_000)]
    changes: usize,
    /// A stream of updates to replay instead of random changes
    #[arg(long, value_name = "FILE")]
    updates: Option<PathBuf>,
    /// The most seconds per pass of the survey
    #[arg(long, value_name = "S", default_value_t = 0.25)]
    patience: f64,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if args.rounds == 0 || args.keys < 1024 || args.threads.is_empty() || args.changes == 0 {
        bail!("at least one round, one thread, one change and 1024 keys are needed");
    }
    if args.patience.is_nan() || args.patience <= 0.0 {
        bail!("--patience {}: must be a positive number", args.patience);
    }
    super::contest::enough_cores(&args.threads)?;
    let routes = args.setting.routes()?;
    if args.v6 { family(args, &routes, &routes.v6) } else { family(args, &routes, &routes.v4) }
}

fn family<A: Family>(
    args: &Args,
    routes: &Routes,
    of_family: &[(Prefix<A>, Hop)],
) -> anyhow::Result<ExitCode> {
    if of_family.is_empty() {
        bail!("{} has no route of this family", routes.name);
    }
    match &args.against {
        None => survey::run(args, &routes.name, of_family),
        Some(rival) => duel::run(args, rival, &routes.name, of_family),
    }
}

impl Args {
    /// Returns the engines of `--engines`, or those of `default` if there are none.
    fn choices<A: Family>(
        &self,
        default: impl FnOnce() -> anyhow::Result<Vec<Choice>>,
    ) -> anyhow::Result<Vec<Choice>> {
        if self.engines.is_empty() {
            return default();
        }
        self.engines
            .iter()
            .map(|name| Choice::parse::<A>(name).with_context(|| format!("--engines {name}")))
            .collect()
    }

    fn streams(&self, default: &'static [Stream]) -> &[Stream] {
        if self.streams.is_empty() { default } else { &self.streams }
    }
}
