//! The agent: a thread beside a gate or grantor that takes bundles over, and takes them back.
//!
//! ```text
//!   source ─► signature? ─► machine: when? ─► sound here? ─► kept, recorded ─► gone over to
//!                               ▲                                                 │
//!                               └── a sample a second: failures, grants, silence ◄┘
//! ```
//!
//! What is sound is judged by the member as it judges its own file, whole ([`Member::judge`]), and
//! gone over to by the way of a reload ([`Member::go_over`]), which is all or nothing. The bundle and then the
//! record are on the disk before, so that whoever starts after any end finds one state.
//! Nothing here is in the way of packets; of the process's rights it keeps the workers'.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use super::bundle::Bundle;
use super::config::{Settings, Source};
use super::health::Sample;
use super::kept::{self, Kept};
use super::machine::{Act, Machine, Now};
use super::record::Offer;
use super::source::Poller;
use super::told::DistributionTold;
use crate::control::api::Happened;
use crate::control::asks::Asker;
use crate::control::kernel::Following;
use crate::control::rights;

/// How often the member is looked at.
const TICK: Duration = Duration::from_secs(1);
/// How long the thread may take to end: a disk far away may hold it.
const END: Duration = Duration::from_secs(2);
/// How long an order may take: a policy's threads each go over to it.
const PATIENCE: Duration = Duration::from_secs(60);
/// Messages that nobody has fetched.
const MOST_SAID: usize = 64;

/// A gate or grantor, as the agent sees it.
pub(crate) trait Member: Send + Sync {
    /// Judges a bundle, whole, and changes nothing.
    ///
    /// # Errors
    ///
    /// What is wrong with it here.
    fn judge(&self, bundle: &Arc<Bundle>) -> Result<(), String>;

    /// Goes over to a bundle, or to the local configuration alone; or leaves everything.
    ///
    /// # Errors
    ///
    /// Why everything is as it was.
    fn go_over(&self, bundle: Option<Arc<Bundle>>) -> Result<String, String>;

    /// Counts.
    fn sample(&self) -> Sample;
}

/// What an operator may have done on a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    /// Go back to the version before.
    GoBack,
    /// Take refused versions again.
    Forgive,
}

type Wished = (Wish, Sender<Result<String, String>>);

/// What others see of the agent.
pub(crate) struct Board {
    told: Mutex<DistributionTold>,
    said: Mutex<Vec<String>>,
    wishes: Mutex<Sender<Wished>>,
    wished: Mutex<Option<Receiver<Wished>>>,
}

impl fmt::Debug for Board {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Board").finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Board {
    /// Makes one, before there is an agent.
    pub(crate) fn new() -> Self {
        let (wishes, wished) = channel();
        Self {
            told: Mutex::default(),
            said: Mutex::default(),
            wishes: Mutex::new(wishes),
            wished: Mutex::new(Some(wished)),
        }
    }

    /// Tells of the bundles.
    pub(crate) fn told(&self) -> DistributionTold {
        lock(&self.told).clone()
    }

    /// Takes what is to be said to who looks after the process.
    pub(crate) fn said(&self) -> Vec<String> {
        std::mem::take(&mut *lock(&self.said))
    }

    /// Has something said.
    pub(crate) fn say(&self, words: impl IntoIterator<Item = String>) {
        let mut said = lock(&self.said);
        let room = MOST_SAID.saturating_sub(said.len());
        said.extend(words.into_iter().take(room));
    }

    /// Has something done.
    ///
    /// # Errors
    ///
    /// Why it is not.
    pub(crate) fn wish(&self, wish: Wish) -> Result<String, String> {
        let gone = || "the thread that takes bundles over does not answer".to_owned();
        let (tell, told) = channel();
        lock(&self.wishes).send((wish, tell)).map_err(|_| gone())?;
        told.recv_timeout(PATIENCE).map_err(|_| gone())?
    }
}

/// What a gate or grantor begins with: its folder, and what is in force.
#[derive(Debug)]
pub(crate) struct Begun {
    pub(crate) kept: Kept,
    pub(crate) bundle: Option<Arc<Bundle>>,
}

