//! The software bill of materials of the program: its crates, as CycloneDX 1.5.
//!
//! ```text
//!   cargo metadata ─► crates that `fingerpost` contains on this machine ─► components, dependencies
//! ```
//!
//! Only dependencies of normal kind count: a crate that a test or a build script needs is not in the program. The document
//! has no time and no random number, so that it is the same for the same `Cargo.lock`.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};
use serde_json::{Value, json};

/// The package of the program.
const PROGRAM: &str = "fingerpost";

/// The crates that the program contains.
pub(crate) struct Contents {
    /// The identity of the program's own package.
    pub(crate) program: String,
    /// The packages by identity, the program's own included.
    pub(crate) packages: BTreeMap<String, Value>,
    /// The identities of the packages that each one needs.
    pub(crate) needs: BTreeMap<String, BTreeSet<String>>,
}

impl Contents {
    /// Finds the crates of the program in what cargo's `metadata` describes, with all dependencies.
    pub(crate) fn of(metadata: &Value) -> Result<Self> {
        let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
        let all: BTreeMap<String, Value> = list(&metadata["packages"])
            .into_iter()
            .map(|package| (id(&package["id"]), package))
            .collect();
        let nodes: BTreeMap<String, BTreeSet<String>> = list(&metadata["resolve"]["nodes"])
            .into_iter()
            .map(|node| (id(&node["id"]), list(&node["deps"]).iter().filter_map(normal).collect()))
            .collect();
        let program = all.iter().find(|(_, package)| package["name"] == PROGRAM);
        let program = program.context("cargo metadata has no package `fingerpost`")?.0.clone();
        let mut needs = BTreeMap::new();
        let mut waiting = vec![program.clone()];
        while let Some(next) = waiting.pop() {
            let of = nodes.get(&next).context("cargo metadata lists no dependencies")?;
            if needs.insert(next, of.clone()).is_none() {
                waiting.extend(of.iter().cloned());
            }
        }
        let contained = all.into_iter().filter(|(id, _)| needs.contains_key(id));
        Ok(Self { program, packages: contained.collect(), needs })
    }
}

/// Returns the document of the program.
pub(crate) fn document(contents: &Contents) -> Result<Value> {
    let Contents { program, packages, needs } = contents;
    let package = packages.get(program).context("the program has no package")?;
    let url = |id: &String| packages.get(id).map(package_url);
    let components = packages.iter().filter(|(id, _)| *id != program);
    let components = components.map(|(_, package)| component(package, "library"));
    let dependencies = needs.iter().map(|(id, needed)| {
        let needed: BTreeSet<_> = needed.iter().filter_map(url).collect();
        json!({ "ref": url(id), "dependsOn": needed })
    });
    Ok(json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": { "component": component(package, "application") },
        "components": components.collect::<Vec<_>>(),
        "dependencies": dependencies.collect::<Vec<_>>(),
    }))
}

fn id(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Returns the package of a dependency that the program contains.
fn normal(dependency: &Value) -> Option<String> {
    let kinds = dependency["dep_kinds"].as_array()?;
    kinds.iter().any(|kind| kind["kind"].is_null()).then(|| id(&dependency["pkg"]))
}

/// Returns the address of a package (<https://github.com/package-url/purl-spec>).
fn package_url(package: &Value) -> String {
    format!("pkg:cargo/{}@{}", id(&package["name"]), id(&package["version"]))
}

fn component(package: &Value, kind: &str) -> Value {
    let url = package_url(package);
    // Older crates write a slash for OR.
    let license = id(&package["license"]).replace('/', " OR ");
    json!({
        "type": kind,
        "bom-ref": url,
        "name": package["name"],
        "version": package["version"],
        "purl": url,
        "licenses": [{ "expression": license }],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn document_has_the_crates_of_the_program_and_no_others() {
        let package = |name: &str| json!({ "id": name, "name": name, "version": "1.0.0", "license": "MIT/Apache-2.0" });
        let dependency =
            |name: &str, kind: Value| json!({ "pkg": name, "dep_kinds": [{ "kind": kind }] });
        let packages = ["fingerpost", "a", "b", "tested", "other"].map(package);
        let metadata = json!({
            "packages": packages,
            "resolve": { "nodes": [
                { "id": "fingerpost", "deps": [dependency("a", Value::Null), dependency("tested", json!("dev"))] },
                { "id": "a", "deps": [dependency("b", Value::Null), dependency("other", json!("build"))] },
                { "id": "b", "deps": [] },
                { "id": "tested", "deps": [] },
                { "id": "other", "deps": [] },
            ] },
        });
        let document = document(&Contents::of(&metadata).unwrap()).unwrap();
        let names: Vec<&str> = document["components"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|part| part["name"].as_str())
            .collect();
        assert_eq!(names, ["a", "b"]);
        assert_eq!(document["metadata"]["component"]["purl"], "pkg:cargo/fingerpost@1.0.0");
        assert_eq!(document["components"][0]["licenses"][0]["expression"], "MIT OR Apache-2.0");
        let of_a = &document["dependencies"][0];
        assert_eq!(
            (&of_a["ref"], &of_a["dependsOn"]),
            (&json!("pkg:cargo/a@1.0.0"), &json!(["pkg:cargo/b@1.0.0"]))
        );
        assert_eq!(document["dependencies"].as_array().unwrap().len(), 3);
    }
}
