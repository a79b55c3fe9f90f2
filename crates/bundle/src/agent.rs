//! The distribution agent: a thread beside a gate or grantor that applies bundles and rolls them back.
//!
//! ```text
//!   source ─► signature ─► rollout: when? ─► validate ─► write to disk ─► apply
//!                             ▲                                             │
//!                             └── health sample each second: failures, ◄────┘
//!                                 grants, silent grantors
//! ```
//!
//! The member validates a bundle in the same way as its configuration file, as a whole
//! ([`DistributionMember::validate`]). It applies a bundle in the same way as a reload, all or
//! nothing ([`DistributionMember::apply`]). The agent writes first the bundle and then the record to
//! disk before it applies a version, so that a process that starts after a crash at any moment finds
//! one consistent state.
//!
//! The agent never blocks the packet path. The thread keeps only the privileges of a worker.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use super::blocks::{AppliedBlocks, BlockChange};
use super::bundle::Bundle;
use super::config::DistributionConfig;
use super::health::HealthSample;
use super::record::Eligibility;
use super::rollout::{Action, Rollout, Timestamp};
use super::source::SourcePoller;
use super::store::{self, BundleStore};
use api::EventKind;
use api::{AttackReport, DistributionStatus};
use threads::{Rights, Stop, Task};

/// Interval between two health samples.
const TICK: Duration = Duration::from_secs(1);
/// Longest wait for the thread to end: a remote file system may block it.
const JOIN_TIMEOUT: Duration = Duration::from_secs(2);
/// Longest time of an operator's command: each thread of a policy has to apply the change.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(60);
/// Bound of the queue of log messages.
const MAX_MESSAGES: usize = 64;

/// A gate or grantor, as the agent sees it.
pub trait DistributionMember: Send + Sync {
    /// Validates a whole bundle; changes nothing.
    ///
    /// # Errors
    ///
    /// The reason why the bundle is not valid for this member.
    fn validate(&self, bundle: &Arc<Bundle>) -> Result<(), String>;

    /// Applies a bundle, or the local configuration alone. Returns a summary of the change.
    ///
    /// # Errors
    ///
    /// The reason why nothing was changed.
    fn apply(&self, bundle: Option<Arc<Bundle>>) -> Result<String, String>;

    /// Returns the current counts.
    fn sample(&self) -> HealthSample;

    /// Changes the prefixes that a gate drops; `None` if the member is no gate. Returns a report.
    ///
    /// # Errors
    ///
    /// The reason why the change is refused.
    fn change_block(&self, _change: BlockChange) -> Option<Result<String, String>> {
        None
    }

    /// Returns the last attack that it has seen, for its fleet. Only gates see attacks.
    fn attack(&self) -> Option<AttackReport> {
        None
    }
}

/// A command of an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Return to the previous version.
    Rollback,
    /// Accept refused versions again.
    Retry,
}

type CommandRequest = (Command, Sender<Result<String, String>>);

/// The state that the agent publishes to other threads, and the queue of commands to it.
pub struct AgentStatus {
    status: Mutex<DistributionStatus>,
    messages: Mutex<Vec<String>>,
    commands: Mutex<Sender<CommandRequest>>,
    /// Taken by the agent when it starts.
    requests: Mutex<Option<Receiver<CommandRequest>>>,
}

impl fmt::Debug for AgentStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentStatus").finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Default for AgentStatus {
    /// Creates the state of an agent that is not started yet.
    fn default() -> Self {
        let (commands, requests) = channel();
        Self {
            status: Mutex::default(),
            messages: Mutex::default(),
            commands: Mutex::new(commands),
            requests: Mutex::new(Some(requests)),
        }
    }
}

impl AgentStatus {
    /// Returns the state of the bundles.
    pub fn status(&self) -> DistributionStatus {
        lock(&self.status).clone()
    }

    /// Removes and returns the queued log messages.
    pub fn drain_messages(&self) -> Vec<String> {
        std::mem::take(&mut *lock(&self.messages))
    }

    /// Queues log messages; drops those that exceed `MAX_MESSAGES`.
    pub fn queue_messages(&self, new: impl IntoIterator<Item = String>) {
        let mut messages = lock(&self.messages);
        let room = MAX_MESSAGES.saturating_sub(messages.len());
        messages.extend(new.into_iter().take(room));
    }

