//! The ingress filter: decides about every IP packet of the interface before the steering program has
//! made anything of it.
//!
//! ```text
//!   frame ─► only observed? ─┬─ no ──► filter ─┬─ drop ─► dropped, counted as blocked with its bytes
//!                            └─ yes ─┐         └─ rest ─┐
//!                                    └──────────────────┴─► steering program
//! ```
//!
//! Another crate, which knows tables, has the code of the filter ([`IngressFilter`]). Unlike the sources that a
//! gate blocks (`blocked.rs`), it examines packets for the host too, and frames for other devices over the
//! interface. An interface that is only observed drops nothing. The filter can be exchanged while packets pass
//! ([`Interface::set_filter`](crate::af_xdp::Interface::set_filter)).

use std::fmt;

use super::super::bpf::Map;
use super::super::bpf::asm::{Assembler, Cond, Label, Op, Reg, Size, context};
use super::flow_key;
use Reg::{R1, R2, R9};

/// The number of a filter's subroutines: lookups of sources and of destinations, of IPv4 and of IPv6.
pub const FILTER_LOOKUPS: usize = 4;

/// Where the code of a filter continues.
#[derive(Clone, Copy, Debug)]
pub struct FilterExits {
    /// For a packet that ends here.
    pub drop: Label,
    /// For any other.
    pub rest: Label,
}

/// The code that decides about frames, and the maps that it uses.
pub trait IngressFilter: fmt::Debug + Send + Sync {
    /// Appends the code; `entry` is its label to bind, `lookups` are those of its subroutines, of which it
    /// may use some.
    ///
    /// At the entry r9 is the context. The code may overwrite any register but r9 and r10, and does not change the
    /// frame.
    fn append<'m>(
        &'m self,
        asm: &mut Assembler<'m>,
        entry: Label,
        exits: FilterExits,
        lookups: [Label; FILTER_LOOKUPS],
    );

    /// Appends the subroutines; `lookups` are their labels to bind. No jump may cross the begin of a subroutine, so
    /// that they come behind all other code.
    fn append_lookups<'m>(&'m self, asm: &mut Assembler<'m>, lookups: [Label; FILTER_LOOKUPS]);
}

/// Emits code that continues at `entry` unless the switch `off` is on; counts the bytes of a dropped frame and
/// jumps to `drop`. Returns the exits. r9 is the context.
pub(super) fn emit_check<'m>(
    asm: &mut Assembler<'m>,
    [switches, bytes]: [&'m Map; 2],
    off: u32,
    entry: Label,
    drop: Label,
) -> FilterExits {
    let [dropped, rest] = std::array::from_fn(|_| asm.label());
    asm.load_map_value(R1, switches, 0)
        .load(Size::Word, R2, R1, 0)
        .jump_if32(Cond::Set, R2, off as i32, rest)
        .jump(entry)
        .bind(dropped)
        .load(Size::Word, R1, R9, context::DATA)
        .load(Size::Word, R2, R9, context::DATA_END)
        .op(Op::Sub, R2, R1)
        .store(Size::Double, Reg::R10, flow_key::LENGTH, R2);
    flow_key::emit_count(asm, bytes, drop);
    asm.bind(rest);
    FilterExits { drop: dropped, rest }
}
