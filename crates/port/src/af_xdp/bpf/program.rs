//! Programs: verified code, and runs of it without a network.
//!
//! Loading passes the instructions to the kernel's verifier, which proves that they terminate and
//! access only permitted memory; the error contains the verifier's log ([`LoadError::log`]).
//!
//! A loaded XDP program can be run from here (`BPF_PROG_TEST_RUN`) in two ways:
//!
//! - [`Program::test_run`]: on a copy of some bytes; returns the verdict and the bytes after the
//!   run. Each program of this project is tested in this way, without a device.
//! - [`Program::run_live`]: with real frames: those that the program redirects or sends back leave
//!   by an interface, in batches, as if a driver had received them. A program that rewrites each
//!   frame is thereby a traffic generator of several million packets a second in one system call.
//!   Frames are recycled with the receiver's changes, so the program must write every relevant byte
//!   each time.

#![expect(unsafe_code, reason = "bpf(2) reads code and reads and writes packets through pointers")]

use std::error::Error;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use super::sys::{self, Command};
use super::{Code, Function, btf};

/// `BPF_PROG_TYPE_XDP`, `BPF_PROG_TYPE_SCHED_CLS`, `BPF_PROG_TYPE_RAW_TRACEPOINT` and `BPF_PROG_TYPE_EXT`.
const XDP: u32 = 6;
const CLASSIFIER: u32 = 3;
const RAW_TRACEPOINT: u32 = 17;
const EXTENSION: u32 = 28;
/// `BPF_XDP` and `BPF_TCX_EGRESS`: the attachment types.
pub(super) const ATTACH_XDP: u32 = 37;
pub(super) const ATTACH_EGRESS: u32 = 47;
/// `BPF_F_TEST_XDP_LIVE_FRAMES`.
const LIVE_FRAMES: u32 = 1 << 1;
/// `BPF_F_XDP_HAS_FRAGS`.
const HAS_FRAGS: u32 = 1 << 5;
/// Some helpers are only for programs under the GPL; this is the kernel's name for a choice of MIT
/// or GPL.
const LICENSE: &std::ffi::CStr = c"Dual MIT/GPL";
/// The size of the verifier's log, which is truncated there.
const LOG: usize = 1 << 20;

/// A program in the kernel; dropping it closes our descriptor (with a [`Link`] it continues to
/// run).
///
/// [`Link`]: super::Link
#[derive(Debug)]
pub struct Program {
    fd: OwnedFd,
}

impl Program {
    /// Loads XDP code. `bpftool prog` shows `name`, of which 15 letters, digits, `_` or `.` are
    /// used.
    ///
    /// # Errors
    ///
    /// [`LoadError`], with the verifier's log if there is one.
    pub fn load(name: &str, code: &Code<'_>) -> Result<Self, LoadError> {
        Self::load_with(name, code, 0)
    }

    /// The same for code that accepts frames of several buffers, of which it accesses the first
    /// (`BPF_F_XDP_HAS_FRAGS`): a device with a large MTU takes no other in native mode.
    ///
    /// # Errors
    ///
    /// As [`load`](Self::load); the cause is `EINVAL` before Linux 5.18.
    pub fn load_multi_buffer(name: &str, code: &Code<'_>) -> Result<Self, LoadError> {
        Self::load_with(name, code, HAS_FRAGS)
    }

    /// The same for code that runs on the packets that the host sends by a device, with a
    /// `struct __sk_buff` as its context, and is attached by an [`EgressLink`](super::EgressLink).
    ///
    /// # Errors
    ///
    /// As [`load`](Self::load); the cause is `EINVAL` before Linux 6.6.
    pub fn load_egress(name: &str, code: &Code<'_>) -> Result<Self, LoadError> {
        Self::load_type((CLASSIFIER, ATTACH_EGRESS), name, code, 0)
    }

    /// The same for code that runs at a tracepoint, with the tracepoint's arguments as its context, 8 bytes each, and is
    /// attached by a [`RawTracepoint`](super::RawTracepoint).
    ///
    /// # Errors
    ///
    /// As [`load`](Self::load).
    pub fn load_tracepoint(name: &str, code: &Code<'_>) -> Result<Self, LoadError> {
        Self::load_type((RAW_TRACEPOINT, 0), name, code, 0)
    }

