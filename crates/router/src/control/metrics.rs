//! Metrics: everything that is counted, in the words of Prometheus.
//!
//! ```text
//!   GET /metrics ─► Look: workers' counters, steering programs', control thread ─► Gathered ─► text
//! ```
//!
//! The names are those of its conventions (prometheus.io/docs/practices/naming): one prefix,
//! base units, `_total` on what only grows. Labels have few values (worker, reason, table,
//! interface): nothing is told by prefix. Everything is read from where `show` reads it,
//! so that sums equal its numbers.
//!
//! Two formats: OpenMetrics 1.0 where the client would have it (as Prometheus would), else the
//! text format 0.0.4, for everybody else. They differ in that OpenMetrics names a counter's
//! family without `_total`, and ends with `# EOF`. The former is made by `prometheus-client`,
//! the latter from it ([`classic`]).

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::fmt::Write;
use std::time::Instant;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};

use super::answer;
use super::api::{Audit, Feed, Fib, Interface, Item};
use super::http::Reply;
use super::look::Look;
use crate::datapath::Class;
use crate::role::Role;
use crate::stats::Snapshot;
use crate::vantage::{About, is_gauge};

const OPENMETRICS: &str = "application/openmetrics-text";

/// Makes the page; `accept` is what the client would like to have.
pub(crate) fn page(look: &Look, start: Instant, accept: &str) -> Reply {
    match Gathered::gather(look, start) {
        Ok(gathered) => gathered.reply(accept.contains(OPENMETRICS)),
        Err(words) => Reply::words(503, &words),
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
    neighbours: BTreeMap<String, u64>,
    hops: u64,
    audit: Audit,
    role: Role,
}

impl Gathered {
    fn gather(look: &Look, start: Instant) -> Result<Self, String> {
        let found = look.control.ask(|it| {
            let mut neighbours = BTreeMap::new();
            for (index, ..) in it.plane.neighbours() {
                let name = it.plane.ports().get(index).map(|port| port.name.clone());
                *neighbours.entry(name.unwrap_or_default()).or_insert(0) += 1;
            }
            let ports = it.plane.ports().clone();
            let hops = it.plane.ways().count() as u64;
            let audit = it.audit().clone();
            (answer::fibs(&it.plane), answer::feeds(it), ports, hops, neighbours, audit)
        });
        let gone = || "the control thread does not answer".to_owned();
        let (fibs, feeds, ports, hops, neighbours, audit) = found.ok_or_else(gone)?;
        let interfaces = answer::interfaces(&ports, &look.view)?;
        let fib = |item| if let Item::Fib(it) = item { Some(it) } else { None };
        let feed = |item| if let Item::Feed(it) = item { Some(it) } else { None };
        let interface = |item| if let Item::Interface(it) = item { Some(it) } else { None };
        Ok(Self {
            uptime: start.elapsed().as_secs_f64(),
            workers: look.view.worker_stats(),
            fibs: fibs.into_iter().filter_map(fib).collect(),
            feeds: feeds.into_iter().filter_map(feed).collect(),
            interfaces: interfaces.into_iter().filter_map(interface).collect(),
            neighbours,
            hops,
            audit,
            role: look.role.clone(),
        })
    }

    fn reply(self, openmetrics: bool) -> Reply {
        let mut registry = Registry::with_prefix("fingerpost");
        registry.register_collector(Box::new(self));
        let mut body = String::new();
        if prometheus_client::encoding::text::encode(&mut body, &registry).is_err() {
            return Reply::words(500, "the metrics cannot be written");
        }
        if openmetrics {
            let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            return Reply { status: 200, kind, body: body.into() };
        }
        Reply {
            status: 200,
            kind: "text/plain; version=0.0.4; charset=utf-8",
            body: classic(&body).into(),
        }
    }
}

/// What a family of metrics is.
struct Family<'a> {
    name: &'a str,
    help: &'a str,
    unit: Option<Unit>,
}

