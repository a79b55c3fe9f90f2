//! Tables in Python's pickles.
//!
//! ```text
//!   (1, flags, routes of IPv4, routes of IPv6, [value, …])
//!   a route, in network order: address 4 or 16 bytes, length 1, place of its value 4
//! ```
//!
//! Flag 1: the table is frozen; flag 2: it returns prefixes as bytes and a length.

use fib::{Addr, Prefix};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};

use crate::state::{Indexed, State, full};

/// The version of the layout.
const VERSION: u32 = 1;
const FROZEN: u32 = 1;
const RAW_OUTPUT: u32 = 2;

/// A table in parts, before they become objects of Python.
pub(crate) struct Stored {
    flags: u32,
    v4: Vec<u8>,
    v6: Vec<u8>,
    values: Vec<Option<Py<PyAny>>>,
}

/// Copies a table into parts.
pub(crate) fn store(py: Python<'_>, state: &State) -> Stored {
    let v4 = state
        .v4
        .rib()
        .iter()
        .flat_map(|(prefix, hop)| record(prefix.addr().to_be_bytes(), prefix.len(), hop.0));
    let v6 = state
        .v6
        .rib()
        .iter()
        .flat_map(|(prefix, hop)| record(prefix.addr().to_be_bytes(), prefix.len(), hop.0));
    let flags = [(state.is_frozen, FROZEN), (state.raw_output, RAW_OUTPUT)];
    let flags = flags.into_iter().filter_map(|(is_set, flag)| is_set.then_some(flag)).sum();
    Stored { flags, v4: v4.collect(), v6: v6.collect(), values: state.values.by_number(py) }
}

impl Stored {
    /// Returns the objects of Python.
    pub(crate) fn into_tuple(self, py: Python<'_>) -> PyResult<Bound<'_, PyTuple>> {
        let (v4, v6) = (PyBytes::new(py, &self.v4), PyBytes::new(py, &self.v6));
        (VERSION, self.flags, v4, v6, PyList::new(py, self.values)?).into_pyobject(py)
    }
}

fn record<const N: usize>(address: [u8; N], length: u32, place: u32) -> impl Iterator<Item = u8> {
    address.into_iter().chain([length as u8]).chain(place.to_be_bytes())
}

/// Builds a table of what [`Stored::into_tuple`] has returned.
pub(crate) fn restore(stored: &Bound<'_, PyAny>) -> PyResult<State> {
    type Parts<'py> = (u32, u32, Bound<'py, PyBytes>, Bound<'py, PyBytes>, Vec<Py<PyAny>>);
    let version = stored.get_item(0)?.extract::<u32>()?;
    if version != VERSION {
        let message =
            format!("the pickle has version {version} of fingerpost.Table, known is {VERSION}");
        return Err(PyValueError::new_err(message));
    }
    let (_, flags, v4, v6, values): Parts<'_> = stored.extract()?;
    let v4 = routes(v4.as_bytes(), values.len(), u32::from_be_bytes);
    let v6 = routes(v6.as_bytes(), values.len(), u128::from_be_bytes);
    let (Some(v4), Some(v6)) = (v4, v6) else {
        return Err(PyValueError::new_err("the pickle of a fingerpost.Table is damaged"));
    };
    let mut state = State::from_routes(&v4, &v6, values).map_err(full)?;
    state.is_frozen = flags & FROZEN != 0;
    state.raw_output = flags & RAW_OUTPUT != 0;
    Ok(state)
}

fn routes<A: Addr, const N: usize>(
    bytes: &[u8],
    values: usize,
    address: fn([u8; N]) -> A,
) -> Option<Vec<Indexed<A>>> {
    // The length and the place follow the address.
    let size = N + 5;
    if !bytes.len().is_multiple_of(size) {
        return None;
    }
    let read = |record: &[u8]| {
        let (bytes, rest) = record.split_at(N);
        let prefix = Prefix::new(address(bytes.try_into().ok()?), rest[0].into()).ok()?;
        let place = u32::from_be_bytes(rest[1..].try_into().ok()?);
        ((place as usize) < values).then_some((prefix, place))
    };
    bytes.chunks_exact(size).map(read).collect()
}
