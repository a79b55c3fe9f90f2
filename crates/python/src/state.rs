//! The content of a table: the routes of both families, and their values.

use feed::AnyPrefix;
use fib::{Choice, Family, Full, Hop, Prefix, Rib, Updater};
use pyo3::exceptions::PyOverflowError;
use pyo3::prelude::*;

use crate::values::{Released, Values, identity};

/// The most threads that build a table.
const MAX_THREADS: usize = 8;

/// The routes and values of a table.
pub(crate) struct State {
    pub(crate) v4: Updater<u32>,
    pub(crate) v6: Updater<u128>,
    pub(crate) values: Values,
    /// Changes are errors.
    pub(crate) is_frozen: bool,
    /// Prefixes are returned as bytes and a length.
    pub(crate) raw_output: bool,
}

/// A route and its value; `None` only after Python's collector has cleared the table.
pub(crate) type Route = (AnyPrefix, Option<Py<PyAny>>);

/// A route: its prefix, and the place of its value among those of its table.
pub(crate) type Indexed<A> = (Prefix<A>, u32);

impl State {
    /// Makes an empty table.
    pub(crate) fn new(raw_output: bool) -> Result<Self, Full> {
        let (v4, v6) = (updater(Rib::new())?, updater(Rib::new())?);
        Ok(Self { v4, v6, values: Values::default(), is_frozen: false, raw_output })
    }

    /// Builds a table of sorted routes.
    ///
    /// # Panics
    ///
    /// If a route has a place beyond `values`.
    pub(crate) fn from_routes(
        v4: &[Indexed<u32>],
        v6: &[Indexed<u128>],
        values: Vec<Py<PyAny>>,
    ) -> Result<Self, Full> {
        let mut counts = vec![0_u64; values.len()];
        let places = v4.iter().map(|&(_, place)| place).chain(v6.iter().map(|&(_, place)| place));
        places.for_each(|place| counts[place as usize] += 1);
        let identities: Vec<_> = values.iter().map(identity).collect();
        let values = Values::ranked(values.into_iter().zip(counts))?;
        let hops: Vec<_> = identities.into_iter().map(|identity| values.find(identity)).collect();
        let hop = |place: u32| hops[place as usize];
        let v4 = Rib::from_sorted(v4.iter().map(|&(prefix, place)| (prefix, hop(place))));
        let v6 = Rib::from_sorted(v6.iter().map(|&(prefix, place)| (prefix, hop(place))));
        let (v4, v6) = (updater(v4)?, updater(v6)?);
        Ok(Self { v4, v6, values, is_frozen: false, raw_output: false })
    }

    /// Returns the number of routes.
    pub(crate) fn len(&self) -> usize {
        self.v4.rib().len() + self.v6.rib().len()
    }

    /// Adds a route or changes its value, whose number is acquired.
    pub(crate) fn announce(&mut self, prefix: AnyPrefix, hop: Hop) -> Released {
        let former = match prefix {
            AnyPrefix::V4(prefix) => self.v4.announce(prefix, hop),
            AnyPrefix::V6(prefix) => self.v6.announce(prefix, hop),
        };
        self.values.give_up(former)
    }

    /// Copies the routes; the values are shared.
    pub(crate) fn copy(&self, py: Python<'_>) -> Result<Self, Full> {
        let v4: Vec<_> = self.v4.rib().iter().map(|(prefix, hop)| (prefix, hop.0)).collect();
        let v6: Vec<_> = self.v6.rib().iter().map(|(prefix, hop)| (prefix, hop.0)).collect();
        // Numbers without an object have no routes.
        let values = self.values.by_number(py).into_iter();
        let values = values.map(|value| value.unwrap_or_else(|| py.None())).collect();
        let copy = Self::from_routes(&v4, &v6, values)?;
        Ok(Self { raw_output: self.raw_output, ..copy })
    }

    /// Returns the bytes on the heap, without those of the values.
    pub(crate) fn footprint(&self) -> usize {
        let routes = self.v4.rib().footprint() + self.v6.rib().footprint();
        routes + self.v4.fib().footprint() + self.v6.fib().footprint()
    }

    /// Removes all routes.
    pub(crate) fn clear(&mut self) -> Result<Released, Full> {
        let (v4, v6) = (updater(Rib::new())?, updater(Rib::new())?);
        let hops: Vec<_> = self.hops().collect();
        (self.v4, self.v6) = (v4, v6);
        Ok(self.values.give_up(hops))
    }

