//! Completion of partial checksums, which a sender left to a card that does not exist.
//!
//! A veth offers to compute checksums and never does: a packet from the kernel at its other end
//! carries, instead of its TCP or UDP checksum, the sum of the pseudo header that a card would
//! start from (`CHECKSUM_PARTIAL` of linux/skbuff.h). The kernel remembers that beside the packet;
//! an XDP program, and so a socket of ours, gets the bytes alone. Forwarded unchanged, they are
//! wrong everywhere, and TCP hangs without an error.
//!
//! Such a packet is recognized by that number: one in 65,536 packets with a complete checksum has
//! the same number, and is distinguished because its checksum is right. Only packets on ports of a
//! veth, and in generic mode, where the kernel has handled them already, are checked; a card's
//! packets have crossed a wire.
//!
//! Limits: TCP and UDP over IPv4 and IPv6, also one within another (RFC 2003, RFC 2473), with
//! hop-by-hop and destination options. Fragments were completed by the host that fragmented them.
//! SCTP's CRC is not completed. A damaged segment whose number is that of a partial one, one in
//! 65,536, is given a right checksum; of a damaged datagram the UDP length has to fit, too.

/// Protocol numbers (IANA).
const IPV4_IN_IP: u8 = 4;
const TCP: u8 = 6;
const UDP: u8 = 17;
const IPV6_IN_IP: u8 = 41;
const HOP_BY_HOP: u8 = 0;
const DESTINATION_OPTIONS: u8 = 60;

/// The most nested IP headers, and extension headers of one, that are parsed.
const DEPTH: usize = 3;
const EXTENSIONS: usize = 4;

/// Completes the checksum of a frame's TCP segment or UDP datagram, if it is partial.
pub(super) fn complete(frame: &mut [u8]) {
    let Some((kind, packet)) =
        frame.get_mut(12..).and_then(|rest| rest.split_first_chunk_mut::<2>())
    else {
        return;
    };
    match *kind {
        [0x08, 0x00] => ipv4(packet, DEPTH),
        [0x86, 0xdd] => ipv6(packet, DEPTH),
        _ => {}
    }
}

fn ipv4(packet: &mut [u8], depth: usize) {
    let &mut [first, _, l0, l1, _, _, f0, f1, _, protocol, ..] = packet else { return };
    let (header, total) = (usize::from(first & 15) * 4, usize::from(u16::from_be_bytes([l0, l1])));
    // More fragments, or the offset of one.
    let fragment = f0 & 0x3f != 0 || f1 != 0;
    if first >> 4 != 4 || header < 20 || total < header || fragment {
        return;
    }
    let Some((header, data)) =
        packet.get_mut(..total).and_then(|bytes| bytes.split_at_mut_checked(header))
    else {
        return;
    };
    let addresses = header.get(12..20).map_or(0, sum);
    transport(data, protocol, addresses, depth);
}

fn ipv6(packet: &mut [u8], depth: usize) {
    let &mut [first, _, _, _, l0, l1, mut next, ..] = packet else { return };
    let total = 40 + usize::from(u16::from_be_bytes([l0, l1]));
    if first >> 4 != 6 {
        return;
    }
    let Some((header, mut data)) =
        packet.get_mut(..total).and_then(|bytes| bytes.split_at_mut_checked(40))
    else {
        return;
    };
    for _ in 0..EXTENSIONS {
        if !matches!(next, HOP_BY_HOP | DESTINATION_OPTIONS) {
            break;
        }
        let &mut [after, words, ..] = data else { return };
        let Some((_, rest)) = data.split_at_mut_checked((usize::from(words) + 1) * 8) else {
            return;
        };
        (next, data) = (after, rest);
    }
    let addresses = header.get(8..40).map_or(0, sum);
    transport(data, next, addresses, depth);
}

