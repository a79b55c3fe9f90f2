//! The class `Table`: the names of dictionaries and of pytricia's class, and those of bulk lookups.

use std::sync::{Mutex, MutexGuard, PoisonError};

use feed::AnyPrefix;
use numpy::{IntoPyArray, PyArray1};
use pyo3::exceptions::{PyKeyError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::MutexExt;
use pyo3::types::{PyIterator, PyList, PyTuple, PyType};
use pyo3::{PyTraverseError, PyVisit};

use crate::key::{parse, with_length, write};
use crate::state::{Route, State, full};
use crate::{diff, load, pickle};

/// Prefixes of IPv4 and IPv6 with values of any type, for exact and longest matches.
///
/// A prefix is a str ("192.0.2.0/24", "2001:db8::1"), an int (below 2**32 an address of IPv4, else of IPv6), bytes (4 or
/// 16, in network order), an object of ipaddress, or a pair of an address and a length. Bits beyond the length are
/// cleared. A str that is none raises ValueError, another type TypeError.
///
/// As in pytricia, table[prefix], get and `in` find the longest prefix that covers the argument, has_key, del and delete
/// exactly this one. maxbits and family are accepted for its sake; a table always has both families. With raw_output,
/// prefixes are returned as (bytes, length).
#[pyclass(frozen, mapping, subclass, weakref, module = "fingerpost")]
pub(crate) struct Table {
    state: Mutex<State>,
}

impl Table {
    /// Locks the state. No Python code may run, and no Python object may be created, until it is unlocked: both
    /// may run a finalizer, which may use the table.
    pub(crate) fn lock(&self, py: Python<'_>) -> MutexGuard<'_, State> {
        self.state.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner)
    }

    /// The same for a thread that is detached from the interpreter.
    pub(crate) fn lock_detached(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the state for a change, which a frozen table refuses.
    fn lock_to_change(&self, py: Python<'_>) -> PyResult<MutexGuard<'_, State>> {
        let state = self.lock(py);
        if state.is_frozen {
            drop(state);
            return Err(PyValueError::new_err("the table is frozen: thaw() it before changes"));
        }
        Ok(state)
    }

    fn put(&self, prefix: AnyPrefix, value: Bound<'_, PyAny>) -> PyResult<()> {
        let py = value.py();
        let mut state = self.lock_to_change(py)?;
        let hop = state.values.acquire(value.unbind());
        let released = hop.map(|hop| state.announce(prefix, hop));
        drop(state);
        released.map(drop).map_err(full)
    }

    /// Removes a route and returns its value.
    fn take(&self, py: Python<'_>, prefix: AnyPrefix) -> PyResult<Option<Py<PyAny>>> {
        let mut state = self.lock_to_change(py)?;
        let hop = state.withdraw(prefix);
        let value = hop.and_then(|hop| state.values.get(py, hop));
        let released = state.values.give_up(hop);
        drop(state);
        drop(released);
        Ok(value)
    }

    /// Returns an error unless the table has exactly this prefix.
    fn require(&self, py: Python<'_>, prefix: AnyPrefix) -> PyResult<()> {
        let found = self.lock(py).exact(prefix);
        found.map(|_| ()).ok_or_else(|| missing(prefix))
    }

    fn find(&self, prefix: &Bound<'_, PyAny>) -> PyResult<Option<Py<PyAny>>> {
        let (py, prefix) = (prefix.py(), parse(prefix)?);
        let state = self.lock(py);
        Ok(state.values.get(py, state.longest(prefix)))
    }

    fn find_exact(&self, py: Python<'_>, prefix: AnyPrefix) -> Option<Py<PyAny>> {
        let state = self.lock(py);
        state.exact(prefix).and_then(|hop| state.values.get(py, hop))
    }

    fn write<'py>(&self, py: Python<'py>, prefix: AnyPrefix) -> PyResult<Bound<'py, PyAny>> {
        let raw_output = self.lock(py).raw_output;
        write(py, prefix, raw_output)
    }

    fn prefixes<'py>(&self, py: Python<'py>, routes: &[Route]) -> PyResult<Bound<'py, PyList>> {
        let raw_output = self.lock(py).raw_output;
        let prefixes = routes.iter().map(|(prefix, _)| write(py, *prefix, raw_output));
        PyList::new(py, prefixes.collect::<PyResult<Vec<_>>>()?)
    }

    fn pairs<'py>(&self, py: Python<'py>, routes: Vec<Route>) -> PyResult<Bound<'py, PyList>> {
        let raw_output = self.lock(py).raw_output;
        let pairs =
            routes.into_iter().map(|(prefix, value)| Ok((write(py, prefix, raw_output)?, value)));
        PyList::new(py, pairs.collect::<PyResult<Vec<_>>>()?)
    }
}

