//! Exports the metrics for Prometheus.
//!
//! ```text
//!   GET /metrics ─► QueryHandle: worker and steering counters, control thread ─► Scrape ─► text
//! ```
//!
//! The names follow the conventions (prometheus.io/docs/practices/naming): one prefix, base
//! units, `_total` on counters. Labels have few values (worker, reason, table, interface) or a
//! bounded number: the first 256 prefixes of a gate's policy, and the 20 destinations with most
//! packets. All values come from the source of `show`, so that the sums are equal.
//!
//! Two formats: OpenMetrics 1.0 for clients that accept it, as Prometheus does, and the text format
//! 0.0.4 for others. In OpenMetrics the family of a counter has no `_total`, and the text ends with
//! `# EOF`. `prometheus-client` writes the former, `exposition.rs` converts it to the latter.
//!
//! | file | content |
//! |---|---|
//! | `router` | workers, tables, feeds, interfaces |
//! | `distribution` | bundles of policies, of a gate or a grantor |
//! | `process` | memory, processor time and descriptors, by the standard names |
//!
//! The metrics of a role are in its own crate ([`Role::encode_metrics`]), those of the page's
//! recorder in the page's ([`MetricSet`]).

mod access;
mod block_lists;
mod distribution;
mod egress_queues;
mod process;
mod router;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, text};
use prometheus_client::registry::{Registry, Unit};

use super::access::{ListView, views};
use super::exposition::{Family, Writer, classic, family};
use super::http_message::HttpResponse;
use super::items;
use super::query::QueryHandle;
use crate::role::Role;
use api::{Audit, BlockList, Feed, Fib, Interface, Item};
pub use block_lists::encode_block_lists;
use datapath::stats::Snapshot;
pub use distribution::encode_distribution;
use flowspec::SpeakerStatus;
use process::Process;

const OPENMETRICS: &str = "application/openmetrics-text";

/// Metrics that a part outside of the control plane adds to a scrape.
pub trait MetricSet: fmt::Debug + Send + Sync {
    /// Writes the metrics.
    ///
    /// # Errors
    ///
    /// Those of the encoder.
    fn encode(&self, to: &mut Writer<'_>) -> fmt::Result;
}

/// Answers a scrape with the metrics of the daemon, of its role and of `more`; `accept` is the
/// header of the request.
pub fn respond(
    query: &QueryHandle,
    start: Instant,
    more: Box<dyn MetricSet>,
    accept: &str,
) -> HttpResponse {
    match Scrape::gather(query, start, more) {
        Ok(scrape) => encode_response(Box::new(scrape), accept.contains(OPENMETRICS)),
        Err(error) => HttpResponse::text(503, &error),
    }
}

/// Answers a scrape of a process that is no daemon, with `metrics`, those of its version and those of the process.
pub fn respond_with(start: Instant, metrics: Box<dyn MetricSet>, accept: &str) -> HttpResponse {
    let uptime = start.elapsed().as_secs_f64();
    encode_response(Box::new(ProgramMetrics { uptime, metrics }), accept.contains(OPENMETRICS))
}

/// The metrics of a process that is no daemon.
#[derive(Debug)]
struct ProgramMetrics {
    uptime: f64,
    metrics: Box<dyn MetricSet>,
}

impl Collector for ProgramMetrics {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut to = Writer(encoder);
        encode_program(self.uptime, &mut to)?;
        self.metrics.encode(&mut to)
    }
}

/// Writes the metrics of the program itself.
fn encode_program(uptime: f64, to: &mut Writer<'_>) -> fmt::Result {
    let version = [([("version", env!("CARGO_PKG_VERSION"))], 1)];
    let help = "Version of the program, in a label; always 1: more than one version in a fleet \
                is an upgrade that is not complete";
    to.gauge(&family("build_info", help), version)?;
    let up = Family {
        unit: Some(Unit::Seconds),
        ..family("uptime", "Time since the start of the program; a smaller value is a restart")
    };
    to.level(&up, [([], uptime)])
}

