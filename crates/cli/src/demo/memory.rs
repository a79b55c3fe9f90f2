//! The demonstration without root: memory ports instead of interfaces.
//!
//! One thread sends a batch, polls the worker, and checks its output with the Rust version of the
//! checkers, so no packet is lost and each count is exact:
//!
//! ```text
//!   packets ─► feeder ═ in ─ Worker ─ out-a ═ sink-a ─► Checker::check
//!                                   ─ out-b ═ sink-b ─►
//! ```
//!
//! The rate is that of all parts together on one core, with the copies into and out of the
//! memory ports; `fingerpost-bench datapath` measures the worker alone.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use datapath::stats::WorkerStats;
use port::{Arena, Frame, MemoryPort, Port};

use super::check::{Checker, Findings};
use super::forwarder::{self, Tables};
use super::network::{EXITS, INGRESS, INGRESS_MAC, SOURCE};
use super::packets::Packets;
use super::report::{Report, Round};

/// Packets per poll of the worker.
const BATCH: usize = 256;
/// Slots of a pair of ports: enough for a whole batch that leaves by one.
const SLOTS: usize = 2 * BATCH;
/// Frames of the worker.
const FRAMES: u32 = 2048;

/// Sends for `time` or until `stop`, and adds the round to `report`.
pub(super) fn run(
    tables: &Tables,
    packets: &Packets,
    time: Duration,
    stop: &AtomicBool,
    report: &mut Report,
) -> Result<()> {
    let (mut feeder, ingress) = MemoryPort::pair_with(SOURCE, INGRESS, SLOTS);
    let mut ports: Vec<Box<dyn Port>> = vec![Box::new(ingress.with_mac(INGRESS_MAC))];
    let mut sinks = Vec::new();
    for (number, exit) in (0..).zip(&EXITS) {
        let (port, sink) = MemoryPort::pair_with(exit.egress, exit.sink, SLOTS);
        ports.push(Box::new(port.with_mac(exit.src_mac)));
        let checker = Checker { sink: number, dst_mac: exit.dst_mac, src_mac: exit.src_mac };
        sinks.push((sink, checker));
    }
    let stats = Arc::new(WorkerStats::new());
    let mut worker = forwarder::worker(Arena::new(FRAMES, 2048)?, ports, tables, &stats);

    let mut arena = Arena::new(FRAMES, 2048)?;
    let mut frames: Vec<Frame> = Vec::with_capacity(SLOTS);
    let (mut findings, mut next) = (Findings::default(), 0);
    let start = Instant::now();
    let mut progress = super::rounds::Progress::new("memory");
    while start.elapsed() < time && !stop.load(Ordering::Relaxed) {
        for _ in 0..BATCH {
            if !feeder.send(packets.frame(next)) {
                bail!("the queue to the router is full, though the worker has emptied it");
            }
            next += 1;
        }
        while worker.poll() > 0 {}
        for (port, checker) in &mut sinks {
            port.receive(&mut arena, SLOTS, &mut frames);
            for frame in frames.drain(..) {
                findings.add(checker.check(arena.bytes(&frame)));
                arena.free(frame);
            }
        }
        progress.show(&findings);
    }
    report.rounds.push(Round::memory(start.elapsed(), next as u64, findings, stats.snapshot()));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::check::Finding;
    use super::super::routes::{self, Routes};
    use super::*;
    use fib::{Hop, Prefix};

    /// Forwards by a few routes. The table under test has another next hop for those of `wrong` than
    /// the oracle.
    fn forward(wrong: &[&str]) -> Report {
        let prefix = |text: &str| text.parse::<Prefix<u32>>().expect("a prefix");
        let mut routes = Routes {
            v4: [("10.0.0.0/8", 1), ("10.1.0.0/16", 2), ("11.0.0.0/8", 3)]
                .map(|(text, hop)| (prefix(text), Hop(hop)))
                .to_vec(),
            v6: vec![("2001:db8::/32".parse().expect("a prefix"), Hop(2))],
            origin: "a test".to_owned(),
            load_time: Duration::ZERO,
        };
        let sinks = (routes::sinks(&routes.v4), routes::sinks(&routes.v6));
        let packets = Packets::draw(&sinks.0, &sinks.1, 4096, 1).expect("addresses");
        for route in &mut routes.v4 {
            if wrong.iter().any(|text| prefix(text) == route.0) {
                route.1 = Hop(route.1.0 + 1);
            }
        }
        let tables = Tables::build(&routes).expect("a small table");
        let mut report = Report::new(&routes, &tables, &packets);
        let (time, stop) = (Duration::from_millis(50), AtomicBool::new(false));
        run(&tables, &packets, time, &stop, &mut report).expect("memory ports do not fail");
        report
    }

    #[test]
    fn correct_table_has_no_wrong_packet() {
        let report = forward(&[]);
        let round = &report.rounds[0];
        assert!(report.is_right(), "{round:?}");
        assert!(round.offered > 0);
        assert_eq!(round.findings.right(), round.offered);
        assert_eq!((round.received, round.sent), (round.offered, round.offered));
    }

    #[test]
    fn wrong_route_is_counted_as_wrong_sink() {
        let report = forward(&["10.1.0.0/16"]);
        let round = &report.rounds[0];
        assert!(!report.is_right());
        assert!(round.balanced, "wrong, but none is missing: {round:?}");
        let sink = round.findings.0[Finding::Sink as usize];
        assert_eq!(round.findings.wrong(), sink);
        assert_eq!(round.findings.right() + sink, round.offered);
        // One route of four, and one address in 256 of another.
        let share = sink as f64 / round.offered as f64;
        assert!((0.2..0.3).contains(&share), "{share}");
    }
}
