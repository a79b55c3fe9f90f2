//! Lookups in bulk, while other threads of Python go on.

use fib::{Fib, Full, Hop, Reader};
use pyo3::prelude::*;

use crate::addresses::Addresses;
use crate::state::{State, full};
use crate::table::Table;
use crate::values::{Released, Values};

/// The wait for lookups of other threads in older tables.
const PAUSE: std::time::Duration = std::time::Duration::from_micros(50);

/// A lookup in progress: the numbers of its results keep their objects.
struct Lookup<'py, 't> {
    py: Python<'py>,
    table: &'t Table,
    v4: Reader<Fib<u32>>,
    v6: Reader<Fib<u128>>,
}

impl Table {
    /// Gives all changes to lookups in bulk.
    pub(crate) fn publish(&self, py: Python<'_>) -> PyResult<()> {
        self.publish_and(py, |_| ())
    }

    /// Gives all changes to lookups in bulk, and calls `then` before another thread changes the table. Waits for
    /// lookups in progress only if two commits have passed since they began.
    fn publish_and<T: Send>(
        &self,
        py: Python<'_>,
        then: impl Fn(&mut State) -> T + Sync,
    ) -> PyResult<T> {
        // A build may hold the lock for long: nothing waits for the interpreter meanwhile.
        let commit = || {
            let mut state = self.lock_detached();
            let is_published = state.commit()?;
            Ok::<_, Full>(is_published.then(|| then(&mut state)))
        };
        loop {
            if let Some(result) = py.detach(commit).map_err(full)? {
                return Ok(result);
            }
            py.detach(|| std::thread::sleep(PAUSE));
        }
    }

    /// Looks addresses up, and translates the numbers by the values as they were.
    pub(crate) fn look_up<T>(
        &self,
        addresses: &Bound<'_, PyAny>,
        translate: impl FnOnce(Vec<Hop>, &Values) -> T,
    ) -> PyResult<T> {
        let py = addresses.py();
        let addresses = Addresses::extract(addresses)?;
        let slices = addresses.slices()?;
        let mut hops = vec![Hop::NONE; addresses.len()];
        let (v4, v6) = self.publish_and(py, |state| {
            state.values.begin_lookup();
            (state.v4.reader(), state.v6.reader())
        })?;
        let mut lookup = Lookup { py, table: self, v4, v6 };
        let (v4, v6) = (&mut lookup.v4, &mut lookup.v6);
        py.detach(|| slices.look_up(v4.current(), v6.current(), &mut hops));
        let state = self.lock(py);
        Ok(translate(hops, &state.values))
    }
}

impl Drop for Lookup<'_, '_> {
    fn drop(&mut self) {
        let released: Released = self.table.lock(self.py).values.end_lookup();
        drop(released);
    }
}
