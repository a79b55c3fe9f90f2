//! The coding rules that a program can check (CONTRIBUTING.md has them all).
//!
//! - Layering: the permitted dependencies between our crates, read from `cargo metadata`, for
//!   normal, build and development dependencies alike; any test may also read real tables.
//!   The rule keeps the library free of the router and the packet path free of the command line.
//! - The root of every crate forbids unsafe code, except for the crates that grant it by module.
//! - No file is longer than 800 lines, has a meaningless name or a note of unfinished work, and
//!   no test is ignored.
//! - Every relative link in a Markdown file has a target.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

/// Each package and those of ours it may name, without `fingerpost-`.
const LAYERS: &[(&str, &[&str])] = &[
    ("fib", &[]),
    ("lpm", &["fib"]),
    ("wire", &[]),
    ("verdict", &[]),
    ("qos", &[]),
    ("port", &[]),
    ("output", &[]),
    ("api", &[]),
    ("threads", &[]),
    ("fetch", &["threads"]),
    ("fleet", &["threads"]),
    ("feed", &["fib"]),
    ("xdp", &["fib", "port"]),
    ("acl", &["fib", "wire"]),
    ("gate", &["fib", "wire", "verdict", "qos"]),
    ("flowspec", &["fib", "feed", "acl"]),
    ("blocklist", &["fib", "feed", "xdp", "acl", "flowspec", "api", "threads", "fetch"]),
    ("datapath", &["fib", "wire", "port", "verdict", "acl", "qos"]),
    ("config", &["fib", "port", "feed", "xdp", "blocklist", "acl", "qos", "flowspec", "datapath"]),
    ("bundle", &["fib", "api", "config", "threads", "fetch", "fleet"]),
    (
        "control",
        &[
            "fib",
            "port",
            "feed",
            "xdp",
            "blocklist",
            "acl",
            "qos",
            "flowspec",
            "datapath",
            "api",
            "config",
            "threads",
        ],
    ),
    ("dashboard", &["fib", "gate", "datapath", "api", "config", "threads", "control"]),
    ("router", &["fib", "port", "datapath", "config", "control", "dashboard"]),
    ("gatekeeper", GUARD),
    ("grantor", GUARD),
    // The program is what joins everything for a person; see docs/decisions.
    ("fingerpost", LIBRARIES),
    ("bench", LIBRARIES),
    // Inputs for every parser.
    ("fuzz", LIBRARIES),
    ("capi", &["fib", "feed"]),
    ("python", &["fib", "feed"]),
    ("xtask", &[]),
];

/// The crates that a daemon with a packet hook may depend on.
const GUARD: &[&str] = &[
    "fib",
    "wire",
    "port",
    "feed",
    "xdp",
    "gate",
    "datapath",
    "api",
    "config",
    "xdp",
    "threads",
    "bundle",
    "control",
    "dashboard",
];

/// Every library of ours.
const LIBRARIES: &[&str] = &[
    "output",
    "api",
    "config",
    "threads",
    "fetch",
    "fleet",
    "blocklist",
    "bundle",
    "router",
    "control",
    "dashboard",
    "gatekeeper",
    "grantor",
    "fib",
    "lpm",
    "wire",
    "verdict",
    "acl",
    "qos",
    "flowspec",
    "port",
    "xdp",
    "feed",
    "gate",
    "datapath",
];

/// Our crates that the tests of any crate may use in addition: real tables, headers, messages.
pub(crate) const FOR_TESTS: &[&str] = &["feed", "wire", "api"];

/// Crates whose modules may grant themselves unsafe code.
const MAY_GRANT_UNSAFE: [&str; 3] = ["crates/fib", "crates/port", "crates/capi"];

/// The longest file, in lines.
const MAX_LINES: usize = 800;

/// Meaningless names.
const EMPTY_NAMES: [&str; 6] = ["util", "utils", "common", "helper", "helpers", "misc"];

