//! Real-time priority, for what must not wait until others have had their turn.

use std::process::Command;

use anyhow::{Context, Result, bail};
use nix::unistd::Pid;

/// Gives a task a low real-time priority (one is left below it).
pub(crate) fn make_urgent(task: Pid) -> Result<()> {
    let status = Command::new("chrt")
        .args(["-f", "-p", "2", &task.to_string()])
        .status()
        .context("cannot run `chrt`: install the Debian package util-linux")?;
    if !status.success() {
        bail!("chrt failed for task {task}");
    }
    Ok(())
}
