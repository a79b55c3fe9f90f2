//! Streams of updates: the messages of peers, in time.
//!
//! [`updates`] reads the whole stream before it returns, so that a damaged file changes nothing.
//! The events are as the peers sent them. [`UpdateStream::replay`] runs them through the best path
//! rule and returns only the changes that a forwarding table would see.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use fib::Addr;

use crate::best::{BestPath, Change};
use crate::collector::{RouteCollector, StreamMode};
use crate::error::Error;
use crate::event::{Event, EventKind};
use crate::label::Labels;
use crate::load::{conclude, open, read_ranked};
use crate::options::Options;
use crate::routing_table::Report;

/// A change to the table of one or the other family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Update {
    /// To the IPv4 table.
    V4(Change<u32>),
    /// To the IPv6 table.
    V6(Change<u128>),
}

/// A stream of updates.
#[derive(Clone, Debug, Default)]
pub struct UpdateStream {
    /// The events, in the order of the file.
    pub events: Vec<Event>,
    /// The texts of the labels.
    pub labels: Labels,
    /// The report on reading it; `v4` and `v6` count the prefixes announced or withdrawn.
    pub report: Report,
}

impl UpdateStream {
    /// Runs the events through the best path rule, from an empty table, and calls `each` with each
    /// change to the table and its time, in order.
    pub fn replay(&self, mut each: impl FnMut(u64, Update)) {
        let mut v4 = BestPath::new();
        let mut v6 = BestPath::new();
        for event in &self.events {
            let time = event.time;
            match event.kind {
                EventKind::V4(change) => {
                    if let Some(change) = apply(&mut v4, event, change) {
                        each(time, Update::V4(change));
                    }
                }
                EventKind::V6(change) => {
                    if let Some(change) = apply(&mut v6, event, change) {
                        each(time, Update::V6(change));
                    }
                }
                EventKind::Up => {}
                EventKind::Down => {
                    v4.session_down(event.peer, |change| each(time, Update::V4(change)));
                    v6.session_down(event.peer, |change| each(time, Update::V6(change)));
                }
            }
        }
    }
}

fn apply<A: Addr>(best: &mut BestPath<A>, event: &Event, change: Change<A>) -> Option<Change<A>> {
    match change {
        Change::Announce { prefix, label } => {
            best.announce(prefix, event.peer, event.path, event.rank, label)
        }
        Change::Withdraw { prefix } => best.withdraw(prefix, event.peer, event.path),
    }
}

/// Reads a stream of updates from a file: MRT `BGP4MP` or `BGP4MP_ET`, the text
/// form, or the `BGP4MP` lines of `bgpdump -m`.
///
/// # Errors
///
/// As [`load`](crate::load); [`Error::Kind`] if the file is a table.
pub fn updates(path: impl AsRef<Path>, options: &Options) -> Result<UpdateStream, Error> {
    let path = path.as_ref();
    let file = File::open(path).map_err(|source| Error::Open { path: path.into(), source })?;
    read_updates(file, path, options)
}

/// Reads a stream of updates from any reader; errors call it `name`.
///
/// # Errors
///
/// As [`updates`].
pub fn read_updates(
    reader: impl Read,
    name: &Path,
    options: &Options,
) -> Result<UpdateStream, Error> {
    let (mut source, format) = open(reader, name, options)?;
    let table = || Error::Kind {
        path: name.into(),
        what: format!(
            "this is a table ({format}), where a stream of updates is wanted: \
             load it as a table, or give an MRT BGP4MP file or lines of \
             `UNIXTIME a|w PREFIX NEXTHOP`"
        ),
    };
    let mut collector = RouteCollector::new(StreamMode::Collect(Vec::new()), options);
    let Some(fault) = read_ranked(&mut source, format, &mut collector) else {
        return Err(table());
    };
    conclude(&mut collector.report, &source, format, fault, name, options)?;
    let (events, labels, mut report) = collector.into_events().ok_or_else(table)?;
    report.v4 = distinct(events.iter().filter_map(|event| match event.kind {
        EventKind::V4(change) => Some(change),
        _ => None,
    }));
    report.v6 = distinct(events.iter().filter_map(|event| match event.kind {
        EventKind::V6(change) => Some(change),
        _ => None,
    }));
    Ok(UpdateStream { events, labels, report })
}

fn distinct<A: Addr>(changes: impl Iterator<Item = Change<A>>) -> usize {
    let mut prefixes: Vec<_> = changes
        .map(|change| match change {
            Change::Announce { prefix, .. } | Change::Withdraw { prefix } => prefix,
        })
        .collect();
    prefixes.sort_unstable();
    prefixes.dedup();
    prefixes.len()
}
