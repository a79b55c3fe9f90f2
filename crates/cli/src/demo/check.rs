//! The checks of every packet that arrives: the format of test packets, and two checkers.
//!
//! A test packet contains the data that a checker needs: its sink, its TTL as sent, a copy of its
//! destination, and a hash of all bytes that a router must not change. The two families, with
//! offsets from the first byte of the frame (other bytes are in the hash or compared):
//!
//! ```text
//!          IPv4, 64 bytes                    IPv6, 96 bytes
//!   0  destination MAC                0  destination MAC
//!   6  source MAC                     6  source MAC
//!  12  0x0800                        12  0x86dd
//!  14  IPv4, no options              14  IPv6
//!  22    TTL                         20    next header (UDP)
//!  23    protocol (UDP)              21    hop limit
//!  24    header checksum             22    source
//!  26    source                      38    destination
//!  30    destination                 54  UDP
//!  34  UDP                           62  mark, sink, hop limit as sent
//!  42  mark, sink, TTL as sent       66  sequence number
//!  46  sequence number               70  destination copy
//!  50  destination copy              86  two bytes of padding
//!  54  two bytes of padding          88  hash
//!  56  hash
//! ```
//!
//! The hash covers the 8-byte words at the offsets of [`V4_WORDS`] or [`V6_WORDS`]: all bytes from
//! the IP header on except TTL (hop limit), the IPv4 header checksum and protocol, and the UDP
//! checksum of IPv6 (which covers the hash; IPv4 packets have none), which are checked separately.
//!
//! [`Checker::program`] is the check as an XDP program for a sink's interface: it sees every packet,
//! counts its finding per CPU and drops it. [`Checker::check`] is the same in Rust, for memory ports
//! and as the reference that tests compare the program with.

mod program;

use anyhow::Result;
use port::af_xdp::bpf::{Kind, Map};

/// The length of an IPv4 test frame.
pub(super) const V4_LEN: usize = 64;
/// The length of an IPv6 test frame.
pub(super) const V6_LEN: usize = 96;
/// The offset of the payload: mark, sink, TTL as sent, sequence number, destination.
pub(super) const V4_PAYLOAD: usize = 42;
/// The same for IPv6.
pub(super) const V6_PAYLOAD: usize = 62;
/// The offset of the hash.
pub(super) const V4_HASH: usize = 56;
/// The same for IPv6.
pub(super) const V6_HASH: usize = 88;
/// The hashed words; the last two overlap, so that they end where the hash begins.
pub(super) const V4_WORDS: [usize; 5] = [14, 26, 34, 42, 48];
/// The same for IPv6. The first word's last byte is the hop limit: left out;
/// UDP's checksum lies between two words.
pub(super) const V6_WORDS: [usize; 10] = [14, 22, 30, 38, 46, 52, 62, 70, 78, 80];
/// The first two bytes of the payload.
pub(super) const MARK: [u8; 2] = *b"fp";

const UDP: u8 = 17;
const HASH_SEED: u64 = 0x243f_6a88_85a3_08d3;
const HASH_FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
/// All bytes of a word but the last in memory.
const ALL_BUT_LAST: u64 = u64::from_ne_bytes([255, 255, 255, 255, 255, 255, 255, 0]);

/// The result of the check of one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
pub(super) enum Finding {
    /// All checks passed.
    Right,
    /// Not a packet of the generator: ARP, or IPv6 to a multicast or link-local address.
    Foreign,
    /// Malformed: another type, length, header or mark than a test packet.
    Form,
    /// A packet for the other sink.
    Sink,
    /// The destination MAC is not that of the sink.
    DestinationMac,
    /// The source MAC is not that of the router's interface.
    SourceMac,
    /// TTL or hop limit is not one less than as sent.
    Ttl,
    /// The IPv4 header checksum is wrong.
    Checksum,
    /// The destination address has changed.
    Destination,
    /// Other bytes that a router must not change have changed.
    Payload,
}

