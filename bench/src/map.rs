//! `fingerpost-bench map`: the map of `fingerpost-lpm` beside the Rust crates for the same purpose.
//!
//! The contestants are maps from prefixes to values as their users use them, each with its own type of
//! prefixes: `prefix-trie` and `iptrie` with those of `ipnet`, `ip_network_table` with those of
//! `ip_network`; keys are converted before time is measured. Each round every contestant, in turns,
//!
//! - inserts all routes of the table: in the order of the table, and shuffled;
//! - gets each route's value by its exact prefix, in another shuffled order;
//! - iterates over all entries, and sums the lengths and values up;
//! - looks up the longest match of 2^20 addresses, drawn by prefix (PFX); two have a second form for
//!   that: `iptrie` compresses its map, ours is frozen, and looks up in batches;
//! - removes all routes in a shuffled order.
//!
//! Before that, every contestant's answers are compared with those of the routing table: the value of
//! each route, the sum over all entries, and each longest match. The time is CPU time of the thread. The
//! order of contestants rotates from round to round. `iptrie` iterates over the list in which it stores
//! its entries, in the order in which they were inserted; the others iterate in the order of prefixes.

use std::process::ExitCode;

use anyhow::{Context, bail, ensure};
use fib::{Family, Hop, Prefix, Rib};
use output::progress;
use serde::Serialize;

use super::Setting;
use super::clock::{Clock, Summary, pin};
use super::keys::Stream;
use super::record::Figure;

mod contestants;

use contestants::{MapContestant, Measured, contestants_of_v4, contestants_of_v6};

/// The number of addresses whose longest matches are looked up.
const KEYS: usize = 1 << 20;

#[derive(clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    setting: Setting,
    /// Rounds, in each of which every contestant measures every case once
    #[arg(long, value_name = "N", default_value_t = 7)]
    rounds: usize,
    /// The core
    #[arg(long, value_name = "N", default_value_t = 0)]
    core: usize,
}

/// The times of one contestant in one case.
#[derive(Serialize)]
struct Score {
    family: &'static str,
    contestant: &'static str,
    case: &'static str,
    /// Nanoseconds an item.
    #[serde(flatten)]
    summary: Summary,
    /// The median of the rounds' ratios of this time to the least of other crates in the round.
    ratio: f64,
    bytes: usize,
    routes: usize,
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if args.rounds == 0 {
        bail!("--rounds: at least one");
    }
    let routes = args.setting.routes()?;
    pin(args.core);
    let mut scores = Vec::new();
    measure(args, "IPv4", &routes.v4, contestants_of_v4, &mut scores)?;
    measure(args, "IPv6", &routes.v6, contestants_of_v6, &mut scores)?;
    args.setting.record(scores.iter().map(|score| Figure {
        bench: "map",
        table: &routes.name,
        routes: score.routes,
        contestant: score.contestant,
        case: score.case,
        threads: 1,
        unit: "ns/item",
        summary: score.summary,
        samples: args.rounds,
        bytes: score.bytes,
    }))?;
    print(args, &routes.name, &scores)?;
    Ok(ExitCode::SUCCESS)
}

/// The routes in the three orders that the cases need, and the addresses.
struct Input<A> {
    sorted: Vec<(Prefix<A>, u32)>,
    shuffled: Vec<(Prefix<A>, u32)>,
    queries: Vec<(Prefix<A>, u32)>,
    addrs: Vec<A>,
}