    /// Sends a command to the agent and waits for its result.
    ///
    /// # Errors
    ///
    /// The reason of the failure, or that the agent does not answer within `COMMAND_TIMEOUT`.
    pub fn execute(&self, command: Command) -> Result<String, String> {
        let no_answer = || "the distribution thread does not answer".to_owned();
        let (send, receive) = channel();
        lock(&self.commands).send((command, send)).map_err(|_| no_answer())?;
        receive.recv_timeout(COMMAND_TIMEOUT).map_err(|_| no_answer())?
    }
}

/// The state of a gate or grantor at its start: its bundle store and the bundle in force.
#[derive(Debug)]
pub struct InitialState {
    pub(crate) store: BundleStore,
    pub(crate) bundle: Option<Arc<Bundle>>,
}

/// The handle of the thread; dropping it ends the thread.
#[derive(Debug)]
pub struct Agent(Option<Task>);

impl Agent {
    /// Starts the thread, which reports each change of a version's state by `publish`.
    ///
    /// # Errors
    ///
    /// The I/O error of the store or of the thread's creation.
    pub fn start(
        config: &DistributionConfig,
        initial: InitialState,
        member: Arc<dyn DistributionMember>,
        status: Arc<AgentStatus>,
        publish: impl Fn(EventKind) + Send + 'static,
    ) -> io::Result<Self> {
        let Some(requests) = lock(&status.requests).take() else {
            return Err(io::Error::other("a distribution thread runs already"));
        };
        let mut record = store::read_record(initial.store.folder()).map_err(io::Error::other)?;
        // Versions that cannot be read or are not valid any more are not in force.
        let in_force = initial.bundle.as_ref().map(|bundle| bundle.header().version);
        while record.in_force() != in_force && record.in_force().is_some() {
            record.drop_current();
        }
        initial.store.write_record(&record).map_err(io::Error::other)?;
        let start = Instant::now();
        let mut agent = AgentLoop {
            rollout: Rollout::new(config.clone(), record, now(start)),
            config: config.clone(),
            store: initial.store,
            in_force: initial.bundle,
            offered: None,
            poller: SourcePoller::new(config)?,
            next_poll: Duration::ZERO,
            member,
            status,
            publish: Box::new(publish),
            counts: COUNTS.map(|name| (name, 0)).into(),
            poll_error: None,
            last_error: None,
            blocks: None,
            start,
        };
        agent.restore_blocks();
        agent.publish_status();
        let run = move |stop: &Stop| agent.run(&requests, stop);
        Ok(Self(Some(Task::start("distribution", Rights::Worker, run)?)))
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        if let Some(task) = self.0.take() {
            task.stop_within(JOIN_TIMEOUT);
        }
    }
}

/// The names of the counters.
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

fn now(start: Instant) -> Timestamp {
    let wall = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_secs();
    Timestamp { wall, monotonic: start.elapsed() }
}

/// The state of the thread.
struct AgentLoop {
    config: DistributionConfig,
    rollout: Rollout,
    store: BundleStore,
    in_force: Option<Arc<Bundle>>,
    offered: Option<Arc<Bundle>>,
    poller: SourcePoller,
    /// Time of the next poll of the source.
    next_poll: Duration,
    member: Arc<dyn DistributionMember>,
    status: Arc<AgentStatus>,
    /// Publishes an event to the clients of the control socket.
    publish: Box<dyn Fn(EventKind) + Send>,
    counts: BTreeMap<&'static str, u64>,
    /// The error of the last poll, if it failed.
    poll_error: Option<String>,
    last_error: Option<String>,
    /// The fleet's blocks, at a gate that has had some.
    blocks: Option<AppliedBlocks>,
    start: Instant,
}

