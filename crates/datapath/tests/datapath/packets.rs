//! Test packets: valid ones of both families, and functions that corrupt them.

use fastrand::Rng;
use wire::{ethernet, ipv4, ipv6};

/// The MAC of port 0.
pub(crate) const MAC: [u8; 6] = [2, 0, 0, 0, 1, 0];
/// The router's own addresses.
pub(crate) const OWN4: u32 = 0xc633_6401;
pub(crate) const OWN6: u128 = 0x2001_0db8_ffff << 80 | 1;

/// Returns the MAC address of a port.
pub(crate) fn mac(port: usize) -> [u8; 6] {
    let [a, b, c, d, e, _] = MAC;
    [a, b, c, d, e, port as u8]
}

/// Computes the checksum of an IPv4 header, whatever its checksum field contains.
pub(crate) fn header_checksum(header: &[u8]) -> usize {
    let mut sum = 0;
    for at in (0..header.len()).step_by(2) {
        if at != 10 {
            sum += usize::from(header[at]) << 8 | usize::from(header[at + 1]);
        }
        if sum > 0xffff {
            sum -= 0xffff;
        }
    }
    0xffff - sum
}

/// Makes a valid IPv4 packet in a frame for the router.
pub(crate) fn v4(src: u32, dst: u32) -> Vec<u8> {
    v4_with(ipv4::Header { src, dst, ..sound() }, 6)
}

/// Returns the header of [`v4`], with a TTL of 64.
pub(crate) fn sound() -> ipv4::Header<'static> {
    let (ttl, protocol, src, dst) = (64, 17, 0xc000_0263, 0x0a00_0001);
    ipv4::Header { ttl, protocol, src, dst, total_len: 46, ..Default::default() }
}

/// Makes an IPv4 packet with this header, and `padding` bytes behind it.
pub(crate) fn v4_with(header: ipv4::Header<'_>, padding: usize) -> Vec<u8> {
    let mut frame = vec![0x5a; 14 + usize::from(header.total_len).max(60) + padding];
    ether(&mut frame, ethernet::IPV4);
    header.emit(&mut frame[14..]).expect("the header can be written");
    frame.truncate(14 + usize::from(header.total_len) + padding);
    frame
}

/// Makes a valid IPv6 packet in a frame for the router.
pub(crate) fn v6(src: u128, dst: u128) -> Vec<u8> {
    v6_with(ipv6::Header { src, dst, ..sound6() }, 0)
}

/// Returns the header of [`v6`], with a hop limit of 64.
pub(crate) fn sound6() -> ipv6::Header {
    let (src, dst) = (0x2001_0db8 << 96 | 0x63, 0x2001_0db8 << 96 | 0x64);
    ipv6::Header { payload_len: 8, next_header: 17, hop_limit: 64, src, dst, ..Default::default() }
}

/// Makes an IPv6 packet with this header, and `padding` bytes behind it.
pub(crate) fn v6_with(header: ipv6::Header, padding: usize) -> Vec<u8> {
    let mut frame = vec![0xa5; 14 + 40 + usize::from(header.payload_len) + padding];
    ether(&mut frame, ethernet::IPV6);
    header.emit(&mut frame[14..]).expect("the header can be written");
    frame
}

/// Changes a frame for port 0 into one for `port`.
pub(crate) fn arriving(mut frame: Vec<u8>, port: usize) -> Vec<u8> {
    if frame.starts_with(&MAC) {
        frame[..6].copy_from_slice(&mac(port));
    }
    frame
}

/// Writes the Ethernet header of a frame for the router.
pub(crate) fn ether(frame: &mut [u8], kind: u16) {
    let header = ethernet::Header { dst: MAC, src: [2, 0, 0, 0, 9, 9], kind };
    header.emit(frame).expect("a frame has room for its header");
}

/// Corrects the IPv4 header checksum of a frame, if its bytes allow it.
pub(crate) fn seal(frame: &mut [u8]) {
    let Some(&first) = frame.get(14) else { return };
    let len = usize::from(first & 15) * 4;
    if len >= 20 && frame.len() >= 14 + len {
        let sum = header_checksum(&frame[14..14 + len]) as u16;
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
    }
}

/// Draws an IPv4 address from one of the blocks that a rule or route concerns, or from anywhere.
pub(crate) fn address4(rng: &mut Rng) -> u32 {
    let any = rng.u32(..);
    let blocks = [
        (0x0a00_0000, 8),
        (0x0a01_0000, 16),
        (0x0a01_0200, 24),
        (0x0a01_0280, 25),
        (0x0a01_0300, 24),
        (0xc000_0200, 24),
        (0xc633_6400, 24),
        (0xcb00_7107, 32),
        (0x0000_0000, 8),
        (0x7f00_0000, 8),
        (0xa9fe_0000, 16),
        (0xe000_0000, 4),
        (0xf000_0000, 4),
        (u32::MAX, 32),
        (OWN4, 32),
        (0, 0),
    ];
    let special = [0, 1, 0x8000_0000, u32::MAX];
    let (block, len) = blocks[rng.usize(..blocks.len())];
    let rest = if rng.u8(..) < 32 { special[rng.usize(..4)] } else { any };
    block | rest & u32::MAX.checked_shr(len).unwrap_or(0)
}

