//! Builds a frame from the words of an access list.
//!
//! ```text
//!   from 192.0.2.1 to 198.51.100.7 ipproto tcp dport 22 flags syn
//! ```
//!
//! Its headers have valid checksums. TCP, UDP, ICMP and ICMPv6 have their header; any other protocol
//! has no payload. `length` adds zeros up to the length of the IP packet.

use acl::{DescribedPacket, Field, Fields};
use anyhow::{Context, bail};
use wire::checksum::{Sum, pseudo_ipv4, pseudo_ipv6};
use wire::{BadHeader, ethernet, icmp, ipv4, ipv6, tcp, udp};

/// The number of ICMPv6 among protocols.
const ICMP_V6: u8 = 58;

/// Builds the frame of a described packet with this TTL or hop limit. Its destination MAC is zero.
///
/// # Errors
///
/// The description, or what no header can have.
pub(super) fn build(words: &str, ttl: u8) -> anyhow::Result<Vec<u8>> {
    if words.is_empty() {
        bail!("a packet is missing: from ADDR to ADDR [ipproto PROTO] [sport N] [dport N] …");
    }
    let frame = match DescribedPacket::parse(words)? {
        DescribedPacket::V4(fields) => frame_v4(&fields, ttl),
        DescribedPacket::V6(fields) => frame_v6(&fields, ttl),
    };
    frame.ok().context("the packet cannot be built: its length is too short for its headers")
}

/// Returns the value of a field, or 0 if the packet does not have it.
fn value<A: fib::Family, T: TryFrom<usize> + Default>(fields: &Fields<A>, field: Field) -> T {
    let value = Some(fields.value(field)).filter(|value| *value < field.values());
    value.and_then(|value| value.try_into().ok()).unwrap_or_default()
}

/// Returns the length of the header of a protocol.
fn header_len(protocol: u8) -> usize {
    match protocol {
        tcp::PROTOCOL => tcp::LEN,
        udp::PROTOCOL => udp::LEN,
        icmp::PROTOCOL | ICMP_V6 => icmp::LEN,
        _ => 0,
    }
}

/// Writes the header of the protocol to the front of a payload.
fn emit_payload<A: fib::Family>(
    fields: &Fields<A>,
    protocol: u8,
    payload: &mut [u8],
    pseudo: Sum,
) -> Result<(), BadHeader> {
    let (src_port, dst_port) =
        (value(fields, Field::SourcePort), value(fields, Field::DestinationPort));
    match protocol {
        tcp::PROTOCOL => {
            let flags = value(fields, Field::TcpFlags);
            let header = tcp::Header { src_port, dst_port, flags, ..tcp::Header::default() };
            header.emit(payload, pseudo)?;
        }
        udp::PROTOCOL => {
            let length = payload.len() as u16;
            udp::Header { src_port, dst_port, length }.emit(payload, pseudo)?;
        }
        icmp::PROTOCOL | ICMP_V6 => {
            let (kind, code) = (value(fields, Field::IcmpType), value(fields, Field::IcmpCode));
            let pseudo = if protocol == ICMP_V6 { pseudo } else { Sum::ZERO };
            icmp::Header { kind, code, rest: [0; 4] }.emit(payload, pseudo)?;
        }
        _ => {}
    }
    Ok(())
}

/// Makes a frame with a packet of this length.
fn frame(kind: u16, len: usize) -> Vec<u8> {
    let mut frame = vec![0; ethernet::LEN + len];
    frame[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 1]);
    frame[12..ethernet::LEN].copy_from_slice(&kind.to_be_bytes());
    frame
}

