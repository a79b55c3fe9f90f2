//! Ports: the numbers by which packets of two hosts and one protocol are distinguished.
//!
//! | protocol | numbers | source |
//! |---|---|---|
//! | TCP, UDP, DCCP, SCTP, UDP-Lite | source and destination port | RFC 9293, RFC 768, RFC 4340, RFC 9260, RFC 3828 |
//! | ESP, AH | the halves of the security parameters index | RFC 4303, RFC 4302 |

use crate::octets::u16_at;
use crate::{ipv6, tcp, udp};

/// The protocols that have ports: TCP, UDP, DCCP, SCTP and UDP-Lite.
pub const WITH_PORTS: [u8; 5] = [tcp::PROTOCOL, udp::PROTOCOL, 33, 132, 136];

const ESP: u8 = 50;

/// Returns the source and the destination port of a packet by its protocol and the bytes behind its IP
/// headers; for ESP and AH the halves of the index. `None` for other protocols, and if the bytes end before.
#[inline]
pub fn ports(protocol: u8, payload: &[u8]) -> Option<(u16, u16)> {
    let at = match protocol {
        ESP => 0,
        ipv6::AUTHENTICATION => 4,
        _ if WITH_PORTS.contains(&protocol) => 0,
        _ => return None,
    };
    let ports = payload.get(at..at + 4)?;
    Some((u16_at(ports, 0), u16_at(ports, 2)))
}

#[cfg(test)]
mod tests {
    use super::ports;

    #[test]
    fn ports_are_read_where_a_protocol_has_them() {
        let bytes = [1, 2, 3, 4, 5, 6, 7, 8];
        for protocol in 0..=u8::MAX {
            let expected = match protocol {
                6 | 17 | 33 | 50 | 132 | 136 => Some((0x0102, 0x0304)),
                51 => Some((0x0506, 0x0708)),
                _ => None,
            };
            assert_eq!(ports(protocol, &bytes), expected, "{protocol}");
        }
        assert_eq!((ports(6, &bytes[..3]), ports(51, &bytes[..7])), (None, None));
    }
}
