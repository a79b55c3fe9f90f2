//! The test packets: built once, and sent in a loop.
//!
//! Addresses are drawn from the table: a random route, then a random address in it, so that prefixes
//! of each length are used as often as they are announced. An [`Oracle`] decides the sink of a packet
//! independently of the table under test: one hash map per prefix length, searched from the longest
//! down. The families have the proportion of their routes. [`super::check`] describes the format of a
//! packet.
//!
//! All packets are in one array of records of 96 bytes, which becomes the BPF array of the generator;
//! an IPv4 packet leaves the last 32 bytes of its record unused. Their number is a power of two, so
//! that the generator wraps with a mask, and large (a million by default), so that neither the
//! router's caches nor its branch predictor learn the sequence.

use std::collections::HashMap;

use anyhow::{Result, bail};
use fib::{Addr, Prefix};
use wire::{checksum, ethernet, ipv4, ipv6, udp};

use super::check::{self, MARK, V4_HASH, V4_LEN, V4_PAYLOAD, V6_HASH, V6_LEN, V6_PAYLOAD};
use super::network;

/// The bytes of one record.
pub(super) const RECORD: usize = V6_LEN;
/// UDP's protocol number.
const UDP: u8 = 17;
/// The discard service, which does not answer (RFC 863).
const PORT: u16 = 9;
const FITS: &str = "a record has room for every header";

/// Routes of one family and the sink of each.
pub(super) type Routes<A> = [(Prefix<A>, u8)];

/// Finds the sink of an address by a simple, slow method.
#[derive(Debug)]
pub(super) struct Oracle<A> {
    /// By prefix length, longest first: the prefixes and their sinks.
    lengths: Vec<(u32, HashMap<A, u8>)>,
}

impl<A: Addr> Oracle<A> {
    /// Returns an oracle of routes; of two with the same prefix, the later wins.
    pub(super) fn new(routes: &Routes<A>) -> Self {
        let mut lengths: Vec<(u32, HashMap<A, u8>)> =
            (0..=A::BITS).rev().map(|len| (len, HashMap::new())).collect();
        for &(prefix, sink) in routes {
            let slot = (A::BITS - prefix.len()) as usize;
            lengths[slot].1.insert(prefix.addr(), sink);
        }
        lengths.retain(|(_, prefixes)| !prefixes.is_empty());
        Self { lengths }
    }

    /// Returns the sink of the longest prefix that holds `addr`.
    pub(super) fn sink(&self, addr: A) -> Option<u8> {
        self.lengths.iter().find_map(|(len, prefixes)| prefixes.get(&addr.first(*len)).copied())
    }
}

/// The packets, in the order they are sent.
#[derive(Debug)]
pub(super) struct Packets {
    records: Vec<u8>,
    /// Number of IPv6 packets.
    pub(super) v6: usize,
}

impl Packets {
    /// Draws `count` packets, rounded up to a power of two.
    ///
    /// # Errors
    ///
    /// Returns an error if the routes contain no address that a router may forward to.
    pub(super) fn draw(
        v4: &Routes<u32>,
        v6: &Routes<u128>,
        count: usize,
        seed: u64,
    ) -> Result<Self> {
        let count = count.next_power_of_two();
        let mut rng = fastrand::Rng::with_seed(seed);
        let (oracle4, oracle6) = (Oracle::new(v4), Oracle::new(v6));
        let mut packets = Self { records: vec![0; count * RECORD], v6: 0 };
        for (sequence, record) in (0u32..).zip(packets.records.chunks_exact_mut(RECORD)) {
            let ttl = rng.u8(2..);
            if rng.usize(..v4.len() + v6.len()) < v4.len() {
                let (dst, sink) = address(v4, &oracle4, &mut rng, may_forward_v4)?;
                write_v4(record, dst, sink, ttl, sequence);
            } else {
                let (dst, sink) = address(v6, &oracle6, &mut rng, may_forward_v6)?;
                write_v6(record, dst, sink, ttl, sequence);
                packets.v6 += 1;
            }
        }
        Ok(packets)
    }

    /// Returns the number of packets, a power of two.
    pub(super) fn len(&self) -> usize {
        self.records.len() / RECORD
    }

    /// Returns the contiguous records.
    pub(super) fn records(&self) -> &[u8] {
        &self.records
    }

