//! The verdict: how a packet's way through the router ended.
//!
//! Every frame that a worker takes from a port ends in exactly one verdict, every
//! verdict has one counter, and so at any moment between two batches
//!
//! ```text
//!   received = sent + Σ punted by reason + Σ dropped by reason + held
//! ```
//!
//! where `held` are those that wait for a neighbor's MAC and have not ended yet: none
//! when the worker has stopped.
//!
//! There is no "other" and no "error": who adds a way for a packet to end adds a
//! verdict, and the tests then ask for a packet that ends so.
//!
//! Packets that a port lost before the worker had them are received and dropped in this sense: the
//! worker counts them from time to time by what its ports have counted.
//!
//! A **punt** hands the packet to the host's own stack: it is for the host, or
//! it is of a kind that the router leaves to it. With AF_XDP the steering program
//! leaves to the kernel what the packet alone tells, before the router sees it, so
//! punts count there what only the routes tell and what slipped through; a port that
//! has no host behind it turns a punt into [`Verdict::NoHost`].

/// How a packet ended. The documentation of each names the rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Verdict {
    /// Left on a port, towards its next hop.
    Sent,

    /// Punted: the destination is one of the router's own (RFC 1812, 5.2.3).
    OwnAddress,
    /// Punted: ARP (RFC 826), which the host answers.
    Arp,
    /// Punted: a multicast destination, neighbor discovery among them
    /// (RFC 1812, 5.2.3; RFC 4861); also any IP in a link-layer multicast frame.
    Multicast,
    /// Punted: the limited broadcast, or any IP in a link-layer broadcast frame,
    /// which must not be forwarded (RFC 1812, 5.3.4, 5.3.5.1).
    Broadcast,
    /// Punted: a VLAN tag. Sub-interfaces are the host's.
    Tagged,
    /// Punted: an EtherType that the router does not forward.
    EtherType,
    /// Punted: the route leads to the host or leaves by what is not the router's port,
    /// the neighbor is not known, or the host is to refuse: its stack forwards or
    /// answers (RFC 1812, 5.2.7.1).
    HostRoute,
    /// Punted: no route; the host answers Destination Unreachable (RFC 1812, 5.2.7.1).
    Unreachable,
    /// Punted: longer than the MTU of the next hop's link; the host answers Fragmentation
    /// Needed or Packet Too Big (RFC 1191, RFC 8201), or fragments (RFC 791).
    Oversize,
    /// Punted: it leaves by the interface that it came in on; the host forwards it and
    /// sends a Redirect where one is due (RFC 1812, 5.2.7.2; RFC 4861, 8.2).
    Redirect,

    /// Dropped: shorter than an Ethernet header.
    Runt,
    /// Dropped: a unicast frame for another station.
    NotOurs,
    /// Dropped: fewer bytes than the header, or than its length field says
    /// (RFC 1812, 5.2.2 (1); RFC 8200, 3).
    Truncated,
    /// Dropped: the version is not the EtherType's (RFC 1812, 5.2.2 (3)).
    BadVersion,
    /// Dropped: the IPv4 header is shorter than 20 bytes (RFC 1812, 5.2.2 (4)).
    BadHeaderLength,
    /// Dropped: the total length is less than the header's (RFC 1812, 5.2.2 (5)).
    BadTotalLength,
    /// Dropped: the IPv4 header checksum is wrong (RFC 1812, 5.2.2 (2)).
    BadChecksum,
    /// Dropped: a source route option (RFC 7126, 4.3 and 4.4).
    SourceRoute,
    /// Dropped: a source that cannot be one (RFC 1812, 5.3.7; RFC 4291, 2.5.2).
    MartianSource,
    /// Dropped: a destination that cannot be one.
    MartianDestination,
    /// Dropped: a multicast address as the source (RFC 1812, 4.2.2.11; RFC 4291, 2.7).
    MulticastSource,
    /// Dropped: a loopback address outside the host (RFC 1812, 5.3.7; RFC 4291, 2.5.3).
    Loopback,
    /// Dropped: a link-local address, which must stay on its link (RFC 3927, 2.7;
    /// RFC 4291, 2.5.6).
    LinkLocal,
    /// Dropped: a source that has no route, or none by the port that the packet came in
    /// on, where the port asks for it (RFC 3704, RFC 8704).
    Spoofed,
    /// Dropped: the TTL or hop limit would become zero (RFC 1812, 5.3.1; RFC 8200, 3).
    TtlExpired,
    /// Dropped: no route, and the host was not to answer (`punt.rs`).
    NoRoute,
    /// Dropped: the route leads nowhere on purpose.
    Blackhole,
    /// Dropped: the next hop's MAC did not become known in time, or too many packets
    /// waited for one (RFC 1122, 2.3.2.2; RFC 4861, 7.2.2).
    Unresolved,
    /// Dropped: longer than the MTU of the next hop's link, and the host was not to answer
    /// or to fragment it (`punt.rs`).
    TooBig,
    /// Dropped: the port to send on had no room, twice.
    TxFull,
    /// Dropped: to be punted, and the port has no host that takes it.
    NoHost,
    /// Dropped: to be punted, and its class had used up its rate (`punt.rs`).
    PuntLimit,

    /// Dropped before a worker had it: the port's receive ring was full.
    RxRingFull,
    /// Dropped before a worker had it: no free frame was waiting for it.
    FillEmpty,
    /// Dropped before a worker had it: longer than a frame, or refused by the port.
    RxDropped,
    /// Dropped before a worker had it: the steering program took it, and the kernel did not deliver
    /// it.
    Undelivered,
    /// Dropped after it was handed to the port: refused as malformed.
    TxInvalid,

    /// Dropped by a gate: the packet's source is on the block list.
    Blocked,
    /// Dropped by a gate: the packet's flow is declined.
    Declined,
    /// Dropped by a gate: over the rate that its flow was granted.
    OverRate,
    /// Dropped by a gate: the policy drops what goes there.
    Policy,
    /// Dropped by a gate: no grantor of the set is to be used.
    NoGrantor,
    /// Dropped by a gate: the program of its flow declines it.
    Program,
    /// Dropped by a gate: the program of its flow found something wrong.
    ProgramError,
    /// Dropped by a gate: what goes to its prefix is over the limit of that.
    OverLimit,
    /// Dropped by a gate: what goes to its destination is over the limit of each.
    OverDestinationLimit,
    /// Dropped by a gate: a SYN, answered by a cookie (RFC 9293, 3.10.7.3).
    SynCookie,
    /// Dropped by a gate: a reset that brought a cookie back, and was meant for the gate.
    Proof,
    /// Dropped by a gate: only a forger sends it by the front, because its source is behind the
    /// gate, a grantor or the gate itself, or because it is for a tunnel's end (RFC 2827).
    Forged,
    /// Dropped by a gate: a request, while others of higher priority took the places.
    LowPriority,
    /// Dropped by a gate: the protected link is full, and its queues were long.
    LinkFull,
    /// Dropped by a gate: the flow is another worker's, who had no room for more.
    HandoverFull,
    /// Dropped by a gate: no worker took it from the front interface, and the gate does not fail
    /// open.
    Unserved,

    /// Dropped by a grantor: a packet of a tunnel, on an interface not in `[tunnel] interfaces`.
    TunnelInterface,
    /// Dropped by a grantor: a packet of a tunnel without a tag, where each has to have one.
    TunnelUntagged,
    /// Dropped by a grantor: the tag's key or its gate's session is not known.
    TunnelKey,
    /// Dropped by a grantor: the tag is not that of the packet.
    TunnelForged,
    /// Dropped by a grantor: the packet was taken before, or is too old for that to be known.
    TunnelReplayed,
}

