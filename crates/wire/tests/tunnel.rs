//! Tunnels, ICMP errors and clamped segments against packets made by scapy (`golden/tunnel.py`),
//! byte for byte.

use fingerpost_wire::icmp_error::{self, Reason};
use fingerpost_wire::tunnel::{self, Ends, GUE, Header, Outer, Ports};
use fingerpost_wire::{BadHeader, ipv4, ipv6, mss, tcp};

fn golden(name: &str) -> Vec<u8> {
    let lines = include_str!("golden/tunnel.hex").lines();
    let mut named = lines.filter_map(|line| line.split_once(' '));
    let (_, hex) = named.find(|(have, _)| *have == name).unwrap_or_else(|| panic!("no {name}"));
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

const V4: Ends = Ends::V4 { src: 0xcb00_7101, dst: 0xcb00_7109 };
const V6: Ends = Ends::V6 {
    src: 0x2001_0db8_0001 << 80 | 1,
    dst: 0x2001_0db8_0001 << 80 | 9,
    flow_label: 0xabcde,
};

#[test]
fn tunnel_carries_each_family_in_each() {
    let ways = [
        ("4in4", V4, 41, "inner4"),
        ("6in4", V4, 1, "inner6"),
        ("4in6", V6, 2, "inner4"),
        ("6in6", V6, 63, "inner6"),
    ];
    for (name, ends, dscp, inner) in ways {
        let header = Header { ends, dscp, hop_limit: 64, udp: None };
        let inner = golden(inner);
        let mut packet = vec![0xee; header.len()];
        packet.extend_from_slice(&inner);
        assert_eq!(header.emit(&mut packet), Ok(header.len()), "{name}");
        assert_eq!(packet, golden(name), "{name}");
        // Decapsulated, with a link's padding behind it.
        packet.extend_from_slice(&[0; 9]);
        let outer = Outer::parse(&packet).unwrap();
        assert_eq!(outer.dscp, dscp, "{name}");
        assert_eq!(packet[outer.offset..outer.end], inner, "{name}");
    }
}

#[test]
fn udp_tunnel_carries_each_family_in_each() {
    let ways = [
        ("4u4", V4, 41, "inner4"),
        ("6u4", V4, 1, "inner6"),
        ("4u6", V6, 2, "inner4"),
        ("6u6", V6, 63, "inner6"),
    ];
    for (name, ends, dscp, inner) in ways {
        let udp = Some(Ports { src: 0xc123, dst: GUE });
        let header = Header { ends, dscp, hop_limit: 64, udp };
        let inner = golden(inner);
        let mut packet = vec![0xee; header.len()];
        packet.extend_from_slice(&inner);
        assert_eq!(header.emit(&mut packet), Ok(header.len()), "{name}");
        assert_eq!(packet, golden(name), "{name}");
        packet.extend_from_slice(&[0; 9]);
        let outer = Outer::parse_with(&packet, Some(GUE)).unwrap();
        assert_eq!((outer.dscp, outer.offset), (dscp, header.len()), "{name}");
        assert_eq!(packet[outer.offset..outer.end], inner, "{name}");
        // Without a port of ours, or with another one.
        assert_eq!(Outer::parse(&packet), Err(BadHeader::Kind));
        assert_eq!(Outer::parse_with(&packet, Some(GUE + 1)), Err(BadHeader::Kind));
        for len in 0..packet.len() - 9 {
            let cut = Outer::parse_with(&packet[..len], Some(GUE));
            assert_eq!(cut, Err(BadHeader::Truncated), "{name} {len}");
        }
        let begin = header.len() - 8;
        // A packet without a checksum is accepted, and one with a wrong checksum is rejected.
        let mut none = packet.clone();
        none[begin + 6..begin + 8].fill(0);
        assert_eq!(Outer::parse_with(&none, Some(GUE)), Ok(outer));
        none[begin + 7] = 1;
        assert_eq!(Outer::parse_with(&none, Some(GUE)), Err(BadHeader::Checksum));
        let mut other = packet.clone();
        other[begin + 6..begin + 8].fill(0);
        other[begin + 8] = 0x55;
        assert_eq!(Outer::parse_with(&other, Some(GUE)), Err(BadHeader::Version));
        other[begin + 5] = 7;
        other[begin + 4] = 0;
        assert_eq!(Outer::parse_with(&other, Some(GUE)), Err(BadHeader::Length));
        // A packet directly in IP is accepted as before.
        let direct = golden(&name.replace('u', "in"));
        assert_eq!(Outer::parse_with(&direct, Some(GUE)), Outer::parse(&direct));
    }
    let ports = [0, 1, 0x3fff, 0x4000, u32::MAX].map(|flow| Ports::of(flow, GUE).src);
    assert_eq!(ports, [49152, 49153, 65535, 49152, 65535]);
}

#[test]
fn non_tunnel_packet_is_rejected() {
    let whole = golden("4in4");
    for len in 0..whole.len() {
        assert_eq!(Outer::parse(&whole[..len]), Err(BadHeader::Truncated), "{len}");
    }
    assert_eq!(Outer::parse(&golden("inner4")), Err(BadHeader::Kind));
    assert_eq!(Outer::parse(&golden("inner6")), Err(BadHeader::Kind));
    // Protocol 4 with IPv6 in it, and a fragment.
    let mut packet = golden("6in4");
    packet[9] = 4;
    assert_eq!(Outer::parse(&packet), Err(BadHeader::Version));
    let mut packet = golden("4in4");
    packet[6] = 0x20;
    assert_eq!(Outer::parse(&packet), Err(BadHeader::Kind));
    // No inner packet, other data, and a packet that is too long.
    let header = Header { ends: V4, dscp: 1, hop_limit: 64, udp: None };
    assert_eq!(header.emit(&mut [0; 20]), Err(BadHeader::Truncated));
    assert_eq!(header.emit(&mut [0x50; 60]), Err(BadHeader::Version));
    assert_eq!(header.emit(&mut vec![0x45; 65_536]), Err(BadHeader::Length));
    assert_eq!(Header { dscp: 64, ..header }.emit(&mut [0x45; 60]), Err(BadHeader::Length));
}

/// Figure 4 of RFC 6040, all sixteen places.
#[test]
fn ecn_follows_rfc_6040_on_decapsulation() {
    let figure = [
        [Some(0), Some(0), Some(0), None],
        [Some(1), Some(1), Some(1), Some(3)],
        [Some(2), Some(1), Some(2), Some(3)],
        [Some(3), Some(3), Some(3), Some(3)],
    ];
    for inner in 0..4 {
        for outer in 0..4 {
            let expect = figure[usize::from(inner)][usize::from(outer)];
            assert_eq!(tunnel::ecn_out(inner, outer), expect, "{inner:02b} under {outer:02b}");
        }
    }
}

#[test]
fn congestion_mark_is_copied_to_inner_packet() {
    let packet = golden("4in4ce");
    let outer = Outer::parse(&packet).unwrap();
    let mut inner = packet[outer.offset..outer.end].to_vec();
    assert_eq!(tunnel::decapsulate_ecn(&mut inner, outer.ecn), Ok(true));
    assert_eq!(inner, golden("inner4ce"));
    assert!(ipv4::View::parse(&inner[..]).unwrap().checksum_ok());
    let mut inner = golden("inner6ect1");
    assert_eq!(tunnel::decapsulate_ecn(&mut inner, tunnel::CE), Ok(true));
    assert_eq!(inner, golden("inner6ce"));
    let mut inner = golden("short4");
    assert_eq!(tunnel::decapsulate_ecn(&mut inner, tunnel::CE), Ok(false));
    assert_eq!(inner, golden("short4"));
}

const OWN4: u32 = 0xcb00_7101;
const OWN6: u128 = 0x2001_0db8_0001 << 80 | 1;

fn answer(reason: Reason, packet: &[u8]) -> Option<Vec<u8>> {
    let mut out = [0xee; 1280];
    let len = match packet[0] >> 4 {
        4 => icmp_error::emit_v4(reason, packet, OWN4, 0x1234, &mut out),
        _ => icmp_error::emit_v6(reason, packet, OWN6, &mut out),
    };
    len.unwrap().map(|len| out[..len].to_vec())
}

#[test]
fn icmp_error_quotes_offending_packet() {
    for size in ["short", "long"] {
        for (family, mtu) in [(4, 1400), (6, 1280)] {
            let mut packet = golden(&format!("{size}{family}"));
            packet.extend_from_slice(&[0; 7]);
            let big = answer(Reason::TooBig(mtu), &packet);
            assert_eq!(big, Some(golden(&format!("{size}{family}big"))), "{size}{family}");
            let hops = answer(Reason::TimeExceeded, &packet);
            assert_eq!(hops, Some(golden(&format!("{size}{family}hops"))), "{size}{family}");
            for (name, reason) in [
                ("none", Reason::NoRoute),
                ("host", Reason::HostUnreachable),
                ("route", Reason::UnreachableRoute),
                ("prohibit", Reason::Prohibited),
            ] {
                let unreachable = answer(reason, &packet);
                assert_eq!(unreachable, Some(golden(&format!("{size}{family}{name}"))), "{name}");
            }
        }
    }
    let packet = golden("long4");
    let short = icmp_error::emit_v4(Reason::TimeExceeded, &packet, OWN4, 1, &mut [0; 575]);
    assert_eq!(short, Err(BadHeader::Truncated));
}

#[test]
fn icmp_errors_multicast_and_fragments_get_no_answer() {
    for line in include_str!("golden/tunnel.hex").lines() {
        let name = line.split(' ').next().unwrap();
        if name.starts_with("none") {
            assert_eq!(answer(Reason::TimeExceeded, &golden(name)), None, "{name}");
        } else if name.starts_with("some") {
            assert!(answer(Reason::TimeExceeded, &golden(name)).is_some(), "{name}");
        }
    }
    assert_eq!(answer(Reason::TimeExceeded, &golden("big6multicast")), None);
    assert!(answer(Reason::TooBig(1280), &golden("big6multicast")).is_some());
    // An answer is itself an error.
    for name in ["short4big", "short4hops", "short6big", "short6hops"] {
        assert_eq!(answer(Reason::TimeExceeded, &golden(name)), None, "{name}");
    }
}

#[test]
fn mss_is_clamped_at_any_option_offset() {
    for family in [4, 6] {
        for place in ["plain", "even", "odd"] {
            let before = golden(&format!("syn{family}{place}1460"));
            let after = golden(&format!("syn{family}{place}1360"));
            let mut packet = before.clone();
            assert_eq!(mss::clamp(&mut packet, 1360), Ok(true));
            assert_eq!(packet, after, "{family} {place}");
            assert_eq!(mss::clamp(&mut packet, 1360), Ok(false));
            assert_eq!(packet, after);
            let mut packet = before.clone();
            assert_eq!(mss::clamp(&mut packet, 1460), Ok(false));
            assert_eq!(packet, before);
        }
    }
    for name in ["syn4none", "ack4", "short4", "short6", "none4fragment"] {
        let mut packet = golden(name);
        assert_eq!(mss::clamp(&mut packet, 100), Ok(false), "{name}");
        assert_eq!(packet, golden(name), "{name}");
    }
}

/// Options that end early, or with a wrong length, change nothing.
#[test]
fn damaged_options_are_left_unchanged() {
    let whole = golden("syn4plain1460");
    let options = ipv4::LEN + tcp::LEN;
    for at in options..whole.len() {
        for byte in 0..=255 {
            let mut packet = whole.clone();
            packet[at] = byte;
            let before = packet.clone();
            let changed = mss::clamp(&mut packet, 1360).unwrap();
            let value = u16::from_be_bytes([before[options + 2], before[options + 3]]);
            let intact = before[options..options + 2] == [2, 4] && value > 1360;
            // The damage may make an earlier option skip to another MSS option.
            assert!(!intact || changed, "{at} {byte}");
            if !changed {
                assert_eq!(packet, before);
            }
        }
    }
    assert_eq!(mss::clamp(&mut [], 1), Err(BadHeader::Truncated));
    assert_eq!(mss::clamp(&mut [0x60; 39], 1), Err(BadHeader::Truncated));
    assert_eq!(mss::clamp(&mut [0x10; 39], 1), Err(BadHeader::Version));
}

#[test]
fn set_traffic_class_equals_emit() {
    for tos in 0..=255 {
        let mut packet = golden("short4");
        ipv4::View::parse(&mut packet[..]).unwrap().set_tos(tos);
        let view = ipv4::View::parse(&packet[..]).unwrap();
        assert!(view.tos() == tos && view.checksum_ok());
        let mut packet = golden("inner6");
        ipv6::View::parse(&mut packet[..]).unwrap().set_traffic_class(tos);
        let view = ipv6::View::parse(&packet[..]).unwrap();
        assert_eq!((view.traffic_class(), view.flow_label()), (tos, 0x54321));
    }
}
