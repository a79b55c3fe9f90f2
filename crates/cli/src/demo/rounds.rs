//! The rounds: one measurement after the other on the demonstration's network.
//!
//! A round sends for some seconds with one router in the middle, ours or the kernel's, waits until all
//! packets have arrived, and reads all counters. With `--compare-kernel` the rounds alternate, so that
//! other load of the machine affects both routers; the report compares the medians.
//!
//! The rate of a round is measured after a start-up time, between two readings of the sinks' counters;
//! the balances cover the whole round, to the last packet.
//!
//! The generator offers somewhat more than arrives. At ten times its capacity a router would compete
//! with the generator for the ring of the link, and a comparison would measure that. The generator
//! starts at its full rate and then follows the rate of the sinks.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use port::af_xdp::bpf::{Link, Map, Mode};

use super::check::{self, Checker, Findings};
use super::driver::DriverTables;
use super::forwarder::{Forwarder, Tables};
use super::kernel::{self, KernelRouter};
use super::network::{EXITS, INGRESS, Network, SOURCE};
use super::packets::Packets;
use super::placement::{self, Placement, Urgency};
use super::report::{Report, Round, Router};
use super::routes::Routes;
use super::traffic::{Generator, Traffic};

/// Rounds of each router in a comparison.
const TURNS: u32 = 3;
/// The start-up time of a round.
const START: Duration = Duration::from_millis(1500);
/// The interval at which the rate of the generator is set.
const PACE: Duration = Duration::from_millis(200);
/// The ratio of the offered rate to the rate of arrival.
const SURPLUS: f64 = 1.25;
/// The interval between two readings of clock and counters.
const TICK: Duration = Duration::from_millis(50);
/// All packets have arrived after this time without one.
const SILENCE: Duration = Duration::from_millis(100);
/// Frames per batch of the generator.
const BATCH: u32 = 64;

/// The network with generator and checkers, without a router.
struct TestBed {
    network: Network,
    placement: Placement,
    generator: Arc<Generator>,
    counts: Vec<Map>,
    /// The checkers on the sinks' interfaces.
    _links: Vec<Link>,
}

/// Runs all rounds and adds them to `report`; returns early at `stop`.
pub(super) fn run(
    compare: bool,
    routes: &Arc<Routes>,
    (tables, driver): (&Tables, Option<&DriverTables>),
    packets: &Packets,
    time: Duration,
    stop: &Arc<AtomicBool>,
    report: &mut Report,
) -> Result<()> {
    let test_bed = TestBed::build(packets)?;
    if !test_bed.placement.router_is_alone() {
        eprintln!("fingerpost: one CPU for router, generator and sinks: expect a low rate");
    }
    if stop.load(Ordering::Relaxed) {
        return Ok(());
    }
    if !compare {
        report.rounds.push(test_bed.run_fingerpost(tables, driver, time, stop)?);
        return Ok(());
    }
    report.kernel_routes = Some(kernel::load(&test_bed.network.router, routes, stop)?);
    for _ in 0..TURNS {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        report.rounds.push(test_bed.run_fingerpost(tables, None, time / TURNS, stop)?);
        if stop.load(Ordering::Relaxed) {
            break;
        }
        if driver.is_some() {
            report.rounds.push(test_bed.run_fingerpost(tables, driver, time / TURNS, stop)?);
        }
        if stop.load(Ordering::Relaxed) {
            break;
        }
        report.rounds.push(test_bed.run_kernel(time / TURNS, stop)?);
    }
    Ok(())
}

impl TestBed {
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

    /// Runs one round with our router, in the driver if there are tables for that.
    fn run_fingerpost(
        &self,
        tables: &Tables,
        driver: Option<&DriverTables>,
        time: Duration,
        stop: &AtomicBool,
    ) -> Result<Round> {
        let (before, router) = (self.readings()?, &self.network.router);
        let forwarder = Forwarder::start(router, tables, driver, self.placement)?;
        let router_kind = if driver.is_some() {
            // The driver forwards in the NAPI, on the CPU of the router.
            let (cpu, urgency) = (self.placement.router, self.placement.router_urgency());
            placement::thread_napi(router, INGRESS, cpu, urgency)?;
            Router::Driver
        } else {
            // Our router receives by softirq on the generator's CPU; another round has made the
            // NAPI a thread.
            placement::unthread_napi(router, INGRESS)?;
            Router::Fingerpost
        };
        let mut round = self.send(router_kind, time, stop, || forwarder.is_running())?;
        let (snapshot, ports) = forwarder.stop()?;
        self.finish(&before, &mut round)?;
        round.count(snapshot, &ports);
        if driver.is_some() {
            round.mode = "XDP, AF_XDP copy";
        }
        Ok(round)
    }

    /// Runs one round with the kernel.
    fn run_kernel(&self, time: Duration, stop: &AtomicBool) -> Result<Round> {
        let before = self.readings()?;
        let router = KernelRouter::start(&self.network.router, self.placement)?;
        let mut round = self.send(Router::Kernel, time, stop, || true)?;
        self.finish(&before, &mut round)?;
        drop(router);
        Ok(round)
    }

    /// Sends for `time`; returns a round with its rates and CPU shares.
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
                // A very low rate is no basis for the offer.
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

    /// Waits until no packet arrives any more, and reads the counters of the round.
    fn finish(&self, before: &Readings, round: &mut Round) -> Result<()> {
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
            bail!("none of {} packets arrived", round.offered);
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
    /// Packets that the full link to the router dropped.
    refused: u64,
    /// Packets that the full links to the sinks dropped.
    lost: u64,
}

/// Prints a line per second on standard error.
pub(super) struct Progress {
    name: &'static str,
    start: Instant,
    reported: Instant,
    findings: Option<Findings>,
}

impl Progress {
    /// Returns a progress line with this name.
    pub(super) fn new(name: &'static str) -> Self {
        let start = Instant::now();
        Self { name, start, reported: start, findings: None }
    }

    /// Prints the rate if a second has passed.
    pub(super) fn show(&mut self, now: &Findings) {
        let passed = self.reported.elapsed();
        let Some(before) = self.findings else {
            self.findings = Some(*now);
            return;
        };
        if passed < Duration::from_secs(1) {
            return;
        }
        let new = now.since(before);
        eprintln!(
            "  {}: {:.0} s, {:.3} million packets per second, {} wrong",
            self.name,
            self.start.elapsed().as_secs_f64(),
            new.right() as f64 / passed.as_secs_f64() / 1e6,
            new.wrong()
        );
        self.reported = Instant::now();
        self.findings = Some(*now);
    }
}