    /// Returns the frame of packet `index` modulo their number.
    pub(super) fn frame(&self, index: usize) -> &[u8] {
        let at = (index & (self.len() - 1)) * RECORD;
        let record = &self.records[at..at + RECORD];
        if record[12..14] == [0x08, 0x00] { &record[..V4_LEN] } else { record }
    }
}

fn address<A: Addr>(
    routes: &Routes<A>,
    oracle: &Oracle<A>,
    rng: &mut fastrand::Rng,
    may_forward: fn(A) -> bool,
) -> Result<(A, u8)> {
    // A table may have a few routes that no packet may use; a table of only such routes is an error.
    for _ in 0..10_000 {
        let (prefix, _) = routes[rng.usize(..routes.len())];
        let host = A::from_u128(rng.u128(..));
        let within = host.to_u128() & !A::MAX.first(prefix.len()).to_u128();
        let dst = A::from_u128(prefix.addr().to_u128() | within);
        if may_forward(dst)
            && let Some(sink) = oracle.sink(dst)
        {
            return Ok((dst, sink));
        }
    }
    bail!("the table has hardly any route by which a router may forward (RFC 1812, 5.3.7)")
}

/// Returns whether a router may forward to `dst`, and the demonstration does not use it itself.
fn may_forward_v4(dst: u32) -> bool {
    let ip = std::net::Ipv4Addr::from(dst);
    !(dst >> 24 == 0
        || ip.is_loopback()
        || ip.is_link_local()
        || dst >> 28 >= 0xe
        || network::is_own_ipv4(dst))
}

/// The same for IPv6 (RFC 4291, sections 2.5 and 2.7).
fn may_forward_v6(dst: u128) -> bool {
    let ip = std::net::Ipv6Addr::from(dst);
    // ::/8 contains the unspecified, the loopback and the mapped addresses.
    !(dst >> 120 == 0
        || ip.is_unicast_link_local()
        || ip.is_multicast()
        || network::is_own_ipv6(dst))
}

fn write_v4(frame: &mut [u8], dst: u32, sink: u8, ttl: u8, sequence: u32) {
    let src = network::ipv4(0, 2);
    let payload = &mut frame[V4_PAYLOAD..];
    payload[..2].copy_from_slice(&MARK);
    (payload[2], payload[3]) = (sink, ttl);
    payload[4..8].copy_from_slice(&sequence.to_be_bytes());
    payload[8..12].copy_from_slice(&dst.to_be_bytes());
    ethernet::Header { dst: network::INGRESS_MAC, src: network::SOURCE_MAC, kind: ethernet::IPV4 }
        .emit(frame)
        .expect(FITS);
    let total_len = (V4_LEN - 14) as u16;
    ipv4::Header { total_len, ttl, protocol: UDP, src, dst, ..Default::default() }
        .emit(&mut frame[14..V4_LEN])
        .expect(FITS);
    let length = total_len - 20;
    emit_udp(&mut frame[34..V4_LEN], length, checksum::pseudo_ipv4(src, dst, UDP, length));
    // The hash would cover the UDP checksum, and the checksum the hash, so the packet has no
    // checksum, which IPv4 allows (RFC 768).
    frame[40..42].fill(0);
    let hash = check::hash_v4(frame);
    frame[V4_HASH..V4_LEN].copy_from_slice(&hash.to_ne_bytes());
}

fn write_v6(frame: &mut [u8], dst: u128, sink: u8, hop_limit: u8, sequence: u32) {
    let src = network::ipv6(0, 2);
    let payload = &mut frame[V6_PAYLOAD..];
    payload[..2].copy_from_slice(&MARK);
    (payload[2], payload[3]) = (sink, hop_limit);
    payload[4..8].copy_from_slice(&sequence.to_be_bytes());
    payload[8..24].copy_from_slice(&dst.to_be_bytes());
    ethernet::Header { dst: network::INGRESS_MAC, src: network::SOURCE_MAC, kind: ethernet::IPV6 }
        .emit(frame)
        .expect(FITS);
    let payload_len = (V6_LEN - 54) as u16;
    ipv6::Header { payload_len, next_header: UDP, hop_limit, src, dst, ..Default::default() }
        .emit(&mut frame[14..])
        .expect(FITS);
    let pseudo = checksum::pseudo_ipv6(src, dst, UDP, payload_len.into());
    // Twice: the hash covers the ports, the checksum the hash.
    emit_udp(&mut frame[54..], payload_len, pseudo);
    let hash = check::hash_v6(frame);
    frame[V6_HASH..V6_LEN].copy_from_slice(&hash.to_ne_bytes());
    emit_udp(&mut frame[54..], payload_len, pseudo);
}

