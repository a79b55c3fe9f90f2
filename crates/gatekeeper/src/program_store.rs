//! The program store: the flow programs of a gate, and the thread that verifies new ones.
//!
//! ```text
//!   decision receiver ── chunks ──► ProgramInbox ─► Library ── complete ──► thread: verifier ─► workers
//!   controller ── reload, list ────────────────────► Library                                 ▲
//!                └─────────────────────────────────────────────────────── publish ───────────┘
//! ```
//!
//! `gate::decision::v2::library` decides what to do with a chunk. The verifier takes up to some
//! milliseconds, and workers may take half a second to release the programs before: decisions must not
//! wait for either, so that both run on a thread of their own. The thread has no capabilities, and its
//! input comes from the network; if the verifier panics on a program, that program is rejected.
//!
//! There are two locks: the publisher's, held until all workers use the new programs, and the
//! library's, held for the time of a copy. Code that needs both takes the publisher's first.

use std::collections::BTreeMap;
use std::io;
use std::panic::catch_unwind;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use fib::Publisher;
use gate::decision::v2::chunk::{Chunk, ProgramStatus, TransferState};
use gate::decision::v2::library::{Library, StoredProgram, VerificationJob};
use gate::program::Programs;

use super::config::Config;
use api::{ProgramInfo, hexadecimal};
use threads::{Rights, Task};

/// How long to wait for the workers to release the programs before.
const RECLAIM_TIMEOUT: Duration = Duration::from_millis(500);
/// A sender without a message for this long loses the exclusive use of its program numbers.
const SENDER_TIMEOUT: Duration = Duration::from_secs(60);
/// How often the thread checks, while it waits for a program, whether it has to end.
const STOP_CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// The maximum number of messages for the log that wait to be drained.
const MESSAGES: usize = 64;

/// The state shared with the verifier thread.
#[derive(Debug)]
struct Shared {
    library: Mutex<Library>,
    publisher: Mutex<Publisher<Programs>>,
    messages: Mutex<Vec<String>>,
    accepted: AtomicU64,
    rejected: AtomicU64,
}

/// The receiving end: takes chunks and offers of programs.
#[derive(Debug)]
pub(super) struct ProgramInbox {
    shared: Arc<Shared>,
    jobs: Sender<VerificationJob>,
}

/// The programs of a gate, and the verifier thread.
#[derive(Debug)]
pub(super) struct ProgramStore {
    shared: Arc<Shared>,
    thread: Task,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Publishes programs to the workers.
fn publish(publisher: &mut Publisher<Programs>, programs: Programs) {
    publisher.publish(Box::new(programs));
    // Workers without packets release them too, when they are idle.
    while publisher.reclaim_within(RECLAIM_TIMEOUT).is_some() {}
}

impl Shared {
    fn verify(&self, job: &VerificationJob) {
        let result = catch_unwind(|| job.verify());
        let result =
            result.unwrap_or_else(|_| Err("the verifier panicked; please report this bug".into()));
        let program = format!("program {} of grantor {}", job.number, job.sender);
        let rejected = result.as_ref().err().map(|error| format!("{program} is rejected: {error}"));
        let mut publisher = lock(&self.publisher);
        let programs = lock(&self.library).finish_verification(job, result).cloned();
        let message = match (programs, rejected) {
            (Some(programs), _) => {
                publish(&mut publisher, programs);
                self.accepted.fetch_add(1, Ordering::Relaxed);
                format!("{program} is active")
            }
            (None, Some(rejected)) => {
                self.rejected.fetch_add(1, Ordering::Relaxed);
                rejected
            }
            // A reload replaced the library; the grantor sends the program again if it is still wanted.
            (None, None) => return,
        };
        let mut messages = lock(&self.messages);
        if messages.len() < MESSAGES {
            messages.push(message);
        }
    }
}

impl ProgramStore {
    /// Starts the thread with the programs of a configuration, which `publisher` has published.
    pub(super) fn start(
        publisher: Publisher<Programs>,
        config: &Config,
    ) -> io::Result<(Self, ProgramInbox)> {
        let library = Library::new(config.programs.clone(), config.trust.programs);
        let shared = Arc::new(Shared {
            library: Mutex::new(library),
            publisher: Mutex::new(publisher),
            messages: Mutex::default(),
            accepted: AtomicU64::new(0),
            rejected: AtomicU64::new(0),
        });
        let (jobs, queue): (_, Receiver<VerificationJob>) = mpsc::channel();
        let thread_shared = Arc::clone(&shared);
        let thread = Task::start("verifier", Rights::None, move |stop| {
            while !stop.is_set() {
                match queue.recv_timeout(STOP_CHECK_INTERVAL) {
                    Ok(job) => thread_shared.verify(&job),
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => break,
                }
            }
        })?;
        let inbox = ProgramInbox { shared: Arc::clone(&shared), jobs };
        Ok((Self { shared, thread }, inbox))
    }

