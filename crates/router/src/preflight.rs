//! The check of a router's configuration against this machine (`control::preflight`).

use config::Config;
use control::preflight::{Finding, Findings};
use control::start::StartError;

/// Checks a router's configuration; with `offline` the file alone.
pub fn check(config: &Config, offline: bool) -> Vec<Finding> {
    let mut findings = Findings::default();
    if config.has_static_routes() {
        findings.error(&StartError::StaticRoutes);
    }
    if !offline {
        findings.machine(config, !config.has_static_routes(), 0);
        if let Some(block) = &config.block {
            findings.block_lists(block);
        }
        if let Some(image) = &config.image {
            findings.saved("image.path", &image.path);
        }
    }
    findings.into_vec()
}

/// Checks that a configuration with static routes has no keys of the kernel's.
///
/// # Errors
///
/// [`StartError::NotStatic`].
pub fn check_static(config: &Config) -> Result<(), StartError> {
    let keys = config.keys_without_effect();
    if keys.is_empty() { Ok(()) } else { Err(StartError::NotStatic { keys }) }
}
