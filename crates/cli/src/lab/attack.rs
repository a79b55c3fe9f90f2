//! The packets of an attack: real captures, and floods from a million forged sources.
//!
//! ```text
//!   capture ─► packets to its victim ─► MACs and address of our server ─► list ┐
//!   sources ─► a packet for each, in turn, then from the first again ──────────┴► write
//! ```
//!
//! A capture keeps its sources, ports, TTLs and payloads. The victim, the destination of most
//! packets, is replaced by the server, and the checksums are updated. Packets of IPv6, packets to
//! other hosts and packets with a source that no router forwards (RFC 1812, 5.3.7) are left out.
//!
//! A generated flood uses its million sources in turn: each source appears again only after a
//! million packets of others, as in an attack that draws sources from all addresses.

use std::collections::HashMap;
use std::path::Path;

use anyhow::{Context, Result, bail};
use port::memory::Pool;
use wire::checksum::{pseudo_ipv4, update32};
use wire::{ethernet, ipv4, tcp, udp};

use super::topology::{SERVER, is_own, mac};

/// Sources of a generated flood.
pub(super) const SOURCES: usize = 1_000_000;
/// The port of the service, which generated floods attack.
pub(super) const SERVICE: u16 = 80;
/// The longest frame.
pub(super) const MAX_FRAME: usize = 1514;
/// Bytes behind the Ethernet header of each kind of flood.
const SYN: usize = ipv4::LEN + tcp::LEN + OPTIONS.len();
const DATAGRAM: usize = 512;
/// The options of the SYN of a usual client: MSS, SACK permitted, timestamps, window scale.
const OPTIONS: [u8; 20] = [2, 4, 5, 0xb4, 4, 2, 8, 10, 0, 0, 0, 1, 0, 0, 0, 0, 1, 3, 3, 7];

/// An attack.
#[derive(Debug)]
pub(super) struct Attack {
    /// Its name.
    pub(super) name: String,
    /// Its description for the report.
    pub(super) description: String,
    /// The port that clients use meanwhile: the port under attack if it is a flood of SYNs.
    pub(super) port: u16,
    packets: Packets,
}

#[derive(Debug)]
enum Packets {
    Captured(Vec<Box<[u8]>>),
    Flood(Flood, Vec<u32>),
}

/// The packets of a flood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flood {
    /// SYNs to the service.
    Syn,
    /// Datagrams of 512 bytes.
    Udp,
}

impl Attack {
    /// Makes a flood from a million sources.
    pub(super) fn flood(kind: Flood, seed: u64) -> Self {
        let (name, what) = match kind {
            Flood::Syn => ("flood-syn", "SYNs of 74 bytes"),
            Flood::Udp => ("flood-udp", "UDP datagrams of 526 bytes"),
        };
        let description = format!("{what} from a million forged sources");
        let packets = Packets::Flood(kind, sources(SOURCES, seed));
        Self { name: name.to_owned(), description, port: SERVICE, packets }
    }

    /// Reads a capture.
    pub(super) fn capture(path: &Path) -> Result<Self> {
        let pool = port::pcap::read(path)?;
        let victim = victim(&pool)
            .with_context(|| format!("{}: contains no IPv4 packet", path.display()))?;
        let packets: Vec<Box<[u8]>> =
            pool.iter().filter_map(|frame| redirect(frame, victim)).collect();
        if packets.is_empty() {
            bail!("{}: contains no packet that can be replayed", path.display());
        }
        let hit: Vec<u16> = packets.iter().filter_map(|packet| syn_port(packet)).collect();
        let floods = hit.len() * 2 > packets.len();
        let mut sources: Vec<u32> = packets.iter().filter_map(|packet| source(packet)).collect();
        sources.sort_unstable();
        sources.dedup();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let name = name.trim_end_matches(".gz").trim_end_matches(".pcapng");
        let name = name.trim_end_matches(".pcap").trim_start_matches("ddos-");
        let description = format!("{} packets from {} sources", packets.len(), sources.len());
        let port = most_frequent(hit.into_iter()).filter(|_| floods).unwrap_or(SERVICE);
        let packets = Packets::Captured(packets);
        Ok(Self { name: name.to_owned(), description, port, packets })
    }

    /// Writes packet `number` into a frame of [`MAX_FRAME`] bytes and returns its length.
    pub(super) fn write(&self, number: u64, frame: &mut [u8]) -> Result<usize> {
        let place = |count: usize| (number % count as u64) as usize;
        match &self.packets {
            Packets::Captured(packets) => {
                let packet = &packets[place(packets.len())];
                frame[..packet.len()].copy_from_slice(packet);
                Ok(packet.len())
            }
            Packets::Flood(kind, sources) => {
                forge(*kind, sources[place(sources.len())], number, frame)
            }
        }
    }
}

