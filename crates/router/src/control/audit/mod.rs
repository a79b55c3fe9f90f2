//! Whether the router does what the kernel would: routes and answers, held side by side.
//!
//! ```text
//!   kernel, dumped anew ─► Mirror ─┐
//!   kernel, asked (fibmatch) ──────┼─► alike? ─► differences, a moment later once more
//!   plane: routes, workers' table ─┘
//! ```
//!
//! | file | |
//! |---|---|
//! | `auditor` | destinations of packets, all the time |
//! | `diff` | every route, and a sample of addresses, when somebody asks for it |
//!
//! What is compared is where packets go: the kind of a route, and its ways with their
//! weights. Not compared are metrics, protocols and whether a gateway was said to be on
//! its link (`onlink`), which lead no packet elsewhere; host routes of the plane's own, for
//! neighbors on a link, which the kernel keeps as neighbors; and link-local IPv6, where
//! each interface has the same prefix and packets are never forwarded.

pub(crate) mod auditor;
pub(crate) mod diff;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use feed::netlink::{Mirror, RouteInfo, Target, Via};
use fib::{Family, Prefix};

use super::plane::{HopTarget, One, PlaneTable};

/// What is different for the two families.
trait Side: Family {
    /// Routes within this are not compared; without it, all are.
    const LEFT_OUT: Option<(u128, u32)>;

    fn one(table: PlaneTable<'_>) -> One<'_, Self>;
    fn ip(self) -> IpAddr;
    fn routes(mirror: &Mirror, table: u32) -> impl Iterator<Item = (Prefix<Self>, &RouteInfo)>;
    fn best(mirror: &Mirror, table: u32, prefix: Prefix<Self>) -> Option<&RouteInfo>;
}

impl Side for u32 {
    const LEFT_OUT: Option<(u128, u32)> = None;

    fn one(table: PlaneTable<'_>) -> One<'_, Self> {
        table.v4
    }
    fn ip(self) -> IpAddr {
        Ipv4Addr::from(self).into()
    }
    fn routes(mirror: &Mirror, table: u32) -> impl Iterator<Item = (Prefix<Self>, &RouteInfo)> {
        mirror.routes_v4(table)
    }
    fn best(mirror: &Mirror, table: u32, prefix: Prefix<Self>) -> Option<&RouteInfo> {
        mirror.best_v4(table, prefix)
    }
}

impl Side for u128 {
    const LEFT_OUT: Option<(u128, u32)> = Some((0xfe80 << 112, 10));

