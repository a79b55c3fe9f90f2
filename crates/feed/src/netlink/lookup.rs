//! Route lookups by the kernel.
//!
//! ```text
//!   RTM_GETROUTE, RTA_DST, RTM_F_FIB_MATCH ─► the route as it is in the table
//!                                          └► an error that names the kind of route
//! ```
//!
//! `ip route get fibmatch ADDRESS` (ip-route(8)). A dump lists routes; this queries the code that
//! forwards, so a comparison with it covers the rules (`ip rule`) too, and the answer names the table
//! that the rules led to. The kernel answers within the call, in some microseconds.
//!
//! A route that refuses packets is reported as an error, without its prefix (Linux 6.18,
//! `inet_rtm_getroute`, `inet6_rtm_getroute`): `EINVAL` for a blackhole, `EACCES` for prohibit,
//! `EHOSTUNREACH` for unreachable, `ENETUNREACH` for no route.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use nix::errno::Errno;

use super::error::{Damage, Error};
use super::follower::{RouteInfo, Target, Via};
use super::message::{Message, Messages};
use super::route::{RouteNexthop, RouteView, route_mtu};
use super::socket::{Received, Socket};
use super::uapi::{
    AF_INET, AF_INET6, NLM_F_REQUEST, NLMSG_ERROR, RTA_DST, RTM_F_FIB_MATCH, RTM_F_LOOKUP_TABLE,
    RTM_GETLINK, RTM_GETROUTE, RTM_NEWROUTE, RTN_ANYCAST, RTN_BLACKHOLE, RTN_BROADCAST, RTN_LOCAL,
    RTN_MULTICAST, RTN_PROHIBIT, RTN_THROW, RTN_UNICAST, RTN_UNREACHABLE, RTNH_F_LINKDOWN,
};
use crate::prefix::AnyPrefix;

/// The kernel's decision about its own packets to an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LookupResult {
    /// It uses a route.
    Route {
        /// The table to which the rules led.
        table: u32,
        /// The route's prefix.
        prefix: AnyPrefix,
        /// Its destination.
        info: RouteInfo,
    },
    /// It refuses them, by a route of this kind.
    Refused(Target),
    /// It has no route.
    NoRoute,
}

/// A connection for lookups.
pub struct Lookup {
    socket: Socket,
    buffer: Vec<u8>,
}

impl Lookup {
    /// Opens a socket in the network namespace of the calling thread.
    ///
    /// # Errors
    ///
    /// [`Error`].
    pub fn open() -> Result<Self, Error> {
        Ok(Self { socket: Socket::open(0)?, buffer: vec![0; 16 << 10] })
    }

    /// Returns the route that the kernel uses for `address`.
    ///
    /// # Errors
    ///
    /// [`Error`]: a failed system call, or an invalid answer.
    pub fn get(&mut self, address: IpAddr) -> Result<LookupResult, Error> {
        self.get_with(address, |_| {})
    }

    /// Does the same, and passes the message with the route to `show`, if the kernel has one.
    pub(super) fn get_with(
        &mut self,
        address: IpAddr,
        mut show: impl FnMut(&Message<'_>),
    ) -> Result<LookupResult, Error> {
        let request = "a lookup";
        let number = self.socket.number();
        self.socket.send(&encode_request(address, number))?;
        while let Received::Bytes(bytes) = self.socket.receive(&mut self.buffer)? {
            for message in Messages::new(&self.buffer[..bytes]).flatten() {
                match message.kind {
                    _ if message.sequence != number => {}
                    RTM_NEWROUTE => {
                        show(&message);
                        let view = RouteView::parse(&message).ok().flatten();
                        let found = view.and_then(|view| lookup_result(&view).ok().flatten());
                        return found.ok_or(Error::Refused { request, source: Errno::EBADMSG });
                    }
                    NLMSG_ERROR => {
                        return match message.errno() {
                            Some(Errno::ENETUNREACH) => Ok(LookupResult::NoRoute),
                            Some(Errno::EINVAL) => Ok(LookupResult::Refused(Target::Blackhole)),
                            Some(Errno::EACCES) => Ok(LookupResult::Refused(Target::Prohibit)),
                            Some(Errno::EHOSTUNREACH) => {
                                Ok(LookupResult::Refused(Target::Unreachable))
                            }
                            Some(source) => Err(Error::Refused { request, source }),
                            None => continue,
                        };
                    }
                    _ => {}
                }
            }
        }
        Err(Error::Refused { request, source: Errno::ENODATA })
    }
}

impl Lookup {
    /// Waits until the kernel has finished and reported the current change of interfaces: it
    /// removes the routes of a link that goes down before it reports the link, which takes seconds
    /// with many routes.
    ///
    /// # Errors
    ///
    /// [`Error`].
    pub fn wait_for_links(&mut self) -> Result<(), Error> {
        // A query of the loopback interface, 1 in every namespace; its answer is not used. The
        // kernel serves the request under the lock that link changes hold (`rtnl_lock`).
        let number = self.socket.number();
        let mut bytes = Vec::with_capacity(32);
        bytes.extend(32u32.to_ne_bytes());
        bytes.extend(RTM_GETLINK.to_ne_bytes());
        bytes.extend(NLM_F_REQUEST.to_ne_bytes());
        bytes.extend(number.to_ne_bytes());
        bytes.extend([0; 8]);
        bytes.extend(1u32.to_ne_bytes());
        bytes.extend([0; 8]);
        self.socket.send(&bytes)?;
        self.socket.drain(&mut self.buffer)
    }
}

impl fmt::Debug for Lookup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lookup").finish_non_exhaustive()
    }
}

