//! The paper's table 6 measured: a HAC in front of engines, on this machine.
//!
//! Table 6 is of a Pentium II. Here the structures of the library replace the paper's program:
//! words of 8 bytes, and no reserved pages. Each engine is measured bare and behind a HAC of each
//! degree, in turns, in two cases:
//!
//! * `burst`: 256 packets at a time, whose loads may overlap, as in a datapath;
//! * `chained`: each lookup waits for the answer before it, which measures the latency.
//!
//! Before the measurement, the answers of all contestants to the whole trace are compared, and the
//! first million with the routing table's own longest match. Cycles are at the clock rate that the
//! kernel reports.

use std::hint::black_box;

use anyhow::{Context, ensure};
use fib::engine::hac::{Hac, HacShape};
use fib::{Choice, Fib, Hop, Rib};
use output::progress;

use crate::clock::{Clock, Summary, hertz, pin};

/// How many packets are looked up in one call.
const BURST: usize = 256;
/// Answers that are compared with the routing table.
const PROVEN: usize = 1 << 20;

/// The options of the measurement.
#[derive(Clone, Debug, clap::Args)]
#[group(skip)]
pub(super) struct Args {
    /// Engines measured bare and behind a HAC; none skips table 6
    #[arg(long, value_name = "NAME", value_delimiter = ',', default_value = "nart,D16X4R,dir24_8")]
    engines: Vec<String>,
    /// Words of the measured HAC, 8 bytes each; the paper's 4 KiB are as many
    #[arg(long, value_name = "N", default_value_t = 1024)]
    words: usize,
    /// Passes of each contestant
    #[arg(long, value_name = "N", default_value_t = 7)]
    rounds: usize,
}

/// One contestant in one dependence.
#[derive(serde::Serialize)]
pub(super) struct Score {
    pub(super) engine: String,
    /// The degree as the paper writes it, or `no HAC`.
    pub(super) hac: String,
    pub(super) case: &'static str,
    /// Million lookups a second.
    #[serde(flatten)]
    pub(super) summary: Summary,
    /// Cycles a lookup at the stated clock, if there is one.
    pub(super) cycles: Option<f64>,
    /// Percent of lookups that the HAC answered.
    pub(super) hits: f64,
    pub(super) bytes: usize,
    #[serde(skip)]
    pub(super) samples: usize,
}

/// The degrees of the paper, and the text's 8 without the duplicate.
pub(super) const DEGREES: [(u32, bool); 5] =
    [(7, true), (8, false), (3, true), (2, false), (1, false)];

struct Contestant<'a> {
    engine: &'a Fib<u32>,
    hac: Option<Hac<u32>>,
    rates: [Vec<f64>; 2],
    /// Percent of lookups that the HAC answered in the last pass.
    hits: [f64; 2],
}

const CASES: [&str; 2] = ["burst", "chained"];

impl Contestant<'_> {
    /// Looks the whole trace up in one of the dependences.
    fn pass(&mut self, case: usize, addrs: &[u32], out: &mut [Hop]) {
        let fib = self.engine;
        match (&mut self.hac, CASES[case]) {
            (None, "chained") => fib.lookup_chained(addrs, out),
            (None, _) => {
                for (addrs, out) in addrs.chunks(BURST).zip(out.chunks_mut(BURST)) {
                    fib.lookup_batch(addrs, out);
                }
            }
            (Some(hac), "chained") => {
                let none = black_box(0);
                let mut cached = hac.before(fib.engine(), fib.generation());
                let mut before = Hop::NONE;
                for (&addr, out) in addrs.iter().zip(out) {
                    before = cached.lookup(addr ^ before.0 & none);
                    *out = before;
                }
            }
            (Some(hac), _) => {
                let mut cached = hac.before(fib.engine(), fib.generation());
                for (addrs, out) in addrs.chunks(BURST).zip(out.chunks_mut(BURST)) {
                    cached.lookup_batch(addrs, out);
                }
            }
        }
    }

    /// Returns how many lookups the HAC has answered so far.
    fn hits(&self) -> u64 {
        self.hac.as_ref().map_or(0, Hac::hits)
    }

    fn name(&self) -> String {
        self.hac.as_ref().map_or("no HAC".into(), |hac| hac.shape().to_string())
    }
}

