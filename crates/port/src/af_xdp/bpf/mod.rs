//! eBPF without a compiler: programs are assembled in Rust and handed to the
//! kernel's verifier.
//!
//! The router needs a few dozen instructions in the kernel (which frames go to
//! the sockets, which to the host), the demonstration a few hundred (a traffic
//! generator and a checker of every packet). Both want no clang, no object
//! file and no loader library on the user's machine, so this module is the
//! whole tool chain:
//!
//! ```text
//! asm::Assembler ──finish──► asm::Code ──Program::load──► Program ──Link::attach──► an interface
//!        ▲                                                   │
//!   Map ─┘ (named in the code, read and written from here)   └─test_run──► return value, bytes
//! ```
//!
//! - [`asm`]: instructions, registers and labels, as in RFC 9669.
//! - [`map`]: memory shared between programs and this process.
//! - [`program`]: what the verifier accepted; run once for a test, or a million
//!   times with live frames as a traffic generator.
//! - [`mapped_array`]: numbers of a map that this process reaches without calls.
//! - [`link`]: a program on an interface, for as long as the value lives.
//!
//! Everything is a file descriptor owned by one value: when the value is
//! dropped, or the process dies in whatever way, the kernel takes the map, the
//! program and the attachment away. Nothing is pinned to a file system, so
//! nothing is left behind.
//!
//! Rights: `CAP_BPF` and `CAP_NET_ADMIN` (or root), and for some helpers
//! `CAP_PERFMON`. Integers in maps have the machine's byte order, in packets
//! the network's.

pub mod asm;
pub mod link;
pub mod map;
pub mod mapped_array;
pub mod program;
mod sys;

pub use asm::{Assembler, Code};
pub use link::{AttachError, Link, Mode};
pub use map::{Kind, Map};
pub use mapped_array::MappedArray;
pub use program::{LiveRun, LoadError, Program, TestRun};
