//! A list: a file of prefixes, what of it is applied, and why its present content is not.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use ::xdp::ListAction;
use anyhow::Context;
use feed::Options;
use fib::Prefix;

use super::hold::{self, Protected};

/// The prefixes of a list.
pub(super) type Content = (Vec<Prefix<u32>>, Vec<Prefix<u128>>);

/// A version of a file: its time and its length.
type Version = Option<(SystemTime, u64)>;

/// A list of one file.
pub(super) struct List {
    path: PathBuf,
    action: ListAction,
    /// The version that was read last.
    version: Version,
    /// The prefixes of each family that are applied.
    applied: [usize; 2],
    held: Option<String>,
}

impl List {
    pub(super) fn new(path: &Path, action: ListAction) -> Self {
        Self { path: path.into(), action, version: None, applied: [0; 2], held: None }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn action(&self) -> ListAction {
        self.action
    }

    /// Returns whether it is an allow list.
    pub(super) fn allows(&self) -> bool {
        self.action == ListAction::Pass
    }

    /// Returns the number of IPv4 and IPv6 prefixes that are applied.
    pub(super) fn applied(&self) -> [usize; 2] {
        self.applied
    }

    /// Counts the prefixes that are applied.
    pub(super) fn len(&self) -> usize {
        self.applied.iter().sum()
    }

    /// Returns the reason why the file's present content is not applied.
    pub(super) fn held(&self) -> Option<&str> {
        self.held.as_deref()
    }

    /// Returns whether the file is another one than was read last.
    pub(super) fn has_changed(&self) -> bool {
        version(&self.path) != self.version
    }

    /// Reads the file; returns what to apply, or `None` if it is held. `accepts_all` applies it however
    /// short it has become. The addresses of an allow list are
    /// not protected from the lists that are read after it.
    pub(super) fn read(
        &mut self,
        protected: &mut Protected,
        accepts_all: bool,
    ) -> anyhow::Result<Option<Content>> {
        // Before the file is read: if it is written meanwhile, it is read again.
        self.version = version(&self.path);
        let table = feed::load(&self.path, &Options::default())
            .with_context(|| format!("reading the list {}", self.path.display()))?;
        for warning in &table.report.warnings {
            log::warn!("{}: {warning}", self.path.display());
        }
        let v4: Vec<_> = table.v4.iter().map(|&(prefix, _)| prefix).collect();
        let v6: Vec<_> = table.v6.iter().map(|&(prefix, _)| prefix).collect();
        let after = v4.len() + v6.len();
        let contains = match self.action {
            ListAction::Drop => protected.reason(&v4, &v6),
            ListAction::Pass => None,
        };
        let shrinks = if accepts_all { None } else { hold::shrinks(self.len(), after) };
        self.held = contains.or(shrinks);
        if let Some(reason) = &self.held {
            log::error!("{}: the list is held: {reason}", self.path.display());
            return Ok(None);
        }
        if self.allows() {
            protected.allow(&v4, &v6);
        }
        self.applied = [v4.len(), v6.len()];
        Ok(Some((v4, v6)))
    }
}

fn version(path: &Path) -> Version {
    let metadata = path.metadata().ok()?;
    Some((metadata.modified().ok()?, metadata.len()))
}
