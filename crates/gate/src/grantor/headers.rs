//! The headers of a packet that a policy may read, parsed once.
//!
//! A packet whose IPv6 extension headers cannot be parsed is no request. A renewal still has
//! addresses, and the policy sees those, with protocol 255: otherwise forged packets of this kind
//! with the addresses of a granted flow would suppress its renewals.

use fib::Prefix;
use wire::{ipv4, ipv6};

use crate::flow::{Flow, Pair};

const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMP: u8 = 1;
const ICMP6: u8 = 58;
/// Reserved (RFC 5237): the protocol behind extension headers that cannot be parsed.
const UNREADABLE: u8 = 255;
/// The DSCP of packets that ask for renewal.
const RENEWAL: u8 = 2;

/// A packet's headers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PacketHeaders {
    pub(super) flow: Flow,
    pub(super) protocol: u8,
    pub(super) fragment: bool,
    pub(super) length: u16,
    pub(super) ttl: u8,
    pub(super) dscp: u8,
    pub(super) congested: bool,
    pub(super) src_port: Option<u16>,
    pub(super) dst_port: Option<u16>,
    pub(super) tcp_flags: Option<u8>,
    pub(super) icmp_type: Option<u8>,
}

impl PacketHeaders {
    /// Parses a packet from its IP header on; `None` if it is malformed.
    pub(super) fn new(packet: &[u8], dscp: u8, congested: bool) -> Option<Self> {
        let (mut headers, transport) = match packet.first()? >> 4 {
            4 => {
                let ip = ipv4::View::parse(packet).ok()?;
                let headers = Self {
                    flow: Flow::v4(ip.src(), ip.dst()),
                    protocol: ip.protocol(),
                    fragment: ip.is_fragment(),
                    length: ip.total_len(),
                    ttl: ip.ttl(),
                    ..Self::default()
                };
                let end = usize::from(ip.total_len());
                let begin = if ip.fragment_offset() > 0 { end } else { ip.header_len() };
                (headers, packet.get(begin..end)?)
            }
            6 => {
                let ip = ipv6::View::parse(packet).ok()?;
                let upper = match ip.upper() {
                    Ok(upper) => upper,
                    Err(_) if dscp == RENEWAL => {
                        let offset = ipv6::LEN + ip.payload().len();
                        ipv6::Upper { protocol: UNREADABLE, offset, fragment: None }
                    }
                    Err(_) => return None,
                };
                let end = ipv6::LEN + usize::from(ip.payload_len());
                let later = upper.fragment.is_some_and(|part| part.offset > 0);
                let headers = Self {
                    flow: Flow::v6(ip.src(), ip.dst()),
                    protocol: upper.protocol,
                    fragment: upper.fragment.is_some_and(|part| part.offset > 0 || part.more),
                    length: u16::try_from(end).unwrap_or(u16::MAX),
                    ttl: ip.hop_limit(),
                    ..Self::default()
                };
                (headers, packet.get(if later { end } else { upper.offset }..end)?)
            }
            _ => return None,
        };
        (headers.dscp, headers.congested) = (dscp, congested);
        match headers.protocol {
            TCP | UDP => {
                if let Some(&[a, b, c, d]) = transport.first_chunk::<4>() {
                    headers.src_port = Some(u16::from_be_bytes([a, b]));
                    headers.dst_port = Some(u16::from_be_bytes([c, d]));
                }
                if headers.protocol == TCP {
                    headers.tcp_flags = transport.get(13).copied();
                }
            }
            ICMP | ICMP6 => headers.icmp_type = transport.first().copied(),
            _ => {}
        }
        Some(headers)
    }

    pub(super) fn prefix(&self, len: u32) -> Option<String> {
        match self.flow.pair() {
            Pair::V4 { src, .. } if len <= 32 => Some(Prefix::truncate(src, len as _).to_string()),
            Pair::V6 { src, .. } if len <= 128 => Some(Prefix::truncate(src, len as _).to_string()),
            _ => None,
        }
    }
}
