//! Field: the parts of a packet, apart from its addresses, that rules have conditions on.

/// Whether a packet is a fragment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum FragmentKind {
    /// It is none.
    #[default]
    Whole,
    /// The first one, or an IPv6 packet with a fragment header that is complete (RFC 6946).
    First,
    /// One after the first.
    Later,
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
    /// The kind of fragment, by [`FragmentKind`].
    Fragment,
    /// The differentiated services code point.
    Dscp,
    /// The length of the IP packet in bytes.
    Length,
}

impl Field {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Protocol,
        Self::SourcePort,
        Self::DestinationPort,
        Self::IcmpType,
        Self::IcmpCode,
        Self::TcpFlags,
        Self::Fragment,
        Self::Dscp,
        Self::Length,
    ];

    /// Returns the number of values; a packet without the field has this one.
    pub fn values(self) -> usize {
        match self {
            Self::Protocol | Self::IcmpType | Self::IcmpCode | Self::TcpFlags => 1 << 8,
            Self::SourcePort | Self::DestinationPort | Self::Length => 1 << 16,
            Self::Fragment => 3,
            Self::Dscp => 1 << 6,
        }
    }
}
