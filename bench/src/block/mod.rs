//! `fingerpost-bench block`: block lists in the driver: the time to load one, the delay of a ban, the bytes, and the
//! packets that are dropped a second.
//!
//! ```text
//!   the lists of the data, and addresses near theirs ─► replace, commit ─► seconds, bytes
//!   bans and unbans at a rate, each due at a time    ─► set, commit     ─► delay of each
//! ```
//!
//! A ban is in effect when its commit returns: the program's next lookup finds it. Bans that become due during a
//! commit share the next one, as in a daemon. Before and after the measurement, addresses are looked up in the
//! table and compared with a set; of the bans, every 64th is proved by a run of the program.

use std::collections::HashSet;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use ::xdp::{Blocker, ListAction, Publication};
use anyhow::{Context, bail, ensure};
use feed::Options;
use fib::Prefix;
use output::progress;
use port::af_xdp::bpf::Program;
use port::af_xdp::bpf::asm::Action;
use serde::Serialize;

use super::clock::{Summary, pin};
use super::record::Figure;
use super::{Output, data};

mod dropper;
mod drops;
mod firewall;

/// The block lists of the data.
const LISTS: [&str; 5] = [
    "list-firehol_level1-2026.netset.gz",
    "list-firehol_level2-2026.netset.gz",
    "list-firehol_level3-2026.netset.gz",
    "list-firehol_abusers_30d-2026.netset.gz",
    "list-ipsum-20260822.txt.gz",
];

/// The random addresses that are compared with the list.
const COMPARED: usize = 1 << 20;

#[derive(clap::Args)]
pub(super) struct Args {
    /// A list; may be given several times [default: those of FINGERPOST_DATA]
    #[arg(long, value_name = "FILE")]
    list: Vec<PathBuf>,
    /// Prefixes; addresses near those of the lists are added until there are as many
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    prefixes: usize,
    /// Bans and unbans a second
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    rate: u32,
    /// Seconds of them
    #[arg(long, value_name = "S", default_value_t = 10)]
    seconds: u32,
    /// Loads, and rounds of dropped packets
    #[arg(long, value_name = "N", default_value_t = 5)]
    rounds: usize,
    /// Packets that each program drops in a round; 0 for none
    #[arg(long, value_name = "N", default_value_t = 1 << 21)]
    packets: u32,
    /// The core
    #[arg(long, value_name = "N", default_value_t = 0)]
    core: usize,
    #[command(flatten)]
    output: Output,
}

/// The results.
#[derive(Serialize)]
struct Outcome {
    prefixes: usize,
    /// The bytes of the arrays, with their spare room.
    bytes: usize,
    load_seconds: Summary,
    bans: usize,
    commits: usize,
    /// Delays in milliseconds.
    median: f64,
    p99: f64,
    max: f64,
    drops: Vec<Drops>,
}

