//! A gate's worker as it stands in a vantage point, between memory ports.
//!
//! ```text
//!   Flood ─► Worker::poll: parse, hash, Gate, Link, lookup, encapsulate ─► Replay, which checks
//!            and clock, rings, samples, counters                           or only counts
//! ```
//!
//! The timed part is the whole of [`Worker::poll`] with a [`GateHook`], and the copy of each packet
//! into a frame, which stands for a driver. Only the network card and the kernel are left out.
//!
//! | case | packets | expected verdicts |
//! |---|---|---|
//! | requests | each from another source; the flow table is full | all leave in the tunnel |
//! | requests, narrow link | the same | 5 % of 1 Gbit/s leave, the others find the queue full |
//! | requests, admission | the same, with the defaults of a gate | their sources are remembered; all leave |
//! | granted | of three quarters as many flows as entries, at random | all but a few that RED takes leave in the tunnel |
//!
//! Before the measurement every packet sent is decapsulated and checked; afterwards the worker's
//! counters are compared with the packets received, and the gate's with the worker's.

use std::net::Ipv4Addr;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use anyhow::{Context, ensure};
use datapath::stats::WorkerStats;
use datapath::{
    Adjacencies, Adjacency, Ingress, Ingresses, Locals, Tables, Verdict, Worker, WorkerSetup, wants,
};
use fib::{Choice, Hop, Prefix, Publisher, Rib, Updater};
use gate::cookie::{Secret, Secrets};
use gate::decision::{FlowCommand, Item, Scope};
use gate::flow::{Flow, Key};
use gate::policy::Policy;
use gate::state::{Decision, Grant, Stamp};
use gate::tunnel::TunnelKeys;
use gatekeeper::{Config, ControlRings, CounterSnapshot, GateHook, HookSetup, HookState, rings};
use output::progress;
use port::Arena;
use port::memory::{Inspect, Pool, Replay, Sink};
use serde::Serialize;
use wire::tunnel::Outer;
use wire::{ethernet, ipv4};

use super::Args;
use super::course::{PROTECTED, source};
use super::flood::{BACK, Flood, GRANTOR};
use crate::clock::{Clock, Summary, hertz};
use crate::record::Figure;

/// Packets of a part.
const PACKETS: u64 = 1 << 19;
/// Packets that are looked at before time is kept.
const LOOKED_AT: u64 = 1 << 16;
const MAC: [u8; 6] = [2, 0, 0, 0, 1, 0];
const NEXT: [u8; 6] = [2, 0, 0, 0, 9, 1];

/// A case: what comes, and how wide the protected link is.
#[derive(Clone, Copy)]
struct Case {
    name: &'static str,
    bandwidth: &'static str,
    granted: bool,
    admission: bool,
    /// All packets leave.
    all: bool,
}

const CASES: [Case; 4] = [
    Case { name: "requests", bandwidth: "400gbit", granted: false, admission: false, all: true },
    Case {
        name: "requests, narrow link",
        bandwidth: "1gbit",
        granted: false,
        admission: false,
        all: false,
    },
    Case {
        name: "requests, admission",
        bandwidth: "400gbit",
        granted: false,
        admission: true,
        all: true,
    },
    Case { name: "granted", bandwidth: "400gbit", granted: true, admission: false, all: true },
];

/// The result of one case, in million packets a second.
#[derive(Serialize)]
struct Score {
    name: &'static str,
    #[serde(flatten)]
    summary: Summary,
    /// Cycles a packet at the clock that the kernel states, if it does.
    cycles: Option<f64>,
    /// The share of packets that left.
    sent: f64,
}

/// Measures a worker as it stands in a vantage point, table by table.
#[expect(clippy::print_stdout, reason = "the result")]
pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let mut all = Vec::new();
    for &log in &args.entries {
        let words = format!("a worker, 2^{log} entries");
        let scores = progress::during(&words, || measure(1 << log, args.parts))?;
        all.push((1usize << log, scores));
    }
    if args.output.json {
        let tables: Vec<_> = all
            .iter()
            .map(|(entries, cases)| serde_json::json!({ "entries": entries, "cases": cases }))
            .collect();
        println!("{}", serde_json::to_string_pretty(&tables)?);
    } else {
        let parts = args.parts;
        println!("one worker, memory ports, million packets a second, median of {parts} parts");
        for (entries, scores) in &all {
            println!("2^{} entries, all in use", entries.ilog2());
            for Score { name, summary, cycles, sent } in scores {
                let Summary { median, mad, min, max } = summary;
                print!("  {name:<22} {median:>7.2} ±{mad:.2} ({min:.2} to {max:.2})");
                print!(", {:.1} % sent", sent * 100.0);
                println!(
                    "{}",
                    cycles.map_or(String::new(), |cycles| format!(", {cycles:.0} cycles a packet"))
                );
            }
        }
    }
    let figures = all.iter().flat_map(|&(entries, ref scores)| {
        scores.iter().map(move |score| Figure {
            bench: "gate",
            table: "flood",
            routes: entries,
            contestant: score.name,
            case: "worker",
            threads: 1,
            unit: "Mpps",
            summary: score.summary,
            samples: args.parts,
            bytes: entries * size_of::<gate::table::Entry>(),
        })
    });
    args.output.record(figures)?;
    Ok(ExitCode::SUCCESS)
}