/// The thread; dropped, it ends.
#[derive(Debug)]
pub(crate) struct Agent {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Agent {
    /// Starts it.
    ///
    /// # Errors
    ///
    /// The system's.
    pub(crate) fn start(
        settings: &Settings,
        begun: Begun,
        member: Arc<dyn Member>,
        board: Arc<Board>,
        events: Asker<Following>,
    ) -> io::Result<Self> {
        let Some(wished) = lock(&board.wished).take() else {
            return Err(io::Error::other("bundles are taken over already"));
        };
        let mut record = kept::record(begun.kept.folder()).map_err(io::Error::other)?;
        // What cannot be read any more, or is not sound any more, is not in force.
        let in_force = begun.bundle.as_ref().map(|bundle| bundle.header().version);
        while record.in_force() != in_force && record.in_force().is_some() {
            record.lose();
        }
        begun.kept.save(&record).map_err(io::Error::other)?;
        let stop = Arc::new(AtomicBool::new(false));
        let start = Instant::now();
        let working = Working {
            machine: Machine::new(settings.clone(), record, now(start)),
            settings: settings.clone(),
            kept: begun.kept,
            in_force: begun.bundle,
            offered: None,
            poller: Poller::new(settings.source.clone()),
            due: Duration::ZERO,
            member,
            board,
            events,
            counts: COUNTS.map(|name| (name, 0)).into(),
            unreached: None,
            last_error: None,
            start,
            stop: Arc::clone(&stop),
        };
        working.show();
        let run = move || {
            let _ = rights::keep(&rights::WORKER);
            working.run(&wished);
        };
        let thread = Builder::new().name("distribution".into()).spawn(run)?;
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let Some(thread) = self.thread.take() else { return };
        let begin = Instant::now();
        thread.thread().unpark();
        while !thread.is_finished() && begin.elapsed() < END {
            std::thread::sleep(Duration::from_millis(5));
        }
        if thread.is_finished() {
            let _ = thread.join();
        }
    }
}

/// What is counted.
const COUNTS: [&str; 8] = [
    "polls",
    "polls_failed",
    "bundles",
    "bundles_refused",
    "applied",
    "confirmed",
    "rolled_back",
    "rolled_back_by_hand",
];

fn now(start: Instant) -> Now {
    let wall = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_secs();
    Now { wall, steady: start.elapsed() }
}

/// Puts a source into words.
fn shown(source: &Source) -> String {
    match source {
        Source::Path(path) => path.display().to_string(),
        Source::Http { host, port, path } => format!("http://{host}:{port}{path}"),
    }
}

/// What the thread works with.
struct Working {
    settings: Settings,
    machine: Machine,
    kept: Kept,
    in_force: Option<Arc<Bundle>>,
    offered: Option<Arc<Bundle>>,
    poller: Poller,
    /// When the source is looked at next.
    due: Duration,
    member: Arc<dyn Member>,
    board: Arc<Board>,
    events: Asker<Following>,
    counts: BTreeMap<&'static str, u64>,
    /// Why the source could not be looked at, the last time.
    unreached: Option<String>,
    last_error: Option<String>,
    start: Instant,
    stop: Arc<AtomicBool>,
}

impl Working {
    fn run(mut self, wished: &Receiver<Wished>) {
        let mut looked = Duration::ZERO;
        while !self.stop.load(Ordering::Relaxed) {
            match wished.recv_timeout(TICK / 20) {
                Ok((wish, tell)) => {
                    let _ = tell.send(self.carry_out(wish));
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            let now = now(self.start);
            if now.steady >= self.due {
                self.poll();
                self.due = now.steady + self.settings.poll;
            } else if now.steady < looked + TICK {
                continue;
            }
            looked = now.steady;
            match self.machine.look(now, self.member.sample()) {
                Act::Nothing => {}
                Act::TakeOver => self.take_over(),
                Act::Settle(warning) => self.settle(&warning.unwrap_or_default()),
                Act::GoBack(why) => {
                    self.count("rolled_back");
                    if let Err(error) = self.go_back(&why) {
                        self.last_error = Some(error);
                    }
                }
            }
            self.show();
        }
        self.machine.record.end();
        let _ = self.save();
    }

    fn count(&mut self, name: &'static str) {
        *self.counts.entry(name).or_default() += 1;
    }

    fn save(&self) -> Result<(), String> {
        self.kept.save(&self.machine.record)
    }

    /// Tells the operator and who monitors.
    fn tell(&self, what: &str, version: u64, words: &str) {
        let mark = if words.is_empty() { "" } else { ": " };
        let plain = what.replace('_', " ");
        self.board.say([format!("distribution: version {version} {plain}{mark}{words}")]);
        let (what, reason) = (what.to_owned(), words.to_owned());
        let reason = (!reason.is_empty()).then_some(reason);
        // Nobody monitors a process that is about to end.
        let _ = self.events.ask(move |following| {
            following.watchers().tell(Happened::Distribution { version, what, reason });
        });
    }

    /// Looks at the source, and takes the highest of what is new there.
    fn poll(&mut self) {
        self.count("polls");
        let keys = self.settings.keys.clone();
        // Of all that is there the best is kept, and no other: each may have 64 MiB.
        let (mut best, mut seen, mut refused) = (None::<Bundle>, 0, Vec::new());
        let polled = self.poller.poll(&self.stop, &mut |name, bytes| {
            seen += 1;
            let opened = bytes
                .and_then(|bytes| Bundle::open(bytes, Some(&keys)).map_err(|bad| bad.to_string()));
            match opened {
                Ok(bundle) => {
                    let higher = |best: &Bundle| best.header().version < bundle.header().version;
                    if best.as_ref().is_none_or(higher) {
                        best = Some(bundle);
                    }
                }
                Err(bad) => refused.push(format!("{name}: {bad}")),
            }
        });
        self.unreached = None;
        match polled {
            Ok(false) => return,
            Ok(true) => self.last_error = None,
            Err(error) => {
                self.count("polls_failed");
                self.unreached = Some(error);
                return;
            }
        }
        (0..seen).for_each(|_| self.count("bundles"));
        for error in refused {
            self.count("bundles_refused");
            self.board.say([format!("distribution: refused: {error}")]);
            self.last_error = Some(error);
        }
        if let Some(best) = best {
            self.hear(Arc::new(best));
        }
    }

    /// Hears of a bundle that somebody who is trusted has signed.
    fn hear(&mut self, bundle: Arc<Bundle>) {
        let version = bundle.header().version;
        let other =
            |it: &Arc<Bundle>| it.header().version == version && it.contents() != bundle.contents();
        if self.in_force.iter().chain(&self.offered).any(other) {
            self.count("bundles_refused");
            self.last_error = Some(format!(
                "version {version} is there with other contents than those that are known: what is \
                 changed needs a higher version"
            ));
            return;
        }
        match self.machine.offer(*bundle.header()) {
            Offer::New => self.offered = Some(bundle),
            Offer::Held | Offer::Refused(_) => self.offered = None,
            Offer::Older => {
                self.offered = None;
                self.count("bundles_refused");
                self.last_error = Some(format!(
                    "version {version} is lower than {}, which was taken over: pack it again under a \
                     higher one, or have this member go back by `fingerpost bundle rollback`",
                    self.machine.record.floor
                ));
            }
        }
    }

    fn take_over(&mut self) {
        let Some(bundle) = self.offered.take() else { return };
        let version = bundle.header().version;
        if let Err(why) = self.member.judge(&bundle) {
            return self.refuse(version, &why);
        }
        let before = self.machine.record.clone();
        if let Err(error) = self.kept.keep(&bundle) {
            // Not the bundle's fault: it is looked at again.
            self.last_error = Some(error);
            self.poller.forget();
            return;
        }
        self.machine.taken(now(self.start));
        let done = self.save().and_then(|()| self.member.go_over(Some(Arc::clone(&bundle))));
        match done {
            Ok(words) => {
                self.in_force = Some(bundle);
                self.count("applied");
                self.kept.prune(&self.machine.record);
                self.tell("applied", version, &words);
            }
            Err(why) => {
                // As it was: nothing of it was gone over to.
                self.machine.settle();
                self.machine.record = before;
                self.machine.record.refuse(version, &why);
                if let Err(error) = self.save() {
                    self.last_error = Some(error);
                }
                self.refused(version, &why);
            }
        }
    }

    fn refuse(&mut self, version: u64, why: &str) {
        self.machine.refuse(why);
        if let Err(error) = self.save() {
            self.last_error = Some(error);
        }
        self.refused(version, why);
    }

    fn refused(&mut self, version: u64, why: &str) {
        self.count("bundles_refused");
        self.tell("refused", version, why);
    }

    fn settle(&mut self, warning: &str) {
        self.machine.settle();
        self.count("confirmed");
        match self.save() {
            Ok(()) => {
                let version = self.machine.record.in_force().unwrap_or_default();
                self.tell("confirmed", version, warning);
            }
            Err(error) => self.last_error = Some(error),
        }
    }

    /// Goes back to the version before, or to the one before that if it cannot be read any more.
    fn go_back(&mut self, why: &str) -> Result<String, String> {
        let gone = self.machine.go_back(why);
        let gone = gone.ok_or("no bundle is in force: there is nothing to go back from")?;
        let mut said = Vec::new();
        loop {
            let version = self.machine.record.in_force();
            let folder = self.kept.folder();
            let bundle = version.map(|version| kept::bundle(folder, version, &self.settings.keys));
            let saved = self.save();
            let done = saved.and_then(|()| bundle.transpose()).and_then(|bundle| {
                let bundle = bundle.map(Arc::new);
                self.member.go_over(bundle.clone()).map(|words| (bundle, words))
            });
            match (done, version) {
                (Ok((bundle, words)), _) => {
                    self.in_force = bundle;
                    let to = version
                        .map_or("the local configuration".into(), |it| format!("version {it}"));
                    self.tell("rolled_back", gone, &format!("{why}; {to} is in force"));
                    said.push(format!("version {gone} rolled back, {to} is in force: {words}"));
                    return Ok(said.join("; "));
                }
                (Err(error), Some(version)) => {
                    said.push(format!("version {version} cannot be gone back to: {error}"));
                    self.machine.record.lose();
                }
                (Err(error), None) => {
                    said.push(format!("the local configuration cannot be gone back to: {error}"));
                    let said = said.join("; ");
                    self.tell("rollback_failed", gone, &said);
                    return Err(said);
                }
            }
        }
    }

    fn carry_out(&mut self, wish: Wish) -> Result<String, String> {
        let done = match wish {
            Wish::GoBack => {
                let done = self.go_back("by hand");
                self.counts
                    .entry("rolled_back_by_hand")
                    .and_modify(|count| *count += u64::from(done.is_ok()));
                done
            }
            Wish::Forgive => {
                let count = self.machine.forgive();
                self.poller.forget();
                self.due = Duration::ZERO;
                self.save().map(|()| format!("{count} refused versions may be taken again"))
            }
        };
        self.show();
        done
    }

    fn show(&self) {
        let (state, reason, left) = self.machine.state(now(self.start));
        let record = &self.machine.record;
        let counts = self.counts.iter().map(|(name, count)| ((*name).to_owned(), *count));
        let before = record.held.split_last().map_or(Vec::new(), |(_, before)| before.to_vec());
        *lock(&self.board.told) = DistributionTold {
            name: self.settings.name.clone(),
            source: shown(&self.settings.source),
            state: state.to_owned(),
            reason,
            remaining_seconds: left,
            version: record.in_force(),
            offered: self.machine.offered(),
            previous: before,
            floor: record.floor,
            refused: record.refused.clone(),
            last_error: self.unreached.as_ref().or(self.last_error.as_ref()).cloned(),
            counts: counts.collect(),
        };
    }
}

#[cfg(test)]
mod tests;