/// Notes of unfinished code, in two halves so that this file does not contain them.
const UNFINISHED: [(&str, &str); 6] = [
    ("TO", "DO"),
    ("FIX", "ME"),
    ("XX", "X"),
    ("#[ign", "ore"),
    ("todo", "!("),
    ("unimple", "mented!("),
];

/// Checks all rules; the error lists every breach, a line each.
pub(crate) fn check(metadata: &Value) -> Result<(), String> {
    let mut wrong = layering(metadata);
    let readme = fs::read_to_string("README.md").unwrap_or_default();
    wrong.extend(unlisted(metadata, &readme));
    let mut files = Vec::new();
    for folder in ["crates", "xtask", "fuzz", "smoke", "docs", "data", "bench"] {
        walk(Path::new(folder), &mut files);
    }
    for entry in fs::read_dir(".").into_iter().flatten().flatten() {
        if entry.path().extension().is_some_and(|extension| extension == "md") {
            files.push(entry.path());
        }
    }
    files.sort();
    for file in &files {
        wrong.extend(name(file));
        let Ok(text) = fs::read_to_string(file) else { continue };
        match file.extension().and_then(|extension| extension.to_str()) {
            Some("rs") => {
                wrong.extend(length(file, &text));
                wrong.extend(unfinished(file, &text));
                wrong.extend(forbids_unsafe(file, &text));
            }
            Some("sh") => {
                wrong.extend(unfinished(file, &text));
                wrong.extend(closed_pipes(file, &text));
            }
            Some("py") => wrong.extend(unfinished(file, &text)),
            Some("md") => wrong.extend(links(file, &text)),
            _ => {}
        }
    }
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n   ")) }
}

/// Holds every package of the workspace to [`LAYERS`].
fn layering(metadata: &Value) -> Vec<String> {
    let mut wrong = Vec::new();
    let Some(packages) = metadata["packages"].as_array().filter(|packages| !packages.is_empty())
    else {
        return vec!["cargo metadata lists no package".to_owned()];
    };
    let ours: Vec<&str> = packages.iter().filter_map(|package| package["name"].as_str()).collect();
    for package in packages {
        let name = package["name"].as_str().unwrap_or_default();
        let Some((_, allowed)) = LAYERS.iter().find(|(have, _)| *have == short(name)) else {
            wrong.push(format!("package {name} has no place in the layers of xtask/src/house.rs"));
            continue;
        };
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let on = dependency["name"].as_str().unwrap_or_default();
            let in_tests = dependency["kind"] == "dev" && FOR_TESTS.contains(&short(on));
            if ours.contains(&on) && on != name && !allowed.contains(&short(on)) && !in_tests {
                wrong.push(format!("{name} may not depend on {on}"));
            }
        }
    }
    wrong
}

/// Lists the folders of `crates/` that the layout in the README leaves out.
fn unlisted(metadata: &Value, readme: &str) -> Vec<String> {
    let packages = metadata["packages"].as_array().map(Vec::as_slice).unwrap_or_default();
    let folders = packages.iter().filter_map(|package| {
        let folder = Path::new(package["manifest_path"].as_str()?).parent()?;
        folder.parent()?.ends_with("crates").then_some(folder.file_name()?.to_str()?)
    });
    let missing = folders.filter(|name| !readme.contains(&format!("(crates/{name})")));
    missing.map(|name| format!("README.md: no row for crates/{name} in the layout")).collect()
}

/// Returns the name of a package without the project's prefix.
pub(crate) fn short(package: &str) -> &str {
    package.strip_prefix("fingerpost-").unwrap_or(package)
}

/// Lists the files under `folder`; a folder that is not there has none.
pub(crate) fn walk(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            if !path.ends_with("target") {
                walk(&path, files);
            }
        } else {
            files.push(path);
        }
    }
}

