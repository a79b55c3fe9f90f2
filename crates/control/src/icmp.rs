//! The kernel's settings of ICMP errors, which the router's own errors follow.
//!
//! ```text
//!   net.ipv4.icmp_msgs_per_sec, icmp_msgs_burst        all errors together
//!   net.ipv4.icmp_ratelimit, net.ipv6.icmp.ratelimit   milliseconds between errors to a destination
//!   net.ipv4.icmp_ratemask, net.ipv6.icmp.ratemask     the types that are limited
//!   net.ipv4.icmp_errors_use_inbound_ifaddr            the source address
//! ```
//!
//! They are read when workers start. A file that is missing, as without IPv6, has the kernel's
//! default.

use std::fs;
use std::path::Path;

use datapath::IcmpLimits;

/// Reads the limits.
pub(crate) fn limits() -> IcmpLimits {
    limits_in(Path::new("/proc/sys/net"))
}

/// Returns whether errors have an address of the interface that received the packet.
pub(crate) fn uses_inbound_address() -> bool {
    let root = Path::new("/proc/sys/net");
    number(root, "ipv4/icmp_errors_use_inbound_ifaddr").is_some_and(|value| value != 0)
}

fn limits_in(root: &Path) -> IcmpLimits {
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

fn number(root: &Path, name: &str) -> Option<u32> {
    fs::read_to_string(root.join(name)).ok()?.trim().parse().ok()
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
    fn limits_are_those_of_the_files_or_the_defaults() {
        let root = std::env::temp_dir().join(format!("fingerpost-icmp-{}", std::process::id()));
        fs::create_dir_all(root.join("ipv4")).unwrap();
        fs::create_dir_all(root.join("ipv6/icmp")).unwrap();
        assert_eq!(limits_in(&root), IcmpLimits::DEFAULT);
        for (name, text) in [
            ("ipv4/icmp_msgs_per_sec", "77\n"),
            ("ipv4/icmp_ratelimit", "0\n"),
            ("ipv6/icmp/ratemask", "0-1,3-127\n"),
        ] {
            fs::write(root.join(name), text).unwrap();
        }
        let limits = limits_in(&root);
        assert_eq!((limits.rate, limits.interval_v4), (77, 0));
        assert_eq!(limits.mask_v6, !(1u32 << 2));
        fs::write(root.join("ipv6/icmp/ratemask"), "\n").unwrap();
        assert_eq!(limits_in(&root).mask_v6, 0);
        fs::remove_dir_all(root).unwrap();
    }
}
