//! Which packets ask for a cookie, and which bring one back.
//!
//! ```text
//!   TCP, whole ─┬─ SYN alone ──► may be answered by a cookie
//!               └─ RST ────────► looked at while cookies are awaited
//!   TCP otherwise ─────────────► no entry without a proof, and no proof
//! ```
//!
//! The TCP checksum is not looked at: whoever forges packets makes it right, what is damaged brings
//! no good cookie back, and on virtual links it is often not filled in yet.
//!
//! A reset that brings a cookie back is the gate's, whether or not its flow has an entry by now:
//! the server knows of no connection that it could be about.

use super::{GROUP, Packet};
use crate::cookie::{Cookies, Syn};
use wire::{ipv4, ipv6, tcp};

/// What a packet is to cookies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Segment {
    /// It opens a connection.
    Syn(Syn),
    /// It ends one, or brings a cookie back.
    Reset {
        /// Source port and destination port.
        ports: u32,
        /// Its sequence number.
        sequence: u32,
    },
    /// It is some other TCP, or a part of it.
    Other,
}

/// Which packets of a group are resets that bring cookies back, a bit for each.
#[derive(Clone, Copy, Default)]
pub(super) struct Resets {
    /// Right ones.
    pub(super) valid: u32,
    /// Wrong ones, and resets that are none of ours.
    pub(super) invalid: u32,
}

const _: () = assert!(GROUP <= 32, "a bit for each");

impl Resets {
    /// Looks at a group of packets.
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

/// Says whether a packet, from its IP header on, is TCP or a part of it.
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

/// Says what a packet, from its IP header on, is to cookies, if it is TCP.
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
    // One that is whole may have a fragment header all the same (RFC 6946).
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