    /// Applies another configuration.
    pub(super) fn reload(&self, config: &Config) {
        let senders: Vec<u32> = config.trust.senders.iter().map(|(id, _)| *id).collect();
        let mut publisher = lock(&self.shared.publisher);
        let own = config.programs.clone();
        let programs =
            lock(&self.shared.library).reload(own, config.trust.programs, &senders).clone();
        publish(&mut publisher, programs);
    }

    /// Lists the programs.
    pub(super) fn list(&self) -> Vec<ProgramInfo> {
        lock(&self.shared.library).list().iter().map(status).collect()
    }

    /// Returns the numbers of grantors' programs that the verifier accepted and rejected.
    pub(super) fn counts(&self) -> [(&'static str, u64); 2] {
        let Shared { accepted, rejected, .. } = &*self.shared;
        [("programs_accepted", accepted), ("programs_refused", rejected)]
            .map(|(name, counter)| (name, counter.load(Ordering::Relaxed)))
    }

    /// Removes and returns the messages for the log.
    pub(super) fn drain_messages(&self) -> Vec<String> {
        std::mem::take(&mut *lock(&self.shared.messages))
    }

    /// Returns whether the thread runs.
    pub(super) fn is_alive(&self) -> bool {
        self.thread.is_alive()
    }
}

impl ProgramInbox {
    /// Accepts a chunk or an offer, and returns the state of the program.
    pub(super) fn accept(
        &self,
        sender: u32,
        chunk: &Chunk<'_>,
        last_messages: &BTreeMap<u32, Instant>,
    ) -> ProgramStatus {
        let silent = |owner| {
            let last = last_messages.get(&owner);
            last.is_none_or(|last| last.elapsed() > SENDER_TIMEOUT)
        };
        let (status, job) = lock(&self.shared.library).receive_chunk(sender, chunk, silent);
        // There is one job a sender at a time. The thread runs as long as the inbox exists.
        if let Some(job) = job {
            let _ = self.jobs.send(job);
        }
        status
    }
}

fn status(stored: &StoredProgram) -> ProgramInfo {
    let (state, reason) = match stored.state {
        TransferState::Wanted => ("transferring", None),
        TransferState::Verifying => ("verifying", None),
        TransferState::Active => ("active", None),
        TransferState::Rejected(reason) => ("rejected", Some(reason)),
    };
    let words = Some(stored.error.as_str()).filter(|words| !words.is_empty());
    ProgramInfo {
        number: stored.number,
        origin: match stored.sender {
            Some(sender) => format!("grantor {sender}"),
            None => "configuration".to_owned(),
        },
        name: None,
        gate: None,
        digest: hexadecimal(&stored.digest),
        state: state.to_owned(),
        reason: reason.map(|reason| words.map_or_else(|| reason.to_string(), str::to_owned)),
        received_bytes: stored.received.map(|(there, _)| there as u64),
        bytes: stored.received.map(|(_, bytes)| bytes as u64),
        previous_kept: stored.has_previous,
    }
}
