//! Views of route messages.
//!
//! `RTM_NEWROUTE`, `struct rtmsg` of 12 bytes: family, length of the destination, of
//! the source, TOS, table, protocol, scope, type, flags (4). A table above 255 is in
//! `RTA_TABLE`, which takes precedence. A route has one nexthop
//! (`RTA_OIF`, `RTA_GATEWAY`; `RTA_VIA` for a gateway of the other family, RFC 8950),
//! several (`RTA_MULTIPATH`), or the number of a nexthop object (`RTA_NH_ID`, beside
//! which the kernel repeats its current nexthops).
//!
//! ```text
//! RTA_MULTIPATH    0        2       3            4           8          length
//!                  ┌────────┬───────┬────────────┬───────────┬────────────┐
//!                  │ length │ flags │ weight - 1 │ interface │ attributes │ next …
//!                  └────────┴───────┴────────────┴───────────┴────────────┘
//! ```
//!
//! Reading one allocates nothing: a full table is a million of them.

use core::net::IpAddr;
use core::time::Duration;

use fib::Prefix;

use super::attribute::{Attribute, Attributes, Bytes, address};
use super::error::Damage;
use super::message::Message;
use super::uapi::{
    AF_INET, AF_INET6, RTA_CACHEINFO, RTA_DST, RTA_ENCAP, RTA_FLOW, RTA_GATEWAY, RTA_METRICS,
    RTA_MULTIPATH, RTA_NH_ID, RTA_OIF, RTA_PREFSRC, RTA_PRIORITY, RTA_TABLE, RTA_VIA, RTAX_MTU,
    RTNH_F_DEAD, RTNH_F_ONLINK,
};
use crate::prefix::AnyPrefix;

/// The least MTU of a link for IPv6.
const LEAST_MTU_V6: u16 = 1280;

/// A message about a route of IPv4 or IPv6.
#[derive(Clone, Copy, Debug)]
pub struct RouteView<'a> {
    /// The destination.
    pub prefix: AnyPrefix,
    /// The length of the source prefix that it matches.
    pub source_length: u8,
    /// The type of service it is for; 0 is any.
    pub tos: u8,
    /// The table.
    pub table: u32,
    /// The protocol that installed it (`RTPROT_…`).
    pub protocol: u8,
    /// `RT_SCOPE_…`.
    pub scope: u8,
    /// The type (`RTN_…`).
    pub kind: u8,
    /// `RTM_F_…`, and the `RTNH_F_…` of a single nexthop.
    pub flags: u32,
    /// The metric: the lowest is used.
    pub metric: u32,
    /// The source address of the host's own packets.
    pub preferred_source: Option<IpAddr>,
    /// The MTU of the route itself, 0 if it has none.
    pub mtu: u32,
    /// The nexthop object, 0 for none.
    pub nexthop_id: u32,
    /// The remaining lifetime: of IPv6, by router advertisement or `expires`. Zero: it has expired,
    /// and the kernel has not removed it yet.
    pub expires: Option<Duration>,
    /// A hash of the other attributes that distinguish it: path metrics (MTU …) and realm; 0 for
    /// none.
    pub other: u32,
    single: RouteNexthop,
    several: Option<Attribute<'a>>,
}

/// One nexthop of a route (`struct rtnexthop`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RouteNexthop {
    /// The interface's index, 0 if none is named.
    pub interface: u32,
    /// The gateway; `None` if the destination is on the link.
    pub gateway: Option<IpAddr>,
    /// Its weight, 1 or more.
    pub weight: u16,
    /// `RTNH_F_…`.
    pub flags: u8,
    /// Whether packets are encapsulated (`RTA_ENCAP`).
    pub encapsulated: bool,
}

impl RouteNexthop {
    pub(crate) const NONE: Self =
        Self { interface: 0, gateway: None, weight: 1, flags: 0, encapsulated: false };

    /// Returns whether the kernel marks it unusable.
    pub fn is_dead(&self) -> bool {
        self.flags & RTNH_F_DEAD != 0
    }

