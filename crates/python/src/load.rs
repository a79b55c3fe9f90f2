//! Tables from files: MRT, text, MaxMind databases, in gzip or bzip2.

use std::path::Path;

use feed::{Error, Format, Label, Options, RoutingTable};
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;

use crate::state::{Indexed, State, full};

/// Reads a file. `value` makes the value of each label from its text; by default the text is the value, in a
/// MaxMind database the record.
pub(crate) fn load(
    py: Python<'_>,
    path: &Path,
    value: Option<&Bound<'_, PyAny>>,
    partial: bool,
) -> PyResult<State> {
    let options = Options { partial, ..Options::default() };
    let loaded = py.detach(|| feed::load(path, &options)).map_err(|error| match &error {
        Error::Open { source, .. } => match source.raw_os_error() {
            // Python makes a FileNotFoundError and the like of the number.
            Some(number) => PyOSError::new_err((number, source.to_string(), path.to_path_buf())),
            None => PyOSError::new_err(error.to_string()),
        },
        _ => PyValueError::new_err(error.to_string()),
    })?;
    let RoutingTable { v4, v6, labels, report } = loaded;
    let json = (report.format == Some(Format::Mmdb)).then(|| py.import("json")?.getattr("loads"));
    let value = value.cloned().map_or_else(|| json.transpose(), |value| Ok(Some(value)))?;
    let mut values = Vec::with_capacity(labels.len());
    let mut places = vec![None; labels.len()];
    // Labels without a route, such as those of withdrawn ones, need no value.
    let mut place = |label: Label| -> PyResult<u32> {
        let known = &mut places[label.0 as usize];
        if known.is_none() {
            let text = labels.get(label);
            values.push(match &value {
                Some(value) => value.call1((text,))?.unbind(),
                None => text.into_pyobject(py)?.into_any().unbind(),
            });
        }
        Ok(*known.get_or_insert(values.len() as u32 - 1))
    };
    let v4: Vec<Indexed<u32>> = v4
        .into_iter()
        .map(|(prefix, label)| Ok((prefix, place(label)?)))
        .collect::<PyResult<_>>()?;
    let v6: Vec<Indexed<u128>> = v6
        .into_iter()
        .map(|(prefix, label)| Ok((prefix, place(label)?)))
        .collect::<PyResult<_>>()?;
    State::from_routes(&v4, &v6, values).map_err(full)
}