impl Finding {
    /// All of them, in the order of their numbers.
    pub(super) const ALL: [Self; 10] = [
        Self::Right,
        Self::Foreign,
        Self::Form,
        Self::Sink,
        Self::DestinationMac,
        Self::SourceMac,
        Self::Ttl,
        Self::Checksum,
        Self::Destination,
        Self::Payload,
    ];

    /// Returns its name in a report.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Right => "right",
            Self::Foreign => "foreign",
            Self::Form => "form",
            Self::Sink => "sink",
            Self::DestinationMac => "destination MAC",
            Self::SourceMac => "source MAC",
            Self::Ttl => "TTL",
            Self::Checksum => "checksum",
            Self::Destination => "destination",
            Self::Payload => "payload",
        }
    }
}

/// The number of packets by finding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Findings(pub(super) [u64; Finding::ALL.len()]);

impl Findings {
    /// Counts one packet.
    pub(super) fn add(&mut self, finding: Finding) {
        self.0[finding as usize] += 1;
    }

    /// Returns the sum of two sinks.
    pub(super) fn plus(mut self, other: Self) -> Self {
        self.0.iter_mut().zip(other.0).for_each(|(sum, more)| *sum += more);
        self
    }

    /// Returns the difference to an earlier reading.
    pub(super) fn since(mut self, before: Self) -> Self {
        self.0.iter_mut().zip(before.0).for_each(|(now, then)| *now -= then);
        self
    }

    /// Returns the number of right packets.
    pub(super) fn right(&self) -> u64 {
        self.0[Finding::Right as usize]
    }

    /// Returns the number of foreign packets.
    pub(super) fn foreign(&self) -> u64 {
        self.0[Finding::Foreign as usize]
    }

    /// Returns the number of wrong packets, whatever the reason.
    pub(super) fn wrong(&self) -> u64 {
        self.0[Finding::Form as usize..].iter().sum()
    }
}

/// Hashes words as the checkers do.
pub(super) fn hash(words: impl IntoIterator<Item = u64>) -> u64 {
    words.into_iter().fold(HASH_SEED, |hash, word| {
        let hash = (hash ^ word).wrapping_mul(HASH_FACTOR);
        hash ^ hash >> 32
    })
}

fn word(frame: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(std::array::from_fn(|i| frame[at + i]))
}

/// Hashes the bytes of an IPv4 frame that a router must not change.
pub(super) fn hash_v4(frame: &[u8]) -> u64 {
    hash(V4_WORDS.map(|at| word(frame, at)))
}

/// Hashes the bytes of an IPv6 frame that a router must not change.
pub(super) fn hash_v6(frame: &[u8]) -> u64 {
    let mask = |at| if at == V6_WORDS[0] { ALL_BUT_LAST } else { !0 };
    hash(V6_WORDS.map(|at| word(frame, at) & mask(at)))
}

/// The checker of one sink.
#[derive(Clone, Copy, Debug)]
pub(super) struct Checker {
    /// Its number.
    pub(super) sink: u8,
    /// Its own MAC.
    pub(super) dst_mac: [u8; 6],
    /// The MAC of the router's interface towards it.
    pub(super) src_mac: [u8; 6],
}

impl Checker {
    /// Checks one frame.
    pub(super) fn check(&self, frame: &[u8]) -> Finding {
        if frame.len() < 54 {
            return Finding::Form;
        }
        match [frame[12], frame[13]] {
            [0x08, 0x06] => Finding::Foreign,
            [0x08, 0x00] => self.check_v4(frame),
            [0x86, 0xdd] if frame[38] == 0xff || frame[38..40] == [0xfe, 0x80] => Finding::Foreign,
            [0x86, 0xdd] => self.check_v6(frame),
            _ => Finding::Form,
        }
    }

