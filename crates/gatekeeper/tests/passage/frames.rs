//! Random frames of every kind that a host can send to a gate's front interface.
//!
//! There are few addresses, so that frames match decisions and one another: the gate's own on both
//! sides, the grantors', protected ones, unprotected ones, and those to which no router forwards. A
//! packet may carry another one in a tunnel, up to two levels deep.

use fastrand::Rng;
use wire::{ethernet, ipv4, ipv6};

use crate::gate_rig::{BACK4, BACK6, FRONT6, GRANTOR, GRANTOR6, OUTSIDE6, PROTECTED};
use crate::packets::{MAC, OWN4, seal, spoil};

/// IPv4 sources from which packets are requested, granted and declined.
pub(crate) const CLIENTS: u32 = 0xcb00_7100;

const V4: [u32; 13] = [
    OWN4,
    BACK4,
    GRANTOR,
    PROTECTED,
    PROTECTED + 1,
    0x0a01_0201,
    0x0a01_0301,
    0x0a01_0401,
    0x0a01_0501,
    0xc000_0227,
    0xc000_0224,
    0xc633_6405,
    CLIENTS,
];
const V4_SPECIAL: [u32; 8] =
    [0, 0x7f00_0001, 0xa9fe_0101, 0xe000_0001, 0xefff_ffff, 0xf000_0001, u32::MAX, 0xac10_0009];
const V6: [u128; 9] = [
    FRONT6,
    BACK6,
    GRANTOR6,
    PROTECTED6,
    PROTECTED6 | 1,
    PROTECTED6 | 1 << 80,
    OUTSIDE6 | 1,
    OUTSIDE6 | 2 << 16,
    // IPv4 within IPv6 (RFC 4291, 2.5.5.2; RFC 3056).
    0xffff << 32 | PROTECTED as u128,
];
const V6_SPECIAL: [u128; 6] =
    [0, 1, 0xfe80 << 112 | 1, 0xff02 << 112 | 1, 0xff0e << 112 | 1, 0x2002_0a00_0001 << 80];
/// A protected prefix of the second grantor; with one more bit, of the first.
pub(crate) const PROTECTED6: u128 = 0x2001_0db8 << 96;

const ICMP: u8 = 1;
const IPV4_IN_IP: u8 = 4;
const TCP: u8 = 6;
const UDP: u8 = 17;
const IPV6_IN_IP: u8 = 41;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const GRE: u8 = 47;
const EXTENSIONS: [u8; 6] = [0, 60, ROUTING, FRAGMENT, 51, 135];
const PROTOCOLS: [u8; 11] = [ICMP, IPV4_IN_IP, TCP, TCP, UDP, UDP, IPV6_IN_IP, GRE, 50, 58, 132];

/// Draws an address of a client or one of those above.
pub(crate) fn v4(rng: &mut Rng) -> u32 {
    match rng.u8(..16) {
        0 => V4_SPECIAL[rng.usize(..V4_SPECIAL.len())],
        1..8 => V4[rng.usize(..V4.len())],
        _ => CLIENTS | rng.u32(..8),
    }
}

/// Draws an IPv6 address in the same way.
pub(crate) fn v6(rng: &mut Rng) -> u128 {
    match rng.u8(..16) {
        0 => V6_SPECIAL[rng.usize(..V6_SPECIAL.len())],
        1..8 => V6[rng.usize(..V6.len())],
        _ => OUTSIDE6 | rng.u128(..8) << 16,
    }
}

/// Draws a destination, which is protected in half of the cases.
fn to4(rng: &mut Rng) -> u32 {
    if rng.bool() { PROTECTED | rng.u32(..2) } else { v4(rng) }
}

fn to6(rng: &mut Rng) -> u128 {
    if rng.bool() { PROTECTED6 | rng.u128(..2) } else { v6(rng) }
}

/// Draws a frame.
pub(crate) fn draw(rng: &mut Rng) -> Vec<u8> {
    let six = rng.bool();
    let (kind, packet) = match rng.u8(..16) {
        0 => (other_kind(rng), packet(rng, six, 1)),
        1 => (ethernet::IPV4, packet(rng, true, 1)),
        _ if six => (ethernet::IPV6, packet(rng, true, 2)),
        _ => (ethernet::IPV4, packet(rng, false, 2)),
    };
    let to = match rng.u8(..16) {
        0 => [0xff; 6],
        1 => [0x33, 0x33, 0, 0, 0, 1],
        2 => [2, 0, 0, 0, 1, 7],
        _ => MAC,
    };
    let mut frame = [&to[..], &[2, 0, 0, 0, 9, 9]].concat();
    for _ in 0..rng.usize(..12).saturating_sub(6) {
        let kind: u16 = [0x8100, 0x8100, 0x88a8, 0x9100][rng.usize(..4)];
        let vlan = if rng.u8(..4) > 0 { 0 } else { rng.u16(..4096) };
        frame.extend(kind.to_be_bytes());
        frame.extend((rng.u16(..8) << 13 | vlan).to_be_bytes());
    }
    frame.extend(kind.to_be_bytes());
    frame.extend(packet);
    if rng.u8(..8) == 0 {
        spoil(rng, &mut frame);
    }
    frame
}