/// Completes the checksum of the payload of an IP header with this sum of addresses.
fn transport(data: &mut [u8], protocol: u8, addresses: u32, depth: usize) {
    let at = match protocol {
        TCP => 16,
        UDP => 6,
        IPV4_IN_IP if depth > 0 => return ipv4(data, depth - 1),
        IPV6_IN_IP if depth > 0 => return ipv6(data, depth - 1),
        _ => return,
    };
    // The kernel sends no datagram that is shorter than its packet.
    let len = u16::try_from(data.len()).unwrap_or(0).to_be_bytes();
    if protocol == UDP && data.get(4..6) != Some(&len) {
        return;
    }
    let pseudo = fold(addresses + u32::from(protocol) + data.len() as u32);
    let Some(field) = data.get(at..).and_then(|rest| rest.first_chunk::<2>()) else { return };
    if u16::from_be_bytes(*field) != pseudo {
        return;
    }
    // The checksum field is part of the sum: it contains the sum of the pseudo header once.
    let whole = fold(sum(data));
    if fold(u32::from(whole) + u32::from(pseudo)) == u16::MAX {
        return;
    }
    // RFC 768: 0 means no checksum.
    let checksum = if protocol == UDP && whole == u16::MAX { u16::MAX } else { !whole };
    if let Some(field) = data.get_mut(at..).and_then(|rest| rest.first_chunk_mut::<2>()) {
        *field = checksum.to_be_bytes();
    }
}

/// Adds up 16-bit words (RFC 1071), an odd byte being the upper half of one: at most 64 KiB.
fn sum(bytes: &[u8]) -> u32 {
    let (words, odd) = bytes.as_chunks::<2>();
    let words: u32 = words.iter().map(|word| u32::from(u16::from_be_bytes(*word))).sum();
    words + odd.first().map_or(0, |byte| u32::from(*byte) << 8)
}

