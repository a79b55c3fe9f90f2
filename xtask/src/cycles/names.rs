//! From the paths that modules mention to the edges between siblings.
//!
//! A path is followed from the module that mentions it, name by name, as far as it stays among that
//! module and its ancestors. An import on the way (`pub use policy::Policy` in the parent) is followed
//! to where it comes from. The first module beside or below an ancestor is the one that the path
//! depends on: the edge is between the children of the last common ancestor.

use std::collections::BTreeMap;

use super::graph::Graph;
use super::tree::{Name, Tree};

/// More imports in a row than any path has.
const MOST_IMPORTS: usize = 16;

/// The module that a path leads to.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Place {
    module: usize,
    /// Whether the path names the module itself, not an item of it.
    is_whole: bool,
}

impl Tree {
    /// Returns the graph of the children of each module that has any, by the parent's path.
    pub(super) fn siblings(&self) -> BTreeMap<String, Graph> {
        let mut graphs: BTreeMap<String, Graph> = BTreeMap::new();
        for (from, module) in self.modules.iter().enumerate() {
            for mention in &module.mentions {
                let Some(place) = self.follow(from, from, &mention.path, 0) else { continue };
                let Some((parent, a, b)) = self.edge(from, place.module) else { continue };
                let (file, path) = (module.file.display(), mention.path.join("::"));
                let reason = format!("{file}:{} names {path}", mention.line);
                let graph = graphs.entry(self.path(parent)).or_default();
                graph.add(&self.path(a), &self.path(b), &reason);
            }
        }
        graphs
    }

    /// Lists the glob imports of an ancestor: they hide the siblings that are used through it.
    pub(super) fn ancestor_globs(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        for (from, module) in self.modules.iter().enumerate() {
            for glob in &module.globs {
                let place = self.follow(from, from, &glob.path, 0);
                if place.is_some_and(|place| place.is_whole && self.is_within(from, place.module)) {
                    wrong.push(format!(
                        "{}:{}: {}::* imports all names of a parent: list the names",
                        module.file.display(),
                        glob.line,
                        glob.path.join("::")
                    ));
                }
            }
        }
        wrong
    }

    /// Follows a path that is written in the module `at`, for the module `user` at or below it.
    /// Returns nothing for a path that leads to another crate.
    fn follow(&self, user: usize, at: usize, path: &[String], imports: usize) -> Option<Place> {
        let mut place = Place { module: at, is_whole: true };
        for (i, name) in path.iter().enumerate() {
            let here = place.module;
            place.module = match name.as_str() {
                "crate" if i == 0 => 0,
                "self" => here,
                "super" => self.modules[here].parent?,
                _ if !place.is_whole || !self.is_within(user, here) => return Some(place),
                name => match self.modules[here].names.get(name) {
                    Some(Name::Child(child)) => *child,
                    Some(Name::Item) => return Some(Place { module: here, is_whole: false }),
                    // The name of an import is not within its own path: `use crate::a` is no `a`.
                    Some(Name::Imported(import))
                        if imports < MOST_IMPORTS && !(i == 0 && import == path) =>
                    {
                        let rest = [import, &path[i + 1..]].concat();
                        return self.follow(user, here, &rest, imports + 1);
                    }
                    _ => {
                        return self.through_globs(user, here, name, imports).or_else(|| {
                            // A name that is written after a module of this crate is within this crate.
                            (i > 0).then_some(Place { module: here, is_whole: false })
                        });
                    }
                },
            };
        }
        Some(place)
    }

    /// Finds the module from which `at` imports a name by a glob.
    fn through_globs(&self, user: usize, at: usize, name: &str, imports: usize) -> Option<Place> {
        if imports >= MOST_IMPORTS {
            return None;
        }
        self.modules[at].globs.iter().find_map(|glob| {
            let place = self.follow(user, at, &glob.path, imports + 1)?;
            let has_name = place.is_whole
                && place.module != at
                && self.modules[place.module].names.contains_key(name);
            has_name.then_some(Place { module: place.module, is_whole: false })
        })
    }

    /// Returns the last common ancestor of two modules and its children that they are at or below;
    /// nothing if one is at or below the other.
    fn edge(&self, from: usize, to: usize) -> Option<(usize, usize, usize)> {
        let (above_from, above_to) = (self.lineage(from), self.lineage(to));
        let common = above_from.iter().zip(&above_to).take_while(|(a, b)| a == b).count();
        Some((above_from[common - 1], *above_from.get(common)?, *above_to.get(common)?))
    }

