//! Joins routes and packets: configuration, control, datapath, counters.
//!
//! ```text
//!   config ─► control/  may block, allocate, fail with words
//!               links, routes ─► tables, adjacencies ─► workers
//!                                                          │ threads
//!             datapath/ never blocks, allocates, logs or panics
//!               port ─► parse ─► lookup ─► rewrite ─► port │
//!             stats     counters, one writer each ◄────────┘
//! ```
//!
//! [`Daemon::start`] makes a router that follows the kernel's routes. [`vantage::GateDaemon::start`] makes such a router with a DDoS
//! gate in its workers. [`Router::start`] takes a [`config::Config`] and gives a [`Running`] router.
//! Who brings ports and tables of their own makes a [`datapath::Worker`].

#![forbid(unsafe_code)]

pub mod config;
pub mod control;
mod daemon;
pub mod datapath;
pub mod distribution;
pub mod grantor;
pub mod preflight;
mod role;
mod router;
pub mod stats;
pub mod vantage;
mod web;

pub use daemon::{Daemon, ImageStart, ReloadError, Reloaded, SaveError, Saved};
pub use router::{PortInfo, Router, Running, StartError};
