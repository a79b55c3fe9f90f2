//! The watch: a thread that reads the numbers once a second. A gate without a page has one that only
//! logs attacks.
//!
//! It reads what the workers show, what the steering programs have counted and what a grantor's
//! policies say, and takes samples of workers four times a second, so that the rings do not fill. It asks the control thread nothing,
//! so that the history goes on while that is busy.

use std::io;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use super::attack::{Attacks, Second};
use super::history::{History, Number};
use super::kept::Keeper;
use super::top::Top;
use super::unix;
use crate::config::Metrics;
use crate::control::rights;
use crate::daemon::View;
use crate::datapath::{Class, Verdict};
use crate::grantor::status::GrantorStatus;
use crate::role::Role;
use crate::stats::Snapshot;
use crate::vantage::{CounterGroup, is_gauge};

/// How often samples are taken.
const SAMPLES: Duration = Duration::from_millis(250);
/// How long a row of the history is.
const SECOND: Duration = Duration::from_secs(1);

/// What was seen.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) history: History,
    pub(super) attacks: Attacks,
    pub(super) top: Top,
    /// What an operator should know.
    pub(super) news: Vec<String>,
}

/// The thread, and what ends it; in a mutex because whoever makes pages does so on several threads.
type Running = Mutex<Option<(Sender<()>, JoinHandle<()>)>>;

/// Who watches; dropped, it is gone.
#[derive(Debug)]
pub(super) struct Watch {
    seen: Arc<Mutex<Seen>>,
    running: Running,
}

/// Who looks.
struct Watcher {
    view: Arc<View>,
    role: Role,
    seen: Arc<Mutex<Seen>>,
    last: Instant,
    before: Snapshot,
}

