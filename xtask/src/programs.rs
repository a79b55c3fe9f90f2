//! The test programs of the workspace: built once, and run one by one.
//!
//! ```text
//!   cargo metadata ─► targets ─► one step each ──────────────────┐
//!   cargo test --no-run --message-format json ─► executables ─► run, counted
//! ```
//!
//! `cargo test` per package would compile dependencies again for each selection of packages and
//! features. One build with the features of all tests serves the tests for everybody, those for root
//! (`required-features = ["root-tests"]`), and the runs at other levels of SIMD instructions.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use serde_json::Value;

use crate::command::{CommandLine, Log};
use crate::metadata;
use crate::results::{Counts, Reader};
use crate::step::Step;

/// The feature of tests that need root.
const ROOT_TESTS: &str = "root-tests";

/// The engines that have SIMD kernels, for runs of the tests at other levels.
pub(crate) const KERNEL_ENGINES: &str =
    "rank,flat,rank6,D16X4R,D18R,D16X8R,sail_l,dir24_8,poptrie,treebitmap";

/// Test files that are empty in this build: they are compiled for loom only.
const MAY_BE_EMPTY: [&str; 1] = ["loom"];

/// A target with tests.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Target {
    pub(crate) package: String,
    /// `lib`, `bin` or `test`.
    pub(crate) kind: String,
    pub(crate) name: String,
    pub(crate) needs_root: bool,
    folder: PathBuf,
}

type Key = (String, String, String);

impl Target {
    fn key(&self) -> Key {
        (self.package.clone(), self.kind.clone(), self.name.clone())
    }

    fn describe(&self) -> String {
        let package = self.package.trim_start_matches("fingerpost-");
        match &*self.kind {
            "test" => format!("{package} tests/{}", self.name),
            _ => format!("{package} src"),
        }
    }
}

/// The targets of a build, and its executables as soon as it has run.
#[derive(Clone)]
pub(crate) struct Programs {
    targets: Vec<Target>,
    features: Vec<String>,
    executables: Arc<Mutex<BTreeMap<Key, String>>>,
}

impl Programs {
    /// Lists the targets of `packages`, or of the whole workspace.
    pub(crate) fn new(packages: &[String], with_root: bool) -> Result<Self> {
        let mut programs = Self::from_metadata(&metadata::read()?, with_root);
        if !packages.is_empty() {
            programs.targets.retain(|target| packages.contains(&target.package));
            programs.features.retain(|feature| {
                packages.iter().any(|package| feature.starts_with(&format!("{package}/")))
            });
        }
        Ok(programs)
    }

    fn from_metadata(metadata: &Value, with_root: bool) -> Self {
        let mut targets = Vec::new();
        let mut features = Vec::new();
        for package in list(&metadata["packages"]) {
            let name = text(&package["name"]);
            let folder = PathBuf::from(text(&package["manifest_path"]));
            let folder = folder.parent().map(PathBuf::from).unwrap_or_default();
            if with_root && !package["features"][ROOT_TESTS].is_null() {
                features.push(format!("{name}/{ROOT_TESTS}"));
            }
            for target in list(&package["targets"]) {
                let required: Vec<String> =
                    list(&target["required-features"]).iter().map(text).collect();
                let needs_root = required.iter().any(|feature| feature == ROOT_TESTS);
                let is_built = required.iter().all(|feature| feature == ROOT_TESTS && with_root);
                let kind = text(&target["kind"][0]);
                let has_tests = target["test"] == true && ["lib", "bin", "test"].contains(&&*kind);
                if is_built && has_tests {
                    let (package, name) = (name.clone(), text(&target["name"]));
                    targets.push(Target {
                        package,
                        kind,
                        name,
                        needs_root,
                        folder: folder.clone(),
                    });
                }
            }
        }
        Self { targets, features, executables: Arc::default() }
    }

    /// Returns the targets.
    pub(crate) fn targets(&self) -> impl Iterator<Item = &Target> {
        self.targets.iter()
    }

