//! The IPv6 header and its extension headers (RFC 8200, RFC 4302).
//!
//! ```text
//!    0               1               2               3
//!    0 1 2 3 4 5 6 7 0 1 2 3 4 5 6 7 0 1 2 3 4 5 6 7 0 1 2 3 4 5 6 7
//!   +-------+---------------+---------------------------------------+
//!   |   6   | traffic class |              flow label               |
//!   +-------+---------------+-------+---------------+---------------+
//!   |        payload length         |  next header  |   hop limit   |
//!   +-------------------------------+---------------+---------------+
//!   |                     source address, 16 bytes                  |
//!   +---------------------------------------------------------------+
//!   |                  destination address, 16 bytes                |
//!   +---------------------------------------------------------------+
//!
//!   extension:  next header | length in 8 bytes, less 1 | …
//!   fragment:   next header | 0 | offset:13 0:2 M:1 | identification:32
//!   AH:         next header | length in 4 bytes, less 2 | …
//! ```
//!
//! A router forwards by the fixed header alone (RFC 8200, 4); [`View::upper`] is for code that
//! needs the protocol behind the extension headers, such as a filter. The walk takes at most
//! [`MAX_EXTENSIONS`] of them, never reads past the payload, and stops at a fragment that is not
//! the first, because the bytes there are the middle of a payload. ESP and unknown protocols end
//! the walk as upper protocols do. Jumbograms (RFC 2675) are not supported: a payload length of 0
//! means none.

use crate::BadHeader;
use crate::octets::{put, u16_at, u32_at, u128_at};

/// The length of the fixed header in bytes.
pub const LEN: usize = 40;
/// The most extension headers walked. RFC 8200, 4.1 recommends an order in which
/// there are at most seven.
pub const MAX_EXTENSIONS: usize = 8;

/// Next header: hop-by-hop options.
pub const HOP_BY_HOP: u8 = 0;
/// Next header: routing.
pub const ROUTING: u8 = 43;
/// Next header: fragment.
pub const FRAGMENT: u8 = 44;
/// Next header: authentication (AH).
pub const AUTHENTICATION: u8 = 51;
/// Next header: nothing follows.
pub const NO_NEXT: u8 = 59;
/// Next header: destination options.
pub const DESTINATION: u8 = 60;

/// Reads the source, the destination and the payload length of a packet's header, and checks nothing: for packets
/// that parse has accepted. `None` if there are fewer than 40 bytes.
#[inline(always)]
pub fn addresses(packet: &[u8]) -> Option<(u128, u128, u16)> {
    let header = packet.first_chunk::<LEN>()?;
    Some((u128_at(header, 8), u128_at(header, 24), u16_at(header, 4)))
}

/// A view over a packet.
#[derive(Clone, Copy, Debug)]
pub struct View<T> {
    bytes: T,
}

impl<T: AsRef<[u8]>> View<T> {
    /// Parses `bytes` as a packet, possibly followed by padding.
    ///
    /// # Errors
    ///
    /// [`BadHeader::Truncated`] below 40 bytes or below what the payload length
    /// promises, [`BadHeader::Version`] if that is not 6.
    #[inline]
    pub fn parse(bytes: T) -> Result<Self, BadHeader> {
        let shown = bytes.as_ref();
        if shown.len() < LEN {
            return Err(BadHeader::Truncated);
        }
        if shown[0] >> 4 != 6 {
            return Err(BadHeader::Version);
        }
        if shown.len() < LEN + usize::from(u16_at(shown, 4)) {
            return Err(BadHeader::Truncated);
        }
        Ok(Self { bytes })
    }

    /// Returns the traffic class: DSCP in the upper six bits, ECN in the lower two.
    #[inline]
    pub fn traffic_class(&self) -> u8 {
        (u16_at(self.bytes.as_ref(), 0) >> 4) as u8
    }

    /// Returns the flow label, 20 bits.
    #[inline]
    pub fn flow_label(&self) -> u32 {
        u32_at(self.bytes.as_ref(), 0) & 0x000f_ffff
    }

    /// Returns the payload length: the bytes after the fixed header.
    #[inline]
    pub fn payload_len(&self) -> u16 {
        u16_at(self.bytes.as_ref(), 4)
    }

    /// Returns the type of the first header after the fixed one.
    #[inline]
    pub fn next_header(&self) -> u8 {
        self.bytes.as_ref()[6]
    }

    /// Returns the hop limit.
    #[inline]
    pub fn hop_limit(&self) -> u8 {
        self.bytes.as_ref()[7]
    }

    /// Returns the source address.
    #[inline]
    pub fn src(&self) -> u128 {
        u128_at(self.bytes.as_ref(), 8)
    }

    /// Returns the destination address.
    #[inline]
    pub fn dst(&self) -> u128 {
        u128_at(self.bytes.as_ref(), 24)
    }

    /// Returns the payload: extension headers included, without the link's padding.
    #[inline]
    pub fn payload(&self) -> &[u8] {
        &self.bytes.as_ref()[LEN..LEN + usize::from(self.payload_len())]
    }

    /// Reads all fields.
    pub fn header(&self) -> Header {
        Header {
            traffic_class: self.traffic_class(),
            flow_label: self.flow_label(),
            payload_len: self.payload_len(),
            next_header: self.next_header(),
            hop_limit: self.hop_limit(),
            src: self.src(),
            dst: self.dst(),
        }
    }

