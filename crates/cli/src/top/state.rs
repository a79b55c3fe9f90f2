//! The state of `top`: two snapshots of a router, and the rates between them.

use std::collections::BTreeMap;
use std::time::Instant;

use api::{Audit, Counters, Feed, Fib, Interface, Worker};

/// A snapshot of a router.
#[derive(Clone, Debug, Default)]
pub(super) struct Snapshot {
    pub(super) fibs: Vec<Fib>,
    pub(super) feeds: Vec<Feed>,
    pub(super) workers: Vec<Worker>,
    pub(super) interfaces: Vec<Interface>,
    pub(super) audit: Audit,
}

/// The last snapshot and the previous one.
#[derive(Debug)]
pub(super) struct State {
    pub(super) now: Snapshot,
    before: Option<Snapshot>,
    at: Instant,
    /// Seconds between the two snapshots.
    elapsed: f64,
    /// The count of messages of each feed, and the time since which it is unchanged.
    feed_activity: BTreeMap<String, (u64, Instant)>,
    /// The caches of the first core of this machine: name and bytes, smallest first.
    pub(super) caches: Vec<(&'static str, u64)>,
}

/// A reason, its packets, and its packets per second.
pub(super) type Reason = (String, u64, f64);

impl State {
    pub(super) fn new(now: Snapshot, at: Instant) -> Self {
        let caches = fib::Caches::of_this_machine();
        let caches = vec![
            ("L1", caches.first as u64),
            ("L2", caches.second as u64),
            ("L3", caches.last as u64),
        ];
        let mut state =
            Self { now, before: None, at, elapsed: 0.0, feed_activity: BTreeMap::new(), caches };
        state.update_activity();
        state
    }

    /// Replaces the last snapshot.
    pub(super) fn update(&mut self, now: Snapshot, at: Instant) {
        self.elapsed = at.duration_since(self.at).as_secs_f64();
        self.at = at;
        self.before = Some(std::mem::replace(&mut self.now, now));
        self.update_activity();
    }

    fn update_activity(&mut self) {
        for feed in &self.now.feeds {
            let initial = (feed.messages, self.at);
            let activity = self.feed_activity.entry(feed.name.clone()).or_insert(initial);
            if activity.0 != feed.messages {
                *activity = initial;
            }
        }
    }

    /// Returns the seconds since the last message of a feed, or since the first snapshot.
    pub(super) fn idle_seconds(&self, feed: &Feed) -> f64 {
        let activity = self.feed_activity.get(&feed.name);
        activity.map_or(0.0, |(_, since)| self.at.duration_since(*since).as_secs_f64())
    }

    /// Returns a rate per second. A counter that has decreased was restarted from 0.
    fn rate(&self, before: Option<u64>, now: u64) -> f64 {
        match before {
            Some(before) if self.elapsed > 0.0 => {
                now.checked_sub(before).unwrap_or(now) as f64 / self.elapsed
            }
            _ => 0.0,
        }
    }

    /// Returns the counters of a worker in both snapshots.
    fn counters(&self, worker: u64) -> (Option<&Counters>, Option<&Counters>) {
        fn find(snapshot: &Snapshot, number: u64) -> Option<&Counters> {
            let mut workers = snapshot.workers.iter();
            workers.find(|worker| worker.worker == number).map(|worker| &worker.counters)
        }
        let before = self.before.as_ref();
        (find(&self.now, worker), before.and_then(|before| find(before, worker)))
    }

    /// Returns the received and sent packets, and the received and sent bytes, of a worker per second.
    pub(super) fn worker(&self, worker: u64) -> [f64; 4] {
        let (Some(now), before) = self.counters(worker) else { return [0.0; 4] };
        [
            self.rate(before.map(|counters| counters.received), now.received),
            self.rate(before.map(|counters| counters.sent), now.sent),
            self.rate(before.map(|counters| counters.received_bytes), now.received_bytes),
            self.rate(before.map(|counters| counters.sent_bytes), now.sent_bytes),
        ]
    }

    /// Returns the sums of these rates over all workers.
    pub(super) fn total(&self) -> [f64; 4] {
        let mut total = [0.0; 4];
        for worker in &self.now.workers {
            for (sum, rate) in total.iter_mut().zip(self.worker(worker.worker)) {
                *sum += rate;
            }
        }
        total
    }

    /// Returns the reasons of dropped and punted packets, highest rate first.
    pub(super) fn reasons(&self) -> Vec<Reason> {
        let sum = |snapshot: &Snapshot| {
            let mut sums = BTreeMap::new();
            for counters in snapshot.workers.iter().map(|worker| &worker.counters) {
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
                let previous = before.as_ref().and_then(|sums| sums.get(&reason).copied());
                let rate = self.rate(previous, count);
                (reason, count, rate)
            })
            .collect();
        reasons.sort_by(|a, b| b.2.total_cmp(&a.2).then(b.1.cmp(&a.1)).then(a.0.cmp(&b.0)));
        reasons
    }

    /// Returns the route changes and the publications per second.
    pub(super) fn changes(&self) -> (f64, f64) {
        let first =
            |snapshot: &Snapshot| snapshot.feeds.first().map(|feed| (feed.changes, feed.commits));
        let (Some(now), before) = (first(&self.now), self.before.as_ref().and_then(first)) else {
            return (0.0, 0.0);
        };
        (
            self.rate(before.map(|(changes, _)| changes), now.0),
            self.rate(before.map(|(_, commits)| commits), now.1),
        )
    }

    /// Returns the packets per second that the steering program of an interface redirected to the
    /// router.
    pub(super) fn taken(&self, interface: &Interface) -> f64 {
        let count = |interface: &Interface| interface.steered.get("taken").copied();
        let previous = self.before.as_ref().and_then(|before| {
            before.interfaces.iter().find(|previous| previous.index == interface.index)
        });
        self.rate(previous.and_then(count), count(interface).unwrap_or(0))
    }

    /// Returns the smallest cache that holds all tables, and the share of it that they fill.
    pub(super) fn residency(&self) -> Option<(&'static str, f64)> {
        let bytes: u64 = self.now.fibs.iter().map(|fib| fib.bytes).sum();
        let fits = self.caches.iter().find(|(_, size)| *size >= bytes && *size > 0);
        fits.map(|(name, size)| (*name, bytes as f64 / *size as f64))
    }
}
