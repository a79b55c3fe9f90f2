//! `fingerpost-bench lookup`: lookups a second, every engine and the plain rival in turns.
//!
//! A pass looks a whole array of keys up and stores every answer. `contest.rs` describes the
//! checks before the measurement, and the order of turns.

use std::process::ExitCode;

use anyhow::{Context, bail};
use fib::{Choice, Family, Fib, Hop, Prefix, Rib, Table};
use output::progress;
use serde::Serialize;

use super::Setting;
use super::clock::Summary;
use super::contest::{Answers, Contestant, Ours, enough_cores, prove, rounds};
use super::keys::Stream;
use super::plain::Plain;
use super::record::Figure;

/// How many keys are looked up in one call, as in a datapath.
const BATCH: usize = 256;
/// The rival's name.
const PLAIN: &str = "plain-D16X4R";

#[derive(clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    setting: Setting,
    /// Measure IPv6
    #[arg(short = '6')]
    v6: bool,
    /// The engines; `plain-D16X4R` is the thesis's search, one lookup after another
    /// [default: a choice for the family]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    engines: Vec<String>,
    /// The streams [default: all]
    #[arg(long, value_enum, value_delimiter = ',')]
    streams: Vec<Stream>,
    /// Numbers of threads, each measured
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1,2")]
    threads: Vec<usize>,
    /// Passes of each contestant
    #[arg(long, value_name = "N", default_value_t = 7)]
    rounds: usize,
    /// Keys of a pass
    #[arg(long, value_name = "N", default_value_t = 1 << 25)]
    keys: usize,
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if args.rounds == 0 || args.keys < BATCH || args.threads.is_empty() {
        bail!("at least one round, one thread and {BATCH} keys are needed");
    }
    enough_cores(&args.threads)?;
    let routes = args.setting.routes()?;
    if args.v6 {
        let default = ["D16X4R/64", "D16X8R/64", "D16X8R"];
        compare(args, &routes.name, &routes.v6, &default, |_| bail!("{PLAIN} is for IPv4 only"))
    } else {
        let default = [PLAIN, "D16R", "D18R", "D20R", "D16X2R", "D16X4R", "D16X6R"];
        compare(args, &routes.name, &routes.v4, &default, |rib| {
            Ok(Box::new(Ours::new(PLAIN, Plain::build(rib)?, BATCH, Answers::Stored)) as Box<_>)
        })
    }
}

/// The result of one contestant in one case.
#[derive(Serialize)]
struct Score {
    engine: String,
    bytes: usize,
    stream: String,
    threads: usize,
    /// In million lookups a second.
    #[serde(flatten)]
    summary: Summary,
    /// The median over that of the first contestant.
    ratio: f64,
}

#[derive(Serialize)]
struct Outcome<'a> {
    table: &'a str,
    routes: usize,
    keys: usize,
    rounds: usize,
    scores: &'a [Score],
}

fn compare<A: Family>(
    args: &Args,
    table: &str,
    routes: &[(Prefix<A>, Hop)],
    default: &[&str],
    plain: impl Fn(&Rib<A>) -> anyhow::Result<Box<dyn Contestant<A>>>,
) -> anyhow::Result<ExitCode> {
    if routes.is_empty() {
        bail!("{table} has no route of this family");
    }
    let rib = Rib::from_sorted(routes.iter().copied());
    let names: Vec<&str> = match &args.engines[..] {
        [] => default.to_vec(),
        engines => engines.iter().map(String::as_str).collect(),
    };
    let mut contestants: Vec<Box<dyn Contestant<A>>> = Vec::new();
    for name in names {
        contestants.push(if name == PLAIN {
            plain(&rib)?
        } else {
            let choice = Choice::parse::<A>(name).with_context(|| format!("--engines {name}"))?;
            let fib = Fib::build(&rib, choice, 2).with_context(|| format!("building {name}"))?;
            Box::new(Ours::new(name, fib, BATCH, Answers::Stored))
        });
    }
    let streams = if args.streams.is_empty() { &Stream::ALL[..] } else { &args.streams };
    let mut scores = Vec::new();
    for &stream in streams {
        let keys = progress::during(&format!("drawing keys for {stream}"), || {
            Table::new(&stream.keys::<A>(args.keys, routes))
        });
        prove(&rib, &mut contestants, stream, &keys)?;
        for &threads in &args.threads {
            let rates = rounds(&mut contestants, stream, &keys, threads, args.rounds)?;
            let first = Summary::of(&rates[0]).median;
            for (contestant, rates) in contestants.iter().zip(&rates) {
                let summary = Summary::of(rates);
                scores.push(Score {
                    engine: contestant.name().to_owned(),
                    bytes: contestant.bytes(),
                    stream: stream.to_string(),
                    threads,
                    summary,
                    ratio: summary.median / first,
                });
            }
        }
    }
    args.setting.record(scores.iter().map(|score| Figure {
        bench: "lookup",
        table,
        routes: routes.len(),
        contestant: &score.engine,
        case: &score.stream,
        threads: score.threads,
        unit: "Mlookups/s",
        summary: score.summary,
        samples: args.rounds,
        bytes: score.bytes,
    }))?;
    print(
        args,
        &Outcome {
            table,
            routes: routes.len(),
            keys: args.keys,
            rounds: args.rounds,
            scores: &scores,
        },
    )?;
    Ok(ExitCode::SUCCESS)
}

#[expect(clippy::print_stdout, reason = "the result")]
fn print(args: &Args, outcome: &Outcome<'_>) -> anyhow::Result<()> {
    if args.setting.output.json {
        println!("{}", serde_json::to_string_pretty(outcome)?);
        return Ok(());
    }
    let Outcome { table, routes, keys, rounds, scores } = outcome;
    println!("{table}: {routes} routes; {keys} keys a pass, median of {rounds} passes");
    println!("Million lookups a second; the ratio is to the first engine of the list.");
    let mut case = None;
    for score in *scores {
        if case != Some((&score.stream, score.threads)) {
            case = Some((&score.stream, score.threads));
            println!("\n{}, {} thread(s)", score.stream, score.threads);
        }
        let Score { engine, bytes, ratio, .. } = score;
        let Summary { median, mad, min, max } = score.summary;
        println!(
            "  {engine:14} {median:8.1} ±{mad:<6.1} {min:7.1} to {max:<7.1} x{ratio:.2}  {bytes} bytes"
        );
    }
    Ok(())
}