/// The three ways to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// Left on a port.
    Sent,
    /// Handed to the host.
    Punted,
    /// Gone.
    Dropped,
}

impl Verdict {
    /// Every verdict, in the order of their numbers.
    pub const ALL: [Self; 59] = [
        Self::Sent,
        Self::OwnAddress,
        Self::Arp,
        Self::Multicast,
        Self::Broadcast,
        Self::Tagged,
        Self::EtherType,
        Self::HostRoute,
        Self::Unreachable,
        Self::Oversize,
        Self::Redirect,
        Self::Runt,
        Self::NotOurs,
        Self::Truncated,
        Self::BadVersion,
        Self::BadHeaderLength,
        Self::BadTotalLength,
        Self::BadChecksum,
        Self::SourceRoute,
        Self::MartianSource,
        Self::MartianDestination,
        Self::MulticastSource,
        Self::Loopback,
        Self::LinkLocal,
        Self::Spoofed,
        Self::TtlExpired,
        Self::NoRoute,
        Self::Blackhole,
        Self::Unresolved,
        Self::TooBig,
        Self::TxFull,
        Self::NoHost,
        Self::PuntLimit,
        Self::RxRingFull,
        Self::FillEmpty,
        Self::RxDropped,
        Self::Undelivered,
        Self::TxInvalid,
        Self::Blocked,
        Self::Declined,
        Self::OverRate,
        Self::Policy,
        Self::NoGrantor,
        Self::Program,
        Self::ProgramError,
        Self::OverLimit,
        Self::OverDestinationLimit,
        Self::SynCookie,
        Self::Proof,
        Self::Forged,
        Self::LowPriority,
        Self::LinkFull,
        Self::HandoverFull,
        Self::Unserved,
        Self::TunnelInterface,
        Self::TunnelUntagged,
        Self::TunnelKey,
        Self::TunnelForged,
        Self::TunnelReplayed,
    ];
    /// How many verdicts there are.
    pub const COUNT: usize = Self::ALL.len();

