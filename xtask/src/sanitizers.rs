//! Tests in builds with other flags: loom, ThreadSanitizer, AddressSanitizer.
//!
//! The sanitizers are not stable, hence the variable that makes the stable compiler take their flags;
//! their builds are for a named target so that build scripts are left as they are.

use anyhow::Result;

use crate::command::{CommandLine, NOT_INCREMENTAL};
use crate::metadata::{host, root, target};
use crate::programs::KERNEL_ENGINES;
use crate::step::Step;

/// Line tables, which the profile of the tests leaves out: reports name the lines, and inlined functions, by which
/// ThreadSanitizer's suppressions are found.
const LINE_TABLES: (&str, &str) = ("CARGO_PROFILE_DEV_DEBUG", "line-tables-only");

/// `feed`, which reads real tables for other tests of `fib`, need not be fast.
const UNUSED_READERS: [&str; 2] = ["--config", "profile.dev.package.fingerpost-feed.opt-level=0"];

/// Explores every interleaving of the publication protocol.
pub(crate) fn loom() -> Result<Vec<Step>> {
    let target = target()?.join("loom");
    Ok(vec![Step::cargo_test(
        "loom",
        CommandLine::cargo(&["test", "--package", "fingerpost-fib", "--release", "--test", "loom"])
            .env("RUSTFLAGS", "--cfg loom")
            // Optimization of the whole program takes longer than the test.
            .env("CARGO_PROFILE_RELEASE_LTO", "off")
            .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16")
            .env("CARGO_TARGET_DIR", target.to_string_lossy()),
        &[],
    )])
}

/// Builds the tests of [`thread`] and [`address`].
pub(crate) fn builds() -> Result<[Step; 2]> {
    const BUILD: [&str; 1] = ["--no-run"];
    Ok([
        Step::command("build for AddressSanitizer", address_tests(&BUILD)?),
        Step::command("build for ThreadSanitizer", thread_tests(&BUILD)?),
    ])
}

/// Runs the threaded tests under ThreadSanitizer.
pub(crate) fn thread() -> Result<Vec<Step>> {
    Ok(vec![Step::cargo_test("ThreadSanitizer", thread_tests(&[])?, &[])])
}

/// Returns the command for the tests under ThreadSanitizer.
fn thread_tests(args: &[&str]) -> Result<CommandLine> {
    let target = target()?.join("tsan");
    let suppressions = root()?.join("crates/fib/tests/tsan.supp");
    let command =
        CommandLine::cargo(&["test", "--package", "fingerpost-fib", "--target", &host()?])
            .args(&["--test", "publish", "--no-fail-fast"])
            .args(&UNUSED_READERS)
            .args(args)
            .env(NOT_INCREMENTAL.0, NOT_INCREMENTAL.1)
            .env(LINE_TABLES.0, LINE_TABLES.1)
            .env("RUSTC_BOOTSTRAP", "1")
            .env("RUSTFLAGS", "--cfg tsan -Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer")
            .env("TSAN_OPTIONS", format!("suppressions={}", suppressions.display()))
            .env("CARGO_TARGET_DIR", target.to_string_lossy());
    Ok(command)
}

/// Runs the crates with `unsafe` code under AddressSanitizer: tables, images and lookup kernels of
/// `fib`, arena and packet files of `port`.
pub(crate) fn address() -> Result<Vec<Step>> {
    Ok(vec![Step::cargo_test("AddressSanitizer", address_tests(&[])?, &[])])
}

/// Returns the command for the tests under AddressSanitizer. `--cfg asan` leaves out the engines without lookup
/// kernels. `fib` is less optimized than in other tests: instrumented, its engines take the compiler longer than the
/// tests gain.
fn address_tests(args: &[&str]) -> Result<CommandLine> {
    let target = target()?.join("asan");
    let mut command =
        CommandLine::cargo(&["test", "--target", &host()?, "--lib", "--no-fail-fast"])
            .args(args)
            .args(&["--config", "profile.dev.package.fingerpost-fib.opt-level=1"])
            .args(&UNUSED_READERS);
    for package in ["fingerpost-fib", "fingerpost-port"] {
        command = command.args(&["--package", package]);
    }
    for test in ["image", "battery", "accounting"] {
        command = command.args(&["--test", test]);
    }
    Ok(command
        .env(NOT_INCREMENTAL.0, NOT_INCREMENTAL.1)
        .env(LINE_TABLES.0, LINE_TABLES.1)
        .env("RUSTC_BOOTSTRAP", "1")
        .env("RUSTFLAGS", "--cfg asan -Zsanitizer=address")
        .env("FINGERPOST_ENGINES", KERNEL_ENGINES)
        .env("CARGO_TARGET_DIR", target.to_string_lossy()))
}