    /// Lists a module's ancestors from the root on, and itself.
    fn lineage(&self, module: usize) -> Vec<usize> {
        let mut lineage: Vec<usize> =
            std::iter::successors(Some(module), |&at| self.modules[at].parent).collect();
        lineage.reverse();
        lineage
    }

    fn is_within(&self, module: usize, ancestor: usize) -> bool {
        self.lineage(module).contains(&ancestor)
    }

    /// Returns a module's path without the root.
    fn path(&self, module: usize) -> String {
        let names = self.lineage(module).into_iter().skip(1);
        names.map(|at| self.modules[at].name.as_str()).collect::<Vec<_>>().join("::")
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn tree(text: &str) -> Tree {
        let one = |file: &Path| (file == Path::new("lib.rs")).then(|| text.to_owned());
        Tree::read(Path::new("lib.rs"), &one).unwrap()
    }

    /// The number of cycles at each level, by the parent's path.
    fn cycles(text: &str) -> Vec<(String, usize)> {
        let graphs = tree(text).siblings();
        let counts = graphs.into_iter().map(|(parent, graph)| (parent, graph.cycles().len()));
        counts.filter(|(_, count)| *count > 0).collect()
    }

    const AT_ROOT: [(&str, usize); 1] = [("", 1)];

    fn at(places: &[(&str, usize)]) -> Vec<(String, usize)> {
        places.iter().map(|(parent, count)| ((*parent).to_owned(), *count)).collect()
    }

    #[test]
    fn siblings_that_name_each_other_are_a_cycle() {
        assert_eq!(
            cycles("mod a { use crate::b::B; } mod b { struct B; use super::a; }"),
            at(&AT_ROOT)
        );
        assert_eq!(
            cycles("mod a { fn f() { super::b::g() } } mod b { use crate::a::f; }"),
            at(&AT_ROOT)
        );
        assert!(cycles("mod a { use crate::b::B; } mod b { struct B; }").is_empty());
        let three = "mod a { use crate::b; } mod b { use crate::c; } mod c { use crate::a; }";
        assert_eq!(cycles(three), at(&AT_ROOT));
    }

    #[test]
    fn file_deep_below_counts_for_the_sibling_above_it() {
        let text =
            "mod a { mod c { mod d { use crate::b::e::E; } } } mod b { mod e { use crate::a; } }";
        assert_eq!(cycles(text), at(&AT_ROOT));
        let inner = "mod a { mod b { use super::c::C; } mod c { use crate::a::b::B; } }";
        assert_eq!(cycles(inner), at(&[("a", 1)]));
    }

    #[test]
    fn parent_and_child_are_no_cycle() {
        let text =
            "mod a { mod b { use super::A; use crate::a::A as D; } pub use b::B; struct A(B); }";
        assert!(cycles(text).is_empty());
        assert!(cycles("mod a { use crate::R; } use a::A; struct R;").is_empty());
    }

    #[test]
    fn reexport_of_a_parent_leads_to_the_child() {
        let named = "mod a { use super::B; } mod b { use super::a::A; } pub use b::B;";
        assert_eq!(cycles(named), at(&AT_ROOT));
        let glob = "mod a { use crate::B; } mod b { pub struct B; use super::a; } pub use b::*;";
        assert_eq!(cycles(glob), at(&AT_ROOT));
        let elsewhere = "mod p { mod a { use super::B; } use crate::b::B; } mod b { use crate::p; pub struct B; }";
        assert_eq!(cycles(elsewhere), at(&AT_ROOT));
    }

    #[test]
    fn other_crates_are_no_siblings() {
        let text = "mod a { use wire::b::X; use std::b; } mod b { use crate::a; } use wire;";
        assert!(cycles(text).is_empty());
        // An import that names itself ends.
        assert!(cycles("mod a { use fib::a; use a::X; }").is_empty());
    }

    #[test]
    fn glob_import_of_a_parent_is_an_error() {
        let found = |text: &str| tree(text).ancestor_globs();
        assert_eq!(
            found("mod a {\n use super::*; }"),
            ["lib.rs:2: super::* imports all names of a parent: list the names"]
        );
        assert_eq!(found("mod a { use crate::*; mod b { use super::super::*; } }").len(), 2);
        assert!(
            found("enum E { A } mod a { use super::E::*; use super::b::*; } mod b {}").is_empty()
        );
    }
}
