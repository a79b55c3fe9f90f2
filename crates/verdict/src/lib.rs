//! The verdicts: every way in which a packet ends, declared once.
//!
//! A frame that a worker takes from a port ends in exactly one [`Verdict`], and every verdict has
//! one counter, so that at any moment between two batches
//!
//! ```text
//!   received + originated = sent + Σ punted by reason + Σ dropped by reason + held
//! ```
//!
//! `held` counts the packets that wait for a neighbor's MAC address. They have not ended, so no
//! verdict is for them; none is left when the worker has stopped.
//!
//! The enum is the table, a variant a row:
//!
//! ```text
//!   variant          BadChecksum
//!   name             bad_checksum          from the variant, or #[strum(serialize)]
//!   help             its documentation     one phrase, without a period
//!   class, origin    Dropped, Router       class(), origin()
//!        │
//!        ├─► datapath   counters of a worker, `show counters`, metrics (label `reason`)
//!        ├─► gate       the reason of a drop, its counters, `show gate`, metrics (label `verdict`)
//!        ├─► dashboard  the explanation beside a reason
//!        └─► guide      docs/guide/forwarding.md, which a test here compares with the table
//! ```
//!
//! There is no "other" and no "error": new code that ends packets in a new way adds a verdict and a
//! test. No code depends on the order of the variants: what is kept for each verdict is in a
//! [`VerdictMap`].
//!
//! Packets that a port lost before the worker received them are received and dropped in this sense:
//! the worker adds its ports' counters from time to time.
//!
//! A **punt** hands the packet to the host's own stack: the packet is for the host, or of a kind
//! that the router leaves to the host. With AF_XDP the steering program passes packets to the kernel
//! that it recognizes without the routes, so that punts count only the remaining ones. A port without
//! a host turns a punt into [`Verdict::NoHost`].

#![forbid(unsafe_code)]

use std::ops::{Index, IndexMut};

use strum::{EnumMessage, IntoStaticStr, VariantArray};

/// How a packet ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EnumMessage, IntoStaticStr, VariantArray)]
#[repr(u8)]
#[strum(serialize_all = "snake_case")]
pub enum Verdict {
    /// Sent on a port, to its next hop
    Sent,

    /// Destination is one of the router's own addresses (RFC 1812, 5.2.3)
    OwnAddress,
    /// ARP (RFC 826), which the host answers
    Arp,
    /// A multicast destination, or IP in a multicast frame (RFC 1812, 5.2.3; RFC 4861)
    Multicast,
    /// The limited broadcast, or IP in a broadcast frame (RFC 1812, 5.3.4, 5.3.5.1)
    Broadcast,
    /// A VLAN tag; priority tags (VLAN 0) are removed before
    Tagged,
    /// Neither IPv4 nor IPv6
    #[strum(serialize = "ethertype")]
    EtherType,
    /// The route leads to Linux (RFC 1812, 5.2.7.1): an interface that is not the router's, or an
    /// address that Linux resolves or refuses
    HostRoute,
    /// `run`: no route, or one of type `unreachable` or `prohibit`, and Linux answers Destination
    /// Unreachable (RFC 1812, 5.2.7.1)
    Unreachable,
    /// `run`: TTL or hop limit used up, and Linux answers Time Exceeded (RFC 1812, 5.3.1)
    Expired,
    /// `run`: exceeds the next link's MTU; Linux answers Fragmentation Needed or Packet Too Big
    /// (RFC 1191, RFC 8201)
    Oversize,
    /// `run`: IPv4 options or hop-by-hop options, which Linux examines (RFC 791, 3.1; RFC 8200, 4.3)
    Options,
    /// `run`: the egress interface is the ingress interface; Linux forwards it, and sends a Redirect
    /// if one is due (RFC 1812, 5.2.7.2; RFC 4861, 8.2)
    Redirect,

