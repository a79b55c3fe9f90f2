//! The list of crates in the program itself: the ELF section `.dep-v0`, which `cargo audit bin` and scanners of
//! container images read.
//!
//! ```text
//!   crates of the program ─► JSON, packages by index ─► zlib ─► objcopy --add-section
//! ```
//!
//! The format is that of `cargo auditable` (its PARSING.md), which would build the program itself, by a wrapper of the compiler; here
//! the packed program gets the section afterwards, and its code is that of the tested one.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use flate2::Compression;
use flate2::write::ZlibEncoder;
use serde_json::{Value, json};

use crate::sbom::Contents;

/// The name of the section.
const SECTION: &str = ".dep-v0";

/// Adds the list to a program.
pub(crate) fn add(program: &Path, contents: &Contents) -> Result<()> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(document(contents).to_string().as_bytes())?;
    let file = program.with_extension("dep");
    fs::write(&file, encoder.finish()?)?;
    let section = format!("{SECTION}={}", file.display());
    let flags = format!("{SECTION}=noload,readonly");
    let mut objcopy = Command::new("objcopy");
    objcopy.args(["--add-section", &section, "--set-section-flags", &flags]).arg(program);
    let status = objcopy.status().context("running objcopy (package binutils)")?;
    fs::remove_file(&file)?;
    anyhow::ensure!(status.success(), "objcopy cannot add the section {SECTION}");
    Ok(())
}

/// Returns the document: packages in the order of their identities, dependencies by index.
fn document(contents: &Contents) -> Value {
    let Contents { program, packages, needs } = contents;
    let index = |id: &String| packages.keys().position(|key| key == id);
    let each = packages.iter().map(|(id, package)| {
        let source = match package["source"].as_str() {
            None => "local",
            Some(source) if source.contains("crates.io-index") => "crates.io",
            Some(source) if source.starts_with("git+") => "git",
            Some(_) => "registry",
        };
        let mut one = json!({
            "name": package["name"],
            "version": package["version"],
            "source": source,
        });
        let dependencies: Vec<_> = needs.get(id).into_iter().flatten().filter_map(index).collect();
        if !dependencies.is_empty() {
            one["dependencies"] = dependencies.into();
        }
        if id == program {
            one["root"] = true.into();
        }
        one
    });
    json!({ "packages": each.collect::<Vec<_>>() })
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;

    #[test]
    fn document_has_each_package_with_its_dependencies_by_index() {
        let package = |name: &str, source: Option<&str>| {
            (name.to_owned(), json!({ "name": name, "version": "1.0.0", "source": source }))
        };
        let registry = Some("registry+https://github.com/rust-lang/crates.io-index");
        let needs = |name: &str, needed: &[&str]| {
            let needed = needed.iter().map(|id| (*id).to_owned());
            (name.to_owned(), needed.collect::<BTreeSet<_>>())
        };
        let contents = Contents {
            program: "fingerpost".to_owned(),
            packages: BTreeMap::from([
                package("a", registry),
                package("b", Some("git+https://example.com/b")),
                package("fingerpost", None),
            ]),
            needs: BTreeMap::from([
                needs("a", &["b"]),
                needs("b", &[]),
                needs("fingerpost", &["a", "b"]),
            ]),
        };
        let expect = json!({ "packages": [
            { "name": "a", "version": "1.0.0", "source": "crates.io", "dependencies": [1] },
            { "name": "b", "version": "1.0.0", "source": "git" },
            { "name": "fingerpost", "version": "1.0.0", "source": "local", "dependencies": [0, 1], "root": true },
        ] });
        assert_eq!(document(&contents), expect);
    }
}