fn measure<A: Family>(
    args: &Args,
    family: &'static str,
    routes: &[(Prefix<A>, Hop)],
    make: impl Fn(&Input<A>) -> Vec<Box<dyn MapContestant>>,
    scores: &mut Vec<Score>,
) -> anyhow::Result<()> {
    if routes.is_empty() {
        return Ok(());
    }
    let rib = Rib::from_sorted(routes.iter().copied());
    let sorted: Vec<_> = rib.iter().map(|(prefix, hop)| (prefix, hop.0)).collect();
    let (mut shuffled, mut queries) = (sorted.clone(), sorted.clone());
    let mut rng = fastrand::Rng::with_seed(20_261_201);
    rng.shuffle(&mut shuffled);
    rng.shuffle(&mut queries);
    let addrs = Stream::Pfx.keys::<A>(KEYS, routes);
    let right = Right {
        // The value and the length of each entry.
        entries: sorted.iter().map(|(p, value)| u64::from(p.len()) + u64::from(*value)).sum(),
        values: queries.iter().map(|(_, value)| *value).collect(),
        longest: addrs.iter().map(|addr| rib.longest(*addr).map_or(0, |(_, hop)| hop.0)).collect(),
    };
    let input = Input { sorted, shuffled, queries, addrs };
    let mut contestants = make(&input);
    // The times of each contestant, by case.
    let mut times: Vec<Vec<(&'static str, Vec<f64>)>> = vec![Vec::new(); contestants.len()];
    for contestant in &mut contestants {
        let what = format!("comparing {} with the routing table, {family}", contestant.name());
        progress::during(&what, || right.compare(&mut **contestant))?;
    }
    progress::during(&format!("measuring {family}"), || -> anyhow::Result<()> {
        for round in 0..args.rounds {
            for turn in 0..contestants.len() {
                let at = (round + turn) % contestants.len();
                for Measured { case, nanos } in contestants[at].measure()? {
                    match times[at].iter_mut().find(|(known, _)| *known == case) {
                        Some((_, samples)) => samples.push(nanos),
                        None => times[at].push((case, vec![nanos])),
                    }
                }
            }
        }
        Ok(())
    })?;
    for (contestant, cases) in contestants.iter().zip(&times) {
        for (case, samples) in cases {
            let ratios: Vec<f64> = (0..args.rounds)
                .map(|round| samples[round] / least_of_rivals(&contestants, &times, case, round))
                .collect();
            scores.push(Score {
                family,
                contestant: contestant.name(),
                case,
                summary: Summary::of(samples),
                ratio: Summary::of(&ratios).median,
                bytes: contestant.bytes(),
                routes: routes.len(),
            });
        }
    }
    Ok(())
}

/// The cases that are forms of one question.
fn question(case: &str) -> &str {
    case.split(',').next().unwrap_or(case)
}

/// Returns the least time of a crate that is not ours in one round, in any form of the case.
fn least_of_rivals(
    contestants: &[Box<dyn MapContestant>],
    times: &[Vec<(&'static str, Vec<f64>)>],
    case: &str,
    round: usize,
) -> f64 {
    let rivals = contestants.iter().zip(times).filter(|(contestant, _)| !contestant.is_ours());
    let cases = rivals.flat_map(|(_, cases)| cases);
    let forms = cases.filter(|(other, _)| question(other) == question(case));
    forms.map(|(_, samples)| samples[round]).fold(f64::INFINITY, f64::min)
}

/// The right answers.
struct Right {
    entries: u64,
    values: Vec<u32>,
    longest: Vec<u32>,
}

impl Right {
    fn compare(&self, contestant: &mut dyn MapContestant) -> anyhow::Result<()> {
        let name = contestant.name();
        let answers = contestant.answer().with_context(|| format!("filling {name}"))?;
        ensure!(answers.values == self.values, "{name}: the value of a prefix is wrong");
        ensure!(answers.entries == self.entries, "{name}: an entry is wrong or missing");
        for (form, longest) in answers.longest {
            let wrong = longest.iter().zip(&self.longest).filter(|(is, right)| is != right);
            let wrong = wrong.count() + longest.len().abs_diff(self.longest.len());
            ensure!(wrong == 0, "{name}: {wrong} wrong longest matches, {form}");
        }
        ensure!(answers.left == 0, "{name}: {} entries are left after all removals", answers.left);
        Ok(())
    }
}

/// Returns the result of `work` and its nanoseconds of CPU time for each of `items`.
fn timed<R>(items: usize, work: impl FnOnce() -> R) -> (R, f64) {
    let clock = Clock::start();
    let result = std::hint::black_box(work());
    (result, clock.seconds() * 1e9 / items as f64)
}

#[expect(clippy::print_stdout, reason = "the result")]
fn print(args: &Args, table: &str, scores: &[Score]) -> anyhow::Result<()> {
    if args.setting.output.json {
        println!("{}", serde_json::to_string_pretty(scores)?);
        return Ok(());
    }
    println!("{table}; nanoseconds an item, medians of {} rounds on one core", args.rounds);
    println!("The ratio is to the fastest other crate: the median over the rounds.");
    let mut cases: Vec<(&str, &str)> = Vec::new();
    for score in scores {
        let case = (score.family, question(score.case));
        if !cases.contains(&case) {
            cases.push(case);
        }
    }
    for (family, case) in cases {
        println!("\n{family}, {case}");
        let of_case = |score: &&Score| score.family == family && question(score.case) == case;
        for score in scores.iter().filter(of_case) {
            let Summary { median, mad, min, max } = score.summary;
            let form = score.case.strip_prefix(case).unwrap_or_default();
            let name = format!("{}{form}", score.contestant);
            println!(
                "  {name:32} {median:8.1} ±{mad:<6.1} {min:7.1} to {max:<7.1} x{:.3}",
                score.ratio
            );
        }
    }
    println!();
    let mut seen = Vec::new();
    for Score { family, contestant, bytes, routes, .. } in scores {
        if !seen.contains(&(family, contestant)) && *bytes > 0 {
            seen.push((family, contestant));
            println!("{family}, {routes} routes: {contestant} takes {bytes} bytes");
        }
    }
    Ok(())
}
