//! Blocked sources: packets that end in the kernel, whatever their destination.
//!
//! ```text
//!   to be taken ─► any sources? ─► lookup of the source ─┬─ blocked ─► dropped, counted with its bytes
//!                       │ no                              │ any other
//!                       └─────────────────────────────────┴─► declined.rs
//! ```
//!
//! Another crate, which knows tables, has the code of the lookup ([`BlockedSources`]); this module has its place in
//! the program. The sources can be exchanged while packets pass
//! ([`Interface::set_blocked`](crate::af_xdp::Interface::set_blocked)).

use std::fmt;

use super::super::bpf::Map;
use super::super::bpf::asm::{Assembler, Cond, Label, Reg, Size};
use super::flow_key::{self, FLOW};
use Reg::{R1, R2, R8, R10};

/// Where the code of a lookup continues.
#[derive(Clone, Copy, Debug)]
pub struct SourceExits {
    /// For a source that is blocked.
    pub blocked: Label,
    /// For any other.
    pub rest: Label,
}

/// The code that looks sources up, and the maps that it uses.
pub trait BlockedSources: fmt::Debug + Send + Sync {
    /// Appends the code; `entries` are its labels to bind, for IPv4 and for IPv6.
    ///
    /// At the entry for IPv4, r1 is the source as a number; at that for IPv6, r1 and r2 are its upper and its lower
    /// half. The code may overwrite r0 to r5.
    fn append<'m>(&'m self, asm: &mut Assembler<'m>, entries: [Label; 2], exits: SourceExits);
}

/// Emits code for a packet whose flow is on the stack: continues at one of the `entries`, counts the bytes of a
/// packet whose source is blocked and jumps to `drop`, and continues behind with any other. Returns the exits.
pub(super) fn emit_check<'m>(
    asm: &mut Assembler<'m>,
    entries: [Label; 2],
    bytes: &'m Map,
    drop: Label,
) -> SourceExits {
    let [six, blocked, rest] = std::array::from_fn(|_| asm.label());
    asm.jump_if32(Cond::Eq, R8, 6, six)
        .load(Size::Word, R1, R10, FLOW)
        .big_endian(R1, 32)
        .jump(entries[0])
        .bind(six)
        .load(Size::Double, R1, R10, FLOW)
        .big_endian(R1, 64)
        .load(Size::Double, R2, R10, FLOW + 8)
        .big_endian(R2, 64)
        .jump(entries[1])
        .bind(blocked);
    flow_key::emit_count(asm, bytes, drop);
    asm.bind(rest);
    SourceExits { blocked, rest }
}
