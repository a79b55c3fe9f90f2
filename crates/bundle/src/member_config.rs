//! The configuration file of a member: a gate's or a grantor's, with a bundle over its local parts.

use std::path::Path;
use std::sync::Arc;

use ::config::{ConfigError, read_text};

use super::bundle::Bundle;
use super::config::DistributionConfig;
use super::startup::read_bundle_in_force;

/// A configuration whose policy may come from a bundle.
pub trait MemberConfig: Sized {
    /// Parses and checks the text of a file whose name is `path`; the files of `bundle` replace those
    /// that they may. Names of files in the text are relative to the folder of `path`.
    ///
    /// # Errors
    ///
    /// [`ConfigError`], with everything that is wrong.
    fn parse_over(
        text: &str,
        path: &Path,
        bundle: Option<&Arc<Bundle>>,
    ) -> Result<Self, ConfigError>;

    /// Returns the section `[distribution]`.
    fn distribution(&self) -> Option<&DistributionConfig>;

    /// Reads a file with a bundle over it.
    ///
    /// # Errors
    ///
    /// As [`parse_over`](Self::parse_over), and the system's for the file.
    fn load_over(path: &Path, bundle: Option<&Arc<Bundle>>) -> Result<Self, ConfigError> {
        Self::parse_over(&read_text(path)?, path, bundle)
    }

    /// Reads a file and no bundle.
    ///
    /// # Errors
    ///
    /// As [`load_over`](Self::load_over).
    fn local(path: &Path) -> Result<Self, ConfigError> {
        Self::load_over(path, None)
    }

    /// Reads a file, and the bundle in force if the file has a `[distribution]`.
    ///
    /// # Errors
    ///
    /// As [`load_over`](Self::load_over), and an unreadable store of bundles.
    fn load(path: &Path) -> Result<Self, ConfigError> {
        let local = Self::local(path)?;
        let Some(settings) = local.distribution() else { return Ok(local) };
        let stored = read_bundle_in_force(settings);
        match stored.map_err(|what| ConfigError::stored_bundles(path, what))? {
            Some(bundle) => Self::load_over(path, Some(&bundle)),
            None => Ok(local),
        }
    }
}
