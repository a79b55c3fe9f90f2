//! Metrics: everything that is counted, in the words of Prometheus.
//!
//! ```text
//!   GET /metrics ─► Look: workers' counters, steering programs', control thread ─► Gathered ─► text
//! ```
//!
//! The names are those of its conventions (prometheus.io/docs/practices/naming): one prefix,
//! base units, `_total` on what only grows. Labels have few values (worker, reason, table,
//! interface), or as many as are bounded: of a gate's policy the first 256 prefixes, of
//! destinations the 20 with most packets. Everything is read from where `show` reads it,
//! so that sums equal its numbers.
//!
//! Two formats: OpenMetrics 1.0 where the client would have it (as Prometheus would), else the
//! text format 0.0.4, for everybody else. They differ in that OpenMetrics names a counter's
//! family without `_total`, and ends with `# EOF`. The former is made by `prometheus-client`,
//! the latter from it ([`classic`]).
//!
//! | file | what it has |
//! |---|---|
//! | `router` | workers, tables, feeds, interfaces |
//! | `gate` | verdicts, rules, destinations, the flow table, the link |
//! | `grantor` | policies in Lua, and bundles |
//! | `process` | memory, processor time and descriptors, by the standard names |
//! | `help` | HELP texts of a gate's table and link |
//! | `writer` | families, and the older format |

mod gate;
mod grantor;
mod help;
mod process;
mod router;
mod writer;

use std::collections::BTreeMap;
use std::fmt;
use std::time::Instant;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, text};
use prometheus_client::registry::{Registry, Unit};

use super::api::{Audit, Feed, Fib, Interface, Item};
use super::http::HttpResponse;
use super::items;
use super::query::QueryHandle;
use crate::role::Role;
use crate::stats::Snapshot;
use crate::web::Destinations;
use process::Process;
use writer::{Family, Writer, classic, family};

const OPENMETRICS: &str = "application/openmetrics-text";

/// The findings of the page's watch.
#[derive(Debug, Default)]
pub(crate) struct Watched {
    /// The destinations as estimated from samples.
    pub(crate) destinations: Destinations,
    /// Whether an attack goes on, and how many there were.
    pub(crate) attack: bool,
    pub(crate) attacks: u64,
}

/// Makes the page; `accept` is the format that the client prefers.
pub(crate) fn page(
    look: &QueryHandle,
    start: Instant,
    watched: Watched,
    accept: &str,
) -> HttpResponse {
    match Gathered::gather(look, start, watched) {
        Ok(gathered) => gathered.reply(accept.contains(OPENMETRICS)),
        Err(words) => HttpResponse::text(503, &words),
    }
}

/// Everything, at one moment.
#[derive(Debug)]
struct Gathered {
    uptime: f64,
    workers: Vec<Snapshot>,
    fibs: Vec<Fib>,
    feeds: Vec<Feed>,
    interfaces: Vec<Interface>,
    neighbors: BTreeMap<String, u64>,
    hops: u64,
    audit: Audit,
    role: Role,
    watched: Watched,
}

impl Gathered {
    fn gather(look: &QueryHandle, start: Instant, watched: Watched) -> Result<Self, String> {
        let found = look.control.call(|it| {
            let mut neighbors = BTreeMap::new();
            for (index, ..) in it.plane.neighbors() {
                let name = it.plane.ports().get(index).map(|port| port.name.clone());
                *neighbors.entry(name.unwrap_or_default()).or_insert(0) += 1;
            }
            let ports = it.plane.ports().clone();
            let hops = it.plane.hops().count() as u64;
            let audit = it.audit().clone();
            (items::fibs(&it.plane), items::feeds(it), ports, hops, neighbors, audit)
        });
        let gone = || "the control thread does not answer".to_owned();
        let (fibs, feeds, ports, hops, neighbors, audit) = found.ok_or_else(gone)?;
        let interfaces = items::interfaces(&ports, &look.view)?;
        let fib = |item| if let Item::Fib(it) = item { Some(it) } else { None };
        let feed = |item| if let Item::Feed(it) = item { Some(it) } else { None };
        let interface = |item| if let Item::Interface(it) = item { Some(it) } else { None };
        Ok(Self {
            uptime: start.elapsed().as_secs_f64(),
            workers: look.view.worker_stats(),
            fibs: fibs.into_iter().filter_map(fib).collect(),
            feeds: feeds.into_iter().filter_map(feed).collect(),
            interfaces: interfaces.into_iter().filter_map(interface).collect(),
            neighbors,
            hops,
            audit,
            role: look.role.clone(),
            watched,
        })
    }

