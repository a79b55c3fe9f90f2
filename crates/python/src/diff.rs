//! The differences between the routes of two tables.

use std::cmp::Ordering;
use std::iter::Peekable;

use feed::AnyPrefix;
use pyo3::prelude::*;

use crate::state::Route;

type Value = Option<Py<PyAny>>;

/// Returns the prefixes whose values differ, in order, with the former and the later value. Values are equal if
/// they are one object, or Python's `==` says so.
pub(crate) fn changes(
    py: Python<'_>,
    former: Vec<Route>,
    later: Vec<Route>,
) -> PyResult<Vec<(AnyPrefix, Value, Value)>> {
    let mut changes = Vec::new();
    let (mut former, mut later) = (former.into_iter().peekable(), later.into_iter().peekable());
    while let Some((prefix, former, later)) = next(&mut former, &mut later) {
        let is_same = match (&former, &later) {
            (Some(former), Some(later)) => former.is(later) || former.bind(py).eq(later.bind(py))?,
            _ => false,
        };
        if !is_same {
            changes.push((prefix, former, later));
        }
    }
    Ok(changes)
}

/// Returns the next prefix of either table with the values of both.
fn next(
    former: &mut Peekable<impl Iterator<Item = Route>>,
    later: &mut Peekable<impl Iterator<Item = Route>>,
) -> Option<(AnyPrefix, Value, Value)> {
    let order = match (former.peek(), later.peek()) {
        (Some((former, _)), Some((later, _))) => former.cmp(later),
        (Some(_), None) => Ordering::Less,
        (None, _) => Ordering::Greater,
    };
    let former = if order.is_le() { former.next() } else { None };
    let later = if order.is_ge() { later.next() } else { None };
    let prefix = former.as_ref().or(later.as_ref())?.0;
    Some((prefix, former.and_then(|(_, value)| value), later.and_then(|(_, value)| value)))
}
