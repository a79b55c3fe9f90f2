//! Signals: flags that Ctrl-C and SIGTERM set to stop the program, and SIGHUP to reload.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Context;
pub(crate) use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// Returns a flag that the first of these signals sets; a second one ends the process at once. Must be
/// called before the program attaches to interfaces.
pub(crate) fn flag_on_signals(signals: &[i32]) -> anyhow::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for &signal in signals {
        signal_hook::flag::register_conditional_shutdown(signal, 1, Arc::clone(&stop))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&stop)))
            .context("listening for signals")?;
    }
    Ok(stop)
}

/// Returns a flag that each SIGHUP sets.
pub(crate) fn flag_on_sighup() -> anyhow::Result<Arc<AtomicBool>> {
    let reload = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(SIGHUP, Arc::clone(&reload)).context("listening for SIGHUP")?;
    Ok(reload)
}