/// Measures all cases, with a table of so many entries.
fn measure(entries: usize, parts: usize) -> anyhow::Result<Vec<Score>> {
    CASES
        .into_iter()
        .map(|case| {
            let mut bench = Bench::new(case, entries)?;
            bench.fill()?;
            let mut rates = Vec::with_capacity(parts);
            let before = bench.worker.stats().snapshot().sent();
            for _ in 0..parts {
                let clock = Clock::start();
                bench.send(PACKETS);
                rates.push(PACKETS as f64 / clock.seconds() / 1e6);
            }
            bench.rest();
            let left = bench.worker.stats().snapshot().sent() - before;
            bench.check()?;
            let sent = left as f64 / (PACKETS * parts as u64) as f64;
            let summary = Summary::of(&rates);
            let cycles = hertz().map(|hertz| hertz / (summary.median * 1e6));
            Ok(Score { name: case.name, summary, cycles, sent })
        })
        .collect()
}

/// A worker, what it is sent, and where it sends.
struct Bench {
    case: Case,
    worker: Worker<Tables>,
    /// Packets that the flood may still send.
    left: Arc<AtomicU64>,
    sent: u64,
    rings: ControlRings,
    counters: Arc<CounterSnapshot>,
    /// Packets sent with a wrong content.
    wrong: Arc<AtomicU64>,
    /// Packets that are still looked at.
    looking: Arc<AtomicU64>,
    flows: u32,
    entries: usize,
    /// Readers read while these live.
    _published: (Publisher<Policy>, Publisher<Adjacencies>, Publisher<Ingresses>),
    _tables: (Updater<u32>, Updater<u128>),
}

impl Bench {
    fn new(case: Case, entries: usize) -> anyhow::Result<Self> {
        let config = config(case, entries)?;
        let four = |text: &str, hop| anyhow::Ok((text.parse::<Prefix<u32>>()?, Hop(hop)));
        let routes = Rib::from_sorted([four("0.0.0.0/0", 1)?, four("172.16.0.0/16", 2)?]);
        let v4 = Updater::new(routes, Choice::Auto, 2)?;
        let v6 = Updater::new(Rib::<u128>::new(), Choice::Auto, 2)?;
        let mut meanings = Adjacencies::new();
        meanings.set(Hop(1), Adjacency::new(0, NEXT, MAC, 1500));
        meanings.set(Hop(2), Adjacency::new(1, NEXT, MAC, 1500));
        let adjacencies = Publisher::new(meanings);
        let locals = Arc::new(Locals::new([BACK], []));
        let ingresses = Publisher::new(Ingresses::alike(Ingress { locals, ..Ingress::default() }));
        let policy = Publisher::new(config.rules.policy(1).context("the policy")?);
        let programs = Publisher::new(config.programs.clone());
        let keys = Publisher::new(TunnelKeys::default());
        let (rings, worker_rings) = rings();
        let counters = Arc::new(CounterSnapshot::default());
        let began = Instant::now();
        let hook = GateHook::install(HookSetup {
            fixed: &config.fixed,
            workers: 1,
            from4: BACK,
            from6: 0,
            front4: None,
            front6: None,
            mtu: 1500,
            overhead: 20,
            key: Key::random(),
            seed: 7,
            secrets: Publisher::new(Secrets::new(Secret::new(|| 7))).reader(),
            policy: policy.reader(),
            keys: keys.reader(),
            stream: 0,
            programs: programs.reader(),
            rings: worker_rings,
            steering: None,
            host: None,
            counters: Arc::clone(&counters),
            restored: HookState::default(),
            save_to: None,
            clock: Box::new(move || began.elapsed().as_nanos() as u64),
        });
        let flows = if case.granted { (entries / 4 * 3).min(1 << 23) as u32 } else { 0 };
        let (flood, left) = Flood::new(MAC, case.granted.then_some(flows))?;
        let (wrong, looking) = (Arc::default(), Arc::new(AtomicU64::new(LOOKED_AT)));
        let look = look(case.granted, Arc::clone(&wrong), Arc::clone(&looking));
        let out = Replay::new("back", Pool::new(), Sink::Each(look));
        let worker = Worker::new(WorkerSetup {
            arena: Arena::new(8192, 2048).context("memory for frames")?,
            ports: vec![Box::new(flood), Box::new(out)],
            tables: Tables::single(v4.reader(), v6.reader()),
            adjacencies: adjacencies.reader(),
            ingresses: ingresses.reader(),
            wants: wants().0,
            stats: Arc::new(WorkerStats::new()),
        })
        .with_hook(hook);
        Ok(Self {
            case,
            worker,
            left,
            sent: 0,
            rings,
            counters,
            wrong,
            looking,
            flows,
            entries,
            _published: (policy, adjacencies, ingresses),
            _tables: (v4, v6),
        })
    }

