//! The check of a router's configuration against this machine (`control::preflight`).

use config::Config;
use control::preflight::{Finding, Findings};
use control::start::StartError;

/// Checks a router's configuration; with `offline` the file alone.
pub fn check(config: &Config, offline: bool) -> Vec<Finding> {
    let mut findings = Findings::default();
    let own = [config.routes_v4.len(), config.routes_v6.len(), config.files.len()];
    if own.iter().sum::<usize>() + config.next_hops.len() > 0 {
        findings.error(&StartError::StaticRoutes);
    }
    if !offline {
        findings.machine(config);
        if let Some(image) = &config.image {
            findings.saved("image.path", &image.path);
        }
    }
    findings.into_vec()
}
