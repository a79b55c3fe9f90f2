//! Differential fuzzing: bytes become a script, and every engine executes it.
//!
//! ```text
//! bytes ─► script ─┬─► Updater of engine 1 ─► answers ┐
//!                  ├─► Updater of engine 2 ─► answers ├─ equal to the oracle's?
//!                  └─► plain map of routes ─► oracle ─┘
//! ```
//!
//! "It does not crash" is not a property. At every commit of every script these properties are
//! checked: `lookup`, `lookup_batch` and `trace` of each engine return what
//! [`Linear`](fib::engine::linear::Linear) returns, at every address of a small universe and at
//! every border of a wide one; an engine that returns [`Full`](fib::Full) continues to answer as
//! before; a table that was updated answers as one that is built from the remaining routes, and
//! when all routes are withdrawn it has no answer.
//!
//! | target | checks |
//! |---|---|
//! | `engines_small` | `u8` and `u16`, every engine, every address compared |
//! | `engines_wide` | `u32`, `u64` and `u128`, at borders and at addresses of the script |
//! | `click` | configurations of the Click modular router: their routes, also with comments and when written again |
//! | `databases` | tables as MaxMind databases and as text, read again; damaged databases are refused or bounded |
//! | `flowspec` | flow specifications of a BGP peer, at once and in pieces |
//! | `fpm` | routes of FRR's protocol, in pieces and over two connections, with the mirrors |
//! | `image` | images with changed bytes: each is refused, or saved again unchanged |
//! | `mrt` | files of routes plain, gzipped and bzipped, at once and in pieces |
//! | `netlink` | the changes that a mirror of the kernel reports, with its contents |
//! | `packets` | frames and extension headers, with a slow parser |
//! | `tunnels` | packets from a tunnel, with the packet before and the inner packet |
//! | `decisions` | messages of both versions: accepted ones can be written again, forged ones are refused |
//! | `programs` | damaged object files: programs that pass the verifier run without a fault |
//! | `bundles` | packed bundles open, opened ones were signed |
//! | `control` | lines of the control socket, parsed and written again |
//! | `configs` | accepted configurations are consistent, errors name their line |
//! | `captures` | captures are the same when written and read again |
//! | `access_lists` | rules that are written again, and a classifier with a linear search |
//! | `state_files` | flows and histories across a restart: accepted files are the same when they are written again |
//! | `text` | the parsers of `Prefix` and `Choice`, with the standard library and with their own output |
//!
//! The targets (`fuzz_targets/`) are three lines each around the functions here, and
//! `tests/corpus.rs` runs the stored corpus through the same functions without
//! libFuzzer. `cargo xtask fuzz` builds and runs them.

#![forbid(unsafe_code)]

pub mod access_lists;
pub mod bundles;
pub mod captures;
pub mod click;
pub mod configs;
pub mod control;
pub mod databases;
pub mod decisions;
pub mod engines;
pub mod flowspec;
pub mod fpm;
pub mod image;
pub mod mrt;
pub mod netlink;
pub mod packets;
pub mod programs;
pub mod script;
pub mod state_files;
mod subject;
pub mod text;
pub mod tunnels;

pub use engines::Bench;
pub use subject::Tally;
