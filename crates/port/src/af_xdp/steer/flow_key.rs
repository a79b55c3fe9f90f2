//! The keys of a gate's lookups: a packet's flow and length, on the program's stack.
//!
//! ```text
//!   r10 - 64      - 56        - 52        - 48 ─────────────────────────── - 16
//!     │ length: 64 │  unused   │ prefix's  │ source, destination, as in the header │
//!     │            │           │ bits: 32  │                                       │
//!                              └─ a protected source's key ┘
//!                                          └─ a declined flow's key ──────────┘
//! ```
//!
//! r8 has the family. The length is that of the packet with its Ethernet header, without the link's
//! padding.

use super::super::bpf::Map;
use super::super::bpf::asm::{Assembler, Cond, Label, Op, Reg, Size};
use Reg::{R0, R1, R2, R6, R8, R10};

/// The offset of the flow, and of the prefix length before it.
pub(super) const FLOW: i16 = -48;
pub(super) const BITS: i16 = FLOW - 4;
pub(super) const LENGTH: i16 = -64;
/// A key of four bytes.
const INDEX: i16 = -4;

const V4_TOTAL: i16 = 14 + 2;
const V4_SOURCE: i16 = 14 + 12;
const V6_PAYLOAD: i16 = 14 + 4;
const V6_SOURCE: i16 = 14 + 8;

/// Emits code that stores the flow of an IPv4 packet whose header is verified.
pub(super) fn emit_v4(asm: &mut Assembler<'_>) {
    // Both addresses in one: without `CAP_PERFMON` Linux 6.1 refuses a half beside one that is a scalar with bounds.
    asm.load(Size::Double, R2, R6, V4_SOURCE)
        .store(Size::Double, R10, FLOW, R2)
        // And it follows speculative branches, of which one reads an IPv6 key here.
        .op32(Op::Mov, R2, 0)
        .store(Size::Double, R10, FLOW + 8, R2)
        .store(Size::Double, R10, FLOW + 16, R2)
        .store(Size::Double, R10, FLOW + 24, R2)
        .load(Size::Half, R2, R6, V4_TOTAL)
        .big_endian(R2, 16)
        .add(R2, 14)
        .store(Size::Double, R10, LENGTH, R2)
        .op32(Op::Mov, R8, 4);
}

/// The same for IPv6.
pub(super) fn emit_v6(asm: &mut Assembler<'_>) {
    for at in [0, 8, 16, 24] {
        asm.load(Size::Double, R2, R6, V6_SOURCE + at).store(Size::Double, R10, FLOW + at, R2);
    }
    asm.load(Size::Half, R2, R6, V6_PAYLOAD)
        .big_endian(R2, 16)
        .add(R2, 14 + 40)
        .store(Size::Double, R10, LENGTH, R2)
        .op32(Op::Mov, R8, 6);
}

/// Emits code that adds the length to the only counter of a map, and jumps to `then`.
pub(super) fn emit_count<'m>(asm: &mut Assembler<'m>, bytes: &'m Map, then: Label) {
    let counted = asm.label();
    asm.op32(Op::Mov, R2, 0)
        .store(Size::Word, R10, INDEX, R2)
        .map_lookup(bytes, INDEX)
        .jump_if(Cond::Eq, R0, 0, counted)
        .load(Size::Double, R1, R0, 0)
        .load(Size::Double, R2, R10, LENGTH)
        .op(Op::Add, R1, R2)
        .store(Size::Double, R0, 0, R1)
        .bind(counted)
        .jump(then);
}
