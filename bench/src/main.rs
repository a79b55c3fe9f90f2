//! The program `fingerpost-bench`: measurements that check answers before they measure time.
//!
//! ```text
//! run DEFINITION  a definition: our tables and others' in fresh processes, in turns, with the
//!                 limit of the machine, and a report
//! lookup          lookups per second: engines and a plain rival on the same keys
//! overlap         groups and coroutines, on the engines that chase pointers
//! engines         every engine: size, build, lookups, accesses, updates; or a few in turns with
//!                 DPDK's rte_fib
//! agree           compares the answers of engines with those of DPDK's rte_fib; keeps no time
//! build           from sorted routes to a table, and one update to publication
//! live            updates per second, the delay until the first lookup by an update, and the cost
//!                 of a feed to the readers
//! datapath        packets per second through memory ports: no I/O, one core
//! map             the map of `lpm` beside other crates: insert, exact, iterate, longest, remove
//! acl             access lists of ten to ten thousand rules: nanoseconds a packet
//! gate            packets per second through a gate: no I/O, one core
//! flowtable       hash schemes for the flow index of the gate, from few flows to nearly full
//! xdp             lookups in the kernel, by eBPF programs: this table, the kernel's trie, its routes
//! block           block lists in the driver: seconds of a load, delay of a ban, drops a second
//! fleet           the members of a fleet on NATS, thousands in one process; keeps no time
//! suez            the cache of answers of a paper, simulated as there and measured here
//! ```
//!
//! All contestants of a comparison run in one process, on one table and the same keys, in turns, so
//! that other load of the machine affects them alike; ratios are between medians of one run.
//! `METHOD.md` describes the method, and `BIAS.md` the errors that may remain. Each run appends
//! its figures to a file of its machine and day (`record.rs`).

#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::{Parser, Subcommand};
use feed::{Options, Recipe, RoutingTable};
use fib::{Addr, Hop, Prefix};

use output::failure::{explain, is_broken_pipe};
use output::progress;

mod acl;
mod agree;
mod block;
mod build;
mod clock;
mod contest;
mod contestant;
mod datapath;
mod engines;
mod fleet;
mod flowtable;
mod gate;
mod keys;
mod live;
mod lookup;
mod map;
mod overlap;
mod page;
mod plain;
mod record;
mod rival;
mod run;
mod suez;
mod xdp;

use record::Figure;

/// Measurements of Fingerpost that check answers before they measure time.
#[derive(Parser)]
#[command(name = "fingerpost-bench", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Measure a definition: all contestants in fresh processes, in turns, with the machine's limit
    Run(Box<run::Args>),
    /// Measure lookups per second: engines and a plain rival on the same keys
    Lookup(lookup::Args),
    /// Compare groups and coroutines, two ways to have several lookups in flight
    Overlap(overlap::Args),
    /// Measure every engine in all respects, or a few in turns with DPDK's rte_fib
    Engines(engines::Args),
    /// Compare answers with those of DPDK's rte_fib on millions of addresses
    Agree(agree::Args),
    /// Measure the time to build a table and to publish one change
    Build(build::Args),
    /// Measure updates per second, the delay until lookups see them, and their cost to readers
    Live(live::Args),
    /// Measure packets per second through the datapath without I/O
    Datapath(datapath::Args),
    /// Measure the map of prefixes beside other Rust crates, in turns
    Map(map::Args),
    /// Measure access lists: nanoseconds to find a packet's rule
    Acl(acl::Args),
    /// Measure packets per second through a gate without I/O, each packet from a new source
    Gate(gate::Args),
    /// Compare hash schemes for the flow index of the gate, by load
    Flowtable(flowtable::Args),
    /// Measure lookups in the kernel, by eBPF programs
    Xdp(xdp::Args),
    /// Measure block lists in the driver: a load, the delay of a ban, the bytes, and drops a second
    Block(block::Args),
    /// Run the members of a fleet on NATS, each as a gate does, without packets
    Fleet(fleet::Args),
    /// Simulate and measure Suez, a cache of answers before the table
    Suez(Box<suez::Args>),
    /// Run one engine as a process that reads commands from standard input
    #[command(hide = true)]
    Contestant(contestant::Args),
}

