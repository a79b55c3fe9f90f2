//! The watch: a thread that looks at the numbers once a second, for as long as there is a page.
//!
//! It reads what the workers show and what the steering programs have counted, and takes their
//! samples four times a second, so that the rings do not fill. It asks the control thread nothing,
//! so that the history goes on while that is busy.

use std::io;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use super::attack::{Attacks, Second};
use super::history::{History, Number};
use super::top::Top;
use super::unix;
use crate::control::rights;
use crate::daemon::View;
use crate::datapath::{Class, Verdict};
use crate::stats::Snapshot;
use crate::vantage::{About, Panel, is_gauge};

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
}

/// The thread; dropped, it is gone.
#[derive(Debug)]
pub(super) struct Watch {
    seen: Arc<Mutex<Seen>>,
    /// In a mutex because whoever makes pages does so on several threads.
    stop: Mutex<Option<Sender<()>>>,
    thread: Option<JoinHandle<()>>,
}

/// Who looks.
struct Watcher {
    view: Arc<View>,
    gate: Option<Arc<Panel>>,
    seen: Arc<Mutex<Seen>>,
    last: Instant,
    before: Snapshot,
}

fn lock(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Watch {
    /// Begins.
    ///
    /// # Errors
    ///
    /// The system's.
    pub(super) fn start(view: Arc<View>, gate: Option<Arc<Panel>>) -> io::Result<Self> {
        let seen = Arc::<Mutex<Seen>>::default();
        let (stop, stopped) = channel();
        let (last, before) = (Instant::now(), view.stats());
        let mut watcher = Watcher { view, gate, seen: Arc::clone(&seen), last, before };
        watcher.second();
        let thread = Builder::new().name("watch".into()).spawn(move || {
            let _ = rights::keep(&[]);
            while stopped.recv_timeout(SAMPLES) == Err(RecvTimeoutError::Timeout) {
                watcher.samples();
                if watcher.last.elapsed() >= SECOND {
                    watcher.second();
                }
            }
        })?;
        Ok(Self { seen, stop: Mutex::new(Some(stop)), thread: Some(thread) })
    }

    /// Shows what was seen.
    pub(super) fn with<T>(&self, show: impl FnOnce(&Seen) -> T) -> T {
        show(&lock(&self.seen))
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        *self.stop.lock().unwrap_or_else(PoisonError::into_inner) = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Watcher {
    fn samples(&self) {
        if let Some(gate) = &self.gate {
            let mut seen = lock(&self.seen);
            gate.samples(|sampled| seen.top.take(sampled));
        }
    }

    fn second(&mut self) {
        let now = unix(SystemTime::now());
        let seconds = self.last.elapsed().as_secs_f64();
        self.last = Instant::now();
        let stats = self.view.stats();
        let mut numbers = router(&stats);
        if let Some(gate) = &self.gate {
            numbers.extend(gate.numbers().into_iter().map(|(about, name, value)| Number {
                name: format!("{}.{name}", part(about)),
                value,
                gauge: is_gauge(about, name),
            }));
        }
        let since = stats - self.before;
        self.before = stats;
        let mut seen = lock(&self.seen);
        seen.history.add(now, seconds, &numbers);
        if self.gate.is_some() {
            let dropped = since.iter().filter(|(verdict, _)| verdict.is_gates());
            let dropped = dropped.map(|(verdict, count)| (verdict.name(), count)).collect();
            seen.attacks.see(Second { time: now, seconds, received: since.received, dropped });
            seen.top.turn(seconds);
        }
    }
}

fn part(about: About) -> &'static str {
    match about {
        About::Packets => "packets",
        About::Bytes => "bytes",
        About::Table => "table",
        About::Decisions => "decisions",
        About::Link => "link",
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
    fn it_looks_and_ends() {
        let watch = Watch::start(Arc::default(), None).unwrap();
        let until = Instant::now() + Duration::from_secs(20);
        let rows = || watch.with(|seen| seen.history.since(0).len());
        while rows() == 0 && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(20));
        }
        assert!(rows() > 0);
        drop(watch);
    }
}
