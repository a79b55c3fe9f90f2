//! Every header: emitted bytes parse to the same fields, bytes truncated at any length are an error
//! and never a panic, and bytes from captures and from the documents parse to the right fields.

use fingerpost_wire::checksum::{Sum, pseudo_ipv4, pseudo_ipv6};
use fingerpost_wire::{BadHeader, arp, ethernet, icmp, ipv4, ipv6, tcp, udp, vlan};
use proptest::collection::vec;
use proptest::prelude::*;

/// Truncates `bytes` at every length below `whole` and expects an error each time.
fn cut<E: std::fmt::Debug + PartialEq<BadHeader>>(
    bytes: &[u8],
    whole: usize,
    parse: impl Fn(&[u8]) -> Option<E>,
) {
    for len in 0..whole {
        let error = parse(&bytes[..len]);
        let error = error.unwrap_or_else(|| panic!("{len} of {whole} bytes were accepted"));
        assert_eq!(error, BadHeader::Truncated, "{len} of {whole} bytes");
    }
    assert!(parse(&bytes[..whole]).is_none(), "all {whole} bytes were rejected");
}

/// A multiple of four bytes of options.
fn options() -> impl Strategy<Value = Vec<u8>> {
    (0usize..=10).prop_flat_map(|words| vec(any::<u8>(), words * 4))
}