fn main() -> ExitCode {
    run_command(&Cli::parse().command).unwrap_or_else(|error| {
        if is_broken_pipe(&error) {
            return ExitCode::SUCCESS;
        }
        eprintln!("fingerpost-bench: {}", explain(&error));
        ExitCode::FAILURE
    })
}

fn run_command(command: &Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Run(args) => run::run(args),
        Command::Lookup(args) => lookup::run(args),
        Command::Overlap(args) => overlap::run(args),
        Command::Engines(args) => engines::run(args),
        Command::Agree(args) => agree::run(args),
        Command::Build(args) => build::run(args),
        Command::Live(args) => live::run(args),
        Command::Datapath(args) => datapath::run(args),
        Command::Map(args) => map::run(args),
        Command::Acl(args) => acl::run(args),
        Command::Gate(args) => gate::run(args),
        Command::Flowtable(args) => flowtable::run(args),
        Command::Xdp(args) => xdp::run(args),
        Command::Block(args) => block::run(args),
        Command::Fleet(args) => fleet::run(args),
        Command::Suez(args) => suez::run(args),
        Command::Contestant(args) => contestant::run(args),
    }
}

/// The options of every measurement.
#[derive(clap::Args)]
pub(crate) struct Setting {
    /// A table; may be given twice, one file a family
    /// [default: the tables of 2026 in FINGERPOST_DATA, else a generated one]
    #[arg(long, value_name = "FILE")]
    table: Vec<PathBuf>,
    /// Next hops that the table's labels are spread over by hash; 0 gives each
    /// label its own
    #[arg(long, value_name = "N", default_value_t = 148)]
    hops: u32,
    #[command(flatten)]
    output: Output,
}

/// Where results go.
#[derive(clap::Args)]
pub(crate) struct Output {
    /// The folder for records [default: bench/record, where there is one]
    #[arg(long, value_name = "DIR")]
    record: Option<PathBuf>,
    /// Draw the figures as one page of HTML
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Print the result as JSON
    #[arg(short, long)]
    json: bool,
}

impl Output {
    /// Appends figures to the record, and draws their page.
    fn record<'a>(&self, figures: impl IntoIterator<Item = Figure<'a>>) -> anyhow::Result<()> {
        let figures: Vec<_> = figures.into_iter().collect();
        if let Some(file) = &self.html {
            let at = || format!("writing {}", file.display());
            fib::image::replace(file, page::page(&figures).as_bytes()).with_context(at)?;
        }
        append_to_record(self.record.as_deref(), figures)
    }
}

/// The tables of 2026.
const TABLES: [&str; 2] =
    ["ipv4-20260730-routeviews-origin.dat.gz", "ipv6-20260730-routeviews-origin.dat.gz"];

/// The routes to measure with, and where they are from.
struct Routes {
    name: String,
    v4: Vec<(Prefix<u32>, Hop)>,
    v6: Vec<(Prefix<u128>, Hop)>,
}

impl Setting {
    /// Loads or generates the routes and gives them hops.
    fn routes(&self) -> anyhow::Result<Routes> {
        self.routes_of(&TABLES)
    }

    /// Does so, with these files of the data folder where no table is named.
    fn routes_of(&self, names: &[&str]) -> anyhow::Result<Routes> {
        let data = data();
        let real: Vec<PathBuf> = names.iter().map(|name| data.join(name)).collect();
        let files = match &self.table[..] {
            [] if real.iter().all(|path| path.exists()) => &real[..],
            files => files,
        };
        if files.is_empty() {
            eprintln!("fingerpost-bench: no table in {}: generating one", data.display());
            let recipe = Recipe { labels: None, ..Recipe::default() };
            let loaded = progress::during("generating a table", || feed::generate(&recipe));
            return Ok(self.spread("generated", &loaded));
        }
        let mut routes = Routes { name: String::new(), v4: Vec::new(), v6: Vec::new() };
        for path in files {
            let what = format!("loading {}", path.display());
            let loaded = progress::during(&what, || feed::load(path, &Options::default()))?;
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let one = self.spread(&name, &loaded);
            if (!one.v4.is_empty() && !routes.v4.is_empty())
                || (!one.v6.is_empty() && !routes.v6.is_empty())
            {
                bail!("{}: only one table of a family can be measured", path.display());
            }
            routes.v4.extend(one.v4);
            routes.v6.extend(one.v6);
            routes.name =
                if routes.name.is_empty() { one.name } else { routes.name + "+" + &one.name };
        }
        Ok(routes)
    }

