//! What is expected of a packet, and the two checkers that hold every packet
//! that arrives to it.
//!
//! A test packet carries what a checker needs to know: which sink it is for,
//! with what TTL it was sent, its destination once more, and a hash of all that
//! a router must not touch. The two families, offsets from the first byte of
//! the frame (checked bytes not drawn are in the hash or compared):
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
//!  46  sequence number               70  destination again
//!  50  destination again             86  two bytes of nothing
//!  54  two bytes of nothing          88  hash
//!  56  hash
//! ```
//!
//! The hash runs over the 8-byte words at the offsets of [`V4_WORDS`] or
//! [`V6_WORDS`]: everything from the IP header on but TTL (hop limit), the
//! IPv4 header checksum and protocol, and the UDP checksum of IPv6 (which
//! covers the hash; IPv4 packets have none), each of which is checked by itself.
//!
//! [`Checker::program`] is the check as an XDP program for a sink's interface:
//! it sees every packet, counts what it found per CPU and drops the packet.
//! [`Checker::check`] is the same in Rust, for memory ports, and the twin that
//! the program is compared with, bit by bit of every packet.

use anyhow::Result;
use port::af_xdp::bpf::asm::{Reg::*, *};
use port::af_xdp::bpf::{Kind, Map, Program};

/// The length of an IPv4 test frame.
pub(super) const V4_LEN: usize = 64;
/// The length of an IPv6 test frame.
pub(super) const V6_LEN: usize = 96;
/// Where the payload begins: mark, sink, TTL as sent, sequence, destination.
pub(super) const V4_PAYLOAD: usize = 42;
/// The same for IPv6.
pub(super) const V6_PAYLOAD: usize = 62;
/// Where the hash lies.
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

/// What a checker found of one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
pub(super) enum Finding {
    /// As it should be.
    Right,
    /// Not one of ours: ARP, or IPv6 to a multicast or link-local address.
    Foreign,
    /// Not a test packet in form: another type, length, header or mark.
    Form,
    /// It was for the other sink.
    Sink,
    /// Not the sink's MAC.
    DestinationMac,
    /// Not the MAC of the router's interface.
    SourceMac,
    /// TTL or hop limit is not that of the source less one.
    Ttl,
    /// The IPv4 header checksum is wrong.
    Checksum,
    /// The destination is not the one it was sent with.
    Destination,
    /// Something else that a router must leave alone has changed.
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

    /// Names it in a report.
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

/// How many packets of each finding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Findings(pub(super) [u64; Finding::ALL.len()]);

impl Findings {
    /// Counts one.
    pub(super) fn add(&mut self, finding: Finding) {
        self.0[finding as usize] += 1;
    }

    /// Adds up two sinks.
    pub(super) fn plus(mut self, other: Self) -> Self {
        self.0.iter_mut().zip(other.0).for_each(|(sum, more)| *sum += more);
        self
    }

    /// Subtracts what was there before.
    pub(super) fn since(mut self, before: Self) -> Self {
        self.0.iter_mut().zip(before.0).for_each(|(now, then)| *now -= then);
        self
    }

    /// Returns how many are as they should be.
    pub(super) fn right(&self) -> u64 {
        self.0[Finding::Right as usize]
    }

    /// Returns how many are not ours.
    pub(super) fn foreign(&self) -> u64 {
        self.0[Finding::Foreign as usize]
    }

    /// Returns how many are ours and wrong in whatever way.
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

/// Hashes what is to stay of an IPv4 frame.
pub(super) fn hash_v4(frame: &[u8]) -> u64 {
    hash(V4_WORDS.map(|at| word(frame, at)))
}

/// Hashes what is to stay of an IPv6 frame.
pub(super) fn hash_v6(frame: &[u8]) -> u64 {
    let mask = |at| if at == V6_WORDS[0] { ALL_BUT_LAST } else { !0 };
    hash(V6_WORDS.map(|at| word(frame, at) & mask(at)))
}

/// What one sink expects.
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
    /// Judges one frame.
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