proptest! {
    #[test]
    fn ethernet_emitted_parses_to_the_same_fields(dst: [u8; 6], src: [u8; 6], kind: u16, extra in 0usize..50) {
        let header = ethernet::Header { dst, src, kind };
        let mut bytes = vec![0xaa; ethernet::LEN + extra];
        prop_assert_eq!(header.emit(&mut bytes), Ok(ethernet::LEN));
        let view = ethernet::View::parse(&bytes[..]).unwrap();
        prop_assert_eq!(view.header(), header);
        prop_assert_eq!(view.payload(), &vec![0xaa; extra][..]);
        cut(&bytes, ethernet::LEN, |b| ethernet::View::parse(b).err());
        cut(&bytes, ethernet::LEN, |b| header.emit(&mut b.to_vec()).err());
    }

    #[test]
    fn vlan_emitted_parses_to_the_same_fields(
        service: bool, priority in 0u8..8, drop_eligible: bool, vid in 0u16..4096,
        inner in proptest::option::of(0u16..4096), kind in 0u16..0x8100,
    ) {
        let outer = vlan::Tag {
            kind: if service { ethernet::SERVICE_VLAN } else { ethernet::VLAN },
            priority, drop_eligible, vid,
        };
        let inner = inner.map(|vid| vlan::Tag { kind: ethernet::VLAN, priority, drop_eligible, vid });
        let header = vlan::Header { outer, inner, kind };
        let len = if inner.is_some() { 10 } else { 6 };
        let mut bytes = [0; 12];
        prop_assert_eq!(header.emit(&mut bytes), Ok(len));
        let mut view = vlan::View::parse(bytes).unwrap();
        prop_assert_eq!(view.header(), header);
        prop_assert_eq!(view.payload().len(), bytes.len() - len);
        view.set_vid(77);
        prop_assert_eq!(view.outer(), vlan::Tag { vid: 77, ..outer });
        cut(&bytes, len, |b| vlan::View::parse(b).err());
        cut(&bytes, len, |b| header.emit(&mut b.to_vec()).err());
    }

    #[test]
    fn arp_emitted_parses_to_the_same_fields(
        operation: u16, sender_mac: [u8; 6], sender: u32, target_mac: [u8; 6], target: u32,
    ) {
        let header = arp::Header { operation, sender_mac, sender, target_mac, target };
        let mut bytes = [0x55; 46];
        prop_assert_eq!(header.emit(&mut bytes), Ok(arp::LEN));
        let view = arp::View::parse(&bytes[..]).unwrap();
        prop_assert_eq!(view.header(), header);
        prop_assert_eq!(view.payload().len(), 18);
        cut(&bytes, arp::LEN, |b| arp::View::parse(b).err());
        cut(&bytes, arp::LEN, |b| header.emit(&mut b.to_vec()).err());
    }

    #[test]
    fn ipv4_emitted_parses_to_the_same_fields(
        tos: u8, payload in 0u16..64, id: u16, flags in 0u8..8, fragment_offset in 0u16..0x2000,
        ttl: u8, protocol: u8, src: u32, dst: u32, options in options(), padding in 0usize..9,
    ) {
        let header_len = ipv4::LEN + options.len();
        let total = header_len + usize::from(payload);
        let header = ipv4::Header {
            tos, total_len: total as u16, id, flags, fragment_offset, ttl, protocol, src, dst,
            options: &options,
        };
        let mut bytes = vec![0; total + padding];
        prop_assert_eq!(header.emit(&mut bytes), Ok(header_len));
        let view = ipv4::View::parse(&bytes[..]).unwrap();
        prop_assert_eq!(view.header(), header);
        prop_assert!(view.checksum_ok());
        prop_assert_eq!(view.header_len(), header_len);
        prop_assert_eq!(view.payload().len(), usize::from(payload));
        cut(&bytes, total, |b| ipv4::View::parse(b).err());
        cut(&bytes, header_len, |b| header.emit(&mut b.to_vec()).err());

        // Incremental changes give the same bytes as a new emission.
        let mut changed = bytes.clone();
        let mut view = ipv4::View::parse(&mut changed[..]).unwrap();
        view.set_src(dst);
        view.set_dst(src);
        if ttl > 0 {
            view.decrement_ttl();
        }
        ipv4::Header { src: dst, dst: src, ttl: ttl.saturating_sub(1), ..header }
            .emit(&mut bytes).unwrap();
        prop_assert_eq!(changed, bytes);
    }

    #[test]
    fn ipv6_emitted_parses_to_the_same_fields(
        traffic_class: u8, flow_label in 0u32..0x10_0000, payload in vec(any::<u8>(), 0..64),
        next_header: u8, hop_limit: u8, src: u128, dst: u128, padding in 0usize..9,
    ) {
        let header = ipv6::Header {
            traffic_class, flow_label, payload_len: payload.len() as u16, next_header, hop_limit,
            src, dst,
        };
        let total = ipv6::LEN + payload.len();
        let mut bytes = vec![0; ipv6::LEN];
        prop_assert_eq!(header.emit(&mut bytes), Ok(ipv6::LEN));
        bytes.extend(&payload);
        bytes.resize(total + padding, 0);
        let view = ipv6::View::parse(&bytes[..]).unwrap();
        prop_assert_eq!(view.header(), header);
        prop_assert_eq!(view.payload(), &payload[..]);
        // For any payload, the walk ends within it or returns an error.
        if let Ok(upper) = view.upper() {
            prop_assert!((ipv6::LEN..=total).contains(&upper.offset));
        }
        cut(&bytes, total, |b| ipv6::View::parse(b).err());
        cut(&bytes, ipv6::LEN, |b| header.emit(&mut b.to_vec()).err());

        let mut view = ipv6::View::parse(&mut bytes[..]).unwrap();
        view.set_src(dst);
        view.set_dst(src);
        if hop_limit > 0 {
            view.decrement_hop_limit();
        }
        let expect = ipv6::Header { src: dst, dst: src, hop_limit: hop_limit.saturating_sub(1), ..header };
        prop_assert_eq!(view.header(), expect);
    }

    #[test]
    fn icmp_emitted_parses_to_the_same_fields(
        kind: u8, code: u8, rest: [u8; 4], payload in vec(any::<u8>(), 0..64), v6: bool, word: u16,
    ) {
        let header = icmp::Header { kind, code, rest };
        let mut bytes = vec![0; icmp::LEN];
        bytes.extend(&payload);
        let pseudo = if v6 { pseudo_ipv6(1, 2, icmp::PROTOCOL_V6, bytes.len() as u32) } else { Sum::ZERO };
        prop_assert_eq!(header.emit(&mut bytes, pseudo), Ok(icmp::LEN));
        let mut view = icmp::View::parse(&mut bytes[..]).unwrap();
        prop_assert_eq!(view.header(), header);
        prop_assert_eq!(view.payload(), &payload[..]);
        prop_assert!(view.checksum_ok(pseudo));
        view.set_word(4, word);
        prop_assert!(view.checksum_ok(pseudo));
        cut(&bytes, icmp::LEN, |b| icmp::View::parse(b).err());
        cut(&bytes, icmp::LEN, |b| header.emit(&mut b.to_vec(), pseudo).err());
    }

    #[test]
    fn tcp_emitted_parses_to_the_same_fields(
        src_port: u16, dst_port: u16, sequence: u32, acknowledgement: u32, flags: u8, window: u16,
        urgent: u16, options in options(), payload in vec(any::<u8>(), 0..64), src: u32, dst: u32,
    ) {
        let header = tcp::Header {
            src_port, dst_port, sequence, acknowledgement, flags, window, urgent, options: &options,
        };
        let header_len = tcp::LEN + options.len();
        let mut bytes = vec![0; header_len];
        bytes.extend(&payload);
        let pseudo = pseudo_ipv4(src, dst, tcp::PROTOCOL, bytes.len() as u16);
        prop_assert_eq!(header.emit(&mut bytes, pseudo), Ok(header_len));
        let view = tcp::View::parse(&bytes[..]).unwrap();
        prop_assert_eq!(view.header(), header);
        prop_assert_eq!(view.payload(), &payload[..]);
        prop_assert!(view.checksum_ok(pseudo));
        prop_assert!(!view.checksum_ok(pseudo.word(1)));
        cut(&bytes, header_len, |b| tcp::View::parse(b).err());
        cut(&bytes, header_len, |b| header.emit(&mut b.to_vec(), pseudo).err());
    }

    #[test]
    fn udp_emitted_parses_to_the_same_fields(
        src_port: u16, dst_port: u16, payload in vec(any::<u8>(), 0..64), src: u128, dst: u128,
    ) {
        let header = udp::Header { src_port, dst_port, length: (udp::LEN + payload.len()) as u16 };
        let mut bytes = vec![0; udp::LEN];
        bytes.extend(&payload);
        let pseudo = pseudo_ipv6(src, dst, udp::PROTOCOL, bytes.len() as u32);
        prop_assert_eq!(header.emit(&mut bytes, pseudo), Ok(udp::LEN));
        let view = udp::View::parse(&bytes[..]).unwrap();
        prop_assert_eq!(view.header(), header);
        prop_assert_eq!(view.payload(), &payload[..]);
        prop_assert!(view.checksum_ok(pseudo));
        prop_assert_ne!(view.checksum(), 0);
        prop_assert!(!view.checksum_ok(pseudo.word(1)));
        let whole = bytes.len();
        cut(&bytes, whole, |b| udp::View::parse(b).err());
        cut(&bytes, whole, |b| header.emit(&mut b.to_vec(), pseudo).err());
    }

    /// No input makes a parser or walk panic.
    #[test]
    fn arbitrary_bytes_do_not_panic(bytes in vec(any::<u8>(), 0..128)) {
        let bytes = &bytes[..];
        if let Ok(view) = ethernet::View::parse(bytes) { let _ = (view.header(), view.payload()); }
        if let Ok(view) = vlan::View::parse(bytes) { let _ = (view.header(), view.payload()); }
        if let Ok(view) = arp::View::parse(bytes) { let _ = (view.header(), view.payload()); }
        if let Ok(view) = ipv4::View::parse(bytes) {
            let _ = (view.header(), view.payload(), view.checksum_ok(), view.is_fragment());
        }
        if let Ok(view) = ipv6::View::parse(bytes) { let _ = (view.header(), view.payload(), view.upper()); }
        if let Ok(view) = icmp::View::parse(bytes) { let _ = (view.header(), view.checksum_ok(Sum::ZERO)); }
        if let Ok(view) = tcp::View::parse(bytes) { let _ = (view.header(), view.checksum_ok(Sum::ZERO)); }
        if let Ok(view) = udp::View::parse(bytes) { let _ = (view.header(), view.checksum_ok(Sum::ZERO)); }
    }
}

