//! Joins routes and packets: configuration and control planes of the daemons.
//!
//! ```text
//!   config ─► control/  may block, allocate, fail with an error
//!               links, routes ─► tables, adjacencies ─► the workers of `datapath`
//!                                                          │ threads
//!             metrics, `show`, the page ◄─ counters ───────┘
//! ```
//!
//! [`Daemon::start`] starts a router that follows the kernel's routes. [`vantage::GateDaemon::start`]
//! starts such a router with a DDoS gate in its workers. [`Router::start`] takes a [`config::Config`]
//! and returns a [`Running`] router.

#![forbid(unsafe_code)]

pub mod control;
mod daemon;
pub mod grantor;
pub mod preflight;
mod role;
mod router;
pub mod vantage;
mod web;

pub use daemon::{Daemon, ImageStart, ReloadError, Reloaded, SaveError, Saved};
pub use router::{PortInfo, Router, Running, StartError};
