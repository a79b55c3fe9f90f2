//! Runs the tests in Python, tests/test_table.py, on the module of this build.
//!
//! It needs Debian's interpreter. Cargo builds the module for this test; a program of Rust cannot link it.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns the module, which cargo builds beside this program.
fn module() -> PathBuf {
    std::env::current_exe().unwrap().with_file_name("libfingerpost_python.so")
}

#[test]
fn module_passes_its_tests_in_python() {
    let package = tempfile::tempdir().unwrap();
    let name = package.path().join("fingerpost.abi3.so");
    std::os::unix::fs::symlink(module(), name).unwrap();
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/test_table.py");
    let output = Command::new("/usr/bin/python3")
        .arg(tests)
        .env("PYTHONPATH", package.path())
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .unwrap();
    let report = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {report}", output.status);
    let count = report.lines().find_map(|line| line.strip_prefix("Ran ")).unwrap_or_default();
    let count: u32 = count.split_whitespace().next().and_then(|n| n.parse().ok()).unwrap_or(0);
    assert!(count >= 17, "only {count} tests ran: {report}");
    assert!(report.ends_with("OK\n"), "some tests were skipped: {report}");
}
