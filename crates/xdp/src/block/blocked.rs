//! The lookup of a packet's source in a gate's program: whether the block list contains it and the allow list
//! does not.
//!
//! ```text
//!   steering program ─► source ─► lookup: the lists that contain it ─► the block list alone? ─► blocked, or rest
//! ```

use std::sync::Arc;

use port::af_xdp::bpf::asm::Reg::R0;
use port::af_xdp::bpf::asm::{Assembler, Cond, Label};
use port::af_xdp::steer::{BlockedSources, SourceExits};

use super::tables::ListTables;
use crate::{TableArrays, lookup};

/// The number of the list of exceptions.
pub const ALLOWED: usize = 0;
/// The number of the list of blocked prefixes.
pub const BLOCKED: usize = 1;

/// The set of lists that contain a blocked source.
const BLOCKED_ALONE: u32 = 1 << BLOCKED;

/// The lookup in the present arrays of two lists, [`ALLOWED`] and [`BLOCKED`].
#[derive(Debug)]
pub struct BlockedLookup {
    v4: Arc<TableArrays<u32>>,
    v6: Arc<TableArrays<u128>>,
}

impl BlockedLookup {
    /// Creates the lookup in `tables`, until those have other arrays.
    pub fn new(tables: &ListTables) -> Self {
        let (v4, v6) = tables.arrays();
        Self { v4: Arc::clone(v4), v6: Arc::clone(v6) }
    }
}

/// Returns whether a source with this set of lists is blocked, as the program does.
pub fn is_blocked(lists: u32) -> bool {
    lists == BLOCKED_ALONE
}

impl BlockedSources for BlockedLookup {
    fn append<'m>(&'m self, asm: &mut Assembler<'m>, entries: [Label; 2], exits: SourceExits) {
        let [found, lookup4, lookup6] = std::array::from_fn(|_| asm.label());
        asm.bind(entries[0])
            .call_code(lookup4)
            .jump(found)
            .bind(entries[1])
            .call_code(lookup6)
            .bind(found)
            .jump_if(Cond::Eq, R0, BLOCKED_ALONE as i32, exits.blocked)
            .jump(exits.rest);
        lookup::append(asm, lookup4, &self.v4);
        lookup::append(asm, lookup6, &self.v6);
    }
}
