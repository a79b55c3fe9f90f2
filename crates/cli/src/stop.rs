//! Signals: the wish to stop that Ctrl-C and its like set, for who works until then, and
//! the wish to read the configuration again.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Context;
pub(crate) use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// Returns what becomes true with the first of these signals; a second one ends the
/// process at once. To be called before anything is taken over.
pub(crate) fn on(signals: &[i32]) -> anyhow::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for &signal in signals {
        signal_hook::flag::register_conditional_shutdown(signal, 1, Arc::clone(&stop))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&stop)))
            .context("listening for signals")?;
    }
    Ok(stop)
}

/// Returns what becomes true whenever SIGHUP comes.
pub(crate) fn reload_on_signal() -> anyhow::Result<Arc<AtomicBool>> {
    let reload = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(SIGHUP, Arc::clone(&reload)).context("listening for SIGHUP")?;
    Ok(reload)
}
