//! The succession of processes: a new program takes over from a running one, which forwards until then.
//!
//! ```text
//!   predecessor                                   successor, its child, with the same arguments
//!     │ ◄───────────── Hello: readable formats ──── │ reads its configuration
//!     │ ─ Welcome: interfaces, TAP, listeners ────► │ reads the routes, builds its tables, loads its
//!     │   forwards                                  │ programs: seconds
//!     │ ◄────────────────────────────── Ready ───── │
//!     │ workers stop                                │
//!     │ ─ Suspended: counters ────────────────────► │ its programs replace the others, sockets are bound,
//!     │                                             │ workers start: milliseconds
//!     │ ◄──────────────────────────── Running ───── │
//!     │ ─ Counts: of the interfaces ──────────────► │ owns the interfaces
//!     ▼ exits                                       ▼ serves the listeners
//! ```
//!
//! Messages are JSON with their length in front, over a Unix socket that is the successor's standard input;
//! descriptors travel with them (`channel.rs`). While no worker has sockets, the steering program leaves every
//! packet to the kernel, which forwards by the same routes.
//!
//! The predecessor starts a launcher, which starts the successor and ends ([`launch`]). The successor is then no child
//! of the predecessor but of the service manager, which systemd requires of a main process: it kills a foreign one
//! without waiting for it.
//!
//! If the successor fails or ends before `Running`, the predecessor puts its programs back and starts its workers
//! again. If the predecessor ends after `Suspended`, the successor continues alone.
//!
//! A format is a version of the messages after `Hello`. Each program states those that it reads, and the
//! predecessor refuses a successor that reads none of its own. Counters travel by name, and a program refuses a
//! counter that it does not know.
//!
//! Limits: at most [`MOST_DESCRIPTORS`] interfaces and listeners. The interfaces and their queues must be those of
//! the running configuration. Not with FRR's routes by FPM, with flow specifications, or on a grantor.

use std::env;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::fs::MemfdFlags;

mod channel;
mod counters;
mod messages;
mod predecessor;
mod successor;

pub(crate) use counters::{AccessListCounts, InterfaceQueueCounts, WorkerCounts};
pub(crate) use messages::{FromPredecessor, FromSuccessor, Suspended, Welcome};
pub use predecessor::Predecessor;
pub(crate) use successor::{Event, Successor};

/// The formats of the messages that this program reads and writes.
pub(crate) const FORMATS: [u32; 1] = [1];

/// The most descriptors of a message: `SCM_MAX_FD` of the kernel.
pub(crate) const MOST_DESCRIPTORS: usize = 253;

/// Writes the state of a hook to a file in memory, for a successor.
///
/// # Errors
///
/// The system's error.
pub(crate) fn state_file(state: &[u8]) -> io::Result<OwnedFd> {
    let file = rustix::fs::memfd_create("fingerpost-state", MemfdFlags::CLOEXEC)?;
    let mut file = File::from(file);
    file.write_all(state)?;
    Ok(file.into())
}

/// The environment variable of a successor.
pub(crate) const VARIABLE: &str = "FINGERPOST_SUCCESSOR";

/// Its value for the launcher, which starts the successor and ends.
pub(crate) const LAUNCHER: &str = "launcher";

/// Starts this program again as a successor and ends this process, if a predecessor has started it for that. Must be
/// called before anything else, since the successor gets the rights of this process.
pub fn launch() {
    if env::var_os(VARIABLE).is_none_or(|value| value != LAUNCHER) {
        return;
    }
    let mut arguments = env::args_os();
    let started = env::current_exe().and_then(|program| {
        let name = arguments.next().unwrap_or_else(|| program.clone().into());
        Command::new(program).arg0(name).args(arguments).env(VARIABLE, "successor").spawn()
    });
    if let Err(error) = &started {
        log::error!("cannot start the successor: {error}");
    }
    std::process::exit(i32::from(started.is_err()));
}
