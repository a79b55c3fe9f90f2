//! `fingerpost demo`: the main job in a box.
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
//! | `routes` | where routes come from and lead to |
//! | `packets` | the test packets, and who says where each must end up |
//! | `network` | three namespaces joined by veth |
//! | `placement` | which CPU does what, and how busy it was |
//! | `traffic` | the generator |
//! | `forwarder` | our router in the middle |
//! | `kernel` | Linux in the middle, to compare with |
//! | `check` | what is held of every packet that arrives |
//! | `rounds` | one measurement after the other |
//! | `memory` | the same without root, within this process |
//! | `report` | what came out |
//!
//! Everything that is made lives in values of `run` and goes with them, on
//! failure and on Ctrl-C too; what the kernel holds for us (namespaces, XDP
//! programs, maps) it drops with the process, however that ends.

mod check;
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

use forwarder::Tables;
use output::progress;
use packets::Packets;
use report::Report;
use routes::Routes;

/// How many different packets there are.
const PACKETS: usize = 1 << 20;

/// What the command takes.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// How long to send, in seconds
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,
    /// Load the routes from these files, where the default is to generate them
    #[arg(long, value_name = "FILE", num_args = 1..)]
    table: Vec<PathBuf>,
    /// Have the Linux kernel forward the same packets by the same routes, in turns
    #[arg(long)]
    compare_kernel: bool,
    /// The seed of the generated routes and of the packets
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Print one JSON document
    #[arg(short, long)]
    json: bool,
    /// Use memory ports although we are root
    #[arg(long, conflicts_with = "compare_kernel")]
    memory: bool,
}

/// Runs the demonstration; the exit status says whether all was right.
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
    if args.memory || !nix::unistd::geteuid().is_root() {
        if !args.memory {
            eprintln!(
                "fingerpost: not root, so no namespaces and no AF_XDP: \
                 the packets go through memory ports in this process"
            );
        }
        memory::run(&tables, &packets, seconds, &stop, &mut report)?;
    } else {
        rounds::run(args.compare_kernel, &routes, &tables, &packets, seconds, &stop, &mut report)
            .context("the demonstration's network")?;
    }
    report.print(args.json)?;
    Ok(if report.is_right() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