/// Returns the most frequent value.
fn most_frequent<T: std::hash::Hash + Eq + Ord>(values: impl Iterator<Item = T>) -> Option<T> {
    let mut counts: HashMap<T, usize> = HashMap::new();
    values.for_each(|value| *counts.entry(value).or_default() += 1);
    counts
        .into_iter()
        .max_by(|one, two| (one.1, &two.0).cmp(&(two.1, &one.0)))
        .map(|(value, _)| value)
}

fn packet(frame: &[u8]) -> Option<ipv4::View<&[u8]>> {
    let ether = ethernet::View::parse(frame).ok()?;
    let ours = ether.kind() == ethernet::IPV4;
    ours.then(|| ipv4::View::parse(frame.get(ethernet::LEN..)?).ok())?
}

fn victim(pool: &Pool) -> Option<u32> {
    most_frequent(pool.iter().filter_map(|frame| Some(packet(frame)?.dst())))
}

fn source(frame: &[u8]) -> Option<u32> {
    packet(frame).map(|packet| packet.src())
}

/// Returns the destination port of a SYN.
fn syn_port(frame: &[u8]) -> Option<u16> {
    let packet = packet(frame)?;
    let first = packet.protocol() == tcp::PROTOCOL && packet.fragment_offset() == 0;
    let segment = first.then(|| tcp::View::parse(packet.payload()).ok())??;
    (segment.flags() & (tcp::SYN | tcp::ACK) == tcp::SYN).then(|| segment.dst_port())
}

/// Returns whether a router forwards a packet with this source (RFC 1812, 5.3.7).
fn is_forwarded(source: u32) -> bool {
    let first = source >> 24;
    first != 0 && first != 127 && first < 224 && !is_own(source)
}

/// Redirects a frame for the victim to the server.
fn redirect(frame: &[u8], victim: u32) -> Option<Box<[u8]>> {
    let (src, dst, len, protocol, first) = {
        let packet = packet(frame)?;
        let len = ethernet::LEN + usize::from(packet.total_len());
        (packet.src(), packet.dst(), len, packet.protocol(), packet.fragment_offset() == 0)
    };
    if dst != victim || !is_forwarded(src) || len > MAX_FRAME || len > frame.len() {
        return None;
    }
    let mut frame = frame.get(..frame.len().min(MAX_FRAME))?.to_vec();
    head().emit(&mut frame).ok()?;
    let server = u32::from(SERVER);
    let mut packet = ipv4::View::parse(&mut frame[ethernet::LEN..]).ok()?;
    packet.set_dst(server);
    let begin = ethernet::LEN + packet.header_len();
    // The checksum of TCP and UDP, which covers the address, is in the first fragment.
    let sum = match protocol {
        tcp::PROTOCOL if first => begin + 16,
        udp::PROTOCOL if first => begin + 6,
        _ => return Some(frame.into()),
    };
    if let Some(bytes) = frame.get_mut(sum..sum + 2) {
        let old = u16::from_be_bytes([bytes[0], bytes[1]]);
        // In UDP, 0 means no checksum (RFC 768).
        if old != 0 || protocol == tcp::PROTOCOL {
            bytes.copy_from_slice(&update32(old, victim, server).to_be_bytes());
        }
    }
    Some(frame.into())
}

fn head() -> ethernet::Header {
    ethernet::Header { dst: mac(2, 2), src: mac(2, 1), kind: ethernet::IPV4 }
}

/// Draws distinct source addresses, spread over all valid ones.
fn sources(count: usize, seed: u64) -> Vec<u32> {
    let mut rng = fastrand::Rng::with_seed(seed);
    // With an odd factor the walk visits each address once.
    let (factor, start) = (rng.u32(..) | 1, rng.u32(..));
    let walk = (0..=u32::MAX).map(|step| start.wrapping_add(step.wrapping_mul(factor)));
    walk.filter(|&source| is_forwarded(source)).take(count).collect()
}

