//! Watches: the packets of some prefixes that lists have decided about, counted on request.
//!
//! ```text
//!   decided by a list ─► any watch? ─► source & mask == address, for each watch ─► counted
//! ```
//!
//! A packet whose source no list contains never comes here; without any watch, another costs one load. A source of
//! IPv4 is compared as the mapped address. A watch begins with counters of zero, once no program counts for the
//! watch that had its place before.

use std::io;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

use port::af_xdp::bpf::asm::Reg::{R0, R1, R2, R3, R8, R10};
use port::af_xdp::bpf::asm::{Assembler, Cond, Label, Op, Size};
use port::af_xdp::bpf::{Kind, Map};

use super::count::{Count, ENTRY, KEY, MAPPED, SOURCE, append_count, read_count};
use crate::grace::Barrier;

/// The maximum number of watches at once.
pub const MAX_WATCHES: usize = 8;

/// The words of a watch: whether it is in force, then mask and address, each as its halves.
const WORDS: usize = 5;
/// The bytes of a watch.
const WATCH: usize = WORDS * 8;
/// The bytes before the first watch: the number of watches in force.
const HEAD: usize = 8;

/// The watches of a filter.
#[derive(Debug)]
pub(super) struct Watches {
    /// One value: the number of watches in force, then each.
    watched: Map,
    counts: Map,
    /// The counters at the begin of each watch.
    before: Mutex<[Count; MAX_WATCHES]>,
    barrier: Barrier,
}

impl Watches {
    pub(super) fn new() -> io::Result<Self> {
        let size = HEAD + MAX_WATCHES * WATCH;
        Ok(Self {
            watched: Map::array(Kind::Array, "watched", size, 1)?,
            counts: Map::array(Kind::PercpuArray, "watch_counts", ENTRY, MAX_WATCHES as u32)?,
            before: Mutex::default(),
            barrier: Barrier::new()?,
        })
    }

    /// Ends the watch in place `slot`, and begins that of a prefix, if there is one, with counters of zero.
    pub(super) fn set(&self, slot: usize, prefix: Option<(IpAddr, u32)>) -> io::Result<()> {
        let mut value = self.watched.get(0)?;
        let word = |value: &mut Vec<u8>, at: usize, word: u64| {
            value[at..at + 8].copy_from_slice(&word.to_ne_bytes());
        };
        let read = |value: &[u8], at: usize| {
            <[u8; 8]>::try_from(&value[at..at + 8]).map_or(0, u64::from_ne_bytes)
        };
        let base = |slot: usize| HEAD + slot * WATCH;
        let count = |value: &[u8]| (0..MAX_WATCHES).map(|slot| read(value, base(slot))).sum();
        word(&mut value, base(slot), 0);
        let in_force = count(&value);
        word(&mut value, 0, in_force);
        self.watched.set(0, &value)?;
        let Some((addr, len)) = prefix else { return Ok(()) };
        // No program compares with words that change, or counts for the former watch.
        self.barrier.wait()?;
        let (addr, len) = match addr {
            IpAddr::V4(addr) => (u128::from(MAPPED) | u128::from(u32::from(addr)), 96 + len),
            IpAddr::V6(addr) => (u128::from(addr), len),
        };
        let mask = u128::MAX.checked_shl(128 - len).unwrap_or(0);
        let halves = |number: u128| [(number >> 64) as u64, number as u64];
        let words = [halves(mask), halves(addr & mask)].concat();
        for (nth, half) in words.into_iter().enumerate() {
            word(&mut value, base(slot) + 8 * (1 + nth), half);
        }
        self.watched.set(0, &value)?;
        self.before.lock().unwrap_or_else(PoisonError::into_inner)[slot] =
            read_count(&self.counts, slot)?;
        word(&mut value, base(slot), 1);
        let in_force = count(&value);
        word(&mut value, 0, in_force);
        self.watched.set(0, &value)
    }

    /// Counts the packets in a place since the begin of its watch.
    pub(super) fn count(&self, slot: usize) -> io::Result<Count> {
        let before = self.before.lock().unwrap_or_else(PoisonError::into_inner)[slot];
        let now = read_count(&self.counts, slot)?;
        Ok(Count { packets: now.packets - before.packets, bytes: now.bytes - before.bytes })
    }

    /// Appends code that counts a packet of r7 bytes, unless its entry r8 is that of no list (`none` or more), and
    /// continues behind or at `done`.
    pub(super) fn append<'m>(&'m self, asm: &mut Assembler<'m>, done: Label, none: i32) {
        let [upper, lower] = SOURCE;
        asm.jump_if(Cond::Ge, R8, none, done)
            .load_map_value(R1, &self.watched, 0)
            .load(Size::Double, R2, R1, 0)
            .jump_if(Cond::Eq, R2, 0, done);
        for slot in 0..MAX_WATCHES {
            let next = asm.label();
            asm.load_map_value(R1, &self.watched, (HEAD + slot * WATCH) as u32)
                .load(Size::Double, R2, R1, 0)
                .jump_if(Cond::Eq, R2, 0, next);
            for (half, source) in [(0, upper), (8, lower)] {
                asm.load(Size::Double, R3, R10, source)
                    .load(Size::Double, R2, R1, 8 + half)
                    .op(Op::And, R3, R2)
                    .load(Size::Double, R2, R1, 24 + half)
                    .jump_if(Cond::Ne, R3, R2, next);
            }
            asm.mov(R2, slot as i32)
                .store(Size::Word, R10, KEY, R2)
                .map_lookup(&self.counts, KEY)
                .jump_if(Cond::Eq, R0, 0, next);
            append_count(asm);
            asm.bind(next);
        }
    }
}
