//! TCP segments that a cookie challenges, and resets that return a cookie.
//!
//! ```text
//!   TCP, whole ─┬─ SYN alone ──► may be answered by a cookie
//!               └─ RST ────────► checked while cookies are outstanding
//!   TCP otherwise ─────────────► no proof, and no entry without one
//! ```
//!
//! The TCP checksum is not verified: a forger computes a valid one, a damaged segment returns no
//! valid cookie, and virtual links often leave the checksum to be filled in later.
//!
//! A reset that returns a cookie is consumed by the gate, whether or not its flow has an entry by
//! now: the server has no connection that it could be about.

use super::{GROUP, Packet};
use crate::cookie::{Cookies, Syn};
use wire::{ipv4, ipv6, tcp};

/// The role of a TCP segment for cookies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Segment {
    /// It opens a connection.
    Syn(Syn),
    /// It ends a connection, or returns a cookie.
    Reset {
        /// Source port and destination port.
        ports: u32,
        /// Its sequence number.
        sequence: u32,
    },
    /// Other TCP, or a fragment of it.
    Other,
}

/// The resets of a group, a bit for each packet.
#[derive(Clone, Copy, Default)]
pub(super) struct Resets {
    /// Resets that return a valid cookie.
    pub(super) valid: u32,
    /// Other resets.
    pub(super) invalid: u32,
}

const _: () = assert!(GROUP <= 32, "a bit for each");

impl Resets {
    /// Checks a group of packets.
    pub(super) fn find<'a>(
        cookies: &mut Cookies,
        now: u64,
        packets: &[Packet],
        bytes: impl Fn(usize) -> &'a [u8],
    ) -> Self {
        let mut resets = Self::default();
        if !cookies.is_outstanding(now) {
            return resets;
        }
        for (at, Packet { flow, .. }) in packets.iter().enumerate() {
            if let Some(Segment::Reset { ports, sequence }) = segment(bytes(at)) {
                let is_valid = cookies.verify(flow, ports, sequence, now);
                *if is_valid { &mut resets.valid } else { &mut resets.invalid } |= 1 << at;
            }
        }
        resets
    }
}

/// Returns whether a packet, from its IP header on, is TCP or a fragment of it.
#[inline]
pub(super) fn is_tcp(packet: &[u8]) -> bool {
    match packet.first().map(|first| first >> 4) {
        Some(4) => packet.get(9) == Some(&tcp::PROTOCOL),
        Some(6) if packet.get(6) == Some(&tcp::PROTOCOL) => true,
        Some(6) => {
            let upper = ipv6::View::parse(packet).and_then(|packet| packet.upper());
            upper.is_ok_and(|upper| upper.protocol == tcp::PROTOCOL)
        }
        _ => false,
    }
}

/// Returns the role of a packet, from its IP header on, if it is TCP.
#[inline]
pub(super) fn segment(packet: &[u8]) -> Option<Segment> {
    if !is_tcp(packet) {
        return None;
    }
    let read = if packet[0] >> 4 == 6 { segment_v6(packet) } else { segment_v4(packet) };
    Some(read.unwrap_or(Segment::Other))
}

fn segment_v4(packet: &[u8]) -> Option<Segment> {
    let ip = ipv4::View::parse(packet).ok()?;
    if ip.is_fragment() {
        return None;
    }
    of(ip.payload())
}

fn segment_v6(packet: &[u8]) -> Option<Segment> {
    let ip = ipv6::View::parse(packet).ok()?;
    let upper = ip.upper().ok()?;
    // An unfragmented packet may have a fragment header all the same (RFC 6946).
    if upper.fragment.is_some_and(|fragment| fragment.offset > 0 || fragment.more) {
        return None;
    }
    of(ip.payload().get(upper.offset - ipv6::LEN..)?)
}

fn of(payload: &[u8]) -> Option<Segment> {
    let segment = tcp::View::parse(payload).ok()?;
    let flags = segment.flags() & (tcp::SYN | tcp::ACK | tcp::RST | tcp::FIN);
    let resets = flags & !tcp::ACK == tcp::RST;
    if !resets && flags != tcp::SYN {
        return None;
    }
    let ports = u32::from(segment.src_port()) << 16 | u32::from(segment.dst_port());
    let sequence = segment.sequence();
    Some(match resets {
        true => Segment::Reset { ports, sequence },
        false => Segment::Syn(Syn { ports, sequence, data: segment.payload().len() as u16 }),
    })
}
