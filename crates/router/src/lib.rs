//! The router: the daemon of `fingerpost run`, and the router with static routes of `fingerpost forward`.
//!
//! ```text
//!   run      start    ─► control::Daemon   routes of the kernel or of FRR, page, metrics
//!   forward  Router   ─► Running           routes of the configuration alone
//! ```

#![forbid(unsafe_code)]

pub mod preflight;
mod static_router;

use std::sync::Arc;

use config::Config;
use control::{Daemon, StartError};
use dashboard::Web;
pub use static_router::{Router, Running};

/// Starts a router by `config` in the network namespace of the calling thread, with the page if the
/// configuration has `[metrics]`. It forwards when this returns.
///
/// # Errors
///
/// [`StartError`]; nothing is left behind then.
pub fn start(config: Config) -> Result<Daemon, StartError> {
    Daemon::start(config, &|query, metrics| Ok(Arc::new(Web::start(query, metrics, None)?)))
}
