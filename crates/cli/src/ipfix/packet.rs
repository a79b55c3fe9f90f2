//! The flow that a captured packet belongs to.
//!
//! The packets of a flow share both addresses, the protocol and both ports, or the type and code of
//! ICMP. A fragment but the first has no ports, and so a flow of its own. A capture has only the
//! first bytes of a packet; what lies behind them counts as zeros.

use std::net::IpAddr;

use wire::ports::{WITH_PORTS, ports};
use wire::{ethernet, icmp, ipv4, ipv6, tcp, vlan};

/// The number of ICMPv6 among protocols.
const ICMP_V6: u8 = 58;
/// The byte of a TCP header with its flags.
const TCP_FLAGS: usize = 13;

/// The fields that all packets of a flow share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct FlowKey {
    pub(super) src: IpAddr,
    pub(super) dst: IpAddr,
    pub(super) protocol: u8,
    /// The ports; 0 where there is none.
    pub(super) src_port: u16,
    pub(super) dst_port: u16,
    /// The type of ICMP in the upper byte, its code in the lower one; 0 for other protocols.
    pub(super) icmp: u16,
}

impl FlowKey {
    /// Returns the key of the packets in the other direction: an ICMP reply for a request.
    pub(super) fn reversed(self) -> Self {
        let (kind, code) = (self.icmp >> 8, self.icmp & 0xff);
        // Echo and timestamp of ICMP, echo of ICMPv6 (RFC 792, RFC 4443).
        let kind = match (self.protocol, kind) {
            (icmp::PROTOCOL, 0) => 8,
            (icmp::PROTOCOL, 8) => 0,
            (icmp::PROTOCOL, 13) => 14,
            (icmp::PROTOCOL, 14) => 13,
            (ICMP_V6, 128) => 129,
            (ICMP_V6, 129) => 128,
            _ => kind,
        };
        let (src, dst) = (self.dst, self.src);
        let (src_port, dst_port) = (self.dst_port, self.src_port);
        Self { src, dst, protocol: self.protocol, src_port, dst_port, icmp: kind << 8 | code }
    }
}

/// A packet as a flow counts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Observed {
    pub(super) key: FlowKey,
    /// The bytes of the IP packet.
    pub(super) octets: u64,
    pub(super) tos: u8,
    /// The flags of TCP; 0 for other protocols.
    pub(super) tcp_flags: u8,
    /// The identifier of the outer tag; 0 without one.
    pub(super) vlan: u16,
}

/// Reads the first bytes of a frame of this length; `None` if it is no complete IP packet.
pub(super) fn observe(mut frame: Vec<u8>, length: usize) -> Option<Observed> {
    frame.resize(length.max(frame.len()), 0);
    let outer = ethernet::View::parse(&frame[..]).ok()?;
    if !vlan::is_tag(outer.kind()) {
        return observe_ip(outer.kind(), outer.payload());
    }
    let tags = vlan::View::parse(frame.get(ethernet::LEN - 2..)?).ok()?;
    let observed = observe_ip(tags.kind(), tags.payload())?;
    Some(Observed { vlan: tags.outer().vid, ..observed })
}

fn observe_ip(kind: u16, packet: &[u8]) -> Option<Observed> {
    match kind {
        ethernet::IPV4 => {
            let view = ipv4::View::parse(packet).ok()?;
            let addresses = [view.src(), view.dst()].map(|address| IpAddr::V4(address.into()));
            let payload = if view.fragment_offset() == 0 { view.payload() } else { &[] };
            let octets = view.total_len().into();
            Some(observed(addresses, view.tos(), octets, view.protocol(), payload))
        }
        ethernet::IPV6 => {
            let view = ipv6::View::parse(packet).ok()?;
            let addresses = [view.src(), view.dst()].map(|address| IpAddr::V6(address.into()));
            let octets = ipv6::LEN as u64 + u64::from(view.payload_len());
            let (protocol, payload) = match view.upper() {
                Ok(upper) if upper.fragment.is_none_or(|fragment| fragment.offset == 0) => {
                    (upper.protocol, view.payload().get(upper.offset - ipv6::LEN..))
                }
                Ok(upper) => (upper.protocol, None),
                Err(_) => (view.next_header(), None),
            };
            let payload = payload.unwrap_or_default();
            Some(observed(addresses, view.traffic_class(), octets, protocol, payload))
        }
        _ => None,
    }
}

