//! The lookup in a program of another project: a function that it calls becomes the lookup in our table.
//!
//! ```text
//!   their program ── call ──► fingerpost_lookup4(address) ◄── replaced by ── the lookup ──► arrays of a KernelTable
//! ```
//!
//! Their program, in C, has a function of its own for the time without a table, here one whose answer is "no route":
//!
//! ```c
//! __attribute__((noinline)) __u32 fingerpost_lookup4(__u32 address)
//! {
//!     __u32 hop = 0;
//!     asm volatile("" : "+r"(hop) : "r"(address));
//!     return hop;
//! }
//! ```
//!
//! For IPv6 it has two arguments of 64 bits, the upper and the lower half. Addresses are numbers of the host's order. The
//! answer is the hop, 0 without a route. The `asm` keeps the compiler from passing no argument. Compiled by `clang -g`,
//! which keeps the function's type, it is loaded by any loader, and attached to any device; neither has to know this crate.
//!
//! The table changes in place. If it outgrows its arrays ([`Publication::Replaced`](crate::Publication::Replaced)), call
//! [`replace`](Attachment::replace): between the two programs, some microseconds, their own function is called.
//!
//! Limits: those of [`Extension`].

use fib::Addr;
use port::af_xdp::bpf::{Assembler, Extension, Function, Program};

use crate::{ProgramError, TableArrays, lookup};

/// The lookup in the place of a function; dropping it brings the other program's own function back.
#[derive(Debug)]
pub struct Attachment {
    function: Function,
    /// `None` only while one takes the place of another, or after an error of that.
    extension: Option<Extension>,
}

impl Attachment {
    /// Puts the lookup in `arrays` in the place of `function`.
    ///
    /// # Errors
    ///
    /// [`ProgramError`]; the function is as it was.
    pub fn new<A: Addr>(function: Function, arrays: &TableArrays<A>) -> Result<Self, ProgramError> {
        let program = load(&function, arrays)?;
        let extension = Some(attach(&program)?);
        Ok(Self { function, extension })
    }

    /// Puts the lookup in other arrays there.
    ///
    /// # Errors
    ///
    /// [`ProgramError`]: the former lookup stays if the program cannot be loaded, else the function is the other
    /// program's own.
    pub fn replace<A: Addr>(&mut self, arrays: &TableArrays<A>) -> Result<(), ProgramError> {
        let program = load(&self.function, arrays)?;
        self.extension = None;
        self.extension = Some(attach(&program)?);
        Ok(())
    }
}

/// Loads the lookup for the place of `function`.
fn load<A: Addr>(function: &Function, arrays: &TableArrays<A>) -> Result<Program, ProgramError> {
    let mut asm = Assembler::new();
    let begin = asm.label();
    lookup::append(&mut asm, begin, arrays);
    let arguments: &[u32] = if A::BITS > 64 { &[8, 8] } else { &[4] };
    Ok(Program::load_extension("lookup", &asm.finish()?, function, arguments, 4)?)
}

fn attach(program: &Program) -> Result<Extension, ProgramError> {
    Extension::attach(program).map_err(ProgramError::Attach)
}