    /// Fills the flow table: with requests, or with the flows that are granted. The first
    /// packets are looked at.
    fn fill(&mut self) -> anyhow::Result<()> {
        let terms = Grant {
            rate_kib: u32::MAX,
            expire_s: u32::MAX,
            next_renewal_ms: u32::MAX,
            renewal_step_ms: 1,
        };
        for number in 0..self.flows {
            let flow = Flow::v4(source(number), PROTECTED);
            let item = Item {
                scope: Scope::of(&flow),
                command: FlowCommand::Decide(Decision::Grant(terms)),
            };
            // A full ring is emptied in a turn.
            while !self.rings.decide(item, Stamp::default()) {
                self.worker.poll();
            }
        }
        self.rest();
        self.send(if self.case.granted { LOOKED_AT } else { 9 * self.entries as u64 / 8 });
        if self.case.admission {
            // Fills the filter of first packets too: four sources for each entry.
            self.send(4 * self.entries as u64);
        }
        self.rest();
        let looked_at = LOOKED_AT - self.looking.load(Ordering::Relaxed);
        ensure!(looked_at > 0, "{}: no packet has left", self.case.name);
        Ok(())
    }

    /// Has the worker receive so many packets.
    fn send(&mut self, packets: u64) {
        self.left.store(packets, Ordering::Relaxed);
        while self.left.load(Ordering::Relaxed) > 0 {
            self.worker.poll();
        }
        self.sent += packets;
    }

    /// Has the worker send what waits.
    fn rest(&mut self) {
        while self.worker.poll() > 0 || self.worker.held() > 0 {}
    }

    /// Holds all that was counted against what was sent.
    fn check(&self) -> anyhow::Result<()> {
        let Self { case, sent, wrong, .. } = self;
        let now = self.worker.stats().snapshot();
        ensure!(now.balanced(), "{}: received is not sent + dropped: {now:?}", case.name);
        ensure!(now.received == *sent, "{}: {} of {sent} received", case.name, now.received);
        let wrong = wrong.load(Ordering::Relaxed);
        ensure!(wrong == 0, "{}: {wrong} packets left as they should not", case.name);
        // A batch of packets to one destination is a long queue for RED, now and then.
        let refused = now.count(Verdict::LowPriority) + now.count(Verdict::LinkFull);
        ensure!(
            now.sent() + refused == *sent,
            "{}: other ends than sent and refused by the link: {now:?}",
            case.name
        );
        ensure!(!case.all || refused * 100 < *sent, "{}: {refused} had no place", case.name);
        let judged = self.counters.packets(if case.granted { "granted" } else { "request" });
        ensure!(judged == *sent, "{}: the gate judged {judged} of {sent} so", case.name);
        Ok(())
    }
}

/// A gate's configuration with so many entries.
fn config(case: Case, entries: usize) -> anyhow::Result<Config> {
    let enabled = case.admission;
    let text = format!(
        r#"
        [front]
        interface = "front"
        [back]
        interface = "back"
        [link]
        bandwidth = "{bandwidth}"
        [flow_table]
        entries = {entries}
        [admission]
        enabled = {enabled}
        [[grantors]]
        name = "site"
        members = [{{ address = "{grantor}" }}]
        [[policy]]
        prefix = "192.0.2.0/24"
        grantors = "site"
        "#,
        bandwidth = case.bandwidth,
        grantor = Ipv4Addr::from(GRANTOR),
    );
    Config::parse(&text, Path::new("bench.toml")).map_err(|error| anyhow::anyhow!("{error}"))
}

/// Looks at packets that leave: in a tunnel to the grantor, with the DSCP of their kind, and
/// unhurt within it.
fn look(granted: bool, wrong: Arc<AtomicU64>, looking: Arc<AtomicU64>) -> Inspect {
    Box::new(move |frame| {
        let left = looking.load(Ordering::Relaxed);
        if left == 0 {
            return;
        }
        looking.store(left - 1, Ordering::Relaxed);
        if !is_right(frame, granted) {
            wrong.fetch_add(1, Ordering::Relaxed);
        }
    })
}

fn is_right(frame: &[u8], granted: bool) -> bool {
    let packet = frame.get(ethernet::LEN..).unwrap_or_default();
    let (Ok(outside), Ok(outer)) = (ipv4::View::parse(packet), Outer::parse(packet)) else {
        return false;
    };
    let inner = packet.get(outer.offset..outer.end).unwrap_or_default();
    let Ok(inside) = ipv4::View::parse(inner) else { return false };
    let dscp = if granted { outer.dscp == 1 } else { (3..64).contains(&outer.dscp) };
    dscp && (outside.src(), outside.dst()) == (BACK, GRANTOR)
        && (inside.dst(), inside.ttl(), inner.len()) == (PROTECTED, 64, 46)
        && inside.checksum_ok()
}
