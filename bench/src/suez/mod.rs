//! `fingerpost-bench suez`: the paper of the host address cache, simulated and measured.
//!
//! Tzi-cker Chiueh, Prashant Pradhan, "High-Performance IP Routing Table Lookup
//! Using CPU Caching", IEEE INFOCOM 1999, sections 4 to 6.
//!
//! ```text
//!   routes ─ thinned ─► nart ┐
//!   capture, or generated ─► trace ─► simulate.rs: Hac + nart over cache.rs ─► tables 1 to 5
//!                              └────► measured.rs: Hac + engines, for real  ─► table 6
//!                                                      paper.rs beside them ─► claims.rs
//! ```
//!
//! The paper's routing tables had 40,000 to 170,000 routes, today's 25 times as
//! many, and the result depends on whether the NART fits L2. The table is therefore
//! thinned, by whole blocks of 16 bits, to about as many routes as the paper's own
//! router had; `--routes 0` uses the whole table.
//!
//! The exit status is 1 if a claim of the paper about its simulation does not hold.

use std::process::ExitCode;

use anyhow::{Context, ensure};
use fib::{Choice, Fib, Hop, Prefix, Rib};
use output::progress;
use serde::Serialize;

use super::clock::Summary;
use super::record::Figure;
use super::{Routes, Setting};

mod cache;
mod claims;
mod machine;
mod measured;
mod paper;
mod simulate;
mod tables;
mod trace;

use claims::Claim;
use measured::Score;
use tables::{Simulated, Static};

#[derive(clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    setting: Setting,
    /// Routes that the table is thinned to, about, by whole blocks of 16 bits; the
    /// paper's router had 50,523; 0 keeps all
    #[arg(long, value_name = "N", default_value_t = 50_523)]
    routes: usize,
    #[command(flatten)]
    trace: trace::Args,
    #[command(flatten)]
    machine: machine::Machine,
    #[command(flatten)]
    measured: measured::Args,
}

