//! The page: what a router or a gate does, in a browser, while it does it.
//!
//! ```text
//!   watch: a second ─► History (15 minutes of numbers), Attacks (when, how much)
//!          a quarter ─► Destinations (samples of the last seconds)
//!                              │
//!   browser ─ GET ─► Web ──────┼─► /             the page: HTML, CSS and scripts in the program
//!                              ├─► /api/history, attacks, destinations, about      JSON
//!                              ├─► /api/gate, grantor, …    JSON, the items of `show … -j`
//!                              └─► /metrics                 for Prometheus
//! ```
//!
//! Everything can be looked at and nothing done: whoever makes the answers holds a [`Look`].
//! What is kept is of a fixed size, and kept from the start on, so that a page opened late
//! shows how an attack began; over a restart too, where it is kept in a file (`kept.rs`). The workers pay for their samples (`vantage/sampler.rs`) and for
//! nothing else.
//!
//! The page's files are what the browser gets, word for word; its scripts put text into it as
//! text, never as HTML, because names and versions are whatever somebody wrote in a file. Shapes
//! of the answers: fields may be added, none changes its meaning.

mod attack;
mod history;
mod kept;
mod page;
mod top;
mod watch;

use std::io;
use std::time::{Instant, SystemTime};

use serde::Serialize;

use crate::config::Metrics;
use crate::control::api::Request;
use crate::control::http::{HttpRequest, HttpResponse, Pages};
use crate::control::metrics::{self, Watched};
use crate::control::query::QueryHandle;
#[cfg(test)]
pub(crate) use top::Destination;
pub(crate) use top::Told as Destinations;
use watch::Watch;

/// Who makes the pages.
#[derive(Debug)]
pub(crate) struct Web {
    look: QueryHandle,
    start: Instant,
    began: SystemTime,
    watch: Watch,
}

/// What this is.
#[derive(Debug, Serialize)]
struct About {
    /// `gate`, `grantor` or `router`.
    role: &'static str,
    /// Its policies come as bundles.
    distribution: bool,
    version: &'static str,
    /// Seconds since the start.
    uptime: f64,
    /// When that was, in seconds since 1970: another is another process.
    began: f64,
    /// Now, by the same clock.
    now: f64,
    /// Seconds that the history has at the most.
    history: usize,
    /// What is taken for an attack.
    rule: attack::Rule,
}

/// Returns the seconds since 1970.
fn unix(time: SystemTime) -> f64 {
    time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

impl Web {
    /// Starts the watch. With `metrics` it takes samples of packets for the page, and keeps the
    /// history where they say; without, it only logs attacks.
    ///
    /// # Errors
    ///
    /// The system's.
    pub(crate) fn start(look: QueryHandle, metrics: Option<&Metrics>) -> io::Result<Self> {
        let watch = Watch::start(look.view.clone(), look.role.clone(), metrics)?;
        Ok(Self { look, start: Instant::now(), began: SystemTime::now(), watch })
    }

    /// Ends the watch, the history being kept.
    pub(crate) fn end(&self) {
        self.watch.end();
    }

    /// Takes what an operator should know.
    pub(crate) fn news(&self) -> Vec<String> {
        self.watch.news()
    }

    fn about(&self) -> About {
        About {
            role: self.look.role.name(),
            distribution: self.look.role.distribution().is_ok(),
            version: env!("CARGO_PKG_VERSION"),
            uptime: self.start.elapsed().as_secs_f64(),
            began: unix(self.began),
            now: unix(SystemTime::now()),
            history: history::SECONDS,
            rule: attack::RULE,
        }
    }

    /// Answers as `show … -j` does: an array of what is inside the items.
    fn show(&self, request: &Request) -> HttpResponse {
        let items = match self.look.query(request) {
            Ok(items) => items,
            Err(words) => return HttpResponse::text(503, &words),
        };
        let inside = |item| match serde_json::to_value(item) {
            Ok(serde_json::Value::Object(item)) => item.into_iter().map(|(_, it)| it).next(),
            _ => None,
        };
        json(&items.iter().filter_map(inside).collect::<Vec<_>>())
    }
}

/// Writes something as JSON.
fn json(what: &impl Serialize) -> HttpResponse {
    match serde_json::to_string(what) {
        Ok(body) => HttpResponse { status: 200, kind: "application/json", body: body.into() },
        Err(error) => HttpResponse::text(500, &format!("this cannot be written: {error}")),
    }
}

/// Finds the number after `since=`, by which a page says what it has of the history.
fn since(query: &str) -> u64 {
    let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let since = pairs.find(|(name, _)| *name == "since");
    since.and_then(|(_, value)| value.parse().ok()).unwrap_or(0)
}

impl Pages for Web {
    fn page(&self, wish: &HttpRequest) -> HttpResponse {
        let request = match wish.path.as_str() {
            "/metrics" => {
                let watched = self.watch.with(|seen| Watched {
                    destinations: seen.top.told(),
                    attack: seen.attacks.current().is_some(),
                    attacks: seen.attacks.begun(),
                });
                return metrics::page(&self.look, self.start, watched, &wish.accept);
            }
            "/api/about" => return json(&self.about()),
            "/api/history" => {
                let since = since(&wish.query);
                return self.watch.with(|seen| json(&seen.history.since(since)));
            }
            "/api/attacks" => return self.watch.with(|seen| json(seen.attacks.told())),
            "/api/destinations" => return self.watch.with(|seen| json(&seen.top.told())),
            "/api/gate" => Request::Gate,
            "/api/grantor" => Request::Grantor,
            "/api/distribution" => Request::Distribution,
            "/api/programs" => Request::Programs,
            "/api/counters" => Request::Counters,
            "/api/workers" => Request::Workers,
            "/api/fib" => Request::Fib,
            "/api/feeds" => Request::Feeds,
            "/api/interfaces" => Request::Interfaces,
            "/api/audit" => Request::Audit,
            path => return page::find(path),
        };
        self.show(&request)
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_query_is_read_or_taken_for_none() {
        for (query, number) in
            [("since=17", 17), ("a=1&since=3", 3), ("", 0), ("since=", 0), ("since=-1", 0)]
        {
            assert_eq!(super::since(query), number, "{query}");
        }
    }
}
