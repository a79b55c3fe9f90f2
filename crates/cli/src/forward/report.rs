//! The final report of a router: all counters, by reason.
//!
//! ```text
//!   received = sent + Σ punted + Σ dropped      (the workers, exactly)
//!   arrived  = taken + Σ passed                 (the steering program, by interface)
//! ```

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::time::Duration;

use anyhow::Context;
use datapath::stats::Snapshot;
use datapath::{Class, Verdict};
use router::Running;
use serde::Serialize;

/// Counters by the name of their reason, including those that are zero.
type Reasons = BTreeMap<&'static str, u64>;

/// The counters of a run of `forward`.
#[derive(Debug, Serialize)]
pub(super) struct ForwardReport {
    seconds: f64,
    received: u64,
    sent: u64,
    punted: Reasons,
    dropped: Reasons,
    /// Whether received = sent + punted + dropped.
    pub(super) balanced: bool,
    received_bytes: u64,
    sent_bytes: u64,
    lookups_v4: u64,
    lookups_v6: u64,
    interfaces: Vec<InterfaceReport>,
    ports: Vec<PortReport>,
}

/// The decisions of the steering program of an interface.
#[derive(Debug, Serialize)]
struct InterfaceReport {
    name: String,
    /// Packets redirected to the router's sockets.
    taken: u64,
    /// Packets passed to the kernel, by reason.
    passed: Reasons,
}

/// The counters of one queue of one interface.
#[derive(Debug, Serialize)]
struct PortReport {
    interface: String,
    queue: u32,
    mode: &'static str,
    received: u64,
    transmitted: u64,
    /// Packets that the driver lost, by reason.
    lost: Reasons,
}

impl ForwardReport {
    /// Reads the counters of a router.
    pub(super) fn new(running: &Running, took: Duration) -> anyhow::Result<Self> {
        let stats = running.stats();
        let interfaces = running.interfaces().iter().map(|interface| {
            let counts = interface
                .counts()
                .with_context(|| format!("reading the counters of {}", interface.name()))?;
            let mut passed: Reasons =
                counts.iter().map(|(which, count)| (which.name(), count)).collect();
            let taken = passed.remove("taken").unwrap_or(0);
            Ok(InterfaceReport { name: interface.name(), taken, passed })
        });
        Ok(Self {
            seconds: took.as_secs_f64(),
            received: stats.received,
            sent: stats.sent(),
            punted: reasons(&stats, Class::Punted),
            dropped: reasons(&stats, Class::Dropped),
            balanced: stats.balanced(),
            received_bytes: stats.received_bytes,
            sent_bytes: stats.sent_bytes,
            lookups_v4: stats.lookups_v4,
            lookups_v6: stats.lookups_v6,
            interfaces: interfaces.collect::<anyhow::Result<_>>()?,
            ports: running
                .ports()
                .map(|(port, stats)| PortReport {
                    interface: port.name.clone(),
                    queue: port.queue,
                    mode: port.mode,
                    received: stats.received,
                    transmitted: stats.transmitted,
                    lost: BTreeMap::from([
                        ("rx_ring_full", stats.rx_ring_full),
                        ("fill_empty", stats.fill_empty),
                        ("rx_dropped", stats.rx_dropped),
                        ("tx_invalid", stats.tx_invalid),
                        ("tx_lost", stats.tx_lost),
                    ]),
                })
                .collect(),
        })
    }

    /// Writes the report as text, without reasons that are zero.
    pub(super) fn write(&self, out: &mut impl Write) -> io::Result<()> {
        writeln!(out, "{:<24}{:>14}  in {:.1} s", "received", self.received, self.seconds)?;
        writeln!(out, "{:<24}{:>14}", "sent", self.sent)?;
        writeln!(out, "{:<24}{:>14}", "punted", self.punted.values().sum::<u64>())?;
        write_reasons(&self.punted, out)?;
        writeln!(out, "{:<24}{:>14}", "dropped", self.dropped.values().sum::<u64>())?;
        write_reasons(&self.dropped, out)?;
        for interface in &self.interfaces {
            let passed: u64 = interface.passed.values().sum();
            writeln!(
                out,
                "{}: {} taken, {passed} left to the kernel",
                interface.name, interface.taken
            )?;
            write_reasons(&interface.passed, out)?;
        }
        for port in &self.ports {
            let PortReport { interface, queue, mode, received, transmitted, lost } = port;
            writeln!(
                out,
                "{interface}, queue {queue}, {mode}: {received} received, {transmitted} transmitted"
            )?;
            write_reasons(lost, out)?;
        }
        Ok(())
    }
}

fn reasons(stats: &Snapshot, class: Class) -> Reasons {
    let of_class = |(verdict, count): (Verdict, u64)| {
        (verdict.class() == class).then_some((verdict.name(), count))
    };
    stats.iter().filter_map(of_class).collect()
}

fn write_reasons(reasons: &Reasons, out: &mut impl Write) -> io::Result<()> {
    for (name, count) in reasons.iter().filter(|(_, count)| **count > 0) {
        writeln!(out, "  {name:<22}{count:>14}")?;
    }
    Ok(())
}
