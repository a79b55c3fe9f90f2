//! Fields: what rules are about, read from a packet.
//!
//! The protocol of an IPv6 packet is the one behind its extension headers, or that of an authentication
//! header, as in IPv4 and in Linux; a later fragment has one only if the chain has ended before. Ports, ICMP type and TCP
//! flags are those of the packet or of its first fragment: a later fragment has none (RFC 1858), and
//! a packet that ends early has those that it has whole, as in Linux.

use std::fmt::Debug;

use fib::{Family, Prefix};
use wire::ports::WITH_PORTS;
use wire::{icmp, ipv4, ipv6, tcp};

use crate::field::{Field, FragmentKind};
use crate::{AddressBits, Addresses};

/// The value of a field of 8 bits that a packet does not have.
const NO_BYTE: u16 = 1 << 8;
/// The value of a port that a packet does not have.
const NO_PORT: u32 = 1 << 16;
/// The value of the flow label that an IPv4 packet does not have.
const NO_FLOW_LABEL: u32 = 1 << 20;

/// The fields of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fields<A> {
    /// The source.
    pub src: A,
    /// The destination.
    pub dst: A,
    source_port: u32,
    destination_port: u32,
    flow_label: u32,
    protocol: u16,
    icmp_type: u16,
    icmp_code: u16,
    flags: u16,
    /// The length of the IP packet in bytes.
    pub length: u16,
    dscp: u8,
    fragment: FragmentKind,
    /// The bit Don't Fragment, which IPv6 does not have.
    dont_fragment: Option<bool>,
}

impl<A: Family> Fields<A> {
    /// Returns the value of a field; without the field it is [`Field::values`].
    #[inline]
    pub fn value(&self, field: Field) -> usize {
        match field {
            Field::Protocol => self.protocol.into(),
            Field::SourcePort => self.source_port as usize,
            Field::DestinationPort => self.destination_port as usize,
            Field::IcmpType => self.icmp_type.into(),
            Field::IcmpCode => self.icmp_code.into(),
            Field::TcpFlags => self.flags.into(),
            Field::Fragment => {
                let bit = match self.dont_fragment {
                    Some(bit) => bit.into(),
                    None => 2,
                };
                bit * FragmentKind::ALL.len() + self.fragment as usize
            }
            Field::Dscp => self.dscp.into(),
            Field::Length => self.length.into(),
            Field::FlowLabel => self.flow_label as usize,
        }
    }

    pub(crate) fn new(src: A, dst: A, length: u16, dscp: u8) -> Self {
        Self {
            src,
            dst,
            source_port: NO_PORT,
            destination_port: NO_PORT,
            flow_label: if A::BITS == 32 { NO_FLOW_LABEL } else { 0 },
            protocol: NO_BYTE,
            icmp_type: NO_BYTE,
            icmp_code: NO_BYTE,
            flags: NO_BYTE,
            length,
            dscp,
            fragment: FragmentKind::Whole,
            dont_fragment: if A::BITS == 32 { Some(false) } else { None },
        }
    }

    /// Sets the differentiated services code point.
    #[inline]
    pub(crate) fn set_dscp(&mut self, dscp: u8) {
        self.dscp = dscp;
    }

    /// Sets the kind of fragment, and the bit Don't Fragment of an IPv4 packet.
    pub(crate) fn set_fragment(&mut self, fragment: FragmentKind, dont_fragment: bool) {
        self.fragment = fragment;
        self.dont_fragment = self.dont_fragment.map(|_| dont_fragment);
    }

    /// Sets a field whose value is a number of the protocol or its header.
    pub(crate) fn set(&mut self, field: Field, value: u32) {
        match field {
            Field::Protocol => self.protocol = value as u16,
            Field::SourcePort => self.source_port = value,
            Field::DestinationPort => self.destination_port = value,
            Field::IcmpType => self.icmp_type = value as u16,
            Field::IcmpCode => self.icmp_code = value as u16,
            Field::TcpFlags => self.flags = value as u16,
            Field::FlowLabel => self.flow_label = value,
            Field::Fragment | Field::Dscp | Field::Length => {}
        }
    }

    /// Reads the header of a protocol from the payload of a packet or of its first fragment.
    #[inline(always)]
    fn read_upper(&mut self, protocol: u8, payload: &[u8]) {
        let upper = UPPER[usize::from(protocol)];
        let (has_ports, is_tcp, is_icmp) =
            (upper & PORTS != 0, upper & TCP != 0, upper & ICMP != 0);
        // Each value is read and then chosen: protocols vary from packet to packet, and a branch on them
        // would be predicted badly.
        let at = |index: usize| payload.get(index).copied();
        if let Some(&[s1, s0, d1, d0]) = payload.first_chunk() {
            let ports = [u16::from_be_bytes([s1, s0]), u16::from_be_bytes([d1, d0])];
            let [source, destination] =
                ports.map(|port| if has_ports { port.into() } else { NO_PORT });
            (self.source_port, self.destination_port) = (source, destination);
        } else if let (Some(&port), true) = (payload.first_chunk(), has_ports) {
            self.source_port = u16::from_be_bytes(port).into();
        }
        let byte = |is_there: bool, byte: Option<u8>| match byte {
            Some(byte) if is_there => byte.into(),
            _ => NO_BYTE,
        };
        self.flags = byte(is_tcp, at(13));
        self.icmp_type = byte(is_icmp, at(0));
        self.icmp_code = byte(is_icmp, at(1));
    }
}