    /// Shorter than an Ethernet header
    Runt,
    /// The destination MAC address is another station's
    NotOurs,
    /// Shorter than its header, or than the length in its header (RFC 1812, 5.2.2 (1); RFC 8200, 3)
    Truncated,
    /// IP version differs from the EtherType (RFC 1812, 5.2.2 (3))
    BadVersion,
    /// An IPv4 header of less than 20 bytes (RFC 1812, 5.2.2 (4))
    BadHeaderLength,
    /// IPv4 total length less than the header length (RFC 1812, 5.2.2 (5))
    BadTotalLength,
    /// Wrong checksum of the IPv4 header (RFC 1812, 5.2.2 (2))
    BadChecksum,
    /// A source route option (RFC 7126, 4.3 and 4.4)
    SourceRoute,
    /// A source address that cannot occur (RFC 1812, 5.3.7; RFC 4291, 2.5.2), or that is the router's own
    MartianSource,
    /// A destination address that cannot occur (RFC 1812, 5.3.7)
    MartianDestination,
    /// A multicast source (RFC 1812, 4.2.2.11; RFC 4291, 2.7)
    MulticastSource,
    /// A loopback address outside the host (RFC 1812, 5.3.7; RFC 4291, 2.5.3)
    Loopback,
    /// A link-local address, which must stay on its link (RFC 3927, 2.7; RFC 4291, 2.5.6)
    LinkLocal,
    /// Reverse path filter (`rpf`): the source has no route, or none by this interface (RFC 3704,
    /// RFC 8704)
    Spoofed,
    /// `run`: forwarding is off for the interface that it arrived on (`net.ipv4.conf.IFACE.forwarding`,
    /// `net.ipv6.conf.all.forwarding`)
    ForwardingOff,
    /// Denied by an access list (`[[access_list]]`)
    AclDenied,
    /// Beyond the rate of a `police` rule of an access list
    AclPoliced,
    /// TTL or hop limit used up (RFC 1812, 5.3.1; RFC 8200, 3)
    TtlExpired,
    /// No route; `run`: over the rate of `[punt] unreachable`
    NoRoute,
    /// A blackhole route
    Blackhole,
    /// A route of type `unreachable`; its sender gets an ICMP error
    UnreachableRoute,
    /// A route of type `prohibit`; its sender gets an ICMP error
    ProhibitRoute,
    /// The next hop's MAC address was not resolved within a second, or too many packets were waiting
    /// (RFC 1122, 2.3.2.2; RFC 4861, 7.2.2)
    Unresolved,
    /// Exceeds the next link's MTU, and is not to be fragmented (RFC 791), or no frame was free
    TooBig,
    /// The egress interface had no room, twice
    TxFull,
    /// The queue of the egress interface (`[[egress_queue]]`) was full
    EgressQueueFull,
    /// CoDel dropped it from the queue of the egress interface, where packets had waited for too long
    /// (RFC 8289)
    EgressQueueDelay,
    /// Punted, but Linux refused it, or would use another table
    NoHost,
    /// Punted, over the rate of its class (`[punt] local`, `forward`)
    PuntLimit,
    /// In the batch of a worker that panicked, which is a bug: please report the message in the log
    WorkerPanicked,

    /// Lost before a worker received it: the receive ring was full, so the worker is too slow
    RxRingFull,
    /// Lost before a worker received it: the fill ring had no free frame
    FillEmpty,
    /// Lost before a worker received it: longer than a frame, or refused by the port
    RxDropped,
    /// Lost before a worker received it: the steering program redirected it, and the kernel did not
    /// deliver it
    Undelivered,
    /// Lost after it was sent: refused as malformed
    TxInvalid,
    /// Lost after the driver forwarded it: the kernel or the egress device refused it
    TxRefused,

    /// Gate, or a router with `[block]`: the source is on a block list
    Blocked,
    /// Gate: the flow is declined
    Declined,
    /// Gate: over the rate that the flow was granted
    OverRate,
    /// Gate: the policy drops packets to this destination
    Policy,
    /// Gate: the set has no usable grantor
    NoGrantor,
    /// Gate: the flow program declines it
    Program,
    /// Gate: the flow program returned an error
    ProgramError,
    /// Gate: over the limit of the prefix
    OverLimit,
    /// Gate: over the limit per destination
    OverDestinationLimit,
    /// Gate: a SYN, answered with a SYN cookie (RFC 9293, 3.10.7.3)
    SynCookie,
    /// Gate: a reset with a valid SYN cookie, the reply to the gate's answer
    CookieReset,
    /// Gate: received on the front with a source that is protected, a grantor's or the gate's own, or
    /// to a grantor: no honest host sends such a packet (RFC 2827)
    Forged,
    /// Gate: a request, displaced by requests of higher priority
    LowPriority,
    /// Gate: the protected link is full
    LinkFull,
    /// Gate of several workers: the flow belongs to another worker, whose ring was full
    HandoverFull,
    /// Gate: no worker received it from the front interface, and the gate does not fail open
    Unserved,

