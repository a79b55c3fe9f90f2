//! Checks that the router forwards as the kernel would: compares routes and lookups.
//!
//! ```text
//!   kernel, a fresh dump ──────────► Mirror ─┐
//!   kernel, queried (RTM_GETROUTE fibmatch) ─┼─► equal? ─► if not: compared again later
//!   plane: routes, workers' table ───────────┘
//! ```
//!
//! | file | |
//! |---|---|
//! | `auditor` | compares destinations of packets, continuously |
//! | `diff` | compares every route and a sample of addresses, on request |
//!
//! The comparison covers everything that decides where packets go: the type of a route, and its
//! next hops with their weights. It does not cover metrics, protocols and the flag `onlink`, which
//! send no packet elsewhere; host routes of the plane's own for neighbors on a link, which
//! the kernel keeps as neighbors; and link-local IPv6, where every interface has the same prefix
//! and packets are never forwarded.

pub(crate) mod auditor;
pub(crate) mod diff;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use feed::netlink::{Lookup, LookupResult, Mirror, RouteInfo, Target, Via};
use fib::{Family, Prefix};

use super::plane::{HopTarget, PlaneTable, TableView};

/// The kernel's main table, the only one for which the kernel's lookup is queried.
const MAIN: u32 = 254;

/// The kernel's route for an address, if it has one: its prefix and its target.
type KernelRoute = Option<(String, Arc<Target>)>;

/// The operations of the comparison that differ between IPv4 and IPv6.
trait AuditFamily: Family {
    /// The prefix within which routes are not compared.
    const EXCLUDED: Option<(u128, u32)>;

    fn of(table: PlaneTable<'_>) -> TableView<'_, Self>;
    fn ip(self) -> IpAddr;
    fn routes(mirror: &Mirror, table: u32) -> impl Iterator<Item = (Prefix<Self>, &RouteInfo)>;
    fn best(mirror: &Mirror, table: u32, prefix: Prefix<Self>) -> Option<&RouteInfo>;
}

impl AuditFamily for u32 {
    const EXCLUDED: Option<(u128, u32)> = None;

