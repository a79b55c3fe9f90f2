//! The tally: what a worker's gate shows, written by it alone, read by anyone.
//!
//! One list says what each number is called and where it comes from, so that the control
//! socket, the metrics and the tests mean the same. It is written at the end of each turn;
//! what was counted in one turn is read together or not yet, number by number.
//!
//! What is counted by rule is not copied: a worker's ledger is read where it is written
//! (`policies.rs` says which rule has which line).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use gate::gate::{GateCounters, RuleCounters};
use gate::limit::link::Link;
use gate::table::FlowTable;

/// What the numbers are taken from.
pub(super) struct Sight<'w> {
    pub(super) counts: &'w GateCounters,
    pub(super) table: &'w FlowTable,
    pub(super) link: &'w Link<u32>,
    pub(super) answered: u64,
    pub(super) unanswered: u64,
    pub(super) cookies_sent: u64,
    pub(super) cookies_failed: u64,
    pub(super) clamped: u64,
    pub(super) red_dropped: u64,
    pub(super) displaced: u64,
}

/// What a number is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum About {
    /// Packets of the gate, by what became of them.
    Packets,
    /// Their bytes.
    Bytes,
    /// The flow table: some are of the moment.
    Table,
    /// Decisions at the worker.
    Decisions,
    /// What leaves: some are of the moment.
    Link,
}

type Word = (About, &'static str, fn(&Sight<'_>) -> u64);

const WORDS: [Word; 86] = [
    (About::Packets, "received", |it| it.counts.received.packets),
    (About::Packets, "request", |it| it.counts.requests.packets),
    (About::Packets, "granted", |it| it.counts.granted.packets),
    (About::Packets, "renewal", |it| it.counts.renewals.packets),
    (About::Packets, "back", |it| it.counts.back.packets),
    (About::Packets, "front", |it| it.counts.front.packets),
    (About::Packets, "no_route", |it| it.counts.no_route.packets),
    (About::Packets, "blocked", |it| it.counts.blocked.packets),
    (About::Packets, "declined", |it| it.counts.declined.packets),
    (About::Packets, "over_rate", |it| it.counts.over_rate.packets),
    (About::Packets, "policy", |it| it.counts.policy.packets),
    (About::Packets, "no_grantor", |it| it.counts.no_grantor.packets),
    (About::Packets, "program", |it| it.counts.program.packets),
    (About::Packets, "program_error", |it| it.counts.program_error.packets),
    (About::Packets, "over_limit", |it| it.counts.over_limit.packets),
    (About::Packets, "over_destination_limit", |it| it.counts.over_destination_limit.packets),
    (About::Packets, "syn_cookie", |it| it.counts.syn_cookies.packets),
    (About::Packets, "cookie_reset", |it| it.counts.proofs.packets),
    (About::Packets, "forged", |t| t.counts.forged.packets),
    (About::Packets, "allowed", |it| it.counts.allowed.packets),
    (About::Packets, "direct", |it| it.counts.direct.packets),
    (About::Packets, "without_entry", |it| it.counts.without_entry),
    // What the kernel has dropped is added by who tells of it.
    (About::Packets, "xdp_dropped", |_| 0),
    (About::Bytes, "received", |it| it.counts.received.bytes),
    (About::Bytes, "request", |it| it.counts.requests.bytes),
    (About::Bytes, "granted", |it| it.counts.granted.bytes),
    (About::Bytes, "renewal", |it| it.counts.renewals.bytes),
    (About::Bytes, "back", |it| it.counts.back.bytes),
    (About::Bytes, "front", |it| it.counts.front.bytes),
    (About::Bytes, "no_route", |it| it.counts.no_route.bytes),
    (About::Bytes, "blocked", |it| it.counts.blocked.bytes),
    (About::Bytes, "declined", |it| it.counts.declined.bytes),
    (About::Bytes, "over_rate", |it| it.counts.over_rate.bytes),
    (About::Bytes, "policy", |it| it.counts.policy.bytes),
    (About::Bytes, "no_grantor", |it| it.counts.no_grantor.bytes),
    (About::Bytes, "program", |it| it.counts.program.bytes),
    (About::Bytes, "program_error", |it| it.counts.program_error.bytes),
    (About::Bytes, "over_limit", |it| it.counts.over_limit.bytes),
    (About::Bytes, "over_destination_limit", |it| it.counts.over_destination_limit.bytes),
    (About::Bytes, "syn_cookie", |it| it.counts.syn_cookies.bytes),
    (About::Bytes, "cookie_reset", |it| it.counts.proofs.bytes),
    (About::Bytes, "forged", |t| t.counts.forged.bytes),
    (About::Bytes, "allowed", |it| it.counts.allowed.bytes),
    (About::Table, "program_flows", |it| it.table.running() as u64),
    (About::Table, "capacity", |it| it.table.capacity() as u64),
    (About::Table, "flows", |it| it.table.len() as u64),
    (About::Table, "granted", |it| it.table.granted() as u64),
    (About::Table, "declined", |it| it.table.declined() as u64),
    (About::Table, "inserted", |it| it.counts.inserted),
    (About::Table, "first_seen", |it| it.counts.first_seen),
    (About::Table, "first_seen_overflow", |it| it.counts.first_seen_overflow),
    (About::Table, "readmitted", |it| it.counts.readmitted),
    (About::Table, "validated", |it| it.counts.validated),
    (About::Table, "invalid_cookies", |it| it.counts.invalid_cookies),
    (About::Table, "evicted", |it| it.counts.evicted),
    (About::Table, "expired", |it| it.counts.expired),
    (About::Decisions, "decided", |it| it.counts.decided),
    (About::Decisions, "retracted", |t| t.counts.retracted),
    (About::Decisions, "late", |it| it.counts.late),
    (About::Decisions, "table_full", |it| it.counts.table_full),
    (About::Decisions, "unproven", |t| t.counts.unproven),
    (About::Decisions, "unprotected", |it| it.counts.unprotected),
    (About::Decisions, "invalid_program", |it| it.counts.programs),
    (About::Link, "limit_evictions", |t| t.displaced),
    (About::Link, "requests_offered", |it| it.link.requests().counts().offered),
    (About::Link, "requests_sent", |it| it.link.requests().counts().sent),
    (About::Link, "requests_dropped", |it| it.link.requests().counts().dropped),
    (About::Link, "requests_waiting", |it| it.link.requests().len() as u64),
    (About::Link, "waiting", |it| it.link.waiting() as u64),
    (About::Link, "granted_dropped", |it| it.red_dropped),
    (About::Link, "highest_priority", |it| {
        it.link.requests().first().map_or(0, |it| it.dscp.into())
    }),
    (About::Link, "operational_bytes", |it| it.link.used().operational),
    (About::Link, "request_bytes", |it| it.link.used().requests),
    (About::Link, "granted_bytes", |it| it.link.used().granted),
    (About::Link, "icmp_sent", |it| it.answered),
    (About::Link, "icmp_rate_limited", |it| it.unanswered),
    (About::Link, "cookies_sent", |it| it.cookies_sent),
    (About::Link, "cookies_failed", |it| it.cookies_failed),
    (About::Link, "cookies_rate_limited", |it| it.counts.cookies_rate_limited),
    (About::Link, "mss_clamped", |it| it.clamped),
    (About::Table, "xdp_flows", |_| 0),
    (About::Table, "xdp_prefixes", |_| 0),
    (About::Table, "xdp_prefixes_overflow", |_| 0),
    (About::Table, "xdp_map_errors", |_| 0),
    (About::Table, "usage_percent", |it| (it.table.len() * 100 / it.table.capacity()) as u64),
    (About::Table, "requests", |it| {
        (it.table.len() - it.table.granted() - it.table.declined() - it.table.running()) as u64
    }),
];

