//! The counter snapshot of a worker: written by the worker, read by any thread.
//!
//! One list defines the group, the name and the source of each number, and the table of verdicts the
//! drops by reason, so that the control socket, the metrics and the tests agree. The worker publishes
//! all numbers at the end of each turn. Each number is an atomic of its own: a reader may see some
//! numbers of one turn beside others of the turn before.
//!
//! The counters by rule are not copied: a reader reads the worker's ledger, and `rule_ids.rs`
//! maps its lines to rules.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use datapath::Verdict;
use gate::gate::{GateCounters, RuleCounters};
use gate::limit::link::Link;
use gate::table::FlowTable;

/// The places from which the numbers are read.
pub(super) struct CounterSources<'w> {
    pub(super) counts: &'w GateCounters,
    pub(super) table: &'w FlowTable,
    pub(super) link: &'w Link<u32>,
    pub(super) icmp_sent: u64,
    pub(super) icmp_rate_limited: u64,
    pub(super) cookies_sent: u64,
    pub(super) cookies_failed: u64,
    pub(super) clamped: u64,
    pub(super) red_dropped: u64,
    pub(super) displaced: u64,
}

/// The group of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum CounterGroup {
    /// Packets by the gate's verdict.
    Packets,
    /// Their bytes.
    Bytes,
    /// The flow table: counters and gauges.
    Table,
    /// Decisions that reached the worker.
    Decisions,
    /// Packets that leave, ICMP errors and SYN cookies: counters and gauges.
    Link,
}

/// The group, the name and the source of a number.
type Definition = (CounterGroup, &'static str, fn(&CounterSources<'_>) -> u64);

