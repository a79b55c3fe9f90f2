//! Samples: destinations of packets that the path has looked up, one of each family on request.
//!
//! ```text
//!   this process ─ WANTED ─► │ state │ link │ upper half │ lower half │ ◄─ FILLED ─ a program
//! ```
//!
//! The auditor compares them with the routes and the kernel. Two CPUs may fill a sample at once: its halves and its
//! link may then be of two packets. They are still an address and a table to compare.

use std::io;
use std::sync::atomic::Ordering;

use fib::Addr;
use port::af_xdp::bpf::MappedArray;
use port::af_xdp::bpf::asm::Reg::{R1, R2, R3, R6, R10};
use port::af_xdp::bpf::asm::{Assembler, Cond, Size};

/// The words of a sample.
const STATE: usize = 0;
const LINK: usize = 1;
const UPPER: usize = 2;
const LOWER: usize = 3;
const WORDS: usize = 4;

/// The states of a sample, beside 0: a program is to fill it; one has.
const WANTED: u64 = 1;
const FILLED: u64 = 2;

/// The samples of both families.
#[derive(Debug)]
pub struct Samples(MappedArray);

impl Samples {
    pub(super) fn new() -> io::Result<Self> {
        MappedArray::one_value("samples", 2 * WORDS as u32).map(Self)
    }

    /// Returns the link and the destination of a packet since the last call for this family, if there was one, and
    /// requests another.
    pub fn take<A: Addr>(&self) -> Option<(u16, A)> {
        let word = |at: usize| self.0.get(first::<A>() + at);
        let state = word(STATE)?;
        let filled = state.load(Ordering::Acquire) == FILLED;
        let [link, upper, lower] =
            [LINK, UPPER, LOWER].map(|at| word(at).map_or(0, |word| word.load(Ordering::Relaxed)));
        state.store(WANTED, Ordering::Release);
        let address = u128::from(upper) << 64 | u128::from(lower);
        filled.then(|| (link as u16, A::from_u128(address)))
    }

    /// Appends the fill of a sample, if one is requested, with the destination at `address` in the frame at r6 and
    /// the number of the packet's link, which the stack has at `link`; r1 to r3 are overwritten.
    pub(super) fn append_fill<'m, A: Addr>(
        &'m self,
        asm: &mut Assembler<'m>,
        address: i16,
        link: i16,
    ) {
        let filled = asm.label();
        let offset = |word: usize| (word * size_of::<u64>()) as i16;
        asm.load_map_value(R1, self.0.map(), (first::<A>() * size_of::<u64>()) as u32)
            .load(Size::Double, R2, R1, offset(STATE))
            .jump_if(Cond::Ne, R2, WANTED as i32, filled);
        if A::BITS > 64 {
            for (half, at) in [(UPPER, address), (LOWER, address + 8)] {
                asm.load(Size::Double, R3, R6, at).big_endian(R3, 64).store(
                    Size::Double,
                    R1,
                    offset(half),
                    R3,
                );
            }
        } else {
            asm.load(Size::Word, R3, R6, address).big_endian(R3, 32).store(
                Size::Double,
                R1,
                offset(LOWER),
                R3,
            );
        }
        asm.load(Size::Double, R3, R10, link)
            .store(Size::Double, R1, offset(LINK), R3)
            .mov(R3, FILLED as i32)
            .store(Size::Double, R1, offset(STATE), R3)
            .bind(filled);
    }
}

/// Returns the first word of a family's sample.
fn first<A: Addr>() -> usize {
    if A::BITS > 64 { WORDS } else { 0 }
}
