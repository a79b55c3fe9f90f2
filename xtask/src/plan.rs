//! What each verb consists of: the list of steps, in the order they run.
//!
//! What fails fastest comes first: formatting before lints, lints before tests,
//! tests before what needs root. Builds with other flags (loom, ThreadSanitizer)
//! get folders of their own under the target folder, so that going from one to
//! the other rebuilds nothing.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::step::{Step, Words};
use crate::{fuzz, house, language, needs, smoke as scripts};

/// Whether `test` runs what needs root.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Smoke {
    Run,
    Skip,
}

const NOT_ROOT: &str = "needs root (network namespaces, AF_XDP sockets): run it as root, \
                        or leave this part out with `cargo xtask test --no-smoke`";
const ASKED_FOR: &str = "left out: --no-smoke";

/// The folder of the repository.
pub(crate) fn root() -> Result<PathBuf> {
    let root = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    root.canonicalize().with_context(|| format!("finding the repository at {}", root.display()))
}

/// What cargo knows of the workspace.
pub(crate) fn metadata() -> Result<Value> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--no-deps"])
        .output()
        .context("running cargo metadata")?;
    if !output.status.success() {
        bail!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    serde_json::from_slice(&output.stdout).context("reading what cargo metadata says")
}

/// Where cargo builds, whichever way that was said.
pub(crate) fn target() -> Result<PathBuf> {
    let metadata = metadata()?;
    let target = metadata["target_directory"].as_str();
    target.map(PathBuf::from).context("cargo metadata names no target folder")
}

/// `check`: what needs no test run.
pub(crate) fn check() -> Result<Vec<Step>> {
    let metadata = metadata()?;
    let mut steps = vec![
        Step::own("rustfmt and clippy are there", needs::components),
        Step::command("formatting", Words::cargo(&["fmt", "--all", "--check"])),
        Step::own("house rules", move || house::check(&metadata)),
        Step::own("language", language::check),
        Step::command(
            "lints",
            Words::cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]),
        ),
    ];
    steps.extend(fuzz::check()?);
    Ok(steps)
}