/// Writes a packet of a flood and returns the frame's length.
fn forge(kind: Flood, src: u32, number: u64, frame: &mut [u8]) -> Result<usize> {
    let dst = u32::from(SERVER);
    let (protocol, length) = match kind {
        Flood::Syn => (tcp::PROTOCOL, SYN),
        Flood::Udp => (udp::PROTOCOL, DATAGRAM),
    };
    let frame = frame.get_mut(..ethernet::LEN + length).context("a frame is too short")?;
    head().emit(frame)?;
    let packet = &mut frame[ethernet::LEN..];
    let header = ipv4::Header {
        total_len: length as u16,
        id: number as u16,
        flags: 2,
        ttl: 64,
        protocol,
        src,
        dst,
        ..Default::default()
    };
    header.emit(packet)?;
    let inner = &mut packet[ipv4::LEN..];
    let pseudo = pseudo_ipv4(src, dst, protocol, inner.len() as u16);
    let src_port = 1024 + (src.wrapping_mul(0x9e37_79b1) >> 17) as u16;
    match kind {
        Flood::Syn => {
            let segment = tcp::Header {
                src_port,
                dst_port: SERVICE,
                sequence: src.rotate_left(7),
                acknowledgement: 0,
                flags: tcp::SYN,
                window: 64_240,
                urgent: 0,
                options: &OPTIONS,
            };
            segment.emit(inner, pseudo)?;
        }
        Flood::Udp => {
            inner[udp::LEN..].fill(0x55);
            let length = inner.len() as u16;
            udp::Header { src_port, dst_port: SERVICE, length }.emit(inner, pseudo)?;
        }
    }
    Ok(ethernet::LEN + length)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the checksums of a frame and returns its source and destination.
    fn checked_addresses(frame: &[u8]) -> (u32, u32) {
        let packet = packet(frame).unwrap();
        assert!(packet.checksum_ok());
        let payload = packet.payload();
        let pseudo =
            pseudo_ipv4(packet.src(), packet.dst(), packet.protocol(), payload.len() as u16);
        match packet.protocol() {
            tcp::PROTOCOL => assert!(tcp::View::parse(payload).unwrap().checksum_ok(pseudo)),
            _ => assert!(udp::View::parse(payload).unwrap().checksum_ok(pseudo)),
        }
        (packet.src(), packet.dst())
    }

    #[test]
    fn flood_has_a_million_distinct_sources_and_valid_packets() {
        for kind in [Flood::Syn, Flood::Udp] {
            let attack = Attack::flood(kind, 3);
            let Packets::Flood(_, sources) = &attack.packets else { panic!("not a flood") };
            let mut each = sources.clone();
            each.sort_unstable();
            each.dedup();
            assert_eq!(each.len(), SOURCES);
            let mut frame = [0xee; MAX_FRAME];
            for number in [0, 1, 2, 999_999, 1_000_000, 1_000_001] {
                let length = attack.write(number, &mut frame).unwrap();
                let (src, dst) = checked_addresses(&frame[..length]);
                assert_eq!(src, sources[(number % 1_000_000) as usize]);
                assert_eq!(dst, u32::from(SERVER));
                assert!(is_forwarded(src));
            }
        }
    }

    #[test]
    fn capture_is_redirected_to_the_server() {
        // Packets of a flood, as if captured at another victim.
        let mut frame = [0; MAX_FRAME];
        for kind in [Flood::Syn, Flood::Udp] {
            let length = forge(kind, 0x0808_0808, 9, &mut frame).unwrap();
            let captured = redirect(&frame[..length], SERVER.into()).unwrap();
            let mut moved = captured.to_vec();
            let victim = 0x0a0a_0a0a;
            // To the victim and back: the checksums are updated both times.
            let mut packet = ipv4::View::parse(&mut moved[ethernet::LEN..]).unwrap();
            packet.set_dst(victim);
            let at = ethernet::LEN + ipv4::LEN + if kind == Flood::Syn { 16 } else { 6 };
            let old = u16::from_be_bytes([moved[at], moved[at + 1]]);
            let sum = update32(old, SERVER.into(), victim);
            moved[at..at + 2].copy_from_slice(&sum.to_be_bytes());
            checked_addresses(&moved);
            let redirected = redirect(&moved, victim).unwrap();
            assert_eq!(checked_addresses(&redirected), (0x0808_0808, SERVER.into()));
            assert_eq!(redirected, captured);
            assert_eq!(redirect(&moved, 5), None, "another destination");
            assert_eq!(syn_port(&redirected), (kind == Flood::Syn).then_some(SERVICE));
        }
        forge(Flood::Syn, 0x7f00_0001, 9, &mut frame).unwrap();
        assert_eq!(redirect(&frame, SERVER.into()), None, "a loopback source");
    }

    #[test]
    fn most_frequent_returns_the_mode() {
        assert_eq!(most_frequent([3, 1, 3, 2].into_iter()), Some(3));
        assert_eq!(most_frequent([2, 1].into_iter()), Some(1));
        assert_eq!(most_frequent::<u8>([].into_iter()), None);
    }
}