    fn check_v4(&self, frame: &[u8]) -> Finding {
        let payload = V4_PAYLOAD;
        if frame.len() != V4_LEN
            || frame[14] != 0x45
            || frame[23] != UDP
            || frame[payload..payload + 2] != MARK
        {
            return Finding::Form;
        }
        if let Some(finding) = self.check_link(frame, payload) {
            return finding;
        }
        let sum: u64 = V4_HEADER.map(|at| quad(frame, at)).sum();
        if frame[22] != frame[payload + 3].wrapping_sub(1) {
            Finding::Ttl
        } else if fold(sum) != 0xffff {
            Finding::Checksum
        } else if frame[30..34] != frame[payload + 8..payload + 12] {
            Finding::Destination
        } else if hash_v4(frame) != word(frame, V4_HASH) {
            Finding::Payload
        } else {
            Finding::Right
        }
    }

    fn check_v6(&self, frame: &[u8]) -> Finding {
        let payload = V6_PAYLOAD;
        if frame.len() != V6_LEN
            || frame[14] != 0x60
            || frame[20] != UDP
            || frame[payload..payload + 2] != MARK
        {
            return Finding::Form;
        }
        if let Some(finding) = self.check_link(frame, payload) {
            return finding;
        }
        if frame[21] != frame[payload + 3].wrapping_sub(1) {
            Finding::Ttl
        } else if frame[38..54] != frame[payload + 8..payload + 24] {
            Finding::Destination
        } else if hash_v6(frame) != word(frame, V6_HASH) || fold(udp_sum(frame)) != 0xffff {
            Finding::Payload
        } else {
            Finding::Right
        }
    }

    fn check_link(&self, frame: &[u8], payload: usize) -> Option<Finding> {
        if frame[payload + 2] != self.sink {
            Some(Finding::Sink)
        } else if frame[..6] != self.dst_mac {
            Some(Finding::DestinationMac)
        } else if frame[6..12] != self.src_mac {
            Some(Finding::SourceMac)
        } else {
            None
        }
    }
}

/// The 32-bit words of an IPv4 header.
const V4_HEADER: Words = Words { from: 14, to: 34 };
/// The whole 32-bit words from the addresses of an IPv6 header to the end; two
/// bytes are left over.
const V6_SUMMED: Words = Words { from: 22, to: V6_LEN - 2 };
/// The rest of UDP's pseudo header as two half-words: length and protocol.
const V6_PSEUDO: u64 = (((V6_LEN - 54) as u16).to_be() as u64) + ((UDP as u16).to_be() as u64);

/// The 32-bit words of a stretch of a frame.
#[derive(Clone, Copy)]
struct Words {
    from: usize,
    to: usize,
}

impl Words {
    fn map<T>(self, f: impl Fn(usize) -> T) -> impl Iterator<Item = T> {
        (self.from..self.to).step_by(4).map(f)
    }
}

fn quad(frame: &[u8], at: usize) -> u64 {
    u64::from(u32::from_ne_bytes(std::array::from_fn(|i| frame[at + i])))
}

fn udp_sum(frame: &[u8]) -> u64 {
    let rest = u64::from(u16::from_ne_bytes([frame[V6_LEN - 2], frame[V6_LEN - 1]]));
    V6_SUMMED.map(|at| quad(frame, at)).sum::<u64>() + rest + V6_PSEUDO
}

/// Folds a sum of 32-bit words to the Internet checksum's 16 bits (RFC 1071).
fn fold(sum: u64) -> u64 {
    let sum = (sum & 0xffff_ffff) + (sum >> 32);
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = (sum & 0xffff) + (sum >> 16);
    (sum & 0xffff) + (sum >> 16)
}

/// Makes the counters of one sink: one entry a [`Finding`].
pub(super) fn counters() -> Result<Map> {
    Ok(Map::array(Kind::PercpuArray, "fp_findings", 8, Finding::ALL.len() as u32)?)
}

/// Reads the counters of one sink.
pub(super) fn read(counts: &Map) -> Result<Findings> {
    let mut findings = Findings::default();
    for finding in Finding::ALL {
        findings.0[finding as usize] = counts.counter(finding as u32)?;
    }
    Ok(findings)
}

#[cfg(test)]
mod tests;
