//! The release build of the package: two builds of one commit by one compiler give the same program, wherever the folders are.
//!
//! ```text
//!   repository, target folder, cargo's home, sources of the standard library ─► --remap-path-prefix ─► cargo build
//! ```
//!
//! The compiler writes paths into a program: messages of panics name the file of a crate below cargo's home or of generated
//! code in the target folder, and the hash of a crate covers the folder of its build. Each folder has a fixed name in
//! its place. `cargo xtask deb` builds so. The tests build as the README's commands do, so that nothing is compiled twice; that
//! program has the paths. Cargo keeps both builds in the target folder.
//!
//! Limit: the flags stand in the environment, by which cargo passes over `build.rustflags` of its configuration files; those of
//! `RUSTFLAGS` are kept.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::metadata;

/// The words of cargo that build the program.
pub(crate) const WORDS: [&str; 4] = ["build", "--release", "--package", "fingerpost"];

/// The variable by which cargo reads flags of the compiler.
const VARIABLE: &str = "CARGO_ENCODED_RUSTFLAGS";
/// The byte between two flags in it.
const SEPARATOR: &str = "\x1f";

/// Returns the variable of the environment in which cargo builds, and its value.
pub(crate) fn environment() -> Result<(&'static str, String)> {
    let mut flags: Vec<String> = match (env::var(VARIABLE), env::var("RUSTFLAGS")) {
        (Ok(encoded), _) => encoded.split(SEPARATOR).map(str::to_owned).collect(),
        (_, Ok(plain)) => plain.split_whitespace().map(str::to_owned).collect(),
        _ => Vec::new(),
    };
    flags.retain(|flag| !flag.is_empty());
    let folders = folders()?;
    flags.extend(
        folders
            .iter()
            .map(|(folder, name)| format!("--remap-path-prefix={}={name}", folder.display())),
    );
    Ok((VARIABLE, flags.join(SEPARATOR)))
}

/// Checks that a program contains no path of this machine's folders.
pub(crate) fn check(program: &Path) -> Result<()> {
    let bytes = std::fs::read(program).with_context(|| format!("reading {}", program.display()))?;
    let folders: Vec<PathBuf> = folders()?.into_iter().map(|(folder, _)| folder).collect();
    match path_in(&bytes, &folders) {
        None => Ok(()),
        Some(path) => bail!(
            "{} contains the path {path} of this machine: another folder gives another program; build it by \
             `cargo xtask deb`",
            program.display()
        ),
    }
}

/// Returns the folders whose paths the compiler may write, and the names in their place. The last one that fits applies.
fn folders() -> Result<Vec<(PathBuf, String)>> {
    let home = match env::var_os("CARGO_HOME") {
        Some(home) => std::path::absolute(home)?,
        None => env::home_dir().context("no CARGO_HOME and no home folder")?.join(".cargo"),
    };
    let (sysroot, commit) = compiler()?;
    Ok(vec![
        (metadata::root()?, "/usr/src/fingerpost".to_owned()),
        (metadata::target()?, "/usr/src/fingerpost/target".to_owned()),
        (home, "/usr/src/cargo".to_owned()),
        // Where the component rust-src is installed; otherwise the compiler writes this name itself.
        (sysroot.join("lib/rustlib/src/rust"), format!("/rustc/{commit}")),
    ])
}

/// Returns the folder of the compiler, and the commit that it was built from.
fn compiler() -> Result<(PathBuf, String)> {
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = |word: &[&str]| -> Result<String> {
        let output = Command::new(&rustc).args(word).output().context("running rustc")?;
        Ok(String::from_utf8(output.stdout)?.trim().to_owned())
    };
    let version = output(&["-vV"])?;
    let commit = version.lines().find_map(|line| line.strip_prefix("commit-hash: "));
    let commit = commit.context("rustc -vV names no commit")?.to_owned();
    Ok((output(&["--print", "sysroot"])?.into(), commit))
}

/// Finds the first path below one of the folders, up to a character that is unusual in paths.
fn path_in(bytes: &[u8], folders: &[PathBuf]) -> Option<String> {
    folders.iter().find_map(|folder| {
        let mut prefix = folder.as_os_str().as_encoded_bytes().to_vec();
        prefix.push(b'/');
        let start = bytes.windows(prefix.len()).position(|window| window == prefix)?;
        let is_usual = |byte: &&u8| byte.is_ascii_alphanumeric() || b"/._-+".contains(byte);
        let path = bytes[start..].iter().take_while(is_usual).copied().collect();
        String::from_utf8(path).ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_of_a_folder_is_found_and_that_of_another_is_not() {
        let folders = ["/home/a/fingerpost".into(), "/home/a/.cargo".into()];
        let program = b"\0\x01/home/a/.cargo/registry/src/x-1.0/lib.rs\0more";
        let found = path_in(program, &folders);
        assert_eq!(found.as_deref(), Some("/home/a/.cargo/registry/src/x-1.0/lib.rs"));
        assert_eq!(path_in(b"/home/a/fingerposts/lib.rs /home/a/.cargo", &folders), None);
        assert_eq!(path_in(b"/usr/src/cargo/registry/src/x-1.0/lib.rs", &folders), None);
    }

    #[test]
    fn environment_has_a_name_for_each_folder() {
        let (name, flags) = environment().unwrap();
        assert_eq!(name, "CARGO_ENCODED_RUSTFLAGS");
        let root = metadata::root().unwrap();
        let remapped = format!("--remap-path-prefix={}=/usr/src/fingerpost", root.display());
        assert!(flags.split(SEPARATOR).any(|flag| flag == remapped), "{flags}");
        assert_eq!(flags.matches("--remap-path-prefix=").count(), folders().unwrap().len());
    }
}