    fn one(table: PlaneTable<'_>) -> One<'_, Self> {
        table.v6
    }
    fn ip(self) -> IpAddr {
        Ipv6Addr::from(self).into()
    }
    fn routes(mirror: &Mirror, table: u32) -> impl Iterator<Item = (Prefix<Self>, &RouteInfo)> {
        mirror.routes_v6(table)
    }
    fn best(mirror: &Mirror, table: u32, prefix: Prefix<Self>) -> Option<&RouteInfo> {
        mirror.best_v6(table, prefix)
    }
}

/// Says whether routes for a prefix are compared.
fn compared<A: Side>(prefix: Prefix<A>) -> bool {
    let within =
        |(address, length)| Prefix::<A>::truncate(A::from_u128(address), length).covers(prefix);
    !A::LEFT_OUT.is_some_and(within)
}

/// Says whether an address is one that a route table decides on, for the kernel's own
/// packets as for others'.
fn resolvable(address: IpAddr) -> bool {
    let special = address.is_loopback() || address.is_multicast() || address.is_unspecified();
    !special
        && match address {
            IpAddr::V4(it) => !it.is_broadcast() && !it.is_link_local() && it.octets()[0] != 0,
            IpAddr::V6(it) => !it.is_unicast_link_local() && it.to_ipv4_mapped().is_none(),
        }
}

/// Says whether two targets lead to the same places in the same shares.
fn alike(one: &Target, other: &Target) -> bool {
    let way = |via: &Via| (via.interface, via.gateway, via.weight);
    match (one, other) {
        (Target::Via(one), Target::Via(other)) => one.iter().map(way).eq(other.iter().map(way)),
        _ => one == other,
    }
}

/// Says whether the router's route for a prefix is the kernel's.
fn same_route(router: Option<&HopTarget>, kernel: Option<&Target>) -> bool {
    match (router, kernel) {
        (None | Some(HopTarget::Neighbor { .. }), None) => true,
        (Some(HopTarget::Route(router)), Some(kernel)) => alike(router, kernel),
        _ => false,
    }
}

/// Says whether packets to an address go where the kernel would send them. A neighbor on
/// a link is where a connected route leads.
fn same_way(router: Option<&HopTarget>, kernel: Option<&Target>) -> bool {
    match (router, kernel) {
        (Some(&HopTarget::Neighbor { interface, .. }), Some(Target::Via(vias))) => {
            matches!(&vias[..], [via] if via.interface == interface && via.gateway.is_none())
        }
        (Some(HopTarget::Neighbor { .. }), _) => false,
        _ => same_route(router, kernel),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn via(interface: u32, gateway: Option<[u8; 4]>, weight: u16, onlink: bool) -> Via {
        Via { interface, gateway: gateway.map(IpAddr::from), weight, onlink }
    }

    #[test]
    fn what_leads_no_packet_elsewhere_is_no_difference() {
        let one = Target::Via(vec![via(1, Some([10, 0, 0, 2]), 1, false)]);
        let onlink = Target::Via(vec![via(1, Some([10, 0, 0, 2]), 1, true)]);
        assert!(alike(&one, &onlink) && alike(&Target::Blackhole, &Target::Blackhole));
        for other in [
            Target::Via(vec![via(2, Some([10, 0, 0, 2]), 1, false)]),
            Target::Via(vec![via(1, Some([10, 0, 0, 3]), 1, false)]),
            Target::Via(vec![via(1, None, 1, false)]),
            Target::Via(vec![via(1, Some([10, 0, 0, 2]), 2, false)]),
            Target::Via(vec![via(1, Some([10, 0, 0, 2]), 1, false), via(2, None, 1, false)]),
            Target::Blackhole,
        ] {
            assert!(!alike(&one, &other), "{other:?}");
        }
        let route = HopTarget::Route(Arc::new(one.clone()));
        assert!(same_route(Some(&route), Some(&one)) && same_way(Some(&route), Some(&one)));
        assert!(!same_route(Some(&route), None) && !same_route(None, Some(&one)));
    }

    #[test]
    fn a_neighbor_is_where_its_connected_route_leads() {
        let near = HopTarget::Neighbor { interface: 1, address: [10, 0, 0, 7].into() };
        let connected = Target::Via(vec![via(1, None, 1, false)]);
        assert!(same_way(Some(&near), Some(&connected)));
        assert!(same_route(Some(&near), None));
        // Another has the same prefix in the kernel: ours should have given way.
        assert!(!same_route(Some(&near), Some(&connected)));
        for elsewhere in [via(2, None, 1, false), via(1, Some([10, 0, 0, 9]), 1, false)] {
            assert!(!same_way(Some(&near), Some(&Target::Via(vec![elsewhere]))));
        }
        assert!(!same_way(Some(&near), None));
    }

    #[test]
    fn link_local_is_left_out_and_special_addresses_are_not_asked_for() {
        assert!(!compared::<u128>("fe80::/64".parse().unwrap()));
        assert!(compared::<u128>("::/0".parse().unwrap()));
        assert!(compared::<u32>("169.254.0.0/16".parse().unwrap()));
        for special in ["0.1.2.3", "127.0.0.1", "224.0.0.5", "255.255.255.255", "::1", "ff02::1"] {
            assert!(!resolvable(special.parse().unwrap()), "{special}");
        }
        assert!(resolvable([192, 0, 2, 1].into()) && resolvable("2001:db8::1".parse().unwrap()));
    }
}
