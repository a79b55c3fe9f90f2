//! The report of a demonstration, as text and JSON.
//!
//! Three balances must hold in every round of our router. Otherwise the exit status is 1, as for a
//! wrong packet:
//!
//! ```text
//!   received = sent + punted + dropped by reason           (the router's counters)
//!   sent     = right + wrong + lost on the links after it  (the sinks' and the kernel's)
//!   offered  ≥ received
//! ```
//!
//! The kernel drops packets before the router (the generator sends more than it accepts) and after it
//! (the ring of a sink overflows). The report counts these apart from the drops of the router.

use std::collections::BTreeMap;
use std::io::Write;
use std::time::Duration;

use anyhow::Result;
use datapath::Class;
use datapath::stats::Snapshot;
use serde::Serialize;

use super::check::{Finding, Findings};
use super::forwarder::{PortReport, TableSize, Tables};
use super::kernel::LoadedRoutes;
use super::packets::Packets;
use super::placement::Share;
use super::routes::Routes;

/// The router of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Router {
    /// Ours, in its own process.
    Fingerpost,
    /// Ours, in the driver.
    #[serde(rename = "fingerpost-xdp")]
    Driver,
    /// The Linux kernel.
    Kernel,
}

impl Router {
    /// Returns its name.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Fingerpost => "fingerpost",
            Self::Driver => "fingerpost-xdp",
            Self::Kernel => "kernel",
        }
    }
}

/// One measurement.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Round {
    /// The router.
    pub(super) router: Router,
    /// The mode of packet I/O.
    pub(super) mode: &'static str,
    /// Time of sending.
    pub(super) seconds: f64,
    /// Packets of the generator.
    pub(super) offered: u64,
    /// Of those, packets that the full link to the router dropped.
    pub(super) refused_by_link: u64,
    /// Packets that the full rings of the router's sockets dropped.
    pub(super) missed: u64,
    /// Packets that the router received; zero for the kernel, like the counters below.
    pub(super) received: u64,
    /// Destinations looked up.
    pub(super) lookups: u64,
    /// Packets sent.
    pub(super) sent: u64,
    /// Packets passed to the host.
    pub(super) punted: u64,
    /// Packets dropped, by reason.
    pub(super) dropped: BTreeMap<&'static str, u64>,
    /// Packets that the links to the sinks dropped.
    pub(super) lost_after: u64,
    /// The findings of the checkers.
    #[serde(serialize_with = "by_name")]
    pub(super) findings: Findings,
    /// Right packets per second at the sinks, after the start.
    pub(super) packets_per_second: f64,
    /// The load of the CPUs.
    pub(super) cpus: Vec<Share>,
    /// Whether the counters balance.
    pub(super) balanced: bool,
}

fn by_name<S: serde::Serializer>(findings: &Findings, to: S) -> Result<S::Ok, S::Error> {
    to.collect_map(Finding::ALL.map(|finding| (finding.name(), findings.0[finding as usize])))
}

impl Round {
    /// Returns a round with all counters at zero.
    pub(super) fn new(router: Router) -> Self {
        Self {
            router,
            mode: "kernel forwarding",
            seconds: 0.0,
            offered: 0,
            refused_by_link: 0,
            missed: 0,
            received: 0,
            lookups: 0,
            sent: 0,
            punted: 0,
            dropped: BTreeMap::new(),
            lost_after: 0,
            findings: Findings::default(),
            packets_per_second: 0.0,
            cpus: Vec::new(),
            balanced: true,
        }
    }

    /// Returns the round of the memory ports.
    pub(super) fn memory(
        time: Duration,
        offered: u64,
        findings: Findings,
        snapshot: Snapshot,
    ) -> Self {
        let seconds = time.as_secs_f64();
        let packets_per_second = findings.right() as f64 / seconds;
        let mut round = Self {
            seconds,
            offered,
            findings,
            packets_per_second,
            ..Self::new(Router::Fingerpost)
        };
        round.count(snapshot, &[]);
        round.mode = "memory";
        // Memory ports in one thread lose no packet.
        round.balanced &= round.offered == round.received;
        round
    }

    /// Adds the counters of the router and checks the balances.
    pub(super) fn count(&mut self, snapshot: Snapshot, ports: &[PortReport]) {
        if let Some(port) = ports.first() {
            self.mode = port.mode;
        }
        for PortReport { stats, .. } in ports {
            self.missed += stats.rx_ring_full + stats.fill_empty + stats.rx_dropped;
            self.lost_after += stats.tx_invalid;
        }
        self.received = snapshot.received;
        self.lookups = snapshot.lookups_v4 + snapshot.lookups_v6;
        self.sent = snapshot.sent();
        self.punted = snapshot.punted();
        let dropped = snapshot.iter().filter(|(verdict, _)| verdict.class() == Class::Dropped);
        self.dropped = dropped
            .filter(|&(_, count)| count > 0)
            .map(|(verdict, count)| (verdict.name(), count))
            .collect();
        let arrived = self.findings.right() + self.findings.wrong();
        self.balanced = snapshot.balanced()
            && self.sent == arrived + self.lost_after
            && self.offered >= self.received;
    }
}