    /// The same for code in place of a function of another program, whose arguments and result are numbers of these
    /// bytes, 4 or 8; it is put there by an [`Extension`](super::Extension). The code has no function but the first.
    ///
    /// # Errors
    ///
    /// As [`load`](Self::load); the log states the argument or result that has another type.
    pub fn load_extension(
        name: &str,
        code: &Code<'_>,
        function: &Function,
        arguments: &[u32],
        result: u32,
    ) -> Result<Self, LoadError> {
        let (types, number) = btf::function(&function.name, arguments, result);
        let types = btf::load(&types).map_err(|cause| LoadError { cause, log: String::new() })?;
        let functions = [sys::FunctionInfo { at: 0, number }];
        let attr = sys::ProgramLoad {
            program_type: EXTENSION,
            btf_fd: types.as_raw_fd() as u32,
            target_function: function.number,
            target_program_fd: function.program.as_raw_fd() as u32,
            ..Default::default()
        };
        Self::load_as(&attr, &functions, name, code)
    }

    fn load_with(name: &str, code: &Code<'_>, flags: u32) -> Result<Self, LoadError> {
        Self::load_type((XDP, ATTACH_XDP), name, code, flags)
    }

    fn load_type(
        (program_type, attach_type): (u32, u32),
        name: &str,
        code: &Code<'_>,
        flags: u32,
    ) -> Result<Self, LoadError> {
        let attr = sys::ProgramLoad { program_type, attach_type, flags, ..Default::default() };
        Self::load_as(&attr, &[], name, code)
    }

    /// Loads the code with the fields of `kind` that are not of the code, and the types of its functions.
    fn load_as(
        kind: &sys::ProgramLoad,
        functions: &[sys::FunctionInfo],
        name: &str,
        code: &Code<'_>,
    ) -> Result<Self, LoadError> {
        // The log costs time and can itself fail if it is too small, so it is requested only after
        // an error.
        match Self::attempt(kind, functions, name, code, None) {
            Ok(fd) => Ok(Self { fd }),
            Err(error) => {
                let mut log = vec![0; LOG];
                let cause = Self::attempt(kind, functions, name, code, Some(&mut log))
                    .err()
                    .unwrap_or(error);
                let len = log.iter().position(|&b| b == 0).unwrap_or(LOG);
                let log = String::from_utf8_lossy(&log[..len]).into_owned();
                Err(LoadError { cause, log })
            }
        }
    }

    fn attempt(
        kind: &sys::ProgramLoad,
        functions: &[sys::FunctionInfo],
        name: &str,
        code: &Code<'_>,
        log: Option<&mut [u8]>,
    ) -> io::Result<OwnedFd> {
        let mut attr = sys::ProgramLoad {
            instructions: code.len() as u32,
            code: code.bytes().as_ptr() as u64,
            license: LICENSE.as_ptr() as u64,
            name: sys::name(name),
            function_size: size_of::<sys::FunctionInfo>() as u32,
            functions: functions.as_ptr() as u64,
            function_count: functions.len() as u32,
            ..*kind
        };
        if let Some(log) = log {
            attr.log_level = 1;
            attr.log_size = log.len() as u32;
            attr.log = log.as_mut_ptr() as u64;
        }
        // `Code` borrows its maps, so the descriptors within it are open. (A stale
        // one would be an error, or another map, which the verifier checks alike.)
        // SAFETY:
        // - the arm of this command, which makes a descriptor;
        // - it reads 8 bytes an instruction, `Code::len` being the number of
        //   whole ones in `bytes`, the license up to its NUL, and the slice `functions`;
        // - `kind` has no other pointer: its callers set numbers and descriptors only;
        // - it writes at most `log_size` bytes to the exclusive slice `log`.
        unsafe { sys::open(Command::ProgramLoad, &mut attr) }
    }

