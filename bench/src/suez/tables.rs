//! Tables 1 to 5: the paper's and ours, and their printed comparison.

use fib::engine::Engine;
use fib::{Hop, Prefix};
use output::progress;
use serde::Serialize;

use super::machine::Machine;
use super::paper;
use super::simulate::{Outcome, ROW, block_hits, nart_bytes, shape, simulate};
use super::trace::{Trace, class_of};

/// Ours of the paper's table 1, one row.
#[derive(Serialize)]
pub(super) struct Static {
    pub(super) source: String,
    pub(super) routes: usize,
    pub(super) classes: [f64; 3],
    pub(super) bytes: u64,
    pub(super) efficiency: f64,
}

impl Static {
    /// Describes a routing table by its routes and its NART.
    pub(super) fn of(
        source: String,
        routes: &[(Prefix<u32>, Hop)],
        nart: &dyn Engine<u32>,
    ) -> Self {
        let mut counts = [0usize; 3];
        routes.iter().for_each(|(prefix, _)| counts[class_of(*prefix)] += 1);
        let bytes = nart_bytes(nart);
        Self {
            source,
            routes: routes.len(),
            classes: counts.map(|count| 100.0 * count as f64 / routes.len() as f64),
            bytes,
            // A flat route is a row: 4 bytes each for address and mask, 1 for the port.
            efficiency: 100.0 * (routes.len() as u64 * ROW) as f64 / bytes as f64,
        }
    }
}

/// A row of table 2.
#[derive(Serialize)]
pub(super) struct Degree {
    pub(super) ways: u32,
    pub(super) name: String,
    pub(super) mlps: f64,
    pub(super) hits: f64,
    outcome: Outcome,
}

/// A row of table 3.
#[derive(Serialize)]
pub(super) struct Duplicate {
    duplicate: bool,
    /// Percent of hits by word.
    pub(super) words: [f64; 8],
    pub(super) hit_time: f64,
    pub(super) mlps: f64,
}

/// A row of table 4.
#[derive(Serialize)]
pub(super) struct Size {
    pub(super) bytes: u64,
    pub(super) mlps: f64,
    pub(super) hits: f64,
    outcome: Outcome,
}

/// A column of table 5.
#[derive(Serialize)]
pub(super) struct Blocks {
    pub(super) bytes: u64,
    pub(super) hits: f64,
}

/// Tables 1 to 5 of the simulation.
#[derive(Serialize)]
pub(super) struct Simulated {
    pub(super) table1: Vec<Static>,
    /// Percent of packets by class.
    table1_trace: [f64; 3],
    pub(super) table2: Vec<Degree>,
    pub(super) table3: [Duplicate; 2],
    pub(super) table4: Vec<Size>,
    pub(super) table5: Vec<Blocks>,
}

/// Simulates all that the tables need.
pub(super) fn run(
    machine: &Machine,
    table1: Vec<Static>,
    nart: &dyn Engine<u32>,
    trace: &Trace,
) -> anyhow::Result<Simulated> {
    let go = |what: String, shape| {
        progress::during(&format!("simulating {what}"), || {
            simulate(machine, shape, nart, &trace.addrs)
        })
    };
    let mut table2 = Vec::new();
    for (ways, duplicate, _) in paper::TABLE_2 {
        let shape = shape(machine.hac, ways, duplicate)?;
        let outcome = go(format!("degree {shape}"), Some(shape))?;
        table2.push(Degree {
            ways,
            name: shape.to_string(),
            mlps: machine.mlps(outcome.cycles()),
            hits: outcome.hit_ratio(),
            outcome,
        });
    }
    let duplicate = |duplicate: bool| -> anyhow::Result<Duplicate> {
        let shape = shape(machine.hac, 7, duplicate)?;
        let outcome = go(format!("degree 7, duplicate {duplicate}"), Some(shape))?;
        Ok(Duplicate {
            duplicate,
            words: outcome.by_word(),
            hit_time: outcome.hit_time(),
            mlps: machine.mlps(outcome.cycles()),
        })
    };
    let table3 = [duplicate(true)?, duplicate(false)?];
    let mut table4 = Vec::new();
    for bytes in [machine.hac_large, machine.hac, 0] {
        let shape = (bytes > 0).then(|| shape(bytes, 7, true)).transpose()?;
        let outcome = go(format!("a HAC of {bytes} bytes"), shape)?;
        table4.push(Size {
            bytes,
            mlps: machine.mlps(outcome.cycles()),
            hits: outcome.hit_ratio(),
            outcome,
        });
    }
    let mut table5 = Vec::new();
    for (block, _) in paper::TABLE_5 {
        let hits = block_hits(machine.hac, block, &trace.addrs)?;
        table5.push(Blocks { bytes: block, hits });
    }
    // Without a HAC every packet was looked up in the NART.
    let bare = table4.last().map_or([0; 3], |size| size.outcome.classes);
    let table1_trace = bare.map(|count| 100.0 * count as f64 / trace.addrs.len() as f64);
    Ok(Simulated { table1, table1_trace, table2, table3, table4, table5 })
}