    fn reply(self, openmetrics: bool) -> HttpResponse {
        let mut registry = Registry::with_prefix("fingerpost");
        registry.register_collector(Box::new(self));
        let mut own = Registry::default();
        own.register_collector(Box::new(Process::read()));
        let mut body = String::new();
        let written = text::encode_registry(&mut body, &registry)
            .and_then(|()| text::encode_registry(&mut body, &own))
            .and_then(|()| text::encode_eof(&mut body));
        if written.is_err() {
            return HttpResponse::text(500, "the metrics cannot be written");
        }
        if openmetrics {
            let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            return HttpResponse { status: 200, kind, body: body.into() };
        }
        HttpResponse {
            status: 200,
            kind: "text/plain; version=0.0.4; charset=utf-8",
            body: classic(&body).into(),
        }
    }
}

impl Collector for Gathered {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut to = Writer(encoder);
        let version = [([("version", env!("CARGO_PKG_VERSION"))], 1)];
        to.gauge(&family("build_info", "Version of the program; always 1"), version)?;
        let up = Family {
            unit: Some(Unit::Seconds),
            ..family("uptime", "Time since the start of the program")
        };
        to.level(&up, [([], self.uptime)])?;
        self.encode_workers(&mut to)?;
        self.encode_tables(&mut to)?;
        self.encode_feeds(&mut to)?;
        let (checks, mismatches, heals) =
            (self.audit.checks, self.audit.mismatches, self.audit.heals);
        let metric = family(
            "audit_checks",
            "Destinations of packets that were compared with the routes and with the kernel's lookup",
        );
        to.counter(&metric, [([], checks)])?;
        let metric = family(
            "audit_mismatches",
            "Compared destinations that the kernel would send elsewhere; more than a few after \
             changes of routes are a bug: see `show audit`",
        );
        to.counter(&metric, [([], mismatches)])?;
        let metric = family(
            "audit_route_heals",
            "Mismatches healed by reading the routes of one destination; if it grows, `show audit`",
        );
        to.counter(&metric, [([], self.audit.route_heals)])?;
        let metric = family(
            "audit_heals",
            "Times that all routes were read again because a comparison failed",
        );
        to.counter(&metric, [([], heals)])?;
        self.encode_gate(&mut to)?;
        self.encode_grantor(&mut to)?;
        self.encode_distribution(&mut to)?;
        self.encode_interfaces(&mut to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::datapath::Verdict;

    fn gathered() -> Gathered {
        let mut worker = Snapshot { received: 7, received_bytes: 420, ..Snapshot::default() };
        worker.verdicts[Verdict::NoRoute as usize] = 3;
        let fib = Fib {
            table: 254,
            family: "ipv4".into(),
            routes: 1_100_000,
            engine: "D18R".into(),
            bytes: 1 << 20,
            shared: false,
            generation: 9,
            full: None,
        };
        Gathered {
            uptime: 1.5,
            workers: vec![worker, Snapshot { received: 5, ..Snapshot::default() }],
            fibs: vec![fib],
            feeds: Vec::new(),
            interfaces: Vec::new(),
            neighbors: BTreeMap::from([("eth0".to_owned(), 2)]),
            hops: 4,
            role: Role::Router,
            watched: Watched::default(),
            audit: Audit { checks: 11, ..Audit::default() },
        }
    }

    #[test]
    fn counters_have_their_names_in_either_format() {
        let modern = gathered().reply(true);
        assert!(modern.body.ends_with("# EOF\n") && modern.kind.starts_with(OPENMETRICS));
        let old = gathered().reply(false);
        assert!(!old.body.contains("# EOF") && !old.body.contains("# UNIT"));
        for line in [
            "fingerpost_packets_received_total{worker=\"0\"} 7",
            "fingerpost_packets_received_total{worker=\"1\"} 5",
            "fingerpost_received_bytes_total{worker=\"0\"} 420",
            "fingerpost_packets_dropped_total{worker=\"0\",reason=\"no_route\"} 3",
            "fingerpost_table_size_bytes{table=\"254\",af=\"ipv4\"} 1048576.0",
            "fingerpost_uptime_seconds 1.5",
            "fingerpost_next_hops 4.0",
            "fingerpost_audit_checks_total 11",
        ] {
            for reply in [&modern, &old] {
                assert!(reply.body.lines().any(|it| it == line), "{line}\n{}", reply.body);
            }
        }
        assert!(modern.body.contains("# TYPE fingerpost_packets_received counter\n"));
        assert!(old.body.contains("# TYPE fingerpost_packets_received_total counter\n"));
        assert!(old.body.contains("# HELP fingerpost_packets_received_total Packets that"));
        assert!(old.body.contains("# TYPE fingerpost_table_size_bytes gauge\n"));
    }
}
