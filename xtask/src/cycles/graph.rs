//! A directed graph with a reason for each edge, and its cycles.
//!
//! A cycle is a strongly connected component of more than one node. The graphs are small (the siblings
//! of one module), so a component is found by the definition: the nodes that a node reaches and that
//! reach it.

use std::collections::{BTreeMap, BTreeSet};

/// Nodes by name, and their edges.
#[derive(Default)]
pub(super) struct Graph {
    /// For each edge, from and to: its first reason, and the number of reasons.
    edges: BTreeMap<(String, String), (String, usize)>,
}

/// The nodes of a strongly connected component, and the edges among them.
pub(super) struct Cycle {
    nodes: BTreeSet<String>,
    /// From, to, the first reason, the number of reasons; the edge with the fewest reasons first.
    edges: Vec<(String, String, String, usize)>,
}

impl Graph {
    /// Adds an edge, or one more reason for it.
    pub(super) fn add(&mut self, from: &str, to: &str, reason: &str) {
        let edge = (from.to_owned(), to.to_owned());
        self.edges.entry(edge).or_insert_with(|| (reason.to_owned(), 0)).1 += 1;
    }

    /// Finds the cycles.
    pub(super) fn cycles(&self) -> Vec<Cycle> {
        let reachable: BTreeMap<&str, BTreeSet<&str>> =
            self.edges.keys().map(|(from, _)| (from.as_str(), self.reachable(from))).collect();
        let reaches = |a: &str, b: &str| reachable.get(a).is_some_and(|nodes| nodes.contains(b));
        let component = |node: &&str| -> BTreeSet<String> {
            let back = reachable[node].iter().filter(|other| reaches(other, node));
            back.map(|&other| other.to_owned()).collect()
        };
        let components: BTreeSet<_> = reachable.keys().map(component).collect();
        components
            .into_iter()
            .filter(|nodes| nodes.len() > 1)
            .map(|nodes| self.cycle(nodes))
            .collect()
    }

    /// Returns the nodes at the ends of the paths that begin at a node.
    fn reachable(&self, from: &str) -> BTreeSet<&str> {
        let mut found = BTreeSet::new();
        let mut pending = vec![from];
        while let Some(node) = pending.pop() {
            for (_, to) in self.edges.keys().filter(|(from, _)| from == node) {
                if found.insert(to.as_str()) {
                    pending.push(to);
                }
            }
        }
        found
    }

    fn cycle(&self, nodes: BTreeSet<String>) -> Cycle {
        let inner = self.edges.iter().filter(|((a, b), _)| nodes.contains(a) && nodes.contains(b));
        let mut edges: Vec<_> = inner
            .map(|((a, b), (reason, count))| (a.clone(), b.clone(), reason.clone(), *count))
            .collect();
        edges.sort_by_key(|edge| edge.3);
        Cycle { nodes, edges }
    }
}

impl Cycle {
    /// Describes the cycle: `title` and the nodes, the remedy, and a line for each edge.
    pub(super) fn describe(&self, title: &str) -> String {
        let nodes: Vec<&str> = self.nodes.iter().map(String::as_str).collect();
        let mut text = format!(
            "{title} {} depend on each other: move an item that both sides need to the lower one or \
             to one of its own, or pass it as an argument",
            nodes.join(", ")
        );
        for (from, to, reason, count) in &self.edges {
            text.push_str(&format!("\n      {from} → {to}: {reason}"));
            if *count > 1 {
                text.push_str(&format!(", and {} more", count - 1));
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cycles(edges: &[(&str, &str)]) -> Vec<String> {
        let mut graph = Graph::default();
        for (from, to) in edges {
            graph.add(from, to, &format!("{from} needs {to}"));
        }
        graph.cycles().iter().map(|cycle| cycle.describe("modules")).collect()
    }

    #[test]
    fn graph_without_cycles_has_none() {
        assert!(cycles(&[]).is_empty());
        assert!(cycles(&[("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")]).is_empty());
    }

    #[test]
    fn each_component_is_one_cycle_with_its_edges_alone() {
        let found = cycles(&[
            ("a", "b"),
            ("b", "c"),
            ("c", "a"),
            ("a", "b"),
            ("c", "d"),
            ("d", "e"),
            ("e", "d"),
        ]);
        assert_eq!(found.len(), 2);
        assert!(found[0].starts_with("modules a, b, c depend on each other"), "{found:?}");
        assert!(found[0].ends_with("a → b: a needs b, and 1 more"), "{found:?}");
        assert!(!found[0].contains("c → d"), "{found:?}");
        assert!(found[1].starts_with("modules d, e depend"), "{found:?}");
    }
}