#[test]
fn inconsistent_fields_yield_distinct_errors() {
    let mut packet = [0; 28];
    ipv4::Header { total_len: 28, ttl: 1, ..Default::default() }.emit(&mut packet).unwrap();
    let with = |at: usize, value: u8| {
        let mut bytes = packet;
        bytes[at] = value;
        ipv4::View::parse(bytes).err()
    };
    assert_eq!(with(0, 0x65), Some(BadHeader::Version));
    assert_eq!(with(0, 0x44), Some(BadHeader::HeaderLength));
    assert_eq!(with(0, 0x48), Some(BadHeader::Length));
    assert_eq!(with(3, 19), Some(BadHeader::Length));
    assert_eq!(with(3, 29), Some(BadHeader::Truncated));
    assert_eq!(with(3, 28), None);

    let six = ipv6::Header { payload_len: 0, ..Default::default() };
    let mut packet = [0; 40];
    six.emit(&mut packet).unwrap();
    packet[0] = 0x40;
    assert_eq!(ipv6::View::parse(packet).err(), Some(BadHeader::Version));

    assert_eq!(udp::View::parse([0, 1, 0, 2, 0, 7, 0, 0]).err(), Some(BadHeader::Length));
    let mut segment = [0; 20];
    segment[12] = 0x40;
    assert_eq!(tcp::View::parse(segment).err(), Some(BadHeader::HeaderLength));
    assert_eq!(arp::View::parse([0; 28]).err(), Some(BadHeader::Kind));
    assert_eq!(vlan::View::parse([8, 0, 0x45]).err(), Some(BadHeader::Kind));
    let three = [0x88, 0xa8, 0, 1, 0x81, 0, 0, 2, 0x81, 0, 0, 3, 8, 0];
    assert_eq!(vlan::View::parse(three).err(), Some(BadHeader::Chain));
    assert_eq!(vlan::View::parse(&three[4..]).unwrap().count(), 2);
}