/// A part of the path that says nothing.
fn name(file: &Path) -> Option<String> {
    let empty = |part: &std::ffi::OsStr| {
        let part = part.to_string_lossy();
        let stem = part.split('.').next().unwrap_or_default();
        EMPTY_NAMES.contains(&stem)
    };
    let bad = file.iter().find(|part| empty(part))?;
    Some(format!("{}: `{}` says nothing about what is in it", file.display(), bad.display()))
}

fn length(file: &Path, text: &str) -> Option<String> {
    let lines = text.lines().count();
    (lines > MAX_LINES).then(|| format!("{}: {lines} lines; split it", file.display()))
}

fn unfinished(file: &Path, text: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    for (index, line) in text.lines().enumerate() {
        for (head, tail) in UNFINISHED {
            let word = format!("{head}{tail}");
            let found = line.match_indices(&word).any(|(at, _)| {
                // As a word, not within the pattern of a `mktemp`.
                let around = |char: Option<char>| !char.is_some_and(char::is_alphanumeric);
                around(line[..at].chars().next_back())
                    && (tail.ends_with('(') || around(line[at + word.len()..].chars().next()))
            });
            if found {
                wrong.push(format!("{}:{}: {word}", file.display(), index + 1));
            }
        }
    }
    wrong
}

/// The pipes of a script that end in a `grep -q`. It leaves at the first match, and a command that
/// still writes then ends by a closed pipe, which fails the pipe in some runs.
fn closed_pipes(file: &Path, text: &str) -> Vec<String> {
    let leaves_early = |command: &str| {
        let mut words = command.split_whitespace();
        words.next() == Some("grep")
            && words.next().is_some_and(|flags| flags.starts_with('-') && flags.contains('q'))
    };
    let after_a_pipe = |line: &str| {
        line.replace("||", "\n").lines().any(|part| part.split('|').skip(1).any(leaves_early))
    };
    let lines = text.lines().enumerate().filter(|(_, line)| after_a_pipe(line));
    lines
        .map(|(index, _)| {
            format!("{}:{}: write `| has_line`, for `| grep -q`", file.display(), index + 1)
        })
        .collect()
}

/// The root of a crate forbids unsafe code, unless its modules may grant it.
fn forbids_unsafe(file: &Path, text: &str) -> Option<String> {
    let is_root = file.ends_with("src/lib.rs") || file.ends_with("src/main.rs");
    let granted = MAY_GRANT_UNSAFE.iter().any(|granted| file.starts_with(granted));
    (is_root && !granted && !text.contains("#![forbid(unsafe_code)]"))
        .then(|| format!("{}: does not forbid unsafe code", file.display()))
}

