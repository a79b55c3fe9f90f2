//! The web page of a router, a gate or a grantor, and its JSON API.
//!
//! ```text
//!   Recorder: a second ─► History (15 minutes of numbers), Attacks (times, rates)
//!          a quarter ─► DestinationStats (samples of the last seconds)
//!                              │
//!   browser ─ GET ─► Web ──────┼─► /             the page: HTML, CSS and scripts in the program
//!                              ├─► /api/history, attacks, destinations, about      JSON
//!                              ├─► /api/gate, grantor, …    JSON, the items of `show … -j`
//!                              └─► /metrics                 for Prometheus
//! ```
//!
//! The page is read-only: [`Web`] holds a [`QueryHandle`]. The recorded data have a fixed size and
//! start with the process, so that a page opened late shows the beginning of an attack; with
//! `[metrics] history_file` they survive a restart (`history_file.rs`). The only cost for workers
//! is sampling (`gatekeeper/src/sampler.rs`).
//!
//! The browser receives the page's files unchanged. Scripts insert text as text, never as HTML,
//! because names and versions come from configuration files. In the JSON API fields may be added,
//! none changes its meaning.

#![forbid(unsafe_code)]

mod attack;
mod destinations;
mod history;
pub mod history_file;
mod metrics;
mod page;
mod recorded;
mod recorder;

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use serde::Serialize;

use api::{AttackReport, Request};
use config::Metrics;
use control::daemon::Page;
use control::http_message::{HttpRequest, HttpResponse, RequestHandler};
use control::metrics as control_metrics;
use control::query::QueryHandle;
use gate::sample::PacketSample;
use metrics::RecorderMetrics;
use recorder::Recorder;

/// The source of packet samples, and of attacks: a gate.
pub trait SampleSource: fmt::Debug + Send + Sync {
    /// Passes the samples that the workers have taken to `take`.
    fn drain_samples(&self, take: &mut dyn FnMut(PacketSample));

    /// Takes the report of the current attack, each second, and at its end.
    fn report_attack(&self, report: AttackReport);
}

/// Answers the requests of browsers and of Prometheus.
#[derive(Debug)]
pub struct Web {
    query: QueryHandle,
    start: Instant,
    began: SystemTime,
    recorder: Recorder,
}

/// The description of this process.
#[derive(Debug, Serialize)]
struct ProcessInfo {
    /// `gate`, `grantor` or `router`.
    role: &'static str,
    /// Whether its policies come as bundles.
    distribution: bool,
    version: &'static str,
    /// Seconds since the start.
    uptime: f64,
    /// The start time, in seconds since 1970: another value is another process.
    began: f64,
    /// The current time, by the same clock.
    now: f64,
    /// The length of the history, in seconds.
    history: usize,
    /// The rule by which attacks are detected.
    rule: attack::Rule,
}

/// Returns the seconds since 1970.
fn unix(time: SystemTime) -> f64 {
    time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

impl Web {
    /// Starts the recorder; `gate` is the gate whose samples it takes and whose attacks it detects, on a
    /// daemon that is one. With `metrics` it takes samples of packets for the page, and saves the
    /// history to the file that they name; without, it only logs attacks.
    ///
    /// # Errors
    ///
    /// The system's error.
    pub fn start(
        query: QueryHandle,
        metrics: Option<&Metrics>,
        gate: Option<Arc<dyn SampleSource>>,
    ) -> io::Result<Self> {
        let role = Arc::clone(&query.role);
        let recorder = Recorder::start(query.view.clone(), role, metrics, gate)?;
        Ok(Self { query, start: Instant::now(), began: SystemTime::now(), recorder })
    }

    fn about(&self) -> ProcessInfo {
        ProcessInfo {
            role: self.query.role.name(),
            distribution: self
                .query
                .role
                .show(&Request::Distribution)
                .is_some_and(|items| items.is_ok()),
            version: env!("CARGO_PKG_VERSION"),
            uptime: self.start.elapsed().as_secs_f64(),
            began: unix(self.began),
            now: unix(SystemTime::now()),
            history: history::SECONDS,
            rule: attack::RULE,
        }
    }

    /// Answers as `show … -j` does: with an array of the contents of the items.
    fn show(&self, request: &Request) -> HttpResponse {
        let items = match self.query.query(request) {
            Ok(items) => items,
            Err(error) => return HttpResponse::text(503, &error),
        };
        let content = |item| match serde_json::to_value(item) {
            Ok(serde_json::Value::Object(item)) => item.into_iter().map(|(_, value)| value).next(),
            _ => None,
        };
        json(&items.iter().filter_map(content).collect::<Vec<_>>())
    }
}

/// Makes a response of JSON.
fn json(value: &impl Serialize) -> HttpResponse {
    match serde_json::to_string(value) {
        Ok(body) => HttpResponse { status: 200, kind: "application/json", body: body.into() },
        Err(error) => HttpResponse::text(500, &format!("cannot encode the response: {error}")),
    }
}

/// Parses `since=`, the number of the last row of the history that the page has.
fn since(query: &str) -> u64 {
    let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let since = pairs.find(|(name, _)| *name == "since");
    since.and_then(|(_, value)| value.parse().ok()).unwrap_or(0)
}

impl Page for Web {
    fn end(&self) {
        self.recorder.end();
    }

    fn drain_notices(&self) -> Vec<String> {
        self.recorder.drain_notices()
    }
}

impl RequestHandler for Web {
    fn handle(&self, request: &HttpRequest) -> HttpResponse {
        let recorder = &self.recorder;
        let query = match request.path.as_str() {
            "/metrics" => {
                let metrics = recorder.with(|recorded| RecorderMetrics {
                    is_of_gate: recorder.is_of_gate(),
                    destinations: recorded.destinations.list(),
                    is_under_attack: recorded.attacks.current().is_some(),
                    attacks: recorded.attacks.begun(),
                });
                return control_metrics::respond(
                    &self.query,
                    self.start,
                    Box::new(metrics),
                    &request.accept,
                );
            }
            "/api/about" => return json(&self.about()),
            "/api/history" => {
                let since = since(&request.query);
                return recorder.with(|recorded| json(&recorded.history.since(since)));
            }
            "/api/attacks" => return recorder.with(|recorded| json(recorded.attacks.list())),
            "/api/destinations" => {
                return recorder.with(|recorded| json(&recorded.destinations.list()));
            }
            "/api/gate" => Request::Gate,
            "/api/grantor" => Request::Grantor,
            "/api/distribution" => Request::Distribution,
            "/api/programs" => Request::Programs,
            "/api/counters" => Request::Counters,
            "/api/workers" => Request::Workers,
            "/api/fib" => Request::Fib,
            "/api/feeds" => Request::Feeds,
            "/api/interfaces" => Request::Interfaces,
            "/api/block-lists" => Request::BlockLists,
            "/api/egress-queues" => Request::EgressQueues,
            "/api/flowspec" => Request::Flowspec,
            "/api/access-lists" => Request::AccessLists { name: None },
            "/api/audit" => Request::Audit,
            path => return page::find(path),
        };
        self.show(&query)
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn since_is_parsed_and_defaults_to_zero() {
        for (query, number) in
            [("since=17", 17), ("a=1&since=3", 3), ("", 0), ("since=", 0), ("since=-1", 0)]
        {
            assert_eq!(super::since(query), number, "{query}");
        }
    }
}