    /// Walks the extension headers to the upper protocol. O(headers).
    ///
    /// # Errors
    ///
    /// [`BadHeader::Truncated`] if the payload ends within an extension header,
    /// [`BadHeader::Chain`] if there are more than [`MAX_EXTENSIONS`], [`BadHeader::Kind`] if
    /// hop-by-hop options are not first (RFC 8200, 4.1).
    ///
    /// # Examples
    ///
    /// ```
    /// use fingerpost_wire::ipv6;
    /// // UDP behind eight bytes of hop-by-hop options (a PadN of six).
    /// let mut bytes = [0u8; 40 + 8 + 8];
    /// ipv6::Header { payload_len: 16, next_header: ipv6::HOP_BY_HOP, ..Default::default() }.emit(&mut bytes).unwrap();
    /// bytes[40..48].copy_from_slice(&[17, 0, 1, 4, 0, 0, 0, 0]);
    /// let upper = ipv6::View::parse(&bytes[..]).unwrap().upper().unwrap();
    /// assert_eq!((upper.protocol, upper.offset), (17, 48));
    /// ```
    pub fn upper(&self) -> Result<Upper, BadHeader> {
        let payload = self.payload();
        let mut upper = Upper { protocol: self.next_header(), offset: LEN, fragment: None };
        for count in 0..=MAX_EXTENSIONS {
            let rest = &payload[upper.offset - LEN..];
            let unit = match upper.protocol {
                HOP_BY_HOP if count > 0 => return Err(BadHeader::Kind),
                HOP_BY_HOP | ROUTING | DESTINATION => 8,
                AUTHENTICATION => 4,
                FRAGMENT => 0,
                _ => return Ok(upper),
            };
            if count == MAX_EXTENSIONS {
                return Err(BadHeader::Chain);
            }
            if rest.len() < 8 {
                return Err(BadHeader::Truncated);
            }
            let len = match unit {
                8 => 8 * (usize::from(rest[1]) + 1),
                4 => 4 * (usize::from(rest[1]) + 2),
                _ => 8,
            };
            if rest.len() < len {
                return Err(BadHeader::Truncated);
            }
            if unit == 0 {
                let place = u16_at(rest, 2);
                let fragment =
                    Fragment { offset: place >> 3, more: place & 1 == 1, id: u32_at(rest, 4) };
                upper.fragment = Some(fragment);
            }
            upper.protocol = rest[0];
            upper.offset += len;
            if upper.fragment.is_some_and(|fragment| fragment.offset > 0) {
                return Ok(upper);
            }
        }
        Err(BadHeader::Chain)
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> View<T> {
    /// Decrements the hop limit, which must not be 0.
    #[inline]
    pub fn decrement_hop_limit(&mut self) {
        let bytes = self.bytes.as_mut();
        bytes[7] = bytes[7].wrapping_sub(1);
    }

    /// Sets the hop limit.
    #[inline]
    pub fn set_hop_limit(&mut self, hop_limit: u8) {
        self.bytes.as_mut()[7] = hop_limit;
    }

    /// Sets the traffic class, DSCP and ECN.
    #[inline]
    pub fn set_traffic_class(&mut self, class: u8) {
        let front = u16_at(self.bytes.as_ref(), 0) & 0xf00f | u16::from(class) << 4;
        put(self.bytes.as_mut(), 0, front.to_be_bytes());
    }

    /// Sets the source address.
    #[inline]
    pub fn set_src(&mut self, src: u128) {
        put(self.bytes.as_mut(), 8, src.to_be_bytes());
    }

    /// Sets the destination address.
    #[inline]
    pub fn set_dst(&mut self, dst: u128) {
        put(self.bytes.as_mut(), 24, dst.to_be_bytes());
    }
}

/// The protocol behind the extension headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Upper {
    /// The first protocol that is not an extension header.
    pub protocol: u8,
    /// Its offset in bytes from the start of the packet.
    pub offset: usize,
    /// The fragment header, if there is one. With a fragment offset above 0 the bytes at `offset`
    /// are the middle of the payload, not its header.
    pub fragment: Option<Fragment>,
}

/// The fields of a fragment header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragment {
    /// The fragment's offset in the packet, in units of 8 bytes.
    pub offset: u16,
    /// Whether more fragments follow.
    pub more: bool,
    /// The identification, equal among the fragments of one packet.
    pub id: u32,
}

/// The fields of the fixed header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// DSCP in the upper six bits, ECN in the lower two.
    pub traffic_class: u8,
    /// The flow label, 20 bits.
    pub flow_label: u32,
    /// The payload length in bytes.
    pub payload_len: u16,
    /// The type of the next header.
    pub next_header: u8,
    /// The hop limit.
    pub hop_limit: u8,
    /// The source address.
    pub src: u128,
    /// The destination address.
    pub dst: u128,
}

impl Header {
    /// Writes the fixed header and returns its length.
    ///
    /// # Errors
    ///
    /// [`BadHeader::Truncated`] if there is no room, [`BadHeader::Length`] if the
    /// flow label is too large for its field.
    pub fn emit(&self, bytes: &mut [u8]) -> Result<usize, BadHeader> {
        if self.flow_label > 0x000f_ffff {
            return Err(BadHeader::Length);
        }
        let bytes = bytes.get_mut(..LEN).ok_or(BadHeader::Truncated)?;
        let front = 6 << 28 | u32::from(self.traffic_class) << 20 | self.flow_label;
        put(bytes, 0, front.to_be_bytes());
        put(bytes, 4, self.payload_len.to_be_bytes());
        bytes[6] = self.next_header;
        bytes[7] = self.hop_limit;
        put(bytes, 8, self.src.to_be_bytes());
        put(bytes, 24, self.dst.to_be_bytes());
        Ok(LEN)
    }
}
