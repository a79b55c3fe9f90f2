//! The errors of lists, in an operator's words.

use std::error::Error;
use std::fmt;
use std::path::Path;

/// The reason why a list cannot be read or changed: what, where and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListError(String);

impl ListError {
    pub(crate) fn new(reason: impl Into<String>) -> Self {
        Self(reason.into())
    }

    /// Creates the error of a file.
    pub(crate) fn of(path: &Path, cause: impl fmt::Display) -> Self {
        Self(format!("{}: {cause}", path.display()))
    }
}

impl fmt::Display for ListError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for ListError {}
