//! The forwarding table inside the kernel: eBPF programs that look up in the same bytes as this process.
//!
//! ```text
//!   Updater ──commit──► Fib ─────────KernelTable::publish──► direct array ─┐
//!      │                  │ lookups of this process                        ├─► a program: lookup
//!      └── stores chunks ─┴────────── one BPF array, mapped ───────────────┘
//! ```
//!
//! - [`arrays`]: BPF arrays whose memory this process maps, in which the updater stores chunks.
//! - [`table`]: the table that programs read, and how a commit gets there without half a change.
//! - [`grace`]: waits until no program runs any more that could have read a former state.
//! - [`lookup`]: the lookup as a subroutine in eBPF.
//! - [`attach`](mod@attach): the lookup in the place of a function of another project's program.
//! - [`forward`]: the forwarding of packets in the driver, in front of the router's sockets.
//! - [`block`]: block lists, by the lookup of a packet's source.
//! - [`probe`]: many lookups in the kernel by `BPF_PROG_TEST_RUN`, for tests and benchmarks.
//!
//! The kernel offers a longest prefix match of its own, `BPF_MAP_TYPE_LPM_TRIE`: a binary trie with an
//! allocation for each prefix, at which a lookup in a full table takes more than a microsecond. The engines `flat`
//! and `rank` take two to six loads (`fib::engine::rank`).

#![forbid(unsafe_code)]

pub mod arrays;
pub mod attach;
pub mod block;
mod error;
pub mod forward;
pub mod grace;
pub mod lookup;
pub mod probe;
mod shapes;
pub mod table;

pub use arrays::BpfArrays;
pub use attach::Attachment;
pub use block::{Blocker, ListAction};
pub use error::ProgramError;
pub use grace::Grace;
pub use probe::Probe;
pub use table::{KernelTable, Publication, TableArrays, TableError};
