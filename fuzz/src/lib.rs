//! Differential fuzzing: bytes become a script, and every engine plays it.
//!
//! ```text
//! bytes ─► script ─┬─► Updater of engine 1 ─► answers ┐
//!                  ├─► Updater of engine 2 ─► answers ├─ equal to the oracle's?
//!                  └─► plain map of routes ─► oracle ─┘
//! ```
//!
//! "It does not crash" is no property (HOUSE.md, rule 13). What is held here, at
//! every commit of every script: `lookup`, `lookup_batch` and `trace` of each
//! engine give what [`Linear`](fib::engine::linear::Linear) gives, at every address of
//! a small universe and at every border of a wide one; an engine that says
//! [`Full`](fib::Full) goes on answering as before; a table that followed its
//! changes answers as one that is built of the routes that are left, and when all
//! are withdrawn answers nothing.
//!
//! | target | what |
//! |---|---|
//! | `engines_small` | `u8` and `u16`, every engine, every address compared |
//! | `engines_wide` | `u32`, `u64` and `u128`, at borders and at addresses of the script |
//! | `fpm` | what FRR's protocol reports, in pieces and over two connections, against the mirrors |
//! | `image` | images with changed bytes: refused, or kept as they were read |
//! | `mrt` | files of routes plain, gzipped and bzipped, at once and in pieces |
//! | `netlink` | what a mirror of the kernel has told, against what it shows |
//! | `packets` | frames and extension headers, against a slow reading of them |
//! | `tunnels` | packets from a tunnel, against the packet before and the packet put in |
//! | `decisions` | messages of both versions: accepted ones can be written again, forged ones are refused |
//! | `programs` | damaged object files: programs that pass the verifier run without a fault |
//! | `bundles` | packed bundles open, opened ones were signed |
//! | `control` | lines of the control socket go round |
//! | `configs` | accepted configurations are consistent, errors name their line |
//! | `captures` | captures are the same when written and read again |
//! | `text` | what `Prefix` and `Choice` read, against the standard library and back |
//!
//! The targets (`fuzz_targets/`) are three lines each around the functions here, and
//! `tests/corpus.rs` plays the kept corpus through the same functions without
//! libFuzzer. `cargo xtask fuzz` builds and runs them.

#![forbid(unsafe_code)]

pub mod bundles;
pub mod captures;
pub mod configs;
pub mod control;
pub mod decisions;
pub mod engines;
pub mod fpm;
pub mod image;
pub mod mrt;
pub mod netlink;
pub mod packets;
pub mod programs;
pub mod script;
mod subject;
pub mod text;
pub mod tunnels;

pub use engines::Bench;
pub use subject::Tally;
