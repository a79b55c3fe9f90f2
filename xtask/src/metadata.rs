//! Facts about the repository and the toolchain: root folder, workspace, target folder, host.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// Returns the folder of the repository.
pub(crate) fn root() -> Result<PathBuf> {
    let root = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    root.canonicalize().with_context(|| format!("finding the repository at {}", root.display()))
}

/// Reads cargo's description of the workspace.
pub(crate) fn read() -> Result<Value> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--no-deps"])
        .output()
        .context("running cargo metadata")?;
    if !output.status.success() {
        bail!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    serde_json::from_slice(&output.stdout).context("parsing the output of cargo metadata")
}

/// Returns cargo's target folder, whichever way it was configured.
pub(crate) fn target() -> Result<PathBuf> {
    let metadata = read()?;
    let target = metadata["target_directory"].as_str();
    target.map(PathBuf::from).context("cargo metadata names no target folder")
}

/// Returns the target that the compiler builds for by default.
pub(crate) fn host() -> Result<String> {
    let output = Command::new("rustc").arg("-vV").output().context("running rustc -vV")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).context("rustc -vV names no host")
}