impl Simulated {
    /// Prints the tables, the paper's figures beside ours.
    #[expect(clippy::print_stdout, reason = "the result")]
    pub(super) fn print(&self) {
        println!("\nTable 1: routes by class, and the bytes of the NART in the paper's sizes");
        println!(
            "  {:34} {:>9} {:>6} {:>6} {:>6} {:>10} {:>7}",
            "", "routes", "AB", "BC", "CD", "bytes", "eff."
        );
        let row =
            |source: &str, routes: String, [ab, bc, cd]: [f64; 3], bytes: String, eff: String| {
                println!(
                    "  {source:34} {routes:>9} {ab:5.1}% {bc:5.1}% {cd:5.2}% {bytes:>10} {eff:>7}"
                );
            };
        for p in &paper::TABLE_1 {
            let eff = format!("{:.1}%", p.efficiency);
            let source = format!("paper: {}", p.source);
            row(&source, p.routes.to_string(), p.classes, p.bytes.to_string(), eff);
        }
        row("paper: trace", "X".into(), paper::TABLE_1_TRACE, "X".into(), "X".into());
        for o in &self.table1 {
            let eff = format!("{:.1}%", o.efficiency);
            row(&o.source, o.routes.to_string(), o.classes, o.bytes.to_string(), eff);
        }
        row("trace", "X".into(), self.table1_trace, "X".into(), "X".into());

        println!("\nTable 2: degrees of associativity at equal size");
        println!(
            "  {:12} {:>8} {:>8}   {:>8} {:>8}   {:>11} {:>11}",
            "", "MLPS", "paper", "hits", "paper", "cycles/hit", "cycles/NART"
        );
        for (o, (.., p)) in self.table2.iter().zip(&paper::TABLE_2) {
            println!(
                "  {:12} {:8.2} {:8.2}   {:7.2}% {:7.2}%   {:11.2} {:11.2}",
                o.name,
                o.mlps,
                p.mlps,
                o.hits,
                p.hits,
                o.outcome.hit_time(),
                o.outcome.nart_time()
            );
        }

        println!("\nTable 3: hits by word of a set of degree 7, with and without the duplicate");
        for (o, (duplicate, words, hit_time, mlps)) in self.table3.iter().zip(&paper::TABLE_3) {
            let name = if *duplicate { "duplicate" } else { "none" };
            let list = |words: &[f64]| {
                words.iter().map(|word| format!("{word:6.2}%")).collect::<Vec<_>>().join("")
            };
            let (hit, speed) = (o.hit_time, o.mlps);
            println!(
                "  {name:10}       {:56} {hit:6.2} cycles {speed:6.2} MLPS",
                list(&o.words[..words.len()])
            );
            println!("  {:10} paper {:56} {hit_time:6.2} cycles {mlps:6.2} MLPS", "", list(words));
        }

        println!("\nTable 4: sizes of the HAC, degree 7");
        println!(
            "  {:12} {:>8} {:>8}   {:>8} {:>8}   {:>11}   NART loads in L1, L2, memory",
            "", "MLPS", "paper", "hits", "paper", "cycles/NART"
        );
        for (o, (_, p)) in self.table4.iter().zip(&paper::TABLE_4) {
            let bytes = format!("{} bytes", o.bytes);
            println!(
                "  {bytes:12} {:8.2} {:8.2}   {:7.2}% {:7.2}%   {:11.2}   {:?}",
                o.mlps,
                p.mlps,
                o.hits,
                p.hits,
                o.outcome.nart_time(),
                o.outcome.loads
            );
        }
        let [seven, one, none] = paper::implied_nart();
        println!(
            "  By the paper's own figures a NART lookup took {seven:.1} cycles at degree 7, \
             {one:.1} at degree 1, {none:.1} without a HAC."
        );

        println!("\nTable 5: hits of a direct-mapped cache by the bytes of its blocks");
        for (o, (_, p)) in self.table5.iter().zip(&paper::TABLE_5) {
            println!("  {:2} bytes {:7.2}% paper {p:7.2}%", o.bytes, o.hits);
        }
    }
}