/// `test`: everything.
pub(crate) fn test(smoke: Smoke) -> Result<Vec<Step>> {
    let mut steps = check()?;
    if smoke == Smoke::Run {
        steps.push(packages());
    }
    steps.push(Step::command(
        "documentation",
        Words::cargo(&["doc", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings"),
    ));
    steps.push(Step::tests(
        "tests",
        Words::cargo(&["test", "--workspace", "--lib", "--bins", "--tests", "--no-fail-fast"]),
        // Built for loom only, and run by the step below.
        &["tests/loom.rs"],
    ));
    steps.extend(twins());
    steps.push(Step::tests(
        "documentation tests",
        Words::cargo(&["test", "--workspace", "--doc", "--no-fail-fast"]),
        &[],
    ));
    steps.push(fuzz::corpus()?);
    steps.extend(loom()?);
    steps.extend(tsan()?);
    steps.extend(asan()?);
    if smoke == Smoke::Skip {
        for (package, _) in root_test_targets(&metadata()?) {
            steps.push(Step::skipped(&format!("root tests of {package}"), ASKED_FOR));
        }
        for (name, _) in scripts::scripts(&[])? {
            steps.push(Step::skipped(&format!("smoke {name}"), ASKED_FOR));
        }
    } else {
        steps.extend(root_tests()?);
        steps.extend(smoke_scripts(&[])?);
    }
    Ok(steps)
}

/// The engines that have kernels.
pub(crate) const KERNEL_ENGINES: &str =
    "rank,flat,rank6,D16X4R,D18R,D16X8R,sail_l,dir24_8,poptrie,treebitmap";

/// Those engines, on what each kernel's slower twins do (see
/// `fib/src/arch/x86_64/mod.rs`).
fn twins() -> Vec<Step> {
    let step = |level: &str| {
        Step::tests(
            &format!("engines without the best instructions: {level}"),
            Words::cargo(&["test", "--package", "fingerpost-fib", "--test", "battery"])
                .env("FINGERPOST_SIMD", level)
                .env("FINGERPOST_ENGINES", KERNEL_ENGINES),
            &[],
        )
    };
    ["base", "counts", "wide"].map(step).into()
}

/// The tests that talk to the kernel: one step for each crate that has some.
fn root_tests() -> Result<Vec<Step>> {
    let mut steps = Vec::new();
    for (package, tests) in root_test_targets(&metadata()?) {
        let name = format!("root tests of {package}");
        if !needs::is_root() {
            steps.push(Step::own(&name, || Err(NOT_ROOT.to_owned())));
            continue;
        }
        let mut words = Words::cargo(&["test", "--package", &package, "--features", "root-tests"]);
        for test in tests {
            words.words.extend(["--test".to_owned(), test]);
        }
        words.words.push("--no-fail-fast".to_owned());
        steps.push(Step::tests(&name, words, &[]));
    }
    Ok(steps)
}

/// Each package with test targets that require the feature `root-tests`, and their
/// names.
fn root_test_targets(metadata: &Value) -> Vec<(String, Vec<String>)> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let name = |value: &Value| value["name"].as_str().unwrap_or_default().to_owned();
    let mut found = Vec::new();
    for package in list(&metadata["packages"]) {
        let tests: Vec<String> = list(&package["targets"])
            .iter()
            .filter(|target| list(&target["required-features"]).contains(&"root-tests".into()))
            .map(name)
            .collect();
        if !tests.is_empty() {
            found.push((name(&package), tests));
        }
    }
    found
}

/// What the root tests and the scripts call; a step before both.
fn packages() -> Step {
    Step::own("packages", needs::packages)
}

/// `smoke`: the packages, a release build, and the scripts.
pub(crate) fn smoke(only: &[String]) -> Result<Vec<Step>> {
    let mut steps = vec![packages()];
    steps.extend(smoke_scripts(only)?);
    Ok(steps)
}

/// A release build, and the scripts that try it.
fn smoke_scripts(only: &[String]) -> Result<Vec<Step>> {
    let found = scripts::scripts(only)?;
    if !needs::is_root() {
        let fail = |(name, _): (String, _)| {
            Step::own(&format!("smoke {name}"), || Err(NOT_ROOT.to_owned()))
        };
        return Ok(found.into_iter().map(fail).collect());
    }
    let program = target()?.join("release/fingerpost");
    let mut steps = vec![Step::command(
        "release build",
        Words::cargo(&[
            "build",
            "--release",
            "--package",
            "fingerpost",
            "--package",
            "fingerpost-bench",
        ]),
    )];
    steps.extend(found.iter().map(|(name, script)| scripts::step(name, script, &program)));
    Ok(steps)
}

/// `loom`: every interleaving of the publication protocol.
pub(crate) fn loom() -> Result<Vec<Step>> {
    let target = target()?.join("loom");
    Ok(vec![Step::tests(
        "loom",
        Words::cargo(&["test", "--package", "fingerpost-fib", "--release", "--test", "loom"])
            .env("RUSTFLAGS", "--cfg loom")
            .env("CARGO_TARGET_DIR", target.to_string_lossy()),
        &[],
    )])
}

/// `tsan`: the threaded tests with every memory access watched.
///
/// The flags are those at the head of the test's own file. The sanitizer is not
/// stable, hence the variable that makes the stable compiler take its flag; the
/// build is for a named target so that build scripts are left as they are.
pub(crate) fn tsan() -> Result<Vec<Step>> {
    let target = target()?.join("tsan");
    let suppressions = root()?.join("crates/fib/tests/tsan.supp");
    let host = host()?;
    Ok(vec![Step::tests(
        "ThreadSanitizer",
        Words::cargo(&[
            "test",
            "--package",
            "fingerpost-fib",
            "--target",
            &host,
            "--test",
            "publish",
            "--no-fail-fast",
        ])
        .env("RUSTC_BOOTSTRAP", "1")
        .env("RUSTFLAGS", "--cfg tsan -Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer")
        .env("TSAN_OPTIONS", format!("suppressions={}", suppressions.display()))
        .env("CARGO_TARGET_DIR", target.to_string_lossy()),
        &[],
    )])
}

/// `asan`: the crates with `unsafe` code, with every memory access checked (AddressSanitizer): tables, images
/// and lookup kernels of `fib`, arena and packet files of `port`.
pub(crate) fn asan() -> Result<Vec<Step>> {
    let target = target()?.join("asan");
    let host = host()?;
    let mut words = vec!["test", "--target", &host, "--lib", "--no-fail-fast"];
    for package in ["fingerpost-fib", "fingerpost-port"] {
        words.extend(["--package", package]);
    }
    for test in ["image", "battery", "accounting"] {
        words.extend(["--test", test]);
    }
    Ok(vec![Step::tests(
        "AddressSanitizer",
        Words::cargo(&words)
            .env("RUSTC_BOOTSTRAP", "1")
            .env("RUSTFLAGS", "-Zsanitizer=address")
            .env("FINGERPOST_ENGINES", KERNEL_ENGINES)
            .env("CARGO_TARGET_DIR", target.to_string_lossy()),
        &[],
    )])
}

/// The target that the compiler builds for by itself.
pub(crate) fn host() -> Result<String> {
    let output = Command::new("rustc").arg("-vV").output().context("running rustc -vV")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).context("rustc -vV names no host")
}