/// The numbers of one worker.
#[derive(Debug)]
#[repr(align(128))]
pub struct Tally([AtomicU64; WORDS.len()], Arc<RuleCounters>);

impl Default for Tally {
    fn default() -> Self {
        Self([const { AtomicU64::new(0) }; WORDS.len()], Arc::default())
    }
}

impl Tally {
    /// Shows what there is now.
    pub(super) fn show(&self, sight: &Sight<'_>) {
        for (word, (.., value)) in self.0.iter().zip(WORDS) {
            word.store(value(sight), Ordering::Relaxed);
        }
    }

    /// Returns what is counted by rule: by the worker itself, packet by packet.
    pub fn ledger(&self) -> &Arc<RuleCounters> {
        &self.1
    }

    /// Walks the numbers.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (About, &'static str, u64)> {
        let each = WORDS.iter().zip(&self.0);
        each.map(|((about, name, _), word)| (*about, *name, word.load(Ordering::Relaxed)))
    }

    /// Returns the number of packets that ended so.
    pub fn packets(&self, name: &str) -> u64 {
        self.number(About::Packets, name)
    }

    /// Returns the number of their bytes.
    pub fn bytes(&self, name: &str) -> u64 {
        self.number(About::Bytes, name)
    }

    fn number(&self, about: About, name: &str) -> u64 {
        let mut all = self.iter();
        all.find(|word| (word.0, word.1) == (about, name)).map_or(0, |word| word.2)
    }
}

/// Lists the numbers' names.
#[cfg(test)]
pub(crate) fn words() -> impl Iterator<Item = (About, &'static str)> {
    WORDS.iter().map(|(about, name, _)| (*about, *name))
}

/// Says whether a number is of the moment, and not a count.
pub(crate) fn is_gauge(about: About, name: &str) -> bool {
    match about {
        About::Table => !matches!(
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
        About::Link => matches!(name, "requests_waiting" | "waiting" | "highest_priority"),
        _ => false,
    }
}