/// Encodes metrics, and those of the process, as OpenMetrics or in the text format.
fn encode_response(metrics: Box<dyn Collector>, openmetrics: bool) -> HttpResponse {
    let mut registry = Registry::with_prefix("fingerpost");
    registry.register_collector(metrics);
    let mut own = Registry::default();
    own.register_collector(Box::new(Process::read()));
    let mut body = String::new();
    let written = text::encode_registry(&mut body, &registry)
        .and_then(|()| text::encode_registry(&mut body, &own))
        .and_then(|()| text::encode_eof(&mut body));
    if written.is_err() {
        return HttpResponse::text(500, "cannot encode the metrics");
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

/// All values at one moment.
#[derive(Debug)]
struct Scrape {
    uptime: f64,
    workers: Vec<Snapshot>,
    fibs: Vec<Fib>,
    feeds: Vec<Feed>,
    interfaces: Vec<Interface>,
    neighbors: BTreeMap<String, u64>,
    hops: u64,
    audit: Audit,
    access_lists: Vec<ListView>,
    egress_queues: Vec<api::EgressQueue>,
    flowspec: Option<SpeakerStatus>,
    block_lists: Vec<BlockList>,
    role: Arc<dyn Role>,
    more: Box<dyn MetricSet>,
}

impl Scrape {
    fn gather(
        query: &QueryHandle,
        start: Instant,
        more: Box<dyn MetricSet>,
    ) -> Result<Self, String> {
        let result = query.control.call(|sync| {
            let plane = &sync.plane;
            let mut neighbors = BTreeMap::new();
            for (index, ..) in plane.neighbors() {
                let name = plane.ports().get(index).map(|port| port.name.clone());
                *neighbors.entry(name.unwrap_or_default()).or_insert(0) += 1;
            }
            let ports = plane.ports().clone();
            let hops = plane.hops().count() as u64;
            let audit = sync.audit().clone();
            let lists = views(plane, None).unwrap_or_default();
            (items::fibs(plane), items::feeds(sync), ports, hops, neighbors, audit, lists)
        });
        let no_answer = || "the control thread does not answer".to_owned();
        let (fibs, feeds, ports, hops, neighbors, audit, access_lists) =
            result.ok_or_else(no_answer)?;
        let interfaces = items::interfaces(&ports, &query.view)?;
        let fib = |item| if let Item::Fib(fib) = item { Some(fib) } else { None };
        let feed = |item| if let Item::Feed(feed) = item { Some(feed) } else { None };
        let interface =
            |item| if let Item::Interface(interface) = item { Some(interface) } else { None };
        Ok(Self {
            uptime: start.elapsed().as_secs_f64(),
            workers: query.view.worker_stats(),
            fibs: fibs.into_iter().filter_map(fib).collect(),
            feeds: feeds.into_iter().filter_map(feed).collect(),
            interfaces: interfaces.into_iter().filter_map(interface).collect(),
            neighbors,
            hops,
            audit,
            access_lists,
            egress_queues: query.view.egress_queues(&ports),
            flowspec: query.flowspec.reader().map(|reader| reader.read()),
            block_lists: query.block_lists.status(),
            role: Arc::clone(&query.role),
            more,
        })
    }
}

impl Collector for Scrape {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut to = Writer(encoder);
        encode_program(self.uptime, &mut to)?;
        self.encode_workers(&mut to)?;
        self.encode_access_lists(&mut to)?;
        self.encode_egress_queues(&mut to)?;
        self.encode_flowspec(&mut to)?;
        encode_block_lists(&self.block_lists, &mut to)?;
        self.encode_tables(&mut to)?;
        self.encode_feeds(&mut to)?;
        let (checks, mismatches, heals) =
            (self.audit.checks, self.audit.mismatches, self.audit.heals);
        let metric = family(
            "audit_checks",
            "Destinations of packets that were compared with the routes and with the kernel's \
             lookup; grows while packets pass and few routes change",
        );
        to.counter(&metric, [([], checks)])?;
        let metric = family(
            "audit_mismatches",
            "Compared destinations that the kernel would forward differently; more than a few are \
             a bug or a policy rule that the router cannot follow: `show audit` has the last one",
        );
        to.counter(&metric, [([], mismatches)])?;
        let metric = family(
            "audit_route_heals",
            "Mismatches healed by reading the routes of one destination again; if it grows, the \
             cause persists: `show audit` has the last mismatch",
        );
        to.counter(&metric, [([], self.audit.route_heals)])?;
        let metric = family(
            "audit_heals",
            "Times that all routes were read again because mismatches repeated; if it grows, please \
             report the mismatch that the log and `show audit` have",
        );
        to.counter(&metric, [([], heals)])?;
        self.role.encode_metrics(&mut to)?;
        self.more.encode(&mut to)?;
        self.encode_interfaces(&mut to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::role::PlainRouter;
    use datapath::{Class, Verdict};

    #[derive(Debug)]
    struct Nothing;

    impl MetricSet for Nothing {
        fn encode(&self, _: &mut Writer<'_>) -> fmt::Result {
            Ok(())
        }
    }

    fn scrape() -> Scrape {
        let mut worker = Snapshot { received: 7, received_bytes: 420, ..Snapshot::default() };
        worker.verdicts[Verdict::NoRoute] = 3;
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
        Scrape {
            uptime: 1.5,
            workers: vec![worker, Snapshot { received: 5, ..Snapshot::default() }],
            fibs: vec![fib],
            feeds: Vec::new(),
            interfaces: Vec::new(),
            neighbors: BTreeMap::from([("eth0".to_owned(), 2)]),
            hops: 4,
            role: Arc::new(PlainRouter),
            more: Box::new(Nothing),
            audit: Audit { checks: 11, ..Audit::default() },
            access_lists: Vec::new(),
            egress_queues: Vec::new(),
            flowspec: None,
            block_lists: Vec::new(),
        }
    }

    #[test]
    fn counters_have_their_names_in_either_format() {
        let modern = encode_response(Box::new(scrape()), true);
        assert!(modern.body.ends_with("# EOF\n") && modern.kind.starts_with(OPENMETRICS));
        let old = encode_response(Box::new(scrape()), false);
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
                assert!(reply.body.lines().any(|own| own == line), "{line}\n{}", reply.body);
            }
        }
        assert!(modern.body.contains("# TYPE fingerpost_packets_received counter\n"));
        assert!(old.body.contains("# TYPE fingerpost_packets_received_total counter\n"));
        assert!(old.body.contains("# HELP fingerpost_packets_received_total Packets that"));
        assert!(old.body.contains("# TYPE fingerpost_table_size_bytes gauge\n"));
    }

    #[test]
    fn every_verdict_is_a_sample_of_its_class() {
        let page = encode_response(Box::new(scrape()), true).body;
        for verdict in Verdict::ALL {
            let name = verdict.name();
            let sample = match verdict.class() {
                Class::Sent => "fingerpost_packets_sent_total{worker=\"0\"}".to_owned(),
                Class::Punted => {
                    format!("fingerpost_packets_punted_total{{worker=\"0\",reason=\"{name}\"}}")
                }
                Class::Dropped => {
                    format!("fingerpost_packets_dropped_total{{worker=\"0\",reason=\"{name}\"}}")
                }
            };
            assert_eq!(page.matches(&sample).count(), 1, "{sample}");
        }
    }
}
