//! The control thread, which follows the routes until it is stopped.
//!
//! When it stops, it returns its state and its request queue: its successor answers the same
//! queries, and continues its feed.

use std::io;
use std::sync::Arc;

use threads::{Rights, Task};

use crate::handle::ControlRequests;
use crate::kernel_sync::{self, KernelSync};
use crate::progress::Turns;

/// The running control thread, which returns its state when it is stopped.
pub(super) type Control = Task<(KernelSync, ControlRequests<KernelSync>)>;

/// Starts the thread, which counts its turns in `turns`.
///
/// # Errors
///
/// The system's error for the thread.
pub(super) fn start(
    sync: KernelSync,
    requests: ControlRequests<KernelSync>,
    turns: &Turns,
) -> io::Result<Control> {
    let turns = Arc::clone(turns);
    Task::start("control", Rights::Inherited, move |stop| {
        kernel_sync::run(sync, requests, stop, &turns)
    })
}
