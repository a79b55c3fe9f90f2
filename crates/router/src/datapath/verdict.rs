//! The verdict: how a packet's way through the router ended.
//!
//! Every frame that a worker takes from a port ends in exactly one verdict, every
//! verdict has one counter, and so at any moment between two batches
//!
//! ```text
//!   received = sent + Σ punted by reason + Σ dropped by reason + held
//! ```
//!
//! where `held` are those that wait for a neighbour's MAC and have not ended yet: none
//! when the worker has stopped.
//!
//! There is no "other" and no "error": who adds a way for a packet to end adds a
//! verdict, and the tests then ask for a packet that ends so.
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
    /// Punted: a multicast destination, neighbour discovery among them
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
    /// the neighbour is not known, or the host is to refuse: its stack forwards or
    /// answers (RFC 1812, 5.2.7.1).
    HostRoute,

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
    /// Dropped: no route.
    NoRoute,
    /// Dropped: the route leads nowhere on purpose.
    Blackhole,
    /// Dropped: the next hop's MAC did not become known in time, or too many packets
    /// waited for one (RFC 1122, 2.3.2.2; RFC 4861, 7.2.2).
    Unresolved,
    /// Dropped: longer than the MTU of the next hop's link. The router does not
    /// fragment, whatever the flags allow.
    TooBig,
    /// Dropped: the port to send on had no room, twice.
    TxFull,
    /// Dropped: to be punted, and the port has no host that takes it.
    NoHost,

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
    OverLimitEach,
    /// Dropped by a gate: a SYN, answered by a cookie (RFC 9293, 3.10.7.3).
    SynCookie,
    /// Dropped by a gate: a reset that brought a cookie back, and was meant for the gate.
    Proof,
    /// Dropped by a gate: a request, while others of higher priority took the places.
    LowPriority,
    /// Dropped by a gate: the protected link is full, and its queues were long.
    LinkFull,
    /// Dropped by a gate: the flow is another worker's, who had no room for more.
    HandoverFull,
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
    pub const ALL: [Self; 43] = [
        Self::Sent,
        Self::OwnAddress,
        Self::Arp,
        Self::Multicast,
        Self::Broadcast,
        Self::Tagged,
        Self::EtherType,
        Self::HostRoute,
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
        Self::Blocked,
        Self::Declined,
        Self::OverRate,
        Self::Policy,
        Self::NoGrantor,
        Self::Program,
        Self::ProgramError,
        Self::OverLimit,
        Self::OverLimitEach,
        Self::SynCookie,
        Self::Proof,
        Self::LowPriority,
        Self::LinkFull,
        Self::HandoverFull,
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
            Self::Blocked => "blocked",
            Self::Declined => "declined",
            Self::OverRate => "over_rate",
            Self::Policy => "policy",
            Self::NoGrantor => "no_grantor",
            Self::Program => "program",
            Self::ProgramError => "program_error",
            Self::OverLimit => "over_limit",
            Self::OverLimitEach => "over_limit_each",
            Self::SynCookie => "syn_cookie",
            Self::Proof => "proof",
            Self::LowPriority => "low_priority",
            Self::LinkFull => "link_full",
            Self::HandoverFull => "handover_full",
        }
    }

    /// Says whether only a gate ends packets so (`vantage/`), and no plain router.
    pub const fn is_gates(self) -> bool {
        self as u8 >= Self::Blocked as u8
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
            | Self::HostRoute => Class::Punted,
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
        let guide = include_str!("../../../../docs/guide/forwarding.md");
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
        assert_eq!(Verdict::ALL.iter().filter(|v| v.class() == Class::Punted).count(), 7);
    }
}