    /// Iterates over the numbers of the routes' values.
    fn hops(&self) -> impl Iterator<Item = Hop> {
        let v4 = self.v4.rib().iter().map(|(_, hop)| hop);
        v4.chain(self.v6.rib().iter().map(|(_, hop)| hop))
    }

    /// Returns all routes with their values, in the order of addresses, IPv4 first, the shorter prefix first.
    pub(crate) fn routes(&self, py: Python<'_>) -> Vec<Route> {
        let mut routes = self.resolve(py, self.v4.rib().iter(), AnyPrefix::V4);
        routes.extend(self.resolve(py, self.v6.rib().iter(), AnyPrefix::V6));
        routes
    }

    /// Returns the routes that cover a prefix, itself included, the shortest first.
    pub(crate) fn covering(&self, py: Python<'_>, prefix: AnyPrefix) -> Vec<Route> {
        match prefix {
            AnyPrefix::V4(prefix) => {
                self.resolve(py, self.v4.rib().covering(prefix), AnyPrefix::V4)
            }
            AnyPrefix::V6(prefix) => {
                self.resolve(py, self.v6.rib().covering(prefix), AnyPrefix::V6)
            }
        }
    }

    /// Returns the longest route that covers a prefix.
    pub(crate) fn longest_route(&self, py: Python<'_>, prefix: AnyPrefix) -> Option<Route> {
        let (route, hop) = match prefix {
            AnyPrefix::V4(prefix) => {
                let (route, hop) = self.v4.rib().covering(prefix).last()?;
                (AnyPrefix::V4(route), hop)
            }
            AnyPrefix::V6(prefix) => {
                let (route, hop) = self.v6.rib().covering(prefix).last()?;
                (AnyPrefix::V6(route), hop)
            }
        };
        Some((route, self.values.get(py, hop)))
    }

    /// Returns the routes that a prefix covers, itself included, in order.
    pub(crate) fn covered(&self, py: Python<'_>, prefix: AnyPrefix) -> Vec<Route> {
        match prefix {
            AnyPrefix::V4(prefix) => self.resolve(py, self.v4.rib().covered(prefix), AnyPrefix::V4),
            AnyPrefix::V6(prefix) => self.resolve(py, self.v6.rib().covered(prefix), AnyPrefix::V6),
        }
    }

    fn resolve<A>(
        &self,
        py: Python<'_>,
        routes: impl Iterator<Item = (Prefix<A>, Hop)>,
        prefix: fn(Prefix<A>) -> AnyPrefix,
    ) -> Vec<Route> {
        routes.map(|(route, hop)| (prefix(route), self.values.get(py, hop))).collect()
    }

    /// Removes a route. Its value remains acquired: see [`Values::give_up`].
    pub(crate) fn withdraw(&mut self, prefix: AnyPrefix) -> Option<Hop> {
        match prefix {
            AnyPrefix::V4(prefix) => self.v4.withdraw(prefix),
            AnyPrefix::V6(prefix) => self.v6.withdraw(prefix),
        }
    }

    /// Returns the value's number of exactly this route.
    pub(crate) fn exact(&self, prefix: AnyPrefix) -> Option<Hop> {
        match prefix {
            AnyPrefix::V4(prefix) => self.v4.rib().get(prefix),
            AnyPrefix::V6(prefix) => self.v6.rib().get(prefix),
        }
    }

    /// Returns the value's number of the longest route that covers the prefix; none without one.
    pub(crate) fn longest(&self, prefix: AnyPrefix) -> Hop {
        match prefix {
            AnyPrefix::V4(prefix) => longest(&self.v4, prefix),
            AnyPrefix::V6(prefix) => longest(&self.v6, prefix),
        }
    }

    /// Publishes all changes. Returns false if lookups in bulk are in progress in older tables: try again later.
    pub(crate) fn commit(&mut self) -> Result<bool, Full> {
        let v4 = self.v4.commit()?;
        Ok(self.v6.commit()?.published && v4.published)
    }
}

fn updater<A: Family>(rib: Rib<A>) -> Result<Updater<A>, Full> {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    Updater::new(rib, Choice::Auto, processors.min(MAX_THREADS))
}

/// Looks up in the published table if it has all routes, else among the routes.
fn longest<A: Family>(updater: &Updater<A>, prefix: Prefix<A>) -> Hop {
    if prefix.len() == A::BITS && !updater.is_behind() {
        return updater.fib().lookup(prefix.addr());
    }
    updater.rib().covering(prefix).last().map_or(Hop::NONE, |(_, hop)| hop)
}

/// The error of a table that exceeds a limit.
pub(crate) fn full(full: Full) -> PyErr {
    PyOverflowError::new_err(full.to_string())
}