fn observed(
    [src, dst]: [IpAddr; 2],
    tos: u8,
    octets: u64,
    protocol: u8,
    payload: &[u8],
) -> Observed {
    // The halves of an index of IPsec are no ports.
    let has_ports = WITH_PORTS.contains(&protocol);
    let (src_port, dst_port) = ports(protocol, payload).filter(|_| has_ports).unwrap_or_default();
    let is_icmp =
        matches!((protocol, src), (icmp::PROTOCOL, IpAddr::V4(_)) | (ICMP_V6, IpAddr::V6(_)));
    let icmp =
        payload.first_chunk().filter(|_| is_icmp).map_or(0, |kind| u16::from_be_bytes(*kind));
    let flags = payload.get(TCP_FLAGS).filter(|_| protocol == tcp::PROTOCOL);
    let key = FlowKey { src, dst, protocol, src_port, dst_port, icmp };
    Observed { key, octets, tos, tcp_flags: flags.copied().unwrap_or_default(), vlan: 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a frame with these bytes from its EtherType on.
    fn frame(rest: &[&[u8]]) -> Vec<u8> {
        [&[2; 12][..], &rest.concat()].concat()
    }

    fn ipv4(protocol: u8, flags_and_offset: u16, payload: u16) -> Vec<u8> {
        let mut header = vec![0; ipv4::LEN];
        let total_len = ipv4::LEN as u16 + payload;
        let fields =
            ipv4::Header { total_len, protocol, tos: 0xb8, src: 1, dst: 2, ..Default::default() };
        fields.emit(&mut header).unwrap();
        header[6..8].copy_from_slice(&flags_and_offset.to_be_bytes());
        header
    }

    const TCP: [u8; 14] = [0x1f, 0x90, 0, 80, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, 0x12];

    #[test]
    fn cut_packet_has_the_fields_of_its_headers() {
        let cut = frame(&[&[8, 0], &ipv4(6, 0, 1000), &TCP]);
        let found = observe(cut, ethernet::LEN + 1020).unwrap();
        assert_eq!((found.key.src_port, found.key.dst_port, found.key.icmp), (8080, 80, 0));
        assert_eq!((found.octets, found.tos, found.tcp_flags, found.vlan), (1020, 0xb8, 0x12, 0));
        let reversed = found.key.reversed();
        assert_eq!((reversed.src, reversed.src_port), (found.key.dst, 80));
        assert_eq!(reversed.reversed(), found.key);
    }

    #[test]
    fn tags_are_skipped_and_the_outer_one_is_reported() {
        let tagged = [0x88, 0xa8, 0x20, 7, 0x81, 0, 0, 9, 8, 0];
        let found = observe(frame(&[&tagged, &ipv4(17, 0, 4), &[0, 53, 4, 0]]), 0).unwrap();
        assert_eq!((found.vlan, found.key.src_port, found.key.dst_port), (7, 53, 1024));
    }

    #[test]
    fn later_fragment_and_ipsec_have_no_ports() {
        let later = frame(&[&[8, 0], &ipv4(17, 0x00b9, 8), &[9; 8]]);
        let esp = frame(&[&[8, 0], &ipv4(50, 0, 8), &[9; 8]]);
        for packet in [later, esp] {
            let key = observe(packet, 0).unwrap().key;
            assert_eq!((key.src_port, key.dst_port), (0, 0));
        }
    }

    #[test]
    fn upper_protocol_is_behind_the_extension_headers() {
        let mut header = [0; ipv6::LEN];
        let fields = ipv6::Header {
            payload_len: 12,
            next_header: ipv6::HOP_BY_HOP,
            traffic_class: 3,
            src: 1,
            dst: 2,
            ..Default::default()
        };
        fields.emit(&mut header).unwrap();
        let bytes = frame(&[&[0x86, 0xdd], &header, &[58, 0, 1, 4, 0, 0, 0, 0, 128, 0, 0, 0]]);
        let found = observe(bytes, 0).unwrap();
        assert_eq!((found.key.protocol, found.key.icmp, found.octets), (58, 0x8000, 52));
        assert_eq!(found.key.reversed().icmp, 0x8100);
    }

    #[test]
    fn damaged_packet_and_other_protocol_have_no_flow() {
        assert_eq!(observe(frame(&[&[8, 6], &[0; 28]]), 0), None);
        assert_eq!(observe(frame(&[&[8, 0], &[0; 28]]), 0), None);
        let longer_than_the_frame = frame(&[&[8, 0], &ipv4(17, 0, 100), &[0; 8]]);
        assert_eq!(observe(longer_than_the_frame, 0), None);
        assert_eq!(observe(Vec::new(), 0), None);
    }
}
