//! The kernel's settings that the router follows, besides those that the kernel reports by netlink.
//!
//! ```text
//!   net.ipv4.icmp_msgs_per_sec, icmp_msgs_burst        ICMP errors: all together
//!   net.ipv4.icmp_ratelimit, net.ipv6.icmp.ratelimit   milliseconds between errors to a destination
//!   net.ipv4.icmp_ratemask, net.ipv6.icmp.ratemask     the types that are limited
//!   net.ipv4.icmp_errors_use_inbound_ifaddr            the source address
//!   net.ipv4.fib_multipath_hash_policy                 several next hops: the fields that select one,
//!   net.ipv6.fib_multipath_hash_policy                 by a number, or one by one if it is 3
//!   net.ipv4.fib_multipath_hash_fields
//!   net.ipv6.fib_multipath_hash_fields
//!   net.ipv4.ip_forward_update_priority                IPv4 packets get the priority of their TOS, by
//!                                                      which VLAN devices choose that of their tags
//!   net.ipv6.conf.IFACE.force_forwarding               forwarding of IPv6, where that of all is off
//! ```
//!
//! The kernel reports no change of them, so the control thread reads them once a second
//! (`kernel_sync.rs`). A file that is missing, as without IPv6, has the kernel's default.

use std::fs;
use std::path::Path;

use datapath::{FlowKey, IcmpLimits};

/// The fields of policy 3 unless they are set: addresses and protocol.
const DEFAULT_FIELDS: u32 = 0x7;

/// The settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sysctls {
    /// The limits of ICMP errors: as read, of all workers together.
    pub icmp_limits: IcmpLimits,
    /// ICMP errors over IPv4 have an address of the interface that received the packet.
    pub answers_from_inbound: bool,
    /// IPv4 packets keep the priority that they arrived with when they are forwarded.
    pub keeps_priority: bool,
    /// The key of the flow hash of IPv4 packets, and that of IPv6 packets.
    pub flow_keys: [FlowKey; 2],
}

impl Sysctls {
    /// Reads the settings of this network namespace.
    pub fn read() -> Self {
        Self::read_in(Path::new("/proc/sys/net"))
    }

    /// Returns the settings of each of `workers` workers.
    #[must_use]
    pub fn share(self, workers: usize) -> Self {
        Self { icmp_limits: self.icmp_limits.share(workers), ..self }
    }

    fn read_in(root: &Path) -> Self {
        let inbound = number(root, "ipv4/icmp_errors_use_inbound_ifaddr");
        let updates_priority = number(root, "ipv4/ip_forward_update_priority");
        Self {
            icmp_limits: icmp_limits(root),
            answers_from_inbound: inbound.is_some_and(|value| value != 0),
            keeps_priority: updates_priority == Some(0),
            flow_keys: ["ipv4", "ipv6"].map(|family| flow_key(root, family)),
        }
    }
}

/// Returns whether an interface forwards IPv6 packets even if forwarding is off for all interfaces (since
/// Linux 6.17).
pub(crate) fn forces_forwarding_v6(interface: &str) -> bool {
    let root = Path::new("/proc/sys/net/ipv6/conf").join(interface);
    number(&root, "force_forwarding").is_some_and(|value| value != 0)
}

fn icmp_limits(root: &Path) -> IcmpLimits {
    let default = IcmpLimits::DEFAULT;
    IcmpLimits {
        rate: number(root, "ipv4/icmp_msgs_per_sec").unwrap_or(default.rate),
        burst: number(root, "ipv4/icmp_msgs_burst").unwrap_or(default.burst),
        interval_v4: number(root, "ipv4/icmp_ratelimit").unwrap_or(default.interval_v4),
        interval_v6: number(root, "ipv6/icmp/ratelimit").unwrap_or(default.interval_v6),
        mask_v4: number(root, "ipv4/icmp_ratemask").unwrap_or(default.mask_v4),
        mask_v6: ranges(root, "ipv6/icmp/ratemask").unwrap_or(default.mask_v6),
        unmasked_rate: default.unmasked_rate,
    }
}

/// Returns the key of a family: the kernel has no other policies.
fn flow_key(root: &Path, family: &str) -> FlowKey {
    let setting = |name| number(root, &format!("{family}/fib_multipath_hash_{name}"));
    match setting("policy") {
        Some(1) => FlowKey::LAYER_4,
        Some(2) => FlowKey::INNER_LAYER_3,
        Some(3) => FlowKey::custom(setting("fields").unwrap_or(DEFAULT_FIELDS)),
        _ => FlowKey::LAYER_3,
    }
}

fn number(root: &Path, name: &str) -> Option<u32> {
    let text = fs::read_to_string(root.join(name)).ok()?;
    match text.trim().strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => text.trim().parse().ok(),
    }
}

/// Reads a list of types such as `0-1,3-127`, of which those below 32 matter.
fn ranges(root: &Path, name: &str) -> Option<u32> {
    let text = fs::read_to_string(root.join(name)).ok()?;
    let mut mask = 0;
    for range in text.trim().split(',').filter(|range| !range.is_empty()) {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        (first..=last.min(31)).for_each(|kind| mask |= 1 << kind);
    }
    Some(mask)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_those_of_the_files_or_the_defaults() {
        let root = std::env::temp_dir().join(format!("fingerpost-sysctls-{}", std::process::id()));
        fs::create_dir_all(root.join("ipv4")).unwrap();
        fs::create_dir_all(root.join("ipv6/icmp")).unwrap();
        let icmp_limits = IcmpLimits::DEFAULT;
        let flow_keys = [FlowKey::LAYER_3; 2];
        let defaults =
            Sysctls { icmp_limits, answers_from_inbound: false, keeps_priority: false, flow_keys };
        assert_eq!(Sysctls::read_in(&root), defaults);
        let set = |name: &str, text: &str| fs::write(root.join(name), text).unwrap();
        set("ipv4/icmp_msgs_per_sec", "77\n");
        set("ipv4/icmp_ratelimit", "0\n");
        set("ipv6/icmp/ratemask", "0-1,3-127\n");
        set("ipv4/icmp_errors_use_inbound_ifaddr", "1\n");
        set("ipv4/fib_multipath_hash_policy", "1\n");
        set("ipv6/fib_multipath_hash_policy", "3\n");
        set("ipv4/ip_forward_update_priority", "0\n");
        let read = Sysctls::read_in(&root);
        let limits = read.icmp_limits;
        assert_eq!((limits.rate, limits.interval_v4), (77, 0));
        assert_eq!(limits.mask_v6, !(1u32 << 2));
        assert!(read.answers_from_inbound && read.keeps_priority);
        assert_eq!(read.flow_keys, [FlowKey::LAYER_4, FlowKey::custom(0x7)]);
        set("ipv4/ip_forward_update_priority", "1\n");
        set("ipv6/icmp/ratemask", "\n");
        set("ipv4/fib_multipath_hash_policy", "2\n");
        set("ipv6/fib_multipath_hash_fields", "0x0c3\n");
        let read = Sysctls::read_in(&root);
        assert_eq!((read.icmp_limits.mask_v6, read.keeps_priority), (0, false));
        assert_eq!(read.flow_keys, [FlowKey::INNER_LAYER_3, FlowKey::custom(0xc3)]);
        fs::remove_dir_all(root).unwrap();
    }
}