fn frame_v4(fields: &Fields<u32>, ttl: u8) -> Result<Vec<u8>, BadHeader> {
    let protocol: u8 = value(fields, Field::Protocol);
    let len = usize::from(fields.length).max(ipv4::LEN + header_len(protocol));
    let payload_len = (len - ipv4::LEN) as u16;
    let mut frame = frame(ethernet::IPV4, len);
    let (header, payload) = frame[ethernet::LEN..].split_at_mut(ipv4::LEN);
    emit_payload(
        fields,
        protocol,
        payload,
        pseudo_ipv4(fields.src, fields.dst, protocol, payload_len),
    )?;
    let dscp: u8 = value(fields, Field::Dscp);
    let fields = ipv4::Header {
        tos: dscp << 2,
        total_len: len as u16,
        ttl,
        protocol,
        src: fields.src,
        dst: fields.dst,
        ..ipv4::Header::default()
    };
    fields.emit(header)?;
    Ok(frame)
}

fn frame_v6(fields: &Fields<u128>, ttl: u8) -> Result<Vec<u8>, BadHeader> {
    let protocol = Some(value(fields, Field::Protocol)).filter(|protocol| *protocol != 0);
    let protocol: u8 = protocol.unwrap_or(ipv6::NO_NEXT);
    let len = usize::from(fields.length).max(ipv6::LEN + header_len(protocol));
    let payload_len = (len - ipv6::LEN) as u16;
    let mut frame = frame(ethernet::IPV6, len);
    let (header, payload) = frame[ethernet::LEN..].split_at_mut(ipv6::LEN);
    let pseudo = pseudo_ipv6(fields.src, fields.dst, protocol, payload_len.into());
    emit_payload(fields, protocol, payload, pseudo)?;
    let dscp: u8 = value(fields, Field::Dscp);
    let fields = ipv6::Header {
        traffic_class: dscp << 2,
        flow_label: value(fields, Field::FlowLabel),
        payload_len,
        next_header: protocol,
        hop_limit: ttl,
        src: fields.src,
        dst: fields.dst,
    };
    fields.emit(header)?;
    Ok(frame)
}

#[cfg(test)]
mod tests {
    use acl::PacketFamily;

    use super::*;

    #[test]
    fn frame_has_the_described_fields() {
        for words in [
            "from 192.0.2.1 to 198.51.100.7 ipproto tcp sport 9 dport 22 flags syn",
            "from 192.0.2.1 to 198.51.100.7 ipproto udp sport 9 dport 53 length 100 dscp 46",
            "from 192.0.2.1 to 198.51.100.7 ipproto icmp icmptype 8",
            "from 2001:db8::1 to 2001:db8::2 ipproto udp sport 9 dport 53 flowlabel 7",
            "from 2001:db8::1 to 2001:db8::2 ipproto tcp dport 80",
        ] {
            let frame = build(words, 9).unwrap();
            let packet = &frame[ethernet::LEN..];
            match DescribedPacket::parse(words).unwrap() {
                DescribedPacket::V4(described) => {
                    let view = ipv4::View::parse(packet).unwrap();
                    assert!(view.checksum_ok() && view.ttl() == 9);
                    let got = u32::fields(packet).unwrap();
                    for field in [Field::Protocol, Field::SourcePort, Field::IcmpType, Field::Dscp]
                    {
                        let is_described = described.value(field) < field.values();
                        assert!(
                            !is_described || described.value(field) == got.value(field),
                            "{words}"
                        );
                    }
                    assert_eq!((got.src, got.dst), (described.src, described.dst));
                    if view.protocol() == udp::PROTOCOL {
                        assert_eq!(got.length, 100);
                        let pseudo = pseudo_ipv4(view.src(), view.dst(), 17, 80);
                        assert!(udp::View::parse(view.payload()).unwrap().checksum_ok(pseudo));
                    }
                }
                DescribedPacket::V6(described) => {
                    let got = u128::fields(packet).unwrap();
                    for field in [Field::Protocol, Field::DestinationPort, Field::FlowLabel] {
                        let is_described = described.value(field) < field.values();
                        assert!(
                            !is_described || described.value(field) == got.value(field),
                            "{words}"
                        );
                    }
                }
            }
        }
        assert!(build("", 64).unwrap_err().to_string().starts_with("a packet is missing"));
        assert!(build("from 192.0.2.1", 64).is_err());
    }
}
