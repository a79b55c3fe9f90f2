//! The system call `bpf(2)`.
//!
//! Every command of the system call takes a pointer to one arm of a large union and its size. Each
//! arm is a struct here, with the fields that this crate sets and all before them; the kernel reads
//! a shorter struct as if the rest were zero (`bpf_check_uarg_tail_zero` in kernel/bpf/syscall.c).
//! Pointers travel as `u64`, as in `linux/bpf.h`.

#![expect(unsafe_code, reason = "the system call takes raw pointers")]

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Commands (`enum bpf_cmd`).
#[derive(Clone, Copy)]
#[repr(i64)]
pub(super) enum Command {
    MapCreate = 0,
    MapLookup = 1,
    MapUpdate = 2,
    MapDelete = 3,
    ProgramLoad = 5,
    ProgramTestRun = 10,
    ProgramById = 13,
    ObjectInfo = 15,
    RawTracepointOpen = 17,
    BtfLoad = 18,
    BtfById = 19,
    MapUpdateBatch = 26,
    LinkCreate = 28,
    LinkUpdate = 29,
    LinkDetach = 34,
}

#[derive(Default)]
#[repr(C)]
pub(super) struct MapCreate {
    pub(super) map_type: u32,
    pub(super) key_size: u32,
    pub(super) value_size: u32,
    pub(super) max_entries: u32,
    pub(super) map_flags: u32,
    pub(super) inner_map_fd: u32,
    pub(super) numa_node: u32,
    pub(super) name: [u8; 16],
}

#[derive(Default)]
#[repr(C)]
pub(super) struct MapElement {
    pub(super) map_fd: u32,
    pub(super) pad: u32,
    pub(super) key: u64,
    pub(super) value: u64,
    pub(super) flags: u64,
}

#[derive(Default)]
#[repr(C)]
pub(super) struct MapBatch {
    pub(super) in_batch: u64,
    pub(super) out_batch: u64,
    pub(super) keys: u64,
    pub(super) values: u64,
    pub(super) count: u32,
    pub(super) map_fd: u32,
    pub(super) element_flags: u64,
    pub(super) flags: u64,
}

#[derive(Default)]
#[repr(C)]
pub(super) struct ProgramLoad {
    pub(super) program_type: u32,
    pub(super) instructions: u32,
    pub(super) code: u64,
    pub(super) license: u64,
    pub(super) log_level: u32,
    pub(super) log_size: u32,
    pub(super) log: u64,
    pub(super) kernel_version: u32,
    pub(super) flags: u32,
    pub(super) name: [u8; 16],
    pub(super) ifindex: u32,
    pub(super) attach_type: u32,
    pub(super) btf_fd: u32,
    pub(super) function_size: u32,
    pub(super) functions: u64,
    pub(super) function_count: u32,
    pub(super) line_size: u32,
    pub(super) lines: u64,
    pub(super) line_count: u32,
    pub(super) target_function: u32,
    pub(super) target_program_fd: u32,
    pub(super) pad: u32,
}

/// The type of a program's function (`struct bpf_func_info`).
#[repr(C)]
pub(super) struct FunctionInfo {
    /// The function's first instruction.
    pub(super) at: u32,
    pub(super) number: u32,
}

#[derive(Default)]
#[repr(C)]
pub(super) struct BtfLoad {
    pub(super) types: u64,
    pub(super) log: u64,
    pub(super) size: u32,
    pub(super) log_size: u32,
    pub(super) log_level: u32,
    pub(super) pad: u32,
}

#[derive(Default)]
#[repr(C)]
pub(super) struct ObjectById {
    pub(super) id: u32,
    pub(super) next_id: u32,
    pub(super) open_flags: u32,
}

#[derive(Default)]
#[repr(C)]
pub(super) struct ProgramTestRun {
    pub(super) program_fd: u32,
    pub(super) retval: u32,
    pub(super) data_size_in: u32,
    pub(super) data_size_out: u32,
    pub(super) data_in: u64,
    pub(super) data_out: u64,
    pub(super) repeat: u32,
    pub(super) duration: u32,
    pub(super) context_size_in: u32,
    pub(super) context_size_out: u32,
    pub(super) context_in: u64,
    pub(super) context_out: u64,
    pub(super) flags: u32,
    pub(super) cpu: u32,
    pub(super) batch_size: u32,
    pub(super) pad: u32,
}

#[derive(Default)]
#[repr(C)]
pub(super) struct RawTracepointOpen {
    pub(super) name: u64,
    pub(super) program_fd: u32,
    pub(super) pad: u32,
}

