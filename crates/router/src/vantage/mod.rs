//! The vantage point: a router whose packets pass a DDoS gate (`fingerpost gate`).
//!
//! ```text
//!   front ─► sift: Gate ──────┬─► routed as by any router           front, what stays
//!                             ├─► dropped, counted                  declined, over the rate, …
//!                             └─► Link: requests, grants, reserve ─► tunnel ─► back
//!   back ──────────────────────► routed as by any router ─────────────────────► front
//!
//!   grantors ═ UDP, kernel ═► decisions ─ ring ─► each worker's Gate
//!   clients ── socket ──────► panel ───── rings ◄─► each worker's flows
//! ```
//!
//! The packets' way is the router's (`datapath/`), with a [`GateHook`] between what a port
//! has received and the batch. Interfaces, routes, neighbors, the control socket and the
//! metrics are the router's too: a gate is a [`crate::Daemon`] with hooks. What it adds
//! is below; what it decides is all in the crate `gate`, which does no I/O.
//!
//! | file | what it is |
//! |---|---|
//! | [`config`] | one TOML file |
//! | `hook` | a worker's gate and link, between its ports |
//! | `steering` | packets to the worker whose flow they are, where the card does not |
//! | `kept` | frames that wait in the link's queues |
//! | `reply` | answers to packets that are too big |
//! | `cookie` | answers to SYNs whose sources have to show themselves |
//! | `last` | why packets were dropped lately, by flow |
//! | `tally` | what a worker shows |
//! | `policies` | which rule has which line of what workers count by rule |
//! | `sampler` | now and then a packet, for who wants to know where they go |
//! | `shadow` | a candidate beside the policy, compared by these samples |
//! | `rings` | to a worker and back, without locks |
//! | `decisions` | what grantors say, from sockets to rings |
//! | `permits` | limits of each sender, and retraction of its decisions |
//! | `shelf` | flow programs: the configuration's, and those that grantors send |
//! | `early` | declined flows that end in the kernel |
//! | `blocked` | blocked sources that end there |
//! | `health` | which grantors live |
//! | `panel` | questions, and another policy |
//! | `retained` | the flows in a file, over a restart |
//! | `daemon` | all of it brought to life |

mod blocked;
pub mod config;
mod cookie;
mod daemon;
mod decisions;
mod early;
mod health;
mod hook;
mod inside;
mod kept;
mod last;
mod panel;
mod permits;
mod policies;
mod reply;
mod retained;
mod rings;
mod sampler;
mod shadow;
mod shelf;
mod steering;
mod tally;

pub use config::Config;
pub use daemon::Vantage;
pub use gate::gate::RuleOutcome;
pub use hook::{GateHook, Setup};
pub(crate) use panel::Panel;
pub use panel::{Unchanged, told};
pub use permits::Permit;
pub use retained::Retained;
pub use rings::{Ends, Rings, rings};
pub use sampler::Sampled;
pub use steering::Steering;
pub use tally::Tally;
#[cfg(test)]
pub(crate) use tally::words;
pub(crate) use tally::{About, is_gauge};
