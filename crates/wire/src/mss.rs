//! MSS clamping: limits the segment size of TCP by the option in its SYNs (RFC 9293, 3.7.1).
//!
//! A node that makes packets longer on their path, such as a tunnel entry, can answer packets that
//! become too big (`icmp_error.rs`); but where such answers are filtered, connections hang.
//! Lowering the maximum segment size that both ends announce in their SYNs keeps TCP below the
//! limit from the beginning. An end that announces none sends at most 536 bytes over IPv4 and 1220
//! over IPv6.
//!
//! Only the option's value changes, and the checksum with it (RFC 1624). The option may be at an
//! odd offset; its bytes are then swapped in a sum of 16-bit words.

use crate::{BadHeader, checksum, ipv4, ipv6, tcp};

const END: u8 = 0;
const NO_OPERATION: u8 = 1;
const MAXIMUM_SEGMENT_SIZE: u8 = 2;

/// Lowers the maximum segment size of a TCP SYN to `most`, if it is higher, and returns whether it
/// was. Packets other than complete SYNs, and those with malformed options, are unchanged.
///
/// # Errors
///
/// The errors of the views for the IP header.
pub fn clamp(packet: &mut [u8], most: u16) -> Result<bool, BadHeader> {
    let (start, end) = match packet.first().map(|first| first >> 4) {
        Some(4) => {
            let view = ipv4::View::parse(&*packet)?;
            if view.protocol() != tcp::PROTOCOL || view.is_fragment() {
                return Ok(false);
            }
            (view.header_len(), usize::from(view.total_len()))
        }
        Some(6) => {
            let view = ipv6::View::parse(&*packet)?;
            match view.upper() {
                Ok(upper) if upper.protocol == tcp::PROTOCOL && upper.fragment.is_none() => {
                    (upper.offset, ipv6::LEN + usize::from(view.payload_len()))
                }
                _ => return Ok(false),
            }
        }
        Some(_) => return Err(BadHeader::Version),
        None => return Err(BadHeader::Truncated),
    };
    let segment = &mut packet[start..end];
    let Ok(mut view) = tcp::View::parse(&mut *segment) else { return Ok(false) };
    if view.flags() & tcp::SYN == 0 {
        return Ok(false);
    }
    let Some(at) = value_at(view.options()) else { return Ok(false) };
    let options = view.options();
    let old = u16::from_be_bytes([options[at], options[at + 1]]);
    if old <= most {
        return Ok(false);
    }
    let sum = match at % 2 {
        0 => checksum::update(view.checksum(), old, most),
        _ => checksum::update(view.checksum(), old.swap_bytes(), most.swap_bytes()),
    };
    view.set_checksum(sum);
    segment[tcp::LEN + at..tcp::LEN + at + 2].copy_from_slice(&most.to_be_bytes());
    Ok(true)
}

/// Returns the offset of the option's value in the options.
fn value_at(options: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        match *options.get(at)? {
            END => return None,
            NO_OPERATION => at += 1,
            kind => {
                let len = usize::from(*options.get(at + 1)?);
                if len < 2 || at + len > options.len() {
                    return None;
                }
                if kind == MAXIMUM_SEGMENT_SIZE {
                    return (len == 4).then_some(at + 2);
                }
                at += len;
            }
        }
    }
}
