//! VLAN tags: a frame tagged for a VLAN device that the router serves is taken with its tags.
//!
//! ```text
//!   MACs │ 8100 or 88a8 │ VLAN │ 8100 or 88a8 │ VLAN │ type │ …
//!          └ outer, in the map? ┘ └ inner, in the map with the outer? ┘
//! ```
//!
//! The map has the tags of every such device over the interface: one tag, or two if it is over another
//! VLAN device. The frame is not changed: the checks of the payload begin 4 or 8 bytes later. A tag
//! that is not in the map belongs to a VLAN device of the host alone, or to none
//! ([`SteeringOutcome::Tagged`]), and so does a frame with a third tag. A gate's interface has no such
//! map: tagged frames are the host's.

use super::super::bpf::Map;
use super::super::bpf::asm::{Assembler, Cond, Label, Op, Reg, Size, half};
use super::SteeringOutcome;
use Reg::{R0, R2, R3, R6, R7, R10};

/// The maximum number of VLAN devices over an interface.
pub(super) const VLANS: u32 = 16_384;

const TYPE: i16 = 12;
const TAG: i16 = 14;
/// The bits of a tag that are no part of the VLAN identifier: the map's keys have none.
const IDENTIFIER: [u8; 4] = [0xff, 0xff, 0x0f, 0xff];

/// The tags of a VLAN device as it receives them: each with its type and VLAN identifier, the outer
/// one first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct VlanTags {
    /// The outer tag, or the only one.
    pub outer: (u16, u16),
    /// The inner of two tags.
    pub inner: Option<(u16, u16)>,
}

impl VlanTags {
    /// Returns the key in the map: the tags as in the frame.
    pub(super) fn key(self) -> [u8; 8] {
        let bytes = |(protocol, id): (u16, u16)| {
            let ([p0, p1], [i0, i1]) = (protocol.to_be_bytes(), id.to_be_bytes());
            [p0, p1, i0, i1]
        };
        let ([a, b, c, d], [e, f, g, h]) = (bytes(self.outer), self.inner.map_or([0; 4], bytes));
        [a, b, c, d, e, f, g, h]
    }
}

/// Emits code for a frame whose type is that of a tag, with a verified tag: if the map has its tags, r6
/// moves so that the payload's type is at the same offset from it as in an untagged frame, and the
/// code continues at `payload` with 14 verified bytes from r6 on.
pub(super) fn emit_match<'m>(
    asm: &mut Assembler<'m>,
    tags: &'m Map,
    payload: Label,
    to: impl Fn(SteeringOutcome) -> Label,
) {
    let mask = i32::from_ne_bytes(IDENTIFIER);
    let tagged = to(SteeringOutcome::Tagged);
    // The key is in r3 too, since a call keeps no registers below r6; the stack has both.
    for inner in [false, true] {
        asm.load(Size::Word, R2, R6, TYPE).op32(Op::And, R2, mask);
        if inner {
            asm.load(Size::Double, R3, R10, -8);
            if cfg!(target_endian = "little") {
                asm.op(Op::Lsh, R2, 32);
            } else {
                asm.op(Op::Rsh, R3, 32).op(Op::Lsh, R3, 32);
            }
            asm.op(Op::Or, R2, R3);
        } else if cfg!(target_endian = "big") {
            asm.op(Op::Lsh, R2, 32);
        }
        asm.store(Size::Double, R10, -8, R2)
            .map_lookup(tags, -8)
            .jump_if(Cond::Eq, R0, 0, tagged)
            .add(R6, 4)
            .mov(R2, R6)
            .add(R2, i32::from(TAG))
            .jump_if(Cond::Gt, R2, R7, tagged);
        if inner {
            asm.jump(payload);
            continue;
        }
        let next = asm.label();
        asm.load(Size::Half, R2, R6, TYPE)
            .jump_if32(Cond::Eq, R2, half([0x81, 0x00]), next)
            .jump_if32(Cond::Ne, R2, half([0x88, 0xa8]), payload)
            .bind(next)
            .mov(R2, R6)
            .add(R2, i32::from(TAG) + 4)
            .jump_if(Cond::Gt, R2, R7, tagged);
    }
}
