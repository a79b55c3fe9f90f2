//! `fingerpost-bench xdp`: nanoseconds of a lookup in the kernel, by eBPF programs.
//!
//! | contestant | lookup |
//! |---|---|
//! | `flat`, `rank` | this project's tables in BPF arrays, by our subroutine (`xdp::lookup`); `rank` for IPv4 |
//! | `lpm_trie` | the kernel's `BPF_MAP_TYPE_LPM_TRIE`, by `bpf_map_lookup_elem` |
//! | `fib_lookup` | the kernel's own routing table, by `bpf_fib_lookup` without the neighbor |
//! | `empty` | none: the time of the rest of the program |
//!
//! Each contestant is a program that differs in the subroutine only. `BPF_PROG_TEST_RUN` repeats it; a
//! run looks 64 keys up and stores the answers, none of which the next lookup needs. Tables of
//! fewer routes are samples of the whole one. `contest.rs` describes the checks before the
//! measurement, and the order of turns.

use std::process::ExitCode;

use anyhow::{Context, bail, ensure};
use fib::{Choice, Hop, Prefix, Rib};
use output::progress;
use serde::Serialize;

use super::Setting;
use super::clock::{Summary, pin};
use super::contest::{Contestant, prove, rounds};
use super::keys::Stream;
use super::record::Figure;

mod contestants;
mod kernel_routes;

use contestants::Program;
pub(crate) use contestants::trie;
use kernel_routes::KernelFamily;
pub(crate) use kernel_routes::Namespace;

#[derive(clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    setting: Setting,
    /// Measure IPv6
    #[arg(short = '6')]
    v6: bool,
    /// Numbers of routes; a number above that of the table stands for the whole table
    #[arg(
        long,
        value_name = "N",
        value_delimiter = ',',
        default_value = "1000,10000,100000,2000000"
    )]
    routes: Vec<usize>,
    /// Lookups of the kernel's own, to compare with
    #[arg(long, value_enum, value_delimiter = ',', default_value = "lpm-trie,fib-lookup")]
    rivals: Vec<Rival>,
    /// The streams
    #[arg(long, value_enum, value_delimiter = ',', default_value = "rnd,pfx")]
    streams: Vec<Stream>,
    /// Passes of each contestant
    #[arg(long, value_name = "N", default_value_t = 7)]
    rounds: usize,
    /// Keys of a pass, at most 2^24
    #[arg(long, value_name = "N", default_value_t = 1 << 21)]
    keys: usize,
    /// The core
    #[arg(long, value_name = "N", default_value_t = 0)]
    core: usize,
}

/// A lookup of the kernel's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Rival {
    LpmTrie,
    FibLookup,
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    ensure!(nix::unistd::geteuid().is_root(), "eBPF programs need root: run this with sudo");
    ensure!(args.rounds > 0, "--rounds 0: at least one pass is needed");
    ensure!(!args.routes.contains(&0), "--routes 0: a table has at least one route");
    ensure!((1..=1 << 24).contains(&args.keys), "--keys {}: from 1 to 2^24", args.keys);
    let routes = args.setting.routes()?;
    pin(args.core);
    if args.v6 {
        compare(args, &routes.name, &routes.v6)
    } else {
        compare(args, &routes.name, &routes.v4)
    }
}

/// The result of one contestant in one case.
#[derive(Serialize)]
struct Score {
    contestant: String,
    routes: usize,
    /// 0 if it is unknown.
    bytes: usize,
    stream: String,
    /// In nanoseconds a lookup.
    #[serde(flatten)]
    summary: Summary,
    /// The median over that of `flat`.
    ratio: f64,
}

fn compare<A: KernelFamily>(
    args: &Args,
    table: &str,
    routes: &[(Prefix<A>, Hop)],
) -> anyhow::Result<ExitCode> {
    if routes.is_empty() {
        bail!("{table} has no route of this family");
    }
    let mut sizes: Vec<usize> = args.routes.iter().map(|&n| n.min(routes.len())).collect();
    sizes.dedup();
    let namespace = match args.rivals.contains(&Rival::FibLookup) {
        true => Some(Namespace::new()?),
        false => None,
    };
    let mut scores = Vec::new();
    for size in sizes {
        let sample = sample(routes, size);
        measure(args, &sample, namespace.as_ref(), &mut scores)
            .with_context(|| format!("{size} routes"))?;
    }
    args.setting.record(scores.iter().map(|score| Figure {
        bench: "xdp",
        table,
        routes: score.routes,
        contestant: &score.contestant,
        case: &score.stream,
        threads: 1,
        unit: "ns/lookup",
        summary: score.summary,
        samples: args.rounds,
        bytes: score.bytes,
    }))?;
    print(args, table, &scores)?;
    Ok(ExitCode::SUCCESS)
}