/// The report.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    origin: String,
    load_seconds: f64,
    build_seconds: f64,
    tables: [TableSize; 2],
    packets: usize,
    packets_v6: usize,
    /// In the order of their execution.
    pub(super) rounds: Vec<Round>,
    /// The result of loading the routes into the kernel.
    pub(super) kernel_routes: Option<LoadedRoutes>,
    /// Our median rate divided by that of the kernel.
    ratio: Option<f64>,
    /// The median rates in the driver beside the others.
    driver: Option<DriverRatios>,
}

/// The median rates of our router in the driver, divided by others.
#[derive(Clone, Copy, Debug, Serialize)]
struct DriverRatios {
    /// Packets at the sinks, by those of AF_XDP.
    sent_to_af_xdp: f64,
    /// Packets that the router received, by those of AF_XDP.
    handled_to_af_xdp: f64,
    /// Packets at the sinks, by those of the kernel.
    sent_to_kernel: f64,
}

impl Report {
    /// Returns a report without rounds.
    pub(super) fn new(routes: &Routes, tables: &Tables, packets: &Packets) -> Self {
        Self {
            origin: routes.origin.clone(),
            load_seconds: routes.load_time.as_secs_f64(),
            build_seconds: tables.build_time.as_secs_f64(),
            tables: tables.sizes(),
            packets: packets.len(),
            packets_v6: packets.v6,
            rounds: Vec::new(),
            kernel_routes: None,
            ratio: None,
            driver: None,
        }
    }

    fn of(&self, router: Router) -> impl Iterator<Item = &Round> {
        self.rounds.iter().filter(move |round| round.router == router)
    }

    /// Returns whether no packet was wrong and all counters balance. Wrong packets of the kernel count,
    /// too: they would be an error of the test.
    pub(super) fn is_right(&self) -> bool {
        self.of(Router::Fingerpost).chain(self.of(Router::Driver)).next().is_some()
            && self.rounds.iter().all(|round| round.balanced && round.findings.wrong() == 0)
    }

    /// Returns the median rate of a router's rounds.
    fn rate(&self, router: Router) -> Option<f64> {
        self.median(router, |round| round.packets_per_second)
    }

    /// Returns the median of a figure of a router's rounds.
    fn median(&self, router: Router, figure: impl Fn(&Round) -> f64) -> Option<f64> {
        let mut figures: Vec<f64> = self.of(router).map(figure).collect();
        figures.sort_by(f64::total_cmp);
        figures.get(figures.len() / 2).copied()
    }

    /// Compares our router in the driver with the others, if all were measured.
    fn driver_ratios(&self) -> Option<DriverRatios> {
        let handled = |router| self.median(router, |round| round.received as f64 / round.seconds);
        let rate = self.rate(Router::Driver)?;
        Some(DriverRatios {
            sent_to_af_xdp: rate / self.rate(Router::Fingerpost)?,
            handled_to_af_xdp: handled(Router::Driver)? / handled(Router::Fingerpost)?,
            sent_to_kernel: rate / self.rate(Router::Kernel)?,
        })
    }

    /// Writes it to standard output.
    pub(super) fn print(&mut self, json: bool) -> Result<()> {
        self.ratio = match (self.rate(Router::Fingerpost), self.rate(Router::Kernel)) {
            (Some(ours), Some(kernels)) if kernels > 0.0 => Some(ours / kernels),
            _ => None,
        };
        self.driver = self.driver_ratios();
        let mut out = std::io::stdout().lock();
        if json {
            serde_json::to_writer_pretty(&mut out, self)?;
            writeln!(out)?;
        } else {
            self.write(&mut out)?;
        }
        Ok(out.flush()?)
    }

