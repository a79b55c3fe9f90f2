//! The data that the recorder collects, and that the page and the history file read.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::attack::Attacks;
use super::destinations::DestinationStats;
use super::history::History;

/// The recorded data.
#[derive(Debug, Default)]
pub(super) struct Recorded {
    pub(super) history: History,
    pub(super) attacks: Attacks,
    pub(super) destinations: DestinationStats,
    /// Messages for the operator's log.
    pub(super) notices: Vec<String>,
}

/// Locks the data; a panic of another thread leaves them whole.
pub(super) fn lock(recorded: &Mutex<Recorded>) -> MutexGuard<'_, Recorded> {
    recorded.lock().unwrap_or_else(PoisonError::into_inner)
}
