//! The check of a gate's configuration against this machine (`control::preflight`): beside what all
//! daemons need, the addresses and the MTU of the tunnels.

use control::preflight::{Finding, Findings};
use control::start::StartError;
use gate::policy::Address;

use crate::config::Config;
use crate::hook::queue_slots;

/// Checks a gate's configuration; with `offline` the file alone.
pub fn check(config: &Config, offline: bool) -> Vec<Finding> {
    let mut findings = Findings::default();
    if offline {
        return findings.into_vec();
    }
    let fixed = &config.fixed;
    let system = findings.machine(&config.router(), false, queue_slots(fixed) as u32);
    let (front, back) = (&fixed.front.name, &fixed.back.name);
    let reached =
        |v6: bool| config.rules.grantors().any(|grantor| matches!(grantor, Address::V6(_)) == v6);
    for (family, v6, named) in
        [("IPv4", false, fixed.address4.is_some()), ("IPv6", true, fixed.address6.is_some())]
    {
        if reached(v6) && !named && system.link(back).is_some() && !system.has_address(back, v6) {
            findings.error(&StartError::NoTunnelEnd { interface: back.clone(), family });
        }
    }
    if let (Some((_, front)), Some((_, back))) = (system.link(front), system.link(back)) {
        let outer = if reached(true) { 40 } else { 20 } + if fixed.udp.is_some() { 8 } else { 0 };
        let path = back.mtu.min(fixed.mtu.into());
        if front.mtu + outer > path && !fixed.clamp_mss {
            findings.warning(&format!(
                "{}: packets of up to {} bytes from {} do not fit in a tunnel ({outer} bytes) over \
                 a path of {path} bytes: raise the MTU to {} (`ip link set {} mtu {}`), or set \
                 `[tunnel] clamp_mss`",
                back.name,
                front.mtu,
                front.name,
                front.mtu + outer,
                back.name,
                front.mtu + outer
            ));
        }
    }
    if let Some(block) = &config.block {
        findings.block_lists(block);
    }
    if let Some(keep) = &fixed.keep {
        findings.saved("flow_table.state_file", keep);
    }
    if let Some(distribution) = &fixed.distribution {
        findings.made("distribution.store_dir", &distribution.store_dir);
    }
    findings.into_vec()
}
