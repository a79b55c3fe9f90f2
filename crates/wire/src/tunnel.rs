//! IP in IP: either family in either (RFC 2003, RFC 2473, RFC 4213), ECN by RFC 6040; also with
//! UDP between them.
//!
//! ```text
//!   │ outer IPv4 or IPv6 │ inner IPv4 (protocol 4) or IPv6 (protocol 41) … │
//!   │ outer IPv4 or IPv6 │ UDP │ inner IPv4 or IPv6 …                      │
//!   │ outer IPv4 or IPv6 │ UDP │ GUE, private data │ inner IPv4 or IPv6 …  │
//! ```
//!
//! **ECN.** On the way in the outer header copies the inner one's two bits ("normal mode",
//! 4.1). On the way out the inner bits follow the outer by figure 4:
//!
//! ```text
//!                  outer
//!   inner     Not-ECT  ECT(0)   ECT(1)   CE
//!   Not-ECT   Not-ECT  Not-ECT  Not-ECT  drop
//!   ECT(0)    ECT(0)   ECT(0)   ECT(1)   CE
//!   ECT(1)    ECT(1)   ECT(1)   ECT(1)   CE
//!   CE        CE       CE       CE       CE
//! ```
//!
//! Not-ECT under CE is dropped: the sender does not support ECN, and only a loss can signal the
//! congestion to it.
//!
//! **Fragments.** The outer IPv4 header has DF set and identification 0 (RFC 6864, 4.1: the packet
//! is atomic). A tunnel entry with a packet too big for the link answers the inner packet's sender
//! (`icmp_error.rs`); an outer packet that is a fragment was not made by this code.
//!
//! **Entropy.** The outer pair of addresses is the same for all packets of a tunnel. The flow label
//! of an outer IPv6 header distinguishes flows for multipath routers (RFC 6438); an outer IPv4
//! header has no such field. With UDP the source port does so in both families, for every router
//! and network card that hashes ports.
//!
//! **UDP.** The inner packet directly follows the UDP header, and its first four bits are its
//! version: variant 1 of GUE (draft-ietf-intarea-gue-09, 4), whose port is [`GUE`], and direct
//! encapsulation in Linux (`ip fou add port 6080 gue`). Over IPv4 the checksum is 0, which tunnels
//! may use (RFC 8085, 3.4.1). Over IPv6 it is computed over the whole packet. Tunnels may use 0
//! there too (RFC 6935), but only if both ends are configured for it (RFC 6936, 4); Linux drops
//! such packets otherwise, and no other checksum covers the outer addresses. The receiver accepts 0
//! in both families, and rejects a wrong checksum.
//!
//! **GUE's variant 0** (`gue.rs`) has a header with room for private data, which an authenticated
//! tunnel uses; this module does not interpret it. A receiver distinguishes the variants by the
//! first two bits.

use crate::checksum::{Sum, pseudo_ipv4, pseudo_ipv6};
use crate::{BadHeader, gue, ipv4, ipv6, udp};

/// The protocol number of IPv4 in IP.
pub const IPV4_IN_IP: u8 = 4;
/// The protocol number of IPv6 in IP.
pub const IPV6_IN_IP: u8 = 41;

/// ECN: not capable.
pub const NOT_ECT: u8 = 0b00;
/// ECN: capable, codepoint 1.
pub const ECT_1: u8 = 0b01;
/// ECN: capable, codepoint 0.
pub const ECT_0: u8 = 0b10;
/// ECN: congestion experienced.
pub const CE: u8 = 0b11;

/// The UDP port of GUE, also used for IP directly in UDP.
pub const GUE: u16 = 6080;

/// The ends of a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ends {
    /// IPv4.
    V4 {
        /// The entry: the source address.
        src: u32,
        /// The exit: the destination address.
        dst: u32,
    },
    /// IPv6.
    V6 {
        /// The entry: the source address.
        src: u128,
        /// The exit: the destination address.
        dst: u128,
        /// The flow label, 20 bits, which distinguishes flows.
        flow_label: u32,
    },
}

/// The ports of a tunnel with UDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ports {
    /// The source port, which distinguishes flows.
    pub src: u16,
    /// The destination port: the one that the other end listens on.
    pub dst: u16,
}

impl Ports {
    /// Returns the ports for a flow with this hash: the source port is one of the 16384 dynamic
    /// ports (RFC 6335, 6), as tunnels should use (RFC 7510, 3).
    #[inline]
    pub fn of(flow: u32, dst: u16) -> Self {
        Self { src: 0xc000 | flow as u16 & 0x3fff, dst }
    }
}

/// The outer headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The ends.
    pub ends: Ends,
    /// The DSCP, at most 63.
    pub dscp: u8,
    /// TTL or hop limit.
    pub hop_limit: u8,
    /// The ports, if there is UDP.
    pub udp: Option<Ports>,
}

impl Header {
    /// Returns the headers' length in bytes, which is also the offset of the inner packet.
    #[inline]
    pub fn len(&self) -> usize {
        self.outer_len() + if self.udp.is_some() { udp::LEN } else { 0 }
    }

