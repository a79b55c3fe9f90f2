//! ICMP errors for packets that cannot be forwarded: too big, or time exceeded.
//!
//! ```text
//!   │ IP │ type code checksum │ MTU or 0 │ the packet from its header on … │
//!                                         up to 576 bytes in all for IPv4,
//!                                         up to 1280 for IPv6
//! ```
//!
//! | | IPv4 (RFC 792, RFC 1191, RFC 1812) | IPv6 (RFC 4443) |
//! |---|---|---|
//! | too big | type 3, code 4, the MTU in 16 bits | type 2, the MTU in 32 bits |
//! | time exceeded | type 11, code 0 | type 3, code 0 |
//!
//! The answer quotes as much of the packet as the limits allow (RFC 1812, 4.3.2.3; RFC 4443,
//! 2.4(c)): its sender finds the connection by the ports in it, and tools such as traceroute need
//! more.
//!
//! **Some packets are never answered** (RFC 1812, 4.3.2.7; RFC 4443, 2.4(e)): errors, which could
//! answer each other forever; later fragments; packets to a group address; packets whose source
//! does not identify a single host. The caller limits the rate of answers.

use crate::checksum::{Sum, pseudo_ipv6};
use crate::{BadHeader, icmp, ipv4, ipv6};

/// The longest answer over IPv4 (RFC 1812, 4.3.2.3).
pub const MAX_ANSWER_V4: usize = 576;
/// The longest answer over IPv6: the least MTU of a link (RFC 4443, 2.4(c)).
pub const MAX_ANSWER_V6: usize = 1280;

/// ICMP: fragmentation needed and DF set, a code of [`icmp::UNREACHABLE`].
const FRAGMENTATION_NEEDED: u8 = 4;
/// The precedence of answers: internetwork control (RFC 1812, 4.3.2.5).
const CONTROL: u8 = 0xc0;
const HOP_LIMIT: u8 = 64;

/// The reason why a packet cannot be forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// It is longer than this many bytes, the MTU.
    TooBig(u32),
    /// Its TTL or hop limit is exhausted.
    TimeExceeded,
}

/// Returns whether an IPv4 packet may be answered by an error.
pub fn may_answer_v4(packet: &ipv4::View<&[u8]>) -> bool {
    let one = |address: u32| {
        let first = address >> 24;
        (1..224).contains(&first) && first != 127
    };
    // An ICMP message may be answered only if it is known not to be an error.
    let asks = |kind: &u8| matches!(kind, 0 | 8 | 9 | 10 | 13..=18);
    one(packet.src())
        && one(packet.dst())
        && packet.fragment_offset() == 0
        && (packet.protocol() != icmp::PROTOCOL || packet.payload().first().is_some_and(asks))
}

/// Returns whether an IPv6 packet may be answered by an error; one that is too big may be also if
/// it was sent to a group (RFC 4443, 2.4(e.3)).
pub fn may_answer_v6(packet: &ipv6::View<&[u8]>, reason: Reason) -> bool {
    let multicast = |address: u128| address >> 120 == 0xff;
    let Ok(upper) = packet.upper() else { return false };
    let later = upper.fragment.is_some_and(|fragment| fragment.offset > 0);
    let informs = |kind: &u8| kind >> 7 == 1;
    let kind = packet.payload().get(upper.offset - ipv6::LEN);
    packet.src() > 1
        && !multicast(packet.src())
        && (!multicast(packet.dst()) || matches!(reason, Reason::TooBig(_)))
        && !later
        && (upper.protocol != icmp::PROTOCOL_V6 || kind.is_some_and(informs))
}

/// Writes the answer to an IPv4 packet, from `src`, and returns its length; `None` if the packet
/// must not be answered.
///
/// # Errors
///
/// The view's error for the packet; [`BadHeader::Truncated`] if there is no room for the
/// answer: [`MAX_ANSWER_V4`] bytes are always enough.
pub fn emit_v4(
    reason: Reason,
    packet: &[u8],
    src: u32,
    out: &mut [u8],
) -> Result<Option<usize>, BadHeader> {
    let view = ipv4::View::parse(packet)?;
    if !may_answer_v4(&view) {
        return Ok(None);
    }
    let front = ipv4::LEN + icmp::LEN;
    let quoted = usize::from(view.total_len()).min(MAX_ANSWER_V4 - front);
    let out = out.get_mut(..front + quoted).ok_or(BadHeader::Truncated)?;
    let header = ipv4::Header {
        tos: CONTROL,
        total_len: (front + quoted) as u16,
        flags: ipv4::DONT_FRAGMENT,
        ttl: HOP_LIMIT,
        protocol: icmp::PROTOCOL,
        src,
        dst: view.src(),
        ..ipv4::Header::default()
    };
    header.emit(out)?;
    out[front..].copy_from_slice(&packet[..quoted]);
    let message = match reason {
        Reason::TooBig(mtu) => {
            let [high, low] = (mtu.min(u16::MAX.into()) as u16).to_be_bytes();
            icmp::Header {
                kind: icmp::UNREACHABLE,
                code: FRAGMENTATION_NEEDED,
                rest: [0, 0, high, low],
            }
        }
        Reason::TimeExceeded => icmp::Header { kind: icmp::TIME_EXCEEDED, code: 0, rest: [0; 4] },
    };
    message.emit(&mut out[ipv4::LEN..], Sum::ZERO)?;
    Ok(Some(out.len()))
}

/// Writes the answer to an IPv6 packet, from `src`, and returns its length; `None` if the packet
/// must not be answered.
///
/// # Errors
///
/// The view's error for the packet; [`BadHeader::Truncated`] if there is no room for the
/// answer: [`MAX_ANSWER_V6`] bytes are always enough.
pub fn emit_v6(
    reason: Reason,
    packet: &[u8],
    src: u128,
    out: &mut [u8],
) -> Result<Option<usize>, BadHeader> {
    let view = ipv6::View::parse(packet)?;
    if !may_answer_v6(&view, reason) {
        return Ok(None);
    }
    let front = ipv6::LEN + icmp::LEN;
    let whole = ipv6::LEN + usize::from(view.payload_len());
    let quoted = whole.min(MAX_ANSWER_V6 - front);
    let out = out.get_mut(..front + quoted).ok_or(BadHeader::Truncated)?;
    let header = ipv6::Header {
        payload_len: (icmp::LEN + quoted) as u16,
        next_header: icmp::PROTOCOL_V6,
        hop_limit: HOP_LIMIT,
        src,
        dst: view.src(),
        ..ipv6::Header::default()
    };
    header.emit(out)?;
    out[front..].copy_from_slice(&packet[..quoted]);
    let message = match reason {
        Reason::TooBig(mtu) => {
            icmp::Header { kind: icmp::V6_TOO_BIG, code: 0, rest: mtu.to_be_bytes() }
        }
        Reason::TimeExceeded => {
            icmp::Header { kind: icmp::V6_TIME_EXCEEDED, code: 0, rest: [0; 4] }
        }
    };
    let len = (icmp::LEN + quoted) as u32;
    let pseudo = pseudo_ipv6(src, view.src(), icmp::PROTOCOL_V6, len);
    message.emit(&mut out[ipv6::LEN..], pseudo)?;
    Ok(Some(out.len()))
}
