//! Functions of programs that other processes have loaded, found by name.
//!
//! ```text
//!   id ──► program ──► BTF ──► number of the global function of this name
//! ```
//!
//! A program has BTF if it was compiled by `clang -g`. `extension.rs` replaces such a function.

#![expect(unsafe_code, reason = "bpf(2) writes descriptions through pointers")]

use std::io;
use std::os::fd::OwnedFd;

use super::Btf;
use super::sys::{self, Command};

/// A global function of a loaded program.
#[derive(Debug)]
pub struct Function {
    pub(super) program: OwnedFd,
    /// The number of its type in the program's BTF.
    pub(super) number: u32,
    pub(super) name: String,
}

impl Function {
    /// Finds the function `name` of the program with this id, as `bpftool prog` and `ip link` show it.
    ///
    /// # Errors
    ///
    /// `NotFound` if there is no such program, or it has no BTF or no such function; `PermissionDenied` without
    /// `CAP_SYS_ADMIN`, which opening a program by its id takes; else those of `bpf(2)`.
    pub fn find(program: u32, name: &str) -> io::Result<Self> {
        let not_found = |reason: String| io::Error::new(io::ErrorKind::NotFound, reason);
        let fd = by_id(Command::ProgramById, program).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => not_found(format!("no program has the id {program}")),
            kind => io::Error::new(kind, format!("program {program} cannot be opened: {error}")),
        })?;
        let mut info = sys::ProgramInfo::default();
        // SAFETY: a struct of plain numbers; its pointers are null, with lengths of zero.
        unsafe { sys::object_info(&fd, &mut info) }?;
        if info.btf_id == 0 {
            return Err(not_found(format!("program {program} has no BTF: compile it by clang -g")));
        }
        let types = read_btf(&by_id(Command::BtfById, info.btf_id)?)?;
        let number = Btf::parse(&types)
            .and_then(|btf| btf.function(name))
            .ok_or_else(|| not_found(format!("program {program} has no global function {name}")))?;
        Ok(Self { program: fd, number, name: name.to_owned() })
    }
}

/// Opens a program, or BTF, by its id.
fn by_id(command: Command, id: u32) -> io::Result<OwnedFd> {
    let mut attr = sys::ObjectById { id, ..Default::default() };
    // SAFETY: the arm of both commands, which make a descriptor; it holds no pointer.
    unsafe { sys::open(command, &mut attr) }
}

/// Reads the types of a program.
fn read_btf(fd: &OwnedFd) -> io::Result<Vec<u8>> {
    let mut info = sys::BtfInfo::default();
    // SAFETY: a struct of plain numbers; its pointers are null, with lengths of zero.
    unsafe { sys::object_info(fd, &mut info) }?;
    let mut types = vec![0; info.size as usize];
    info = sys::BtfInfo { types: types.as_mut_ptr() as u64, size: info.size, ..Default::default() };
    // SAFETY: the same, but for the pointer to a vector, which has the stated length.
    unsafe { sys::object_info(fd, &mut info) }?;
    Ok(types)
}