/// Converts the route of an answer; `None` if its type is unknown.
pub(super) fn lookup_result(view: &RouteView<'_>) -> Result<Option<LookupResult>, Damage> {
    let Some(target) = target(view)? else { return Ok(None) };
    let info = RouteInfo { target: Arc::new(target), metric: view.metric, protocol: view.protocol };
    Ok(Some(LookupResult::Route { table: view.table, prefix: view.prefix, info }))
}

/// Returns the source that an IPv4 route prefers.
fn preferred_source(view: &RouteView<'_>) -> Option<Ipv4Addr> {
    match view.preferred_source {
        Some(IpAddr::V4(source)) => Some(source),
        _ => None,
    }
}

/// Returns the target of a route by the current marks of its nexthops, as the mirror would.
fn target(view: &RouteView<'_>) -> Result<Option<Target>, Damage> {
    Ok(Some(match view.kind {
        RTN_UNICAST => {
            let nexthops = view.nexthops().collect::<Result<Vec<_>, _>>()?;
            if nexthops.iter().any(|nexthop| nexthop.encapsulated) {
                return Ok(Some(Target::Local));
            }
            let carried = |nexthop: &RouteNexthop| nexthop.flags & RTNH_F_LINKDOWN == 0;
            let any_carried = nexthops.iter().any(|nexthop| !nexthop.is_dead() && carried(nexthop));
            let used = nexthops
                .iter()
                .filter(|nexthop| !nexthop.is_dead() && (!any_carried || carried(nexthop)));
            let mut vias: Vec<Via> = used
                .map(|nexthop| Via {
                    interface: nexthop.interface,
                    gateway: nexthop.gateway,
                    weight: nexthop.weight,
                    onlink: nexthop.is_onlink(),
                    source: preferred_source(view),
                    mtu: route_mtu(view.mtu, matches!(view.prefix, AnyPrefix::V6(_))),
                })
                .collect();
            vias.sort_unstable();
            if let [only] = &mut vias[..] {
                only.weight = 1;
            }
            Target::Via(vias)
        }
        RTN_BROADCAST => Target::Broadcast,
        RTN_MULTICAST => Target::Multicast,
        RTN_BLACKHOLE => Target::Blackhole,
        RTN_UNREACHABLE => Target::Unreachable,
        RTN_PROHIBIT => Target::Prohibit,
        RTN_THROW => Target::Throw,
        RTN_LOCAL | RTN_ANYCAST => Target::Local,
        _ => return Ok(None),
    }))
}

fn encode_request(address: IpAddr, sequence: u32) -> Vec<u8> {
    let (family, octets) = match address {
        IpAddr::V4(v4) => (AF_INET, v4.octets().to_vec()),
        IpAddr::V6(v6) => (AF_INET6, v6.octets().to_vec()),
    };
    let length = 16 + 12 + 4 + octets.len();
    let mut bytes = Vec::with_capacity(length);
    bytes.extend((length as u32).to_ne_bytes());
    bytes.extend(RTM_GETROUTE.to_ne_bytes());
    bytes.extend(NLM_F_REQUEST.to_ne_bytes());
    bytes.extend(sequence.to_ne_bytes());
    bytes.extend([0; 4]);
    bytes.extend([family, 8 * octets.len() as u8, 0, 0, 0, 0, 0, 0]);
    bytes.extend((RTM_F_LOOKUP_TABLE | RTM_F_FIB_MATCH).to_ne_bytes());
    bytes.extend((4 + octets.len() as u16).to_ne_bytes());
    bytes.extend(RTA_DST.to_ne_bytes());
    bytes.extend(octets);
    bytes
}
