//! Fragmentation of IPv4 packets (RFC 791, 2.3 and 3.2).
//!
//! ```text
//!   | header | payload ............................... |      longer than the MTU
//!   | header | step .... |   | header | step .... |   | header | rest |
//!     offset 0, M            offset + step, M          offset + 2 step, M as in the packet
//! ```
//!
//! A step is the largest multiple of 8 bytes that fits the MTU behind the header; the last fragment may be
//! longer, as far as it fits. Each fragment has the
//! packet's header with its own length, offset, More Fragments flag and checksum. A packet that is
//! itself a fragment is divided in the same way: the offsets continue from its own. Options without the
//! copied flag are in the first fragment of a datagram only; in later ones No Operation takes their
//! place, as in Linux, so that all headers have one length.

use core::ops::Range;

use crate::checksum;
use crate::ipv4::{DONT_FRAGMENT, LEN, MAX_OPTIONS, MORE_FRAGMENTS, View};
use crate::octets::put;

/// The unit of offsets, in bytes.
const UNIT: usize = 8;
/// The largest offset, in units.
const MAX_OFFSET: usize = 0x1fff;
/// The most bytes of a header.
const MAX_HEADER: usize = LEN + MAX_OPTIONS;
/// Option: end of the list (RFC 791, 3.1).
const END: u8 = 0;
/// Option: No Operation.
const NO_OPERATION: u8 = 1;
/// The flag of option types that all fragments contain.
const COPIED: u8 = 0x80;

/// The division of one packet into fragments, which are numbered from 0.
#[derive(Clone, Debug)]
pub struct Fragments {
    /// The header, and its copy for fragments after a datagram's first.
    first: [u8; MAX_HEADER],
    later: [u8; MAX_HEADER],
    header_len: usize,
    payload_len: usize,
    step: usize,
    count: usize,
    /// The packet's own offset, in units.
    offset: u16,
    /// The packet's own More Fragments flag.
    more: bool,
}

impl Fragments {
    /// Divides a packet for a link with this MTU. `None` if it has no valid header, fits, or has Don't
    /// Fragment set; if the MTU has no room for eight bytes of payload; or if the packet is a fragment that
    /// reaches beyond the 64 KiB of a datagram, so that an offset would not fit its field.
    pub fn new(packet: &[u8], mtu: u16) -> Option<Self> {
        let bytes = packet;
        let packet = View::parse(bytes).ok()?;
        let header_len = packet.header_len();
        let payload_len = packet.payload().len();
        let room = usize::from(mtu).saturating_sub(header_len);
        let step = room / UNIT * UNIT;
        let fits = packet.total_len() <= mtu;
        if fits || packet.flags() & DONT_FRAGMENT != 0 || step == 0 {
            return None;
        }
        let mut first = [0; MAX_HEADER];
        first[..header_len].copy_from_slice(&bytes[..header_len]);
        let mut later = first;
        let offset = packet.fragment_offset();
        if offset == 0 {
            keep_copied_options(later.get_mut(LEN..header_len).unwrap_or_default());
        }
        let more = packet.flags() & MORE_FRAGMENTS != 0;
        let count = payload_len.saturating_sub(room).div_ceil(step) + 1;
        if usize::from(offset) + (count - 1) * step / UNIT > MAX_OFFSET {
            return None;
        }
        Some(Self { first, later, header_len, payload_len, step, count, offset, more })
    }

    /// Returns the number of fragments, at least 2.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Returns the length of each fragment's header.
    pub fn header_len(&self) -> usize {
        self.header_len
    }

    /// Returns the bytes of the packet that are the payload of a fragment; empty beyond the last one.
    pub fn payload(&self, number: usize) -> Range<usize> {
        let start = if number < self.count { number * self.step } else { self.payload_len };
        let is_last = number + 1 >= self.count;
        let end = if is_last { self.payload_len } else { start + self.step };
        self.header_len + start..self.header_len + end
    }

    /// Writes the header of a fragment to the beginning of `bytes`, and returns whether there is room.
    pub fn write_header(&self, number: usize, bytes: &mut [u8]) -> bool {
        let Range { start, end } = self.payload(number);
        let units = usize::from(self.offset) + (start - self.header_len) / UNIT;
        let Some(bytes) = bytes.get_mut(..self.header_len) else { return false };
        let header = if number == 0 { &self.first } else { &self.later };
        bytes.copy_from_slice(&header[..self.header_len]);
        let more = self.more || end - self.header_len < self.payload_len;
        let flags = if more { u16::from(MORE_FRAGMENTS) << 13 } else { 0 };
        let total = self.header_len + (end - start);
        put(bytes, 2, (total as u16).to_be_bytes());
        put(bytes, 6, (flags | units as u16).to_be_bytes());
        put(bytes, 10, [0, 0]);
        let sum = checksum::checksum(bytes);
        put(bytes, 10, sum.to_be_bytes());
        true
    }
}

/// Replaces the options that only a datagram's first fragment contains. Options that cannot be parsed
/// stay, with those behind them.
fn keep_copied_options(mut options: &mut [u8]) {
    while let Some(&kind) = options.first() {
        let len = match (kind, options.get(1)) {
            (END, _) => return,
            (NO_OPERATION, _) => 1,
            (_, Some(&len)) if len >= 2 && usize::from(len) <= options.len() => usize::from(len),
            _ => return,
        };
        let (option, rest) = options.split_at_mut(len);
        if kind & COPIED == 0 {
            option.fill(NO_OPERATION);
        }
        options = rest;
    }
}
