//! Raw tracepoints: a program that runs whenever the kernel passes a point of its code, for as long as the value lives.
//!
//! The arguments are those of the tracepoint's prototype (`TP_PROTO` in include/trace/events/), as they are: pointers to the
//! kernel's structs ([`Btf`](super::Btf)) and numbers. The program runs for all network namespaces. There is no such program in a
//! kernel without `CONFIG_BPF_EVENTS`.

#![expect(unsafe_code, reason = "bpf(2) reads a name through a pointer")]

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use super::Program;
use super::sys::{self, Command};

/// A program at a tracepoint; dropping it detaches the program.
#[derive(Debug)]
pub struct RawTracepoint {
    _fd: OwnedFd,
}

impl RawTracepoint {
    /// Lets `program` ([`Program::load_tracepoint`]) run at the tracepoint `name`.
    ///
    /// # Errors
    ///
    /// Those of `bpf(2)`: `ENOENT` if the kernel has no such tracepoint, `EINVAL` if the program reads more arguments
    /// than there are.
    pub fn attach(program: &Program, name: &CStr) -> io::Result<Self> {
        let mut attr = sys::RawTracepointOpen {
            name: name.as_ptr() as u64,
            program_fd: program.as_fd().as_raw_fd() as u32,
            ..Default::default()
        };
        // SAFETY: the arm of this command, which makes a descriptor; it reads the name up to its NUL.
        let _fd = unsafe { sys::open(Command::RawTracepointOpen, &mut attr) }?;
        Ok(Self { _fd })
    }
}
