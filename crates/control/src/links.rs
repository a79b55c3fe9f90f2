//! Reads interfaces and addresses from the system, before the router opens its ports.
//!
//! The functions query the network namespace of the calling thread, through sockets and not through
//! `/sys`, which shows the namespace in which it was mounted. The port reads MAC and MTU when it is
//! opened; these functions read the names, so that a missing interface is reported first, and the
//! router's own addresses. Directed broadcast addresses count as own: they are not forwarded (RFC
//! 2644).

use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;

use feed::netlink::{Kernel, Link, NullFollower};
use nix::ifaddrs::getifaddrs;
use nix::sys::socket::SockaddrStorage;

use datapath::Locals;

/// Returns whether an interface with this name exists.
pub fn exists(name: &str) -> bool {
    nix::net::if_::if_nametoindex(name).is_ok()
}

/// The effect of an interface that cannot be a port.
pub const LEFT: &str = "its packets are left to Linux";

/// Returns the reason that an interface cannot be a port, if there is one. With `bonds`, members of bonds
/// can.
///
/// A bond, a VLAN device or a MAC-VLAN device has no queues of its own, so that an AF_XDP
/// socket on it receives nothing, or only packets that the lower interface passes. The packets of a
/// member of a bond or a bridge belong to its master; a plain router forwards those of bonds
/// (`plane/bonds.rs`).
pub fn unfit(link: &Link, bonds: bool) -> Option<String> {
    let name = &link.name;
    if let Some((kind, advice)) = unfit_kind(link) {
        return Some(format!("{name} is {kind}, which cannot be a port{advice}: {LEFT}"));
    }
    let master = match &*link.member_of {
        "bond" if bonds => return None,
        "bond" | "team" => "a bond",
        "bridge" | "openvswitch" => "a bridge",
        _ => return None,
    };
    Some(format!("{name} is a member of {master}: {LEFT}"))
}

/// Returns the kind of an interface whose kind cannot be a port, and the advice for its configuration.
fn unfit_kind(link: &Link) -> Option<(&'static str, &'static str)> {
    Some(match &*link.kind {
        "bond" => ("a bond", " (configure its members)"),
        "team" => ("a team", ""),
        "vlan" => ("a VLAN device", " (configure the interface below it)"),
        "macvlan" | "macvtap" => ("a MAC-VLAN device", " (configure the interface below it)"),
        "ipvlan" | "ipvtap" => ("an IP-VLAN device", ""),
        _ => return None,
    })
}

/// Returns whether an interface can be a port, apart from its master, which is a bond.
pub fn is_bond_member(link: &Link) -> bool {
    link.member_of == "bond" && unfit_kind(link).is_none()
}

/// Returns the reason of each interface, among these names, that cannot be a port; with `bonds`,
/// members of bonds can.
///
/// # Errors
///
/// The kernel's links cannot be read.
pub fn unfit_among<'n>(
    names: impl Iterator<Item = &'n str>,
    bonds: bool,
) -> Result<Vec<String>, feed::netlink::Error> {
    let mut kernel = Kernel::open()?;
    kernel.start_without_routes(&mut NullFollower)?;
    let links = kernel.mirror().links();
    let link = |name: &str| links.values().find(|link| link.name == name);
    Ok(names.filter_map(|name| unfit(link(name)?, bonds)).collect())
}

/// Lists the addresses of all interfaces, broadcast addresses included, each once and in order. An
/// address belongs to the host and not to an interface, so the list includes addresses of
/// interfaces that are no ports.
///
/// # Errors
///
/// The system's error.
pub fn addresses() -> io::Result<Vec<IpAddr>> {
    let mut addresses = BTreeSet::new();
    for interface in getifaddrs()? {
        let listed = [interface.address, interface.broadcast];
        addresses.extend(listed.into_iter().flatten().filter_map(|address| ip(&address)));
    }
    Ok(addresses.into_iter().collect())
}

fn ip(address: &SockaddrStorage) -> Option<IpAddr> {
    let v4 = address.as_sockaddr_in().map(|address| IpAddr::V4(address.ip()));
    v4.or_else(|| address.as_sockaddr_in6().map(|address| IpAddr::V6(address.ip())))
}

/// Makes the datapath's set of own addresses.
pub fn locals(addresses: &[IpAddr]) -> Locals {
    let v4 = addresses.iter().filter_map(|address| match address {
        IpAddr::V4(address) => Some(u32::from(*address)),
        IpAddr::V6(_) => None,
    });
    let v6 = addresses.iter().filter_map(|address| match address {
        IpAddr::V6(address) => Some(u128::from(*address)),
        IpAddr::V4(_) => None,
    });
    Locals::new(v4, v6)
}

#[cfg(test)]
mod tests {
    use super::{addresses, exists, locals};

    #[test]
    fn loopback_exists_and_own_addresses_are_found() {
        assert!(exists("lo"));
        assert!(!exists("no-such-if0"));
        let locals = locals(&addresses().expect("the system lists its addresses"));
        assert!(!locals.holds_v4(0xc633_6401));
        let made = super::locals(&["192.0.2.1".parse().unwrap(), "2001:db8::1".parse().unwrap()]);
        assert!(made.holds_v4(0xc000_0201) && made.holds_v6(0x2001_0db8 << 96 | 1));
    }
}