    /// Returns whether the gateway is on the link even if no address of the interface covers it.
    pub fn is_onlink(&self) -> bool {
        self.flags & RTNH_F_ONLINK != 0
    }

    fn attribute(&mut self, attribute: &Attribute<'_>) -> Result<(), Damage> {
        match attribute.kind {
            RTA_GATEWAY => self.gateway = Some(attribute.address()?),
            RTA_VIA => {
                // Two bytes of family, then the address.
                let gateway = attribute.value.get(2..).and_then(address);
                let what = "a gateway of neither family";
                self.gateway = Some(gateway.ok_or(attribute.damage(what))?);
            }
            RTA_ENCAP => self.encapsulated = true,
            _ => {}
        }
        Ok(())
    }
}

impl<'a> RouteView<'a> {
    /// Reads a message; `None` if it is of another family than IPv4 and IPv6.
    ///
    /// # Errors
    ///
    /// [`Damage`], of the nexthops as well.
    pub fn parse(message: &Message<'a>) -> Result<Option<Self>, Damage> {
        let (head, attributes) = message.split::<12>()?;
        let (family, length) = (head[0], head[1]);
        if !matches!(family, AF_INET | AF_INET6) {
            return Ok(None);
        }
        let flags = head.u32(8);
        let mut destination = None;
        let mut view = Self {
            prefix: AnyPrefix::V4(Prefix::ALL),
            source_length: head[2],
            tos: head[3],
            table: head[4].into(),
            protocol: head[5],
            scope: head[6],
            kind: head[7],
            flags,
            metric: 0,
            preferred_source: None,
            mtu: 0,
            nexthop_id: 0,
            expires: None,
            other: 0,
            // The lowest byte has the flags of a single nexthop.
            single: RouteNexthop { flags: flags as u8, ..RouteNexthop::NONE },
            several: None,
        };
        for attribute in attributes {
            let attribute = attribute?;
            match attribute.kind {
                RTA_DST => destination = Some(attribute),
                RTA_TABLE => view.table = attribute.u32()?,
                RTA_PRIORITY => view.metric = attribute.u32()?,
                RTA_OIF => view.single.interface = attribute.u32()?,
                RTA_PREFSRC => view.preferred_source = Some(attribute.address()?),
                RTA_NH_ID => view.nexthop_id = attribute.u32()?,
                RTA_CACHEINFO => view.expires = expiry(&attribute)?,
                RTA_METRICS => {
                    view.mtu = mtu(&attribute)?;
                    view.other = mix(view.other, &attribute);
                }
                RTA_FLOW => view.other = mix(view.other, &attribute),
                RTA_MULTIPATH => view.several = Some(attribute),
                _ => view.single.attribute(&attribute)?,
            }
        }
        view.prefix = prefix(family, length, destination.as_ref(), message.at)?;
        for nexthop in view.nexthops() {
            nexthop?;
        }
        Ok(Some(view))
    }

    /// Walks the nexthops; a route that discards packets has none.
    pub fn nexthops(&self) -> RouteNexthops<'a> {
        let single = (self.single.interface != 0 || self.single.gateway.is_some())
            .then_some(self.single)
            .filter(|_| self.several.is_none());
        let (bytes, at) = self.several.map_or((&[][..], 0), |several| (several.value, several.at));
        RouteNexthops { single, bytes, at }
    }
}

/// Returns the MTU of a route, if it has one that a packet can exceed: for IPv6 at least 1280 bytes, which every
/// link carries (RFC 8200, 5).
pub(super) fn route_mtu(mtu: u32, v6: bool) -> Option<u16> {
    let mtu = u16::try_from(mtu).ok().filter(|mtu| *mtu != 0)?;
    Some(if v6 { mtu.max(LEAST_MTU_V6) } else { mtu })
}