impl Args {
    /// Reads what is to be measured; to be done before the simulation, which takes
    /// long, and not after.
    pub(super) fn engines(&self) -> anyhow::Result<Vec<Choice>> {
        ensure!(self.rounds > 0, "--rounds 0: at least one pass is needed");
        let names = self.engines.iter().filter(|name| !name.is_empty() && *name != "none");
        let parse =
            |name: &String| Choice::parse::<u32>(name).with_context(|| format!("--engines {name}"));
        names.map(parse).collect()
    }
}

/// Measures every engine behind every HAC.
pub(super) fn measure(
    args: &Args,
    engines: &[Choice],
    rib: &Rib<u32>,
    addrs: &[u32],
) -> anyhow::Result<Vec<Score>> {
    pin(0);
    let mut fibs = Vec::new();
    for &choice in engines {
        let build = Fib::build(rib, choice, 2);
        fibs.push(build.with_context(|| format!("building {}", choice.name::<u32>()))?);
    }
    let mut contestants = Vec::new();
    for engine in &fibs {
        contestants.push(Contestant { engine, hac: None, rates: [vec![], vec![]], hits: [0.0; 2] });
        for (ways, duplicate) in DEGREES {
            let shape = HacShape::new(args.words, ways, duplicate)
                .with_context(|| format!("--words {}", args.words))?;
            let hac = Some(Hac::new(shape));
            contestants.push(Contestant { engine, hac, rates: [vec![], vec![]], hits: [0.0; 2] });
        }
    }
    prove(rib, &mut contestants, addrs)?;
    let mut out = vec![Hop::NONE; addrs.len()];
    for (case, name) in CASES.iter().enumerate() {
        for round in 0..args.rounds {
            let what = format!("table 6, {name}, round {}", round + 1);
            progress::during(&what, || {
                for contestant in &mut contestants {
                    let before = contestant.hits();
                    let clock = Clock::start();
                    contestant.pass(case, addrs, &mut out);
                    contestant.rates[case].push(addrs.len() as f64 / clock.seconds() / 1e6);
                    let hits = contestant.hits() - before;
                    contestant.hits[case] = 100.0 * hits as f64 / addrs.len() as f64;
                }
            });
        }
    }
    let score = |contestant: &Contestant<'_>, case: usize| {
        let summary = Summary::of(&contestant.rates[case]);
        let bytes = contestant.hac.as_ref().map_or(0, Hac::footprint);
        Score {
            engine: contestant.engine.name(),
            hac: contestant.name(),
            case: CASES[case],
            summary,
            cycles: hertz().map(|hertz| hertz / (summary.median * 1e6)),
            hits: contestant.hits[case],
            bytes: bytes + contestant.engine.footprint(),
            samples: args.rounds,
        }
    };
    let cases = 0..CASES.len();
    Ok(cases.flat_map(|case| contestants.iter().map(move |c| score(c, case))).collect())
}

/// Holds every contestant's answers against the routing table and each other, in
/// both dependences.
fn prove(rib: &Rib<u32>, contestants: &mut [Contestant<'_>], addrs: &[u32]) -> anyhow::Result<()> {
    let longest = |addr: &u32| rib.longest(*addr).map_or(Hop::NONE, |(_, hop)| hop);
    let proven: Vec<Hop> =
        progress::during("checking the trace", || addrs.iter().take(PROVEN).map(longest).collect());
    let mut agreed = Vec::new();
    let mut out = vec![Hop::NONE; addrs.len()];
    for contestant in contestants {
        for (case, how) in CASES.iter().enumerate() {
            out.fill(Hop(u32::MAX));
            contestant.pass(case, addrs, &mut out);
            let name = format!("{}, {}, {how}", contestant.engine.name(), contestant.name());
            ensure!(out.starts_with(&proven), "{name}: not the longest match");
            if agreed.is_empty() {
                agreed.clone_from(&out);
            }
            ensure!(agreed == out, "{name}: another answer than the first contestant's");
        }
    }
    Ok(())
}
