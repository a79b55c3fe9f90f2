//! The check of a grantor's configuration against this machine (`control::preflight`): beside what all
//! daemons need, the ends of the tunnels.

use std::net::IpAddr;

use control::preflight::{Finding, Findings};

use crate::config::Config;
use crate::hook::SLOTS;

/// Checks a grantor's configuration; with `offline` the file alone.
pub fn check(config: &Config, offline: bool) -> Vec<Finding> {
    let mut findings = Findings::default();
    if offline {
        return findings.into_vec();
    }
    let system = findings.machine(&config.router(), false, SLOTS as u32);
    for end in &config.fixed.ends {
        let address = IpAddr::from(*end);
        if system.is_own(address) {
            findings.warning(&format!(
                "tunnel.addresses: {address} is an address of this machine, whose packets are the \
                 kernel's: choose another one, and route it here"
            ));
        }
    }
    if let Some(record) = &config.fixed.record {
        findings.folder("policy.record", record.path.parent(), true);
    }
    if let Some(distribution) = &config.fixed.distribution {
        findings.made("distribution.store_dir", &distribution.store_dir);
    }
    findings.into_vec()
}
