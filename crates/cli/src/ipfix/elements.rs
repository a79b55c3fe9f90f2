//! The information elements of a record (RFC 7012): each is declared once, with its value.
//!
//! A template and its records are written from the same list, so that they cannot differ.

use std::net::IpAddr;

use super::flows::{Direction, EndReason, Flow};
use super::origins::Origin;

/// The enterprise whose elements are those of the other direction (RFC 5103, 6.1).
const REVERSE: u32 = 29305;

/// The content of a record.
pub(super) struct FlowRecord {
    pub(super) flow: Flow,
    pub(super) reason: EndReason,
    /// The origins of the source and the destination.
    pub(super) origins: [Origin; 2],
}

/// An information element: its number, its length, and its value, of which the lower bytes count.
pub(super) struct Element {
    id: u16,
    octets: u16,
    enterprise: Option<u32>,
    value: fn(&FlowRecord) -> u128,
}

const fn element(id: u16, octets: u16, value: fn(&FlowRecord) -> u128) -> Element {
    Element { id, octets, enterprise: None, value }
}

const fn reverse(id: u16, octets: u16, value: fn(&FlowRecord) -> u128) -> Element {
    Element { id, octets, enterprise: Some(REVERSE), value }
}

fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u32::from(address).into(),
        IpAddr::V6(address) => address.into(),
    }
}

/// Returns a next hop of the record's family; 0 without one.
fn next_hop(record: &FlowRecord) -> u128 {
    let family = record.flow.key.dst.is_ipv4();
    record.origins[1].next_hop.filter(|next_hop| next_hop.is_ipv4() == family).map_or(0, bits)
}

fn milliseconds(nanoseconds: u64) -> u128 {
    (nanoseconds / 1_000_000).into()
}

/// Returns the time of a packet of the flow, so of either direction.
fn time(record: &FlowRecord, of: fn(&Direction) -> u64, of_both: fn(u64, u64) -> u64) -> u128 {
    let times = [&record.flow.forward, &record.flow.reverse].map(of);
    let of_packets = times.into_iter().filter(|time| *time > 0);
    milliseconds(of_packets.reduce(of_both).unwrap_or(0))
}

/// The elements of IPv4: sourceIPv4Address, destinationIPv4Address, bgpNextHopIPv4Address,
/// icmpTypeCodeIPv4.
pub(super) const IPV4: &[Element] = &[
    element(8, 4, |record| bits(record.flow.key.src)),
    element(12, 4, |record| bits(record.flow.key.dst)),
    element(18, 4, next_hop),
    element(32, 2, |record| record.flow.key.icmp.into()),
];

/// The elements of IPv6: sourceIPv6Address, destinationIPv6Address, bgpNextHopIPv6Address,
/// icmpTypeCodeIPv6.
pub(super) const IPV6: &[Element] = &[
    element(27, 16, |record| bits(record.flow.key.src)),
    element(28, 16, |record| bits(record.flow.key.dst)),
    element(63, 16, next_hop),
    element(139, 2, |record| record.flow.key.icmp.into()),
];

/// The elements of both families.
pub(super) const COMMON: &[Element] = &[
    // sourceTransportPort, destinationTransportPort, protocolIdentifier
    element(7, 2, |record| record.flow.key.src_port.into()),
    element(11, 2, |record| record.flow.key.dst_port.into()),
    element(4, 1, |record| record.flow.key.protocol.into()),
    // ipClassOfService, tcpControlBits, vlanId
    element(5, 1, |record| record.flow.tos.into()),
    element(6, 2, |record| record.flow.forward.tcp_flags.into()),
    element(58, 2, |record| record.flow.vlan.into()),
    // ingressInterface, egressInterface
    element(10, 4, |record| record.flow.ingress.into()),
    element(14, 4, |record| record.flow.egress.into()),
    // bgpSourceAsNumber, bgpDestinationAsNumber
    element(16, 4, |record| record.origins[0].asn.into()),
    element(17, 4, |record| record.origins[1].asn.into()),
    // octetDeltaCount, packetDeltaCount
    element(1, 8, |record| record.flow.forward.octets.into()),
    element(2, 8, |record| record.flow.forward.packets.into()),
    // droppedOctetDeltaCount, droppedPacketDeltaCount, forwardingStatus
    element(132, 8, |record| record.flow.forward.dropped_octets.into()),
    element(133, 8, |record| record.flow.forward.dropped_packets.into()),
    element(89, 1, |record| record.flow.status.into()),
    // flowStartMilliseconds, flowEndMilliseconds, flowEndReason
    element(152, 8, |record| time(record, |direction| direction.first, u64::min)),
    element(153, 8, |record| time(record, |direction| direction.last, u64::max)),
    element(136, 1, |record| record.reason as u128),
];

/// The elements of the other direction of a biflow, and biflowDirection: the source is the initiator.
pub(super) const BIFLOW: &[Element] = &[
    reverse(1, 8, |record| record.flow.reverse.octets.into()),
    reverse(2, 8, |record| record.flow.reverse.packets.into()),
    reverse(132, 8, |record| record.flow.reverse.dropped_octets.into()),
    reverse(133, 8, |record| record.flow.reverse.dropped_packets.into()),
    reverse(6, 2, |record| record.flow.reverse.tcp_flags.into()),
    element(239, 1, |_| 1),
];

/// selectorId, of packets that are sampled.
pub(super) const SAMPLED: &[Element] = &[element(302, 8, |_| SELECTOR.into())];

/// The number of the selector that samples.
pub(super) const SELECTOR: u64 = 1;

/// Returns the field specifiers of a template (RFC 7011, 3.2).
pub(super) fn specifiers<'e>(elements: impl Iterator<Item = &'e Element>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for element in elements {
        let is_enterprise = u16::from(element.enterprise.is_some()) << 15;
        bytes.extend((is_enterprise | element.id).to_be_bytes());
        bytes.extend(element.octets.to_be_bytes());
        bytes.extend(element.enterprise.into_iter().flat_map(u32::to_be_bytes));
    }
    bytes
}

/// Returns the values of a record.
pub(super) fn values<'e>(
    elements: impl Iterator<Item = &'e Element>,
    record: &FlowRecord,
) -> Vec<u8> {
    let mut bytes = Vec::new();
    for element in elements {
        let value = (element.value)(record).to_be_bytes();
        bytes.extend(value.get(value.len() - usize::from(element.octets)..).unwrap_or_default());
    }
    bytes
}