    /// Returns the headers' length with a GUE header of variant 0 that has this many bytes of
    /// private data.
    #[inline]
    pub fn len_with(&self, private: usize) -> usize {
        self.len() + gue::LEN + private
    }

    /// Returns the length of the outer IP header.
    #[inline]
    fn outer_len(&self) -> usize {
        match self.ends {
            Ends::V4 { .. } => ipv4::LEN,
            Ends::V6 { .. } => ipv6::LEN,
        }
    }

    /// Returns whether the outer IP header is IPv6.
    #[inline]
    pub fn is_v6(&self) -> bool {
        matches!(self.ends, Ends::V6 { .. })
    }

    /// Returns false: headers are never empty.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Writes the headers in front of the inner packet that `bytes` hold from
    /// [`len`](Self::len) to their end, and returns that length.
    ///
    /// # Errors
    ///
    /// [`BadHeader::Truncated`] if there is no inner packet, [`BadHeader::Version`] if it is
    /// neither IPv4 nor IPv6, [`BadHeader::Length`] if the whole is too long for the outer
    /// header, or the DSCP or the flow label for its field.
    pub fn emit(&self, bytes: &mut [u8]) -> Result<usize, BadHeader> {
        self.emit_all(None, bytes)
    }

    /// The same with a GUE header of variant 0 between UDP and the inner packet, which begins at
    /// [`len_with`](Self::len_with).
    ///
    /// # Errors
    ///
    /// As [`emit`](Self::emit), and as [`gue::Header::emit`]; [`BadHeader::Kind`] without UDP.
    pub fn emit_with(&self, private: &[u8], bytes: &mut [u8]) -> Result<usize, BadHeader> {
        if self.udp.is_none() {
            return Err(BadHeader::Kind);
        }
        self.emit_all(Some(private), bytes)
    }

    // The two callers pass private data or none.
    #[inline(always)]
    fn emit_all(&self, private: Option<&[u8]>, bytes: &mut [u8]) -> Result<usize, BadHeader> {
        let len = private.map_or(self.len(), |private| self.len_with(private.len()));
        let inner = bytes.get(len..).ok_or(BadHeader::Truncated)?;
        let (protocol, tos) = protocol_and_tos(inner)?;
        if self.dscp > 63 {
            return Err(BadHeader::Length);
        }
        let tos = self.dscp << 2 | tos & CE;
        if let Some(private) = private {
            gue::Header { protocol, private }.emit(&mut bytes[self.len()..])?;
        }
        let protocol = if self.udp.is_some() { udp::PROTOCOL } else { protocol };
        match self.ends {
            Ends::V4 { src, dst } => ipv4::Header {
                tos,
                total_len: u16::try_from(bytes.len()).map_err(|_| BadHeader::Length)?,
                flags: ipv4::DONT_FRAGMENT,
                ttl: self.hop_limit,
                protocol,
                src,
                dst,
                ..ipv4::Header::default()
            }
            .emit(bytes),
            Ends::V6 { src, dst, flow_label } => ipv6::Header {
                traffic_class: tos,
                flow_label,
                payload_len: u16::try_from(bytes.len() - ipv6::LEN)
                    .map_err(|_| BadHeader::Length)?,
                next_header: protocol,
                hop_limit: self.hop_limit,
                src,
                dst,
            }
            .emit(bytes),
        }?;
        if let Some(ports) = self.udp {
            self.emit_udp(ports, &mut bytes[self.outer_len()..])?;
        }
        Ok(len)
    }

    fn emit_udp(&self, ports: Ports, bytes: &mut [u8]) -> Result<(), BadHeader> {
        let length = u16::try_from(bytes.len()).map_err(|_| BadHeader::Length)?;
        let header = udp::Header { src_port: ports.src, dst_port: ports.dst, length };
        match self.ends {
            Ends::V4 { .. } => header.emit_unchecked(bytes)?,
            Ends::V6 { src, dst, .. } => {
                header.emit(bytes, pseudo_ipv6(src, dst, udp::PROTOCOL, length.into()))?
            }
        };
        Ok(())
    }
}

/// Returns the protocol number and the DSCP and ECN of an inner packet.
fn protocol_and_tos(inner: &[u8]) -> Result<(u8, u8), BadHeader> {
    match inner {
        [first, second, ..] => match first >> 4 {
            4 if inner.len() >= ipv4::LEN => Ok((IPV4_IN_IP, *second)),
            6 if inner.len() >= ipv6::LEN => Ok((IPV6_IN_IP, first << 4 | second >> 4)),
            4 | 6 => Err(BadHeader::Truncated),
            _ => Err(BadHeader::Version),
        },
        _ => Err(BadHeader::Truncated),
    }
}

/// The fields of a parsed outer header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outer {
    /// Its DSCP.
    pub dscp: u8,
    /// Its ECN bits.
    pub ecn: u8,
    /// The UDP ports, if there is UDP.
    pub ports: Option<Ports>,
    /// The bytes of private data before the inner packet.
    pub private: usize,
    /// The offset of the inner packet.
    pub offset: usize,
    /// The end of the inner packet; the link's padding follows.
    pub end: usize,
}

