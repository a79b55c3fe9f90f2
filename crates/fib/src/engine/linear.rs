//! The oracle: every route, longest first, compared one after the other.
//!
//! All other engines are tested against it. It shares no code with them (no runs, no bit
//! operations), and is simple enough to be verified by reading. A lookup is O(routes).

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::{Engine, Part, RouteBuilder, Step};
use crate::{Addr, Full, Hop, Prefix, Rib};

/// A list of routes, longest first.
#[derive(Clone, Debug)]
pub struct Linear<A: Addr> {
    routes: Vec<(Prefix<A>, Hop)>,
}

impl<A: Addr> Linear<A> {
    /// Takes the routes in any order, each prefix at most once.
    pub fn new(routes: impl IntoIterator<Item = (Prefix<A>, Hop)>) -> Self {
        let mut routes: Vec<_> = routes.into_iter().collect();
        routes.sort_by_key(|(prefix, _)| core::cmp::Reverse(prefix.len()));
        Self { routes }
    }
}

impl<A: Addr> Engine<A> for Linear<A> {
    fn lookup(&self, addr: A) -> Hop {
        let longest = self.routes.iter().find(|(prefix, _)| prefix.contains(addr));
        longest.map_or(Hop::NONE, |&(_, hop)| hop)
    }

    fn parts(&self) -> Vec<Part> {
        Vec::from([Part::of("routes", &self.routes)])
    }

    fn trace(&self, addr: A, steps: &mut Vec<Step>) -> Hop {
        for (index, (prefix, hop)) in self.routes.iter().enumerate() {
            steps.push(Step::of("routes", index, &self.routes));
            if prefix.contains(addr) {
                return *hop;
            }
        }
        Hop::NONE
    }
}

/// The builder of [`Linear`]: a map of the routes, copied out whole.
#[derive(Debug, Default)]
pub struct LinearBuilder<A: Addr> {
    routes: BTreeMap<Prefix<A>, Hop>,
    written: u64,
}

impl<A: Addr> RouteBuilder<A> for LinearBuilder<A> {
    type Engine = Linear<A>;

    fn fill(&mut self, rib: &Rib<A>) -> Result<(), Full> {
        self.routes = rib.iter().collect();
        Ok(())
    }

    fn change(&mut self, rib: &Rib<A>, prefix: Prefix<A>) -> Result<(), Full> {
        match rib.get(prefix) {
            Some(hop) => self.routes.insert(prefix, hop),
            None => self.routes.remove(&prefix),
        };
        // The next freeze rebuilds the list.
        self.written += (self.routes.len() * size_of::<(Prefix<A>, Hop)>()).div_ceil(8) as u64;
        Ok(())
    }

    fn freeze(&self) -> Linear<A> {
        Linear::new(self.routes.iter().map(|(&prefix, &hop)| (prefix, hop)))
    }

    fn refresh(&self, idle: &mut Linear<A>) {
        *idle = self.freeze();
    }

    fn written(&self) -> u64 {
        self.written
    }
}
