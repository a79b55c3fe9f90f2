//! The state of the speaker of BGP flow specifications, which a reload may start, replace or end.

use std::sync::{Arc, Mutex, PoisonError};

use flowspec::StatusReader;

/// Access to the state of the speaker, if there is one. Clones refer to the same.
#[derive(Clone, Debug, Default)]
pub struct FlowStatus(Arc<Mutex<Option<StatusReader>>>);

impl FlowStatus {
    /// Replaces the speaker.
    pub(crate) fn set(&self, reader: Option<StatusReader>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = reader;
    }

    /// Returns the reader of the speaker's state.
    pub(crate) fn reader(&self) -> Option<StatusReader> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