    /// Grantor: a tunnel packet on an interface that is not in `[tunnel] interfaces`
    TunnelInterface,
    /// Grantor: a tunnel packet without an authentication tag
    TunnelUntagged,
    /// Grantor: unknown key of the authentication tag, or unknown session of its gate
    TunnelKey,
    /// Grantor: the authentication tag does not match the packet
    TunnelForged,
    /// Grantor: the packet was received before, or is too old for the replay window
    TunnelReplayed,
}

/// The three ways to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// Left on a port.
    Sent,
    /// Handed to the host.
    Punted,
    /// Dropped.
    Dropped,
}

/// The part of the program that ends packets so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Origin {
    /// The worker of any router.
    Router,
    /// A port, before a worker received the packet or after the worker sent it.
    Port,
    /// The decision of a gate: the crate `gate` returns the verdict and counts it.
    Gate,
    /// The queues, rings and steering program of a gate.
    GateQueues,
    /// A grantor.
    Grantor,
}

impl Verdict {
    /// The number of verdicts.
    pub const COUNT: usize = Self::VARIANTS.len();
    /// Every verdict.
    pub const ALL: [Self; Self::COUNT] = {
        let mut all = [Self::Sent; Self::COUNT];
        all.copy_from_slice(Self::VARIANTS);
        all
    };

    /// The number of verdicts that a gate's decision returns.
    pub const GATE_COUNT: usize = {
        let (mut count, mut i) = (0, 0);
        while i < Self::COUNT {
            count += matches!(Self::ALL[i].origin(), Origin::Gate) as usize;
            i += 1;
        }
        count
    };
    /// The verdicts that a gate's decision returns.
    pub const GATE: [Self; Self::GATE_COUNT] = {
        let mut gate = [Self::Sent; Self::GATE_COUNT];
        let (mut count, mut i) = (0, 0);
        while i < Self::COUNT {
            if matches!(Self::ALL[i].origin(), Origin::Gate) {
                gate[count] = Self::ALL[i];
                count += 1;
            }
            i += 1;
        }
        gate
    };

    /// Returns the verdict with a name.
    pub fn with_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|verdict| verdict.name() == name)
    }

    /// Returns the name that counters, metrics and reports use.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Returns the explanation for operators: a phrase in Markdown, without a period.
    pub fn help(self) -> String {
        let lines = self.get_documentation().unwrap_or_default();
        lines.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    /// Returns the way in which packets end so.
    pub const fn class(self) -> Class {
        match self {
            Self::Sent => Class::Sent,
            Self::OwnAddress
            | Self::Arp
            | Self::Multicast
            | Self::Broadcast
            | Self::Tagged
            | Self::EtherType
            | Self::HostRoute
            | Self::Unreachable
            | Self::Expired
            | Self::Oversize
            | Self::Options
            | Self::Redirect => Class::Punted,
            _ => Class::Dropped,
        }
    }

    /// Returns the part of the program that ends packets so.
    pub const fn origin(self) -> Origin {
        match self {
            Self::RxRingFull
            | Self::FillEmpty
            | Self::RxDropped
            | Self::Undelivered
            | Self::TxInvalid
            | Self::TxRefused => Origin::Port,
            Self::Blocked
            | Self::Declined
            | Self::OverRate
            | Self::Policy
            | Self::NoGrantor
            | Self::Program
            | Self::ProgramError
            | Self::OverLimit
            | Self::OverDestinationLimit
            | Self::SynCookie
            | Self::CookieReset
            | Self::Forged => Origin::Gate,
            Self::LowPriority | Self::LinkFull | Self::HandoverFull | Self::Unserved => {
                Origin::GateQueues
            }
            Self::TunnelInterface
            | Self::TunnelUntagged
            | Self::TunnelKey
            | Self::TunnelForged
            | Self::TunnelReplayed => Origin::Grantor,
            _ => Origin::Router,
        }
    }

    /// Returns whether packets end so outside a worker.
    pub const fn is_ports(self) -> bool {
        matches!(self.origin(), Origin::Port)
    }

    /// Returns whether only a gate ends packets so.
    pub const fn is_gates(self) -> bool {
        matches!(self.origin(), Origin::Gate | Origin::GateQueues)
    }

    /// Returns whether only a grantor ends packets so.
    pub const fn is_grantors(self) -> bool {
        matches!(self.origin(), Origin::Grantor)
    }
}