/// The relative links of a Markdown file that lead nowhere.
fn links(file: &Path, text: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    let folder = file.parent().unwrap_or(Path::new("."));
    for (at, _) in text.match_indices("](") {
        let link = text[at + 2..].split(')').next().unwrap_or_default();
        let path = link.split('#').next().unwrap_or_default();
        let elsewhere = path.is_empty() || path.contains("://") || path.starts_with("mailto:");
        if !elsewhere && !folder.join(path).exists() {
            wrong.push(format!("{}: the link to {path} leads nowhere", file.display()));
        }
    }
    wrong
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn workspace(name: &str, depends: &str) -> Value {
        json!({"packages": [
            {"name": name, "dependencies": [{"name": depends}, {"name": "libc"}]},
            {"name": depends, "dependencies": []},
        ]})
    }

    #[test]
    fn the_layers_are_held() {
        let breaches = |name, depends| layering(&workspace(name, depends));
        assert!(breaches("fingerpost-control", "fingerpost-feed").is_empty());
        assert!(breaches("fingerpost-feed", "fingerpost-fib").is_empty());
        assert_eq!(
            breaches("fingerpost-fib", "fingerpost-wire"),
            ["fingerpost-fib may not depend on fingerpost-wire"]
        );
        assert_eq!(breaches("fingerpost-port", "fingerpost-router").len(), 1);
        assert_eq!(breaches("fingerpost-router", "fingerpost").len(), 1);
    }

    #[test]
    fn tests_may_read_tables_and_nothing_more() {
        let breaches = |kind: &str, on: &str| {
            layering(&json!({"packages": [
                {"name": "fingerpost-fib", "dependencies": [{"name": on, "kind": kind}]},
                {"name": on, "dependencies": []},
            ]}))
        };
        assert!(breaches("dev", "fingerpost-feed").is_empty());
        assert_eq!(breaches("build", "fingerpost-feed").len(), 1);
        assert_eq!(breaches("dev", "fingerpost-router").len(), 1);
    }

    #[test]
    fn an_unknown_package_or_an_empty_workspace_is_a_breach() {
        assert_eq!(layering(&json!({"packages": [{"name": "new", "dependencies": []}]})).len(), 1);
        assert_eq!(layering(&json!({"packages": []})).len(), 1);
        assert_eq!(layering(&json!({})).len(), 1);
    }

    #[test]
    fn readme_without_a_crate_is_found() {
        let metadata = json!({"packages": [
            {"manifest_path": "/x/crates/fib/Cargo.toml"},
            {"manifest_path": "/x/crates/wire/Cargo.toml"},
            {"manifest_path": "/x/bench/Cargo.toml"},
        ]});
        let missing = unlisted(&metadata, "| [crates/fib](crates/fib) | the library |");
        assert_eq!(missing, ["README.md: no row for crates/wire in the layout"]);
    }

    #[test]
    fn names_that_say_nothing_are_found() {
        assert!(name(Path::new("crates/fib/src/utils.rs")).is_some());
        assert!(name(Path::new("crates/common/src/lib.rs")).is_some());
        assert!(name(Path::new("crates/fib/src/utility_of_routes.rs")).is_none());
    }

    #[test]
    fn unfinished_work_is_found() {
        let found = |text: &str| unfinished(Path::new("x.rs"), text).len();
        assert_eq!(found(&["// TO", "DO: later"].concat()), 1);
        assert_eq!(found(&["    #[ign", "ore]"].concat()), 1);
        assert_eq!(found(&["todo", "!(\"x\")"].concat()), 1);
        assert_eq!(found("mktemp -d /tmp/fp.XXXXXX; autodoc"), 0);
    }

    #[test]
    fn pipes_that_grep_closes_are_found() {
        let found = |text: &str| closed_pipes(Path::new("x.sh"), text).len();
        assert_eq!(found("show | grep -q x\nshow | tail -n 1 |grep -qE 'a|b' || fail\n"), 2);
        assert_eq!(found("a || grep -q x file\nshow | has_line x\nshow | grep -c q\n"), 0);
    }

    #[test]
    fn a_root_that_allows_unsafe_is_found() {
        let found = |path: &str, text| forbids_unsafe(Path::new(path), text).is_some();
        assert!(found("crates/feed/src/lib.rs", "//! Feed.\n"));
        assert!(!found("crates/feed/src/lib.rs", "#![forbid(unsafe_code)]\n"));
        assert!(!found("crates/feed/src/text.rs", ""));
        assert!(!found("crates/port/src/lib.rs", ""));
    }

    #[test]
    fn links_that_lead_nowhere_are_found() {
        let at = |text| links(Path::new("Cargo.toml"), text).len();
        assert_eq!(at("[a](Cargo.toml) [b](https://x.org/y) [c](#part) [d](src/main.rs#x)"), 0);
        assert_eq!(at("[a](no/such.md)"), 1);
    }

    #[test]
    fn long_files_are_found() {
        assert!(length(Path::new("x.rs"), &"\n".repeat(800)).is_none());
        assert!(length(Path::new("x.rs"), &"\n".repeat(801)).is_some());
    }
}