/// ARP, MPLS, PPPoE, LLDP, TRILL, a length (RFC 894), anything.
fn other_kind(rng: &mut Rng) -> u16 {
    [0x0806, 0x8847, 0x8864, 0x88cc, 0x22f3, 0x0026, rng.u16(..)][rng.usize(..7)]
}

/// Draws a packet with at most `deep` nested packets.
fn packet(rng: &mut Rng, six: bool, deep: u8) -> Vec<u8> {
    let protocol =
        if rng.u8(..8) == 0 { rng.u8(..) } else { PROTOCOLS[rng.usize(..PROTOCOLS.len())] };
    let payload = payload(rng, protocol, deep);
    if six { packet6(rng, protocol, &payload) } else { packet4(rng, protocol, &payload) }
}

fn hops(rng: &mut Rng) -> u8 {
    if rng.u8(..8) == 0 { rng.u8(..3) } else { 64 }
}

fn packet4(rng: &mut Rng, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let fragment = rng.u8(..8) == 0;
    let mut options = [1; 40];
    let words = if rng.u8(..8) == 0 { rng.usize(1..=10) } else { 0 };
    if words >= 3 {
        // A source route, loose or strict, by way of the gate (RFC 791, 3.1).
        let route = if rng.bool() { 131 } else { 137 };
        options[..3].copy_from_slice(&[route, 11, 4]);
        options[3..7].copy_from_slice(&to4(rng).to_be_bytes());
        options[7..11].copy_from_slice(&to4(rng).to_be_bytes());
    }
    let header = ipv4::Header {
        tos: rng.u8(..),
        total_len: (20 + 4 * words + payload.len()) as u16,
        id: rng.u16(..),
        flags: if fragment { rng.u8(..8) } else { 2 },
        fragment_offset: if fragment { rng.u16(..64) } else { 0 },
        ttl: hops(rng),
        protocol,
        src: v4(rng),
        dst: to4(rng),
        options: &options[..4 * words],
    };
    let mut packet = vec![0; 20 + 4 * words];
    header.emit(&mut packet).expect("the header can be written");
    packet.extend_from_slice(payload);
    packet
}

/// Draws an IPv6 packet with up to three extension headers, some of them malformed.
fn packet6(rng: &mut Rng, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let (mut next, mut rest) = (protocol, payload.to_vec());
    for _ in 0..rng.usize(..9).saturating_sub(5) {
        let mut extension = vec![0; 8 * rng.usize(1..4)];
        rng.fill(&mut extension);
        extension[0] = next;
        extension[1] = if rng.u8(..8) == 0 { rng.u8(..) } else { (extension.len() / 8 - 1) as u8 };
        next = EXTENSIONS[rng.usize(..EXTENSIONS.len())];
        rest.splice(0..0, extension);
    }
    let header = ipv6::Header {
        traffic_class: rng.u8(..),
        flow_label: rng.u32(..0x10_0000),
        payload_len: rest.len() as u16,
        next_header: next,
        hop_limit: hops(rng),
        src: v6(rng),
        dst: to6(rng),
    };
    let mut packet = vec![0; 40];
    header.emit(&mut packet).expect("the header can be written");
    packet.extend(rest);
    packet
}

/// Draws the payload for a protocol: another packet for a tunnel.
fn payload(rng: &mut Rng, protocol: u8, deep: u8) -> Vec<u8> {
    let tail = rng.usize(..120);
    let mut bytes = vec![0x5a; tail];
    let six = rng.bool();
    match protocol {
        IPV4_IN_IP | IPV6_IN_IP if deep > 0 => packet(rng, protocol == IPV6_IN_IP, deep - 1),
        GRE if deep > 0 => {
            let kind: u16 = if six { ethernet::IPV6 } else { ethernet::IPV4 };
            [&[0, 0][..], &kind.to_be_bytes(), &packet(rng, six, deep - 1)].concat()
        }
        UDP => {
            // GUE's variants (draft-ietf-intarea-gue-09, 3), VXLAN, or nothing.
            let port: u16 = [6080, 4789, 53][rng.usize(..3)];
            let inner = match (port, deep) {
                (6080, 1..) if rng.bool() => packet(rng, six, deep - 1),
                (6080, 1..) => {
                    let protocol = if six { IPV6_IN_IP } else { IPV4_IN_IP };
                    [&[0, protocol, 0, 0][..], &packet(rng, six, deep - 1)].concat()
                }
                (4789, 1..) => [&[8, 0, 0, 0, 0, 0, 1, 0][..], &MAC, &[0; 8]].concat(),
                _ => bytes,
            };
            let len = (8 + inner.len()) as u16;
            [
                &rng.u16(..).to_be_bytes()[..],
                &port.to_be_bytes(),
                &len.to_be_bytes(),
                &[0; 2],
                &inner,
            ]
            .concat()
        }
        TCP => {
            bytes.resize(20 + tail, 0);
            bytes[12] = 5 << 4;
            bytes[13] = [2, 16, 18, 4, 24][rng.usize(..5)];
            bytes
        }
        _ => bytes,
    }
}

/// Returns the frame with a correct header checksum, without which no rule would see it.
pub(crate) fn with_checksum(mut frame: Vec<u8>) -> Vec<u8> {
    seal(&mut frame);
    frame
}
