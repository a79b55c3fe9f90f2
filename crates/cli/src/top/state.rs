//! What `top` shows: two looks at a router, and the rates between them.

use std::collections::BTreeMap;
use std::time::Instant;

use router::control::api::{Audit, Counters, Feed, Fib, Interface, Worker};

/// One look.
#[derive(Clone, Debug, Default)]
pub(super) struct Shown {
    pub(super) fibs: Vec<Fib>,
    pub(super) feeds: Vec<Feed>,
    pub(super) workers: Vec<Worker>,
    pub(super) interfaces: Vec<Interface>,
    pub(super) audit: Audit,
}

/// The last look, and the one before.
#[derive(Debug)]
pub(super) struct State {
    pub(super) now: Shown,
    before: Option<Shown>,
    at: Instant,
    /// Seconds between the two.
    between: f64,
    /// Since when a feed has said nothing, by its name: the messages it had by then.
    heard: BTreeMap<String, (u64, Instant)>,
    /// The caches of this machine's first core: name and bytes, the smallest first.
    pub(super) caches: Vec<(&'static str, u64)>,
}

/// A reason, how many packets had it, and how many a second.
pub(super) type Reason = (String, u64, f64);

impl State {
    pub(super) fn new(now: Shown, at: Instant) -> Self {
        let caches = fib::Caches::of_this_machine();
        let caches = vec![
            ("L1", caches.first as u64),
            ("L2", caches.second as u64),
            ("L3", caches.last as u64),
        ];
        let mut state =
            Self { now, before: None, at, between: 0.0, heard: BTreeMap::new(), caches };
        state.listen();
        state
    }

    /// Takes another look over.
    pub(super) fn next(&mut self, now: Shown, at: Instant) {
        self.between = at.duration_since(self.at).as_secs_f64();
        self.at = at;
        self.before = Some(std::mem::replace(&mut self.now, now));
        self.listen();
    }

    fn listen(&mut self) {
        for feed in &self.now.feeds {
            let heard = self.heard.entry(feed.name.clone()).or_insert((feed.messages, self.at));
            if heard.0 != feed.messages {
                *heard = (feed.messages, self.at);
            }
        }
    }

    /// Returns the seconds since a feed last said something, as far as was seen.
    pub(super) fn silent(&self, feed: &Feed) -> f64 {
        let heard = self.heard.get(&feed.name);
        heard.map_or(0.0, |(_, since)| self.at.duration_since(*since).as_secs_f64())
    }

    /// Returns a rate a second. What has become less has begun anew.
    fn rate(&self, before: Option<u64>, now: u64) -> f64 {
        match before {
            Some(before) if self.between > 0.0 => {
                now.checked_sub(before).unwrap_or(now) as f64 / self.between
            }
            _ => 0.0,
        }
    }

    /// Returns the counters of a worker, and those of the look before.
    fn counters(&self, worker: u64) -> (Option<&Counters>, Option<&Counters>) {
        let find = |shown: &'_ Shown| shown.workers.iter().position(|it| it.worker == worker);
        let now = find(&self.now).map(|at| &self.now.workers[at].counters);
        let before = self.before.as_ref();
        (now, before.and_then(|it| find(it).map(|at| &it.workers[at].counters)))
    }

    /// Returns a worker's packets received and sent, and bytes received and sent, a second.
    pub(super) fn worker(&self, worker: u64) -> [f64; 4] {
        let (Some(now), before) = self.counters(worker) else { return [0.0; 4] };
        [
            self.rate(before.map(|it| it.received), now.received),
            self.rate(before.map(|it| it.sent), now.sent),
            self.rate(before.map(|it| it.received_bytes), now.received_bytes),
            self.rate(before.map(|it| it.sent_bytes), now.sent_bytes),
        ]
    }

    /// Returns the same for all workers.
    pub(super) fn total(&self) -> [f64; 4] {
        let mut total = [0.0; 4];
        for worker in &self.now.workers {
            for (sum, one) in total.iter_mut().zip(self.worker(worker.worker)) {
                *sum += one;
            }
        }
        total
    }

    /// Lists the reasons for which packets were dropped or handed to the kernel, the quickest
    /// first.
    pub(super) fn reasons(&self) -> Vec<Reason> {
        let sum = |shown: &Shown| {
            let mut sums = BTreeMap::new();
            for counters in shown.workers.iter().map(|it| &it.counters) {
                for (class, reasons) in [("drop", &counters.dropped), ("punt", &counters.punted)] {
                    for (reason, count) in reasons {
                        *sums.entry(format!("{class} {reason}")).or_insert(0) += count;
                    }
                }
            }
            sums
        };
        let before = self.before.as_ref().map(sum);
        let mut reasons: Vec<Reason> = sum(&self.now)
            .into_iter()
            .filter(|(_, count)| *count > 0)
            .map(|(reason, count)| {
                let was = before.as_ref().and_then(|it| it.get(&reason).copied());
                let rate = self.rate(was, count);
                (reason, count, rate)
            })
            .collect();
        reasons.sort_by(|a, b| b.2.total_cmp(&a.2).then(b.1.cmp(&a.1)).then(a.0.cmp(&b.0)));
        reasons
    }

    /// Returns the changes taken over and the publications, a second.
    pub(super) fn changes(&self) -> (f64, f64) {
        let first = |shown: &Shown| shown.feeds.first().map(|it| (it.changes, it.commits));
        let (Some(now), before) = (first(&self.now), self.before.as_ref().and_then(first)) else {
            return (0.0, 0.0);
        };
        (self.rate(before.map(|it| it.0), now.0), self.rate(before.map(|it| it.1), now.1))
    }

    /// Returns the packets a second that came in on an interface and were taken.
    pub(super) fn taken(&self, interface: &Interface) -> f64 {
        let of = |it: &Interface| it.steered.get("taken").copied();
        let before = self.before.as_ref();
        let was = before.and_then(|it| it.interfaces.iter().find(|it| it.index == interface.index));
        self.rate(was.and_then(of), of(interface).unwrap_or(0))
    }

    /// Returns the smallest cache that all tables fit into, and how much of it they fill.
    pub(super) fn residency(&self) -> Option<(&'static str, f64)> {
        let bytes: u64 = self.now.fibs.iter().map(|it| it.bytes).sum();
        let fits = self.caches.iter().find(|(_, size)| *size >= bytes && *size > 0);
        fits.map(|(name, size)| (*name, bytes as f64 / *size as f64))
    }
}
