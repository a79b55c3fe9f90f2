//! The router: the daemon of `fingerpost run` and `fingerpost forward`.
//!
//! ```text
//!   run      start        ─┐
//!   forward  start_static ─┴► control::Daemon, with the page of the crate `dashboard`
//! ```
//!
//! `run` follows the routes of the kernel or of FRR; `forward` has those of its configuration.

#![forbid(unsafe_code)]

pub mod preflight;

use std::io;
use std::sync::Arc;

use config::{Config, Metrics};
use control::daemon::Page;
use control::query::QueryHandle;
use control::{Daemon, Predecessor, StartError};
use dashboard::Web;

/// Starts a router with `config` in the network namespace of the calling thread, with the page if
/// the configuration has `[metrics]`. When this function returns, the router forwards.
///
/// # Errors
///
/// [`StartError`]; the failed start leaves nothing behind.
pub fn start(config: Config) -> Result<Daemon, StartError> {
    start_after(None, config)
}

/// Starts a router with the static routes of `config`, as [`start`].
///
/// # Errors
///
/// [`StartError`]; the failed start leaves nothing behind.
pub fn start_static(config: Config) -> Result<Daemon, StartError> {
    start_static_after(None, config)
}

/// Starts a router as [`start`], which takes over from a predecessor if there is one.
///
/// # Errors
///
/// [`StartError`]; the predecessor then continues.
pub fn start_after(predecessor: Option<Predecessor>, config: Config) -> Result<Daemon, StartError> {
    Daemon::start(config, predecessor, &page)
}

/// Starts a router as [`start_static`], which takes over from a predecessor if there is one.
///
/// # Errors
///
/// [`StartError`]; the predecessor then continues.
pub fn start_static_after(
    predecessor: Option<Predecessor>,
    config: Config,
) -> Result<Daemon, StartError> {
    Daemon::start_static(config, predecessor, &page)
}

fn page(query: QueryHandle, metrics: Option<&Metrics>) -> io::Result<Arc<dyn Page>> {
    Ok(Arc::new(Web::start(query, metrics, None)?))
}
