//! The grantor: a router that takes packets out of a gate's tunnel (`fingerpost grantor`).
//!
//! ```text
//!   gate ══► sift ─┬─ granted: out of the tunnel, routed as by any router ──────► server
//!                  └─ asks: kept ── ring ──► decide, a thread a worker: policy in Lua
//!                        ▲                     │           │
//!                        └─── ring ── deliver? ┘           └─► post ═ UDP, kernel ═► gate
//! ```
//!
//! A worker runs no Lua: what it would wait for is another thread's, and what waits for that
//! is only what asks. A policy that is slow or fails costs requests, never a granted packet.
//! Requests wait by priority; those that find no place are dropped and counted as `low_priority`.
//!
//! What is decided is the crate `gate`'s (`gate::grantor`); interfaces, routes, neighbors, the
//! control socket and the metrics are the router's.
//!
//! | file | what it is |
//! |---|---|
//! | [`config`] | one TOML file |
//! | `hook` | out of the tunnel, between a worker's ports |
//! | `decide` | a worker's policy, on a thread of its own |
//! | `post` | decisions to the gates, acknowledged |
//! | `programs` | flow programs to the gates, and what these say of them |
//! | `record` | requests in a file |
//! | `panel` | what it tells of itself, and other policies |
//! | `daemon` | all of it brought to life |

pub mod config;
mod daemon;
mod decide;
mod hook;
mod panel;
mod post;
mod programs;
mod record;
pub mod told;

pub use config::Config;
pub use daemon::Grantor;
pub use decide::Policies;
pub(crate) use panel::Panel;
pub use post::Voice;
pub use record::Record;
