//! The packet that an ICMP error quotes (RFC 792, RFC 4443): its IP header, which may be all that is there.
//!
//! ```text
//!   type │ code │ checksum │ 4 bytes │ IP header of the quoted packet │ …
//! ```
//!
//! The header is read as it is: its lengths and its checksum may be wrong, since the packet may have been
//! changed on its way, and the rest of it may be missing.

use crate::octets::{u32_at, u128_at};
use crate::{icmp, ipv4, ipv6};

/// The fields of a quoted packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quoted<A> {
    /// The source.
    pub src: A,
    /// The destination.
    pub dst: A,
    /// The protocol; of IPv6 that of the first header, which may be an extension header.
    pub protocol: u8,
    /// The flow label; 0 of IPv4.
    pub flow_label: u32,
}

/// Reads the packet that an ICMP message quotes; `None` if the message is no error, or ends within the header.
pub fn quoted_v4(message: &[u8]) -> Option<Quoted<u32>> {
    // Destination Unreachable, Source Quench, Redirect, Time Exceeded, Parameter Problem (RFC 792).
    let head = quoted(message, |kind| matches!(kind, 3 | 4 | 5 | 11 | 12))?.get(..ipv4::LEN)?;
    (head[0] >> 4 == 4).then(|| Quoted {
        src: u32_at(head, 12),
        dst: u32_at(head, 16),
        protocol: head[9],
        flow_label: 0,
    })
}

/// Reads the packet that an ICMPv6 message quotes, like [`quoted_v4`].
pub fn quoted_v6(message: &[u8]) -> Option<Quoted<u128>> {
    // Destination Unreachable, Packet Too Big, Time Exceeded, Parameter Problem (RFC 4443).
    let head = quoted(message, |kind| matches!(kind, 1..=4))?.get(..ipv6::LEN)?;
    (head[0] >> 4 == 6).then(|| Quoted {
        src: u128_at(head, 8),
        dst: u128_at(head, 24),
        protocol: head[6],
        flow_label: u32_at(head, 0) & 0x000f_ffff,
    })
}

fn quoted(message: &[u8], is_error: impl Fn(u8) -> bool) -> Option<&[u8]> {
    message.get(icmp::LEN..).filter(|_| is_error(message[0]))
}

#[cfg(test)]
mod tests {
    use super::{Quoted, quoted_v4, quoted_v6};
    use crate::{ipv4, ipv6};

    #[test]
    fn header_of_an_error_is_read_and_that_of_a_request_is_not() {
        let mut message = [0; 8 + ipv4::LEN];
        let header = ipv4::Header {
            total_len: 1500,
            ttl: 1,
            protocol: 17,
            src: 0x0a00_0001,
            dst: 0x0b00_0001,
            ..Default::default()
        };
        header.emit(&mut message[8..]).unwrap();
        let expected = Quoted { src: header.src, dst: header.dst, protocol: 17, flow_label: 0 };
        for kind in 0..=u8::MAX {
            message[0] = kind;
            let is_error = [3, 4, 5, 11, 12].contains(&kind);
            assert_eq!(quoted_v4(&message), is_error.then_some(expected), "{kind}");
        }
        message[0] = 3;
        assert!((0..message.len()).all(|len| quoted_v4(&message[..len]).is_none()));
        message[8] = 0x65;
        assert_eq!(quoted_v4(&message), None);
    }

    #[test]
    fn header_of_an_icmpv6_error_is_read() {
        let mut message = [0; 8 + ipv6::LEN];
        let header = ipv6::Header {
            payload_len: 1000,
            hop_limit: 1,
            next_header: 17,
            flow_label: 0x5_4321,
            traffic_class: 0xff,
            src: 1 << 100 | 2,
            dst: 3 << 90 | 4,
        };
        header.emit(&mut message[8..]).unwrap();
        let (src, dst, flow_label) = (header.src, header.dst, header.flow_label);
        let expected = Quoted { src, dst, protocol: 17, flow_label };
        for kind in 0..=u8::MAX {
            message[0] = kind;
            assert_eq!(quoted_v6(&message), (1..=4).contains(&kind).then_some(expected), "{kind}");
        }
        message[0] = 1;
        assert!((0..message.len()).all(|len| quoted_v6(&message[..len]).is_none()));
    }
}