#[test]
fn oversized_values_are_not_emitted() {
    let room = &mut [0; 100];
    let four = ipv4::Header { total_len: 20, ..Default::default() };
    assert_eq!(ipv4::Header { options: &[1; 3], ..four }.emit(room), Err(BadHeader::HeaderLength));
    assert_eq!(ipv4::Header { options: &[1; 44], ..four }.emit(room), Err(BadHeader::HeaderLength));
    assert_eq!(ipv4::Header { options: &[1; 4], ..four }.emit(room), Err(BadHeader::Length));
    assert_eq!(ipv4::Header { fragment_offset: 0x2000, ..four }.emit(room), Err(BadHeader::Length));
    let six = ipv6::Header { flow_label: 0x10_0000, ..Default::default() };
    assert_eq!(six.emit(room), Err(BadHeader::Length));
    let long = tcp::Header { options: &[1; 44], ..Default::default() };
    assert_eq!(long.emit(room, Sum::ZERO), Err(BadHeader::HeaderLength));
    assert_eq!(udp::Header::default().emit(room, Sum::ZERO), Err(BadHeader::Length));
    let tag = vlan::Tag { kind: ethernet::VLAN, priority: 0, drop_eligible: false, vid: 4096 };
    let tags = vlan::Header { outer: tag, inner: None, kind: ethernet::IPV4 };
    assert_eq!(tags.emit(room), Err(BadHeader::Length));
    let tag = vlan::Tag { kind: ethernet::IPV4, vid: 1, ..tag };
    assert_eq!(vlan::Header { outer: tag, ..tags }.emit(room), Err(BadHeader::Kind));
}