    /// Makes the same check as an XDP program that counts into `counts`
    /// (see [`counters`]) and drops everything.
    pub(super) fn program(&self, counts: &Map) -> Result<Program> {
        let mut asm = Assembler::new();
        let ends = Finding::ALL.map(|_| asm.label());
        let to = |finding: Finding| ends[finding as usize];
        let (v4, v6) = (asm.label(), asm.label());

        // r6: the frame; r7: its end; r1: the number of the finding.
        asm.load(Size::Word, R6, R1, context::DATA)
            .load(Size::Word, R7, R1, context::DATA_END)
            .mov(R2, R6)
            .add(R2, 54)
            .jump_if(Cond::Gt, R2, R7, to(Finding::Form))
            .load(Size::Half, R2, R6, 12)
            .jump_if(Cond::Eq, R2, half([0x08, 0x00]), v4)
            .jump_if(Cond::Eq, R2, half([0x86, 0xdd]), v6)
            .jump_if(Cond::Eq, R2, half([0x08, 0x06]), to(Finding::Foreign))
            .jump(to(Finding::Form));

        asm.bind(v4);
        self.form(&mut asm, V4_LEN, 0x45, 23, V4_PAYLOAD, to(Finding::Form));
        self.link(&mut asm, V4_PAYLOAD, to);
        ttl(&mut asm, 22, V4_PAYLOAD, to(Finding::Ttl));
        asm.mov(R1, 0);
        summed(&mut asm, V4_HEADER, to(Finding::Checksum));
        same(&mut asm, Size::Word, &[(30, V4_PAYLOAD + 8)], to(Finding::Destination));
        hashed(&mut asm, &V4_WORDS, !0, V4_HASH, to(Finding::Payload));
        asm.jump(to(Finding::Right));

        asm.bind(v6)
            .load(Size::Byte, R2, R6, 38)
            .jump_if(Cond::Eq, R2, 0xff, to(Finding::Foreign))
            .load(Size::Half, R2, R6, 38)
            .jump_if(Cond::Eq, R2, half([0xfe, 0x80]), to(Finding::Foreign));
        self.form(&mut asm, V6_LEN, 0x60, 20, V6_PAYLOAD, to(Finding::Form));
        self.link(&mut asm, V6_PAYLOAD, to);
        ttl(&mut asm, 21, V6_PAYLOAD, to(Finding::Ttl));
        let again = V6_PAYLOAD + 8;
        same(&mut asm, Size::Double, &[(38, again), (46, again + 8)], to(Finding::Destination));
        hashed(&mut asm, &V6_WORDS, ALL_BUT_LAST, V6_HASH, to(Finding::Payload));
        asm.mov(R1, V6_PSEUDO as i32).load(Size::Half, R2, R6, V6_LEN as i16 - 2).add(R1, R2);
        summed(&mut asm, V6_SUMMED, to(Finding::Payload));
        asm.jump(to(Finding::Right));

        let (count, none) = (asm.label(), asm.label());
        for finding in Finding::ALL {
            asm.bind(to(finding)).mov(R1, finding as i32).jump(count);
        }
        asm.bind(count)
            .store(Size::Word, R10, -4, R1)
            .mov(R2, R10)
            .add(R2, -4)
            .load_map(R1, counts)
            .call(Helper::MapLookup)
            .jump_if(Cond::Eq, R0, 0, none)
            // One CPU's own, and XDP does not preempt itself: no atomic.
            .load(Size::Double, R1, R0, 0)
            .add(R1, 1)
            .store(Size::Double, R0, 0, R1)
            .bind(none)
            .leave(Action::Drop);
        Ok(Program::load("fp_check", &asm.finish()?)?)
    }

