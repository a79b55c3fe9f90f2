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
//! If the successor fails or ends before `Running`, the predecessor puts its programs back and starts its workers
//! again. If the predecessor ends after `Suspended`, the successor continues alone.
//!
//! A format is a version of the messages after `Hello`. Each program states those that it reads, and the
//! predecessor refuses a successor that reads none of its own. Counters travel by name, and a program refuses a
//! counter that it does not know.
//!
//! Limits: at most [`MOST_DESCRIPTORS`] interfaces and listeners. The interfaces and their queues must be those of
//! the running configuration. Not with FRR's routes by FPM, with flow specifications, or on a grantor.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;

use rustix::fs::MemfdFlags;

mod channel;
mod counters;
mod messages;
mod predecessor;
mod successor;

pub(crate) use counters::{InterfaceQueueCounts, WorkerCounts};
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
