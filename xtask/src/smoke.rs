//! Runs the scripts under `smoke/`: one behavior each, in namespaces of its own.
//!
//! A script gets the programs to test (`FINGERPOST`, `FINGERPOST_BENCH`) and the prefix of the names
//! that it may create (`SMOKE_PREFIX`), its own for each script, since several run at the same time. A
//! script with a line `# runs alone: REASON` runs beside no other step, one with a line `# runs among idle:
//! REASON` beside idle steps only; those with a line `# in a VM: REASON` run in one virtual machine with
//! Debian's kernel (`smoke/lib/vm.sh`). It fails by its exit status; the results have the cause and its last lines. Afterwards no namespace with that prefix may be left;
//! one that is left is removed and counts as a failure of the test.
//!
//! Two guards stand around a script: `timeout`, which ends its whole process group, and
//! `setpriv --pdeathsig`, which ends it if we are killed ourselves.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fmt, fs};

use anyhow::{Context, Result, bail};

use crate::command::CommandLine;
use crate::step::Step;

/// The longest time of a smoke test, in seconds.
const LIMIT: usize = 420;

/// The end of the name of a script that is a test; others are sourced by these.
const SUFFIX: &str = "_test.sh";

/// The line of a script that runs beside no other step.
const ALONE: &str = "# runs alone: ";

/// The line of a script that runs beside idle steps only.
const AMONG_IDLE: &str = "# runs among idle: ";

/// The line of a script that runs in a virtual machine.
const IN_A_VM: &str = "# in a VM: ";

/// The script that runs others in a virtual machine.
const VM: &str = "smoke/lib/vm.sh";

/// The beginnings of lines that name the cause of a failure: `fail` and the trap of
/// `lib/namespaces.sh`, and Python.
const CAUSES: [&str; 3] = ["FAIL: ", "AssertionError", "Traceback"];

/// The number of a failed script's last lines in the results.
const LAST_LINES: usize = 20;

/// The word by which a script calls `fingerpost-bench`.
const BENCH: &str = "\"$bench\"";

/// A smoke test.
pub(crate) struct Script {
    pub(crate) name: String,
    path: PathBuf,
    prefix: String,
}

/// The programs that the scripts run.
pub(crate) struct Binaries {
    /// `fingerpost`.
    pub(crate) program: PathBuf,
    /// `fingerpost-bench`.
    pub(crate) bench: PathBuf,
}

/// Returns the scripts of `smoke/` by name: all, or those in `only`.
pub(crate) fn scripts(only: &[String]) -> Result<Vec<Script>> {
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
    if found.is_empty() {
        bail!("there is no script in smoke/");
    }
    // Interface names hold 15 bytes, so the prefix is short.
    let process = std::process::id() % 100_000;
    let scripts = found.into_iter().enumerate().map(|(i, (name, path))| {
        let lowercase = |n: usize| char::from(b'a' + u8::try_from(n % 26).unwrap_or(0));
        let prefix = format!("fp{process}{}{}-", lowercase(i / 26), lowercase(i));
        Script { name, path, prefix }
    });
    Ok(scripts.filter(|script| only.is_empty() || only.contains(&script.name)).collect())
}

impl Script {
    /// Returns whether the script may not run beside other steps.
    pub(crate) fn runs_alone(&self) -> bool {
        self.has_line(ALONE)
    }

    /// Returns whether the script may run beside idle steps only.
    pub(crate) fn runs_among_idle(&self) -> bool {
        self.has_line(AMONG_IDLE)
    }

    /// Returns whether the script runs in a virtual machine.
    pub(crate) fn runs_in_a_vm(&self) -> bool {
        self.has_line(IN_A_VM)
    }

    /// Returns whether the script runs `fingerpost-bench`.
    pub(crate) fn runs_bench(&self) -> bool {
        self.text().contains(BENCH)
    }

    fn has_line(&self, start: &str) -> bool {
        self.text().lines().any(|line| line.starts_with(start))
    }