#[derive(Default)]
#[repr(C)]
pub(super) struct LinkCreate {
    pub(super) program_fd: u32,
    pub(super) target: u32,
    pub(super) attach_type: u32,
    pub(super) flags: u32,
}

#[derive(Default)]
#[repr(C)]
pub(super) struct LinkUpdate {
    pub(super) link_fd: u32,
    pub(super) new_program_fd: u32,
}

#[derive(Default)]
#[repr(C)]
pub(super) struct LinkDetach {
    pub(super) link_fd: u32,
}

#[derive(Default)]
#[repr(C)]
pub(super) struct ObjectInfo {
    pub(super) fd: u32,
    pub(super) info_len: u32,
    pub(super) info: u64,
}

/// The kernel's description of the link of an XDP program (`struct bpf_link_info`).
#[derive(Default)]
#[repr(C)]
pub(super) struct LinkInfo {
    pub(super) link_type: u32,
    pub(super) id: u32,
    pub(super) program_id: u32,
    pub(super) pad: u32,
    pub(super) ifindex: u32,
    pub(super) pad2: u32,
}

/// The kernel's description of a program (`struct bpf_prog_info`), up to the id of its BTF.
#[derive(Default)]
#[repr(C)]
pub(super) struct ProgramInfo {
    pub(super) program_type: u32,
    pub(super) id: u32,
    pub(super) tag: [u8; 8],
    pub(super) code_lens: [u32; 2],
    pub(super) code: [u64; 2],
    pub(super) load_time: u64,
    pub(super) user: u32,
    pub(super) map_count: u32,
    pub(super) maps: u64,
    pub(super) name: [u8; 16],
    pub(super) ifindex: u32,
    pub(super) is_gpl: u32,
    pub(super) namespace: [u64; 2],
    pub(super) function_counts: [u32; 2],
    pub(super) functions: [u64; 2],
    pub(super) btf_id: u32,
    pub(super) pad: u32,
}

/// The kernel's description of BTF (`struct bpf_btf_info`).
#[derive(Default)]
#[repr(C)]
pub(super) struct BtfInfo {
    pub(super) types: u64,
    pub(super) size: u32,
    pub(super) id: u32,
}

/// Fills the kernel's description of an object.
///
/// # Safety
///
/// `Info` is the struct above for this kind of object, and each pointer in it is valid for writes of the
/// length that it states.
pub(super) unsafe fn object_info<Info>(fd: &OwnedFd, info: &mut Info) -> io::Result<()> {
    let mut attr = ObjectInfo {
        fd: fd.as_raw_fd() as u32,
        info_len: size_of::<Info>() as u32,
        info: (&raw mut *info) as u64,
    };
    // SAFETY:
    // - the arm of this command; its pointer is that of a live exclusive reference, of the stated length;
    // - the pointers in `info` are the caller's promise.
    unsafe { bpf(Command::ObjectInfo, &mut attr) }.map(drop)
}

/// Calls `bpf(2)`; the result depends on the command.
///
/// # Safety
///
/// `Attr` is the struct above that belongs to `command`, and every pointer in
/// it is valid for the reads and writes that the command makes through it.
pub(super) unsafe fn bpf<Attr>(command: Command, attr: &mut Attr) -> io::Result<u32> {
    // SAFETY:
    // - `attr` is a live exclusive reference, and the size given is its own;
    // - the pointers in it are the caller's promise.
    let result = unsafe {
        libc::syscall(libc::SYS_bpf, command as i64, &raw mut *attr, size_of::<Attr>() as u64)
    };
    u32::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// Calls a command of `bpf(2)` that creates a file descriptor.
///
/// # Safety
///
/// As for [`bpf`], and the command is one that returns a new descriptor.
pub(super) unsafe fn open<Attr>(command: Command, attr: &mut Attr) -> io::Result<OwnedFd> {
    // SAFETY: the caller's promise is passed on unchanged.
    let fd = unsafe { bpf(command, attr) }?;
    // SAFETY: the kernel has just created this descriptor (it is close-on-exec), and it is not yet
    // shared.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// Truncates a name to the kernel's 15 characters, without characters that it rejects.
pub(super) fn name(text: &str) -> [u8; 16] {
    let mut out = [0; 16];
    let allowed = text.bytes().filter(|b| b.is_ascii_alphanumeric() || *b == b'_' || *b == b'.');
    for (to, from) in out[..15].iter_mut().zip(allowed) {
        *to = from;
    }
    out
}