/// An echo request as `ping` sends it, with an Ethernet header in front.
#[test]
fn captured_ping_parses() {
    let frame = [
        0x00, 0x0c, 0x29, 0x19, 0xf1, 0x14, 0x00, 0x50, 0x56, 0xc0, 0x00, 0x08, 0x08, 0x00, //
        0x45, 0x00, 0x00, 0x3c, 0x1c, 0x46, 0x40, 0x00, 0x40, 0x01, 0xb1, 0xeb, 0xac, 0x10, //
        0x0a, 0x63, 0xac, 0x10, 0x0a, 0x0c, //
        0x08, 0x00, 0x4d, 0x5a, 0x00, 0x01, 0x00, 0x01, //
        0x61, 0x62, 0x63, 0x64, 0x65, 0x66, 0x67, 0x68, 0x69, 0x6a, 0x6b, 0x6c, 0x6d, 0x6e, 0x6f,
        0x70, 0x71, 0x72, 0x73, 0x74, 0x75, 0x76, 0x77, 0x61, 0x62, 0x63, 0x64, 0x65, 0x66, 0x67,
        0x68, 0x69,
    ];
    let ether = ethernet::View::parse(&frame[..]).unwrap();
    assert_eq!(ether.kind(), ethernet::IPV4);
    assert!(!ethernet::is_group(ether.dst()));
    let packet = ipv4::View::parse(ether.payload()).unwrap();
    assert!(packet.checksum_ok());
    assert_eq!((packet.src(), packet.dst()), (0xac10_0a63, 0xac10_0a0c));
    assert_eq!((packet.flags(), packet.is_fragment()), (ipv4::DONT_FRAGMENT, false));
    assert_eq!((packet.id(), packet.ttl(), packet.protocol()), (0x1c46, 64, icmp::PROTOCOL));
    let message = icmp::View::parse(packet.payload()).unwrap();
    assert_eq!((message.kind(), message.code(), message.rest()), (icmp::ECHO, 0, [0, 1, 0, 1]));
    assert!(message.checksum_ok(Sum::ZERO));
    assert_eq!(message.payload(), b"abcdefghijklmnopqrstuvwabcdefghi");
}

