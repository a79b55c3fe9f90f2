//! The control plane of all daemons: it may block, allocate and log, and its errors are messages
//! for operators.
//!
//! A [`Daemon`] is a router that follows the kernel's routes. A gate and a grantor are daemons with
//! a [`Role`] and packet hooks; this crate depends on neither.
//!
//! ```text
//!   kernel, FRR ─► kernel_sync ─► plane ─► tables, adjacencies ─► workers (crate `datapath`)
//!                       ▲                                            │ counters
//!   control socket ─► server ─► query ─┬─ control thread, view ◄─────┘
//!   HTTP ─► Page, metrics ─────────────┴─ Role
//! ```
//!
//! | module | content |
//! |---|---|
//! | [`daemon`] | starts, reloads and stops a daemon |
//! | [`role`] | the interface through which a gate or a grantor extends a daemon |
//! | [`view`] | counters, ports and interfaces, for other threads to read |
//! | [`start`] | starts interfaces, sockets and workers from a configuration |
//! | [`sysctls`] | the kernel's settings that the router follows |
//! | [`preflight`] | checks of a configuration against this machine |
//! | `kernel_sync` | the control thread: follows the kernel or FRR |
//! | `plane` | routes, links and neighbors as workers read them |
//! | [`server`] | the control socket |
//! | `requests`, `handle`, `query`, `items` | the requests of its clients |
//! | [`block_lists`] | a thread that keeps block lists and their filter up to date |
//! | `audit` | compares the router with the kernel |
//! | `churn` | the rate of route changes, which decides when to compare |
//! | `metrics`, `exposition`, `http`, `allowed_hosts`, `clients` | the HTTP server and the Prometheus metrics |
//! | `monitor` | events, published to subscribers |
//! | `trace` | the steps of a packet, through a worker of its own |
//! | `capture` | captured packets, streamed to a client; the last drops |
//! | `driver_copies` | the packets of a capture that end in steering programs |
//! | `devices` | interfaces, adjusted to the kernel's links |
//! | `links` | the system's interfaces and addresses |
//! | `routes` | static routes: files and configuration → tables and adjacencies |
//! | `protocols` | names of route protocols |
//! | `report` | log lines for events of links and feeds |
//! | `succession` | the messages by which a new process takes over from a running one |
//! | `slots` | a limit of clients at once |
//! | `progress` | detects threads that no longer make progress |
//! | `workers` | the workers' threads |

#![forbid(unsafe_code)]

mod access;
pub mod allowed_hosts;
mod audit;
pub mod block_lists;
mod capture;
mod churn;
mod clients;
pub mod daemon;
pub mod devices;
mod driver_choice;
mod driver_copies;
mod driver_sync;
mod egress_queues;
pub mod exposition;
pub mod flow_status;
pub mod handle;
pub mod http;
pub mod http_message;
pub mod items;
pub mod kernel_sync;
pub mod links;
pub mod metrics;
mod monitor;
mod packet_names;
mod plan;
pub mod plane;
pub mod preflight;
pub mod progress;
pub mod protocols;
pub mod query;
pub mod report;
mod requests;
pub mod role;
pub mod route_source;
pub mod routes;
pub mod server;
pub mod service;
mod slots;
pub mod start;
mod succession;
pub mod sysctls;
mod target;
mod trace;
pub mod view;
pub mod workers;

pub use daemon::{Daemon, ImageStart, ReloadError, Reloaded, SaveError, Saved};
pub use role::Role;
pub use start::{PortInfo, StartError};
pub use succession::{Predecessor, launch};