/// Folds a sum to 16 bits.
fn fold(sum: u32) -> u16 {
    let sum = (sum & 0xffff) + (sum >> 16);
    ((sum & 0xffff) + (sum >> 16)) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    const FROM: [u8; 4] = [192, 0, 2, 1];
    const TO: [u8; 4] = [198, 51, 100, 2];

    /// Puts headers before a segment or datagram.
    type Wrap<'a> = &'a dyn Fn(&[u8]) -> Vec<u8>;

    /// A segment or datagram of random bytes, its checksum's place being zero.
    fn data(protocol: u8, len: usize, rng: &mut fastrand::Rng) -> Vec<u8> {
        let mut data: Vec<u8> = (0..len).map(|_| rng.u8(..)).collect();
        let at = if protocol == TCP { 16 } else { 6 };
        data[at..at + 2].fill(0);
        if protocol == UDP {
            data[4..6].copy_from_slice(&(len as u16).to_be_bytes());
        }
        data
    }

    fn pseudo(addresses: &[u8], protocol: u8, len: usize) -> u16 {
        fold(sum(addresses) + u32::from(protocol) + len as u32)
    }

    /// The packet with this number as its checksum.
    fn with(protocol: u8, data: &[u8], checksum: u16) -> Vec<u8> {
        let mut data = data.to_vec();
        let at = if protocol == TCP { 16 } else { 6 };
        data[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
        data
    }

    fn in_v4(protocol: u8, data: &[u8]) -> Vec<u8> {
        let total = (20 + data.len()) as u16;
        let mut packet = vec![0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, protocol, 0, 0];
        packet[2..4].copy_from_slice(&total.to_be_bytes());
        [&packet[..], &FROM, &TO, data].concat()
    }

    fn in_v6(next: u8, data: &[u8]) -> Vec<u8> {
        let len = (data.len() as u16).to_be_bytes();
        [&[0x60, 0, 0, 0, len[0], len[1], next, 64], &[0x20; 32][..], data].concat()
    }

    fn frame(kind: u16, packet: &[u8]) -> Vec<u8> {
        // The bytes behind the packet are the link's padding.
        [&[2; 12][..], &kind.to_be_bytes(), packet, &[7; 5]].concat()
    }

    /// Every kind of packet, with a partial checksum and with the right one.
    fn pairs(rng: &mut fastrand::Rng) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut pairs = Vec::new();
        for protocol in [TCP, UDP] {
            for len in [20, 21, 60, 1300] {
                let bytes = data(protocol, len, rng);
                for six in [false, true] {
                    let addresses = if six { vec![0x20; 32] } else { [FROM, TO].concat() };
                    let partial = pseudo(&addresses, protocol, len);
                    let right = match !fold(sum(&bytes) + u32::from(partial)) {
                        0 if protocol == UDP => u16::MAX,
                        right => right,
                    };
                    let each = [partial, right].map(|number| with(protocol, &bytes, number));
                    let wraps: [Wrap<'_>; 4] = match six {
                        false => [
                            &|data| frame(0x0800, &in_v4(protocol, data)),
                            &|data| frame(0x0800, &in_v4(IPV4_IN_IP, &in_v4(protocol, data))),
                            &|data| frame(0x86dd, &in_v6(IPV4_IN_IP, &in_v4(protocol, data))),
                            &|data| frame(0x0800, &in_v4(protocol, data)),
                        ],
                        true => [
                            &|data| frame(0x86dd, &in_v6(protocol, data)),
                            &|data| frame(0x0800, &in_v4(IPV6_IN_IP, &in_v6(protocol, data))),
                            &|data| {
                                let options = [&[protocol, 0, 1, 4, 0, 0, 0, 0], data].concat();
                                frame(0x86dd, &in_v6(HOP_BY_HOP, &options))
                            },
                            &|data| {
                                let options = [&[protocol, 1][..], &[0; 14], data].concat();
                                frame(0x86dd, &in_v6(DESTINATION_OPTIONS, &options))
                            },
                        ],
                    };
                    pairs.extend(wraps.map(|wrap| (wrap(&each[0]), wrap(&each[1]))));
                }
            }
        }
        pairs
    }

    #[test]
    fn partial_checksum_is_completed() {
        let mut rng = fastrand::Rng::with_seed(1);
        for _ in 0..20 {
            for (partial, right) in pairs(&mut rng) {
                let mut packet = partial.clone();
                complete(&mut packet);
                assert_eq!(packet, right, "{partial:02x?}");
                complete(&mut packet);
                assert_eq!(packet, right, "a packet with a right checksum is unchanged");
            }
        }
    }

    #[test]
    fn complete_checksum_equal_to_partial_one_is_kept() {
        // The last word makes the right checksum what a partial one would be.
        let mut rng = fastrand::Rng::with_seed(2);
        let mut bytes = data(TCP, 40, &mut rng);
        let partial = pseudo(&[FROM, TO].concat(), TCP, 40);
        bytes[38..].fill(0);
        let others = fold(sum(&bytes) + 2 * u32::from(partial));
        bytes[38..].copy_from_slice(&(!others).to_be_bytes());
        let before = frame(0x0800, &in_v4(TCP, &with(TCP, &bytes, partial)));
        let mut packet = before.clone();
        complete(&mut packet);
        assert_eq!(packet, before);
    }

    #[test]
    fn datagram_with_inconsistent_length_is_kept() {
        let mut rng = fastrand::Rng::with_seed(4);
        let mut bytes = data(UDP, 60, &mut rng);
        bytes[5] = 59;
        let partial = pseudo(&[FROM, TO].concat(), UDP, 60);
        let before = frame(0x0800, &in_v4(UDP, &with(UDP, &bytes, partial)));
        let mut packet = before.clone();
        complete(&mut packet);
        assert_eq!(packet, before);
    }

    #[test]
    fn damaged_truncated_or_fragmented_packet_is_kept() {
        let mut rng = fastrand::Rng::with_seed(3);
        for (partial, right) in pairs(&mut rng) {
            for len in 0..partial.len() - 5 {
                let mut packet = partial[..len].to_vec();
                complete(&mut packet);
                assert_eq!(packet, partial[..len], "{len} bytes of it");
            }
            // The receiver rejects a packet that was damaged on the path.
            let mut damaged = right.clone();
            *damaged.iter_mut().rev().nth(6).expect("a byte") ^= 0x10;
            let mut packet = damaged.clone();
            complete(&mut packet);
            assert_eq!(packet, damaged);
            if partial[12..14] == [8, 0] {
                let mut fragment = partial.clone();
                fragment[20] = 0x20;
                let mut packet = fragment.clone();
                complete(&mut packet);
                assert_eq!(packet, fragment);
            }
        }
    }
}