/// The walk over hop-by-hop, routing, fragment, authentication and destination
/// options, in the order of RFC 8200, 4.1.
#[test]
fn extension_header_walk_reaches_upper_protocol() {
    let chain: &[u8] = &[
        ipv6::ROUTING,
        0,
        1,
        4,
        0,
        0,
        0,
        0, // hop-by-hop: PadN
        ipv6::FRAGMENT,
        2,
        0,
        0,
        0,
        0,
        0,
        0,
        1,
        1,
        1,
        1,
        1,
        1,
        1,
        1,
        2,
        2,
        2,
        2,
        2,
        2,
        2,
        2, // routing
        ipv6::AUTHENTICATION,
        0,
        0,
        1,
        0xca,
        0xfe,
        0xf0,
        0x0d, // fragment: first, more
        ipv6::DESTINATION,
        4,
        0,
        0,
        0,
        0,
        0,
        1,
        0,
        0,
        0,
        1,
        9,
        9,
        9,
        9,
        9,
        9,
        9,
        9,
        9,
        9,
        9,
        9, // AH
        tcp::PROTOCOL,
        0,
        1,
        4,
        0,
        0,
        0,
        0, // destination options
    ];
    let build = |chain: &[u8], first: u8| {
        let mut bytes = vec![0; ipv6::LEN];
        let header = ipv6::Header {
            payload_len: chain.len() as u16,
            next_header: first,
            ..Default::default()
        };
        header.emit(&mut bytes).unwrap();
        bytes.extend(chain);
        bytes
    };
    let bytes = build(chain, ipv6::HOP_BY_HOP);
    let upper = ipv6::View::parse(&bytes[..]).unwrap().upper().unwrap();
    let fragment = ipv6::Fragment { offset: 0, more: true, id: 0xcafe_f00d };
    let expect =
        ipv6::Upper { protocol: tcp::PROTOCOL, offset: 40 + chain.len(), fragment: Some(fragment) };
    assert_eq!(upper, expect);

    // Truncated anywhere, with a matching payload length, it is an error.
    for len in 0..chain.len() {
        let bytes = build(&chain[..len], ipv6::HOP_BY_HOP);
        let upper = ipv6::View::parse(&bytes[..]).unwrap().upper();
        assert_eq!(upper, Err(BadHeader::Truncated), "cut at {len}");
    }

    // A later fragment: the bytes after it are not a header.
    let mut later = chain.to_vec();
    later[8 + 24 + 3] = 8;
    let bytes = build(&later, ipv6::HOP_BY_HOP);
    let upper = ipv6::View::parse(&bytes[..]).unwrap().upper().unwrap();
    assert_eq!((upper.protocol, upper.offset), (ipv6::AUTHENTICATION, 40 + 40));
    assert_eq!(upper.fragment.unwrap().offset, 1);

    // Hop-by-hop options that are not first, and an endless chain.
    let bytes = build(&[ipv6::HOP_BY_HOP, 0, 1, 4, 0, 0, 0, 0].repeat(2), ipv6::DESTINATION);
    assert_eq!(ipv6::View::parse(&bytes[..]).unwrap().upper(), Err(BadHeader::Kind));
    let bytes = build(&[ipv6::DESTINATION, 0, 1, 4, 0, 0, 0, 0].repeat(20), ipv6::DESTINATION);
    assert_eq!(ipv6::View::parse(&bytes[..]).unwrap().upper(), Err(BadHeader::Chain));
    let mut most = [ipv6::DESTINATION, 0, 1, 4, 0, 0, 0, 0].repeat(8);
    most[56] = udp::PROTOCOL;
    let bytes = build(&most, ipv6::DESTINATION);
    assert_eq!(ipv6::View::parse(&bytes[..]).unwrap().upper().unwrap().protocol, udp::PROTOCOL);
    let bytes = build(&[], ipv6::NO_NEXT);
    assert_eq!(ipv6::View::parse(&bytes[..]).unwrap().upper().unwrap().offset, 40);
}

/// A UDP checksum that computes to zero goes out as 0xffff (RFC 768).
#[test]
fn zero_udp_checksum_is_written_as_ones() {
    for word in 0..=0xffffu16 {
        let mut bytes = [0; 10];
        bytes[8..].copy_from_slice(&word.to_be_bytes());
        let header = udp::Header { src_port: 1, dst_port: 2, length: 10 };
        header.emit(&mut bytes, Sum::ZERO).unwrap();
        let view = udp::View::parse(bytes).unwrap();
        assert_ne!(view.checksum(), 0);
        assert!(view.checksum_ok(Sum::ZERO));
        if view.checksum() == 0xffff {
            return;
        }
    }
    panic!("no payload made the checksum zero");
}

