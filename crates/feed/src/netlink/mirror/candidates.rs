//! Candidate lists: the routes of a prefix in order, each distinct list stored once.
//!
//! ```text
//!  Rib ─ prefix ─► Hop ─► [ (metric 20, path 3, protocol 12),  ─► best: the first with a
//!                           (metric 32, path 1, protocol 186) ]         usable path
//! ```
//!
//! A full table has a million prefixes and some hundred distinct lists, so a route costs one node of
//! the trie, and the effect of a change to a path is computed once per list. The best route is stored
//! with the list and changes with the targets of its paths.

use fib::{Hop, HopTable};

use super::paths::{Path, Paths, ResolveContext};
use crate::netlink::follower::RouteInfo;

/// One route of a prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Candidate {
    pub(super) metric: u32,
    pub(super) path: Hop,
    pub(super) protocol: u8,
}

/// All lists in use, with reference counts: one for each prefix that has it.
#[derive(Default)]
pub(super) struct CandidateLists {
    pool: HopTable<Vec<Candidate>>,
    best: Vec<Option<RouteInfo>>,
    pub(super) paths: Paths,
}

impl CandidateLists {
    /// Adds a reference to a list, which holds references to its paths. `None` if there are 2^32
    /// lists.
    pub(super) fn acquire(&mut self, list: &Vec<Candidate>) -> Option<Hop> {
        let known = self.pool.find(list).is_some();
        let hop = self.pool.acquire(list).ok()?;
        if !known {
            for candidate in list {
                self.paths.retain(candidate.path);
            }
            let at = hop.0 as usize;
            if self.best.len() <= at {
                self.best.resize(at + 1, None);
            }
            self.best[at] = self.compute_best(list);
        }
        Some(hop)
    }

    /// Drops a reference.
    pub(super) fn release(&mut self, hop: Hop) {
        let Some(list) = self.pool.release(hop) else { return };
        self.best[hop.0 as usize] = None;
        for candidate in list {
            self.paths.release(candidate.path);
        }
    }

    pub(super) fn get(&self, hop: Hop) -> &[Candidate] {
        self.pool.get(hop).map_or(&[], Vec::as_slice)
    }

    /// Returns the best route of a list.
    pub(super) fn best(&self, hop: Hop) -> Option<&RouteInfo> {
        self.best.get(hop.0 as usize)?.as_ref()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Hop, &[Candidate])> {
        self.pool.iter().map(|(hop, list, _)| (hop, list.as_slice()))
    }

    pub(super) fn len(&self) -> usize {
        self.pool.len()
    }

    /// Recomputes the targets of these paths; returns the lists whose best route has changed.
    pub(super) fn retarget(
        &mut self,
        paths: impl IntoIterator<Item = Hop>,
        context: &ResolveContext<'_>,
    ) -> Vec<Hop> {
        let mut changed: Vec<Hop> = paths.into_iter().collect();
        changed.retain(|&path| self.paths.retarget(path, context));
        if changed.is_empty() {
            return changed;
        }
        changed.sort_unstable();
        let touched = |list: &[Candidate]| {
            list.iter().any(|candidate| changed.binary_search(&candidate.path).is_ok())
        };
        let touched: Vec<Hop> =
            self.iter().filter(|(_, list)| touched(list)).map(|(hop, _)| hop).collect();
        let mut lists = Vec::new();
        for hop in touched {
            let best = self.compute_best(self.get(hop));
            let at = hop.0 as usize;
            if self.best[at] != best {
                self.best[at] = best;
                lists.push(hop);
            }
        }
        lists
    }

    fn compute_best(&self, list: &[Candidate]) -> Option<RouteInfo> {
        list.iter().find_map(|candidate| {
            let target = self.paths.target(candidate.path)?.clone();
            Some(RouteInfo { target, metric: candidate.metric, protocol: candidate.protocol })
        })
    }

    pub(super) fn path(&self, candidate: &Candidate) -> Option<&Path> {
        self.paths.get(candidate.path)
    }
}
