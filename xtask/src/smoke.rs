//! Runs the scripts under `smoke/`: one behavior each, in namespaces of its own.
//!
//! A script is told the programs to test (`FINGERPOST`, `FINGERPOST_BENCH`), where the repository and
//! the data are, and the prefix of the names it may make (`SMOKE_PREFIX`). It
//! fails by its exit status. Afterwards no namespace with that prefix may be
//! left; one that is left is removed and counts as a failure of the test.
//!
//! Two guards stand around a script: `timeout`, which ends its whole process
//! group, and `setpriv --pdeathsig`, which ends it if we are killed ourselves.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::step::{Step, Words};

/// The longest a smoke test may take, in seconds.
const LIMIT: &str = "180";

/// The end of the name of a script that is a test; others are sourced by these.
const SUFFIX: &str = "_test.sh";

/// The scripts of `smoke/` by name; all, or only those asked for.
pub(crate) fn scripts(only: &[String]) -> Result<Vec<(String, PathBuf)>> {
    let folder = Path::new("smoke");
    let mut found = Vec::new();
    for entry in folder.read_dir().context("reading the folder smoke")? {
        let path = entry.context("reading the folder smoke")?.path();
        let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if let Some(name) = file.strip_suffix(SUFFIX) {
            found.push((name.to_owned(), path));
        }
    }
    found.sort();
    for name in only {
        if !found.iter().any(|(have, _)| have == name) {
            let have: Vec<&str> = found.iter().map(|(name, _)| &**name).collect();
            bail!("there is no smoke test `{name}`; there are: {}", have.join(", "));
        }
    }
    found.retain(|(name, _)| only.is_empty() || only.contains(name));
    if found.is_empty() {
        bail!("there is no script in smoke/");
    }
    Ok(found)
}

/// One script as a step.
pub(crate) fn step(name: &str, script: &Path, program: &Path) -> Step {
    // Interface names hold 15 bytes, so the prefix is short.
    let prefix = format!("fp{}-", std::process::id());
    let words = Words::new(&[
        "setpriv",
        "--pdeathsig",
        "TERM",
        "timeout",
        "--kill-after=20",
        LIMIT,
        "bash",
        &script.to_string_lossy(),
    ])
    .env("FINGERPOST", program.to_string_lossy())
    .env("FINGERPOST_BENCH", format!("{}-bench", program.display()))
    .env("SMOKE_PREFIX", prefix.clone());
    Step::own(&format!("smoke {name}"), move || {
        let mut last = String::new();
        let ended_well = words.stream(|line| {
            if !line.is_empty() {
                last = line.to_owned();
            }
        })?;
        let left = clear(&prefix);
        if !ended_well {
            return Err(format!("failed; its last words: {last}"));
        }
        if !left.is_empty() {
            return Err(format!("left namespaces behind: {}", left.join(" ")));
        }
        Ok(())
    })
}

/// Removes the namespaces whose names begin with `prefix` and returns them.
fn clear(prefix: &str) -> Vec<String> {
    let Ok(list) = Command::new("ip").args(["netns", "list"]).output() else {
        return Vec::new();
    };
    let left: Vec<String> = String::from_utf8_lossy(&list.stdout)
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| name.starts_with(prefix))
        .map(str::to_owned)
        .collect();
    for name in &left {
        let _ = Command::new("ip").args(["netns", "delete", name]).status();
    }
    left
}
