//! eBPF without a compiler: programs are assembled in Rust and loaded through the kernel's
//! verifier.
//!
//! The router needs a few dozen instructions in the kernel (which frames go to the sockets, which
//! to the host), the demonstration a few hundred (a traffic generator and a checker of every
//! packet). Neither needs clang, an object file or a loader library on the user's machine: this
//! module is the whole toolchain:
//!
//! ```text
//! asm::Assembler ──finish──► asm::Code ──Program::load──► Program ──Link::attach──► an interface
//!        ▲                                                   │
//!   Map ─┘ (named in the code, read and written from here)   └─test_run──► return value, bytes
//! ```
//!
//! - [`asm`]: instructions, registers and labels, as in RFC 9669.
//! - [`map`]: memory shared between programs and this process.
//! - [`program`]: verified programs; run once for a test, or a million times with live frames as a
//!   traffic generator.
//! - [`mapped_array`]: numbers of a map that this process accesses without system calls.
//! - [`ring_buffer`]: records that programs write for one reader.
//! - [`link`]: a program attached to an interface, for as long as the value lives.
//! - [`tracepoint`]: a program that runs at a point of the kernel's code; [`btf`]: the layouts of the structs that it
//!   reads there.
//! - [`function`]: a function of a program that another process has loaded; [`extension`]: a program in its place.
//!
//! Everything is a file descriptor owned by one value: when the value is dropped, or the process
//! ends in any way, the kernel removes the map, the program and the attachment. Nothing is pinned
//! to a file system, so nothing remains.
//!
//! Rights: `CAP_BPF` and `CAP_NET_ADMIN` (or root), and for some helpers
//! `CAP_PERFMON`. Integers in maps have the machine's byte order, in packets
//! the network's.

pub mod asm;
pub mod btf;
pub mod extension;
pub mod function;
pub mod link;
pub mod map;
pub mod mapped_array;
pub mod program;
pub mod ring_buffer;
mod sys;
pub mod tracepoint;

pub use asm::{Assembler, Code};
pub use btf::Btf;
pub use extension::Extension;
pub use function::Function;
pub use link::{AttachError, EgressLink, Link, Mode, StoredLink};
pub use map::{Kind, Map};
pub use mapped_array::MappedArray;
pub use program::{LiveRun, LoadError, Program, TestRun};
pub use ring_buffer::RingBuffer;
pub use tracepoint::RawTracepoint;