    fn spread(&self, name: &str, loaded: &RoutingTable) -> Routes {
        // A list of prefixes has one label, which is empty.
        let bare = loaded.labels.len() <= 1 && self.hops > 0;
        Routes {
            name: name.to_owned(),
            v4: spread(&loaded.v4, self.hops, bare),
            v6: spread(&loaded.v6, self.hops, bare),
        }
    }

    /// Appends a run's figures to its record.
    fn record<'a>(&self, figures: impl IntoIterator<Item = Figure<'a>>) -> anyhow::Result<()> {
        self.output.record(figures)
    }
}

/// The folder with tables and update streams.
pub(crate) fn data() -> PathBuf {
    std::env::var_os("FINGERPOST_DATA").map_or("../shared/data".into(), PathBuf::from)
}

/// Appends a run's figures to its record, and prints the path of the record, or that there is no
/// folder for it.
fn append_to_record<'a>(
    folder: Option<&Path>,
    figures: impl IntoIterator<Item = Figure<'a>>,
) -> anyhow::Result<()> {
    let default = Path::new("bench/record");
    let folder = match folder {
        Some(folder) => folder,
        None if default.is_dir() => default,
        None => {
            eprintln!(
                "fingerpost-bench: no bench/record here and no --record: nothing is recorded"
            );
            return Ok(());
        }
    };
    let path = record::append(folder, figures)
        .with_context(|| format!("writing a record under {}", folder.display()))?;
    eprintln!("fingerpost-bench: recorded in {}", path.display());
    Ok(())
}

/// Gives each route one of `hops` hops: by its label's hash, or where the labels are
/// bare of meaning by its prefix's; or to each label its own.
fn spread<A: Addr>(
    table: &[(Prefix<A>, feed::Label)],
    hops: u32,
    bare: bool,
) -> Vec<(Prefix<A>, Hop)> {
    let number = |prefix: Prefix<A>, label: feed::Label| {
        if !bare {
            return label.0;
        }
        // The upper half of the hash of 17 bytes is well mixed.
        let bytes = prefix.addr().to_u128().to_be_bytes();
        (feed::fnv1a(bytes.into_iter().chain([prefix.len() as u8])) >> 32) as u32
    };
    table.iter().map(|&(prefix, label)| (prefix, hop_of(number(prefix, label), hops))).collect()
}

/// Gives a label one of `hops` hops, by hash, or its own.
fn hop_of(label: u32, hops: u32) -> Hop {
    match hops {
        0 => Hop(1 + label),
        hops => {
            let hash = u64::from(label).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33;
            Hop(1 + (hash % u64::from(hops)) as u32)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Cli, spread};
    use clap::CommandFactory;
    use feed::Label;
    use fib::{Hop, Prefix};

    #[test]
    fn command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_list_of_prefixes_is_spread_as_well_as_one_with_labels() {
        let prefixes = (0..20_000u32).map(|i| Prefix::truncate(i << 12, 24));
        let bare: Vec<_> = prefixes.clone().map(|prefix| (prefix, Label(0))).collect();
        let labeled: Vec<_> = prefixes.zip((0..).map(Label)).collect();
        for routes in [spread(&bare, 148, true), spread(&labeled, 148, false)] {
            let mut counts = [0; 149];
            routes.iter().for_each(|(_, hop)| counts[hop.0 as usize] += 1);
            assert_eq!(counts[0], 0);
            assert!(counts[1..].iter().all(|count| (80..200).contains(count)), "{counts:?}");
        }
        assert_eq!(spread(&labeled, 0, false)[7].1, Hop(8));
    }
}
