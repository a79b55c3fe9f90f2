//! The packet path: from a port to a port, a batch at a time.
//!
//! ```text
//!   port ─► parse ─► Batch ─► lookup ─► rewrite ─► port
//!             └───────┬─────────┴──────────┘
//!                     ▼
//!                  Verdict, one a packet, one counter each
//! ```
//!
//! | file | stage |
//! |---|---|
//! | `worker` | the turn over the ports, and who owns what |
//! | `turn` | one batch's way out |
//! | `parse` | frame → key or verdict: all header checks |
//! | `ingress` | what holds for packets of a port |
//! | `locals` | is it for the router itself? |
//! | `batch` | the arrays between the stages |
//! | `lookup` | keys → hops, by the table of the port |
//! | `adjacency` | hop → port, MACs, MTU; how they change while packets pass |
//! | `source` | may the source come by this port? |
//! | `flow` | packet → a number that its flow has in common, for groups |
//! | `group` | one hop, several next hops: which flow by which |
//! | `hold` | packets that wait for a neighbor's MAC |
//! | `want` | which neighbors: from the worker to the control side |
//! | `egress` | sends the packets that a hook dequeues |
//! | `hook` | the packets that a gate or a grantor takes out of a batch and sends |
//! | `sample` | now and then a destination, for the auditor |
//! | `punt` | punts to the host's stack, policed by class |
//! | `rewrite` | MACs, TTL, checksum, length |
//! | `verdict` | how a packet can end |
//! | `stats` | the counters of a worker, and their sum at one moment |
//!
//! Nothing in this crate allocates after construction, locks, logs, blocks or
//! panics, whatever the packets hold.

#![forbid(unsafe_code)]

mod adjacency;
mod batch;
mod egress;
mod flow;
mod group;
mod hold;
mod hook;
mod ingress;
mod locals;
mod lookup;
mod parse;
mod punt;
mod rewrite;
mod sample;
mod source;
pub mod stats;
mod turn;
mod want;
mod worker;

pub use adjacency::{Adjacencies, Adjacency};
pub use batch::{Batch, Kind, SIZE};
pub use flow::{flow_v4, flow_v6};
pub use group::Group;
pub use hold::HELD;
pub use hook::{
    Disposition, EgressPacket, IngressBatch, PacketHook, SEAL_LEN, Seal, TunnelParameters,
};
pub use ingress::{Ingress, Ingresses, ReversePathFilter};
pub use locals::Locals;
pub use lookup::{Lookup, Numbered, Tables};
pub use parse::{Parsed, parse, source_v4, source_v6};
pub use punt::{PuntClass, PuntRates};
pub use rewrite::{Rewritten, originate, rewrite_v4, rewrite_v6};
pub use sample::Sample;
pub use verdict::{Class, Origin, Verdict, VerdictMap};
pub use want::{Key, MARKS, Want, WantReceiver, WantSender, wants};
pub use worker::{Remains, TICK, Worker, WorkerSetup};