fn family<'a>(name: &'a str, help: &'a str) -> Family<'a> {
    Family { name, help, unit: None }
}

fn bytes<'a>(name: &'a str, help: &'a str) -> Family<'a> {
    Family { name, help, unit: Some(Unit::Bytes) }
}

/// Labels of one metric, and its value.
type Value<'a, const N: usize> = ([(&'static str, &'a str); N], u64);

/// Writes families.
struct Writer<'a>(DescriptorEncoder<'a>);

impl Writer<'_> {
    fn counter<'v, const N: usize>(
        &mut self,
        it: &Family<'_>,
        values: impl IntoIterator<Item = Value<'v, N>>,
    ) -> fmt::Result {
        let kind = MetricType::Counter;
        let mut family = self.0.encode_descriptor(it.name, it.help, it.unit.as_ref(), kind)?;
        for (labels, value) in values {
            if N == 0 {
                return ConstCounter::new(value).encode(family);
            }
            ConstCounter::new(value).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }

    fn gauge<'v, const N: usize>(
        &mut self,
        it: &Family<'_>,
        values: impl IntoIterator<Item = Value<'v, N>>,
    ) -> fmt::Result {
        let kind = MetricType::Gauge;
        let mut family = self.0.encode_descriptor(it.name, it.help, it.unit.as_ref(), kind)?;
        for (labels, value) in values {
            // A float: the crate's integers are signed, and these are below 2^53.
            if N == 0 {
                return ConstGauge::new(value as f64).encode(family);
            }
            ConstGauge::new(value as f64).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

impl Collector for Gathered {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut to = Writer(encoder);
        let version = [([("version", env!("CARGO_PKG_VERSION"))], 1)];
        to.gauge(&family("build_info", "What was built; always 1"), version)?;
        let up = Family { unit: Some(Unit::Seconds), ..family("uptime", "Since the start") };
        let gauge =
            to.0.encode_descriptor(up.name, up.help, up.unit.as_ref(), MetricType::Gauge)?;
        ConstGauge::new(self.uptime).encode(gauge)?;
        self.encode_workers(&mut to)?;
        self.encode_tables(&mut to)?;
        self.encode_feeds(&mut to)?;
        let (checks, mismatches, heals) =
            (self.audit.checks, self.audit.mismatches, self.audit.heals);
        let it = family("audit_checks", "Destinations held against the routes and the kernel");
        to.counter(&it, [([], checks)])?;
        let it = family("audit_mismatches", "Those that did not go where they should");
        to.counter(&it, [([], mismatches)])?;
        let it = family("audit_heals", "Times that everything was read anew for it");
        to.counter(&it, [([], heals)])?;
        self.encode_gate(&mut to)?;
        self.encode_grantor(&mut to)?;
        self.encode_distribution(&mut to)?;
        self.encode_interfaces(&mut to)
    }
}

impl Gathered {
    fn encode_workers(&self, to: &mut Writer<'_>) -> fmt::Result {
        let names: Vec<String> = (0..self.workers.len()).map(|it| it.to_string()).collect();
        let each = |value: fn(&Snapshot) -> u64| {
            let values = names.iter().zip(&self.workers);
            values.map(move |(name, it)| ([("worker", name.as_str())], value(it)))
        };
        let it = family("packets_received", "Packets that a worker took from its ports");
        to.counter(&it, each(|it| it.received))?;
        to.counter(&bytes("received", "Bytes of them"), each(|it| it.received_bytes))?;
        to.counter(&family("packets_sent", "Packets sent"), each(Snapshot::sent))?;
        to.counter(&bytes("sent", "Bytes of them"), each(|it| it.sent_bytes))?;
        for (name, help, class) in [
            ("packets_punted", "Packets handed to the kernel", Class::Punted),
            ("packets_dropped", "Packets dropped", Class::Dropped),
        ] {
            let workers = names.iter().zip(&self.workers);
            let values = workers.flat_map(|(name, it)| {
                let verdicts = it.iter().filter(move |(verdict, _)| verdict.class() == class);
                verdicts.map(move |(verdict, count)| {
                    ([("worker", name.as_str()), ("reason", verdict.name())], count)
                })
            });
            to.counter(&family(name, help), values)?;
        }
        let it = family("packets_held", "Packets that wait for a neighbour's MAC");
        to.gauge(&it, each(|it| it.held))?;
        let lookups = names.iter().zip(&self.workers).flat_map(|(name, it)| {
            let of = |af, count| ([("worker", name.as_str()), ("af", af)], count);
            [of("ipv4", it.lookups_v4), of("ipv6", it.lookups_v6)]
        });
        to.counter(&family("lookups", "Destinations looked up"), lookups)?;
        let it = family("batches", "Batches of at least one packet");
        to.counter(&it, each(|it| it.batches))?;
        let it = family("polls", "Turns over all ports, with or without packets");
        to.counter(&it, each(|it| it.polls))
    }

    fn encode_tables(&self, to: &mut Writer<'_>) -> fmt::Result {
        let numbers: Vec<String> = self.fibs.iter().map(|it| it.table.to_string()).collect();
        let each = |value: fn(&Fib) -> u64| {
            let values = numbers.iter().zip(&self.fibs);
            values.map(move |(number, it)| {
                ([("table", number.as_str()), ("af", it.family.as_str())], value(it))
            })
        };
        to.gauge(&family("table_routes", "Routes of a table"), each(|it| it.routes))?;
        let it = bytes(
            "table_size",
            "What lookups in a table may touch, with the tables that share its memory",
        );
        to.gauge(&it, each(|it| it.bytes))?;
        let it = family("table_generation", "Publications of a table so far");
        to.gauge(&it, each(|it| it.generation))?;
        let it = family("table_full", "1 if the last changes found no room in the engine");
        to.gauge(&it, each(|it| u64::from(it.full.is_some())))?;
        let engines = numbers.iter().zip(&self.fibs).map(|(number, it)| {
            let engine = ("engine", it.engine.as_str());
            ([("table", number.as_str()), ("af", it.family.as_str()), engine], 1)
        });
        to.gauge(&family("table_info", "The engine of a table; always 1"), engines)?;
        to.gauge(&family("next_hops", "Next hops in use"), [([], self.hops)])
    }

    fn encode_feeds(&self, to: &mut Writer<'_>) -> fmt::Result {
        let each = |value: fn(&Feed) -> u64| {
            self.feeds.iter().map(move |it| ([("feed", it.name.as_str())], value(it)))
        };
        to.counter(&family("feed_messages", "Messages read"), each(|it| it.messages))?;
        let it = family("feed_overruns", "Times that messages were lost for want of room");
        to.counter(&it, each(|it| it.overruns))?;
        let it = family("feed_resynchronisations", "Times that everything was read anew");
        to.counter(&it, each(|it| it.resynchronisations))?;
        let it = family("feed_damaged", "Messages that made no sense");
        to.counter(&it, each(|it| it.damaged))?;
        let it = family("feed_troubles", "Times that the system refused something");
        to.counter(&it, each(|it| it.troubles))?;
        // Of all feeds together: the first says the same as the others.
        let first =
            |value: fn(&Feed) -> u64| self.feeds.iter().take(1).map(move |it| ([], value(it)));
        to.counter(
            &family("changes", "Changes taken over from the feeds"),
            first(|it| it.changes),
        )?;
        let it = family("commits", "Commits that published something");
        to.counter(&it, first(|it| it.commits))
    }

    fn encode_gate(&self, to: &mut Writer<'_>) -> fmt::Result {
        let Ok(gate) = self.role.gate() else { return Ok(()) };
        let numbers = gate.numbers();
        let of = |about| {
            let all = numbers.iter().filter(move |it| it.0 == about);
            all.map(|&(_, name, value)| ([("verdict", name)], value))
        };
        let it = family("gate_packets", "Packets that the gate judged, by its verdict");
        to.counter(&it, of(About::Packets))?;
        to.counter(&bytes("gate", "Bytes of them"), of(About::Bytes))?;
        for (about, part) in [(About::Table, "flow_table"), (About::Link, "link")] {
            for &(_, name, value) in numbers.iter().filter(|it| it.0 == about) {
                let name_of = format!("gate_{part}_{name}");
                let it = family(&name_of, "Of the gate's table and link: see the guide");
                if is_gauge(about, name) {
                    to.gauge(&it, [([], value)])?;
                } else {
                    to.counter(&it, [([], value)])?;
                }
            }
        }
        let heard = gate.heard();
        let decided = numbers.iter().filter(|it| it.0 == About::Decisions);
        let all = decided.map(|it| (it.1, it.2)).chain(heard);
        let it = family("gate_decisions", "What grantors have said, and what came of it");
        to.counter(&it, all.map(|(name, value)| ([("what", name)], value)))?;
        let each: Vec<_> = gate
            .grantors()
            .into_iter()
            .map(|(at, gone)| (at.to_string(), u64::from(gone)))
            .collect();
        let it = family("gate_grantor_silent", "It is taken to be gone, and gets no flows");
        to.gauge(&it, each.iter().map(|(at, gone)| ([("grantor", at.as_str())], *gone)))?;
        let programs: Vec<_> = gate
            .programs()
            .into_iter()
            .filter(|it| it.state == "in_force")
            .map(|it| (it.number.to_string(), it.origin, it.digest))
            .collect();
        let it = family("gate_program", "A flow program that decisions may name");
        let labels = programs.iter().map(|(number, origin, digest)| {
            let labels = [("number", number), ("origin", origin), ("sha256", digest)];
            (labels.map(|(name, value)| (name, value.as_str())), 1)
        });
        to.gauge(&it, labels)?;
        let (generation, reloads, refused) = gate.policy();
        to.gauge(&family("gate_policy_generation", "The policy in force"), [([], generation)])?;
        to.counter(&family("gate_reloads", "Policies read anew"), [([], reloads)])?;
        let it = family("gate_reloads_refused", "Those that were not taken over");
        to.counter(&it, [([], refused)])
    }

    fn encode_grantor(&self, to: &mut Writer<'_>) -> fmt::Result {
        let Ok(grantor) = self.role.grantor() else { return Ok(()) };
        let told = grantor.told();
        let by = |numbers: &'_ BTreeMap<String, u64>| -> Vec<(String, u64)> {
            numbers.iter().map(|(name, value)| (name.clone(), *value)).collect()
        };
        let (memory, said): (Vec<_>, Vec<_>) =
            by(&told.policy).into_iter().partition(|(name, _)| name == "memory_bytes");
        let it = family("grantor_policy", "What the policy said of requests");
        to.counter(&it, said.iter().map(|(name, value)| ([("what", name.as_str())], *value)))?;
        to.gauge(
            &bytes("grantor_memory", "What the policies have in use"),
            memory.iter().map(|it| ([], it.1)),
        )?;
        let post = by(&told.post);
        let it = family("grantor_decisions", "Decisions on their way to the gates");
        to.counter(&it, post.iter().map(|(name, value)| ([("what", name.as_str())], *value)))?;
        let it = family("grantor_reloads", "Policies read anew");
        to.counter(&it, [([], told.reloads)])?;
        let it = family("grantor_reloads_refused", "Those that were not taken over");
        to.counter(&it, [([], told.reloads_refused)])?;
        let programs: Vec<_> = grantor
            .programs()
            .into_iter()
            .filter_map(|it| {
                Some((it.gate?.to_string(), it.number.to_string(), it.name?, it.state))
            })
            .collect();
        let it = family("grantor_program", "How it stands with a flow program at a gate");
        let labels = programs.iter().map(|(gate, number, name, state)| {
            let labels = [("gate", gate), ("number", number), ("program", name), ("state", state)];
            (labels.map(|(name, value)| (name, value.as_str())), 1)
        });
        to.gauge(&it, labels)?;
        let Some(shadow) = &told.shadow else { return Ok(()) };
        // They begin anew with each candidate.
        let it =
            family("grantor_candidate_requests", "Requests that the candidate was asked about");
        to.gauge(&it, [([], shadow.requests)])?;
        let changes = by(&shadow.changes);
        let it = family("grantor_candidate_changes", "Those that it says something else of");
        to.gauge(&it, changes.iter().map(|(name, value)| ([("change", name.as_str())], *value)))
    }

    fn encode_distribution(&self, to: &mut Writer<'_>) -> fmt::Result {
        let Ok(board) = self.role.distribution() else { return Ok(()) };
        let told = board.told();
        let it = family("distribution_version", "The bundle in force; 0 for none");
        to.gauge(&it, [([], told.version.unwrap_or(0))])?;
        let it = family("distribution_floor", "The highest version that was ever taken over");
        to.gauge(&it, [([], told.floor)])?;
        let it = family("distribution_state", "The state that a member is in; always 1");
        to.gauge(&it, [([("state", told.state.as_str())], 1)])?;
        let it = family("distribution_trouble", "1 while the source gives nothing that is sound");
        to.gauge(&it, [([], u64::from(told.trouble.is_some()))])?;
        let it = family("distribution", "What became of bundles: see the guide");
        let counts = told.counts.iter();
        to.counter(&it, counts.map(|(what, count)| ([("what", what.as_str())], *count)))
    }

    fn encode_interfaces(&self, to: &mut Writer<'_>) -> fmt::Result {
        let steered = self.interfaces.iter().flat_map(|it| {
            let name = it.name.as_str();
            it.steered.iter().map(move |(reason, &count)| {
                ([("interface", name), ("reason", reason.as_str())], count)
            })
        });
        let it =
            family("steered_packets", "Packets that came in, by what the steering program did");
        to.counter(&it, steered)?;
        let each = |value: fn(&Interface) -> u64| {
            self.interfaces.iter().map(move |it| ([("interface", it.name.as_str())], value(it)))
        };
        let it = family("interface_up", "1 if packets can leave on it");
        to.gauge(&it, each(|it| u64::from(it.up)))?;
        let it = family("interface_observed", "1 if its packets are left to the kernel");
        to.gauge(&it, each(|it| u64::from(it.observe)))?;
        let it = bytes("interface_mtu", "The largest packet");
        to.gauge(&it, each(|it| it.mtu.into()))?;
        let neighbours =
            self.neighbours.iter().map(|(name, &count)| ([("interface", name.as_str())], count));
        to.gauge(&family("neighbours", "Neighbours whose MAC is known"), neighbours)
    }
}

/// Makes the text format 0.0.4 of OpenMetrics: counters' families have the names of their
/// samples, units are not told apart, and nothing marks the end.
fn classic(openmetrics: &str) -> String {
    let word = |line: &str, at: usize| line.split(' ').nth(at).unwrap_or_default().to_owned();
    let types = openmetrics.lines().filter(|line| line.starts_with("# TYPE "));
    let counters: HashSet<String> =
        types.filter(|line| word(line, 3) == "counter").map(|line| word(line, 2)).collect();
    let mut text = String::with_capacity(openmetrics.len() + 64 * counters.len());
    for line in openmetrics.lines() {
        let about = line.starts_with("# HELP ") || line.starts_with("# TYPE ");
        let name = word(line, 2);
        if about && counters.contains(&name) {
            let rest = &line["# HELP ".len() + name.len()..];
            // Writing to a string does not fail.
            let _ = writeln!(text, "{}{name}_total{rest}", &line[.."# HELP ".len()]);
        } else if about || !line.starts_with('#') {
            text.push_str(line);
            text.push('\n');
        }
    }
    text
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
            neighbours: BTreeMap::from([("eth0".to_owned(), 2)]),
            hops: 4,
            role: Role::Router,
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