    fn text(&self) -> String {
        fs::read_to_string(&self.path).unwrap_or_default()
    }

    /// Creates the step that tests `binaries` on this machine.
    pub(crate) fn step(&self, binaries: &Binaries) -> Step {
        let name = format!("smoke {}", self.name);
        self.run(&name, binaries, LIMIT, &[&self.path.to_string_lossy()])
    }

    fn run(&self, name: &str, binaries: &Binaries, limit: usize, script: &[&str]) -> Step {
        let (prefix, limit) = (self.prefix.clone(), limit.to_string());
        let words =
            ["setpriv", "--pdeathsig", "TERM", "timeout", "--kill-after=20", &limit, "bash"];
        let command = CommandLine::new(&words)
            .args(script)
            .env("FINGERPOST", binaries.program.to_string_lossy())
            .env("FINGERPOST_BENCH", binaries.bench.to_string_lossy())
            .env("SMOKE_PREFIX", prefix.clone());
        Step::check(name, move |log| {
            let mut excerpt = Excerpt::default();
            let passed = command.stream(log, |line| excerpt.add(line))?;
            let left = remove_namespaces(&prefix);
            if !passed {
                return Err(format!("failed; {excerpt}"));
            }
            if !left.is_empty() {
                return Err(format!("left namespaces behind: {}", left.join(" ")));
            }
            Ok(())
        })
    }
}

/// Creates the step that tests `binaries` by scripts in one virtual machine, if there are any.
pub(crate) fn vm_step(scripts: &[&Script], binaries: &Binaries) -> Option<Step> {
    let first = scripts.first()?;
    let names: Vec<&str> = scripts.iter().map(|script| &*script.name).collect();
    let words = [&[VM], &names[..]].concat();
    let name = format!("smoke {} in a VM", names.join(", "));
    Some(first.run(&name, binaries, LIMIT * names.len(), &words))
}

/// The lines of a failed script's output that name the cause: the first that says so, and the last
/// ones, since the logs of the script's processes follow its own message.
#[derive(Default)]
struct Excerpt {
    cause: Option<String>,
    last: VecDeque<String>,
}

impl Excerpt {
    fn add(&mut self, line: &str) {
        if line.is_empty() {
            return;
        }
        if self.cause.is_none() && CAUSES.iter().any(|cause| line.starts_with(cause)) {
            self.cause = Some(line.to_owned());
        }
        if self.last.len() == LAST_LINES {
            self.last.pop_front();
        }
        self.last.push_back(line.to_owned());
    }
}

impl fmt::Display for Excerpt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cause = self.cause.as_deref().unwrap_or("no cause named");
        write!(f, "{cause}; its last lines:")?;
        self.last.iter().try_for_each(|line| write!(f, "\n    {line}"))
    }
}

/// Removes the namespaces whose names begin with `prefix` and returns them.
fn remove_namespaces(prefix: &str) -> Vec<String> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn excerpt_has_the_cause_and_the_last_lines() {
        let mut excerpt = Excerpt::default();
        excerpt.add("one");
        excerpt.add("FAIL: two");
        (0..LAST_LINES).for_each(|i| excerpt.add(&format!("log {i}")));
        excerpt.add("FAIL: three");
        let text = excerpt.to_string();
        assert!(text.starts_with("FAIL: two; its last lines:\n    log 1\n"), "{text}");
        assert!(text.ends_with("\n    FAIL: three"), "{text}");
        assert_eq!(text.lines().count(), LAST_LINES + 1);
    }

    #[test]
    fn scripts_have_prefixes_of_their_own_that_fit_interface_names() {
        std::env::set_current_dir(crate::metadata::root().unwrap()).unwrap();
        let scripts = scripts(&[]).unwrap();
        for (i, a) in scripts.iter().enumerate() {
            assert!(a.prefix.len() <= 10, "{}", a.prefix);
            assert!(scripts[i + 1..].iter().all(|b| !b.prefix.starts_with(&a.prefix)));
        }
        assert!(super::scripts(&["none".to_owned()]).is_err());
    }
}
