//! The packets that the host itself sends by a device: how many, and how many bytes of the link they take.
//!
//! ```text
//!   host's stack ─► tcx program: counts ─► queueing discipline ─► device ─► link
//!   workers ─────── AF_XDP sockets ───────────────────────────────►┘
//! ```
//!
//! A link slower than its device is paced by the workers, which see only their own packets. The host's
//! (its BGP sessions, ARP, answers, and what it forwards of punted packets) pass by them and take a part of
//! the link, which [`HostEgressShare`] gives to those that pace it. They cannot be delayed here, so they go
//! first, and the workers' packets wait for them.
//!
//! A program counts in a mapped array, so that a worker reads it without a system call. It is attached by a
//! link (tcx, Linux 6.6), in front of the queueing discipline and behind the programs of others, which it
//! leaves as they are; what a queueing discipline then drops is counted. A packet that the device is to cut
//! into segments counts as the segments, with their headers, as the kernel estimates them for queueing
//! disciplines (`wire_len`).

use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

use super::bpf::asm::{Cond, Op, Reg, Size};
use super::bpf::link::EgressLink;
use super::bpf::{Assembler, LoadError, Map, MappedArray, Program};

/// The fields of `struct __sk_buff` (linux/bpf.h) that the program reads: bytes on the link, with all headers,
/// and segments, 0 for a packet that is not cut.
const WIRE_LEN: i16 = 160;
const GSO_SEGS: i16 = 164;
/// `TCX_NEXT`: the packet goes on to the next program, and then to the queueing discipline.
const NEXT: i32 = -1;
/// The words of the array.
const BYTES: u32 = 0;
const PACKETS: u32 = 1;

/// Packets of the host, and their bytes with all headers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostTraffic {
    /// The number of packets.
    pub packets: u64,
    /// The number of bytes.
    pub bytes: u64,
}

/// The counter of a device.
#[derive(Debug)]
pub struct HostEgress {
    counts: MappedArray,
    program: Program,
    link: Mutex<Option<EgressLink>>,
}

impl HostEgress {
    /// Begins to count the packets of the device of index `ifindex`.
    ///
    /// # Errors
    ///
    /// Those of `bpf(2)`: `EINVAL` before Linux 6.6.
    pub(super) fn new(ifindex: u32) -> io::Result<Self> {
        let counts = MappedArray::new("fp_host_egress", PACKETS + 1)?;
        let program = load(counts.map()).map_err(|error| error.cause)?;
        let counter = Self { counts, program, link: Mutex::new(None) };
        counter.attach(Some(ifindex))?;
        Ok(counter)
    }

    /// Counts the packets of another device from now on, or of none.
    pub(super) fn attach(&self, ifindex: Option<u32>) -> io::Result<()> {
        let mut link = self.link.lock().unwrap_or_else(PoisonError::into_inner);
        *link = None;
        *link = ifindex.map(|ifindex| EgressLink::attach(&self.program, ifindex)).transpose()?;
        Ok(())
    }

    /// Returns what the host has sent since the counter was made.
    pub fn traffic(&self) -> HostTraffic {
        // Relaxed: no other data depends on the numbers, and a packet that is in one and not yet in the
        // other is in both the next time.
        let word = |index| self.counts.get(index as usize).map_or(0, |n| n.load(Ordering::Relaxed));
        HostTraffic { packets: word(PACKETS), bytes: word(BYTES) }
    }
}

fn load(counts: &Map) -> Result<Program, LoadError> {
    use Reg::{R0, R1, R6, R7, R10};
    let mut asm = Assembler::new();
    let (is_cut, no_word) = (asm.label(), asm.label());
    asm.load(Size::Word, R6, R1, WIRE_LEN)
        .load(Size::Word, R7, R1, GSO_SEGS)
        .jump_if(Cond::Ne, R7, 0, is_cut)
        .mov(R7, 1)
        .bind(is_cut);
    for (word, amount) in [(BYTES, R6), (PACKETS, R7)] {
        asm.mov(R1, word as i32)
            .store(Size::Word, R10, -4, R1)
            .map_lookup(counts, -4)
            .jump_if(Cond::Eq, R0, 0, no_word)
            .atomic_add(Size::Double, R0, 0, amount);
    }
    asm.bind(no_word).op32(Op::Mov, R0, NEXT).exit();
    let code = asm
        .finish()
        .map_err(|error| LoadError { cause: io::Error::other(error), log: String::new() })?;
    Program::load_egress("fp_host_egress", &code)
}

/// The part of a device's host packets that one of those that share its link has to wait for.
#[derive(Debug)]
pub struct HostEgressShare {
    counter: Arc<HostEgress>,
    parts: u64,
    taken: HostTraffic,
}

impl HostEgressShare {
    /// Makes one of `parts` equal shares, at least 1, of what the host sends from now on.
    pub fn new(counter: Arc<HostEgress>, parts: u32) -> Self {
        let taken = counter.traffic();
        Self { counter, parts: parts.max(1).into(), taken }
    }

    /// Takes the share of what was sent since the last call.
    #[inline]
    pub fn take(&mut self) -> HostTraffic {
        let now = self.counter.traffic();
        // The rest of the division is taken the next time.
        let share = |now: u64, taken: u64| now.saturating_sub(taken) / self.parts;
        let share = HostTraffic {
            packets: share(now.packets, self.taken.packets),
            bytes: share(now.bytes, self.taken.bytes),
        };
        self.taken.packets += share.packets * self.parts;
        self.taken.bytes += share.bytes * self.parts;
        share
    }
}
