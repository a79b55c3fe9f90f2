//! Collects the problems of a file, with their lines.

use toml::Spanned;

use super::{Problem, place};

/// The text of a file, and the problems found in it.
pub(super) struct Checker<'t> {
    text: &'t str,
    pub(super) problems: Vec<Problem>,
}

impl<'t> Checker<'t> {
    /// Begins a check of this text.
    pub(super) fn new(text: &'t str) -> Self {
        Self { text, problems: Vec::new() }
    }

    /// Adds a problem of the value at `at`.
    pub(super) fn problem<T>(
        &mut self,
        at: &Spanned<T>,
        key: &'static str,
        what: impl Into<String>,
    ) {
        let (line, _) = place(self.text, at.span().start);
        self.problems.push(Problem { line, key, what: what.into() });
    }
}
