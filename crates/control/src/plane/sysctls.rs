//! The plane's part of the kernel's settings: what workers need of them is published with the next commit.

use std::collections::BTreeSet;

use datapath::FlowHash;

use super::Plane;
use crate::sysctls::Sysctls;

impl Plane {
    /// Sets the interfaces that forward IPv6 packets even if forwarding is off for all interfaces.
    pub(crate) fn set_forced_forwarding_v6(&mut self, interfaces: BTreeSet<u32>) {
        self.locals_changed |= self.ports.forced_v6 != interfaces;
        self.ports.forced_v6 = interfaces;
    }

    /// Applies the kernel's settings: the flow hash, and the limits and sources of ICMP errors.
    pub fn set_sysctls(&mut self, sysctls: &Sysctls) {
        let Sysctls { icmp_limits, answers_from_inbound, keeps_priority, flow_keys: [v4, v6] } =
            *sysctls;
        let seed = self.adjacencies.flow_hash().seed;
        self.adjacencies_changed |= self.adjacencies.set_flow_hash(FlowHash { seed, v4, v6 })
            | self.adjacencies.set_keeps_priority(keeps_priority);
        self.locals_changed |= self.icmp_limits.replace(icmp_limits) != Some(icmp_limits)
            || self.answers_from_inbound != answers_from_inbound;
        self.answers_from_inbound = answers_from_inbound;
    }
}
