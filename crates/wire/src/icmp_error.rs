//! ICMP errors for packets that cannot be forwarded.
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
//! | no route | type 3, code 0 | type 1, code 0 |
//! | host unreachable | type 3, code 1 | type 1, code 3 |
//! | `unreachable` route | type 3, code 1 | type 1, code 0 |
//! | `prohibit` route | type 3, code 13 | type 1, code 1 |
//!
//! The codes are those of Linux. The answer quotes as much of the packet as the limits allow (RFC 1812,
//! 4.3.2.3; RFC 4443, 2.4(c)): its sender finds the connection by the ports in it, and tools such as
//! traceroute need more. It has no extension objects, so that no length field is due (RFC 4884, 5.1).
//!
//! **Some packets are never answered** (RFC 1812, 4.3.2.7; RFC 4443, 2.4(e)): errors, which could
//! answer each other forever; later fragments of IPv4; packets to a group address; packets whose source
//! does not identify a single host. The caller limits the rate of answers.

use crate::checksum::{Sum, pseudo_ipv6};
use crate::{BadHeader, icmp, ipv4, ipv6};

/// The longest answer over IPv4 (RFC 1812, 4.3.2.3).
pub const MAX_ANSWER_V4: usize = 576;
/// The longest answer over IPv6: the least MTU of a link (RFC 4443, 2.4(c)).
pub const MAX_ANSWER_V6: usize = 1280;

/// The length of the headers in front of the quoted packet, over IPv4.
pub const FRONT_V4: usize = ipv4::LEN + icmp::LEN;
/// The length of the headers in front of the quoted packet, over IPv6.
pub const FRONT_V6: usize = ipv6::LEN + icmp::LEN;

/// The precedence of answers: internetwork control (RFC 1812, 4.3.2.5).
const CONTROL: u8 = 0xc0;
/// The bits of the type of service that an answer copies (RFC 1812, 4.3.2.5).
const TOS_BITS: u8 = 0x1e;
const HOP_LIMIT: u8 = 64;

/// The reason why a packet cannot be forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// It is longer than this many bytes, the MTU.
    TooBig(u32),
    /// Its TTL or hop limit is exhausted.
    TimeExceeded,
    /// No route leads to its destination.
    NoRoute,
    /// The MAC address of its next hop is not found.
    HostUnreachable,
    /// Its route is of type `unreachable`.
    UnreachableRoute,
    /// Its route is of type `prohibit`.
    Prohibited,
}

impl Reason {
    /// Returns the type of the error over IPv4.
    pub fn kind_v4(self) -> u8 {
        self.header_v4().kind
    }

    /// Returns the type of the error over IPv6.
    pub fn kind_v6(self) -> u8 {
        self.header_v6().kind
    }

    /// Returns the ICMP header over IPv4.
    fn header_v4(self) -> icmp::Header {
        let (kind, code) = match self {
            Self::TooBig(_) => (icmp::UNREACHABLE, 4),
            Self::TimeExceeded => (icmp::TIME_EXCEEDED, 0),
            Self::NoRoute => (icmp::UNREACHABLE, 0),
            Self::HostUnreachable | Self::UnreachableRoute => (icmp::UNREACHABLE, 1),
            Self::Prohibited => (icmp::UNREACHABLE, 13),
        };
        let mtu = if let Self::TooBig(mtu) = self { mtu.min(u16::MAX.into()) } else { 0 };
        icmp::Header { kind, code, rest: mtu.to_be_bytes() }
    }

    /// Returns the ICMPv6 header.
    fn header_v6(self) -> icmp::Header {
        let (kind, code) = match self {
            Self::TooBig(_) => (icmp::V6_TOO_BIG, 0),
            Self::TimeExceeded => (icmp::V6_TIME_EXCEEDED, 0),
            Self::NoRoute | Self::UnreachableRoute => (icmp::V6_UNREACHABLE, 0),
            Self::HostUnreachable => (icmp::V6_UNREACHABLE, 3),
            Self::Prohibited => (icmp::V6_UNREACHABLE, 1),
        };
        let mtu = if let Self::TooBig(mtu) = self { mtu } else { 0 };
        icmp::Header { kind, code, rest: mtu.to_be_bytes() }
    }
}

