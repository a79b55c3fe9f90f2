//! One measurement after the other over the demonstration's network.
//!
//! A round sends for some seconds with one router in the middle, ours or the
//! kernel's, waits until everything has arrived, and reads all counters. With
//! `--compare-kernel` rounds alternate, so that whatever else the machine does
//! meets both; the medians are compared.
//!
//! The rate of a round is taken after a start, between two readings of the sinks'
//! counters; the sums are over the whole round, to the last packet.
//!
//! The generator offers somewhat more than arrives, whatever arrives: flooded with
//! ten times what it can do, a router spends its time fighting the generator for
//! the link's ring, and a comparison would measure that. It begins with all it has and is then paced by what the sinks
//! have just seen.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use port::af_xdp::bpf::{Link, Map, Mode};

use super::check::{self, Checker, Findings};
use super::forwarder::{Forwarder, Tables};
use super::kernel::{self, KernelRouter};
use super::network::{EXITS, INGRESS, Network, SOURCE};
use super::packets::Packets;
use super::placement::{self, Placement, Urgency};
use super::report::{Report, Round, Router};
use super::routes::Routes;
use super::traffic::{Generator, Traffic};

/// Rounds of each router when they are compared.
const TURNS: u32 = 3;
/// What a round is given to come up to speed and to find its pace.
const START: Duration = Duration::from_millis(1500);
/// How often the generator's pace is set anew.
const PACE: Duration = Duration::from_millis(200);
/// How much more is offered than has arrived.
const SURPLUS: f64 = 1.25;
/// How often the clock and the counters are looked at.
const TICK: Duration = Duration::from_millis(50);
/// How long a packet may be under way.
const SILENCE: Duration = Duration::from_millis(100);
/// Frames the generator sends at a time.
const BATCH: u32 = 64;

/// The network with generator and checkers, waiting for a router.
struct Course {
    network: Network,
    placement: Placement,
    generator: Arc<Generator>,
    counts: Vec<Map>,
    /// The checkers on the sinks' interfaces.
    _links: Vec<Link>,
}

/// Runs all rounds and adds them to `report`; `stop` ends them early.
pub(super) fn run(
    compare: bool,
    routes: &Arc<Routes>,
    tables: &Tables,
    packets: &Packets,
    time: Duration,
    stop: &Arc<AtomicBool>,
    report: &mut Report,
) -> Result<()> {
    let course = Course::build(packets)?;
    if !course.placement.is_apart() {
        eprintln!("fingerpost: one CPU for router, generator and sinks: expect a low rate");
    }
    if stop.load(Ordering::Relaxed) {
        return Ok(());
    }
    if !compare {
        report.rounds.push(course.ours(tables, time, stop)?);
        return Ok(());
    }
    report.kernel_routes = Some(kernel::load(&course.network.router, routes, stop)?);
    for _ in 0..TURNS {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        report.rounds.push(course.ours(tables, time / TURNS, stop)?);
        if stop.load(Ordering::Relaxed) {
            break;
        }
        report.rounds.push(course.kernels(time / TURNS, stop)?);
    }
    Ok(())
}

impl Course {
    fn build(packets: &Packets) -> Result<Self> {
        let network = Network::build()?;
        let placement = Placement::choose()?;
        let source = network.source.index(SOURCE)?;
        let generator = Arc::new(Generator::new(packets, source)?);
        let (mut counts, mut links) = (Vec::new(), Vec::new());
        for (number, exit) in (0..).zip(&EXITS) {
            let map = check::counters()?;
            let checker = Checker { sink: number, dst_mac: exit.dst_mac, src_mac: exit.src_mac };
            let program = checker.program(&map)?;
            let index = network.sinks.index(exit.sink)?;
            let attach = move || Ok(Link::attach(&program, index, Mode::Native)?);
            let link =
                network.sinks.run(attach).with_context(|| format!("checker of {}", exit.sink))?;
            placement::thread_napi(&network.sinks, exit.sink, placement.sinks, Urgency::RealTime)?;
            counts.push(map);
            links.push(link);
        }
        Ok(Self { network, placement, generator, counts, _links: links })
    }

    /// One round with our router.
    fn ours(&self, tables: &Tables, time: Duration, stop: &AtomicBool) -> Result<Round> {
        let before = self.readings()?;
        let forwarder = Forwarder::start(&self.network.router, tables, self.placement)?;
        // It receives by softirq on the generator's CPU; it may have been a
        // thread in a round of the kernel's.
        placement::unthread_napi(&self.network.router, INGRESS)?;
        let mut round = self.send(Router::Fingerpost, time, stop, || forwarder.is_running())?;
        let (snapshot, ports) = forwarder.stop()?;
        self.settle(&before, &mut round)?;
        round.count(snapshot, &ports);
        Ok(round)
    }

