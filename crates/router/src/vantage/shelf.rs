//! The shelf: which programs there are, and a thread that has new ones verified.
//!
//! ```text
//!   decisions ── pieces ──► Desk ─► Library ── whole ──► thread: verifier ─► published to workers
//!   panel ── reload, list ─────────► Library                                 ▲
//!                └────────────────────────────────────────────────────────────┘
//! ```
//!
//! What is to become of a piece is `gate::program::library`'s to say. The verifier takes up to some
//! milliseconds, and workers may take half a second to let go of what was published before:
//! neither may hold decisions up, so that both are a thread's own. The thread has no rights, and what
//! it reads was written by others; if the verifier should panic over a program, that one is refused.
//!
//! Two locks: the publisher's, held while workers go over, and the library's, held for as long as a
//! copy takes. Who needs both takes the publisher's first.

use std::collections::BTreeMap;
use std::io;
use std::panic::catch_unwind;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use fib::Publisher;
use gate::decision::v2::chunk::{Chunk, ProgramStatus, TransferState};
use gate::program::Programs;
use gate::program::library::{Library, StoredProgram, VerificationJob};

use super::config::Config;
use super::told::{ProgramTold, hexadecimal};
use crate::control::rights;

/// How long the workers may take to go over to other programs, to reclaim the last.
const PASS: Duration = Duration::from_millis(500);
/// Whose last word is so long ago has no number to himself any more.
const FORGOTTEN: Duration = Duration::from_secs(60);
/// Messages for the operator that are kept until somebody takes them.
const NEWS: usize = 64;

/// What is shared with the thread.
#[derive(Debug)]
struct Shared {
    library: Mutex<Library>,
    publisher: Mutex<Publisher<Programs>>,
    news: Mutex<Vec<String>>,
    taken: AtomicU64,
    refused: AtomicU64,
}

/// Where pieces are handed in.
#[derive(Debug)]
pub(super) struct Desk {
    shared: Arc<Shared>,
    jobs: Sender<VerificationJob>,
}

/// The programs of a gate, and the thread.
#[derive(Debug)]
pub(super) struct Shelf {
    shared: Arc<Shared>,
    thread: JoinHandle<()>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Has workers go over to these programs.
fn publish(publisher: &mut Publisher<Programs>, programs: Programs) {
    publisher.publish(Box::new(programs));
    // Workers without packets let go of the last by themselves.
    while publisher.reclaim_within(PASS).is_some() {}
}

impl Shared {
    fn judge(&self, job: &VerificationJob) {
        let judged = catch_unwind(|| job.verify());
        let judged = judged.unwrap_or_else(|_| Err("the verifier fails over it: report it".into()));
        let who = format!("program {} of grantor {}", job.number, job.sender);
        let refused = judged.as_ref().err().map(|why| format!("{who} is refused: {why}"));
        let mut publisher = lock(&self.publisher);
        let programs = lock(&self.library).finish_verification(job, judged).cloned();
        let told = match (programs, refused) {
            (Some(programs), _) => {
                publish(&mut publisher, programs);
                self.taken.fetch_add(1, Ordering::Relaxed);
                format!("{who} is in force")
            }
            (None, Some(refused)) => {
                self.refused.fetch_add(1, Ordering::Relaxed);
                refused
            }
            // A reload came between; it is sent again if it is still wanted.
            (None, None) => return,
        };
        let mut news = lock(&self.news);
        if news.len() < NEWS {
            news.push(told);
        }
    }
}

impl Shelf {
    /// Has the programs of a configuration, which `publisher` has published.
    pub(super) fn start(
        publisher: Publisher<Programs>,
        config: &Config,
    ) -> io::Result<(Self, Desk)> {
        let library = Library::new(config.programs.clone(), config.trust.programs);
        let shared = Arc::new(Shared {
            library: Mutex::new(library),
            publisher: Mutex::new(publisher),
            news: Mutex::default(),
            taken: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        });
        let (jobs, each): (_, Receiver<VerificationJob>) = mpsc::channel();
        let mine = Arc::clone(&shared);
        // It ends with the desk.
        let thread = Builder::new().name("verifier".into()).spawn(move || {
            let _ = rights::keep(&[]);
            each.iter().for_each(|job| mine.judge(&job));
        })?;
        let desk = Desk { shared: Arc::clone(&shared), jobs };
        Ok((Self { shared, thread }, desk))
    }

    /// Goes over to what a configuration says.
    pub(super) fn reload(&self, config: &Config) {
        let senders: Vec<u32> = config.trust.senders.iter().map(|(id, _)| *id).collect();
        let mut publisher = lock(&self.shared.publisher);
        let own = config.programs.clone();
        let programs =
            lock(&self.shared.library).reload(own, config.trust.programs, &senders).clone();
        publish(&mut publisher, programs);
    }

    /// Lists the programs.
    pub(super) fn list(&self) -> Vec<ProgramTold> {
        lock(&self.shared.library).list().iter().map(tell).collect()
    }

    /// Counts the programs of grantors that passed the verifier, and those that did not.
    pub(super) fn counts(&self) -> [(&'static str, u64); 2] {
        let Shared { taken, refused, .. } = &*self.shared;
        [("programs_accepted", taken), ("programs_refused", refused)]
            .map(|(name, counter)| (name, counter.load(Ordering::Relaxed)))
    }

    /// Takes what an operator should know.
    pub(super) fn news(&self) -> Vec<String> {
        std::mem::take(&mut *lock(&self.shared.news))
    }

    /// Says whether the thread is at work.
    pub(super) fn alive(&self) -> bool {
        !self.thread.is_finished()
    }
}

impl Desk {
    /// Takes a piece or an offer, and says how it stands with the program.
    pub(super) fn take(
        &self,
        sender: u32,
        chunk: &Chunk<'_>,
        heard: &BTreeMap<u32, Instant>,
    ) -> ProgramStatus {
        let silent = |owner| {
            let last = heard.get(&owner);
            last.is_none_or(|last| last.elapsed() > FORGOTTEN)
        };
        let (standing, job) = lock(&self.shared.library).receive_chunk(sender, chunk, silent);
        // One at a time of each sender. The thread is there as long as this is.
        if let Some(job) = job {
            let _ = self.jobs.send(job);
        }
        standing
    }
}

fn tell(shelved: &StoredProgram) -> ProgramTold {
    let (state, reason) = match shelved.state {
        TransferState::Wanted => ("transferring", None),
        TransferState::Verifying => ("verifying", None),
        TransferState::Active => ("active", None),
        TransferState::Rejected(reason) => ("rejected", Some(reason)),
    };
    let words = Some(shelved.error.as_str()).filter(|words| !words.is_empty());
    ProgramTold {
        number: shelved.number,
        origin: match shelved.sender {
            Some(sender) => format!("grantor {sender}"),
            None => "configuration".to_owned(),
        },
        name: None,
        gate: None,
        digest: hexadecimal(&shelved.digest),
        state: state.to_owned(),
        reason: reason.map(|reason| words.map_or_else(|| reason.to_string(), str::to_owned)),
        received_bytes: shelved.received.map(|(there, _)| there as u64),
        bytes: shelved.received.map(|(_, bytes)| bytes as u64),
        previous_kept: shelved.has_previous,
    }
}
