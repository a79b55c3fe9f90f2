//! Routes from files: MRT, text, MaxMind databases, in gzip or bzip2.

use std::ffi::c_char;
use std::mem::MaybeUninit;

use feed::{Error, Options};
use fib::{HopTable, Prefix as FibPrefix};

use crate::argument::{path, required};
use crate::labels::Labels;
use crate::status::{Failure, Status, guard};
use crate::table::{Side, Table, full};

/// Adds the routes of a file, from the next commit on: an MRT dump or stream of updates (RFC 6396), lines of
/// "PREFIX LABEL", `bgpdump -m`, `ip -j route`, a Click configuration, or a MaxMind database; gzip, bzip2, or
/// neither. The table's labels must be numbers.
/// Those of the file are 1 to fp_labels_count, by their number of routes, the most frequent one first; their
/// texts are stored in `labels`, unless that is NULL, to be freed by fp_labels_free. With `partial` the routes
/// before damage are added, else none of a damaged file.
///
/// # Safety
///
/// `path` ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fp_table_load(
    table: Option<&mut Table>,
    path: *const c_char,
    partial: bool,
    labels: Option<&mut MaybeUninit<*mut Labels>>,
) -> Status {
    guard(|| {
        let table = required(table, "table")?;
        // SAFETY: the caller's promise.
        let path = unsafe { self::path(path) }?;
        if table.pointers.is_some() {
            return Err(Failure::argument(
                "the labels of this table are pointers, those of a file numbers",
            ));
        }
        let options = Options { partial, ..Options::default() };
        let loaded = feed::load(path, &options).map_err(|error| {
            let status = match &error {
                Error::Open { .. } => Status::System,
                _ => Status::Format,
            };
            Failure::new(status, error)
        })?;
        let all = || {
            let v4 = loaded.v4.iter().map(|&(_, label)| label);
            v4.chain(loaded.v6.iter().map(|&(_, label)| label))
        };
        let ranked = HopTable::ranked(all().map(|label| (label, 1))).map_err(full)?;
        let texts = Labels::new(ranked.iter().map(|(_, &label, _)| loaded.labels.get(label)));
        let hop = |label| ranked.find(&label).unwrap_or_default();
        announce(table, loaded.v4.iter().map(|&(prefix, label)| (prefix, hop(label))));
        announce(table, loaded.v6.iter().map(|&(prefix, label)| (prefix, hop(label))));
        if let Some(place) = labels {
            place.write(Box::into_raw(Box::new(texts)));
        }
        Ok(Status::Ok)
    })
}

fn announce<A: Side>(table: &mut Table, routes: impl Iterator<Item = (FibPrefix<A>, fib::Hop)>) {
    let updater = A::of_mut(table);
    for (prefix, hop) in routes {
        updater.announce(prefix, hop);
    }
}
