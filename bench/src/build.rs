//! `fingerpost-bench build`: the time to build a table from sorted routes, and to publish one change.
//!
//! Three times are measured for each engine: to build the routing table from sorted routes, to build
//! the forwarding table from that, and to publish a single changed route (announce, commit) with a
//! reader, which is the cost of a BGP update. After the updates the published table is compared, at every border of the
//! changed routes, with the routing table's own longest match.

use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, ensure};
use fib::{Choice, Family, Fib, Hop, Prefix, Rib, Updater};
use output::progress;
use serde::Serialize;

use super::Setting;
use super::clock::Summary;
use super::record::Figure;

/// How many changes of one route are published.
const CHANGES: usize = 2_000;

#[derive(clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    setting: Setting,
    /// Engines for IPv4
    #[arg(long, value_name = "NAME", value_delimiter = ',', default_value = "D16R,D16X4R,D20R")]
    engines: Vec<String>,
    /// Engines for IPv6
    #[arg(long, value_name = "NAME", value_delimiter = ',', default_value = "D16X8R/64")]
    engines6: Vec<String>,
    /// Threads that build
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1,2")]
    threads: Vec<usize>,
    /// Builds of each
    #[arg(long, value_name = "N", default_value_t = 7)]
    rounds: usize,
}

/// One time, in milliseconds.
#[derive(Serialize)]
struct Score {
    family: &'static str,
    engine: String,
    what: &'static str,
    threads: usize,
    #[serde(flatten)]
    summary: Summary,
    samples: usize,
    bytes: usize,
    routes: usize,
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    ensure!(args.rounds > 0 && !args.threads.contains(&0), "at least one round and one thread");
    let routes = args.setting.routes()?;
    let mut scores = Vec::new();
    measure("IPv4", args, &routes.v4, &args.engines, &mut scores)?;
    measure("IPv6", args, &routes.v6, &args.engines6, &mut scores)?;
    args.setting.record(scores.iter().map(|score| Figure {
        bench: "build",
        table: &routes.name,
        routes: score.routes,
        contestant: &score.engine,
        case: score.what,
        threads: score.threads,
        unit: "ms",
        summary: score.summary,
        samples: score.samples,
        bytes: score.bytes,
    }))?;
    print(args, &routes.name, &scores)?;
    Ok(ExitCode::SUCCESS)
}

fn measure<A: Family>(
    family: &'static str,
    args: &Args,
    routes: &[(Prefix<A>, Hop)],
    engines: &[String],
    scores: &mut Vec<Score>,
) -> anyhow::Result<()> {
    if routes.is_empty() {
        return Ok(());
    }
    let mut score = |engine: &str, what, threads, times: &[f64], bytes| {
        scores.push(Score {
            family,
            engine: engine.to_owned(),
            what,
            threads,
            summary: Summary::of(times),
            samples: times.len(),
            bytes,
            routes: routes.len(),
        });
    };
    let sorted = || Rib::from_sorted(routes.iter().copied());
    let times: Vec<f64> = (0..args.rounds).map(|_| timed(sorted).1).collect();
    let rib = sorted();
    score("Rib", "from sorted routes", 1, &times, rib.footprint());
    for name in engines {
        let choice = Choice::parse::<A>(name).with_context(|| format!("engine {name}"))?;
        for &threads in &args.threads {
            let what = format!("building {name} with {threads} threads");
            let built = progress::during(&what, || -> Result<Vec<_>, fib::Full> {
                let build = || Fib::build(&rib, choice, threads);
                (0..args.rounds)
                    .map(|_| {
                        let (fib, ms) = timed(build);
                        Ok((fib?, ms))
                    })
                    .collect()
            });
            let built = built.with_context(|| format!("building {name}"))?;
            let times: Vec<f64> = built.iter().map(|(_, ms)| *ms).collect();
            score(name, "build from the Rib", threads, &times, built[0].0.footprint());
        }
        let (times, bytes) =
            progress::during(&format!("updating {name}"), || update(rib.clone(), choice, routes))?;
        score(name, "publish one change", 1, &times, bytes);
    }
    Ok(())
}

/// Changes routes one by one, each published by itself.
fn update<A: Family>(
    rib: Rib<A>,
    choice: Choice,
    routes: &[(Prefix<A>, Hop)],
) -> anyhow::Result<(Vec<f64>, usize)> {
    let mut updater = Updater::new(rib, choice, 1)?;
    let mut reader = updater.reader();
    let mut rng = fastrand::Rng::with_seed(9);
    let mut times = Vec::with_capacity(CHANGES);
    let mut borders = Vec::new();
    for _ in 0..CHANGES {
        let (prefix, hop) = routes[rng.usize(..routes.len())];
        borders.extend([prefix.addr(), prefix.last()]);
        reader.current();
        let (commit, ms) = timed(|| {
            if rng.bool() {
                updater.announce(prefix, Hop(1 + hop.0 % 100));
            } else {
                updater.withdraw(prefix);
            }
            updater.commit()
        });
        ensure!(commit?.published, "a reader that comes by holds nothing up");
        times.push(ms);
    }
    for &addr in &borders {
        let right = updater.rib().longest(addr).map_or(Hop::NONE, |(_, hop)| hop);
        let hop = reader.current().lookup(addr);
        ensure!(hop == right, "after the updates {addr:x?} gives {hop:?}, not {right:?}");
    }
    Ok((times, reader.current().footprint()))
}

fn timed<T>(work: impl FnOnce() -> T) -> (T, f64) {
    let start = Instant::now();
    let done = work();
    (done, start.elapsed().as_secs_f64() * 1e3)
}

#[expect(clippy::print_stdout, reason = "the result")]
fn print(args: &Args, table: &str, scores: &[Score]) -> anyhow::Result<()> {
    if args.setting.output.json {
        println!("{}", serde_json::to_string_pretty(scores)?);
        return Ok(());
    }
    println!("{table}; milliseconds, medians");
    for score in scores {
        let Score { family, engine, what, threads, bytes, routes, .. } = score;
        let Summary { median, mad, min, max } = score.summary;
        println!(
            "  {family} {engine:10} {what:20} {threads} thread(s) {median:9.3} ±{mad:<7.3} \
             {min:8.3} to {max:<8.3} {routes} routes, {bytes} bytes"
        );
    }
    Ok(())
}