/// A value for each verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VerdictMap<T>([T; Verdict::COUNT]);

impl<T> VerdictMap<T> {
    /// Makes a map of the values that `f` returns for these.
    pub fn each_ref<U>(&self, f: impl FnMut(&T) -> U) -> VerdictMap<U> {
        VerdictMap(self.0.each_ref().map(f))
    }

    /// Iterates over all verdicts and their values.
    pub fn iter(&self) -> impl Iterator<Item = (Verdict, &T)> {
        Verdict::ALL.into_iter().zip(&self.0)
    }

    /// Iterates over all verdicts and their values, which the caller may change.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (Verdict, &mut T)> {
        Verdict::ALL.into_iter().zip(&mut self.0)
    }
}

impl<T: Default> Default for VerdictMap<T> {
    fn default() -> Self {
        Self(std::array::from_fn(|_| T::default()))
    }
}

impl<T> Index<Verdict> for VerdictMap<T> {
    type Output = T;

    #[inline(always)]
    fn index(&self, verdict: Verdict) -> &T {
        &self.0[verdict as usize]
    }
}

impl<T> IndexMut<Verdict> for VerdictMap<T> {
    #[inline(always)]
    fn index_mut(&mut self, verdict: Verdict) -> &mut T {
        &mut self.0[verdict as usize]
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{Class, Origin, Verdict, VerdictMap};

    /// The guide has a row for every verdict, in the table of its class.
    #[test]
    fn guide_lists_every_verdict() {
        let guide = include_str!("../../../docs/guide/forwarding.md");
        let (_, guide) = guide.split_once("\n## Verdicts\n").expect("the section on verdicts");
        for (class, heading) in [
            (Class::Sent, "| sent | |"),
            (Class::Punted, "| punted, to Linux | |"),
            (Class::Dropped, "| dropped | |"),
        ] {
            let (_, table) = guide.split_once(heading).expect(heading);
            let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
            let rows: Vec<&str> = rows.collect();
            let of_class = Verdict::ALL.iter().filter(|verdict| verdict.class() == class);
            let expect: Vec<String> =
                of_class.map(|v| format!("| `{}` | {} |", v.name(), v.help())).collect();
            assert_eq!(rows, expect, "docs/guide/forwarding.md, table {class:?}");
        }
    }

    #[test]
    fn names_and_helps_are_unique_plain_and_complete() {
        let mut seen = BTreeSet::new();
        for (index, verdict) in Verdict::ALL.into_iter().enumerate() {
            assert_eq!(verdict as usize, index, "{verdict:?}");
            let (name, help) = (verdict.name(), verdict.help());
            assert!(name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'), "{name}");
            assert_eq!(Verdict::with_name(name), Some(verdict));
            assert!(!help.is_empty() && !help.ends_with('.') && !help.contains('|'), "{help}");
            assert!(seen.insert(name.to_owned()) && seen.insert(help), "{verdict:?} is not unique");
        }
        assert_eq!(Verdict::ALL.iter().filter(|v| v.class() == Class::Punted).count(), 12);
    }

    #[test]
    fn help_names_the_role_that_drops() {
        for verdict in Verdict::ALL {
            let help = verdict.help();
            assert_eq!(verdict.is_gates(), help.starts_with("Gate"), "{verdict:?}");
            assert_eq!(verdict.is_grantors(), help.starts_with("Grantor"), "{verdict:?}");
            assert_eq!(verdict.is_ports(), help.starts_with("Lost"), "{verdict:?}");
            let is_dropped = verdict.class() == Class::Dropped;
            assert!(is_dropped || verdict.origin() == Origin::Router, "{verdict:?}");
            assert_eq!(Verdict::GATE.contains(&verdict), verdict.origin() == Origin::Gate);
        }
    }

    #[test]
    fn map_keeps_a_value_for_each_verdict() {
        let mut map = VerdictMap::<u64>::default();
        map[Verdict::Forged] += 2;
        for (verdict, value) in map.iter_mut() {
            *value += u64::from(verdict == Verdict::Sent);
        }
        let double = map.each_ref(|value| 2 * value);
        assert_eq!(
            (double[Verdict::Sent], double[Verdict::Forged], double[Verdict::Arp]),
            (2, 4, 0)
        );
        assert_eq!(double.iter().map(|(_, value)| value).sum::<u64>(), 6);
    }
}
