//! Own addresses: a filter of 2^16 bits for the sources that no other host's packets may have.
//!
//! A packet with an own IPv4 address as its source is dropped and counted by the worker (`datapath/parse.rs`). The
//! path leaves to it each packet whose source has its bit set: those, and of others one in
//! some thousand for a router with a few dozen addresses.

use std::io;
use std::sync::atomic::Ordering;

use port::af_xdp::bpf::MappedArray;
use port::af_xdp::bpf::asm::Reg::{R1, R2, R3, R4};
use port::af_xdp::bpf::asm::{Assembler, Cond, Label, Op, Size};

/// The number of bits of the hash.
const HASH: u32 = 16;
/// The bits of a word.
const WORD: u32 = u64::BITS;
/// Knuth's multiplier: 2^32 divided by the golden ratio.
const SPREAD: u32 = 0x9e37_79b1;

/// The filter.
#[derive(Debug)]
pub struct OwnSources(MappedArray);

impl OwnSources {
    /// Creates the filter without any address.
    ///
    /// # Errors
    ///
    /// Those of `bpf(2)` for a map.
    pub fn new() -> io::Result<Self> {
        MappedArray::one_value("own_sources", (1 << HASH) / WORD).map(Self)
    }

    /// Replaces the addresses. One that stays is never missing.
    pub fn set(&self, addresses: impl IntoIterator<Item = u32>) {
        let mut words = [0_u64; (1 << HASH) / WORD as usize];
        for address in addresses {
            let bit = address.wrapping_mul(SPREAD) >> (32 - HASH);
            words[(bit / WORD) as usize] |= 1 << (bit % WORD);
        }
        for (at, word) in words.into_iter().enumerate() {
            if let Some(place) = self.0.get(at) {
                place.store(word, Ordering::Release);
            }
        }
    }

    /// Appends a jump to `own` if the bit of the address in r1 is set; r2 to r4 are overwritten.
    pub(super) fn append_check<'m>(&'m self, asm: &mut Assembler<'m>, own: Label) {
        asm.op32(Op::Mov, R2, R1)
            .op32(Op::Mul, R2, SPREAD.cast_signed())
            .op32(Op::Rsh, R2, (32 - HASH) as i32)
            .mov(R3, R2)
            .op(Op::Rsh, R3, WORD.ilog2() as i32)
            .op(Op::Lsh, R3, size_of::<u64>().ilog2() as i32)
            .load_map_value(R4, self.0.map(), 0)
            .add(R4, R3)
            .load(Size::Double, R3, R4, 0)
            // A shift takes the lower six bits.
            .op(Op::Rsh, R3, R2)
            .jump_if(Cond::Set, R3, 1, own);
    }
}
