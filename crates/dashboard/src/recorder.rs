//! The recorder: a thread that records the numbers of the process once a second.
//!
//! It reads the counters of the workers, of the steering programs and of a grantor's policies, and
//! takes the workers' samples four times a second, so that their rings do not overflow. It sends
//! the control thread no requests, so that the history continues while that thread is busy. A gate
//! without a page has a recorder that only logs attacks.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use super::attack::{Attacks, TrafficSecond};
use super::history_file::HistoryWriter;
use super::recorded::{Recorded, lock};
use super::{SampleSource, unix};
use config::Metrics;
use control::role::{Number, Role};
use control::view::View;
use datapath::stats::Snapshot;
use datapath::{Class, Verdict};
use threads::{Rights, Task};

/// The interval at which samples are taken.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(250);
/// The length of a row of the history.
const SECOND: Duration = Duration::from_secs(1);

/// The running recorder. Dropping it ends the thread.
#[derive(Debug)]
pub(super) struct Recorder {
    recorded: Arc<Mutex<Recorded>>,
    is_of_gate: bool,
    /// In a mutex because requests are answered on several threads.
    thread: Mutex<Option<Task>>,
}

/// The state of the recorder's thread.
struct RecorderLoop {
    view: Arc<View>,
    role: Arc<dyn Role>,
    /// The gate whose samples are taken and whose attacks are detected.
    gate: Option<Arc<dyn SampleSource>>,
    recorded: Arc<Mutex<Recorded>>,
    last: Instant,
    before: Snapshot,
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
        role: Arc<dyn Role>,
        metrics: Option<&Metrics>,
        gate: Option<Arc<dyn SampleSource>>,
    ) -> io::Result<Self> {
        let takes_samples = metrics.is_some();
        let path = metrics.and_then(|metrics| metrics.history_file.clone());
        let recorded = Arc::<Mutex<Recorded>>::default();
        let now = unix(SystemTime::now());
        let mut writer = path.map(|path| HistoryWriter::open(path, &mut lock(&recorded), now));
        let (last, before) = (Instant::now(), view.stats());
        let is_of_gate = gate.is_some();
        let mut state =
            RecorderLoop { view, role, gate, recorded: Arc::clone(&recorded), last, before };
        state.record_second();
        let thread = Task::start("recorder", Rights::None, move |stop| {
            while !stop.wait(SAMPLE_INTERVAL) {
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
        Ok(Self { recorded, is_of_gate, thread: Mutex::new(Some(thread)) })
    }

    /// Ends the thread, which writes the history file.
    pub(super) fn end(&self) {
        drop(self.thread.lock().unwrap_or_else(PoisonError::into_inner).take());
    }

    /// Takes the messages for the operator's log.
    pub(super) fn drain_notices(&self) -> Vec<String> {
        std::mem::take(&mut lock(&self.recorded).notices)
    }

    /// Returns whether attacks and destinations are recorded.
    pub(super) fn is_of_gate(&self) -> bool {
        self.is_of_gate
    }

    /// Calls `read` with the recorded data.
    pub(super) fn with<T>(&self, read: impl FnOnce(&Recorded) -> T) -> T {
        read(&lock(&self.recorded))
    }
}

impl RecorderLoop {
    fn take_samples(&self) {
        if let Some(gate) = &self.gate {
            let mut recorded = lock(&self.recorded);
            gate.drain_samples(&mut |sampled| recorded.destinations.add(sampled));
        }
    }

    fn record_second(&mut self) {
        let now = unix(SystemTime::now());
        let seconds = self.last.elapsed().as_secs_f64();
        self.last = Instant::now();
        let stats = self.view.stats();
        let mut numbers = router_numbers(&stats);
        numbers.extend(self.role.numbers());
        let since = stats - self.before;
        self.before = stats;
        let mut recorded = lock(&self.recorded);
        recorded.history.add(now, seconds, &numbers);
        if let Some(gate) = &self.gate {
            let dropped = since.iter().filter(|(verdict, _)| verdict.is_gates());
            let dropped = dropped.map(|(verdict, count)| (verdict.name(), count)).collect();
            let was_active = recorded.attacks.current().is_some();
            let received = since.received;
            let second = TrafficSecond { time: now, seconds, received, dropped };
            recorded.attacks.add(second.clone());
            log_attack(was_active, &recorded.attacks);
            recorded.destinations.end_slice(seconds);
            let is_active = recorded.attacks.current().is_some();
            if let Some(attack) = recorded.attacks.list().back().filter(|_| was_active || is_active)
            {
                gate.report_attack(attack.report(&second, &recorded.destinations.list()));
            }
        }
    }
}

/// Logs the beginning and the end of an attack.
fn log_attack(was_active: bool, attacks: &Attacks) {
    match (was_active, attacks.current(), attacks.list().back()) {
        (false, Some(attack), _) => {
            log::warn!(event = "attack_begins"; "an attack has begun: {}", attack.describe_start());
        }
        (true, None, Some(attack)) => {
            log::warn!(event = "attack_ends"; "the attack has ended {}", attack.describe_end());
        }
        _ => {}
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
    use control::role::PlainRouter;

    #[test]
    fn every_drop_has_a_column_and_they_add_up() {
        let mut stats = Snapshot { received: 9, ..Snapshot::default() };
        stats.verdicts[Verdict::NoRoute] = 3;
        stats.verdicts[Verdict::LinkFull] = 4;
        let numbers = router_numbers(&stats);
        let value = |name: &str| numbers.iter().find(|n| n.name == name).map(|n| n.value);
        assert_eq!((value("dropped"), value("received")), (Some(7), Some(9)));
        let reasons = numbers.iter().filter(|number| number.name.starts_with("dropped."));
        assert_eq!(reasons.map(|number| number.value).sum::<u64>(), 7);
    }

    #[test]
    fn recorder_records_rows_until_it_is_dropped() {
        let recorder = Recorder::start(Arc::default(), Arc::new(PlainRouter), None, None).unwrap();
        let until = Instant::now() + Duration::from_secs(20);
        let rows = || recorder.with(|recorded| recorded.history.since(0).len());
        while rows() == 0 && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(20));
        }
        assert!(rows() > 0);
        drop(recorder);
    }
}