    /// One round with the kernel's.
    fn kernels(&self, time: Duration, stop: &AtomicBool) -> Result<Round> {
        let before = self.readings()?;
        let router = KernelRouter::start(&self.network.router, self.placement)?;
        let mut round = self.send(Router::Kernel, time, stop, || true)?;
        self.settle(&before, &mut round)?;
        drop(router);
        Ok(round)
    }

    /// Sends for `time`; returns a round that knows its rates and shares.
    fn send(
        &self,
        router: Router,
        time: Duration,
        stop: &AtomicBool,
        is_running: impl Fn() -> bool,
    ) -> Result<Round> {
        let start = Instant::now();
        let (cpu, source) = (self.placement.generator, &self.network.source);
        let traffic = Traffic::start(&self.generator, source, cpu, BATCH)?;
        let mut progress = Progress::new(router.name());
        let mut first = None;
        let mut paced = (start, self.findings()?);
        let mut round = Round::new(router);
        while start.elapsed() < time && !stop.load(Ordering::Relaxed) {
            if !traffic.is_running() || !is_running() {
                break;
            }
            thread::sleep(TICK.min(time));
            let now = (Instant::now(), self.findings()?, placement::ticks()?);
            progress.show(&now.1);
            let since = (now.0 - paced.0).as_secs_f64();
            if since >= PACE.as_secs_f64() {
                let arrived = now.1.since(paced.1).right() as f64 / since;
                // Where hardly anything arrives there is nothing to go by.
                let offer = (arrived > 10_000.0).then_some(arrived * SURPLUS);
                self.generator.offer(offer)?;
                paced = (now.0, now.1);
            }
            match &first {
                None if start.elapsed() >= START.min(time / 4) => first = Some(now),
                Some((when, findings, ticks)) => {
                    let seconds = (now.0 - *when).as_secs_f64();
                    round.packets_per_second = now.1.since(*findings).right() as f64 / seconds;
                    round.cpus = placement::shares(ticks, &now.2);
                }
                None => {}
            }
        }
        traffic.stop()?;
        round.seconds = start.elapsed().as_secs_f64();
        Ok(round)
    }

    /// Waits until nothing arrives any more, and reads the sums of the round.
    fn settle(&self, before: &Readings, round: &mut Round) -> Result<()> {
        let mut last = (Instant::now(), self.findings()?);
        while last.0.elapsed() < SILENCE {
            thread::sleep(TICK / 5);
            let now = self.findings()?;
            if now != last.1 {
                last = (Instant::now(), now);
            }
        }
        let after = self.readings()?;
        round.findings = after.findings.since(before.findings);
        round.offered = after.sent - before.sent;
        round.refused_by_link = after.refused - before.refused;
        round.lost_after = after.lost - before.lost;
        if round.findings.right() == 0 && round.offered > 0 {
            bail!("not one of {} packets arrived", round.offered);
        }
        Ok(())
    }

    fn findings(&self) -> Result<Findings> {
        self.counts
            .iter()
            .try_fold(Findings::default(), |sum, counts| Ok(sum.plus(check::read(counts)?)))
    }

    fn readings(&self) -> Result<Readings> {
        let mut lost = 0;
        for exit in &EXITS {
            lost += self.network.router.counter(exit.egress, "tx_dropped")?;
        }
        Ok(Readings {
            findings: self.findings()?,
            sent: self.generator.sent()?,
            refused: self.network.source.counter(SOURCE, "tx_dropped")?,
            lost,
        })
    }
}

/// Counters at one moment.
struct Readings {
    findings: Findings,
    sent: u64,
    /// What the link to the router had no room for.
    refused: u64,
    /// What the links to the sinks had no room for.
    lost: u64,
}

/// A line a second on standard error.
pub(super) struct Progress {
    what: &'static str,
    start: Instant,
    said: Instant,
    findings: Option<Findings>,
}

impl Progress {
    /// Starts the clock.
    pub(super) fn new(what: &'static str) -> Self {
        let start = Instant::now();
        Self { what, start, said: start, findings: None }
    }

    /// Says how it goes, if a second has passed.
    pub(super) fn show(&mut self, now: &Findings) {
        let passed = self.said.elapsed();
        let Some(before) = self.findings else {
            self.findings = Some(*now);
            return;
        };
        if passed < Duration::from_secs(1) {
            return;
        }
        let new = now.since(before);
        eprintln!(
            "  {}: {:.0} s, {:.3} million packets a second, {} wrong",
            self.what,
            self.start.elapsed().as_secs_f64(),
            new.right() as f64 / passed.as_secs_f64() / 1e6,
            new.wrong()
        );
        self.said = Instant::now();
        self.findings = Some(*now);
    }
}