/// The parts of a protocol's header that rules are about.
const PORTS: u8 = 1;
const TCP: u8 = 2;
const ICMP: u8 = 4;

/// The parts of each protocol.
const UPPER: [u8; 256] = {
    let mut upper = [0; 256];
    let mut at = 0;
    while at < WITH_PORTS.len() {
        upper[WITH_PORTS[at] as usize] = PORTS;
        at += 1;
    }
    upper[tcp::PROTOCOL as usize] |= TCP;
    upper[icmp::PROTOCOL as usize] = ICMP;
    upper[icmp::PROTOCOL_V6 as usize] = ICMP;
    upper
};

/// The extension headers of IPv6 that lead on to the protocol.
const EXTENSIONS: [u8; 5] =
    [ipv6::HOP_BY_HOP, ipv6::ROUTING, ipv6::FRAGMENT, ipv6::AUTHENTICATION, ipv6::DESTINATION];

/// The end of a chain of extension headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Upper {
    /// The first protocol that is no extension header, or that of an authentication header; `None` if the
    /// packet ends before.
    protocol: Option<u8>,
    /// The offset of its header in the payload.
    offset: usize,
    fragment: FragmentKind,
}

/// Walks the extension headers of an IPv6 packet as the filters of Linux do (`ipv6_find_hdr`): in any order
/// and number, and through headers that say to end beyond the packet. Each step goes on by eight bytes at
/// least.
#[inline]
fn walk(next_header: u8, payload: &[u8]) -> Upper {
    let (mut next, mut at) = (next_header, 0);
    let mut upper = Upper { protocol: None, offset: 0, fragment: FragmentKind::Whole };
    loop {
        if !EXTENSIONS.contains(&next) {
            if upper.protocol.is_none() {
                (upper.protocol, upper.offset) = (Some(next), at);
            }
            return upper;
        }
        let rest = payload.get(at..).unwrap_or_default();
        let Some(&[following, units]) = rest.first_chunk() else { return upper };
        let units = usize::from(units);
        at += match next {
            ipv6::FRAGMENT => {
                let Some(&[_, _, high, low]) = rest.first_chunk() else { return upper };
                if u16::from_be_bytes([high, low]) >> 3 > 0 {
                    upper.fragment = FragmentKind::later(low & 1 != 0);
                    // The rest of the chain is in the first fragment.
                    if upper.protocol.is_none() && !EXTENSIONS.contains(&following) {
                        upper.protocol = Some(following);
                    }
                    return upper;
                }
                // One that is complete has a header of a fragment and is none (RFC 6946).
                if low & 1 != 0 {
                    upper.fragment = FragmentKind::First;
                }
                8
            }
            ipv6::AUTHENTICATION => {
                if upper.protocol.is_none() {
                    (upper.protocol, upper.offset) = (Some(next), at);
                }
                4 * (units + 2)
            }
            _ => 8 * (units + 1),
        };
        next = following;
    }
}

/// The operations that differ between the address families.
pub trait PacketFamily: Family + Debug {
    /// Reads the source, the destination and the length in bytes of an IP packet of this family, and does not
    /// check its header; `None` if there is no whole one.
    fn addresses(packet: &[u8]) -> Option<(Self, Self, u16)>;

    /// Reads the fields of an IP packet of this family; `None` if its header is not valid.
    fn fields(packet: &[u8]) -> Option<Fields<Self>>;

    /// Returns whether an address has these bits; none of IPv4 has.
    fn has_bits(self, bits: AddressBits) -> bool;

    /// Returns the prefixes of this family.
    fn prefixes(addresses: &Addresses) -> &[Prefix<Self>];
}

impl PacketFamily for u32 {
    #[inline(always)]
    fn addresses(packet: &[u8]) -> Option<(Self, Self, u16)> {
        ipv4::addresses(packet)
    }

    #[inline(always)]
    fn fields(packet: &[u8]) -> Option<Fields<Self>> {
        let packet = ipv4::View::parse(packet).ok()?;
        let mut fields =
            Fields::new(packet.src(), packet.dst(), packet.total_len(), packet.tos() >> 2);
        let protocol = packet.protocol();
        fields.protocol = protocol.into();
        let has = |flag| packet.flags() & flag != 0;
        fields.dont_fragment = Some(has(ipv4::DONT_FRAGMENT));
        if packet.is_fragment() {
            let (is_first, has_more) = (packet.fragment_offset() == 0, has(ipv4::MORE_FRAGMENTS));
            fields.fragment =
                if is_first { FragmentKind::First } else { FragmentKind::later(has_more) };
        }
        if !fields.fragment.is_later() {
            fields.read_upper(protocol, packet.payload());
        }
        Some(fields)
    }