    /// Runs the program `repeat` times on `data` (each time on the result of the last run) and
    /// returns its result. At least 14 bytes are needed.
    ///
    /// The frame appears to come from the loopback interface. Redirections are
    /// returned, not made.
    ///
    /// # Errors
    ///
    /// Those of `bpf(2)`: `EINVAL` for a frame too short or longer than a page
    /// less some headroom, `EINTR`.
    pub fn test_run(&self, data: &[u8], repeat: u32) -> io::Result<TestRun> {
        // A program may prepend up to the headroom of 256 bytes.
        let mut output = vec![0; data.len() + 4096];
        let mut attr = sys::ProgramTestRun {
            program_fd: self.fd.as_raw_fd() as u32,
            data_size_in: data.len() as u32,
            data_size_out: output.len() as u32,
            data_in: data.as_ptr() as u64,
            data_out: output.as_mut_ptr() as u64,
            repeat,
            ..Default::default()
        };
        // SAFETY:
        // - the arm of this command;
        // - it reads `data_size_in` bytes of `data` and writes at most
        //   `data_size_out` to the vector `output`, then sets that field to the
        //   frame's length.
        unsafe { sys::bpf(Command::ProgramTestRun, &mut attr) }?;
        output.truncate(attr.data_size_out as usize);
        Ok(TestRun {
            retval: attr.retval,
            output,
            duration: Duration::from_nanos(attr.duration.into()),
        })
    }

    /// Runs the program `run.repeat` times with live frames that start as
    /// copies of `data`.
    ///
    /// Returns when all have been run. The interface is looked up in the
    /// network namespace of the calling thread. The kernel allows a batch of
    /// at most 256.
    ///
    /// # Errors
    ///
    /// Those of `bpf(2)`: `EINTR` after a signal (an unknown part of the frames has then been
    /// sent), `EINVAL` for a frame that does not fit a page or a missing interface, `EOPNOTSUPP`
    /// before Linux 5.18.
    pub fn run_live(&self, data: &[u8], run: LiveRun) -> io::Result<()> {
        // struct xdp_md: data, data_end, data_meta, ingress interface and queue.
        let context: [u32; 6] = [0, data.len() as u32, 0, run.ifindex, run.queue, 0];
        let mut attr = sys::ProgramTestRun {
            program_fd: self.fd.as_raw_fd() as u32,
            data_size_in: data.len() as u32,
            data_in: data.as_ptr() as u64,
            repeat: run.repeat,
            context_size_in: size_of_val(&context) as u32,
            context_in: context.as_ptr() as u64,
            flags: LIVE_FRAMES,
            batch_size: run.batch,
            ..Default::default()
        };
        // SAFETY:
        // - the arm of this command;
        // - it reads `data_size_in` bytes of `data` and `context_size_in` of
        //   `context`, and writes to neither in this mode;
        // - live frames are the kernel's own pages.
        unsafe { sys::bpf(Command::ProgramTestRun, &mut attr) }.map(drop)
    }
}

impl AsFd for Program {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// The result of [`Program::test_run`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TestRun {
    /// The return value of the last run: an [`Action`](super::asm::Action).
    pub retval: u32,
    /// The frame after it.
    pub output: Vec<u8>,
    /// The mean time of one run.
    pub duration: Duration,
}

/// The parameters of [`Program::run_live`].
#[derive(Clone, Copy, Debug)]
pub struct LiveRun {
    /// The apparent receiving interface; `Action::Tx` sends to it.
    pub ifindex: u32,
    /// The apparent receive queue.
    pub queue: u32,
    /// The number of frames.
    pub repeat: u32,
    /// The number of frames between two flushes, 0 for the kernel's choice (64).
    pub batch: u32,
}

/// The reason why a program was not loaded.
#[derive(Debug)]
pub struct LoadError {
    /// The error of the system call.
    pub cause: io::Error,
    /// The verifier's log; empty if the verifier was not reached.
    pub log: String,
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the kernel did not load the program: {}", self.cause)?;
        if self.cause.kind() == io::ErrorKind::PermissionDenied {
            f.write_str(" (CAP_BPF and CAP_NET_ADMIN are needed)")?;
        }
        if !self.log.is_empty() {
            write!(f, "\n{}", self.log.trim_end())?;
        }
        Ok(())
    }
}

impl Error for LoadError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.cause)
    }
}
