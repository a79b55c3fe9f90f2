//! `fingerpost lab ddos`: a server under attack on one machine, with the gate off and on.
//!
//! ```text
//!   captures, floods ─► attackers ────┐
//!   streams, new clients ─► clients ──┴► router ─► gates ─► protected link ─► grantor ─► server
//!            └────────── connect times ─► report, plots ◄── goodput ──────────────────────┘
//! ```
//!
//! | file | |
//! |---|---|
//! | `topology` | eight namespaces, their links and routes |
//! | `process` | a child process in one of them |
//! | `guard` | BGP speakers, gates, the grantor |
//! | `attack` | captures and floods |
//! | `sender` | sends the packets of an attack at a rate |
//! | `clients` | the honest clients |
//! | `server` | the server of the honest clients |
//! | `failover` | the failure of a gate during an attack, and its return |
//! | `rounds` | one attack after the other |
//! | `report`, `html` | the results and the requirements |
//!
//! All resources belong to values of `run` and are released with them, also on failure and on
//! Ctrl-C. The kernel releases namespaces, the files in them, XDP programs and child processes when
//! this process ends, also by `SIGKILL`. Nothing has a name on the machine, so two labs do not
//! interfere.

mod attack;
mod clients;
mod failover;
mod guard;
mod html;
mod process;
mod report;
mod rounds;
mod sender;
mod server;
mod topology;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use anyhow::{Context, Result, bail};

use output::progress;

use crate::stop;
use attack::{Attack, Flood, SERVICE};
use failover::Grants;
use report::{AttackSummary, Report};
use rounds::{Lab, Scale};

/// The captures of the data folder that are replayed if the command line names none.
const CAPTURES: [&str; 5] = [
    "ddos-pkt.TCP.synflood.spoofed.pcap.gz",
    "ddos-pkt.TCP.DOMINATE.syn.ecn.cwr.pcapng.gz",
    "ddos-amp.TCP.reflection.SYNACK.pcap.gz",
    "ddos-amp.UDP.bacnet.IOT.37810.pcapng.gz",
    "ddos-amp.dns.RRSIG.fragmented.pcap.gz",
];

/// The arguments of `lab`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Attack a server with the gate off, then on, and report the service of its clients
    Ddos(Ddos),
}

#[derive(clap::Args)]
struct Ddos {
    /// Run one short flood, to check that the lab works on this machine
    #[arg(long, conflicts_with = "capture")]
    quick: bool,
    /// Replay these captures (pcap or pcapng, also compressed with gzip) [default: those of the
    /// data folder, $FINGERPOST_DATA]
    #[arg(long, value_name = "FILE", num_args = 1..)]
    capture: Vec<PathBuf>,
    /// Run only attacks whose names contain this text
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
    /// Run only with the gate in this state
    #[arg(long, value_name = "STATE")]
    gate: Option<State>,
    /// Time during which new clients connect in each round, in seconds
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(2..=600))]
    seconds: Option<u64>,
    /// Bandwidth of the protected link, in Mbit/s
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    link: u64,
    /// Rate of an attack, as a multiple of the protected link
    #[arg(long, value_name = "N", default_value_t = 10.0)]
    factor: f64,
    /// Let a gate fail and return during each attack, with grants that all gates have or only the one that asked
    #[arg(long, value_name = "GRANTS")]
    failover: Option<Grants>,
    /// Seed of generated floods
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Write the results with plots as an HTML page
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Print one JSON document
    #[arg(short, long)]
    json: bool,
}

/// The state of the gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum State {
    /// No gate runs: the kernel forwards.
    Off,
    /// The gates filter.
    On,
}

/// Runs a lab.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let Command::Ddos(args) = &args.command;
    ddos(args)
}

fn ddos(args: &Ddos) -> Result<ExitCode> {
    if !nix::unistd::geteuid().is_root() {
        bail!("the lab needs root: it builds network namespaces and opens AF_XDP sockets");
    }
    if !(args.factor.is_finite() && args.factor > 0.0) {
        bail!("--factor {}: must be a positive number", args.factor);
    }
    let stop = stop::flag_on_signals(&[stop::SIGINT, stop::SIGTERM, stop::SIGHUP])?;
    let attacks = progress::during("preparing the attacks", || attacks(args))?;
    let seconds = args.seconds.unwrap_or(if args.quick { 4 } else { 8 });
    let (link, factor, failover) = (args.link * 1_000_000, args.factor, args.failover);
    let scale = Scale { link, factor, seconds, failover };
    let summaries = attacks.iter().map(|attack| AttackSummary {
        name: attack.name.clone(),
        description: attack.description.clone(),
    });
    let mut report = Report::new(scale, summaries.collect());
    let mut ports: Vec<u16> = attacks.iter().map(|attack| attack.port).collect();
    ports.push(SERVICE);
    ports.sort_unstable();
    ports.dedup();
    let mut lab = progress::during("building the network", || Lab::build(scale, &ports, &stop))
        .context("the lab's network")?;
    let no_attack = if args.quick { None } else { Some(None) };
    let each = no_attack.into_iter().chain(attacks.iter().map(Some));
    'all: for attack in each {
        for state in [State::Off, State::On] {
            if args.gate.is_some_and(|only| only != state) {
                continue;
            }
            let name = attack.map_or("no attack", |attack| &attack.name);
            let on = state == State::On;
            eprintln!("fingerpost: {name}, gate {}", if on { "on" } else { "off" });
            match lab.run_round(attack, on, &stop).with_context(|| format!("during {name}"))? {
                Some(round) => report.add(round),
                None => break 'all,
            }
        }
    }
    drop(lab);
    if stop.load(Ordering::Relaxed) {
        eprintln!("fingerpost: interrupted; the report covers the completed rounds");
    }
    if let Some(file) = &args.html {
        fib::image::replace(file, html::page(&report).as_bytes())?;
    }
    report.print(args.json)?;
    Ok(if report.passed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Returns the folder of captures.
fn data_folder() -> PathBuf {
    std::env::var_os("FINGERPOST_DATA").map_or("../shared/data".into(), PathBuf::from)
}

/// Prepares the attacks that the arguments select.
fn attacks(args: &Ddos) -> Result<Vec<Arc<Attack>>> {
    let mut attacks = Vec::new();
    if !args.quick {
        let named = !args.capture.is_empty();
        let default = CAPTURES.map(|name| data_folder().join(name));
        let captures = if named { &args.capture[..] } else { &default };
        for path in captures {
            if !named && !path.exists() {
                eprintln!("fingerpost: {}: not found, not replayed", path.display());
                continue;
            }
            attacks.push(Attack::capture(path)?);
        }
    }
    attacks.push(Attack::flood(Flood::Syn, args.seed));
    if !args.quick {
        attacks.push(Attack::flood(Flood::Udp, args.seed));
    }
    if let Some(only) = &args.only {
        attacks.retain(|attack| attack.name.contains(only.as_str()));
        if attacks.is_empty() {
            bail!("--only {only}: no attack has this text in its name");
        }
    }
    Ok(attacks.into_iter().map(Arc::new).collect())
}