/// All numbers but the drops by reason, which are those of [`Verdict::GATE`].
const COUNTERS: [Definition; 62] = [
    (CounterGroup::Packets, "received", |s| s.counts.received.packets),
    (CounterGroup::Packets, "request", |s| s.counts.requests.packets),
    (CounterGroup::Packets, "granted", |s| s.counts.granted.packets),
    (CounterGroup::Packets, "renewal", |s| s.counts.renewals.packets),
    (CounterGroup::Packets, "back", |s| s.counts.back.packets),
    (CounterGroup::Packets, "front", |s| s.counts.front.packets),
    (CounterGroup::Packets, "no_route", |s| s.counts.dropped[Verdict::NoRoute].packets),
    (CounterGroup::Packets, "allowed", |s| s.counts.allowed.packets),
    (CounterGroup::Packets, "direct", |s| s.counts.direct.packets),
    (CounterGroup::Packets, "without_entry", |s| s.counts.without_entry),
    // The controller adds the packets that the XDP program has dropped.
    (CounterGroup::Packets, "xdp_dropped", |_| 0),
    (CounterGroup::Bytes, "received", |s| s.counts.received.bytes),
    (CounterGroup::Bytes, "request", |s| s.counts.requests.bytes),
    (CounterGroup::Bytes, "granted", |s| s.counts.granted.bytes),
    (CounterGroup::Bytes, "renewal", |s| s.counts.renewals.bytes),
    (CounterGroup::Bytes, "back", |s| s.counts.back.bytes),
    (CounterGroup::Bytes, "front", |s| s.counts.front.bytes),
    (CounterGroup::Bytes, "no_route", |s| s.counts.dropped[Verdict::NoRoute].bytes),
    (CounterGroup::Bytes, "allowed", |s| s.counts.allowed.bytes),
    (CounterGroup::Table, "program_flows", |s| s.table.running() as u64),
    (CounterGroup::Table, "capacity", |s| s.table.capacity() as u64),
    (CounterGroup::Table, "flows", |s| s.table.len() as u64),
    (CounterGroup::Table, "granted", |s| s.table.granted() as u64),
    (CounterGroup::Table, "declined", |s| s.table.declined() as u64),
    (CounterGroup::Table, "inserted", |s| s.counts.inserted),
    (CounterGroup::Table, "first_seen", |s| s.counts.first_seen),
    (CounterGroup::Table, "first_seen_overflow", |s| s.counts.first_seen_overflow),
    (CounterGroup::Table, "readmitted", |s| s.counts.readmitted),
    (CounterGroup::Table, "validated", |s| s.counts.validated),
    (CounterGroup::Table, "invalid_cookies", |s| s.counts.invalid_cookies),
    (CounterGroup::Table, "evicted", |s| s.counts.evicted),
    (CounterGroup::Table, "expired", |s| s.counts.expired),
    (CounterGroup::Decisions, "decided", |s| s.counts.decided),
    (CounterGroup::Decisions, "retracted", |s| s.counts.retracted),
    (CounterGroup::Decisions, "late", |s| s.counts.late),
    (CounterGroup::Decisions, "table_full", |s| s.counts.table_full),
    (CounterGroup::Decisions, "unproven", |s| s.counts.unproven),
    (CounterGroup::Decisions, "unprotected", |s| s.counts.unprotected),
    (CounterGroup::Decisions, "invalid_program", |s| s.counts.programs),
    (CounterGroup::Link, "limit_evictions", |s| s.displaced),
    (CounterGroup::Link, "requests_offered", |s| s.link.requests().counts().offered),
    (CounterGroup::Link, "requests_sent", |s| s.link.requests().counts().sent),
    (CounterGroup::Link, "requests_dropped", |s| s.link.requests().counts().dropped),
    (CounterGroup::Link, "requests_waiting", |s| s.link.requests().len() as u64),
    (CounterGroup::Link, "waiting", |s| s.link.waiting() as u64),
    (CounterGroup::Link, "granted_dropped", |s| s.red_dropped),
    (CounterGroup::Link, "highest_priority", |s| {
        s.link.requests().first().map_or(0, |request| request.dscp.into())
    }),
    (CounterGroup::Link, "operational_bytes", |s| s.link.used().operational),
    (CounterGroup::Link, "request_bytes", |s| s.link.used().requests),
    (CounterGroup::Link, "granted_bytes", |s| s.link.used().granted),
    (CounterGroup::Link, "icmp_sent", |s| s.icmp_sent),
    (CounterGroup::Link, "icmp_rate_limited", |s| s.icmp_rate_limited),
    (CounterGroup::Link, "cookies_sent", |s| s.cookies_sent),
    (CounterGroup::Link, "cookies_failed", |s| s.cookies_failed),
    (CounterGroup::Link, "cookies_rate_limited", |s| s.counts.cookies_rate_limited),
    (CounterGroup::Link, "mss_clamped", |s| s.clamped),
    (CounterGroup::Table, "xdp_flows", |_| 0),
    (CounterGroup::Table, "xdp_prefixes", |_| 0),
    (CounterGroup::Table, "xdp_prefixes_overflow", |_| 0),
    (CounterGroup::Table, "xdp_map_errors", |_| 0),
    (CounterGroup::Table, "usage_percent", |s| (s.table.len() * 100 / s.table.capacity()) as u64),
    (CounterGroup::Table, "requests", |s| {
        (s.table.len() - s.table.granted() - s.table.declined() - s.table.running()) as u64
    }),
];

/// The number of all numbers.
const NUMBERS: usize = COUNTERS.len() + 2 * Verdict::GATE_COUNT;

/// The numbers of one worker.
#[derive(Debug)]
#[repr(align(128))]
pub struct CounterSnapshot {
    numbers: [AtomicU64; COUNTERS.len()],
    /// Packets and bytes, by the reasons in [`Verdict::GATE`].
    drops: [[AtomicU64; 2]; Verdict::GATE_COUNT],
    /// The counters of another process that these continue, in the order of [`counter_names`].
    past: [AtomicU64; NUMBERS],
    ledger: Arc<RuleCounters>,
}

