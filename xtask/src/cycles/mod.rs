//! Cycles: crates depend on one another in one direction only, and so do the modules of a crate.
//!
//! ```text
//!   cargo metadata ─► packages ─► dependencies ──────────────────────┐
//!                        └─► targets ─► modules ([`tree`]) ─► edges ─┴─► components ([`graph`])
//!                                                      ([`names`])
//! ```
//!
//! The rule is about siblings, at each level of the tree of modules: there is an edge from `a` to `b` if
//! a file at or below `a` names an item of `b`, or one at or below it. A child that uses an item of its
//! parent, and a parent that re-exports its children, are no cycle. Tests are left out: a test may name
//! whatever it needs.
//!
//! Development dependencies count as well, with one exception: any crate's tests may read real tables
//! ([`FOR_TESTS`]), so `fib` and `feed` depend on each other there.
//!
//! `xtask/cycles.txt` lists the packages whose modules still have cycles, one a line, without
//! `fingerpost-`. The check fails if a listed package has none, so that the list only shrinks.
//! `cargo xtask cycles` prints all cycles.

mod graph;
mod names;
mod tree;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::Value;

use crate::house::{FOR_TESTS, short};
use crate::metadata;
use graph::Graph;
use tree::Tree;

/// The packages whose modules still have cycles.
const LISTED: &str = "xtask/cycles.txt";

/// The targets that are no code of the product.
const TESTS: [&str; 2] = ["test", "custom-build"];

/// Checks crates and modules; the error lists every cycle that [`LISTED`] does not allow.
pub(crate) fn check(metadata: &Value) -> Result<(), String> {
    let run = || -> Result<Vec<String>> {
        let listed = fs::read_to_string(LISTED).unwrap_or_default();
        let mut wrong = of_packages(metadata);
        wrong.extend(compare(&of_modules(metadata)?, &parse(&listed)));
        Ok(wrong)
    };
    let wrong = run().map_err(|error| format!("{error:#}"))?;
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n   ")) }
}

/// Prints every cycle.
pub(crate) fn list() -> Result<()> {
    let metadata = metadata::read()?;
    let modules = of_modules(&metadata)?.into_iter().map(|(_, cycle)| cycle);
    for cycle in of_packages(&metadata).into_iter().chain(modules) {
        println!("{cycle}");
    }
    Ok(())
}

/// Reads the list of packages: one a line, `#` begins a comment.
fn parse(listed: &str) -> BTreeSet<&str> {
    listed.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).collect()
}

/// Compares the cycles, each with its package, with the list; returns the differences.
fn compare(found: &[(String, String)], listed: &BTreeSet<&str>) -> Vec<String> {
    let unlisted = found.iter().filter(|(package, _)| !listed.contains(package.as_str()));
    let mut wrong: Vec<String> = unlisted.map(|(_, cycle)| cycle.clone()).collect();
    for package in listed.iter().filter(|listed| !found.iter().any(|(have, _)| have == *listed)) {
        wrong.push(format!("{package} has no cycle: remove it from {LISTED}"));
    }
    wrong
}

/// Finds the cycles between the packages of the workspace.
fn of_packages(metadata: &Value) -> Vec<String> {
    let mut graph = Graph::default();
    for package in packages(metadata) {
        let name = package["name"].as_str().unwrap_or_default();
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let on = dependency["name"].as_str().unwrap_or_default();
            let kind = dependency["kind"].as_str().unwrap_or("normal");
            let is_of_ours = packages(metadata).any(|package| package["name"] == on);
            let (name, on) = (short(name), short(on));
            if is_of_ours && on != name && !(kind == "dev" && FOR_TESTS.contains(&on)) {
                graph.add(name, on, &format!("a {kind} dependency"));
            }
        }
    }
    graph.cycles().iter().map(|cycle| cycle.describe("packages")).collect()
}

/// Finds the cycles between the modules of each package.
fn of_modules(metadata: &Value) -> Result<Vec<(String, String)>> {
    let mut found = Vec::new();
    for package in packages(metadata) {
        let name = short(package["name"].as_str().context("a package has no name")?);
        let mut cycles = BTreeSet::new();
        for target in package["targets"].as_array().into_iter().flatten() {
            if target["kind"]
                .as_array()
                .into_iter()
                .flatten()
                .any(|kind| TESTS.iter().any(|test| kind == test))
            {
                continue;
            }
            let root =
                PathBuf::from(target["src_path"].as_str().context("a target has no source")?);
            let root = root
                .strip_prefix(metadata["workspace_root"].as_str().unwrap_or_default())
                .unwrap_or(&root);
            cycles.extend(of_target(name, root)?);
        }
        found.extend(cycles.into_iter().map(|cycle| (name.to_owned(), cycle)));
    }
    Ok(found)
}

/// Finds the cycles between the modules of a target, from the file of its root on.
fn of_target(package: &str, root: &Path) -> Result<Vec<String>> {
    let read = |file: &Path| fs::read_to_string(file).ok();
    let tree = Tree::read(root, &read)?;
    let mut wrong = tree.ancestor_globs();
    for graph in tree.siblings().values() {
        let what = format!("{package}: modules");
        wrong.extend(graph.cycles().iter().map(|cycle| cycle.describe(&what)));
    }
    Ok(wrong)
}

fn packages(metadata: &Value) -> impl Iterator<Item = &Value> {
    metadata["packages"].as_array().into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn workspace(dependencies: [Value; 2]) -> Value {
        let [of_feed, of_fib] = dependencies;
        json!({"packages": [
            {"name": "fingerpost-feed", "dependencies": of_feed},
            {"name": "fingerpost-fib", "dependencies": of_fib},
        ]})
    }

    #[test]
    fn packages_that_need_each_other_are_found() {
        let one_way = workspace([json!([{"name": "fingerpost-fib"}]), json!([{"name": "libc"}])]);
        assert!(of_packages(&one_way).is_empty());
        let both = json!([{"name": "fingerpost-feed", "kind": "build"}]);
        let found = of_packages(&workspace([json!([{"name": "fingerpost-fib"}]), both]));
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("packages feed, fib"), "{found:?}");
        assert!(found[0].contains("fib → feed: a build dependency"));
    }

    #[test]
    fn development_dependency_counts_unless_all_tests_may_have_it() {
        let dev = |on: &str| json!([{"name": on, "kind": "dev"}]);
        let normal = |on: &str| json!([{"name": on}]);
        let found = |of_feed, of_fib| of_packages(&workspace([of_feed, of_fib])).len();
        assert_eq!(found(normal("fingerpost-fib"), dev("fingerpost-feed")), 0);
        assert_eq!(found(dev("fingerpost-fib"), normal("fingerpost-feed")), 1);
        assert_eq!(found(normal("fingerpost-fib"), dev("fingerpost-fib")), 0, "its own features");
    }

    #[test]
    fn list_fails_in_both_directions() {
        let found = [("a".to_owned(), "cycle of a".to_owned()), ("b".into(), "cycle of b".into())];
        assert!(compare(&found, &parse("# packages\na\nb\n")).is_empty());
        assert_eq!(compare(&found, &parse("a\n")), ["cycle of b"]);
        let stale = compare(&found[..1], &parse("a\nb\n"));
        assert_eq!(stale, ["b has no cycle: remove it from xtask/cycles.txt"]);
    }
}