    /// Leaves for `bad` unless length, version, protocol and mark are right.
    fn form(
        &self,
        asm: &mut Assembler<'_>,
        len: usize,
        version: i32,
        protocol: i16,
        payload: usize,
        bad: Label,
    ) {
        // The first comparison is for the verifier, the second for "exactly".
        asm.mov(R2, R6)
            .add(R2, len as i32)
            .jump_if(Cond::Gt, R2, R7, bad)
            .mov(R3, R7)
            .op(Op::Sub, R3, R6)
            .jump_if(Cond::Ne, R3, len as i32, bad)
            .load(Size::Byte, R2, R6, 14)
            .jump_if(Cond::Ne, R2, version, bad)
            .load(Size::Byte, R2, R6, protocol)
            .jump_if(Cond::Ne, R2, i32::from(UDP), bad)
            .load(Size::Half, R2, R6, payload as i16)
            .jump_if(Cond::Ne, R2, half(MARK), bad);
    }

    fn link(&self, asm: &mut Assembler<'_>, payload: usize, to: impl Fn(Finding) -> Label) {
        asm.load(Size::Byte, R2, R6, payload as i16 + 2).jump_if(
            Cond::Ne,
            R2,
            i32::from(self.sink),
            to(Finding::Sink),
        );
        let macs = [
            (0, self.dst_mac, to(Finding::DestinationMac)),
            (6, self.src_mac, to(Finding::SourceMac)),
        ];
        for (at, [a, b, c, d, e, f], bad) in macs {
            asm.load(Size::Word, R2, R6, at)
                .op32(Op::Xor, R2, i32::from_ne_bytes([a, b, c, d]))
                .jump_if(Cond::Ne, R2, 0, bad)
                .load(Size::Half, R2, R6, at + 4)
                .jump_if(Cond::Ne, R2, half([e, f]), bad);
        }
    }
}

/// Two bytes of a packet as a half-word load shows them.
fn half(bytes: [u8; 2]) -> i32 {
    i32::from(u16::from_ne_bytes(bytes))
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

/// Adds words to r1, folds it, and leaves for `bad` unless the sum is all ones.
fn summed(asm: &mut Assembler<'_>, words: Words, bad: Label) {
    for at in words.map(|at| at as i16) {
        asm.load(Size::Word, R2, R6, at).add(R1, R2);
    }
    asm.mov(R2, R1).op(Op::Rsh, R2, 32).op32(Op::Mov, R1, R1).add(R1, R2);
    for _ in 0..3 {
        asm.mov(R2, R1).op(Op::Rsh, R2, 16).op(Op::And, R1, 0xffff).add(R1, R2);
    }
    asm.jump_if(Cond::Ne, R1, 0xffff, bad);
}

fn ttl(asm: &mut Assembler<'_>, at: i16, payload: usize, bad: Label) {
    asm.load(Size::Byte, R2, R6, at)
        .load(Size::Byte, R3, R6, payload as i16 + 3)
        .add(R3, -1)
        .op(Op::And, R3, 0xff)
        .jump_if(Cond::Ne, R2, R3, bad);
}

fn same(asm: &mut Assembler<'_>, size: Size, pairs: &[(usize, usize)], bad: Label) {
    for &(one, other) in pairs {
        asm.load(size, R2, R6, one as i16).load(size, R3, R6, other as i16).jump_if(
            Cond::Ne,
            R2,
            R3,
            bad,
        );
    }
}

/// Leaves for `bad` unless the words' hash is the one at `at`; `first` masks
/// the first word.
fn hashed(asm: &mut Assembler<'_>, words: &[usize], first: u64, at: usize, bad: Label) {
    asm.load_u64(R1, HASH_SEED).load_u64(R4, HASH_FACTOR);
    for (i, &word) in words.iter().enumerate() {
        asm.load(Size::Double, R2, R6, word as i16);
        if i == 0 && first != !0 {
            asm.load_u64(R3, first).op(Op::And, R2, R3);
        }
        asm.op(Op::Xor, R1, R2).op(Op::Mul, R1, R4).mov(R2, R1).op(Op::Rsh, R2, 32).op(
            Op::Xor,
            R1,
            R2,
        );
    }
    asm.load(Size::Double, R2, R6, at as i16).jump_if(Cond::Ne, R1, R2, bad);
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
