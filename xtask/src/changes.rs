//! The packages that have changed since the main branch, for the quick loop.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::metadata;

/// Returns the packages with changes that are not committed, or not on the main branch; on the main
/// branch itself, those of the last commit.
pub(crate) fn packages() -> Result<Vec<String>> {
    let base = git(&["merge-base", "HEAD", "main"]).unwrap_or_default();
    let head = git(&["rev-parse", "HEAD"])?;
    let base = if base.is_empty() || base == head { "HEAD~1".to_owned() } else { base };
    let mut files = git(&["diff", "--name-only", base.trim()])?;
    files.push_str(&git(&["ls-files", "--others", "--exclude-standard"])?);
    Ok(of_files(&metadata::read()?, &files))
}

/// Returns packages by name, with or without `fingerpost-`.
pub(crate) fn named(names: &[String]) -> Result<Vec<String>> {
    let metadata = metadata::read()?;
    let known: Vec<&str> = packages_of(&metadata).map(|(name, _)| name).collect();
    let find = |name: &String| {
        let long = format!("fingerpost-{name}");
        let found = known.iter().find(|known| **known == long || *known == name);
        found.map(|&name| name.to_owned()).with_context(|| {
            format!("unknown package `{name}`; the workspace has: {}", known.join(", "))
        })
    };
    names.iter().map(find).collect()
}

fn of_files(metadata: &Value, files: &str) -> Vec<String> {
    let root = metadata["workspace_root"].as_str().unwrap_or_default();
    let changed = |folder: &Path| {
        let folder = folder.strip_prefix(root).unwrap_or(folder);
        files.lines().any(|file| Path::new(file).starts_with(folder))
    };
    let found = packages_of(metadata)
        .filter(|(_, manifest)| Path::new(manifest).parent().is_some_and(&changed));
    found.map(|(name, _)| name.to_owned()).collect()
}

/// The name and manifest of each package.
fn packages_of(metadata: &Value) -> impl Iterator<Item = (&str, &str)> {
    let packages = metadata["packages"].as_array().into_iter().flatten();
    packages
        .filter_map(|package| Some((package["name"].as_str()?, package["manifest_path"].as_str()?)))
}

fn git(words: &[&str]) -> Result<String> {
    let output = Command::new("git").args(words).output().context("running git")?;
    if !output.status.success() {
        bail!("git {}: {}", words.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn package_of_a_changed_file_is_found() {
        let metadata = json!({"workspace_root": "/w", "packages": [
            {"name": "a", "manifest_path": "/w/crates/a/Cargo.toml"},
            {"name": "ab", "manifest_path": "/w/crates/ab/Cargo.toml"},
        ]});
        assert_eq!(of_files(&metadata, "crates/a/src/lib.rs\nREADME.md\n"), ["a"]);
        assert_eq!(of_files(&metadata, "crates/abc.rs\n"), Vec::<String>::new());
    }

    #[test]
    fn package_has_a_short_name_and_an_unknown_one_is_an_error() {
        assert_eq!(
            named(&["fib".to_owned(), "xtask".to_owned()]).unwrap(),
            ["fingerpost-fib", "xtask"]
        );
        let error = named(&["fip".to_owned()]).unwrap_err().to_string();
        assert!(error.contains("unknown package `fip`"), "{error}");
    }
}