    fn write(&self, out: &mut impl Write) -> Result<()> {
        writeln!(out, "routes        {}", self.origin)?;
        writeln!(
            out,
            "              loaded in {:.2} s, both tables built in {:.2} s",
            self.load_seconds, self.build_seconds
        )?;
        for TableSize { family, engine, routes, bytes } in &self.tables {
            if *routes == 0 {
                continue;
            }
            let each = *bytes as f64 / (*routes).max(1) as f64;
            writeln!(
                out,
                "{family}          {} routes in {} bytes ({each:.2} per prefix), {engine}",
                grouped(*routes as u64),
                grouped(*bytes as u64)
            )?;
        }
        writeln!(
            out,
            "packets       {} different, {} of them IPv6",
            grouped(self.packets as u64),
            grouped(self.packets_v6 as u64)
        )?;
        for round in &self.rounds {
            round.write(out)?;
        }
        if let Some(LoadedRoutes { accepted, refused, seconds }) = self.kernel_routes {
            writeln!(out)?;
            writeln!(
                out,
                "the kernel accepted {} routes and refused {refused} in {seconds:.1} s",
                grouped(accepted as u64)
            )?;
        }
        if let (Some(ratio), Some(ours), Some(kernels)) =
            (self.ratio, self.rate(Router::Fingerpost), self.rate(Router::Kernel))
        {
            writeln!(
                out,
                "fingerpost {:.3}, kernel {:.3} million packets per second (medians): ratio {ratio:.2}",
                ours / 1e6,
                kernels / 1e6
            )?;
        }
        if let Some(DriverRatios { sent_to_af_xdp, handled_to_af_xdp, sent_to_kernel }) =
            self.driver
        {
            writeln!(
                out,
                "in the driver (medians): sent {sent_to_af_xdp:.2} times what AF_XDP sent, handled \
                 {handled_to_af_xdp:.2} times what it handled, sent {sent_to_kernel:.2} times what the kernel \
                 sent"
            )?;
        }
        writeln!(out)?;
        let verdict = if self.rounds.is_empty() {
            "interrupted before the first packet"
        } else if self.is_right() {
            "right: every packet that arrived was checked, and all counters balance"
        } else {
            "WRONG: see above"
        };
        Ok(writeln!(out, "{verdict}")?)
    }
}

impl Round {
    fn write(&self, out: &mut impl Write) -> Result<()> {
        let name = self.router.name();
        let each = |count: u64| count as f64 / self.seconds / 1e6;
        writeln!(out)?;
        writeln!(
            out,
            "{name:<13} {:.3} million packets per second at the sinks, {:.1} s ({})",
            self.packets_per_second / 1e6,
            self.seconds,
            self.mode
        )?;
        write!(
            out,
            "  offered     {:>13}   {:.3} million per second",
            grouped(self.offered),
            each(self.offered)
        )?;
        match (self.refused_by_link, self.missed) {
            (0, 0) => writeln!(out)?,
            (link, sockets) => writeln!(
                out,
                "; dropped by the full link: {}, by the full sockets: {}",
                grouped(link),
                grouped(sockets)
            )?,
        }
        if self.router != Router::Kernel {
            writeln!(
                out,
                "  received    {:>13}   {:.3} million per second",
                grouped(self.received),
                each(self.received)
            )?;
            writeln!(out, "  sent        {:>13}", grouped(self.sent))?;
            writeln!(out, "  punted      {:>13}", grouped(self.punted))?;
            writeln!(out, "  dropped     {:>13}", grouped(self.dropped.values().sum()))?;
            for (reason, count) in &self.dropped {
                writeln!(out, "    {reason:<24} {}", grouped(*count))?;
            }
        }
        writeln!(
            out,
            "  lost after  {:>13}   on the links to the sinks",
            grouped(self.lost_after)
        )?;
        writeln!(out, "  right       {:>13}", grouped(self.findings.right()))?;
        writeln!(out, "  wrong       {:>13}", grouped(self.findings.wrong()))?;
        for finding in &Finding::ALL[Finding::Form as usize..] {
            let count = self.findings.0[*finding as usize];
            if count > 0 {
                writeln!(out, "    {:<24} {}", finding.name(), grouped(count))?;
            }
        }
        if self.findings.foreign() > 0 {
            writeln!(
                out,
                "  foreign     {:>13}   not test packets",
                grouped(self.findings.foreign())
            )?;
        }
        for Share { cpu, user, system, softirq } in &self.cpus {
            writeln!(
                out,
                "  CPU {cpu}       user {:.0} %, system {:.0} %, softirq {:.0} %",
                user * 100.0,
                system * 100.0,
                softirq * 100.0
            )?;
        }
        if !self.balanced {
            writeln!(out, "  THE COUNTERS DO NOT BALANCE")?;
        }
        Ok(())
    }
}

/// Formats a number with commas between thousands.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grouped_separates_thousands() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(1_000), "1,000");
        assert_eq!(grouped(1_234_567), "1,234,567");
    }

    #[test]
    fn count_detects_counters_that_do_not_balance() {
        let mut snapshot = Snapshot { received: 10, ..Snapshot::default() };
        snapshot.verdicts[datapath::Verdict::Sent] = 9;
        snapshot.verdicts[datapath::Verdict::NoRoute] = 1;
        let round = |right, lost, offered, snapshot| {
            let mut round = Round::new(Router::Fingerpost);
            round.findings.0[Finding::Right as usize] = right;
            (round.lost_after, round.offered) = (lost, offered);
            round.count(snapshot, &[]);
            round
        };
        assert!(round(9, 0, 10, snapshot).balanced);
        assert!(round(7, 2, 11, snapshot).balanced);
        assert_eq!(round(9, 0, 10, snapshot).dropped, [("no_route", 1)].into());
        assert!(!round(8, 0, 10, snapshot).balanced, "a packet is missing after the router");
        assert!(!round(9, 0, 9, snapshot).balanced, "more received than offered");
        snapshot.received = 11;
        assert!(!round(9, 0, 11, snapshot).balanced, "a packet is missing in the router");
    }
}