/// Draws an IPv6 address in the same way.
pub(crate) fn address6(rng: &mut Rng) -> u128 {
    let any = rng.u128(..);
    let blocks = [
        (0x2001_0db8 << 96, 32),
        (0x2001_0db8_0001 << 80, 48),
        (0x2001_0db8_0001_0002 << 64, 64),
        (0x2001_0db8_0003 << 80 | 3, 128),
        (0, 128),
        (1, 128),
        (0, 96),
        (0xffff << 32, 96),
        (0xfe80 << 112, 10),
        (0xfe80 << 112, 9),
        (0xff00 << 112, 8),
        (OWN6, 128),
        (0, 0),
    ];
    let (block, len) = blocks[rng.usize(..blocks.len())];
    block | any & u128::MAX.checked_shr(len).unwrap_or(0)
}

/// Draws a packet of either family, in most cases a valid one.
pub(crate) fn draw(rng: &mut Rng) -> Vec<u8> {
    let ttl = if rng.u8(..) < 40 { rng.u8(..4) } else { rng.u8(..) };
    let payload = if rng.u8(..) < 16 { rng.u16(1400..1600) } else { rng.u16(..120) };
    let padding = if rng.u8(..) < 64 { rng.usize(..80) } else { 0 };
    // Most sources are ordinary; otherwise few packets would pass the source checks.
    let odd_source = rng.u8(..) < 64;
    if rng.bool() {
        let mut options = [0; 40];
        rng.fill(&mut options);
        if rng.bool() {
            options[..8].copy_from_slice(&[1, 148, 4, 0, 0, 131, 3, 4]);
        }
        let words = if rng.u8(..) < 64 { rng.usize(..=10) } else { 0 };
        let header = ipv4::Header {
            tos: rng.u8(..),
            total_len: 20 + 4 * words as u16 + payload,
            id: rng.u16(..),
            flags: rng.u8(..8),
            fragment_offset: rng.u16(..0x2000),
            ttl,
            protocol: rng.u8(..),
            src: if odd_source { address4(rng) } else { 0xc000_0205 },
            dst: address4(rng),
            options: &options[..4 * words],
        };
        v4_with(header, padding)
    } else {
        let header = ipv6::Header {
            traffic_class: rng.u8(..),
            flow_label: rng.u32(..0x10_0000),
            payload_len: payload,
            next_header: rng.u8(..),
            hop_limit: ttl,
            src: if odd_source { address6(rng) } else { 0x2001_0db8 << 96 | 5 },
            dst: address6(rng),
        };
        v6_with(header, padding)
    }
}

/// Draws a packet, and corrupts `spoilt` of 256 packets.
pub(crate) fn draw_spoilt(rng: &mut Rng, spoilt: u8) -> Vec<u8> {
    let mut frame = draw(rng);
    if rng.u8(..) < spoilt {
        spoil(rng, &mut frame);
    }
    frame
}

/// Corrupts a frame: some bits, some bytes, its end, its EtherType or its destination.
pub(crate) fn spoil(rng: &mut Rng, frame: &mut Vec<u8>) {
    for _ in 0..rng.usize(1..4) {
        if frame.is_empty() {
            return;
        }
        // The rules concern headers, so half of the changes are in the first 54 bytes.
        let near = if rng.bool() { frame.len().min(54) } else { frame.len() };
        match rng.u8(..8) {
            0 | 1 => frame[rng.usize(..near)] ^= 1 << rng.u8(..8),
            2 => frame[rng.usize(..near)] = rng.u8(..),
            3 => frame.truncate(rng.usize(..near)),
            4 if frame.len() >= 14 => {
                let kinds = [0x0800, 0x86dd, 0x0806, 0x8100, 0x88a8, 0x88cc, 0x0026];
                let kind: u16 = kinds[rng.usize(..kinds.len())];
                frame[12..14].copy_from_slice(&kind.to_be_bytes());
            }
            5 if frame.len() >= 6 => {
                let macs = [[0xff; 6], [1, 0, 0x5e, 0, 0, 1], [0x33, 0x33, 0, 0, 0, 1], [2; 6]];
                frame[..6].copy_from_slice(&macs[rng.usize(..macs.len())]);
            }
            6 if frame.len() >= 20 => {
                let length = if rng.bool() { rng.u16(..100) } else { rng.u16(..) };
                let at = if frame[12..14] == [8, 0] { 16 } else { 18 };
                frame[at..at + 2].copy_from_slice(&length.to_be_bytes());
            }
            _ => seal(frame),
        }
    }
    if rng.bool() {
        seal(frame);
    }
}