    fn of(table: PlaneTable<'_>) -> TableView<'_, Self> {
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

impl AuditFamily for u128 {
    const EXCLUDED: Option<(u128, u32)> = Some((0xfe80 << 112, 10));

    fn of(table: PlaneTable<'_>) -> TableView<'_, Self> {
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

/// Returns whether routes for a prefix are compared.
fn is_compared<A: AuditFamily>(prefix: Prefix<A>) -> bool {
    let within =
        |(address, length)| Prefix::<A>::truncate(A::from_u128(address), length).covers(prefix);
    !A::EXCLUDED.is_some_and(within)
}

/// Returns whether a route table decides on an address, for the kernel's own packets as for
/// forwarded ones.
fn is_resolvable(address: IpAddr) -> bool {
    let special = address.is_loopback() || address.is_multicast() || address.is_unspecified();
    !special
        && match address {
            IpAddr::V4(v4) => !v4.is_broadcast() && !v4.is_link_local() && v4.octets()[0] != 0,
            IpAddr::V6(v6) => !v6.is_unicast_link_local() && v6.to_ipv4_mapped().is_none(),
        }
}

/// Queries the kernel's lookup for the route of an address in `table`: its prefix and its target, or
/// none if the kernel has none. Returns `None` if there is nothing to compare: another table decides,
/// or the address is delivered.
fn kernel_route(
    lookup: &mut Lookup,
    table: u32,
    address: IpAddr,
    is_own: bool,
) -> Result<Option<KernelRoute>, feed::netlink::Error> {
    Ok(match lookup.get(address)? {
        LookupResult::Route { table: other, .. } if other != table => None,
        LookupResult::Route { info, .. } if is_delivered(is_own, &info.target) => None,
        LookupResult::Route { prefix, info, .. } => Some(Some((prefix.to_string(), info.target))),
        LookupResult::Refused(target) => Some(Some((address.to_string(), Arc::new(target)))),
        LookupResult::NoRoute => Some(None),
    })
}

/// Returns whether the kernel delivers packets to an address to this host, and the router has it
/// among its own addresses, which it delivers before it looks up a route. As long as there is no
/// policy rule, the kernel keeps the local table and the main table in one trie, and reports the
/// main one for both.
fn is_delivered(is_own: bool, kernel: &Target) -> bool {
    is_own && kernel.is_delivered()
}

/// Returns whether two targets have the same next hops with the same weights.
fn is_same_target(a: &Target, b: &Target) -> bool {
    let key = |via: &Via| (via.interface, via.gateway, via.weight);
    match (a, b) {
        (Target::Via(a), Target::Via(b)) => a.iter().map(key).eq(b.iter().map(key)),
        _ => a == b,
    }
}

/// Returns whether the router's route for a prefix is the kernel's.
fn is_same_route(router: Option<&HopTarget>, kernel: Option<&Target>) -> bool {
    match (router, kernel) {
        (None | Some(HopTarget::Neighbor { .. }), None) => true,
        (Some(HopTarget::Route(router)), Some(kernel)) => is_same_target(router, kernel),
        _ => false,
    }
}

/// Returns whether packets to an address take the path that the kernel would choose. A host route
/// to a neighbor takes the path of the connected route of its link.
fn is_same_path(router: Option<&HopTarget>, kernel: Option<&Target>) -> bool {
    match (router, kernel) {
        (Some(&HopTarget::Neighbor { interface, .. }), Some(Target::Via(vias))) => {
            matches!(&vias[..], [via] if via.interface == interface && via.gateway.is_none())
        }
        (Some(HopTarget::Neighbor { .. }), _) => false,
        _ => is_same_route(router, kernel),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn via(interface: u32, gateway: Option<[u8; 4]>, weight: u16, onlink: bool) -> Via {
        Via {
            interface,
            gateway: gateway.map(IpAddr::from),
            weight,
            onlink,
            source: None,
            mtu: None,
        }
    }

    #[test]
    fn targets_with_equal_next_hops_are_equal_whatever_their_flags() {
        let target = Target::Via(vec![via(1, Some([10, 0, 0, 2]), 1, false)]);
        let onlink = Target::Via(vec![via(1, Some([10, 0, 0, 2]), 1, true)]);
        assert!(
            is_same_target(&target, &onlink)
                && is_same_target(&Target::Blackhole, &Target::Blackhole)
        );
        for other in [
            Target::Via(vec![via(2, Some([10, 0, 0, 2]), 1, false)]),
            Target::Via(vec![via(1, Some([10, 0, 0, 3]), 1, false)]),
            Target::Via(vec![via(1, None, 1, false)]),
            Target::Via(vec![via(1, Some([10, 0, 0, 2]), 2, false)]),
            Target::Via(vec![via(1, Some([10, 0, 0, 2]), 1, false), via(2, None, 1, false)]),
            Target::Blackhole,
        ] {
            assert!(!is_same_target(&target, &other), "{other:?}");
        }
        let route = HopTarget::Route(Arc::new(target.clone()));
        assert!(
            is_same_route(Some(&route), Some(&target)) && is_same_path(Some(&route), Some(&target))
        );
        assert!(!is_same_route(Some(&route), None) && !is_same_route(None, Some(&target)));
    }

    #[test]
    fn neighbor_route_takes_the_path_of_its_connected_route() {
        let neighbor = HopTarget::Neighbor { interface: 1, address: [10, 0, 0, 7].into() };
        let connected = Target::Via(vec![via(1, None, 1, false)]);
        assert!(is_same_path(Some(&neighbor), Some(&connected)));
        assert!(is_same_route(Some(&neighbor), None));
        // A route of the kernel for the same prefix replaces the plane's host route.
        assert!(!is_same_route(Some(&neighbor), Some(&connected)));
        for elsewhere in [via(2, None, 1, false), via(1, Some([10, 0, 0, 9]), 1, false)] {
            assert!(!is_same_path(Some(&neighbor), Some(&Target::Via(vec![elsewhere]))));
        }
        assert!(!is_same_path(Some(&neighbor), None));
    }

    #[test]
    fn own_address_is_delivered_only_where_the_kernel_delivers_it() {
        let connected = Target::Via(vec![via(1, None, 1, false)]);
        assert!(is_delivered(true, &Target::Local) && is_delivered(true, &Target::Broadcast));
        assert!(!is_delivered(false, &Target::Local) && !is_delivered(true, &connected));
    }

    #[test]
    fn link_local_routes_and_special_addresses_are_not_compared() {
        assert!(!is_compared::<u128>("fe80::/64".parse().unwrap()));
        assert!(is_compared::<u128>("::/0".parse().unwrap()));
        assert!(is_compared::<u32>("169.254.0.0/16".parse().unwrap()));
        for special in ["0.1.2.3", "127.0.0.1", "224.0.0.5", "255.255.255.255", "::1", "ff02::1"] {
            assert!(!is_resolvable(special.parse().unwrap()), "{special}");
        }
        assert!(
            is_resolvable([192, 0, 2, 1].into()) && is_resolvable("2001:db8::1".parse().unwrap())
        );
    }
}
