//! The names of route protocols (`RTPROT_…`), as iproute2 prints them.
//!
//! Sources: `linux/rtnetlink.h`, and `/etc/iproute2/rt_protos` as iproute2 ships it. Other numbers
//! are printed as numbers, as `ip route` does.

/// Returns the name of a protocol.
pub fn name(protocol: u8) -> String {
    let known = match protocol {
        0 => "unspec",
        1 => "redirect",
        2 => "kernel",
        3 => "boot",
        4 => "static",
        8 => "gated",
        9 => "ra",
        10 => "mrt",
        11 => "zebra",
        12 => "bird",
        13 => "dnrouted",
        14 => "xorp",
        15 => "ntk",
        16 => "dhcp",
        18 => "keepalived",
        42 => "babel",
        186 => "bgp",
        187 => "isis",
        188 => "ospf",
        189 => "rip",
        192 => "eigrp",
        number => return number.to_string(),
    };
    known.to_owned()
}
