//! Some packets of a flow, by protocol and port: the scope of a provisional decline.
//!
//! A flow is a pair of addresses, so a decline of it drops all packets from one to the other. A
//! policy that objects to a protocol or a port can name it, and the rest of the pair's
//! packets are requests as before. The protocol is that after IPv6's extension headers; the port is
//! the destination's, of TCP and UDP. A later fragment has no port, and a packet whose headers
//! cannot be parsed has neither: it never matches.

use wire::{ipv4, ipv6};

const TCP: u8 = 6;
const UDP: u8 = 17;

/// A selection of packets of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Traffic {
    /// All of them.
    #[default]
    All,
    /// Packets of a protocol.
    Protocol(u8),
    /// Packets of a protocol to a port.
    Port {
        /// The protocol, TCP or UDP.
        protocol: u8,
        /// The destination port.
        port: u16,
    },
}

/// The protocol of a packet and its destination port, as far as it has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransportView {
    /// The protocol, after extension headers.
    pub protocol: u8,
    /// The destination port of TCP and UDP.
    pub port: Option<u16>,
}

impl TransportView {
    /// Reads a packet from its IP header on; nothing if its headers cannot be read.
    pub fn parse(packet: &[u8]) -> Option<Self> {
        let (protocol, transport) = match packet.first()? >> 4 {
            4 => {
                let ip = ipv4::View::parse(packet).ok()?;
                let first = ip.fragment_offset() == 0;
                (ip.protocol(), packet.get(ip.header_len()..).filter(|_| first))
            }
            6 => {
                let ip = ipv6::View::parse(packet).ok()?;
                let upper = ip.upper().ok()?;
                let first = upper.fragment.is_none_or(|part| part.offset == 0);
                (upper.protocol, packet.get(upper.offset..).filter(|_| first))
            }
            _ => return None,
        };
        let port = match (protocol, transport) {
            (TCP | UDP, Some(&[_, _, high, low, ..])) => Some(u16::from_be_bytes([high, low])),
            _ => None,
        };
        Some(Self { protocol, port })
    }
}

impl Traffic {
    /// Returns whether a packet, from its IP header on, is among these.
    pub fn contains(&self, packet: &[u8]) -> bool {
        if *self == Self::All {
            return true;
        }
        TransportView::parse(packet).is_some_and(|view| match *self {
            Self::All => true,
            Self::Protocol(protocol) => view.protocol == protocol,
            Self::Port { protocol, port } => view.protocol == protocol && view.port == Some(port),
        })
    }

    /// Returns this as a word of a record: kind, protocol, port.
    pub(super) fn to_word(self) -> u64 {
        match self {
            Self::All => 0,
            Self::Protocol(protocol) => 1 << 32 | u64::from(protocol) << 16,
            Self::Port { protocol, port } => 2 << 32 | u64::from(protocol) << 16 | u64::from(port),
        }
    }

    /// Decodes such a word; an invalid one stands for all packets.
    pub(super) fn from_word(word: u64) -> Self {
        let (protocol, port) = ((word >> 16) as u8, word as u16);
        match word >> 32 {
            1 => Self::Protocol(protocol),
            2 => Self::Port { protocol, port },
            _ => Self::All,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(dst: u16) -> Vec<u8> {
        let mut bytes = vec![0; 40];
        let header = ipv4::Header { total_len: 40, protocol: TCP, ..Default::default() };
        header.emit(&mut bytes).unwrap();
        bytes[22..24].copy_from_slice(&dst.to_be_bytes());
        bytes
    }

    #[test]
    fn traffic_is_matched_by_protocol_and_port() {
        let mut packet = tcp(80);
        let web = Traffic::Port { protocol: TCP, port: 80 };
        assert!(Traffic::All.contains(&[]) && web.contains(&packet));
        assert!(Traffic::Protocol(TCP).contains(&packet));
        assert!(!Traffic::Protocol(UDP).contains(&packet));
        assert!(!Traffic::Port { protocol: TCP, port: 81 }.contains(&packet));
        assert!(!Traffic::Port { protocol: UDP, port: 80 }.contains(&packet));
        // A later fragment has a protocol and no port.
        packet[7] = 1;
        assert!(!web.contains(&packet) && Traffic::Protocol(TCP).contains(&packet));
        assert!(!Traffic::Protocol(0).contains(&[0x60; 8]));
    }

    #[test]
    fn extension_headers_are_skipped_and_broken_chains_match_nothing() {
        let mut bytes = vec![0; 40 + 8 + 8];
        let header = ipv6::Header { payload_len: 16, next_header: 60, ..Default::default() };
        header.emit(&mut bytes).unwrap();
        bytes[40] = UDP;
        bytes[50..52].copy_from_slice(&53u16.to_be_bytes());
        let dns = Traffic::Port { protocol: UDP, port: 53 };
        assert!(dns.contains(&bytes) && Traffic::Protocol(UDP).contains(&bytes));
        bytes[41] = 9;
        assert!(!dns.contains(&bytes) && !Traffic::Protocol(60).contains(&bytes));
    }

    #[test]
    fn traffic_is_restored_from_its_words() {
        let all =
            [Traffic::All, Traffic::Protocol(255), Traffic::Port { protocol: 6, port: 65535 }];
        for traffic in all {
            assert_eq!(Traffic::from_word(traffic.to_word()), traffic);
        }
        assert_eq!(Traffic::from_word(u64::MAX), Traffic::All);
    }
}
