//! One command per habit of this repository: `cargo xtask VERB`.
//!
//! ```text
//!   verb ─► plan: a list of steps ─► schedule: alone or several at once ─► summary
//!                       step ─► a child process, streamed and read for its counts
//! ```
//!
//! Each verb is a list of steps (`plan`). A step runs a child process whose output is logged as it
//! comes (`command`) and read on the way for the result lines of the tests (`results`); the
//! scheduler (`schedule`) adds the counts of all steps up. A failing step does not end the run: the
//! summary at the end is always whole, and its last line is always
//!
//! ```text
//! N passed, N failed, N skipped
//! ```
//!
//! Nothing is skipped in silence. A tool or package that is missing is installed (`needs`) or named
//! as a failure, a test program that runs no test is a failure, and a skipped test (`--no-smoke`) is
//! counted and printed.
//!
//! A library, so that the build of the documentation tests has the dependencies of the other tests: without this crate
//! in it, cargo would compile procedural macros, and all crates that use them, a second time.

#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "a program for people: printing is its purpose")]

use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};

mod abi;
mod audit_data;
mod changes;
mod command;
mod cycles;
mod deb;
mod fuzz;
mod house;
mod language;
mod licenses;
mod matrix;
mod metadata;
mod needs;
mod neon;
mod plan;
mod programs;
mod release;
mod results;
mod sanitizers;
mod sbom;
mod schedule;
mod simd;
mod smoke;
mod step;

/// One command per habit of this repository.
#[derive(Parser)]
#[command(name = "cargo xtask", disable_help_subcommand = true)]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Formatting, lints, the unit tests of the packages that changed and three smoke tests
    Quick {
        /// Packages, with or without `fingerpost-`; by default those that changed since main
        packages: Vec<String>,
    },
    /// Every test; the last line counts them
    Test {
        /// Leave out the tests that need root and namespaces
        #[arg(long)]
        no_smoke: bool,
    },
    /// Formatting, lints and the rules of the house
    Check,
    /// List the lines that break the rules of language (CONTRIBUTING.md)
    Language {
        /// Write the number of lines left, which never grows
        #[arg(long, conflicts_with = "paths")]
        record: bool,
        /// Files and folders; by default the whole tree
        paths: Vec<String>,
    },
    /// List the cycles between crates and between the modules of each
    Cycles,
    /// The smoke tests in network namespaces: all, or the named
    Smoke { names: Vec<String> },
    /// Smoke tests in virtual machines with Debian's kernel under QEMU: those that ask for one, or the
    /// named. An emulated processor is ten times slower, so not each test can run there
    Vm { names: Vec<String> },
    /// The publication protocol under every interleaving
    Loom,
    /// The threaded tests under ThreadSanitizer
    Tsan,
    /// The tests of tables, images and the arena under AddressSanitizer
    Asan,
    /// All 2^32 IPv4 addresses against a painted array, 200 million of IPv6, real streams and a million
    /// updates: every engine, some minutes each; 64 FIBs; as root, 10^9 addresses of tables in the kernel
    Exhaustive {
        /// Only these engines
        #[arg(long, value_name = "NAME,...")]
        engines: Option<String>,
    },
    /// Builds without std, of each package by itself, by the oldest supported Rust, for 32 bits, for
    /// AArch64, and by Miri, as far as the toolchains are installed
    Matrix,
    /// The library built for AArch64 and tested under emulation: its kernels and their twins
    Neon,
    /// All engines and parsers against their references on inputs that libFuzzer generates
    Fuzz(fuzz::Arguments),
    /// The Debian package
    Deb(deb::Arguments),
    /// Build the Debian packages of the C library: libfingerpost0 and libfingerpost-dev
    DebLibrary(deb::LibraryArguments),
    /// `fingerpost-bench` in a release build
    #[command(disable_help_flag = true)]
    Bench {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
}

/// Runs the verb of the command line.
pub fn main() -> ExitCode {
    match run(Arguments::parse().verb) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs a verb; returns whether nothing failed.
fn run(verb: Verb) -> Result<bool> {
    let root = metadata::root()?;
    std::env::set_current_dir(&root).with_context(|| format!("entering {}", root.display()))?;
    let steps = match verb {
        Verb::Quick { packages } => plan::quick(&packages)?,
        Verb::Test { no_smoke: true } => plan::test(plan::Smoke::Skip)?,
        Verb::Test { no_smoke: false } => plan::test(plan::Smoke::Run)?,
        Verb::Check => plan::check()?,
        Verb::Language { record: true, .. } => return language::record().map(|()| true),
        Verb::Language { paths, .. } => return language::list(&paths).map(|()| true),
        Verb::Cycles => return cycles::list().map(|()| true),
        Verb::Smoke { names } => plan::smoke(&names)?,
        Verb::Vm { names } => plan::vm(&names)?,
        Verb::Loom => sanitizers::loom()?,
        Verb::Tsan => sanitizers::thread()?,
        Verb::Asan => sanitizers::address()?,
        Verb::Exhaustive { engines } => plan::exhaustive(engines.as_deref()),
        Verb::Matrix => matrix::steps()?,
        Verb::Neon => neon::steps()?,
        Verb::Fuzz(arguments) => fuzz::steps(&arguments)?,
        Verb::Deb(arguments) => return deb::build(&arguments).map(|()| true),
        Verb::DebLibrary(arguments) => return deb::build_library(&arguments).map(|()| true),
        Verb::Bench { arguments } => return plan::bench(&arguments),
    };
    schedule::run(&steps)
}
