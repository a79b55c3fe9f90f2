//! Extensions: a program in the place of a function of another program, for as long as the value lives.
//!
//! ```text
//!   their program ──calls──► global function of C, not inlined ──replaced by──► our program (BPF_PROG_TYPE_EXT)
//! ```
//!
//! The verifier compares the types of both functions, so our program has BTF too. The other program may run meanwhile:
//! its next call is one of the replacement. When the [`Extension`] is dropped or the process ends, the former
//! function is called again.
//!
//! Limits: one extension for each function; a program with extensions cannot be the target of a tail call. Linux 5.6, with
//! `CONFIG_BPF_JIT` and BTF.

#![expect(unsafe_code, reason = "bpf(2) takes a pointer, here of null")]

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use super::Program;
use super::sys::{self, Command};

/// A program in the place of another's function; dropping it brings the former function back.
#[derive(Debug)]
pub struct Extension {
    _fd: OwnedFd,
}

impl Extension {
    /// Replaces the function that `program` was loaded for ([`Program::load_extension`]).
    ///
    /// # Errors
    ///
    /// Those of `bpf(2)`: `EBUSY` if the function is replaced already.
    pub fn attach(program: &Program) -> io::Result<Self> {
        // Without a name: what the program was loaded for.
        let mut attr = sys::RawTracepointOpen {
            program_fd: program.as_fd().as_raw_fd() as u32,
            ..Default::default()
        };
        // SAFETY: the arm of this command, which makes a descriptor; its pointer is null.
        let _fd = unsafe { sys::open(Command::RawTracepointOpen, &mut attr) }?;
        Ok(Self { _fd })
    }
}