/// The dropped packets of one contestant.
#[derive(Serialize)]
struct Drops {
    contestant: &'static str,
    /// In million packets a second.
    #[serde(flatten)]
    summary: Summary,
    /// The median of `block` over this.
    ratio: f64,
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    ensure!(nix::unistd::geteuid().is_root(), "eBPF programs need root: run this with sudo");
    ensure!(args.rounds > 0 && args.seconds > 0, "at least one round and one second are needed");
    ensure!((1..=1_000_000).contains(&args.rate), "--rate {}: from 1 to 1,000,000", args.rate);
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    ensure!(
        args.packets == 0 || cpus > 1,
        "--packets: the generator and the contestant need a CPU each"
    );
    let other = (args.core + 1) % cpus;
    pin(args.core);
    let mut rng = fastrand::Rng::with_seed(57);
    let list = prefixes(args, &mut rng)?;
    let mut loads = Vec::new();
    let mut blocker = None;
    for round in 0..args.rounds {
        drop(blocker.take());
        let what = format!("load {} of {}", round + 1, args.rounds);
        let (loaded, seconds) = progress::during(&what, || load(&list))?;
        loads.push(seconds);
        blocker = Some(loaded);
    }
    let Some(mut blocker) = blocker else { bail!("no round") };
    progress::during("comparing", || compare(&blocker, &list, &mut rng))?;
    let (mut delays, commits) =
        progress::during("banning", || bans(args, &mut blocker, &list, &mut rng))?;
    progress::during("comparing", || compare(&blocker, &list, &mut rng))?;
    let bytes = blocker.bytes();
    drop(blocker);
    let drops = match args.packets {
        0 => Vec::new(),
        packets => progress::during("dropping packets", || {
            drops::measure(&list, packets, args.rounds, other, &mut rng)
        })?,
    };
    let summaries: Vec<Summary> = drops.iter().map(|(_, rates)| Summary::of(rates)).collect();
    let of_ours = summaries.first().map_or(f64::NAN, |ours| ours.median);
    let drops = drops.into_iter().zip(summaries).map(|((contestant, _), summary)| Drops {
        contestant,
        summary,
        ratio: of_ours / summary.median,
    });
    delays.sort_by(f64::total_cmp);
    let at = |share: f64| delays[((delays.len() - 1) as f64 * share) as usize];
    let outcome = Outcome {
        prefixes: list.len(),
        bytes,
        load_seconds: Summary::of(&loads),
        bans: delays.len(),
        commits,
        median: at(0.5),
        p99: at(0.99),
        max: at(1.0),
        drops: drops.collect(),
    };
    let figure = |contestant, case, unit, summary, samples| Figure {
        bench: "block",
        table: "lists",
        routes: list.len(),
        contestant,
        case,
        threads: 1,
        unit,
        summary,
        samples,
        bytes: outcome.bytes,
    };
    let ours = [
        figure("block", "load", "s", outcome.load_seconds, loads.len()),
        figure("block", "ban", "ms", Summary::of(&delays), delays.len()),
        figure("block", "ban, p99", "ms", Summary::of(&[outcome.p99]), delays.len()),
    ];
    let of_all = outcome
        .drops
        .iter()
        .map(|drops| figure(drops.contestant, "drop", "Mpackets/s", drops.summary, args.rounds));
    args.output.record(ours.into_iter().chain(of_all))?;
    print(args, &outcome)?;
    Ok(ExitCode::SUCCESS)
}

/// Reads the lists, and adds addresses whose upper half is that of a listed one.
fn prefixes(args: &Args, rng: &mut fastrand::Rng) -> anyhow::Result<Vec<Prefix<u32>>> {
    let default: Vec<PathBuf> = LISTS.iter().map(|name| data().join(name)).collect();
    let files = if args.list.is_empty() { &default } else { &args.list };
    let mut prefixes = HashSet::new();
    for path in files {
        let list = feed::load(path, &Options::default())
            .with_context(|| format!("reading the list {}", path.display()))?;
        prefixes.extend(list.v4.iter().map(|&(prefix, _)| prefix));
    }
    ensure!(!prefixes.is_empty(), "the lists have no IPv4 prefix");
    let mut list: Vec<Prefix<u32>> = prefixes.iter().copied().collect();
    list.sort_unstable();
    let listed = list.len();
    // Addresses that only differ in the lower half may run out.
    for _ in 0..20 * args.prefixes {
        if list.len() >= args.prefixes {
            break;
        }
        let address = draw_address(&list[..listed], rng);
        if prefixes.insert(address) {
            list.push(address);
        }
    }
    list.truncate(args.prefixes.max(1));
    list.sort_unstable();
    Ok(list)
}

/// Draws an address near one of the list.
fn draw_address(list: &[Prefix<u32>], rng: &mut fastrand::Rng) -> Prefix<u32> {
    let upper = list[rng.usize(..list.len())].addr() & 0xffff_0000;
    Prefix::truncate(upper | rng.u32(..1 << 16), 32)
}

/// Loads the list from memory; returns the seconds until the program has it.
fn load(list: &[Prefix<u32>]) -> anyhow::Result<(Blocker, f64)> {
    let mut blocker = Blocker::new(&[ListAction::Drop])?;
    let begin = Instant::now();
    blocker.replace(0, list, &[]);
    blocker.commit()?;
    let _program = blocker.load()?;
    Ok((blocker, begin.elapsed().as_secs_f64()))
}

/// Compares the table with a search in the sorted list.
fn compare(blocker: &Blocker, list: &[Prefix<u32>], rng: &mut fastrand::Rng) -> anyhow::Result<()> {
    // Disjoint ranges: nested prefixes are joined.
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for prefix in list {
        if ranges.last().is_none_or(|&(_, end)| end < prefix.addr()) {
            ranges.push((prefix.addr(), prefix.last()));
        }
    }
    let borders = list.iter().flat_map(|prefix| {
        let (first, last) = (prefix.addr(), prefix.last());
        [first.wrapping_sub(1), first, last, last.wrapping_add(1)]
    });
    let random = (0..COMPARED).map(|_| rng.u32(..)).collect::<Vec<_>>();
    for addr in borders.chain(random) {
        let at = ranges.partition_point(|&(first, _)| first <= addr);
        let listed = at > 0 && addr <= ranges[at - 1].1;
        let found = blocker.lists_of(addr) != 0;
        ensure!(found == listed, "{addr:x} is listed: {listed}, and found: {found}");
    }
    Ok(())
}