#[derive(Serialize)]
struct Outcome<'a> {
    trace: &'a str,
    packets: usize,
    /// Window in packets, mean of different addresses.
    working_sets: &'a [(usize, f64)],
    machine: &'a machine::Machine,
    simulated: &'a Simulated,
    table6: &'a [Score],
    claims: &'a [Claim],
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let engines = args.measured.engines()?;
    let Routes { name, v4, .. } = args.setting.routes_of(&[ROUTER])?;
    ensure!(!v4.is_empty(), "{name} has no route of IPv4");
    let thin = thin(&v4, args.routes);
    let rib = Rib::from_sorted(thin.iter().copied());
    let build = |rib: &Rib<u32>| Fib::build(rib, Choice::Nart, 1).context("building the NART");
    let nart = build(&rib)?;
    let thinned = format!("{name}, thinned");
    let mut table1 = vec![Static::of(thinned, &thin, nart.engine())];
    if thin.len() < v4.len() {
        let whole = build(&Rib::from_sorted(v4.iter().copied()))?;
        table1.insert(0, Static::of(name.clone(), &v4, whole.engine()));
    }
    let trace = progress::during("drawing packets", || args.trace.load(&thin, nart.engine()))?;
    let working_sets = trace::working_sets(&trace.addrs);
    let simulated = tables::run(&args.machine, table1, nart.engine(), &trace)?;
    let table6 = measured::measure(&args.measured, &engines, &rib, &trace.addrs)?;
    let mut claims = claims::simulated(&simulated);
    claims.extend(claims::measured(&table6));
    record(args, &name, thin.len(), &trace.name, &simulated, &table6)?;
    let outcome = Outcome {
        trace: &trace.about,
        packets: trace.addrs.len(),
        working_sets: &working_sets,
        machine: &args.machine,
        simulated: &simulated,
        table6: &table6,
        claims: &claims,
    };
    print(args, &outcome)?;
    let reproduced = claims.iter().all(|claim| claim.measured || claim.holds);
    Ok(if reproduced { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The table nearest in time and kind to the paper's: one router's own.
const ROUTER: &str = "ipv4-20151023-pch-nexthop.txt.gz";

/// Keeps whole blocks of 16 bits, and of the shorter routes as large a share, until
/// about `count` routes are left. Which blocks stay, a hash says.
fn thin(routes: &[(Prefix<u32>, Hop)], count: usize) -> Vec<(Prefix<u32>, Hop)> {
    if count == 0 || count >= routes.len() {
        return routes.to_vec();
    }
    let share = count as f64 / routes.len() as f64;
    let is_selected = |prefix: Prefix<u32>| {
        let block = u64::from(prefix.addr() >> 16) << 8 | u64::from(prefix.len().min(17));
        let hash = block.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
        let hash = hash.wrapping_mul(0xd134_2543_de82_ef95) >> 11;
        (hash as f64) < share * (1u64 << 53) as f64
    };
    routes.iter().copied().filter(|(prefix, _)| is_selected(*prefix)).collect()
}

/// Records the speeds of the model and of this machine.
fn record(
    args: &Args,
    table: &str,
    routes: usize,
    trace: &str,
    simulated: &Simulated,
    table6: &[Score],
) -> anyhow::Result<()> {
    let model = args.machine.name();
    let degrees = simulated
        .table2
        .iter()
        .map(|row| (format!("{model}: table 2: {}", row.name), row.mlps, args.machine.hac));
    let duplicates = simulated.table3.iter().zip(["7 (8)", "7 without the duplicate"]);
    let duplicates = duplicates
        .map(|(row, name)| (format!("{model}: table 3: {name}"), row.mlps, args.machine.hac));
    let sizes = simulated
        .table4
        .iter()
        .map(|row| (format!("{model}: table 4: {} bytes", row.bytes), row.mlps, row.bytes));
    let modeled: Vec<_> = degrees.chain(duplicates).chain(sizes).collect();
    let real: Vec<_> =
        table6.iter().map(|score| format!("{} behind {}", score.engine, score.hac)).collect();
    let cases: Vec<_> = table6.iter().map(|score| format!("{}: {trace}", score.case)).collect();
    let figure = |contestant, case, unit, summary, samples, bytes| Figure {
        bench: "suez",
        table,
        routes,
        contestant,
        case,
        threads: 1,
        unit,
        summary,
        samples,
        bytes,
    };
    let modeled = modeled.iter().map(|(name, mlps, bytes)| {
        let summary = Summary::of(&[*mlps]);
        figure(name, trace, "Mlookups/s of the model", summary, 1, *bytes as usize)
    });
    let real = table6.iter().zip(real.iter().zip(&cases)).map(|(score, (name, case))| {
        figure(name, case, "Mlookups/s", score.summary, score.samples, score.bytes)
    });
    args.setting.record(modeled.chain(real))
}

#[expect(clippy::print_stdout, reason = "the result")]
fn print(args: &Args, outcome: &Outcome<'_>) -> anyhow::Result<()> {
    if args.setting.output.json {
        println!("{}", serde_json::to_string_pretty(outcome)?);
        return Ok(());
    }
    println!("Chiueh, Pradhan, INFOCOM 1999: the paper's figures beside ours.");
    println!("The trace: {}.", outcome.trace);
    let sets: Vec<String> =
        outcome.working_sets.iter().map(|(size, mean)| format!("{size}: {mean:.1}")).collect();
    println!("Different addresses in so many packets: {}.", sets.join(", "));
    outcome.simulated.print();
    if !outcome.table6.is_empty() {
        println!("\nTable 6: measured on this machine, million lookups a second");
        println!("  the paper, NART on a Pentium II of 233 MHz: {}", paper_6());
        let mut last = None;
        for Score { engine, hac, case, summary, cycles, hits, .. } in outcome.table6 {
            if last != Some((engine, case)) {
                println!("  {engine}, {case}");
                last = Some((engine, case));
            }
            let cycles = cycles.map_or(String::new(), |cycles| format!("{cycles:7.1} cycles"));
            let Summary { median, mad, .. } = summary;
            println!("    {hac:8} {median:8.1} ±{mad:<6.1} {cycles}   {hits:6.2} % hits");
        }
    }
    println!("\nThe paper's claims");
    for Claim { table, says, ours, holds, measured } in outcome.claims {
        let verdict = if *holds { "holds" } else { "DOES NOT HOLD" };
        let verdict = if *measured { format!("here {verdict}") } else { verdict.to_owned() };
        println!("  table {table}: {says}: {verdict} ({ours})");
    }
    let simulated = outcome.claims.iter().filter(|claim| !claim.measured);
    let (all, right) = (simulated.clone().count(), simulated.filter(|claim| claim.holds).count());
    println!("The simulation's ordering: {right} of the paper's {all} claims are reproduced.");
    Ok(())
}

fn paper_6() -> String {
    let each = paper::TABLE_6.iter().map(|(name, mlps)| format!("{name} {mlps}"));
    each.collect::<Vec<_>>().join(", ")
}