impl Default for CounterSnapshot {
    fn default() -> Self {
        Self {
            numbers: [const { AtomicU64::new(0) }; COUNTERS.len()],
            drops: [const { [const { AtomicU64::new(0) }; 2] }; Verdict::GATE_COUNT],
            past: [const { AtomicU64::new(0) }; NUMBERS],
            ledger: Arc::default(),
        }
    }
}

impl CounterSnapshot {
    /// Publishes the current numbers.
    pub(super) fn publish(&self, sources: &CounterSources<'_>) {
        for (number, (.., value)) in self.numbers.iter().zip(COUNTERS) {
            number.store(value(sources), Ordering::Relaxed);
        }
        for ([packets, bytes], reason) in self.drops.iter().zip(Verdict::GATE) {
            let count = sources.counts.dropped[reason];
            packets.store(count.packets, Ordering::Relaxed);
            bytes.store(count.bytes, Ordering::Relaxed);
        }
    }

    /// Returns the counters by rule, which the worker updates packet by packet.
    pub fn ledger(&self) -> &Arc<RuleCounters> {
        &self.ledger
    }

    /// Iterates over the numbers.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (CounterGroup, &'static str, u64)> {
        let numbers = self.numbers.iter();
        let drops = [0, 1].into_iter().flat_map(|i| self.drops.iter().map(move |drop| &drop[i]));
        let each = counter_names().zip(numbers.chain(drops)).zip(&self.past);
        each.map(|(((group, name), number), past)| {
            let all = number.load(Ordering::Relaxed) + past.load(Ordering::Relaxed);
            (group, name, all)
        })
    }

    /// Continues the counters of another process, which `count` returns by group and name. Gauges are of this one.
    pub(crate) fn continue_counts(&self, count: impl Fn(CounterGroup, &'static str) -> u64) {
        for ((group, name), past) in counter_names().zip(&self.past) {
            if !is_gauge(group, name) {
                past.store(count(group, name), Ordering::Relaxed);
            }
        }
    }

    /// Returns the number of packets with this verdict.
    pub fn packets(&self, name: &str) -> u64 {
        self.number(CounterGroup::Packets, name)
    }

    /// Returns the number of bytes with this verdict.
    pub fn bytes(&self, name: &str) -> u64 {
        self.number(CounterGroup::Bytes, name)
    }

    fn number(&self, group: CounterGroup, name: &str) -> u64 {
        let mut all = self.iter();
        all.find(|counter| (counter.0, counter.1) == (group, name)).map_or(0, |counter| counter.2)
    }
}

/// Lists the names of all numbers: [`COUNTERS`], then the drops by reason, in packets and in bytes.
pub(crate) fn counter_names() -> impl Iterator<Item = (CounterGroup, &'static str)> {
    let drops = [CounterGroup::Packets, CounterGroup::Bytes]
        .into_iter()
        .flat_map(|group| Verdict::GATE.into_iter().map(move |reason| (group, reason.name())));
    COUNTERS.iter().map(|(group, name, _)| (*group, *name)).chain(drops)
}

/// Returns whether a number is a gauge and not a counter.
pub(crate) fn is_gauge(group: CounterGroup, name: &str) -> bool {
    match group {
        CounterGroup::Table => !matches!(
            name,
            "inserted"
                | "first_seen"
                | "first_seen_overflow"
                | "readmitted"
                | "validated"
                | "invalid_cookies"
                | "evicted"
                | "expired"
                | "xdp_map_errors"
        ),
        CounterGroup::Link => matches!(name, "requests_waiting" | "waiting" | "highest_priority"),
        _ => false,
    }
}

/// Returns the name of a number together with that of its group.
pub(crate) fn full_name(group: CounterGroup, name: &str) -> String {
    format!("{}.{name}", part(group))
}

fn part(group: CounterGroup) -> &'static str {
    match group {
        CounterGroup::Packets => "packets",
        CounterGroup::Bytes => "bytes",
        CounterGroup::Table => "table",
        CounterGroup::Decisions => "decisions",
        CounterGroup::Link => "link",
    }
}
