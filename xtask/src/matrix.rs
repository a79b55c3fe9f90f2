//! `matrix`: the builds that other machines and other users make.
//!
//! ```text
//!   the library without std ─► each package by itself ─► the oldest supported Rust
//!      ─► a 32-bit target ─► AArch64 under emulation (neon.rs) ─► Miri
//!      ─► the packages for crates.io, each built by itself, without publishing them
//! ```
//!
//! A build for which a toolchain or a target is not installed is a skipped step
//! whose name states what to install; it never counts as passed.

use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use crate::command::CommandLine;
use crate::metadata;
use crate::neon;
use crate::step::Step;

/// A target whose pointers have 32 bits.
const SMALL: &str = "i686-unknown-linux-gnu";

/// `matrix`: each build by itself.
pub(crate) fn steps() -> Result<Vec<Step>> {
    let metadata = metadata::read()?;
    let own = |value: &serde_json::Value| value.as_str().map(str::to_owned);
    let packages = metadata["packages"].as_array().context("cargo metadata lists no packages")?;
    let oldest = packages.iter().find_map(|package| own(&package["rust_version"]));
    let oldest = oldest.context("the workspace states no rust-version")?;
    let library = ["check", "--package", "fingerpost-fib", "--lib", "--no-default-features"];
    let mut steps = vec![Step::command("fib without std", CommandLine::cargo(&library))];
    for package in packages {
        let name = own(&package["name"]).context("cargo metadata has a package without a name")?;
        let words = ["check", "--package", &name, "--no-default-features"];
        steps.push(Step::command(&format!("{name} by itself"), CommandLine::cargo(&words)));
    }
    let toolchain = format!("+{oldest}");
    steps.push(if runs("rustc", &[&toolchain, "--version"]) {
        let words = ["cargo", &toolchain, "check", "--workspace", "--all-targets"];
        let folder = metadata::target()?.join("oldest");
        let command = CommandLine::new(&words).env("CARGO_TARGET_DIR", folder.to_string_lossy());
        Step::command("the oldest supported Rust", command)
    } else {
        Step::skipped(
            &format!("Rust {oldest} (`rustup toolchain install {oldest}`)"),
            "the toolchain is not installed",
        )
    });
    steps.push(if has_std(SMALL) {
        let words = ["check", "--package", "fingerpost-fib", "--target", SMALL];
        Step::command("fib for 32 bits", CommandLine::cargo(&words))
    } else {
        Step::skipped(
            &format!("32 bits (`rustup target add {SMALL}`)"),
            "the target is not installed",
        )
    });
    steps.extend(neon::steps()?);
    steps.push(if runs("cargo", &["+nightly", "miri", "--version"]) {
        let words = ["cargo", "+nightly", "miri", "test", "--package", "fingerpost-fib", "--lib"];
        Step::command("Miri on the library", CommandLine::new(&words))
    } else {
        Step::skipped(
            "Miri (`rustup component add --toolchain nightly miri`)",
            "the component is not installed",
        )
    });
    let packages = ["publish", "--workspace", "--dry-run", "--allow-dirty"];
    steps.push(Step::command("packages for crates.io", CommandLine::cargo(&packages)));
    Ok(steps)
}

/// Returns whether a command ends with success.
fn runs(program: &str, arguments: &[&str]) -> bool {
    let mut command = Command::new(program);
    // cargo sets the toolchain of this process, which would precede `+`.
    command.env_remove("RUSTUP_TOOLCHAIN").args(arguments);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// Returns whether the compiler has the standard library of a target.
fn has_std(target: &str) -> bool {
    let output = Command::new("rustc")
        .args(["--print", "target-libdir", "--target", target])
        .stderr(Stdio::null())
        .output();
    output.is_ok_and(|output| {
        let folder = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        output.status.success() && std::path::Path::new(&folder).is_dir()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matrix_builds_each_package_and_skips_nothing_in_silence() {
        let names: Vec<_> = steps().unwrap().into_iter().map(|step| step.name).collect();
        for name in ["fib without std", "fingerpost-control by itself", "fingerpost by itself"] {
            assert!(names.iter().any(|own| own == name), "{name}: {names:?}");
        }
        for part in ["Rust", "32 bits", "Miri"] {
            assert!(names.iter().any(|own| own.contains(part)), "{part}: {names:?}");
        }
    }

    #[test]
    fn unknown_toolchain_or_target_is_not_there() {
        assert!(!runs("rustc", &["+no-such-toolchain", "--version"]));
        assert!(!has_std("no-such-target"));
    }
}