pub(super) fn lock(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Watch {
    /// Starts the thread. With `metrics` it takes samples, and continues the history that is in
    /// their file, if they name one.
    ///
    /// # Errors
    ///
    /// The system's.
    pub(super) fn start(
        view: Arc<View>,
        role: Role,
        metrics: Option<&Metrics>,
    ) -> io::Result<Self> {
        let (samples, keep) =
            (metrics.is_some(), metrics.and_then(|metrics| metrics.history_file.clone()));
        let seen = Arc::<Mutex<Seen>>::default();
        let now = unix(SystemTime::now());
        let mut keeper = keep.map(|path| Keeper::begin(path, &mut lock(&seen), now));
        let (stop, stopped) = channel();
        let (last, before) = (Instant::now(), view.stats());
        let mut watcher = Watcher { view, role, seen: Arc::clone(&seen), last, before };
        watcher.second();
        let thread = Builder::new().name("watch".into()).spawn(move || {
            let _ = rights::keep(&[]);
            while stopped.recv_timeout(SAMPLES) == Err(RecvTimeoutError::Timeout) {
                if samples {
                    watcher.samples();
                }
                if watcher.last.elapsed() >= SECOND {
                    watcher.second();
                    if let Some(keeper) = &mut keeper {
                        keeper.keep_sometimes(&watcher.seen);
                    }
                }
            }
            if let Some(keeper) = &mut keeper {
                keeper.keep(&watcher.seen);
            }
        })?;
        Ok(Self { seen, running: Mutex::new(Some((stop, thread))) })
    }

    /// Ends; what is to be kept is in its file then.
    pub(super) fn end(&self) {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some((stop, thread)) = running {
            drop(stop);
            let _ = thread.join();
        }
    }

    /// Takes what an operator should know.
    pub(super) fn news(&self) -> Vec<String> {
        std::mem::take(&mut lock(&self.seen).news)
    }

    /// Shows what was seen.
    pub(super) fn with<T>(&self, show: impl FnOnce(&Seen) -> T) -> T {
        show(&lock(&self.seen))
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.end();
    }
}

impl Watcher {
    fn samples(&self) {
        if let Ok(gate) = self.role.gate() {
            let mut seen = lock(&self.seen);
            gate.drain_samples(|sampled| seen.top.take(sampled));
        }
    }

    fn second(&mut self) {
        let now = unix(SystemTime::now());
        let seconds = self.last.elapsed().as_secs_f64();
        self.last = Instant::now();
        let stats = self.view.stats();
        let mut numbers = router(&stats);
        match &self.role {
            Role::Router => {}
            Role::Gate(gate) => numbers.extend(gate.counters().into_iter().map(of_gate)),
            Role::Grantor(grantor) => numbers.extend(of_grantor(&grantor.status())),
        }
        let since = stats - self.before;
        self.before = stats;
        let mut seen = lock(&self.seen);
        seen.history.add(now, seconds, &numbers);
        if self.role.gate().is_ok() {
            let dropped = since.iter().filter(|(verdict, _)| verdict.is_gates());
            let dropped = dropped.map(|(verdict, count)| (verdict.name(), count)).collect();
            let before = seen.attacks.current().is_some();
            seen.attacks.see(Second { time: now, seconds, received: since.received, dropped });
            report(before, &seen.attacks);
            seen.top.turn(seconds);
        }
    }
}

/// Writes to the log that an attack begins or ends.
fn report(before: bool, attacks: &Attacks) {
    match (before, attacks.current(), attacks.told().back()) {
        (false, Some(attack), _) => log::warn!("an attack has begun: {}", attack.beginning()),
        (true, None, Some(attack)) => log::warn!("the attack has ended {}", attack.end()),
        _ => {}
    }
}

fn of_gate((about, name, value): (CounterGroup, &'static str, u64)) -> Number {
    Number { name: format!("{}.{name}", part(about)), value, gauge: is_gauge(about, name) }
}

/// The numbers of a grantor: as many with a candidate as without.
fn of_grantor(told: &GrantorStatus) -> Vec<Number> {
    let shadow = told.candidate.as_ref();
    let candidate = [
        ("requests", shadow.map(|it| it.requests)),
        ("failed", shadow.map(|it| it.failed)),
        ("changed", shadow.map(|it| it.changes.values().sum())),
    ];
    let number = |part: &str, name: &str, value| Number {
        name: format!("{part}.{name}"),
        value,
        gauge: name == "memory_bytes",
    };
    let policy = told.policy.iter().map(|(name, value)| number("policy", name, *value));
    let post = told.decisions.iter().map(|(name, value)| number("decisions", name, *value));
    let candidate = candidate.map(|(name, value)| number("candidate", name, value.unwrap_or(0)));
    policy.chain(post).chain(candidate).collect()
}

fn part(about: CounterGroup) -> &'static str {
    match about {
        CounterGroup::Packets => "packets",
        CounterGroup::Bytes => "bytes",
        CounterGroup::Table => "table",
        CounterGroup::Decisions => "decisions",
        CounterGroup::Link => "link",
    }
}

/// The numbers of any router, by name.
fn router(stats: &Snapshot) -> Vec<Number> {
    let number = |name: &str, value| Number { name: name.to_owned(), value, gauge: false };
    let mut numbers = vec![
        number("received", stats.received),
        number("received_bytes", stats.received_bytes),
        number("sent", stats.sent()),
        number("sent_bytes", stats.sent_bytes),
        number("punted", stats.punted()),
        number("dropped", stats.dropped()),
    ];
    let dropped = Verdict::ALL.into_iter().filter(|verdict| verdict.class() == Class::Dropped);
    numbers.extend(
        dropped.map(|verdict| number(&format!("dropped.{}", verdict.name()), stats.count(verdict))),
    );
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grantor::status::PolicyComparison;

    #[test]
    fn every_drop_has_a_column_and_they_add_up() {
        let mut stats = Snapshot { received: 9, ..Snapshot::default() };
        stats.verdicts[Verdict::NoRoute as usize] = 3;
        stats.verdicts[Verdict::LinkFull as usize] = 4;
        let numbers = router(&stats);
        let value = |name: &str| numbers.iter().find(|it| it.name == name).map(|it| it.value);
        assert_eq!((value("dropped"), value("received")), (Some(7), Some(9)));
        let reasons = numbers.iter().filter(|it| it.name.starts_with("dropped."));
        assert_eq!(reasons.map(|it| it.value).sum::<u64>(), 7);
    }

    #[test]
    fn a_grantor_has_the_same_columns_with_a_candidate_and_without() {
        let mut told: GrantorStatus = serde_json::from_str(
            r#"{"policy":{"granted":3,"memory_bytes":9},"decisions":{"messages":2},"lists":{}}"#,
        )
        .unwrap();
        let names = |told: &GrantorStatus| -> Vec<String> {
            of_grantor(told).into_iter().map(|it| it.name).collect()
        };
        let before = names(&told);
        assert_eq!(before[..3], ["policy.granted", "policy.memory_bytes", "decisions.messages"]);
        let changes = [("granted_declined".to_owned(), 2), ("declined_granted".to_owned(), 3)];
        told.candidate =
            Some(PolicyComparison { changes: changes.into(), ..PolicyComparison::default() });
        assert_eq!(names(&told), before);
        let changed = of_grantor(&told).pop().unwrap();
        assert_eq!((changed.name.as_str(), changed.value), ("candidate.changed", 5));
        let gauges: Vec<_> = of_grantor(&told).into_iter().filter(|it| it.gauge).collect();
        assert_eq!(gauges.len(), 1);
    }

    #[test]
    fn it_looks_and_ends() {
        let watch = Watch::start(Arc::default(), Role::Router, None).unwrap();
        let until = Instant::now() + Duration::from_secs(20);
        let rows = || watch.with(|seen| seen.history.since(0).len());
        while rows() == 0 && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(20));
        }
        assert!(rows() > 0);
        drop(watch);
    }
}
