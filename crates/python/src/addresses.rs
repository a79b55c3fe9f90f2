//! Addresses in bulk as Python has them: NumPy arrays, and anything that iterates over single ones.

use feed::AnyPrefix;
use fib::{Family, Fib, Hop};
use numpy::{
    PyArrayDescrMethods, PyReadonlyArray1, PyReadonlyArray2, PyUntypedArray, PyUntypedArrayMethods,
};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyString};

use crate::key;

/// The number of addresses that are converted at a time.
const BATCH: usize = 128;

/// The number of texts that are read at a time: their bytes fit a first-level cache.
const TEXTS: usize = 1024;

/// Addresses to be looked up.
pub(crate) enum Addresses<'py> {
    /// IPv4, as numbers.
    Numbers(PyReadonlyArray1<'py, u32>),
    /// Single objects.
    Mixed(Mixed),
    /// IPv4 in network order, rows of 4 bytes.
    Rows4(PyReadonlyArray2<'py, u8>),
    /// IPv6 in network order, rows of 16 bytes.
    Rows16(PyReadonlyArray2<'py, u8>),
}

/// Addresses of both families, and the place of each.
#[derive(Default)]
pub(crate) struct Mixed {
    v4: Vec<u32>,
    v4_places: Vec<usize>,
    v6: Vec<u128>,
    v6_places: Vec<usize>,
}

/// The same as slices, which a thread may read that is detached from the interpreter.
pub(crate) enum Slices<'a> {
    Numbers(&'a [u32]),
    Rows4(&'a [[u8; 4]]),
    Rows16(&'a [[u8; 16]]),
    Mixed(&'a Mixed),
}

impl<'py> Addresses<'py> {
    /// Reads an argument.
    pub(crate) fn extract(object: &Bound<'py, PyAny>) -> PyResult<Self> {
        if is_array(object)? {
            let array = object.cast::<PyUntypedArray>()?;
            let kind = array.dtype().kind();
            let shape = array.shape();
            match (kind, array.dtype().itemsize(), shape) {
                (b'u', 4, [_]) => {
                    return Ok(Self::Numbers(contiguous(object, "uint32")?.extract()?));
                }
                (b'u', 1, [_, 4]) => {
                    return Ok(Self::Rows4(contiguous(object, "uint8")?.extract()?));
                }
                (b'u', 1, [_, 16]) => {
                    return Ok(Self::Rows16(contiguous(object, "uint8")?.extract()?));
                }
                (b'O' | b'U' | b'T', _, [_]) => {}
                _ => {
                    return Err(PyTypeError::new_err(format!(
                        "cannot look up an array of {} and shape {shape:?}: expected uint32 of shape (n,), \
                         uint8 of shape (n, 4) or (n, 16) in network order, or an array of texts or objects; \
                         convert others by .astype('uint32'), or by .view('uint8').reshape(-1, 16)",
                        array.dtype()
                    )));
                }
            }
        }
        Self::collect(object)
    }

    /// Returns the number of addresses.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Numbers(array) => array.as_array().len(),
            Self::Rows4(array) | Self::Rows16(array) => array.as_array().nrows(),
            Self::Mixed(mixed) => mixed.len(),
        }
    }

    /// Returns the addresses as slices.
    pub(crate) fn slices(&self) -> PyResult<Slices<'_>> {
        Ok(match self {
            Self::Numbers(array) => Slices::Numbers(array.as_slice()?),
            Self::Rows4(array) => Slices::Rows4(array.as_slice()?.as_chunks().0),
            Self::Rows16(array) => Slices::Rows16(array.as_slice()?.as_chunks().0),
            Self::Mixed(mixed) => Slices::Mixed(mixed),
        })
    }

    /// Reads addresses one by one.
    fn collect(object: &Bound<'py, PyAny>) -> PyResult<Self> {
        if object.is_instance_of::<PyString>() || object.is_instance_of::<PyBytes>() {
            return Err(PyTypeError::new_err("expected a sequence of addresses, not a single one"));
        }
        let items = list(object)?;
        if let Some(mixed) = Mixed::from_texts(&items)? {
            return Ok(Self::Mixed(mixed));
        }
        let mut mixed = Mixed::default();
        for (place, address) in items.try_iter()?.enumerate() {
            let address = address?;
            let prefix = key::parse(&address).map_err(|error| at(place, &address, &error))?;
            if !mixed.push(place, prefix) {
                let message = format!("item {place}: {prefix} is a prefix, not an address");
                return Err(PyValueError::new_err(message));
            }
        }
        Ok(Self::Mixed(mixed))
    }
}

impl Mixed {
    /// Reads a list of texts, many at a time, because calls of Python take longer than the rest. Returns `None` if an
    /// item is no text or no address.
    fn from_texts(items: &Bound<'_, PyList>) -> PyResult<Option<Self>> {
        let py = items.py();
        let count = items.len();
        let mut mixed = Self {
            v4: Vec::with_capacity(count),
            v4_places: Vec::with_capacity(count),
            ..Self::default()
        };
        for begin in (0..count).step_by(TEXTS) {
            let end = count.min(begin + TEXTS);
            let part = items.get_slice(begin, end);
            let Ok(joined) = intern!(py, "\n").call_method1(intern!(py, "join"), (part,)) else {
                return Ok(None);
            };
            let Ok(bytes) = joined.cast::<PyString>()?.encode_utf8() else { return Ok(None) };
            let texts = bytes.as_bytes().split(|&byte| byte == b'\n');
            for (place, text) in (begin..).zip(texts) {
                let address = feed::parse_prefix(text, true).ok();
                if !address.is_some_and(|address| mixed.push(place, address)) {
                    return Ok(None);
                }
            }
            // A text with a line feed would be two items.
            if mixed.len() != end {
                return Ok(None);
            }
        }
        Ok(Some(mixed))
    }

    /// Adds an address; returns `false` for a prefix of several.
    fn push(&mut self, place: usize, address: AnyPrefix) -> bool {
        match address {
            AnyPrefix::V4(prefix) if prefix.len() == u32::BITS => {
                self.v4.push(prefix.addr());
                self.v4_places.push(place);
            }
            AnyPrefix::V6(prefix) if prefix.len() == u128::BITS => {
                self.v6.push(prefix.addr());
                self.v6_places.push(place);
            }
            _ => return false,
        }
        true
    }

    fn len(&self) -> usize {
        self.v4.len() + self.v6.len()
    }
}

impl Slices<'_> {
    /// Looks up all addresses, each in the table of its family; `hops` are as many.
    pub(crate) fn look_up(&self, fib4: &Fib<u32>, fib6: &Fib<u128>, hops: &mut [Hop]) {
        match self {
            Self::Numbers(addresses) => fib4.lookup_batch(addresses, hops),
            Self::Rows4(rows) => convert(fib4, rows, hops, |row| u32::from_be_bytes(*row)),
            Self::Rows16(rows) => convert(fib6, rows, hops, |row| u128::from_be_bytes(*row)),
            Self::Mixed(mixed) => {
                scatter(fib4, &mixed.v4, &mixed.v4_places, hops);
                scatter(fib6, &mixed.v6, &mixed.v6_places, hops);
            }
        }
    }
}

/// Looks up addresses that are converted piece by piece.
fn convert<T, A: Family>(fib: &Fib<A>, rows: &[T], hops: &mut [Hop], read: impl Fn(&T) -> A) {
    let mut batch = [A::MIN; BATCH];
    for (rows, hops) in rows.chunks(BATCH).zip(hops.chunks_mut(BATCH)) {
        let batch = &mut batch[..rows.len()];
        for (address, row) in batch.iter_mut().zip(rows) {
            *address = read(row);
        }
        fib.lookup_batch(batch, hops);
    }
}

/// Looks up addresses whose results have places of their own.
fn scatter<A: Family>(fib: &Fib<A>, addresses: &[A], places: &[usize], hops: &mut [Hop]) {
    let mut batch = [Hop::NONE; BATCH];
    for (addresses, places) in addresses.chunks(BATCH).zip(places.chunks(BATCH)) {
        let batch = &mut batch[..addresses.len()];
        fib.lookup_batch(addresses, batch);
        for (&place, &hop) in places.iter().zip(&*batch) {
            hops[place] = hop;
        }
    }
}

/// Returns whether an object is an array of NumPy, which may not be installed.
fn is_array(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    let module = object.get_type().module()?;
    Ok(module == "numpy" && object.hasattr("__array_interface__")? && object.hasattr("dtype")?)
}

/// Returns the items of an array as Python's own objects, and those of another iterable as they are.
fn list<'py>(object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyList>> {
    if let Ok(list) = object.cast_exact::<PyList>() {
        return Ok(list.clone());
    }
    if is_array(object)? {
        return Ok(object.call_method0(intern!(object.py(), "tolist"))?.cast_into()?);
    }
    let list = PyList::empty(object.py());
    list.call_method1(intern!(object.py(), "extend"), (object,))?;
    Ok(list)
}

/// Returns an array in the machine's byte order whose items are adjacent: itself if it is one.
fn contiguous<'py>(array: &Bound<'py, PyAny>, dtype: &str) -> PyResult<Bound<'py, PyAny>> {
    array.py().import("numpy")?.call_method1("ascontiguousarray", (array, dtype))
}

/// Adds the place of an address to an error about it.
fn at(place: usize, address: &Bound<'_, PyAny>, error: &PyErr) -> PyErr {
    let py = address.py();
    let message = format!("item {place}: {}", error.value(py));
    if error.is_instance_of::<PyTypeError>(py) {
        PyTypeError::new_err(message)
    } else {
        PyValueError::new_err(message)
    }
}
