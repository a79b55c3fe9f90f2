//! Priority tags: a frame tagged for no VLAN belongs to the interface itself.
//!
//! ```text
//!   MACs │ 8100 or 88a8 │ priority:3 │ 0:1 │ VLAN 0:12 │ type │ …
//!   4 bytes removed ─► MACs │ type │ …                     repeated, at most MAX_TAGS times
//! ```
//!
//! IEEE 802.1Q calls such a frame priority-tagged, and the kernel treats it as if it had no tag,
//! with any number of tags. So the payload is checked as if the tags were absent: the MACs move up,
//! the frame begins 4 bytes later, and the receiver, router or host, sees no tag. A tag of a VLAN
//! ends this: the frame belongs to a VLAN device (`vlan_tags.rs`).
//!
//! Legitimate frames have one such tag. A router leaves frames with more than [`MAX_TAGS`] to the
//! host, which forwards as well; on a gate's interface they would bypass the gate, and are dropped.

use super::super::bpf::asm::{Assembler, Cond, Helper, Label, Reg, Size, context, half};
use super::SteeringOutcome;
use Reg::{R0, R1, R2, R3, R6, R7, R9};

/// The maximum number of removed tags.
pub(super) const MAX_TAGS: usize = 4;

const TYPE: i16 = 12;
const TAG: i16 = 14;
const TAG_END: i32 = 14 + 4;

/// Emits code that removes priority tags from a frame whose Ethernet header is verified, and
/// verifies it again after each removal. A frame with the tag of a VLAN continues at `vlan`.
pub(super) fn emit_strip(
    asm: &mut Assembler<'_>,
    guards: bool,
    vlan: Label,
    to: impl Fn(SteeringOutcome) -> Label,
) {
    let bare = asm.label();
    let too_many = if guards { SteeringOutcome::Nested } else { SteeringOutcome::Tagged };
    for stripped in 0..=MAX_TAGS {
        let tagged = asm.label();
        asm.load(Size::Half, R2, R6, TYPE)
            .jump_if32(Cond::Eq, R2, half([0x81, 0x00]), tagged)
            .jump_if32(Cond::Ne, R2, half([0x88, 0xa8]), bare)
            .bind(tagged)
            .mov(R2, R6)
            .add(R2, TAG_END)
            .jump_if(Cond::Gt, R2, R7, to(SteeringOutcome::Tagged))
            .load(Size::Half, R2, R6, TAG)
            .jump_if32(Cond::Set, R2, half([0x0f, 0xff]), vlan);
        if stripped == MAX_TAGS {
            asm.jump(to(too_many));
            break;
        }
        // Both MACs, from the end.
        asm.load(Size::Double, R2, R6, 0)
            .load(Size::Word, R3, R6, 8)
            .store(Size::Word, R6, 12, R3)
            .store(Size::Double, R6, 4, R2)
            .mov(R1, R9)
            .mov(R2, 4)
            .call(Helper::AdjustHead)
            // This cannot happen. The MACs have moved, so the frame would be invalid.
            .jump_if(Cond::Ne, R0, 0, to(SteeringOutcome::Nested))
            .load(Size::Word, R6, R9, context::DATA)
            .load(Size::Word, R7, R9, context::DATA_END)
            .mov(R2, R6)
            .add(R2, 14)
            .jump_if(Cond::Gt, R2, R7, to(SteeringOutcome::Short));
    }
    asm.bind(bare);
}