fn emit_udp(bytes: &mut [u8], length: u16, pseudo: checksum::Sum) {
    udp::Header { src_port: PORT, dst_port: PORT, length }.emit(bytes, pseudo).expect(FITS);
}

#[cfg(test)]
mod tests {
    use super::super::check::{Checker, Finding};
    use super::*;

    fn routes<A: Addr>(lines: &[(&str, u8)]) -> Vec<(Prefix<A>, u8)> {
        lines.iter().map(|&(text, sink)| (text.parse().expect("a prefix"), sink)).collect()
    }

    #[test]
    fn oracle_prefers_the_longest_prefix() {
        let oracle = Oracle::new(&routes::<u32>(&[
            ("0.0.0.0/0", 0),
            ("10.0.0.0/8", 1),
            ("10.1.0.0/16", 0),
            ("10.1.2.3/32", 1),
        ]));
        let sink = |text: &str| oracle.sink(u32::parse(text).expect("an address"));
        assert_eq!(sink("9.255.255.255"), Some(0));
        assert_eq!(sink("10.0.0.0"), Some(1));
        assert_eq!(sink("10.1.255.255"), Some(0));
        assert_eq!(sink("10.1.2.3"), Some(1));
        assert_eq!(sink("10.1.2.4"), Some(0));
        assert_eq!(Oracle::<u32>::new(&[]).sink(1), None);
    }

    #[test]
    fn routed_packets_pass_the_checker_of_their_sink() {
        let v4 = routes(&[("10.0.0.0/8", 0), ("10.128.0.0/9", 1)]);
        let v6 = routes(&[("2001:db8::/32", 1), ("2001:db8:8000::/33", 0)]);
        let packets = Packets::draw(&v4, &v6, 1000, 7).unwrap();
        assert_eq!(packets.len(), 1024);
        assert!((400..600).contains(&packets.v6), "{} of 1024 are IPv6", packets.v6);
        let mut seen = [0; 2];
        for index in 0..packets.len() {
            let mut frame = packets.frame(index).to_vec();
            let exit = network::EXITS[0];
            let v6 = frame.len() == V6_LEN;
            // The changes of a router.
            frame[..6].copy_from_slice(&exit.dst_mac);
            frame[6..12].copy_from_slice(&exit.src_mac);
            if v6 {
                ipv6::View::parse(&mut frame[14..]).unwrap().decrement_hop_limit();
            } else {
                ipv4::View::parse(&mut frame[14..]).unwrap().decrement_ttl();
            }
            let checker = |sink| Checker { sink, dst_mac: exit.dst_mac, src_mac: exit.src_mac };
            // The upper half of each block is for the other sink.
            let upper = if v6 { frame[42] >= 0x80 } else { frame[31] >= 0x80 };
            let sink = u8::from(upper != v6);
            assert_eq!(checker(sink).check(&frame), Finding::Right, "packet {index}");
            assert_eq!(checker(1 - sink).check(&frame), Finding::Sink);
            seen[usize::from(sink)] += 1;
        }
        assert!(seen.iter().all(|&n| n > 300), "{seen:?}");
    }

    #[test]
    fn draw_refuses_addresses_that_no_router_forwards_to() {
        let bogus = routes(&[("127.0.0.0/8", 0), ("169.254.0.0/16", 0), ("224.0.0.0/3", 1)]);
        assert!(Packets::draw(&bogus, &[], 1, 1).is_err());
        let own = routes(&[("198.18.0.0/15", 0)]);
        assert!(Packets::draw(&own, &[], 1, 1).is_err());
        let bogus = routes(&[("fe80::/10", 0), ("ff00::/8", 0), ("::/8", 0), ("2001:2::/48", 1)]);
        assert!(Packets::draw(&[], &bogus, 1, 1).is_err());
    }
}
