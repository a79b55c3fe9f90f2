//! The recorder: a thread that records the numbers of the process once a second.
//!
//! It reads the counters of the workers, of the steering programs and of a grantor's policies, and
//! takes the workers' samples four times a second, so that their rings do not overflow. It sends
//! the control thread no requests, so that the history continues while that thread is busy. A gate
//! without a page has a recorder that only logs attacks.

use std::io;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use super::attack::{Attacks, TrafficSecond};
use super::destinations::DestinationStats;
use super::history::{History, Number};
use super::history_file::HistoryWriter;
use super::unix;
use crate::control::rights;
use crate::daemon::View;
use crate::role::Role;
use crate::vantage::{CounterGroup, is_gauge};
use api::GrantorStatus;
use config::Metrics;
use datapath::stats::Snapshot;
use datapath::{Class, Verdict};

/// The interval at which samples are taken.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(250);
/// The length of a row of the history.
const SECOND: Duration = Duration::from_secs(1);

/// The recorded data.
#[derive(Debug, Default)]
pub(super) struct Recorded {
    pub(super) history: History,
    pub(super) attacks: Attacks,
    pub(super) destinations: DestinationStats,
    /// Messages for the operator's log.
    pub(super) notices: Vec<String>,
}

/// The thread, and the sender whose end stops it; in a mutex because requests are answered on
/// several threads.
type Running = Mutex<Option<(Sender<()>, JoinHandle<()>)>>;

/// The running recorder. Dropping it ends the thread.
#[derive(Debug)]
pub(super) struct Recorder {
    recorded: Arc<Mutex<Recorded>>,
    running: Running,
}

/// The state of the recorder's thread.
struct RecorderLoop {
    view: Arc<View>,
    role: Role,
    recorded: Arc<Mutex<Recorded>>,
    last: Instant,
    before: Snapshot,
}

pub(super) fn lock(recorded: &Mutex<Recorded>) -> MutexGuard<'_, Recorded> {
    recorded.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Recorder {
    /// Starts the thread. With `metrics` it takes samples, and continues the history of the file
    /// that they name, if they name one.
    ///
    /// # Errors
    ///
    /// The system's error.
    pub(super) fn start(
        view: Arc<View>,
        role: Role,
        metrics: Option<&Metrics>,
    ) -> io::Result<Self> {
        let takes_samples = metrics.is_some();
        let path = metrics.and_then(|metrics| metrics.history_file.clone());
        let recorded = Arc::<Mutex<Recorded>>::default();
        let now = unix(SystemTime::now());
        let mut writer = path.map(|path| HistoryWriter::open(path, &mut lock(&recorded), now));
        let (stop, stopped) = channel();
        let (last, before) = (Instant::now(), view.stats());
        let mut state = RecorderLoop { view, role, recorded: Arc::clone(&recorded), last, before };
        state.record_second();
        let thread = Builder::new().name("recorder".into()).spawn(move || {
            let _ = rights::keep(&[]);
            while stopped.recv_timeout(SAMPLE_INTERVAL) == Err(RecvTimeoutError::Timeout) {
                if takes_samples {
                    state.take_samples();
                }
                if state.last.elapsed() >= SECOND {
                    state.record_second();
                    if let Some(writer) = &mut writer {
                        writer.write_if_due(&state.recorded);
                    }
                }
            }
            if let Some(writer) = &mut writer {
                writer.write(&state.recorded);
            }
        })?;
        Ok(Self { recorded, running: Mutex::new(Some((stop, thread))) })
    }

    /// Ends the thread, which writes the history file.
    pub(super) fn end(&self) {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some((stop, thread)) = running {
            drop(stop);
            let _ = thread.join();
        }
    }

    /// Takes the messages for the operator's log.
    pub(super) fn drain_notices(&self) -> Vec<String> {
        std::mem::take(&mut lock(&self.recorded).notices)
    }

    /// Calls `read` with the recorded data.
    pub(super) fn with<T>(&self, read: impl FnOnce(&Recorded) -> T) -> T {
        read(&lock(&self.recorded))
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.end();
    }
}

impl RecorderLoop {
    fn take_samples(&self) {
        if let Ok(gate) = self.role.gate() {
            let mut recorded = lock(&self.recorded);
            gate.drain_samples(|sampled| recorded.destinations.add(sampled));
        }
    }

