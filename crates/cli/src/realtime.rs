//! Real-time priority, for threads that must not wait for other threads.

use std::process::Command;

use anyhow::{Context, Result, bail};
use nix::unistd::Pid;

/// Sets the scheduling policy of a task to `SCHED_FIFO` with priority 2; priority 1 stays free.
pub(crate) fn set_realtime_priority(task: Pid) -> Result<()> {
    let status = Command::new("chrt")
        .args(["-f", "-p", "2", &task.to_string()])
        .status()
        .context("cannot run `chrt`: install the Debian package util-linux")?;
    if !status.success() {
        bail!("chrt failed for task {task}");
    }
    Ok(())
}