impl Outer {
    /// Parses a packet that contains another directly after the outer header.
    ///
    /// # Errors
    ///
    /// The errors of the views for the outer header; [`BadHeader::Kind`] if it contains no packet,
    /// or is a fragment; [`BadHeader::Version`] if the inner packet is not of the family that the
    /// outer header states.
    pub fn parse(packet: &[u8]) -> Result<Self, BadHeader> {
        Self::parse_with(packet, None)
    }

    /// The same, also for packets in UDP to this port.
    ///
    /// # Errors
    ///
    /// As [`parse`](Self::parse), and the errors of the view for the UDP header;
    /// [`BadHeader::Checksum`] if it has a wrong checksum.
    pub fn parse_with(packet: &[u8], port: Option<u16>) -> Result<Self, BadHeader> {
        let (tos, protocol, offset, end) = match packet.first().map(|first| first >> 4) {
            Some(4) => {
                let outer = ipv4::View::parse(packet)?;
                if outer.is_fragment() {
                    return Err(BadHeader::Kind);
                }
                let end = usize::from(outer.total_len());
                (outer.tos(), outer.protocol(), outer.header_len(), end)
            }
            Some(6) => {
                let outer = ipv6::View::parse(packet)?;
                let end = ipv6::LEN + usize::from(outer.payload_len());
                (outer.traffic_class(), outer.next_header(), ipv6::LEN, end)
            }
            Some(_) => return Err(BadHeader::Version),
            None => return Err(BadHeader::Truncated),
        };
        let (dscp, ecn) = (tos >> 2, tos & CE);
        match (protocol, port) {
            (IPV4_IN_IP | IPV6_IN_IP, _) => {
                if protocol_and_tos(&packet[offset..end])?.0 != protocol {
                    return Err(BadHeader::Version);
                }
                Ok(Self { dscp, ecn, ports: None, private: 0, offset, end })
            }
            (udp::PROTOCOL, Some(port)) => {
                let datagram = udp::View::parse(&packet[offset..end])?;
                if datagram.dst_port() != port {
                    return Err(BadHeader::Kind);
                }
                if !datagram.checksum_ok(pseudo(packet, datagram.length())?) {
                    return Err(BadHeader::Checksum);
                }
                let end = offset + usize::from(datagram.length());
                let ports = Some(Ports { src: datagram.src_port(), dst: port });
                let payload = datagram.payload();
                let (private, header) = match payload.first().map(|first| first >> 6) {
                    Some(0) => {
                        let header = gue::View::parse(payload)?;
                        if protocol_and_tos(header.payload())?.0 != header.protocol() {
                            return Err(BadHeader::Version);
                        }
                        (header.private().len(), header.header_len())
                    }
                    _ => {
                        protocol_and_tos(payload)?;
                        (0, 0)
                    }
                };
                let offset = offset + udp::LEN + header;
                Ok(Self { dscp, ecn, ports, private, offset, end })
            }
            _ => Err(BadHeader::Kind),
        }
    }
}

/// Begins the sum of a UDP message of this length in a packet.
fn pseudo(packet: &[u8], length: u16) -> Result<Sum, BadHeader> {
    Ok(if packet.first().is_some_and(|first| first >> 4 == 6) {
        let ip = ipv6::View::parse(packet)?;
        pseudo_ipv6(ip.src(), ip.dst(), udp::PROTOCOL, length.into())
    } else {
        let ip = ipv4::View::parse(packet)?;
        pseudo_ipv4(ip.src(), ip.dst(), udp::PROTOCOL, length)
    })
}

/// Returns the ECN bits of an inner packet that leaves a tunnel; `None` if it has to be dropped
/// (RFC 6040, figure 4).
#[inline]
pub fn ecn_out(inner: u8, outer: u8) -> Option<u8> {
    match (inner & CE, outer & CE) {
        (NOT_ECT, CE) => None,
        (NOT_ECT, _) => Some(NOT_ECT),
        (CE, _) | (_, CE) => Some(CE),
        (ECT_0, ECT_1) => Some(ECT_1),
        (inner, _) => Some(inner),
    }
}

/// Returns the ECN bits of an inner packet.
///
/// # Errors
///
/// [`BadHeader::Truncated`] or [`BadHeader::Version`].
pub fn ecn_of(inner: &[u8]) -> Result<u8, BadHeader> {
    protocol_and_tos(inner).map(|(_, tos)| tos & CE)
}

/// Sets the ECN bits of an inner packet that leaves a tunnel, and returns whether it may be
/// forwarded.
///
/// # Errors
///
/// The errors of the views for the packet.
pub fn decapsulate_ecn(inner: &mut [u8], outer: u8) -> Result<bool, BadHeader> {
    let (protocol, tos) = protocol_and_tos(inner)?;
    let Some(ecn) = ecn_out(tos, outer) else { return Ok(false) };
    let settled = tos & !CE | ecn;
    if settled != tos {
        if protocol == IPV4_IN_IP {
            ipv4::View::parse(inner)?.set_tos(settled);
        } else {
            ipv6::View::parse(inner)?.set_traffic_class(settled);
        }
    }
    Ok(true)
}