    fn has_bits(self, _: AddressBits) -> bool {
        false
    }

    fn prefixes(addresses: &Addresses) -> &[Prefix<Self>] {
        &addresses.v4
    }
}

impl PacketFamily for u128 {
    #[inline(always)]
    fn addresses(packet: &[u8]) -> Option<(Self, Self, u16)> {
        let (source, destination, payload) = ipv6::addresses(packet)?;
        Some((source, destination, payload.saturating_add(ipv6::LEN as u16)))
    }

    #[inline(always)]
    fn fields(packet: &[u8]) -> Option<Fields<Self>> {
        let packet = ipv6::View::parse(packet).ok()?;
        let length = packet.payload_len().saturating_add(ipv6::LEN as u16);
        let mut fields =
            Fields::new(packet.src(), packet.dst(), length, packet.traffic_class() >> 2);
        fields.flow_label = packet.flow_label();
        let payload = packet.payload();
        let upper = walk(packet.next_header(), payload);
        fields.fragment = upper.fragment;
        let Some(protocol) = upper.protocol else { return Some(fields) };
        fields.protocol = protocol.into();
        if !fields.fragment.is_later() {
            fields.read_upper(protocol, payload.get(upper.offset..).unwrap_or_default());
        }
        Some(fields)
    }

    fn has_bits(self, bits: AddressBits) -> bool {
        bits.matches(self)
    }

    fn prefixes(addresses: &Addresses) -> &[Prefix<Self>] {
        &addresses.v6
    }
}

#[cfg(test)]
mod tests {
    use super::{Fields, Upper, walk};
    use crate::Field;
    use crate::FragmentKind::{First, Last, Middle, Whole};

    /// The cases of `ipv6_find_hdr`.
    #[test]
    fn walk_ends_where_the_filters_of_linux_end() {
        let none = |fragment| Upper { protocol: None, offset: 0, fragment };
        let at = |protocol, offset, fragment| Upper { protocol: Some(protocol), offset, fragment };
        let later = [17, 0, 0, 8, 0, 0, 0, 7];
        let middle = [17, 0, 0, 9, 0, 0, 0, 7];
        for (next, payload, expected) in [
            (6, &[][..], at(6, 0, Whole)),
            (59, &[1, 2], at(59, 0, Whole)),
            // Destination options, one with a length beyond the packet.
            (60, &[17, 0, 1, 4, 0, 0, 0, 0, 9], at(17, 8, Whole)),
            (60, &[17, 9, 1, 4, 0, 0, 0, 0], at(17, 80, Whole)),
            (60, &[60], none(Whole)),
            // Hop-by-hop options behind another header.
            (60, &[0, 0, 1, 4, 0, 0, 0, 0, 6, 0, 1, 4, 0, 0, 0, 0], at(6, 16, Whole)),
            (51, &[17, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], at(51, 0, Whole)),
            (51, &[17], none(Whole)),
            (44, &[17, 0, 0, 1, 0, 0, 0, 7, 9], at(17, 8, First)),
            (44, &[17, 0, 0, 0, 0, 0, 0, 7, 9], at(17, 8, Whole)),
            (44, &later, at(17, 0, Last)),
            (44, &middle, at(17, 0, Middle)),
            (44, &[60, 0, 0, 8, 0, 0, 0, 7], none(Last)),
            (44, &[17, 0, 0], none(Whole)),
            // A fragment header behind an authentication header.
            (51, &[44, 0, 0, 0, 0, 0, 0, 0, 17, 0, 0, 8], at(51, 0, Last)),
        ] {
            assert_eq!(walk(next, payload), expected, "{next}: {payload:?}");
        }
    }

    #[test]
    fn packet_that_ends_early_has_the_fields_that_it_has_whole() {
        let values = |protocol, payload: &[u8]| {
            let mut fields = Fields::new(0u32, 0, 0, 0);
            fields.read_upper(protocol, payload);
            [Field::SourcePort, Field::DestinationPort, Field::IcmpType, Field::IcmpCode]
                .map(|field| Some(fields.value(field)).filter(|&value| value < field.values()))
        };
        assert_eq!(values(17, &[1, 2, 3, 4]), [Some(0x102), Some(0x304), None, None]);
        assert_eq!(values(17, &[1, 2, 3]), [Some(0x102), None, None, None]);
        assert_eq!(values(17, &[1]), [None; 4]);
        assert_eq!(values(1, &[1, 2, 3, 4]), [None, None, Some(1), Some(2)]);
        assert_eq!(values(1, &[1]), [None, None, Some(1), None]);
        assert_eq!(values(47, &[1, 2, 3, 4]), [None; 4]);
    }
}