/// A DNS answer over UDP and IPv4, and a TCP SYN over IPv6, as captured on a host
/// under attack (repository StopDDoS/packet-captures, the DNS RRSIG capture; the
/// victim's address was rewritten there, checksums with it).
#[test]
fn captured_packets_of_both_families_parse() {
    let frame = [
        0xa8, 0xa1, 0x59, 0x37, 0xd0, 0x90, 0x2c, 0x21, 0x31, 0x28, 0xa3, 0x71, 0x08, 0x00, 0x45,
        0x00, 0x00, 0x3a, 0x61, 0xef, 0x00, 0x00, 0x35, 0x11, 0xd5, 0xbb, 0x18, 0xc7, 0x21, 0x2e,
        0x0a, 0x0a, 0x0a, 0x0a, 0x00, 0x35, 0x00, 0x16, 0x00, 0x26, 0x20, 0x9e, 0x6f, 0xd9, 0x81,
        0x82, 0x00, 0x01, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x08, 0x70, 0x69, 0x7a, 0x7a, 0x61,
        0x73, 0x65, 0x6f, 0x03, 0x63, 0x6f, 0x6d, 0x00, 0x00, 0x2e, 0x00, 0x01,
    ];
    let ether = ethernet::View::parse(&frame[..]).unwrap();
    let packet = ipv4::View::parse(ether.payload()).unwrap();
    assert!(packet.checksum_ok());
    assert_eq!((packet.src(), packet.dst()), (0x18c7_212e, 0x0a0a_0a0a));
    assert_eq!((packet.ttl(), packet.protocol()), (53, udp::PROTOCOL));
    let pseudo = pseudo_ipv4(packet.src(), packet.dst(), udp::PROTOCOL, 38);
    let datagram = udp::View::parse(packet.payload()).unwrap();
    assert!(datagram.checksum_ok(pseudo));
    assert_eq!(datagram.header(), udp::Header { src_port: 53, dst_port: 22, length: 38 });
    assert_eq!(&datagram.payload()[13..21], b"pizzaseo");
    // Emitted emitted, the bytes are the same.
    let mut emitted = frame;
    emitted[14..42].fill(0);
    packet.header().emit(&mut emitted[14..]).unwrap();
    datagram.header().emit(&mut emitted[34..], pseudo).unwrap();
    assert_eq!(emitted, frame);

    let frame = [
        0x00, 0x24, 0x21, 0xef, 0x2f, 0xd3, 0x2c, 0x21, 0x31, 0x28, 0xa3, 0x71, 0x86, 0xdd, 0x60,
        0x00, 0x00, 0x00, 0x00, 0x18, 0x06, 0xef, 0x24, 0x0e, 0x00, 0xf7, 0x4f, 0x01, 0x00, 0x0c,
        0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x03, 0x2a, 0x01, 0x04, 0xf8, 0x02, 0x21, 0x17,
        0xc1, 0x10, 0x00, 0x00, 0x00, 0x00, 0x00, 0xda, 0x5a, 0xb4, 0xe2, 0x20, 0xfb, 0xd3, 0xe4,
        0xd5, 0xf7, 0x00, 0x00, 0x00, 0x00, 0x60, 0x02, 0x72, 0x10, 0xff, 0x10, 0x00, 0x00, 0x02,
        0x04, 0x05, 0xb4,
    ];
    let ether = ethernet::View::parse(&frame[..]).unwrap();
    assert_eq!(ether.kind(), ethernet::IPV6);
    let packet = ipv6::View::parse(ether.payload()).unwrap();
    assert_eq!((packet.hop_limit(), packet.payload_len()), (239, 24));
    let upper = packet.upper().unwrap();
    assert_eq!((upper.protocol, upper.offset, upper.fragment), (tcp::PROTOCOL, 40, None));
    let pseudo = pseudo_ipv6(packet.src(), packet.dst(), tcp::PROTOCOL, 24);
    let segment = tcp::View::parse(packet.payload()).unwrap();
    assert!(segment.checksum_ok(pseudo));
    assert_eq!((segment.src_port(), segment.dst_port()), (46306, 8443));
    assert_eq!((segment.flags(), segment.window()), (tcp::SYN, 29200));
    assert_eq!(segment.options(), [2, 4, 0x05, 0xb4], "MSS 1460");
    let mut emitted = frame;
    emitted[14..].fill(0);
    packet.header().emit(&mut emitted[14..]).unwrap();
    segment.header().emit(&mut emitted[54..], pseudo).unwrap();
    assert_eq!(emitted, frame);
}