    fn record_second(&mut self) {
        let now = unix(SystemTime::now());
        let seconds = self.last.elapsed().as_secs_f64();
        self.last = Instant::now();
        let stats = self.view.stats();
        let mut numbers = router_numbers(&stats);
        match &self.role {
            Role::Router => {}
            Role::Gate(gate) => numbers.extend(gate.counters().into_iter().map(gate_number)),
            Role::Grantor(grantor) => numbers.extend(grantor_numbers(&grantor.status())),
        }
        let since = stats - self.before;
        self.before = stats;
        let mut recorded = lock(&self.recorded);
        recorded.history.add(now, seconds, &numbers);
        if self.role.gate().is_ok() {
            let dropped = since.iter().filter(|(verdict, _)| verdict.is_gates());
            let dropped = dropped.map(|(verdict, count)| (verdict.name(), count)).collect();
            let was_active = recorded.attacks.current().is_some();
            let received = since.received;
            recorded.attacks.add(TrafficSecond { time: now, seconds, received, dropped });
            log_attack(was_active, &recorded.attacks);
            recorded.destinations.end_slice(seconds);
        }
    }
}

/// Logs the beginning and the end of an attack.
fn log_attack(was_active: bool, attacks: &Attacks) {
    match (was_active, attacks.current(), attacks.list().back()) {
        (false, Some(attack), _) => log::warn!("an attack has begun: {}", attack.describe_start()),
        (true, None, Some(attack)) => log::warn!("the attack has ended {}", attack.describe_end()),
        _ => {}
    }
}

fn gate_number((about, name, value): (CounterGroup, &'static str, u64)) -> Number {
    Number { name: format!("{}.{name}", part(about)), value, gauge: is_gauge(about, name) }
}

/// Returns the numbers of a grantor: the same columns with a candidate and without.
fn grantor_numbers(status: &GrantorStatus) -> Vec<Number> {
    let shadow = status.candidate.as_ref();
    let candidate = [
        ("requests", shadow.map(|shadow| shadow.requests)),
        ("failed", shadow.map(|shadow| shadow.failed)),
        ("changed", shadow.map(|shadow| shadow.changes.values().sum())),
    ];
    let number = |part: &str, name: &str, value| Number {
        name: format!("{part}.{name}"),
        value,
        gauge: name == "memory_bytes",
    };
    let policy = status.policy.iter().map(|(name, value)| number("policy", name, *value));
    let decisions = status.decisions.iter().map(|(name, value)| number("decisions", name, *value));
    let candidate = candidate.map(|(name, value)| number("candidate", name, value.unwrap_or(0)));
    policy.chain(decisions).chain(candidate).collect()
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

/// Returns the numbers of any router, by name.
fn router_numbers(stats: &Snapshot) -> Vec<Number> {
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
    use api::PolicyComparison;

    #[test]
    fn every_drop_has_a_column_and_they_add_up() {
        let mut stats = Snapshot { received: 9, ..Snapshot::default() };
        stats.verdicts[Verdict::NoRoute as usize] = 3;
        stats.verdicts[Verdict::LinkFull as usize] = 4;
        let numbers = router_numbers(&stats);
        let value = |name: &str| numbers.iter().find(|n| n.name == name).map(|n| n.value);
        assert_eq!((value("dropped"), value("received")), (Some(7), Some(9)));
        let reasons = numbers.iter().filter(|number| number.name.starts_with("dropped."));
        assert_eq!(reasons.map(|number| number.value).sum::<u64>(), 7);
    }

    #[test]
    fn grantor_has_the_same_columns_with_a_candidate_and_without() {
        let mut status: GrantorStatus = serde_json::from_str(
            r#"{"policy":{"granted":3,"memory_bytes":9},"decisions":{"messages":2},"lists":{}}"#,
        )
        .unwrap();
        let names = |status: &GrantorStatus| -> Vec<String> {
            grantor_numbers(status).into_iter().map(|number| number.name).collect()
        };
        let before = names(&status);
        assert_eq!(before[..3], ["policy.granted", "policy.memory_bytes", "decisions.messages"]);
        let changes = [("granted_declined".to_owned(), 2), ("declined_granted".to_owned(), 3)];
        status.candidate =
            Some(PolicyComparison { changes: changes.into(), ..PolicyComparison::default() });
        assert_eq!(names(&status), before);
        let changed = grantor_numbers(&status).pop().unwrap();
        assert_eq!((changed.name.as_str(), changed.value), ("candidate.changed", 5));
        let gauges: Vec<_> =
            grantor_numbers(&status).into_iter().filter(|number| number.gauge).collect();
        assert_eq!(gauges.len(), 1);
    }

    #[test]
    fn recorder_records_rows_until_it_is_dropped() {
        let recorder = Recorder::start(Arc::default(), Role::Router, None).unwrap();
        let until = Instant::now() + Duration::from_secs(20);
        let rows = || recorder.with(|recorded| recorded.history.since(0).len());
        while rows() == 0 && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(20));
        }
        assert!(rows() > 0);
        drop(recorder);
    }
}
