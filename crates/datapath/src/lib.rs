//! The packet path: from a port to a port, a batch at a time.
//!
//! ```text
//!   port ─► parse ─► Batch ─► lookup ─► rewrite ─► port
//!             └───────┬─────────┴──────────┘
//!                     ▼
//!                  Verdict, one for each packet, with a counter each
//! ```
//!
//! | file | stage |
//! |---|---|
//! | `worker` | one turn over the ports of a worker, and the memory that it owns |
//! | `worker/upkeep` | a worker between its turns: its clock, losses of ports, its end |
//! | `turn` | sends, holds, answers, punts or drops the packets of a batch |
//! | `parse` | frame → lookup key or verdict: all header checks |
//! | `ingress` | the settings of each port: table, own addresses, reverse path filter |
//! | `secondary_macs` | frames to the MAC-VLAN devices over a port |
//! | `locals` | the test for the router's own addresses |
//! | `batch` | the arrays between the stages |
//! | `lookup` | keys → hops, in the table of the port |
//! | `adjacencies` | hop → adjacency; the order in which changes are published |
//! | `adjacency` | port, MAC addresses, MTU |
//! | `exit` | adjacency → the port with queues and the tag that its frames get |
//! | `source` | the reverse path filter |
//! | `flow` | the hash of a packet's flow, for groups |
//! | `group` | next-hop groups: one hop for several next hops that share its flows |
//! | `hold` | packets that wait for a neighbor's MAC address |
//! | `want` | requests to resolve neighbors, from the worker to the control plane |
//! | `egress` | applies the dispositions of the packets that a hook dequeues |
//! | `queueing` | packets that wait for an egress port whose link is slower than what comes |
//! | `hook` | the packets that a gate or a grantor takes out of a batch and sends |
//! | `sample` | destinations that are sampled for the auditor |
//! | `forwarding` | packets of a port to which this machine is no router |
//! | `fragment` | IPv4 packets over the next link's MTU, sent in parts |
//! | `icmp_buckets` | the token buckets of ICMP errors |
//! | `icmp_errors` | the packets whose senders get an ICMP error |
//! | `icmp_limits` | the limits of ICMP errors |
//! | `answer` | sends those errors |
//! | `own_source` | the source addresses of this machine's own packets |
//! | `punt` | punts to the host's stack, policed by class |
//! | `rewrite` | MAC addresses, TTL, checksum, length |
//! | `verdict` | the ways in which a packet ends; a crate of its own |
//! | `capture` | copies of packets for an operator: the last drops, and sessions |
//! | `stats` | the counters of a worker, and their sum at one moment |
//!
//! Nothing in this crate allocates after construction, locks, logs, blocks or
//! panics, whatever the packets hold.

#![forbid(unsafe_code)]

mod access;
mod adjacencies;
mod adjacency;
mod answer;
mod batch;
pub mod capture;
mod completion;
mod egress;
mod exit;
mod flow;
mod forwarding;
mod fragment;
mod group;
mod hold;
mod hook;
mod icmp_buckets;
mod icmp_errors;
mod icmp_limits;
mod ingress;
mod locals;
mod lookup;
mod own_source;
mod parse;
mod punt;
mod queueing;
mod refusals;
mod rewrite;
mod sample;
mod secondary_macs;
mod source;
mod stacked;
pub mod stats;
mod trunk;
mod turn;
mod vlan;
mod want;
mod worker;

pub use access::{AccessLists, AppliedList};
pub use adjacencies::Adjacencies;
pub use adjacency::Adjacency;
pub use batch::{Batch, Kind, SIZE};
pub use flow::{FlowHash, FlowKey, flow_v4, flow_v6};
pub use group::Group;
pub use hold::HELD;
pub use hook::{
    Disposition, EgressBatch, EgressPacket, Hook, IngressBatch, OversizedPacket, PacketHook,
    SEAL_LEN, Seal, TunnelParameters, TunnelSealer, Tunnels,
};
pub use icmp_limits::IcmpLimits;
pub use ingress::{Ingress, Ingresses, ReversePathFilter};
pub use locals::Locals;
pub use lookup::{Lookup, Numbered, Tables};
pub use own_source::{Candidate, OwnSources};
pub use parse::{Parsed, parse, source_v4, source_v6};
pub use punt::{PuntClass, PuntRates};
pub use queueing::{DeviceQueue, PortQueue, PortQueues};
use rewrite::{Rewritten, originate, rewrite_v4, rewrite_v6};
pub use sample::Sample;
pub use stacked::{FIRST_STACKED, MOST_MEMBERS, MOST_STACKED, StackedDevice};
pub use trunk::arrival;
pub use verdict::{Class, Origin, Verdict, VerdictMap};
pub use vlan::{PRIORITIES, VlanTable, VlanTag};
pub use want::{Key, MARKS, Want, WantReceiver, WantSender, wants};
pub use worker::{SuspendedState, TICK, Worker, WorkerSetup};