    /// Returns the step that builds all programs, in an environment with `env`.
    pub(crate) fn build(&self, env: &[(&'static str, &str)]) -> Step {
        let command = |verb: &[&str], targets: &[&str]| {
            let mut command = CommandLine::cargo(verb);
            for (name, value) in env {
                command = command.env(name, *value);
            }
            let packages: Vec<&str> = self.targets.iter().map(|target| &*target.package).collect();
            for package in dedup(packages) {
                command = command.args(&["--package", package]);
            }
            command = command.args(targets);
            if !self.features.is_empty() {
                command = command.args(&["--features", &self.features.join(",")]);
            }
            command.args(&["--message-format", "json-render-diagnostics"])
        };
        let tests = command(&["test", "--no-run"], &["--lib", "--bins", "--tests"]);
        // Smoke tests run some; `cargo test` would build a test program of each.
        let examples = command(&["build"], &["--examples"]);
        let executables = Arc::clone(&self.executables);
        Step::check("build of the tests", move |log| {
            let mut found = BTreeMap::new();
            let built = tests.stream(log, |line| found.extend(executable(line)))?
                && examples.stream(log, |_| ())?;
            *executables.lock().unwrap_or_else(PoisonError::into_inner) = found;
            if built { Ok(()) } else { Err("the tests do not build: see above".to_owned()) }
        })
    }

    /// Returns the step that runs the examples of the documentation, in an environment with `env`: that
    /// of the build, whose libraries it uses.
    pub(crate) fn doc_tests(&self, env: &[(&'static str, &str)]) -> Step {
        let mut words = vec!["test", "--workspace", "--doc", "--no-fail-fast"];
        let features = self.features.join(",");
        if !features.is_empty() {
            words.extend(["--features", &features]);
        }
        let mut command = CommandLine::cargo(&words);
        for (name, value) in env {
            command = command.env(name, *value);
        }
        Step::cargo_test("documentation tests", command, &[])
    }

    /// Returns a step for each target that `select` chooses.
    pub(crate) fn steps(&self, select: impl Fn(&Target) -> bool) -> Vec<Step> {
        let targets = self.targets.iter().filter(|target| select(target));
        targets.map(|target| self.step(target, &target.describe(), &[])).collect()
    }

    /// Returns the step that runs one target with these variables.
    pub(crate) fn step_with(
        &self,
        package: &str,
        test: &str,
        name: &str,
        env: &[(&'static str, &str)],
    ) -> Step {
        let key = (package.to_owned(), "test".to_owned(), test.to_owned());
        match self.targets.iter().find(|target| target.key() == key) {
            Some(target) => self.step(target, name, env),
            None => {
                let defect = format!("package {package} has no test {test}");
                Step::check(name, move |_| Err(defect.clone()))
            }
        }
    }

    fn step(&self, target: &Target, name: &str, env: &[(&'static str, &str)]) -> Step {
        let target = target.clone();
        let env: Vec<(&str, String)> =
            env.iter().map(|&(n, value)| (n, value.to_owned())).collect();
        let executables = Arc::clone(&self.executables);
        Step::count(name, move |log| {
            let executables = executables.lock().unwrap_or_else(PoisonError::into_inner);
            let executable = executables.get(&target.key()).cloned();
            drop(executables);
            run(&target, executable.as_deref(), &env, log)
        })
    }
}

/// Runs a program and counts its tests.
fn run(
    target: &Target,
    executable: Option<&str>,
    env: &[(&'static str, String)],
    log: &mut Log,
) -> Counts {
    let mut counts = Counts::default();
    let Some(executable) = executable else {
        counts.fail("not built: see the build of the tests");
        return counts;
    };
    let mut command = CommandLine::new(&[executable]).folder(target.folder.clone());
    for (name, value) in env {
        command = command.env(name, value);
    }
    let must_run_tests = target.kind == "test" && !MAY_BE_EMPTY.contains(&&*target.name);
    let mut reader = Reader::of_program(&target.describe(), must_run_tests);
    match command.stream(log, |line| reader.line(line)) {
        Ok(success) => reader.end_of_program(success),
        Err(reason) => {
            counts.fail(reason);
            counts
        }
    }
}

/// Reads the executable out of a message of cargo: its package, kind, name and path.
fn executable(line: &str) -> Option<(Key, String)> {
    if !line.starts_with("{\"reason\":\"compiler-artifact\"") {
        return None;
    }
    let message: Value = serde_json::from_str(line).ok()?;
    let is_test = message["profile"]["test"] == true;
    let path = message["executable"].as_str().filter(|_| is_test)?;
    // `path+file:///…/crates/fib#fingerpost-fib@0.1.0`, or `…/xtask#0.1.0`.
    let id = text(&message["package_id"]);
    let (before, after) = id.rsplit_once('#')?;
    let package = match after.split_once('@') {
        Some((name, _)) => name,
        None => before.rsplit('/').next()?,
    };
    let target = &message["target"];
    let key = (package.to_owned(), text(&target["kind"][0]), text(&target["name"]));
    Some((key, path.to_owned()))
}

fn dedup(mut names: Vec<&str>) -> Vec<&str> {
    names.sort_unstable();
    names.dedup();
    names
}

fn list(value: &Value) -> Vec<Value> {
    value.as_array().cloned().unwrap_or_default()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn metadata() -> Value {
        let target = |kind: &str, name: &str, required: &[&str]| json!({"kind": [kind], "name": name, "test": true, "required-features": required});
        json!({"packages": [
            {"name": "a", "manifest_path": "/w/a/Cargo.toml", "features": {ROOT_TESTS: []},
             "targets": [target("lib", "a", &[]), target("test", "t", &[ROOT_TESTS]),
                         target("test", "slow", &["exhaustive"]), target("example", "e", &[])]},
            {"name": "b", "manifest_path": "/w/b/Cargo.toml", "features": {},
             "targets": [target("bin", "b", &[])]},
        ]})
    }

    #[test]
    fn targets_are_those_whose_features_are_built() {
        let names = |with_root| {
            let programs = Programs::from_metadata(&metadata(), with_root);
            let names: Vec<_> =
                programs.targets.iter().map(|t| (t.name.clone(), t.needs_root)).collect();
            (names, programs.features)
        };
        let a = ("a".to_owned(), false);
        let b = ("b".to_owned(), false);
        assert_eq!(names(false), (vec![a.clone(), b.clone()], vec![]));
        let root = ("t".to_owned(), true);
        assert_eq!(names(true), (vec![a, root, b], vec![format!("a/{ROOT_TESTS}")]));
    }

    #[test]
    fn executable_is_read_from_either_form_of_package_id() {
        let message = |id: &str, test: bool| {
            let message = json!({"reason": "compiler-artifact", "package_id": id, "executable": "/x",
                "profile": {"test": test}, "target": {"kind": ["lib"], "name": "n"}});
            // Cargo writes the reason first.
            let rest = message.to_string().replacen("\"reason\":\"compiler-artifact\",", "", 1);
            rest.replacen('{', "{\"reason\":\"compiler-artifact\",", 1)
        };
        let package = |id| executable(&message(id, true)).map(|((package, ..), _)| package);
        assert_eq!(package("path+file:///w/fib#fingerpost-fib@0.1.0").unwrap(), "fingerpost-fib");
        assert_eq!(package("path+file:///w/xtask#0.1.0").unwrap(), "xtask");
        assert_eq!(executable(&message("path+file:///w/xtask#0.1.0", false)), None);
        assert_eq!(executable("text"), None);
    }

    #[test]
    fn program_that_was_not_built_is_a_failure() {
        let programs = Programs::from_metadata(&metadata(), false);
        let steps = programs.steps(|_| true);
        assert_eq!(steps.len(), 2);
        assert_eq!(steps[0].run(&mut Log::buffered()).failed, 1);
        let unknown = programs.step_with("a", "none", "none", &[]);
        assert_eq!(unknown.run(&mut Log::buffered()).failed, 1);
    }

    #[test]
    fn workspace_has_tests_for_root() {
        let programs = Programs::new(&[], true).unwrap();
        assert!(programs.targets.iter().any(|target| target.needs_root));
    }
}