/// Returns whether an IPv4 packet may be answered by an error.
pub fn may_answer_v4(packet: &ipv4::View<&[u8]>) -> bool {
    let one = |address: u32| {
        !matches!(address >> 24, 127 | 224..=239) && address != 0 && address != u32::MAX
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
    packet.src() > 1
        && !multicast(packet.src())
        && (!multicast(packet.dst()) || matches!(reason, Reason::TooBig(_)))
        && !is_error_v6(packet)
}

/// Returns whether an IPv6 packet is an ICMPv6 error, or may be one whose type is missing. As Linux, it
/// takes extension headers as they come, and a packet in which they cannot be skipped for none.
fn is_error_v6(packet: &ipv6::View<&[u8]>) -> bool {
    let payload = packet.payload();
    let (mut protocol, mut at, mut is_fragment) = (packet.next_header(), 0, false);
    while protocol != icmp::PROTOCOL_V6 {
        let Some(&[next, len]) = payload.get(at..).and_then(|rest| rest.first_chunk()) else {
            return false;
        };
        let len = usize::from(len);
        at += match protocol {
            ipv6::HOP_BY_HOP | ipv6::ROUTING | ipv6::DESTINATION => 8 * (len + 1),
            ipv6::AUTHENTICATION => 4 * (len + 2),
            ipv6::FRAGMENT => {
                let Some(&[high, low]) = payload.get(at + 2..).and_then(|rest| rest.first_chunk())
                else {
                    return false;
                };
                let place = u16::from_be_bytes([high, low]);
                if place >> 3 > 0 {
                    // Without the ICMP header the packet is not known to be an error.
                    return false;
                }
                is_fragment = place > 0;
                8
            }
            _ => return false,
        };
        protocol = next;
    }
    payload.get(at).map_or(!is_fragment, |kind| kind >> 7 == 0)
}

/// Returns the length of the answer to an IPv4 packet: both headers, and the bytes that it quotes.
///
/// # Errors
///
/// The view's error for the packet.
pub fn answer_len_v4(packet: &[u8]) -> Result<usize, BadHeader> {
    let view = ipv4::View::parse(packet)?;
    Ok((FRONT_V4 + usize::from(view.total_len())).min(MAX_ANSWER_V4))
}

/// Returns the length of the answer to an IPv6 packet like [`answer_len_v4`].
///
/// # Errors
///
/// The view's error for the packet.
pub fn answer_len_v6(packet: &[u8]) -> Result<usize, BadHeader> {
    let view = ipv6::View::parse(packet)?;
    Ok((FRONT_V6 + ipv6::LEN + usize::from(view.payload_len())).min(MAX_ANSWER_V6))
}

/// Writes the headers of an answer from `src` into the first [`FRONT_V4`] bytes of `answer`, which has
/// the quoted bytes of the packet behind them. `id` is the identification, as the answer may be
/// fragmented.
///
/// # Errors
///
/// The view's error for the quoted packet; [`BadHeader::Truncated`] if there is no room.
pub fn write_v4(reason: Reason, src: u32, id: u16, answer: &mut [u8]) -> Result<(), BadHeader> {
    let quoted = answer.get(FRONT_V4..).ok_or(BadHeader::Truncated)?;
    // Only the first bytes of the packet are here, which `View::parse` would refuse.
    let tos = *quoted.get(1).ok_or(BadHeader::Truncated)?;
    let dst = quoted.get(12..16).and_then(|dst| dst.try_into().ok());
    let header = ipv4::Header {
        tos: tos & TOS_BITS | CONTROL,
        total_len: answer.len().try_into().map_err(|_| BadHeader::Length)?,
        id,
        ttl: HOP_LIMIT,
        protocol: icmp::PROTOCOL,
        src,
        dst: u32::from_be_bytes(dst.ok_or(BadHeader::Truncated)?),
        ..ipv4::Header::default()
    };
    header.emit(answer)?;
    reason.header_v4().emit(&mut answer[ipv4::LEN..], Sum::ZERO)?;
    Ok(())
}

/// Writes the headers of an answer from `src` into the first [`FRONT_V6`] bytes of `answer`, like
/// [`write_v4`].
///
/// # Errors
///
/// The same.
pub fn write_v6(reason: Reason, src: u128, answer: &mut [u8]) -> Result<(), BadHeader> {
    let quoted = answer.get(FRONT_V6..).ok_or(BadHeader::Truncated)?;
    let dst = quoted.get(8..24).and_then(|dst| dst.try_into().ok());
    let dst = u128::from_be_bytes(dst.ok_or(BadHeader::Truncated)?);
    let len = answer.len() - ipv6::LEN;
    let header = ipv6::Header {
        payload_len: len.try_into().map_err(|_| BadHeader::Length)?,
        next_header: icmp::PROTOCOL_V6,
        hop_limit: HOP_LIMIT,
        src,
        dst,
        ..ipv6::Header::default()
    };
    header.emit(answer)?;
    let pseudo = pseudo_ipv6(src, dst, icmp::PROTOCOL_V6, len as u32);
    reason.header_v6().emit(&mut answer[ipv6::LEN..], pseudo)?;
    Ok(())
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
    id: u16,
    out: &mut [u8],
) -> Result<Option<usize>, BadHeader> {
    if !may_answer_v4(&ipv4::View::parse(packet)?) {
        return Ok(None);
    }
    let len = answer_len_v4(packet)?;
    let out = out.get_mut(..len).ok_or(BadHeader::Truncated)?;
    out[FRONT_V4..].copy_from_slice(&packet[..len - FRONT_V4]);
    write_v4(reason, src, id, out)?;
    Ok(Some(len))
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
    if !may_answer_v6(&ipv6::View::parse(packet)?, reason) {
        return Ok(None);
    }
    let len = answer_len_v6(packet)?;
    let out = out.get_mut(..len).ok_or(BadHeader::Truncated)?;
    out[FRONT_V6..].copy_from_slice(&packet[..len - FRONT_V6]);
    write_v6(reason, src, out)?;
    Ok(Some(len))
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::vec::Vec;

    use super::{Reason, may_answer_v6};
    use crate::{icmp, ipv6};

    /// Makes a packet with these extension headers, each with its number, and the bytes behind them.
    fn packet(extensions: &[(u8, &[u8])], protocol: u8, rest: &[u8]) -> Vec<u8> {
        let mut payload = Vec::new();
        let following = extensions.iter().skip(1).map(|(number, _)| *number).chain([protocol]);
        for ((_, bytes), next) in extensions.iter().zip(following) {
            payload.push(next);
            payload.extend_from_slice(bytes);
        }
        payload.extend_from_slice(rest);
        let next_header = extensions.first().map_or(protocol, |(number, _)| *number);
        let (src, dst) = (0x2001_0db8 << 96 | 1, 0x2001_0db8 << 96 | 2);
        let payload_len = payload.len() as u16;
        let header = ipv6::Header { payload_len, next_header, src, dst, ..Default::default() };
        let mut bytes = std::vec![0; ipv6::LEN];
        header.emit(&mut bytes).unwrap();
        bytes.extend(payload);
        bytes
    }

    /// As `is_ineligible` of Linux decides.
    #[test]
    fn ipv6_error_behind_extension_headers_is_not_answered() {
        const ERROR: &[u8] = &[1, 0, 0, 0];
        const ECHO: &[u8] = &[128, 0, 0, 0];
        let icmp = icmp::PROTOCOL_V6;
        let options: (u8, &[u8]) = (ipv6::DESTINATION, &[0, 1, 4, 0, 0, 0, 0]);
        let authentication: (u8, &[u8]) = (ipv6::AUTHENTICATION, &[1; 11]);
        let first: (u8, &[u8]) = (ipv6::FRAGMENT, &[0, 0, 1, 0, 0, 0, 7]);
        let later: (u8, &[u8]) = (ipv6::FRAGMENT, &[0, 1, 0, 0, 0, 0, 7]);
        let cut: (u8, &[u8]) = (ipv6::DESTINATION, &[9, 1, 4, 0, 0, 0, 0]);
        for (extensions, protocol, rest, want) in [
            (&[][..], icmp, ERROR, false),
            (&[], icmp, ECHO, true),
            (&[], icmp, &[], false),
            (&[], 17, ERROR, true),
            (&[options, authentication], icmp, ERROR, false),
            (&[authentication, options], icmp, ECHO, true),
            (&[first], icmp, ERROR, false),
            (&[first], icmp, &[], true),
            (&[later], icmp, ERROR, true),
            // Its options end beyond the packet: it might be an error.
            (&[cut], icmp, ERROR, false),
            (&[cut], 17, ERROR, true),
            (&[], ipv6::DESTINATION, &[58], true),
            (&[], ipv6::NO_NEXT, ERROR, true),
        ] {
            let bytes = packet(extensions, protocol, rest);
            let view = ipv6::View::parse(&bytes[..]).unwrap();
            assert_eq!(may_answer_v6(&view, Reason::NoRoute), want, "{bytes:?}");
        }
    }
}
