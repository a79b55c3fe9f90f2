//! A packet as a flow program sees it: its bytes, and the places of its headers.
//!
//! ```text
//!   context (pkt)   0 now:64   8 expire_at:64   16 EtherType:16   18 protocol:8   19 fragment:8
//!   description     0 network:64   8 transport:64   16 end:64      addresses
//!                   24 length:32   28 l2_len:8   29 l4_len:8   30 l3_len:16
//! ```
//!
//! `length` is the frame's, Ethernet header included; rates count it. The bytes begin with the IP
//! header and end with the packet, without the link's padding. A fragment other than the first has
//! no transport header: `transport` is then the end. Where the transport header is truncated, a
//! comparison with the end fails. `l3_len` is the length of the IP header with its options or
//! extension headers. `l4_len` is the length of the transport header; for TCP, its data offset.

use wire::{ipv4, ipv6};

use super::memory::{BYTES, DESCRIPTION};

/// Size of the context of `pkt` in bytes; programs must not read the last four.
pub(super) const CONTEXT: usize = 24;

const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMP: u8 = 1;
const ICMP6: u8 = 58;
/// Size of an Ethernet header without tags.
const ETHERNET: u8 = 14;

/// A parsed packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Parsed<'a> {
    /// The bytes from the IP header to the packet's end.
    pub(super) bytes: &'a [u8],
    ethertype: u16,
    protocol: u8,
    fragment: bool,
    transport: usize,
}

impl<'a> Parsed<'a> {
    /// Parses a packet that begins with its IP header; `None` if it is malformed.
    pub(super) fn new(frame: &'a [u8]) -> Option<Self> {
        match frame.first()? >> 4 {
            4 => {
                let ip = ipv4::View::parse(frame).ok()?;
                let bytes = &frame[..usize::from(ip.total_len())];
                let later = ip.fragment_offset() > 0;
                let transport = if later { bytes.len() } else { ip.header_len() };
                let (protocol, fragment) = (ip.protocol(), ip.is_fragment());
                Some(Self { bytes, ethertype: 0x0800, protocol, fragment, transport })
            }
            6 => {
                let ip = ipv6::View::parse(frame).ok()?;
                let upper = ip.upper().ok()?;
                let bytes = &frame[..ipv6::LEN + ip.payload().len()];
                let fragment = upper.fragment.is_some_and(|part| part.more || part.offset > 0);
                let later = upper.fragment.is_some_and(|part| part.offset > 0);
                let transport = if later { bytes.len() } else { upper.offset };
                let protocol = upper.protocol;
                Some(Self { bytes, ethertype: 0x86dd, protocol, fragment, transport })
            }
            _ => None,
        }
    }

    pub(super) fn context(&self, now: u64, expire_at: u64) -> [u8; CONTEXT] {
        let mut context = [0; CONTEXT];
        context[..8].copy_from_slice(&now.to_le_bytes());
        context[8..16].copy_from_slice(&expire_at.to_le_bytes());
        context[16..18].copy_from_slice(&self.ethertype.to_le_bytes());
        context[18] = self.protocol;
        context[19] = self.fragment.into();
        context
    }

    pub(super) fn description(&self, length: u32) -> [u8; DESCRIPTION] {
        let mut description = [0; DESCRIPTION];
        let ends = [0, self.transport, self.bytes.len()];
        for (at, offset) in ends.into_iter().enumerate() {
            let address = BYTES + offset as u64;
            description[8 * at..8 * at + 8].copy_from_slice(&address.to_le_bytes());
        }
        description[24..28].copy_from_slice(&length.to_le_bytes());
        description[28] = ETHERNET;
        description[29] = self.transport_len();
        let l3 = if self.transport == self.bytes.len() { 0 } else { self.transport as u16 };
        description[30..32].copy_from_slice(&l3.to_le_bytes());
        description
    }

    fn transport_len(&self) -> u8 {
        let header = &self.bytes[self.transport..];
        match self.protocol {
            TCP => header.get(12).map_or(0, |offset| offset >> 4 << 2),
            UDP | ICMP | ICMP6 if header.len() >= 8 => 8,
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parsed_packet_has_offsets_of_its_headers() {
        let mut bytes = [0u8; 60];
        let header = ipv4::Header { total_len: 48, protocol: TCP, ..Default::default() };
        header.emit(&mut bytes).unwrap();
        bytes[20 + 12] = 0x70;
        let packet = Parsed::new(&bytes).unwrap();
        // Without the padding.
        assert_eq!((packet.bytes.len(), packet.transport), (48, 20));
        let description = packet.description(74);
        assert_eq!(description[8], 20);
        assert_eq!(description[16], 48);
        assert_eq!(description[24..], [74, 0, 0, 0, 14, 28, 20, 0]);
        // A later fragment.
        bytes[7] = 1;
        let packet = Parsed::new(&bytes).unwrap();
        assert_eq!((packet.fragment, packet.transport), (true, 48));
        assert_eq!(packet.context(1, 2)[16..20], [0, 8, TCP, 1]);
        assert!(Parsed::new(&bytes[..47]).is_none());
        assert!(Parsed::new(&[]).is_none());
    }
}
