//! What a feed tells, and who listens.
//!
//! A feed knows of every route of every table; a [`Follower`] is told of what is best
//! for a prefix, and only when that changes. Targets are shared: of a million routes
//! most lead to one of a few, so a [`RouteInfo`] is a pointer and two numbers.
//!
//! Order: a link is told before what lies on it and unsaid after it, within what one
//! message of the kernel changes. Between messages nothing is promised: a route may
//! name an interface that is told later.

use core::net::IpAddr;
use std::sync::Arc;

use fib::Prefix;

use super::link::Link;
use super::neighbor::Neighbor;
use super::rule::Rule;

/// One way out. Sorted and unique within a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Via {
    /// The index of the interface.
    pub interface: u32,
    /// The gateway, of either family; none where the destination itself is on the link.
    pub gateway: Option<IpAddr>,
    /// Its share of the flows, 1 and up.
    pub weight: u16,
    /// Whether the gateway is on the link whatever the addresses say.
    pub onlink: bool,
}

/// Where a route leads.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    /// Out, by one of these; never empty.
    Via(Vec<Via>),
    /// Nowhere, silently.
    Blackhole,
    /// Nowhere: the sender is told that it is unreachable.
    Unreachable,
    /// Nowhere: the sender is told that it is prohibited.
    Prohibit,
    /// Out of this table: the next rule decides.
    Throw,
    /// To the host itself: its own addresses, anycast, and what only the kernel can do
    /// (a route that puts packets into a tunnel or gives them labels).
    Local,
    /// To everybody on a link.
    Broadcast,
    /// To a group.
    Multicast,
}

/// What is best for a prefix.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RouteInfo {
    /// Where it leads.
    pub target: Arc<Target>,
    /// The metric, the lowest of those that can be used.
    pub metric: u32,
    /// Who installed it (`RTPROT_…`, as in `/etc/iproute2/rt_protos`).
    pub protocol: u8,
}

/// Who is told what changes.
pub trait Follower {
    /// The best route of an IPv4 prefix has changed; `None`: there is none any more.
    fn route_v4(&mut self, table: u32, prefix: Prefix<u32>, best: Option<&RouteInfo>);

    /// The best route of an IPv6 prefix has changed; `None`: there is none any more.
    fn route_v6(&mut self, table: u32, prefix: Prefix<u128>, best: Option<&RouteInfo>);

    /// An interface is there or has changed; `None`: it is gone.
    fn link(&mut self, index: u32, link: Option<&Link>);

    /// An interface has an address, or has it no more.
    fn address(&mut self, index: u32, address: IpAddr, length: u8, there: bool);

    /// A neighbor is there or has changed; `None`: it is gone.
    fn neighbor(&mut self, index: u32, address: IpAddr, neighbor: Option<&Neighbor>);

    /// The rules have changed; these are all, IPv4 first, by priority.
    fn rules(&mut self, rules: &[Rule]);
}

/// Nobody: nothing is told.
#[derive(Clone, Copy, Debug, Default)]
pub struct NullFollower;

impl Follower for NullFollower {
    fn route_v4(&mut self, _: u32, _: Prefix<u32>, _: Option<&RouteInfo>) {}
    fn route_v6(&mut self, _: u32, _: Prefix<u128>, _: Option<&RouteInfo>) {}
    fn link(&mut self, _: u32, _: Option<&Link>) {}
    fn address(&mut self, _: u32, _: IpAddr, _: u8, _: bool) {}
    fn neighbor(&mut self, _: u32, _: IpAddr, _: Option<&Neighbor>) {}
    fn rules(&mut self, _: &[Rule]) {}
}
