//! `fingerpost lab ddos`: a server under attack, in a box, with the gate off and on.
//!
//! ```text
//!   captures, floods ─► attackers ─┐
//!   streams, newcomers ─► clients ─┴► router ─► gates ─► protected link ─► grantor ─► server
//!            └────────────── what they got ─► report, plots ◄── what arrived ──────────┘
//! ```
//!
//! | file | |
//! |---|---|
//! | `topology` | eight namespaces, their links and routes |
//! | `part` | a process in one of them |
//! | `guard` | BGP speakers, gates, the grantor |
//! | `attack` | captures and floods |
//! | `sender` | who sends them, at a rate |
//! | `clients` | the honest ones |
//! | `server` | what they want |
//! | `rounds` | one attack after the other |
//! | `report`, `html` | what came out, and the bars |
//!
//! Everything that is made lives in values of `run` and goes with them, on failure and on
//! Ctrl-C too; what the kernel holds for us (namespaces, the files in them, XDP programs,
//! processes) it drops with this one, however that ends. Nothing has a name on the machine,
//! so two labs do not meet.

mod attack;
mod clients;
mod guard;
mod html;
mod part;
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
use report::{Known, Report};
use rounds::{Field, Scale};

/// The captures that come to be replayed where none is named, in the data folder.
const CAPTURES: [&str; 5] = [
    "ddos-pkt.TCP.synflood.spoofed.pcap.gz",
    "ddos-pkt.TCP.DOMINATE.syn.ecn.cwr.pcapng.gz",
    "ddos-amp.TCP.reflection.SYNACK.pcap.gz",
    "ddos-amp.UDP.bacnet.IOT.37810.pcapng.gz",
    "ddos-amp.dns.RRSIG.fragmented.pcap.gz",
];

/// What `lab` takes.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// Attack a server with the gate off, then on, and tell what its clients got
    Ddos(Ddos),
}

#[derive(clap::Args)]
struct Ddos {
    /// One flood only, and not for long: does it work here?
    #[arg(long, conflicts_with = "capture")]
    quick: bool,
    /// Replay these captures (pcap or pcapng, gzip or not), where the default is those of the
    /// data folder ($FINGERPOST_DATA)
    #[arg(long, value_name = "FILE", num_args = 1..)]
    capture: Vec<PathBuf>,
    /// Only attacks whose names contain this
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
    /// Only with the gate in this state
    #[arg(long, value_name = "STATE")]
    gate: Option<State>,
    /// How long new clients come in each round, in seconds
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(2..=600))]
    seconds: Option<u64>,
    /// The protected link, in Mbit/s
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    link: u64,
    /// How many times the protected link an attack is
    #[arg(long, value_name = "N", default_value_t = 10.0)]
    factor: f64,
    /// The seed of generated floods
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Write what came out with plots, as a page of HTML
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Print one JSON document
    #[arg(short, long)]
    json: bool,
}

/// What the gate does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum State {
    /// Nothing: the kernel forwards.
    Off,
    /// It guards.
    On,
}

/// Runs a lab.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let What::Ddos(args) = &args.what;
    ddos(args)
}

fn ddos(args: &Ddos) -> Result<ExitCode> {
    if !nix::unistd::geteuid().is_root() {
        bail!("the lab needs root: it builds network namespaces and opens AF_XDP sockets");
    }
    if !(args.factor.is_finite() && args.factor > 0.0) {
        bail!("--factor {}: an attack is some times the protected link", args.factor);
    }
    let stop = stop::flag_on_signals(&[stop::SIGINT, stop::SIGTERM, stop::SIGHUP])?;
    let attacks = progress::during("making the attacks", || attacks(args))?;
    let seconds = args.seconds.unwrap_or(if args.quick { 4 } else { 8 });
    let scale = Scale { link: args.link * 1_000_000, factor: args.factor, seconds };
    let known = attacks.iter().map(|it| Known { name: it.name.clone(), about: it.about.clone() });
    let mut report = Report::new(scale, known.collect());
    let mut ports: Vec<u16> = attacks.iter().map(|attack| attack.port).collect();
    ports.push(SERVICE);
    ports.sort_unstable();
    ports.dedup();
    let mut field = progress::during("building the network", || Field::build(scale, &ports, &stop))
        .context("the lab's network")?;
    let peace = if args.quick { None } else { Some(None) };
    let each = peace.into_iter().chain(attacks.iter().map(Some));
    'all: for attack in each {
        for state in [State::Off, State::On] {
            if args.gate.is_some_and(|only| only != state) {
                continue;
            }
            let name = attack.map_or("no attack", |attack| &attack.name);
            let on = state == State::On;
            eprintln!("fingerpost: {name}, gate {}", if on { "on" } else { "off" });
            match field.round(attack, on, &stop).with_context(|| format!("during {name}"))? {
                Some(round) => report.add(round),
                None => break 'all,
            }
        }
    }
    drop(field);
    if stop.load(Ordering::Relaxed) {
        eprintln!("fingerpost: interrupted; what there is so far");
    }
    if let Some(file) = &args.html {
        fib::image::replace(file, html::page(&report).as_bytes())?;
    }
    report.print(args.json)?;
    Ok(if report.holds { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Returns the folder of captures.
fn data_folder() -> PathBuf {
    std::env::var_os("FINGERPOST_DATA").map_or("../shared/data".into(), PathBuf::from)
}

/// Makes what is asked for.
fn attacks(args: &Ddos) -> Result<Vec<Arc<Attack>>> {
    let mut attacks = Vec::new();
    if !args.quick {
        let named = !args.capture.is_empty();
        let usual = CAPTURES.map(|name| data_folder().join(name));
        let captures = if named { &args.capture[..] } else { &usual };
        for path in captures {
            if !named && !path.exists() {
                eprintln!("fingerpost: {}: not there, so not replayed", path.display());
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
            bail!("--only {only}: no attack is called so");
        }
    }
    Ok(attacks.into_iter().map(Arc::new).collect())
}