/// Bans addresses that are not listed, and lifts each ban again; returns the delay of each
/// change in milliseconds, and the number of commits.
fn bans(
    args: &Args,
    blocker: &mut Blocker,
    list: &[Prefix<u32>],
    rng: &mut fastrand::Rng,
) -> anyhow::Result<(Vec<f64>, usize)> {
    let total = args.rate as usize * args.seconds as usize;
    let mut fresh = HashSet::new();
    while fresh.len() < total.div_ceil(2) {
        let prefix = draw_address(list, rng);
        if blocker.lists_of(prefix.addr()) == 0 {
            fresh.insert(prefix);
        }
    }
    let fresh: Vec<Prefix<u32>> = fresh.into_iter().collect();
    // Each ban is lifted after as many others.
    const HELD: usize = 1000;
    let changes: Vec<(Prefix<u32>, bool)> = (0..fresh.len() + HELD)
        .flat_map(|i| {
            let ban = fresh.get(i).map(|&prefix| (prefix, true));
            let lift =
                i.checked_sub(HELD).and_then(|i| fresh.get(i)).map(|&prefix| (prefix, false));
            [ban, lift]
        })
        .flatten()
        .collect();
    let mut program = blocker.load()?;
    let mut delays = Vec::with_capacity(changes.len());
    let (begin, mut commits) = (Instant::now(), 0);
    let due = |i: usize| Duration::from_secs_f64(i as f64 / f64::from(args.rate));
    while delays.len() < changes.len() {
        let from = delays.len();
        let now = begin.elapsed();
        if let Some(early) = due(from).checked_sub(now) {
            std::thread::sleep(early);
            continue;
        }
        let count = (from..changes.len()).take_while(|&i| due(i) <= now).count();
        for &(prefix, is_ban) in &changes[from..from + count] {
            ensure!(blocker.set_v4(0, prefix, is_ban), "{prefix} is changed in vain");
        }
        if blocker.commit()? == Publication::Replaced {
            program = blocker.load()?;
        }
        commits += 1;
        let now = begin.elapsed();
        delays.extend((from..from + count).map(|i| (now - due(i)).as_secs_f64() * 1e3));
        if commits % 64 == 0 {
            // The last change: a ban before it may have been lifted in the same commit.
            let (prefix, is_ban) = changes[from + count - 1];
            prove(&program, prefix.addr(), is_ban)?;
        }
    }
    Ok((delays, commits))
}

/// Runs the program on a frame of this source.
fn prove(program: &Program, source: u32, drops: bool) -> anyhow::Result<()> {
    let mut frame = [0; 64];
    frame[12..15].copy_from_slice(&[0x08, 0x00, 0x45]);
    frame[26..30].copy_from_slice(&source.to_be_bytes());
    let run = program.test_run(&frame, 1)?;
    let want = if drops { Action::Drop } else { Action::Pass };
    ensure!(run.retval == want as u32, "{source:x} ends with {}, not {want:?}", run.retval);
    Ok(())
}

#[expect(clippy::print_stdout, reason = "the result")]
fn print(args: &Args, outcome: &Outcome) -> anyhow::Result<()> {
    if args.output.json {
        println!("{}", serde_json::to_string_pretty(outcome)?);
        return Ok(());
    }
    let Outcome { prefixes, bytes, load_seconds, bans, commits, median, p99, max, drops } = outcome;
    let Summary { median: load, mad, min, max: slowest } = load_seconds;
    println!("{prefixes} IPv4 prefixes, {bytes} bytes with spare room");
    println!("load: {load:.3} s ±{mad:.3}, {min:.3} to {slowest:.3}");
    println!("{bans} bans and unbans at {} a second, {commits} commits", args.rate);
    println!("delay: median {median:.3} ms, p99 {p99:.3} ms, at most {max:.3} ms");
    if !drops.is_empty() {
        println!("\nMillion packets of listed sources dropped a second on one core:");
    }
    for Drops { contestant, summary, ratio } in drops {
        let Summary { median, mad, min, max } = summary;
        println!(
            "  {contestant:10} {median:6.3} ±{mad:<5.3} {min:6.3} to {max:<6.3} block has x{ratio:.2}"
        );
    }
    Ok(())
}
