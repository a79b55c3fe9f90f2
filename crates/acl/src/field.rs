//! Field: the parts of a packet, apart from its addresses, that rules have conditions on.

/// Whether a packet is a fragment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum FragmentKind {
    /// It is none, as is an IPv6 packet with a fragment header that is complete (RFC 6946).
    #[default]
    Whole,
    /// The first one.
    First,
    /// One after the first, with more behind it.
    Middle,
    /// The last one.
    Last,
}

impl FragmentKind {
    /// All kinds.
    pub(crate) const ALL: [Self; 4] = [Self::Whole, Self::First, Self::Middle, Self::Last];

    /// Returns the kind of a fragment after the first.
    #[inline]
    pub(crate) fn later(has_more: bool) -> Self {
        if has_more { Self::Middle } else { Self::Last }
    }

    /// Returns whether the packet is a fragment after the first.
    #[inline]
    pub fn is_later(self) -> bool {
        matches!(self, Self::Middle | Self::Last)
    }
}

/// A field whose value is a number, or which a packet does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// The protocol behind all headers of IP; of a chain that cannot be read there is none.
    Protocol,
    /// The source port of TCP, UDP, UDP-Lite, SCTP or DCCP.
    SourcePort,
    /// Their destination port.
    DestinationPort,
    /// The type of ICMP or ICMPv6.
    IcmpType,
    /// Their code.
    IcmpCode,
    /// The flags of TCP.
    TcpFlags,
    /// The kind of fragment, by [`FragmentKind`], and whether an IPv4 packet may be divided.
    Fragment,
    /// The differentiated services code point.
    Dscp,
    /// The length of the IP packet in bytes.
    Length,
    /// The flow label of an IPv6 packet.
    FlowLabel,
}

impl Field {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::Protocol,
        Self::SourcePort,
        Self::DestinationPort,
        Self::IcmpType,
        Self::IcmpCode,
        Self::TcpFlags,
        Self::Fragment,
        Self::Dscp,
        Self::Length,
        Self::FlowLabel,
    ];

    /// Returns the number of values; a packet without the field has this one.
    pub fn values(self) -> usize {
        match self {
            Self::Protocol | Self::IcmpType | Self::IcmpCode | Self::TcpFlags => 1 << 8,
            Self::SourcePort | Self::DestinationPort | Self::Length => 1 << 16,
            Self::Fragment => 3 * FragmentKind::ALL.len(),
            Self::Dscp => 1 << 6,
            Self::FlowLabel => 1 << 20,
        }
    }
}