    /// Returns the name that counters and reports use.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sent => "sent",
            Self::OwnAddress => "own_address",
            Self::Arp => "arp",
            Self::Multicast => "multicast",
            Self::Broadcast => "broadcast",
            Self::Tagged => "tagged",
            Self::EtherType => "ethertype",
            Self::HostRoute => "host_route",
            Self::Unreachable => "unreachable",
            Self::Oversize => "oversize",
            Self::Redirect => "redirect",
            Self::Runt => "runt",
            Self::NotOurs => "not_ours",
            Self::Truncated => "truncated",
            Self::BadVersion => "bad_version",
            Self::BadHeaderLength => "bad_header_length",
            Self::BadTotalLength => "bad_total_length",
            Self::BadChecksum => "bad_checksum",
            Self::SourceRoute => "source_route",
            Self::MartianSource => "martian_source",
            Self::MartianDestination => "martian_destination",
            Self::MulticastSource => "multicast_source",
            Self::Loopback => "loopback",
            Self::LinkLocal => "link_local",
            Self::Spoofed => "spoofed",
            Self::TtlExpired => "ttl_expired",
            Self::NoRoute => "no_route",
            Self::Blackhole => "blackhole",
            Self::Unresolved => "unresolved",
            Self::TooBig => "too_big",
            Self::TxFull => "tx_full",
            Self::NoHost => "no_host",
            Self::PuntLimit => "punt_limit",
            Self::RxRingFull => "rx_ring_full",
            Self::FillEmpty => "fill_empty",
            Self::RxDropped => "rx_dropped",
            Self::Undelivered => "undelivered",
            Self::TxInvalid => "tx_invalid",
            Self::Blocked => "blocked",
            Self::Declined => "declined",
            Self::OverRate => "over_rate",
            Self::Policy => "policy",
            Self::NoGrantor => "no_grantor",
            Self::Program => "program",
            Self::ProgramError => "program_error",
            Self::OverLimit => "over_limit",
            Self::OverDestinationLimit => "over_destination_limit",
            Self::SynCookie => "syn_cookie",
            Self::Proof => "cookie_reset",
            Self::Forged => "forged",
            Self::LowPriority => "low_priority",
            Self::LinkFull => "link_full",
            Self::HandoverFull => "handover_full",
            Self::Unserved => "unserved",
            Self::TunnelInterface => "tunnel_interface",
            Self::TunnelUntagged => "tunnel_untagged",
            Self::TunnelKey => "tunnel_key",
            Self::TunnelForged => "tunnel_forged",
            Self::TunnelReplayed => "tunnel_replayed",
        }
    }

    /// Returns whether packets end so outside a worker: before it had them, or after it sent them.
    pub const fn is_ports(self) -> bool {
        matches!(
            self,
            Self::RxRingFull
                | Self::FillEmpty
                | Self::RxDropped
                | Self::Undelivered
                | Self::TxInvalid
        )
    }

    /// Says whether only a gate ends packets so (crate `gatekeeper`), and no plain router.
    pub const fn is_gates(self) -> bool {
        self as u8 >= Self::Blocked as u8 && self as u8 <= Self::Unserved as u8
    }

    /// Returns whether only a grantor ends packets so (`grantor/`).
    pub const fn is_grantors(self) -> bool {
        self as u8 >= Self::TunnelInterface as u8
    }

    /// Returns which of the three ways this is.
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
            | Self::Oversize
            | Self::Redirect => Class::Punted,
            _ => Class::Dropped,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Class, Verdict};

    /// The guide lists every reason, under the way in which it ends a packet.
    #[test]
    fn the_guide_knows_every_verdict() {
        let guide = include_str!("../../../docs/guide/forwarding.md");
        let mut listed = Vec::new();
        let mut class = None;
        for line in guide.lines() {
            class = match line.trim_start_matches('|').split_whitespace().next() {
                Some("sent") => Some(Class::Sent),
                Some("punted,") => Some(Class::Punted),
                Some("dropped") => Some(Class::Dropped),
                _ => class,
            };
            let name = line.strip_prefix("| `").and_then(|line| line.split_once('`'));
            listed.extend(name.map(|(name, _)| (name, class)));
        }
        let ours = Verdict::ALL.map(|verdict| (verdict.name(), Some(verdict.class())));
        assert_eq!(listed, ours);
    }

    #[test]
    fn numbers_and_names_are_each_ones_own() {
        for (at, verdict) in Verdict::ALL.into_iter().enumerate() {
            assert_eq!(verdict as usize, at, "{verdict:?} stands in its place");
            let same = Verdict::ALL.iter().filter(|other| other.name() == verdict.name());
            assert_eq!(same.count(), 1, "{verdict:?} has a name of its own");
        }
        assert_eq!(Verdict::ALL.iter().filter(|v| v.class() == Class::Punted).count(), 10);
    }
}
