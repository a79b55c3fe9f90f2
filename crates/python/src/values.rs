//! The values of routes: each object has a number, which the tables store.
//!
//! Objects are distinguished by identity, so that no code of theirs runs: routes with one object share one number.
//! A lookup in bulk goes on while routes change, and then translates the numbers that it found. Objects whose
//! last route is gone keep their number until no such lookup is in progress.

use std::collections::HashMap;

use fib::{Full, Hop, HopTable};
use pyo3::prelude::*;
use pyo3::{PyTraverseError, PyVisit};

/// Objects that the table has released. Drop them when the state is unlocked: they may have finalizers.
#[must_use]
pub(crate) struct Released(#[expect(dead_code, reason = "dropped")] Vec<Py<PyAny>>);

/// The objects of a table.
#[derive(Default)]
pub(crate) struct Values {
    numbers: HopTable<usize>,
    /// By number, from 1 on; `None` for a number that is free.
    objects: Vec<Option<Py<PyAny>>>,
    /// The lookups in bulk that are in progress.
    lookups: usize,
    /// References that routes have given up since one began.
    given_up: Vec<Hop>,
}

/// Returns the identity of an object that is not freed meanwhile.
pub(crate) fn identity(object: &Py<PyAny>) -> usize {
    object.as_ptr().addr()
}

impl Values {
    /// Numbers objects by the number of routes of each, the most frequent one first.
    pub(crate) fn ranked(
        objects: impl IntoIterator<Item = (Py<PyAny>, u64)>,
    ) -> Result<Self, Full> {
        let mut by_identity = HashMap::new();
        let numbers = HopTable::ranked(objects.into_iter().map(|(object, count)| {
            let identity = identity(&object);
            by_identity.insert(identity, object);
            (identity, count)
        }))?;
        let objects = numbers.iter().map(|(_, identity, _)| by_identity.remove(identity)).collect();
        Ok(Self { numbers, objects, ..Self::default() })
    }

    /// Returns the number of an object by its identity; none if no route has it.
    pub(crate) fn find(&self, identity: usize) -> Hop {
        self.numbers.find(&identity).unwrap_or_default()
    }

    /// Returns the number of an object for one more route.
    pub(crate) fn acquire(&mut self, object: Py<PyAny>) -> Result<Hop, Full> {
        let hop = self.numbers.acquire(&identity(&object))?;
        let place = hop.0 as usize - 1;
        if place >= self.objects.len() {
            self.objects.resize_with(place + 1, || None);
        }
        self.objects[place].get_or_insert(object);
        Ok(hop)
    }

    /// Routes have other values, or are withdrawn.
    pub(crate) fn give_up(&mut self, hops: impl IntoIterator<Item = Hop>) -> Released {
        self.given_up.extend(hops);
        self.release()
    }

    /// A lookup in bulk begins; its numbers keep their objects until [`end_lookup`](Self::end_lookup).
    pub(crate) fn begin_lookup(&mut self) {
        self.lookups += 1;
    }

    /// Ends a lookup in bulk.
    pub(crate) fn end_lookup(&mut self) -> Released {
        self.lookups -= 1;
        self.release()
    }

    /// Takes over the lookups in progress of values that these replace.
    pub(crate) fn continue_lookups(&mut self, former: &Self) {
        self.lookups = former.lookups;
    }

    fn release(&mut self) -> Released {
        let mut released = Vec::new();
        if self.lookups == 0 {
            for hop in self.given_up.drain(..) {
                if self.numbers.release(hop).is_some() {
                    let place = self.objects.get_mut(hop.0 as usize - 1);
                    released.extend(place.and_then(Option::take));
                }
            }
        }
        Released(released)
    }

    /// Returns the object of a number.
    pub(crate) fn get(&self, py: Python<'_>, hop: Hop) -> Option<Py<PyAny>> {
        let place = (hop.0 as usize).checked_sub(1)?;
        self.objects.get(place)?.as_ref().map(|object| object.clone_ref(py))
    }

    /// Returns the objects by number, `None` for 0 and the free ones.
    pub(crate) fn by_number(&self, py: Python<'_>) -> Vec<Option<Py<PyAny>>> {
        let objects = self.objects.iter().map(|object| Some(object.as_ref()?.clone_ref(py)));
        std::iter::once(None).chain(objects).collect()
    }

    /// Takes the objects out, for Python's collector of reference cycles.
    pub(crate) fn clear(&mut self) -> Released {
        Released(std::mem::take(&mut self.objects).into_iter().flatten().collect())
    }

    /// Shows the objects to Python's collector of reference cycles.
    pub(crate) fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.objects.iter().flatten().try_for_each(|object| visit.call(object))
    }
}
