//! The router: the daemon of `fingerpost run`, and the router with static routes of
//! `fingerpost forward`.
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

/// Starts a router with `config` in the network namespace of the calling thread, with the page if
/// the configuration has `[metrics]`. When this function returns, the router forwards.
///
/// # Errors
///
/// [`StartError`]; the failed start leaves nothing behind.
pub fn start(config: Config) -> Result<Daemon, StartError> {
    Daemon::start(config, &|query, metrics| Ok(Arc::new(Web::start(query, metrics, None)?)))
}
