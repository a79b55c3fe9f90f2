//! The lookup in eBPF: a subroutine of two loads for most addresses of IPv4.
//!
//! ```text
//!   direct[upper 16 bits] ─► entry ── a hop? ──────────────────────────────► r0
//!                              │ shapes[upper 7 bits]: shift, last, width, mask
//!                              ▼
//!                            leaf of the next 8 bits: chunks[place + leaf] ─► entry, and so on
//! ```
//!
//! In `rank`, the leaf's number is the count of ones in the chunk's bitmap up to the address's bit: one load
//! more, of a word that has 24 bits and the count of those before it. eBPF has no instruction that counts ones, and
//! twelve that add neighboring fields do it.
//!
//! The stages are unrolled, 2 for IPv4 and 14 for IPv6, so that the verifier sees no loop. Each
//! stage has two branches, to the end upon a hop, and past the end of the array, which never
//! happens but which the verifier cannot know. Limits of the address and
//! of the leaf are computed without branches. Shifts by a register take its lower bits only (RFC
//! 9669, section 4.1), so that the fields of a shape (`shapes.rs`) need no masks of their own.
//!
//! Registers: r1 to r5 are overwritten, r6 to r9 untouched. IPv6 uses 8 bytes of the stack.

use fib::Addr;
use fib::engine::rank::{PLACE_BITS, SHAPE_BITS, WORD_BITS, direct_bits, stages, stride};
use port::af_xdp::bpf::Map;
use port::af_xdp::bpf::asm::Reg::{R0, R1, R2, R3, R4, R5, R10};
use port::af_xdp::bpf::asm::{Assembler, Cond, Label, Op, Size};

use crate::TableArrays;

/// Where the lower half of an IPv6 address waits, on the subroutine's stack.
const LOWER: i16 = -8;

/// Appends the subroutine and binds `label` to it, for
/// [`call_code`](Assembler::call_code): r1 is an IPv4 address as a number of the host's order, or r1 and r2 are the
/// upper and the lower half of an IPv6 address; r0 becomes the hop, or 0 if no route matches.
pub fn append<'m, A: Addr>(asm: &mut Assembler<'m>, label: Label, table: &'m TableArrays<A>) {
    let (done, none) = (asm.label(), asm.label());
    // Bits of the register that has the part of the address.
    let width = A::BITS.min(64);
    asm.bind(label);
    if A::BITS > 64 {
        asm.store(Size::Double, R10, LOWER, R2);
        asm.mov(R3, R1);
    } else {
        asm.op32(Op::Mov, R3, R1);
    }
    asm.mov(R2, R3)
        .op(Op::Rsh, R2, (width - direct_bits::<A>()) as i32)
        .op(Op::Lsh, R2, 2)
        .load_map_value(R4, table.direct_map(), 0)
        .add(R4, R2)
        .load(Size::Word, R0, R4, 0);
    for from in stages::<A>() {
        if from == 64 {
            asm.load(Size::Double, R3, R10, LOWER);
        }
        stage(asm, table, width - from % 64 - stride::<A>(), done, none);
    }
    asm.bind(done).exit().bind(none).mov(R0, 0).exit();
}