/// `exhaustive`: the tests that are too long for every day.
pub(crate) fn exhaustive(args: &[String]) -> Result<Vec<Step>> {
    let engines = match args {
        [] => None,
        [flag, names] if flag == "--engines" => Some(names),
        [other, ..] => bail!("`{other}` is not understood here: --engines NAME,NAME"),
    };
    let step = |name: &str, test: &str| {
        let package = ["test", "--package", "fingerpost-fib", "--release"];
        let test = ["--features", "exhaustive", "--test", test, "--", "--nocapture"];
        // One test at a time: each has threads of its own, and gigabytes.
        let words = [&package[..], &test[..], &["--test-threads=1"]].concat();
        let mut words = Words::cargo(&words);
        if let Some(names) = engines {
            words = words.env("FINGERPOST_ENGINES", names.as_str());
        }
        Step::tests(name, words, &[])
    };
    Ok(vec![
        step("every address of IPv4", "full_space"),
        step("full tables, streams and memory", "full"),
        step("64 FIBs", "many_fibs"),
        step("8 FIBs that share", "fibs_full"),
        step("the choice's estimates", "estimates"),
    ])
}

/// `bench`: hands the arguments on to `fingerpost-bench`, without steps and counts.
pub(crate) fn bench(args: &[String]) -> Result<bool> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let status = Command::new(cargo)
        .args(["run", "--release", "--package", "fingerpost-bench", "--"])
        .args(args)
        .status()
        .context("running cargo")?;
    Ok(status.success())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn tests_for_root_are_found_by_the_feature_they_require() {
        let target =
            |name: &str, features: &[&str]| json!({"name": name, "required-features": features});
        let metadata = json!({"packages": [
            {"name": "a", "targets": [{"name": "a"}, target("t", &["root-tests"]), target("u", &[])]},
            {"name": "b", "targets": [target("v", &["other"])]},
        ]});
        assert_eq!(root_test_targets(&metadata), [("a".to_owned(), vec!["t".to_owned()])]);
        assert_eq!(root_test_targets(&json!({})), []);
    }

    #[test]
    fn this_workspace_has_tests_for_root() {
        assert!(!root_test_targets(&metadata().unwrap()).is_empty());
    }
}
