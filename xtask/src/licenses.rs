//! Checks the licenses of all crates that a build for this machine contains.
//!
//! Every crate must offer terms under which a program may be given away in source and binary form,
//! beside its notice: a crate whose expression (SPDX) cannot be met by [`ACCEPTED`] fails the check.
//! Advisories are not checked: their database is not part of the repository. With a network,
//! `cargo deny check advisories` reads it.

use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;
use spdx::{Expression, ParseMode};

use crate::metadata::host;

/// The licenses whose terms a distribution of the program meets.
const ACCEPTED: [&str; 11] = [
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "ISC",
    "MIT",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
    "bzip2-1.0.6",
];

/// Crates that run in tests, and of which nothing is in a program or library that is given away.
const TOOLS: [&str; 1] = ["cbindgen"];

/// Checks all crates; the error lists those that are not accepted.
pub(crate) fn check() -> Result<(), String> {
    let metadata = read().map_err(|error| format!("{error:#}"))?;
    let packages = metadata["packages"].as_array().map(Vec::as_slice).unwrap_or_default();
    let refused: Vec<String> = packages.iter().filter_map(problem).collect();
    match (packages.len(), refused.is_empty()) {
        (0, _) => Err("cargo metadata lists no package".to_owned()),
        (_, true) => Ok(()),
        _ => Err(format!(
            "{}: choose another crate, or add the license to xtask/src/licenses.rs",
            refused.join("; ")
        )),
    }
}

/// Returns the reason why a package is not accepted.
fn problem(package: &Value) -> Option<String> {
    let name = package["name"].as_str().unwrap_or_default();
    if TOOLS.contains(&name) {
        return None;
    }
    let Some(license) = package["license"].as_str() else {
        return Some(format!("{name}: no license expression"));
    };
    // Older crates write a slash for OR.
    match Expression::parse_mode(license, ParseMode::LAX) {
        Ok(expression) => {
            let is_accepted = expression.evaluate(|req| ACCEPTED.contains(&&*req.to_string()));
            (!is_accepted).then(|| format!("{name}: license {license}"))
        }
        Err(error) => Some(format!("{name}: license {license}: {}", error.reason)),
    }
}

/// Reads cargo's description of the workspace and of all dependencies on this machine.
pub(crate) fn read() -> Result<Value> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--filter-platform", &host()?])
        .output()
        .context("running cargo metadata")?;
    if !output.status.success() {
        bail!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    serde_json::from_slice(&output.stdout).context("parsing the output of cargo metadata")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::problem;

    #[test]
    fn package_is_accepted_if_one_choice_of_its_expression_is() {
        let refused = |license: &str| problem(&json!({ "name": "x", "license": license }));
        for license in
            ["MIT", "GPL-3.0-only OR MIT", "MIT/Apache-2.0", "(MIT OR GPL-2.0-only) AND Zlib"]
        {
            assert_eq!(refused(license), None, "{license}");
        }
        for license in ["GPL-3.0-only", "MIT AND GPL-2.0-only", "None of these"] {
            assert!(refused(license).is_some_and(|text| text.contains(license)), "{license}");
        }
        assert_eq!(problem(&json!({ "name": "x" })), Some("x: no license expression".to_owned()));
    }
}
