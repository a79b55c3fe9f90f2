//! The interface between a feed and its consumer.
//!
//! A feed knows every route of every table; a [`Follower`] receives the best route of a prefix, and
//! only when that changes. Targets are shared: of a million routes most lead to one of a few targets,
//! so a [`RouteInfo`] is a pointer and two numbers.
//!
//! Order: within the changes of one netlink message a link is reported before its addresses,
//! neighbors and routes, and its removal after theirs. Between messages nothing is promised: a route
//! may name an interface that is reported later.

use core::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use fib::Prefix;

use super::address::AddressView;
use super::link::Link;
use super::neighbor::Neighbor;
use super::rule::Rule;

/// One nexthop of a target. Sorted and unique within the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Via {
    /// The index of the interface.
    pub interface: u32,
    /// The gateway, of either family; none where the destination itself is on the link.
    pub gateway: Option<IpAddr>,
    /// Its weight among the flows, 1 or more.
    pub weight: u16,
    /// Whether the gateway is on the link even if no address of the interface covers it (`onlink`).
    pub onlink: bool,
    /// The source of the host's own packets that an IPv4 route prefers (`src`).
    pub source: Option<Ipv4Addr>,
    /// The MTU of the route (`mtu`), which packets may not exceed whatever the link's is.
    pub mtu: Option<u16>,
}

/// The destination of a route.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    /// Forwarded by one of these nexthops; never empty.
    Via(Vec<Via>),
    /// Discarded without an answer.
    Blackhole,
    /// Discarded; the sender gets an ICMP "host unreachable".
    Unreachable,
    /// Discarded; the sender gets an ICMP "administratively prohibited".
    Prohibit,
    /// The lookup continues with the next rule.
    Throw,
    /// To the host itself: its own addresses, anycast addresses, and routes that only the kernel can
    /// execute (encapsulation into a tunnel or with MPLS labels).
    Local,
    /// To all hosts of a link.
    Broadcast,
    /// To a multicast group.
    Multicast,
}

impl Target {
    /// Returns whether packets go to this host: its own, broadcast and multicast addresses.
    pub fn is_delivered(&self) -> bool {
        matches!(self, Self::Local | Self::Broadcast | Self::Multicast)
    }
}

/// The best route of a prefix.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RouteInfo {
    /// Its destination.
    pub target: Arc<Target>,
    /// The metric, the lowest of the usable routes.
    pub metric: u32,
    /// The protocol that installed it (`RTPROT_…`, as in `/etc/iproute2/rt_protos`).
    pub protocol: u8,
}

/// The kernel's reverse path filter of an interface, for IPv4 (`rp_filter`; RFC 3704).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RpFilter {
    /// 0: packets may have any source.
    #[default]
    Off,
    /// 1: sources whose route leaves by the interface.
    Strict,
    /// 2: sources that have a route.
    Loose,
}

impl RpFilter {
    /// Reads a value of the setting: any beyond 1 is loose, as in the kernel.
    pub fn of(value: u32) -> Self {
        match value {
            0 => Self::Off,
            1 => Self::Strict,
            _ => Self::Loose,
        }
    }
}

/// The kernel's settings of an interface that decide which of its packets are forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InterfaceSettings {
    /// The reverse path filter of IPv4 packets.
    pub rp_filter: RpFilter,
    /// IPv4 packets that arrive on it are forwarded.
    pub forwards_v4: bool,
    /// IPv6 packets that arrive on it are forwarded.
    pub forwards_v6: bool,
}

impl Default for InterfaceSettings {
    /// Makes settings that refuse no packet.
    fn default() -> Self {
        Self { rp_filter: RpFilter::Off, forwards_v4: true, forwards_v6: true }
    }
}

/// A change of an interface's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressChange {
    /// A dump has listed it, in the kernel's order.
    Listed,
    /// The interface has got it, or its flags have changed.
    Set,
    /// The interface has lost it.
    Removed,
}

/// Receives the changes of a feed.
pub trait Follower {
    /// Reports the best route of an IPv4 prefix; `None` if it has none any more.
    fn route_v4(&mut self, table: u32, prefix: Prefix<u32>, best: Option<&RouteInfo>);

    /// Reports the best route of an IPv6 prefix; `None` if it has none any more.
    fn route_v6(&mut self, table: u32, prefix: Prefix<u128>, best: Option<&RouteInfo>);

    /// Reports a new or changed interface; `None` if it was removed.
    fn link(&mut self, index: u32, link: Option<&Link>);

    /// Reports an address of an interface.
    fn address(&mut self, address: &AddressView, change: AddressChange);

    /// Reports a new or changed neighbor; `None` if it was removed.
    fn neighbor(&mut self, index: u32, address: IpAddr, neighbor: Option<&Neighbor>);

    /// Reports the complete list of rules after a change, IPv4 first, by priority.
    fn rules(&mut self, rules: &[Rule]);

    /// Reports the kernel's settings of an interface, with those for all interfaces applied. An interface
    /// that is never reported has the default.
    fn settings(&mut self, interface: u32, settings: InterfaceSettings);
}

/// A follower that ignores all reports.
#[derive(Clone, Copy, Debug, Default)]
pub struct NullFollower;

impl Follower for NullFollower {
    fn route_v4(&mut self, _: u32, _: Prefix<u32>, _: Option<&RouteInfo>) {}
    fn route_v6(&mut self, _: u32, _: Prefix<u128>, _: Option<&RouteInfo>) {}
    fn link(&mut self, _: u32, _: Option<&Link>) {}
    fn address(&mut self, _: &AddressView, _: AddressChange) {}
    fn neighbor(&mut self, _: u32, _: IpAddr, _: Option<&Neighbor>) {}
    fn rules(&mut self, _: &[Rule]) {}
    fn settings(&mut self, _: u32, _: InterfaceSettings) {}
}
