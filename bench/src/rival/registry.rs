//! The registry of rivals and their build commands: `bench/rivals/rivals.toml`.
//!
//! ```text
//!   rivals.toml ─► [rte_fib] build = "cc …" ─► target/rivals/rte_fib ─► a process a round
//!                                   └─ fails ─► missing: why, and what to install
//! ```
//!
//! A rival is data: a command that builds it, run by `sh` in the folder of the file with
//! `$OUT` naming the folder to build into, and one that starts it there. A rival that cannot be built
//! is reported with the reason, and the measurement continues without it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};
use fib::Family;
use serde::Deserialize;

use super::{Program, Rival, Shared};

/// One rival, as the file has it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    /// Its description.
    what: String,
    license: String,
    /// 4, 6 or both.
    families: Vec<u8>,
    /// The command that builds it.
    build: String,
    /// The command that starts it.
    run: String,
    /// The lookup function to select, if it has several.
    lookup: Option<String>,
    /// The packages to install if it cannot be built.
    needs: String,
    /// Whether one process serves all rounds, because its table takes minutes to fill.
    #[serde(default)]
    single_process: bool,
    /// Whether a call has one key, so that all burst lengths are the same.
    #[serde(default)]
    single: bool,
}

/// All rivals.
#[derive(Debug)]
pub(crate) struct Registry {
    folder: PathBuf,
    out: PathBuf,
    rivals: BTreeMap<String, Entry>,
}

/// A rival that can be started.
#[derive(Debug)]
pub(crate) struct Built {
    pub(crate) name: String,
    pub(crate) what: String,
    pub(crate) license: String,
    pub(crate) single_process: bool,
    pub(crate) single: bool,
    run: String,
    lookup: Option<String>,
    folder: PathBuf,
    out: PathBuf,
}

impl Registry {
    /// Reads the file; builds go into `out`.
    pub(crate) fn read(path: &Path, out: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("reading the rivals, {}", path.display()))?;
        let rivals = toml::from_str(&text).with_context(|| path.display().to_string())?;
        let folder = path.parent().context("the rivals lie in a folder")?;
        Ok(Self { folder: folder.canonicalize()?, out: out.to_owned(), rivals })
    }

    /// Builds a rival; if that fails, the inner error has the reason and the packages to install.
    pub(crate) fn build<A: Family>(&self, name: &str) -> anyhow::Result<Result<Built, String>> {
        let Some(entry) = self.rivals.get(name) else {
            let known: Vec<&str> = self.rivals.keys().map(String::as_str).collect();
            bail!("there is no rival `{name}`; there are: {}", known.join(", "));
        };
        let family = if A::BITS == 32 { 4 } else { 6 };
        if !entry.families.contains(&family) {
            bail!("{name} has no table for IPv{family}");
        }
        std::fs::create_dir_all(&self.out)
            .with_context(|| format!("making {}", self.out.display()))?;
        let out = self.out.canonicalize()?;
        let output = self.shell(&entry.build, &out).output().context("running sh")?;
        if !output.status.success() {
            let text = String::from_utf8_lossy(&output.stderr);
            let line = text.lines().rfind(|line| !line.trim().is_empty());
            let why = line.map_or_else(|| output.status.to_string(), |line| line.trim().to_owned());
            return Ok(Err(format!("{why}; it takes: {}", entry.needs)));
        }
        Ok(Ok(Built {
            name: name.to_owned(),
            what: entry.what.clone(),
            license: entry.license.clone(),
            single_process: entry.single_process,
            single: entry.single,
            run: entry.run.clone(),
            lookup: entry.lookup.clone(),
            folder: self.folder.clone(),
            out,
        }))
    }

    fn shell(&self, words: &str, out: &Path) -> Command {
        shell(words, &self.folder, out)
    }
}

impl Built {
    /// Starts it with a table.
    pub(crate) fn start<A: Family>(&self, routes: &Shared) -> anyhow::Result<Rival<A>> {
        // `exec`, so that the process that is ended is the one that works.
        let command = shell(&format!("exec {}", self.run), &self.folder, &self.out);
        let mut rival = Rival::fill(Program::start(command)?, &self.name, routes)?;
        if let Some(word) = &self.lookup {
            rival.lookup(word)?;
        }
        Ok(rival)
    }
}

fn shell(words: &str, folder: &Path, out: &Path) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", words]).current_dir(folder).env("OUT", out);
    command
}

#[cfg(test)]
mod tests {
    use super::Registry;
    use std::path::Path;

    #[test]
    fn rivals_toml_is_valid() {
        let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/rivals/rivals.toml"));
        let registry = Registry::read(path, Path::new("unused")).unwrap();
        for (name, entry) in &registry.rivals {
            assert!(!entry.license.is_empty() && !entry.needs.is_empty(), "{name}");
            assert!(entry.families.iter().all(|family| [4, 6].contains(family)), "{name}");
        }
        let error = registry.build::<u32>("none such").unwrap_err().to_string();
        assert!(error.contains("rte_fib"), "{error}");
    }

    #[test]
    fn failed_build_reports_the_reason_and_the_needs() {
        let folder = std::env::temp_dir().join(format!("fingerpost-rivals-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join("rivals.toml");
        let text = "[x]\nwhat='x'\nlicense='x'\nfamilies=[4]\nrun='x'\n\
                    build='echo no compiler >&2; exit 1'\nneeds='a compiler'";
        std::fs::write(&file, text).unwrap();
        let registry = Registry::read(&file, &folder.join("out")).unwrap();
        let why = registry.build::<u32>("x").unwrap().unwrap_err();
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(why, "no compiler; it takes: a compiler");
        assert!(registry.build::<u128>("x").is_err(), "it has no table for IPv6");
    }
}