impl From<State> for Table {
    fn from(state: State) -> Self {
        Self { state: Mutex::new(state) }
    }
}

fn missing(prefix: AnyPrefix) -> PyErr {
    PyKeyError::new_err(format!("{prefix} is not in the table"))
}

#[pymethods]
impl Table {
    #[new]
    #[pyo3(signature = (maxbits=128, family=None, raw_output=false))]
    fn new(maxbits: u32, family: Option<i64>, raw_output: bool) -> PyResult<Self> {
        // Arguments of pytricia: a table here has both families.
        let _ = family;
        if !(1..=128).contains(&maxbits) {
            return Err(PyValueError::new_err(format!("maxbits is {maxbits}: expected 1 to 128")));
        }
        State::new(raw_output).map(Self::from).map_err(full)
    }

    /// Reads a table from a file: an MRT dump or stream of updates, lines of "PREFIX VALUE" (RouteViews origins, pyasn's
    /// files, lists of prefixes), `bgpdump -m`, `ip -j route`, a Click configuration, or a MaxMind database; gzip, bzip2, or
    /// neither.
    ///
    /// A value is made of each label once, by `value` (such as `int`); by default the label is the value, as text, and in a
    /// MaxMind database the record. With `partial`, the routes before damage are returned; else damage is an error.
    ///
    /// Raises OSError, or ValueError with the place of the damage.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "an argument from Python is converted to a value"
    )]
    #[staticmethod]
    #[pyo3(signature = (path, *, value=None, partial=false))]
    fn load(
        py: Python<'_>,
        path: std::path::PathBuf,
        value: Option<&Bound<'_, PyAny>>,
        partial: bool,
    ) -> PyResult<Self> {
        load::load(py, &path, value, partial).map(Self::from)
    }

    /// Table[int] is a type for checkers of types.
    #[classmethod]
    fn __class_getitem__<'py>(
        class: &Bound<'py, PyType>,
        item: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        class.py().import("types")?.call_method1("GenericAlias", (class, item))
    }

    fn __len__(&self, py: Python<'_>) -> usize {
        self.lock(py).len()
    }

    fn __contains__(&self, prefix: &Bound<'_, PyAny>) -> PyResult<bool> {
        let parsed = parse(prefix)?;
        Ok(self.lock(prefix.py()).longest(parsed).is_some())
    }

    fn __getitem__(&self, prefix: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        self.find(prefix)?
            .ok_or_else(|| PyKeyError::new_err(format!("no prefix of the table covers {prefix}")))
    }

    fn __setitem__(&self, prefix: &Bound<'_, PyAny>, value: Bound<'_, PyAny>) -> PyResult<()> {
        self.put(parse(prefix)?, value)
    }

    fn __delitem__(&self, prefix: &Bound<'_, PyAny>) -> PyResult<()> {
        self.delete(prefix)
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyIterator>> {
        self.keys(py)?.try_iter()
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        let state = self.lock(py);
        let (v4, v6) = (state.v4.rib().len(), state.v6.rib().len());
        format!("<fingerpost.Table of {v4} IPv4 and {v6} IPv6 prefixes>")
    }

    fn __sizeof__(&self, py: Python<'_>) -> usize {
        size_of::<Self>() + self.lock(py).footprint()
    }

    /// insert(prefix, value), insert(address, length, value): adds a prefix or changes its value.
    #[pyo3(signature = (prefix, /, *arguments))]
    fn insert(&self, prefix: &Bound<'_, PyAny>, arguments: &Bound<'_, PyTuple>) -> PyResult<()> {
        if let Ok((value,)) = arguments.extract::<(Bound<'_, PyAny>,)>() {
            return self.put(parse(prefix)?, value);
        }
        let Ok((length, value)) = arguments.extract::<(u32, Bound<'_, PyAny>)>() else {
            let message = "expected insert(prefix, value) or insert(address, length, value)";
            return Err(PyTypeError::new_err(message));
        };
        self.put(with_length(prefix, length)?, value)
    }

    /// Removes exactly this prefix; KeyError if the table does not have it.
    fn delete(&self, prefix: &Bound<'_, PyAny>) -> PyResult<()> {
        let parsed = parse(prefix)?;
        self.take(prefix.py(), parsed)?.map(drop).ok_or_else(|| missing(parsed))
    }

    /// pop(prefix[, default]): removes exactly this prefix and returns its value.
    #[pyo3(signature = (prefix, *default))]
    fn pop<'py>(
        &self,
        prefix: &Bound<'py, PyAny>,
        default: &Bound<'py, PyTuple>,
    ) -> PyResult<Py<PyAny>> {
        let parsed = parse(prefix)?;
        if default.len() > 1 {
            return Err(PyTypeError::new_err("expected pop(prefix) or pop(prefix, default)"));
        }
        if let Some(value) = self.take(prefix.py(), parsed)? {
            return Ok(value);
        }
        default.get_item(0).map(Bound::unbind).map_err(|_| missing(parsed))
    }

    /// Returns the value of the longest prefix that covers an address or prefix, or `default`.
    #[pyo3(signature = (prefix, default=None))]
    fn get(
        &self,
        prefix: &Bound<'_, PyAny>,
        default: Option<Py<PyAny>>,
    ) -> PyResult<Option<Py<PyAny>>> {
        Ok(self.find(prefix)?.or(default))
    }

    /// Returns the longest prefix that covers an address or prefix, or None.
    fn get_key<'py>(&self, prefix: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let (py, prefix) = (prefix.py(), parse(prefix)?);
        let route = self.lock(py).longest_route(py, prefix);
        route.map(|(prefix, _)| self.write(py, prefix)).transpose()
    }

    /// Returns whether the table has exactly this prefix.
    fn has_key(&self, prefix: &Bound<'_, PyAny>) -> PyResult<bool> {
        let parsed = parse(prefix)?;
        Ok(self.lock(prefix.py()).exact(parsed).is_some())
    }

    /// Returns the value of exactly this prefix, or `default`.
    #[pyo3(signature = (prefix, default=None))]
    fn exact(
        &self,
        prefix: &Bound<'_, PyAny>,
        default: Option<Py<PyAny>>,
    ) -> PyResult<Option<Py<PyAny>>> {
        let parsed = parse(prefix)?;
        Ok(self.find_exact(prefix.py(), parsed).or(default))
    }

    /// Returns the longest prefix that covers an address or prefix, and its value; or None.
    fn longest<'py>(&self, prefix: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let (py, prefix) = (prefix.py(), parse(prefix)?);
        let route = self.lock(py).longest_route(py, prefix);
        route.map(|(prefix, value)| (self.write(py, prefix)?, value).into_pyobject(py)).transpose()
    }

    /// Returns the longest prefix of the table that covers this one and is shorter, or None; KeyError if the table does
    /// not have the prefix.
    fn parent<'py>(&self, prefix: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let (py, prefix) = (prefix.py(), parse(prefix)?);
        self.require(py, prefix)?;
        let routes = self.lock(py).covering(py, prefix);
        let parent = routes.iter().rev().find(|(route, _)| *route != prefix);
        parent.map(|(prefix, _)| self.write(py, *prefix)).transpose()
    }

    /// Returns all prefixes of the table that this one covers, without itself; KeyError if the table does not have it.
    fn children<'py>(&self, prefix: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyList>> {
        let (py, prefix) = (prefix.py(), parse(prefix)?);
        self.require(py, prefix)?;
        let mut routes = self.lock(py).covered(py, prefix);
        routes.retain(|(route, _)| *route != prefix);
        self.prefixes(py, &routes)
    }

    /// Returns the prefixes that cover an address or prefix, itself included, and their values; the shortest first.
    fn covering<'py>(&self, prefix: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyList>> {
        let (py, prefix) = (prefix.py(), parse(prefix)?);
        let routes = self.lock(py).covering(py, prefix);
        self.pairs(py, routes)
    }

    /// Returns the prefixes that a prefix covers, itself included, and their values, in order.
    fn covered<'py>(&self, prefix: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyList>> {
        let (py, prefix) = (prefix.py(), parse(prefix)?);
        let routes = self.lock(py).covered(py, prefix);
        self.pairs(py, routes)
    }

    /// Returns all prefixes in order: IPv4 first, by address, the shorter one first.
    fn keys<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let routes = self.lock(py).routes(py);
        self.prefixes(py, &routes)
    }

    /// Returns the values of all prefixes, in the order of the prefixes.
    fn values<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let routes = self.lock(py).routes(py);
        PyList::new(py, routes.into_iter().map(|(_, value)| value))
    }

    /// Returns all prefixes with their values, in order.
    fn items<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let routes = self.lock(py).routes(py);
        self.pairs(py, routes)
    }

    /// Returns the value of exactly this prefix; adds it with `default` if the table does not have it.
    #[pyo3(signature = (prefix, default=None))]
    fn setdefault<'py>(
        &self,
        prefix: &Bound<'py, PyAny>,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (py, parsed) = (prefix.py(), parse(prefix)?);
        if let Some(value) = self.find_exact(py, parsed) {
            return Ok(value.into_bound(py));
        }
        let value = default.unwrap_or_else(|| py.None().into_bound(py));
        self.put(parsed, value.clone())?;
        Ok(value)
    }

    /// Adds the prefixes of a mapping, of another table, or of pairs; all of them, or none if one is wrong.
    fn update(&self, other: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = other.py();
        let pairs = match other.getattr_opt(pyo3::intern!(py, "items"))? {
            Some(items) => items.call0()?,
            None => other.clone(),
        };
        let mut routes = Vec::new();
        for pair in pairs.try_iter()? {
            let (prefix, value): (Bound<'_, PyAny>, Py<PyAny>) = pair?.extract()?;
            routes.push((parse(&prefix)?, value));
        }
        let mut released = Vec::new();
        let mut state = self.lock_to_change(py)?;
        let result = routes.into_iter().try_for_each(|(prefix, value)| {
            let hop = state.values.acquire(value)?;
            released.push(state.announce(prefix, hop));
            Ok(())
        });
        drop(state);
        drop(released);
        result.map_err(full)
    }

    /// Removes all prefixes.
    fn clear(&self, py: Python<'_>) -> PyResult<()> {
        let released = self.lock_to_change(py)?.clear();
        released.map(drop).map_err(full)
    }

    /// Returns a copy of the table, which shares the values.
    fn copy(&self, py: Python<'_>) -> PyResult<Self> {
        let state = self.lock(py).copy(py);
        state.map(Self::from).map_err(full)
    }

    fn __copy__(&self, py: Python<'_>) -> PyResult<Self> {
        self.copy(py)
    }

    /// Returns what differs in another table, in order: (prefix, value here, value there), None for a prefix that is
    /// missing. Values are compared by ==.
    fn diff<'py>(&self, py: Python<'py>, other: &Self) -> PyResult<Bound<'py, PyList>> {
        // One after the other: both may be one table.
        let former = self.lock(py).routes(py);
        let later = other.lock(py).routes(py);
        let changes = diff::changes(py, former, later)?;
        let changes = changes
            .into_iter()
            .map(|(prefix, former, later)| Ok((self.write(py, prefix)?, former, later)));
        PyList::new(py, changes.collect::<PyResult<Vec<_>>>()?)
    }

    /// Makes changes an error, until thaw(); and commits.
    fn freeze(&self, py: Python<'_>) -> PyResult<()> {
        self.publish(py)?;
        self.lock(py).is_frozen = true;
        Ok(())
    }

    /// Permits changes again.
    fn thaw(&self, py: Python<'_>) {
        self.lock(py).is_frozen = false;
    }

    /// Builds the changes since the last commit into the table for fast lookups. Bulk lookups do so by themselves;
    /// single ones search the routes until then, which takes longer.
    fn commit(&self, py: Python<'_>) -> PyResult<()> {
        self.publish(py)
    }

    /// Looks up addresses in bulk, and returns the number of each one's value as a NumPy array; 0 is no route.
    /// values_by_number() has the values.
    ///
    /// Addresses are a NumPy array: uint32 for IPv4, of any byte order; or uint8 of shape (n, 4) or (n, 16), in network order.
    /// Or any iterable of single ones (str, int, bytes, ipaddress), in which families may mix.
    ///
    /// The interpreter is released during the lookups; other threads may change the table, which the next lookup sees.
    fn lookup_many<'py>(
        &self,
        addresses: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyArray1<u32>>> {
        let py = addresses.py();
        py.import("numpy")?;
        let hops = self.look_up(addresses, |hops, _| hops)?;
        // Numbers and hops have one layout: the vector is converted in place.
        let numbers: Vec<u32> = hops.into_iter().map(|hop| hop.0).collect();
        Ok(numbers.into_pyarray(py))
    }

    /// Looks up addresses in bulk, as lookup_many, and returns the list of their values; None is no route.
    fn lookup_values<'py>(&self, addresses: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyList>> {
        let py = addresses.py();
        let values = self.look_up(addresses, |hops, values| {
            hops.into_iter().map(|hop| values.get(py, hop)).collect::<Vec<_>>()
        })?;
        PyList::new(py, values)
    }

    /// Returns the list of values by the numbers that lookup_many returns. A value keeps its number as long as a prefix
    /// has it.
    fn values_by_number<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let values = self.lock(py).values.by_number(py);
        PyList::new(py, values)
    }

    fn __getstate__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let stored = pickle::store(py, &self.lock(py));
        stored.into_tuple(py)
    }

    fn __setstate__(&self, stored: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = stored.py();
        let mut restored = pickle::restore(stored)?;
        let mut state = self.lock(py);
        restored.values.continue_lookups(&state.values);
        std::mem::swap(&mut *state, &mut restored);
        drop(state);
        drop(restored);
        Ok(())
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        // A thread that has locked the state has references to the table, which is not collected then.
        self.state.try_lock().map_or(Ok(()), |state| state.values.traverse(&visit))
    }

    fn __clear__(&self) {
        let released = self.lock_detached().values.clear();
        drop(released);
    }
}
