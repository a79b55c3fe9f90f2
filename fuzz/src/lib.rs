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
//! | `netlink` | what a mirror of the kernel has told, against what it shows |
//! | `text` | what `Prefix` and `Choice` read, against the standard library and back |
//!
//! The targets (`fuzz_targets/`) are three lines each around the functions here, and
//! `tests/corpus.rs` plays the kept corpus through the same functions without
//! libFuzzer. `cargo xtask fuzz` builds and runs them.

#![forbid(unsafe_code)]

pub mod engines;
pub mod netlink;
pub mod script;
mod subject;
pub mod text;

pub use engines::{Bench, Tally};
