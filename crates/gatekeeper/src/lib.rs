//! The gate daemon: a router whose packets pass a DDoS gate (`fingerpost gate`), at a vantage point.
//!
//! ```text
//!   front ─► GateHook: Gate ───┬─► routed as by any router          destinations at the front
//!                              ├─► dropped, counted                 declined, over the rate, …
//!                              └─► Link: requests, grants, reserve ─► tunnel ─► back
//!   back ───────────────────────► routed as by any router ────────────────────► front
//!
//!   grantors ═ UDP, kernel ═► decision receiver ─ ring ─► each worker's Gate
//!   clients ── socket ──────► controller ──────── rings ◄─► each worker's flows
//! ```
//!
//! Packets take the router's path (`datapath/`), with a [`GateHook`] between the packets that a port
//! received and the batch. Interfaces, routes, neighbors, the control socket and the metrics are the
//! router's too: a gate is a [`control::Daemon`] with hooks. The crate `gate` makes all decisions about
//! packets and does no I/O; the files here are its I/O:
//!
//! | file | content |
//! |---|---|
//! | [`config`] | the configuration, one TOML file |
//! | `hook` | a worker's gate and link, as a packet hook |
//! | `steering` | the handover of packets to the worker that owns the flow, without support of the card |
//! | `icmp_errors` | ICMP errors for packets that are too long |
//! | `syn_cookies` | SYN cookies on the wire |
//! | `recent_drops` | the verdicts of recently dropped packets, by flow |
//! | `counter_snapshot` | a worker's counters |
//! | `rule_ids` | the counters of each rule of the policy |
//! | `sampler` | random samples of the packets |
//! | `candidate` | the evaluation of a candidate policy by these samples |
//! | `rings` | the lock-free rings between control threads and a worker |
//! | `decision_receiver` | grantors' decisions, from UDP sockets to the rings |
//! | `sender_limits` | the limits of each sender, and the retraction of its decisions |
//! | `program_store` | flow programs of the configuration and of grantors |
//! | `declined_map` | declined flows that the XDP program drops |
//! | `blocked_table` | blocked sources that the XDP program drops |
//! | `inside_map` | prefixes behind the gate, for the XDP program's check of sources |
//! | `grantor_monitor` | silent grantors |
//! | `controller` | status queries, reloads and commands |
//! | `hook_state` | the state that a hook leaves to a successor |
//! | `inherited_state` | the state of its role that a successor gets |
//! | `succession` | the gate's part of an upgrade |
//! | `saved_flows` | the flow file, across a restart |
//! | `daemon` | the start and the stop of all of it |

#![forbid(unsafe_code)]

mod blocked_table;
mod candidate;
pub mod config;
mod controller;
mod counter_snapshot;
mod daemon;
mod decision_receiver;
mod declined_map;
mod grantor_monitor;
mod hook;
pub mod hook_state;
mod icmp_errors;
mod inherited_state;
mod inside_map;
mod metrics;
mod metrics_help;
pub mod preflight;
mod program_store;
mod recent_drops;
mod rings;
mod role;
mod rule_ids;
mod sampler;
pub mod saved_flows;
mod sender_limits;
mod steering;
mod succession;
mod syn_cookies;

pub use config::Config;
pub use counter_snapshot::CounterSnapshot;
pub use daemon::GateDaemon;
pub use gate::gate::RuleOutcome;
pub use hook::{GateHook, HookSetup};
pub use hook_state::HookState;
pub use rings::{ControlRings, WorkerRings, rings};
pub use saved_flows::SavedFlow;
pub use sender_limits::SenderLimits;
pub use steering::SoftwareSteering;
