//! The messages between predecessor and successor.

use std::net::SocketAddr;
use std::path::PathBuf;

use port::HostHandover;
use port::af_xdp::{InterfaceCounts, InterfaceHandover};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{AccessListCounts, InterfaceQueueCounts, WorkerCounts};

/// A message of the successor.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FromSuccessor {
    /// The first message.
    Hello {
        /// The formats that it reads and writes.
        formats: Vec<u32>,
        /// Its version.
        version: String,
        /// Its role: `router`, `gate`, `grantor`.
        role: String,
        /// The number of its process.
        pid: u32,
    },
    /// It has tables and programs: the workers may stop.
    Ready,
    /// Its workers run.
    Running,
    /// It ends.
    Failed {
        /// The reason.
        reason: String,
    },
}

/// A message of the predecessor.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FromPredecessor {
    /// The answer to a hello.
    Welcome(Welcome),
    /// No hand-over.
    Refused {
        /// The reason.
        reason: String,
    },
    /// The workers have stopped.
    Suspended(Suspended),
    /// The counts of the interfaces, in the order of the welcome.
    Counts(Vec<InterfaceCounts>),
}

/// The interfaces and listeners that the predecessor hands over. The descriptors are those of the links of the interfaces, of the TAP device, of
/// the control socket, of the listener of the metrics, and
/// of the role.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Welcome {
    /// The format of all further messages.
    pub(crate) format: u32,
    pub(crate) interfaces: Vec<InterfaceHandover>,
    /// The TAP device, if packets return to the kernel.
    pub(crate) host: Option<HostHandover>,
    /// The path of the control socket, if there is one.
    pub(crate) control: Option<PathBuf>,
    /// The address of the listener of the metrics, if there is one.
    pub(crate) metrics: Option<SocketAddr>,
    /// The number of sockets of the role.
    #[serde(default)]
    pub(crate) role_sockets: usize,
}

/// The counters of the workers, and the state of the role. The descriptors are files with the states of the workers'
/// hooks, if they have hooks.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Suspended {
    /// By worker, past workers included.
    pub(crate) workers: Vec<WorkerCounts>,
    /// Those of interfaces that were closed.
    pub(crate) closed: WorkerCounts,
    #[serde(default)]
    pub(crate) egress_queues: Vec<InterfaceQueueCounts>,
    #[serde(default)]
    pub(crate) access_lists: Vec<AccessListCounts>,
    #[serde(default)]
    pub(crate) role: Value,
}
