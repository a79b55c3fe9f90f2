//! Groups: the flow hash of a packet selects a bucket of its group, and the bucket has the member's hop.
//!
//! ```text
//!   hops[hop] ┌ slot:2 │ 0:4 │ GROUP:2 ┐ ─► buckets[slot][hash mod 4096] ─► member's hop ─► hops[member]
//! ```
//!
//! The hash is that of the workers (`datapath/flow.rs`), so that a flow has one member whether a worker or the driver
//! forwards it. A group has a slot of [`BUCKETS`] buckets; fewer are repeated, which selects the same
//! members. A bucket is stored in one step: each flow moves at one moment.
//!
//! Of TCP and UDP without fragments and extension headers only; all other packets to a group are the workers'. So are those
//! of groups beyond [`MAX_GROUPS`], and all if the hash has other fields than [`HashFields`].

use std::io;
use std::sync::atomic::Ordering;

use fib::{Hop, MappedWords};
use port::af_xdp::bpf::asm::Reg::{R0, R1, R2, R3, R4, R5, R6, R10};
use port::af_xdp::bpf::asm::{Assembler, Cond, Label, Op, Reg, Size};

use crate::arrays::BpfArray;
use crate::table::map_of;

/// The number of groups.
pub const MAX_GROUPS: u16 = 256;
/// The number of buckets of a group.
pub const BUCKETS: usize = 4096;

/// 2^64 divided by the golden ratio, as in `datapath/flow.rs`.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// The fields of packets that select a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HashFields {
    /// Both addresses, of IPv6 also the flow label and the protocol.
    Layer3,
    /// Both addresses, the protocol and both ports.
    Layer4,
}

/// The parameters of the flow hash, as the workers have them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupHash {
    /// The seed.
    pub seed: u64,
    /// The fields of IPv4 and of IPv6; `None`: others, which only the workers hash.
    pub fields: [Option<HashFields>; 2],
}

/// The buckets of all groups.
#[derive(Debug)]
pub(super) struct Buckets(MappedWords);

impl Buckets {
    pub(super) fn new() -> io::Result<Self> {
        BpfArray::mapped("buckets", usize::from(MAX_GROUPS) * BUCKETS).map(Self)
    }

    /// Sets the buckets of a slot: a power of two, at most [`BUCKETS`].
    pub(super) fn set(&self, slot: u16, buckets: &[Hop]) {
        let places = self.0.iter().skip(usize::from(slot) * BUCKETS).take(BUCKETS);
        for (place, hop) in places.zip(buckets.iter().cycle()) {
            if place.load(Ordering::Relaxed) != hop.0 {
                place.store(hop.0, Ordering::Release);
            }
        }
    }

    /// Appends the load of a member's hop to r0, where r0 is the hash and `slot` a register with the slot, which is
    /// overwritten.
    pub(super) fn append_member<'m>(&'m self, asm: &mut Assembler<'m>, slot: Reg) {
        asm.op(Op::And, slot, i32::from(MAX_GROUPS) - 1)
            .op(Op::Lsh, slot, BUCKETS.ilog2() as i32)
            .op(Op::And, R0, BUCKETS as i32 - 1)
            .add(slot, R0)
            .op(Op::Lsh, slot, size_of::<u32>().ilog2() as i32)
            .load_map_value(R4, map_of(self.0.file()), 0)
            .add(R4, slot)
            .load(Size::Word, R0, R4, 0);
    }
}

/// Where the words of the hash wait, on the subroutine's stack.
const WORDS: i16 = -40;

/// Appends the hash of an IPv4 packet and binds `label` to it: r1 and r2 are source and destination, r3 has both ports,
/// and r4 the protocol from bit 32 on; r0 becomes the hash.
pub(super) fn append_hash_v4(asm: &mut Assembler<'_>, label: Label, fold: Label, seed: u64) {
    let (exchange, ordered) = (asm.label(), asm.label());
    asm.bind(label).jump_if(Cond::Lt, R2, R1, exchange).jump(ordered).bind(exchange);
    append_exchange(asm, &[(R1, R2)], R3);
    asm.bind(ordered)
        .op(Op::Lsh, R1, 32)
        .op(Op::Or, R1, R2)
        .op(Op::Or, R4, R3)
        .store(Size::Double, R10, WORDS, R1)
        .store(Size::Double, R10, WORDS + 8, R4);
    append_mix(asm, 2, fold, seed);
}