impl AgentLoop {
    fn run(mut self, requests: &Receiver<CommandRequest>, stop: &Stop) {
        let mut last_step = Duration::ZERO;
        while !stop.is_set() {
            match requests.recv_timeout(TICK / 20) {
                Ok((command, reply)) => {
                    let _ = reply.send(self.execute(command));
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            let now = now(self.start);
            if now.monotonic >= self.next_poll {
                self.poll(stop);
                self.next_poll = now.monotonic + self.poller.interval(self.config.poll_interval);
            } else if now.monotonic < last_step + TICK {
                continue;
            }
            last_step = now.monotonic;
            self.take_blocks();
            match self.rollout.step(now, self.member.sample()) {
                Action::None => {}
                Action::Apply => self.apply(),
                Action::Confirm(warning) => self.confirm(&warning.unwrap_or_default()),
                Action::RollBack(reason) => {
                    self.count("rolled_back");
                    if let Err(error) = self.roll_back(&reason) {
                        self.last_error = Some(error);
                    }
                }
            }
            self.publish_status();
        }
        self.rollout.record.mark_shutdown();
        let _ = self.save_record();
    }

    fn count(&mut self, name: &'static str) {
        *self.counts.entry(name).or_default() += 1;
    }

    fn save_record(&self) -> Result<(), String> {
        self.store.write_record(&self.rollout.record)
    }

    /// Logs a state change of a version and sends it to `fingerpost monitor`.
    fn report(&self, what: &str, version: u64, reason: &str) {
        let separator = if reason.is_empty() { "" } else { ": " };
        let state = what.replace('_', " ");
        let message = format!("distribution: version {version} {state}{separator}{reason}");
        self.status.queue_messages([message]);
        let (what, reason) = (what.to_owned(), reason.to_owned());
        let reason = (!reason.is_empty()).then_some(reason);
        (self.publish)(EventKind::Distribution { version, what, reason });
    }

    /// Polls the source and offers the highest new version to the rollout.
    fn poll(&mut self, stop: &Stop) {
        self.count("polls");
        let keys = self.config.keys.clone();
        // Only the highest version stays in memory: each bundle may have 64 MiB.
        let (mut best, mut seen, mut refused) = (None::<Bundle>, 0, Vec::new());
        let polled = self.poller.poll(stop, &mut |name, bytes| {
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
        self.poll_error = None;
        match polled {
            Ok(false) => return,
            Ok(true) => self.last_error = None,
            Err(error) => {
                self.count("polls_failed");
                self.poll_error = Some(error);
                return;
            }
        }
        (0..seen).for_each(|_| self.count("bundles"));
        for error in refused {
            self.count("bundles_refused");
            self.status.queue_messages([format!("distribution: refused: {error}")]);
            self.last_error = Some(error);
        }
        if let Some(best) = best {
            self.offer(Arc::new(best));
        }
    }

    /// Offers a bundle with a valid signature of a trusted key to the rollout.
    fn offer(&mut self, bundle: Arc<Bundle>) {
        let version = bundle.header().version;
        let conflicts = |known: &Arc<Bundle>| {
            known.header().version == version && known.contents() != bundle.contents()
        };
        if self.in_force.iter().chain(&self.offered).any(conflicts) {
            self.count("bundles_refused");
            self.last_error = Some(format!(
                "version {version} of the source has other contents than the known version \
                 {version}: pack changed files with a higher version"
            ));
            return;
        }
        match self.rollout.offer(*bundle.header()) {
            Eligibility::New => self.offered = Some(bundle),
            Eligibility::InForce | Eligibility::Refused(_) => self.offered = None,
            Eligibility::BelowFloor => {
                self.offered = None;
                self.count("bundles_refused");
                self.last_error = Some(format!(
                    "version {version} is lower than {}, which was applied before: pack it again \
                     with a higher version, or roll this member back with `fingerpost bundle \
                     rollback`",
                    self.rollout.record.floor
                ));
            }
        }
    }

    /// Validates, stores and applies the offered bundle.
    fn apply(&mut self) {
        let Some(bundle) = self.offered.take() else { return };
        let version = bundle.header().version;
        if let Err(reason) = self.member.validate(&bundle) {
            return self.refuse(version, &reason);
        }
        let before = self.rollout.record.clone();
        if let Err(error) = self.store.write_bundle(&bundle) {
            // Not an error of the bundle: the next poll offers it again.
            self.last_error = Some(error);
            self.poller.reset();
            return;
        }
        self.rollout.start_trial(now(self.start));
        let done = self.save_record().and_then(|()| self.member.apply(Some(Arc::clone(&bundle))));
        match done {
            Ok(summary) => {
                self.in_force = Some(bundle);
                self.count("applied");
                self.store.prune(&self.rollout.record);
                self.report("applied", version, &summary);
            }
            Err(reason) => {
                // Nothing was applied: restore the record.
                self.rollout.confirm();
                self.rollout.record = before;
                self.rollout.record.refuse(version, &reason);
                if let Err(error) = self.save_record() {
                    self.last_error = Some(error);
                }
                self.report_refused(version, &reason);
            }
        }
    }

    fn refuse(&mut self, version: u64, reason: &str) {
        self.rollout.refuse(reason);
        if let Err(error) = self.save_record() {
            self.last_error = Some(error);
        }
        self.report_refused(version, reason);
    }

    fn report_refused(&mut self, version: u64, reason: &str) {
        self.count("bundles_refused");
        self.report("refused", version, reason);
    }

    fn confirm(&mut self, warning: &str) {
        self.rollout.confirm();
        self.count("confirmed");
        match self.save_record() {
            Ok(()) => {
                let version = self.rollout.record.in_force().unwrap_or_default();
                self.report("confirmed", version, warning);
            }
            Err(error) => self.last_error = Some(error),
        }
    }

    /// Returns to the previous version, or to an earlier one if that cannot be read.
    fn roll_back(&mut self, reason: &str) -> Result<String, String> {
        let refused = self.rollout.roll_back(reason);
        let refused = refused.ok_or("no bundle is in force: nothing to roll back")?;
        let mut messages = Vec::new();
        loop {
            let version = self.rollout.record.in_force();
            let folder = self.store.folder();
            let bundle =
                version.map(|version| store::read_bundle(folder, version, &self.config.keys));
            let saved = self.save_record();
            let done = saved.and_then(|()| bundle.transpose()).and_then(|bundle| {
                let bundle = bundle.map(Arc::new);
                self.member.apply(bundle.clone()).map(|summary| (bundle, summary))
            });
            match (done, version) {
                (Ok((bundle, summary)), _) => {
                    self.in_force = bundle;
                    let target = version.map_or("the local configuration".into(), |version| {
                        format!("version {version}")
                    });
                    self.report("rolled_back", refused, &format!("{reason}; {target} is in force"));
                    messages.push(format!(
                        "version {refused} rolled back, {target} is in force: {summary}"
                    ));
                    return Ok(messages.join("; "));
                }
                (Err(error), Some(version)) => {
                    messages.push(format!("cannot roll back to version {version}: {error}"));
                    self.rollout.record.drop_current();
                }
                (Err(error), None) => {
                    messages.push(format!("cannot roll back to the local configuration: {error}"));
                    let message = messages.join("; ");
                    self.report("rollback_failed", refused, &message);
                    return Err(message);
                }
            }
        }
    }

    fn execute(&mut self, command: Command) -> Result<String, String> {
        let done = match command {
            Command::Rollback => {
                let done = self.roll_back("by hand");
                self.counts
                    .entry("rolled_back_by_hand")
                    .and_modify(|count| *count += u64::from(done.is_ok()));
                done
            }
            Command::Retry => {
                let count = self.rollout.clear_refused();
                self.poller.reset();
                self.next_poll = Duration::ZERO;
                self.save_record()
                    .map(|()| format!("{count} refused versions may be applied again"))
            }
        };
        self.publish_status();
        done
    }

    fn publish_status(&mut self) {
        let (state, reason, remaining) = self.rollout.state(now(self.start));
        let record = &self.rollout.record;
        let counts = self.counts.iter().map(|(name, count)| ((*name).to_owned(), *count));
        let previous = record.applied.split_last().map_or(Vec::new(), |(_, rest)| rest.to_vec());
        let status = DistributionStatus {
            name: self.config.name.clone(),
            labels: self.config.labels.iter().map(ToString::to_string).collect(),
            source: self.config.source.to_string(),
            state: state.to_owned(),
            reason,
            remaining_seconds: remaining,
            version: record.in_force(),
            offered: self.rollout.offered(),
            previous,
            floor: record.floor,
            refused: record.refused.clone(),
            last_error: self.poll_error.as_ref().or(self.last_error.as_ref()).cloned(),
            blocked: self.blocks.as_ref().map(AppliedBlocks::status),
            counts: counts.collect(),
        };
        self.poller.publish(&status, || self.member.attack());
        *lock(&self.status.status) = status;
    }
}

mod fleet_blocks;
#[cfg(test)]
mod tests;
