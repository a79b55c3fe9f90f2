//! Configurations: an accepted one is consistent, and an error names its line.
//!
//! A router's and a gate's file are read from the same bytes. An accepted configuration is
//! consistent: it has interfaces, names are unique, and every reference has its target. An error
//! names a line that exists in the text.

use std::collections::BTreeSet;
use std::path::Path;

use config::{Config, ConfigError};
use gatekeeper;

/// Counts of the results of inputs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Configurations that were accepted.
    pub taken: u32,
    /// Others.
    pub refused: u32,
}

/// Plays one input.
///
/// # Panics
///
/// If an inconsistent configuration is accepted, or an error names a line that does not exist.
pub fn configs(input: &[u8], tally: &mut Tally) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    // The directory of referenced files.
    let path = Path::new("/nonexistent/fuzz.toml");
    match Config::parse(text, path) {
        Ok(config) => {
            tally.taken += 1;
            let names: BTreeSet<_> = config.interfaces.iter().map(|port| &port.name).collect();
            assert_eq!(names.len(), config.interfaces.len(), "a duplicate interface");
            assert!(!names.is_empty() && names.iter().all(|name| name.len() < 16));
            assert!(!config.daemon.cores.is_empty());
        }
        Err(error) => refused(&error, text, tally),
    }
    match gatekeeper::Config::parse(text, path) {
        Ok(config) => {
            tally.taken += 1;
            assert_ne!(config.fixed.front.name, config.fixed.back.name);
            config.rules.policy(1).expect("accepted rules give a policy");
        }
        Err(error) => refused(&error, text, tally),
    }
}

fn refused(error: &ConfigError, text: &str, tally: &mut Tally) {
    tally.refused += 1;
    let lines = text.lines().count().max(1);
    match error {
        ConfigError::Shape { line, .. } => assert!((1..=lines + 1).contains(line), "{error}"),
        ConfigError::Invalid { problems, .. } => {
            assert!(!problems.is_empty(), "rejected without a problem");
            for problem in problems {
                assert!((1..=lines + 1).contains(&problem.line), "{error}");
            }
        }
        // Errors of missing files.
        _ => {}
    }
}
