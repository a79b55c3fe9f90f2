//! The grantor daemon: a router that takes packets out of a gate's tunnel (`fingerpost grantor`).
//!
//! ```text
//!   gate ══► GrantorHook ─┬─ granted: decapsulated, routed as by any router ─────────► server
//!                         └─ request: queued ── ring ──► decider, a thread a worker: policy in Lua
//!                               ▲                          │           │
//!                               └─── ring ── deliver? ─────┘           └─► decision sender ═ UDP ═► gate
//! ```
//!
//! A worker runs no Lua: the policy runs on another thread, and only requests wait for it. A slow or
//! failing policy costs requests, never a granted packet. Requests wait by priority; those that find no
//! room are dropped and counted as `low_priority`.
//!
//! The crate `gate` makes the decisions (`gate::grantor`). Interfaces, routes, neighbors, the control
//! socket and the metrics are the router's.
//!
//! | file | content |
//! |---|---|
//! | [`config`] | the configuration, one TOML file |
//! | `hook` | decapsulation and the queue of requests, as a packet hook |
//! | `decider` | a worker's policy, on a thread of its own |
//! | `decision_sender` | decisions to the gates, with acknowledgments |
//! | `shared_grants` | the grants in force, for gates that start or return |
//! | `programs` | flow programs to the gates, and their state there |
//! | `recorder` | requests in a capture file |
//! | `controller` | status queries and reloads |
//! | `daemon` | the start and the stop of all of it |

#![forbid(unsafe_code)]

mod comparison;
pub mod config;
mod controller;
mod daemon;
mod decider;
mod decision_sender;
mod hook;
mod metrics;
pub mod preflight;
mod programs;
mod recorder;
mod role;
mod shared_grants;

pub use comparison::comparison;
pub use config::Config;
pub use daemon::GrantorDaemon;
pub use decider::Policies;
pub use decision_sender::ProtocolVersion;
pub use recorder::CaptureSettings;
