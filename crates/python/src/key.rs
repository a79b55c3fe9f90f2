//! Prefixes as Python has them: text, numbers, bytes, objects of `ipaddress`, and the way back.

use std::fmt::Display;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use feed::AnyPrefix;
use fib::{Addr, Prefix};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyInt, PyString, PyTuple};

/// Returns the address, or the block of addresses, that an object stands for. Bits beyond the length of a prefix
/// are cleared.
pub(crate) fn parse(object: &Bound<'_, PyAny>) -> PyResult<AnyPrefix> {
    if let Ok(text) = object.cast::<PyString>() {
        let text = text.to_cow()?;
        return feed::parse_prefix(text.as_bytes(), true)
            .map_err(|_| invalid(format_args!("{text:?}")));
    }
    if let Ok(bytes) = object.cast::<PyBytes>() {
        return from_bytes(bytes.as_bytes()).map(host).ok_or_else(|| invalid(object));
    }
    if object.is_instance_of::<PyInt>() {
        return from_number(object).map(host).ok_or_else(|| invalid(object));
    }
    if let Ok(pair) = object.cast::<PyTuple>()
        && let Ok((address, length)) = pair.extract()
    {
        return with_length(&address, length);
    }
    // Integers of NumPy.
    if let Ok(number) = object.call_method0(pyo3::intern!(object.py(), "__index__")) {
        return from_number(&number).map(host).ok_or_else(|| invalid(object));
    }
    parse_ipaddress(object)?.ok_or_else(|| {
        let found = object.get_type().name().map_or_else(|_| String::new(), |name| name.to_string());
        PyTypeError::new_err(format!(
            "{found} is no address or prefix: expected str, int, bytes, an object of ipaddress, or a pair \
             of an address and a length"
        ))
    })
}

/// Returns the prefix of this length that holds an address.
pub(crate) fn with_length(address: &Bound<'_, PyAny>, length: u32) -> PyResult<AnyPrefix> {
    let prefix = match parse(address)? {
        AnyPrefix::V4(prefix) => cut(prefix, length).map(AnyPrefix::V4),
        AnyPrefix::V6(prefix) => cut(prefix, length).map(AnyPrefix::V6),
    };
    prefix.ok_or_else(|| invalid(format_args!("({address}, {length})")))
}

/// Writes a prefix as a table returns it: as text, or as bytes in network order and a length.
pub(crate) fn write<'py>(
    py: Python<'py>,
    prefix: AnyPrefix,
    raw: bool,
) -> PyResult<Bound<'py, PyAny>> {
    if !raw {
        return Ok(PyString::new(py, &prefix.to_string()).into_any());
    }
    let (address, length) = match prefix {
        AnyPrefix::V4(prefix) => (PyBytes::new(py, &prefix.addr().to_be_bytes()), prefix.len()),
        AnyPrefix::V6(prefix) => (PyBytes::new(py, &prefix.addr().to_be_bytes()), prefix.len()),
    };
    Ok((address, length).into_pyobject(py)?.into_any())
}

fn invalid(object: impl Display) -> PyErr {
    PyValueError::new_err(format!(
        "{object} is no address or prefix: expected for example '192.0.2.0/24' or '2001:db8::1'"
    ))
}

fn cut<A: Addr>(prefix: Prefix<A>, length: u32) -> Option<Prefix<A>> {
    (length <= prefix.len()).then(|| Prefix::truncate(prefix.addr(), length))
}

fn host(address: IpAddr) -> AnyPrefix {
    match address {
        IpAddr::V4(address) => AnyPrefix::V4(Prefix::truncate(address.to_bits(), u32::BITS)),
        IpAddr::V6(address) => AnyPrefix::V6(Prefix::truncate(address.to_bits(), u128::BITS)),
    }
}

fn from_bytes(bytes: &[u8]) -> Option<IpAddr> {
    let v4 = || <[u8; 4]>::try_from(bytes).map(|bytes| Ipv4Addr::from(bytes).into()).ok();
    v4().or_else(|| <[u8; 16]>::try_from(bytes).map(|bytes| Ipv6Addr::from(bytes).into()).ok())
}

/// Numbers of 32 bits are addresses of IPv4, longer ones of IPv6.
fn from_number(number: &Bound<'_, PyAny>) -> Option<IpAddr> {
    if let Ok(number) = number.extract::<u32>() {
        return Some(Ipv4Addr::from_bits(number).into());
    }
    number.extract::<u128>().ok().map(|number| Ipv6Addr::from_bits(number).into())
}

/// Reads an address, a network or an interface of `ipaddress`, by their attributes.
fn parse_ipaddress(object: &Bound<'_, PyAny>) -> PyResult<Option<AnyPrefix>> {
    let py = object.py();
    let network = object.getattr_opt(pyo3::intern!(py, "network"))?;
    let network = network.as_ref().unwrap_or(object);
    if let Some(address) = network.getattr_opt(pyo3::intern!(py, "network_address"))? {
        let length = network.getattr(pyo3::intern!(py, "prefixlen"))?.extract()?;
        return with_length(&address, length).map(Some);
    }
    let Some(packed) = object.getattr_opt(pyo3::intern!(py, "packed"))? else { return Ok(None) };
    let Ok(packed) = packed.cast::<PyBytes>() else { return Ok(None) };
    Ok(from_bytes(packed.as_bytes()).map(host))
}
