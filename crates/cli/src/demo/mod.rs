//! `fingerpost demo`: forwards by a full table between namespaces and checks every packet.
//!
//! ```text
//!  routes ─► Tables ──────────────┐
//!     └────► Oracle ─► Packets    │
//!                         │       │
//!        generator ═► in ═ router ═ out-a ═► checker of sink 0 ─┐
//!                                 ═ out-b ═► checker of sink 1 ─┴► report
//! ```
//!
//! | file | |
//! |---|---|
//! | `routes` | the routes and their sinks |
//! | `packets` | the test packets, and the oracle that decides the sink of each |
//! | `network` | three namespaces connected by veth |
//! | `placement` | the CPU of each part, and the load of the CPUs |
//! | `traffic` | the generator |
//! | `forwarder` | our router in the middle |
//! | `driver` | its path in the driver |
//! | `kernel` | Linux in the middle, for the comparison |
//! | `check` | the checks of every packet that arrives |
//! | `rounds` | one measurement after the other |
//! | `memory` | the same without root, within this process |
//! | `report` | the results |
//!
//! All resources belong to values of `run` and are released with them, also on failure and on
//! Ctrl-C. The kernel releases namespaces, XDP programs and maps when the process ends, also by
//! `SIGKILL`.

mod check;
mod driver;
mod forwarder;
mod kernel;
mod memory;
mod network;
mod packets;
mod placement;
mod report;
mod rounds;
mod routes;
mod traffic;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context, Result};

use driver::DriverTables;
use forwarder::Tables;
use output::progress;
use packets::Packets;
use report::Report;
use routes::Routes;

/// The number of distinct packets.
const PACKETS: usize = 1 << 20;

/// The arguments of `demo`.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Time to send, in seconds
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,
    /// Load the routes from these files [default: generate them]
    #[arg(long, value_name = "FILE", num_args = 1..)]
    table: Vec<PathBuf>,
    /// Also measure the Linux kernel with the same packets and routes, in turns
    #[arg(long)]
    compare_kernel: bool,
    /// Where our router forwards: in its own process by AF_XDP, or in the driver by XDP; in a comparison `xdp`
    /// measures both
    #[arg(long, value_enum, default_value_t = Mode::AfXdp, conflicts_with = "memory")]
    mode: Mode,
    /// Seed of the generated routes and of the packets
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Print one JSON document
    #[arg(short, long)]
    json: bool,
    /// Use memory ports, also as root
    #[arg(long, conflicts_with = "compare_kernel")]
    memory: bool,
}

/// Where our router forwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Mode {
    /// In its own process.
    #[value(name = "af-xdp")]
    AfXdp,
    /// In the driver.
    Xdp,
}

/// Runs the demonstration. The exit status is 0 if every packet was right.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    let routes = Arc::new(match args.table.as_slice() {
        [] => progress::during("generating a table", || Routes::generate(args.seed)),
        files => progress::during("loading the table", || Routes::load(files))?,
    });
    let tables = progress::during("building the tables", || Tables::build(&routes))?;
    let (v4, v6) = (routes::sinks(&routes.v4), routes::sinks(&routes.v6));
    let packets =
        progress::during("drawing packets", || Packets::draw(&v4, &v6, PACKETS, args.seed))?;
    drop((v4, v6));

    let seconds = Duration::from_secs(args.seconds);
    let mut report = Report::new(&routes, &tables, &packets);
    let is_root = nix::unistd::geteuid().is_root();
    if args.mode == Mode::Xdp && !is_root {
        anyhow::bail!("--mode xdp needs root: without it there is no driver to forward in");
    }
    if args.memory || !is_root {
        if !args.memory {
            eprintln!(
                "fingerpost: not root, so no namespaces and no AF_XDP: \
                 the packets go through memory ports in this process"
            );
        }
        memory::run(&tables, &packets, seconds, &stop, &mut report)?;
    } else {
        let driver = (args.mode == Mode::Xdp).then(|| DriverTables::build(&routes)).transpose()?;
        let tables = (&tables, driver.as_ref());
        rounds::run(args.compare_kernel, &routes, tables, &packets, seconds, &stop, &mut report)
            .context("the demonstration's network")?;
    }
    report.print(args.json)?;
    Ok(if report.is_right() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