/// Draws `size` routes, in their order.
fn sample<A: KernelFamily>(routes: &[(Prefix<A>, Hop)], size: usize) -> Vec<(Prefix<A>, Hop)> {
    let mut rng = fastrand::Rng::with_seed(19);
    let mut chosen = rng.choose_multiple(routes, size);
    chosen.sort_unstable_by_key(|&&(prefix, _)| prefix);
    chosen.into_iter().copied().collect()
}

/// Measures one table in all contestants.
fn measure<A: KernelFamily>(
    args: &Args,
    routes: &[(Prefix<A>, Hop)],
    namespace: Option<&Namespace>,
    scores: &mut Vec<Score>,
) -> anyhow::Result<()> {
    let rib = Rib::from_sorted(routes.iter().copied());
    let keys = args.keys as u32;
    let what = |name: &str| format!("{name}: {} routes", routes.len());
    let mut contestants: Vec<Box<dyn Contestant<A>>> = Vec::new();
    // `rank` is for IPv4 only.
    for choice in [Choice::Flat, Choice::Rank].into_iter().take(if A::BITS == 32 { 2 } else { 1 }) {
        let name = choice.name::<A>();
        let ours = progress::during(&what(&name), || Program::ours(rib.clone(), choice, keys));
        contestants.push(Box::new(ours?));
    }
    if args.rivals.contains(&Rival::LpmTrie) {
        let trie = progress::during(&what("lpm_trie"), || Program::lpm_trie(routes, keys));
        contestants.push(Box::new(trie?));
    }
    if let Some(namespace) = namespace {
        progress::during(&what("the kernel's routes"), || namespace.replace(routes))?;
        contestants.push(Box::new(Program::fib_lookup::<A>(namespace.ifindex(), keys)?));
    }
    let mut empty = Program::empty::<A>(keys)?;
    for &stream in &args.streams {
        let keys = stream.keys::<A>(args.keys, routes);
        prove(&rib, &mut contestants, stream, &keys)?;
        let mut rates = rounds(&mut contestants, stream, &keys, 1, args.rounds)?;
        let rest: anyhow::Result<Vec<f64>> =
            (0..args.rounds).map(|_| empty.rate(stream, &keys, 1)).collect();
        rates.push(rest?);
        let summaries: Vec<Summary> = rates
            .iter()
            .map(|rates| Summary::of(&rates.iter().map(|mega| 1e3 / mega).collect::<Vec<f64>>()))
            .collect();
        let rest: &dyn Contestant<A> = &empty;
        let all = contestants.iter().map(|contestant| &**contestant).chain([rest]);
        scores.extend(all.zip(&summaries).map(|(contestant, &summary)| Score {
            contestant: contestant.name().to_owned(),
            routes: routes.len(),
            bytes: contestant.bytes(),
            stream: stream.to_string(),
            summary,
            ratio: summary.median / summaries[0].median,
        }));
    }
    Ok(())
}

#[expect(clippy::print_stdout, reason = "the result")]
fn print(args: &Args, table: &str, scores: &[Score]) -> anyhow::Result<()> {
    if args.setting.output.json {
        println!("{}", serde_json::to_string_pretty(scores)?);
        return Ok(());
    }
    println!("{table}: {} keys a pass, median of {} passes", args.keys, args.rounds);
    println!(
        "Nanoseconds a lookup in the kernel, the program's loop included; the ratio is to flat."
    );
    let mut case = None;
    for score in scores {
        if case != Some((score.routes, &score.stream)) {
            case = Some((score.routes, &score.stream));
            println!("\n{} routes, {}", score.routes, score.stream);
        }
        let Summary { median, mad, min, max } = score.summary;
        let Score { contestant, ratio, .. } = score;
        let bytes = match score.bytes {
            0 => String::new(),
            bytes => format!("  {bytes} bytes"),
        };
        println!(
            "  {contestant:12} {median:7.1} ±{mad:<5.1} {min:7.1} to {max:<7.1} x{ratio:.2}{bytes}"
        );
    }
    Ok(())
}