/// Appends the hash of an IPv6 packet and binds `label` to it: r1 and r2 are the halves of the source, r3 and r4 those of
/// the destination, and r5 has the flow label from bit 40 on, the protocol from bit 32 on, and both ports.
pub(super) fn append_hash_v6(asm: &mut Assembler<'_>, label: Label, fold: Label, seed: u64) {
    let (exchange, ordered) = (asm.label(), asm.label());
    asm.bind(label)
        .jump_if(Cond::Lt, R3, R1, exchange)
        .jump_if(Cond::Ne, R3, R1, ordered)
        .jump_if(Cond::Ge, R4, R2, ordered)
        .bind(exchange)
        // The upper half of r5 has no ports.
        .mov(R6, R5)
        .op(Op::Rsh, R6, 32)
        .op(Op::Lsh, R6, 32)
        .op32(Op::Mov, R5, R5);
    append_exchange(asm, &[(R1, R3), (R2, R4)], R5);
    asm.op(Op::Or, R5, R6).bind(ordered);
    for (word, at) in [(R1, 0), (R2, 8), (R3, 16), (R4, 24), (R5, 32)] {
        asm.store(Size::Double, R10, WORDS + at, word);
    }
    append_mix(asm, 5, fold, seed);
}

/// Appends the exchange of two addresses, by their parts, and of the ports; r0 is overwritten.
fn append_exchange(asm: &mut Assembler<'_>, parts: &[(Reg, Reg)], ports: Reg) {
    for &(one, other) in parts {
        asm.mov(R0, one).mov(one, other).mov(other, R0);
    }
    asm.mov(R0, ports).op(Op::Rsh, R0, 16).op(Op::And, ports, 0xffff).op(Op::Lsh, ports, 16).op(
        Op::Or,
        ports,
        R0,
    );
}

/// Appends the mix of the first `count` words on the stack, and the end of the subroutine.
fn append_mix(asm: &mut Assembler<'_>, count: i16, fold: Label, seed: u64) {
    let mut factor = SPREAD;
    asm.load_u64(R6, seed);
    for word in 0..count {
        asm.load(Size::Double, R1, R10, WORDS + 8 * word)
            .load_u64(R2, factor)
            .call_code(fold)
            .add(R6, R0);
        factor = factor.wrapping_add(SPREAD.wrapping_mul(2));
    }
    asm.mov(R1, R6).load_u64(R2, SPREAD).call_code(fold).exit();
}

/// Appends the exclusive or of both halves of the product of r1 and r2, and binds `label` to it.
pub(super) fn append_fold(asm: &mut Assembler<'_>, label: Label) {
    asm.bind(label)
        // The halves of r1 in r3 and r4, those of r2 in r5 and r0.
        .op32(Op::Mov, R3, R1)
        .mov(R4, R1)
        .op(Op::Rsh, R4, 32)
        .op32(Op::Mov, R5, R2)
        .mov(R0, R2)
        .op(Op::Rsh, R0, 32)
        // r1: the lower half of the product.
        .op(Op::Mul, R1, R2)
        .mov(R2, R3)
        .op(Op::Mul, R2, R5)
        .op(Op::Mul, R3, R0)
        .op(Op::Mul, R5, R4)
        .op(Op::Mul, R0, R4)
        // r2: the carry of the middle products.
        .op(Op::Rsh, R2, 32)
        .op32(Op::Mov, R4, R3)
        .add(R2, R4)
        .op32(Op::Mov, R4, R5)
        .add(R2, R4)
        .op(Op::Rsh, R2, 32)
        .op(Op::Rsh, R3, 32)
        .op(Op::Rsh, R5, 32)
        .add(R0, R3)
        .add(R0, R5)
        .add(R0, R2)
        .op(Op::Xor, R0, R1)
        .exit();
}