/// Appends a stage: r0, an entry, becomes the leaf for the bits of r3 from `shift` on.
fn stage<'m, A: Addr>(
    asm: &mut Assembler<'m>,
    table: &'m TableArrays<A>,
    shift: u32,
    done: Label,
    none: Label,
) {
    const HOPS: i32 = 1 << (SHAPE_BITS - 2);
    let chunks = table.chunk_map();
    asm.mov(R1, R0)
        .op(Op::Rsh, R1, (32 - SHAPE_BITS) as i32)
        .jump_if(Cond::Lt, R1, HOPS, done)
        // r1: the shape.
        .op(Op::Lsh, R1, 3)
        .load_map_value(R4, &table.shapes, 0)
        .add(R4, R1)
        .load(Size::Double, R1, R4, 0)
        // r5: the bits of the address, less the chunk's first, at least 0.
        .mov(R5, R3)
        .op(Op::Rsh, R5, shift as i32)
        .op(Op::And, R5, (1 << stride::<A>()) - 1)
        .mov(R2, R0)
        .op(Op::Rsh, R2, PLACE_BITS as i32)
        .op(Op::And, R2, 7)
        .op(Op::Lsh, R2, 5)
        .op(Op::Sub, R5, R2)
        .mov(R2, R5)
        .op(Op::Arsh, R2, 63)
        .op(Op::Xor, R2, -1)
        .op(Op::And, R5, R2)
        // r5: the bit of the chunk, at most the last.
        .op(Op::Rsh, R5, R1)
        .mov(R2, R1)
        .op(Op::Rsh, R2, 8)
        .op(Op::And, R2, 0xff)
        .op(Op::Sub, R5, R2)
        .mov(R4, R5)
        .op(Op::Arsh, R4, 63)
        .op(Op::And, R5, R4)
        .add(R5, R2)
        // r0: the byte of the chunk among all.
        .op(Op::And, R0, (1 << PLACE_BITS) - 1)
        .op(Op::Lsh, R0, (table.grain + 2) as i32);
    if table.ranked {
        append_rank(asm, chunks, none);
    }
    // r5: the leaf's byte in the chunk; r0: that of its word among all.
    asm.mov(R2, R1)
        .op(Op::Rsh, R2, 16)
        .op(Op::Lsh, R5, R2)
        .mov(R2, R5)
        .op(Op::And, R2, -4)
        .add(R0, R2)
        .jump_if(Cond::Gt, R0, (chunks.value_size() - 4) as i32, none)
        .load_map_value(R4, chunks, 0)
        .add(R4, R0)
        .load(Size::Word, R0, R4, 0)
        // r0: the leaf of that word.
        .op(Op::And, R5, 3)
        .op(Op::Lsh, R5, 3)
        .op(Op::Rsh, R0, R5)
        .op(Op::Rsh, R1, 32)
        .op(Op::And, R0, R1);
}

/// The reciprocal of [`WORD_BITS`] for numbers of 8 bits, and its shift.
const RECIPROCAL: i32 = (1 << RECIPROCAL_SHIFT) / WORD_BITS as i32 + 1;
const RECIPROCAL_SHIFT: u32 = 16;

const _: () = {
    let mut bit = 0;
    while bit < 256 {
        assert!((bit * RECIPROCAL as u32) >> RECIPROCAL_SHIFT == bit / WORD_BITS);
        bit += 1;
    }
};

/// Appends the rank of bit r5 in the chunk at byte r0: r5 becomes the leaf, and r0 the byte of the first leaf.
fn append_rank<'m>(asm: &mut Assembler<'m>, chunks: &'m Map, none: Label) {
    // r2: the word, and its byte; r5: the bit within it.
    asm.mov(R2, R5)
        .op(Op::Mul, R2, RECIPROCAL)
        .op(Op::Rsh, R2, RECIPROCAL_SHIFT as i32)
        .mov(R4, R2)
        .op(Op::Mul, R4, WORD_BITS as i32)
        .op(Op::Sub, R5, R4)
        .op(Op::Lsh, R2, 2)
        .add(R2, R0)
        .jump_if(Cond::Gt, R2, (chunks.value_size() - 4) as i32, none)
        .load_map_value(R4, chunks, 0)
        .add(R4, R2)
        .load(Size::Word, R4, R4, 0)
        // r5: the bits up to this one, the last of them lowest.
        .mov(R2, 31)
        .op(Op::Sub, R2, R5)
        .mov(R5, R4)
        .op(Op::Rsh, R5, R2);
    // Sums of two, four and eight bits.
    for (shift, mask) in [(1, 0x5555_5555), (2, 0x3333_3333)] {
        asm.mov(R2, R5)
            .op(Op::Rsh, R2, shift)
            .op(Op::And, R2, mask)
            .op(Op::And, R5, mask)
            .add(R5, R2);
    }
    asm.mov(R2, R5)
        .op(Op::Rsh, R2, 4)
        .add(R5, R2)
        .op(Op::And, R5, 0x0f0f_0f0f)
        .op(Op::Mul, R5, 0x0101_0101)
        .op(Op::Rsh, R5, 24)
        .op(Op::And, R5, 0xff)
        // The ones before the word.
        .op(Op::And, R4, 0xff)
        .add(R5, R4)
        .mov(R2, R1)
        .op(Op::Rsh, R2, 24)
        .op(Op::And, R2, 0xff)
        .op(Op::Lsh, R2, 2)
        .add(R0, R2);
}