/// Reads the remaining lifetime from `struct rta_cacheinfo`: its third word, in hundredths of a
/// second; 0 means forever, a negative value expired.
fn expiry(attribute: &Attribute<'_>) -> Result<Option<Duration>, Damage> {
    let what = "cache information shorter than its struct";
    let word = attribute.value.get(8..12).and_then(|word| word.try_into().ok());
    let hundredths = i32::from_ne_bytes(word.ok_or(attribute.damage(what))?);
    let left = u64::try_from(hundredths).unwrap_or(0);
    Ok((hundredths != 0).then(|| Duration::from_millis(10 * left)))
}

/// Reads the MTU from the metrics of a route; 0 if there is none.
fn mtu(metrics: &Attribute<'_>) -> Result<u32, Damage> {
    let mut mtu = 0;
    for metric in metrics.nested() {
        let metric = metric?;
        if metric.kind == RTAX_MTU {
            mtu = metric.u32()?;
        }
    }
    Ok(mtu)
}

/// Adds an attribute to a hash (FNV-1a).
fn mix(hash: u32, attribute: &Attribute<'_>) -> u32 {
    let step = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    let start = step(hash ^ 0x811c_9dc5, attribute.kind as u8);
    attribute.value.iter().fold(start, |hash, &byte| step(hash, byte))
}

fn prefix(
    family: u8,
    length: u8,
    destination: Option<&Attribute<'_>>,
    at: usize,
) -> Result<AnyPrefix, Damage> {
    let width = if family == AF_INET { 32 } else { 128 };
    if length > width {
        return Err(Damage { at, what: "a prefix longer than an address" });
    }
    // The kernel omits the address of a default route.
    let address = match destination {
        Some(destination) => Some(destination.address()?),
        None if length == 0 => None,
        None => return Err(Damage { at, what: "a route without a destination" }),
    };
    let length = length.into();
    match (family, address) {
        (AF_INET, Some(IpAddr::V4(v4))) => Ok(AnyPrefix::V4(Prefix::truncate(v4.into(), length))),
        (AF_INET6, Some(IpAddr::V6(v6))) => Ok(AnyPrefix::V6(Prefix::truncate(v6.into(), length))),
        (AF_INET, None) => Ok(AnyPrefix::V4(Prefix::ALL)),
        (_, None) => Ok(AnyPrefix::V6(Prefix::ALL)),
        _ => Err(Damage { at, what: "a destination of another family" }),
    }
}

/// The nexthops of a route.
#[derive(Clone, Debug)]
pub struct RouteNexthops<'a> {
    single: Option<RouteNexthop>,
    bytes: &'a [u8],
    at: usize,
}

impl RouteNexthops<'_> {
    fn take(&mut self) -> Result<RouteNexthop, Damage> {
        const HEAD: usize = 8;
        let at = self.at;
        let Some((head, _)) = self.bytes.split_first_chunk::<HEAD>() else {
            return Err(Damage { at, what: "a nexthop shorter than its header" });
        };
        let length = usize::from(head.u16(0));
        let Some(rest) = self.bytes.get(HEAD..length) else {
            return Err(Damage { at, what: "a nexthop with an impossible length" });
        };
        let (flags, weight) = (head[2], u16::from(head[3]) + 1);
        let mut nexthop =
            RouteNexthop { interface: head.u32(4), flags, weight, ..RouteNexthop::NONE };
        for attribute in Attributes::new(rest, at + HEAD) {
            nexthop.attribute(&attribute?)?;
        }
        let next = length.next_multiple_of(4).min(self.bytes.len());
        self.bytes = &self.bytes[next..];
        self.at += next;
        Ok(nexthop)
    }
}

impl Iterator for RouteNexthops<'_> {
    type Item = Result<RouteNexthop, Damage>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if let Some(single) = self.single.take() {
            return Some(Ok(single));
        }
        if self.bytes.is_empty() {
            return None;
        }
        let taken = self.take();
        if taken.is_err() {
            self.bytes = &[];
        }
        Some(taken)
    }
}
