//! Reads a table from a file or from any reader.
//!
//! ```text
//! reader ─► Source ─► recognize ─┬─ text table, pfx2as, Click, ip -j route, mmdb ─► RouteList ─┬─► RoutingTable
//!           unpack               └─ MRT, bgpdump -m, updates ─► RouteCollector ────────────────┘
//! ```
//!
//! [`load`] opens a file, [`read`] takes any reader (a pipe, a slice). The format is recognized by
//! the first 64 KiB, a MaxMind database by its end, unless [`Options::format`] names it. Damage is an error, or with
//! [`Options::partial`] a warning beside the routes that came before it.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use crate::collector::{RouteCollector, StreamMode};
use crate::error::{Error, Fault, excerpt};
use crate::options::{Format, Options};
use crate::route_list::RouteList;
use crate::routing_table::{Report, RoutingTable};
use crate::source::Source;
use crate::text::scan;
use crate::{mmdb, mrt, text};

/// Loads a table from a file.
///
/// A dump with several peers gives the best path of each prefix, by the rule at
/// [`Rank`](crate::Rank); a stream of updates gives the table at its end.
///
/// # Errors
///
/// See [`Error`]; a damaged file gives no table, unless [`Options::partial`] is set.
///
/// # Complexity
///
/// One pass, and a sort only if the file is not in order. Memory for the routes
/// and the distinct labels, not for the file.
pub fn load(path: impl AsRef<Path>, options: &Options) -> Result<RoutingTable, Error> {
    let path = path.as_ref();
    let file = File::open(path).map_err(|source| Error::Open { path: path.into(), source })?;
    read(file, path, options)
}

/// Reads a table from any reader; errors call it `name`.
///
/// # Errors
///
/// As [`load`].
pub fn read(reader: impl Read, name: &Path, options: &Options) -> Result<RoutingTable, Error> {
    let (mut source, format) = open(reader, name, options)?;
    let truncate = options.truncate_host_bits;
    let (mut loaded, fault) = match format {
        Format::Table => list(|routes| text::table::read(&mut source, truncate, routes)),
        Format::Pfx2as => list(|routes| text::pfx2as::read(&mut source, truncate, routes)),
        Format::Click => list(|routes| text::click::read(&mut source, routes)),
        Format::IpRoute => list(|routes| text::iproute::read(&mut source, truncate, routes)),
        Format::Mmdb => list(|routes| mmdb::read(&mut source, routes)),
        _ => {
            let mode = StreamMode::Replay(Box::default());
            let mut collector = RouteCollector::new(mode, options);
            let fault = read_ranked(&mut source, format, &mut collector).unwrap_or(Ok(()));
            (collector.into_table(), fault)
        }
    };
    let report = &mut loaded.report;
    conclude(report, &source, format, fault, name, options)?;
    report.v4 = loaded.v4.len();
    report.v6 = loaded.v6.len();
    Ok(loaded)
}

/// Collects the routes of a reader that delivers each of them once or in an order of preference.
fn list<P: Copy + Ord>(
    read: impl FnOnce(&mut RouteList<P>) -> Result<(), Fault>,
) -> (RoutingTable, Result<(), Fault>) {
    let mut routes = RouteList::new();
    let fault = read(&mut routes);
    (routes.into_table(), fault)
}

/// Sets up the decompression and determines the format.
pub(crate) fn open<'r>(
    reader: impl Read + 'r,
    name: &Path,
    options: &Options,
) -> Result<(Source<'r>, Format), Error> {
    let mut source =
        Source::new(reader).map_err(|source| Error::Open { path: name.into(), source })?;
    let format = match options.format {
        Some(format) => format,
        None => match recognize(&mut source) {
            Ok(format) => format,
            // No route came before the damage: the table is empty.
            Err(Fault::Damage { .. }) if options.partial => Format::Table,
            Err(fault) => return Err(fault.at(name.into())),
        },
    };
    Ok((source, format))
}

/// Completes the report; the fault becomes an error or a warning.
pub(crate) fn conclude(
    report: &mut Report,
    source: &Source<'_>,
    format: Format,
    fault: Result<(), Fault>,
    name: &Path,
    options: &Options,
) -> Result<(), Error> {
    report.format = Some(format);
    report.compression = source.compression();
    report.bytes = source.offset() + source.window().len() as u64;
    match fault {
        Ok(()) => Ok(()),
        Err(fault) if options.partial => {
            report.warnings.push(format!("{fault}; what came before it was loaded"));
            Ok(())
        }
        Err(fault) => Err(fault.at(name.into())),
    }
}

/// Reads a format with ranked or timed routes; `None` for other formats.
pub(crate) fn read_ranked(
    source: &mut Source<'_>,
    format: Format,
    collector: &mut RouteCollector,
) -> Option<Result<(), Fault>> {
    match format {
        Format::Mrt => Some(mrt::read(source, collector)),
        Format::Bgpdump => Some(text::bgpdump::read(source, collector)),
        Format::UpdateText => Some(text::changes::read(source, collector)),
        Format::Table | Format::Pfx2as | Format::Click | Format::IpRoute | Format::Mmdb => None,
    }
}

/// Recognizes the format by the beginning of the content.
fn recognize(source: &mut Source<'_>) -> Result<Format, Fault> {
    /// Comments before the first route are rarely longer.
    const HEAD: usize = 64 * 1024;
    let head = source.peek(HEAD);
    if mmdb::may_begin(head) && mmdb::is_database(source) {
        return Ok(Format::Mmdb);
    }
    let head = source.peek(HEAD);
    if mrt::begins(head) {
        return Ok(Format::Mrt);
    }
    let lines = head.split(|&b| b == b'\n').map(|line| line.trim_ascii());
    let Some(line) = lines.into_iter().find(|line| !line.is_empty() && !scan::is_comment(line))
    else {
        // Nothing but comments is a table without routes, unless the content
        // was damaged before anything could be seen.
        return match source.broken().map(str::to_owned) {
            Some(what) => Err(Fault::Damage { offset: source.offset(), record: 1, what }),
            None => Ok(Format::Table),
        };
    };
    let (first, rest) = scan::field(line);
    let (second, _) = scan::field(rest);
    if matches!(line[0], b'[' | b'{') {
        Ok(Format::IpRoute)
    } else if line.starts_with(b"TABLE_DUMP") || line.starts_with(b"BGP4MP") {
        Ok(Format::Bgpdump)
    } else if scan::number(first).is_some() && matches!(second, b"a" | b"w" | b"A" | b"W") {
        Ok(Format::UpdateText)
    } else if text::pfx2as::is_line(line) {
        Ok(Format::Pfx2as)
    } else if text::click::begins(head) {
        Ok(Format::Click)
    } else if !line.starts_with(b"//")
        && first.iter().all(|b| b.is_ascii_hexdigit() || b".:/+-".contains(b))
    {
        // The prefix may be wrong: then the reader's error names the line.
        Ok(Format::Table)
    } else {
        let text = excerpt(line);
        // Content that is damaged there may have been anything.
        Err(match source.broken().map(str::to_owned) {
            Some(what) => Fault::Damage { offset: source.offset(), record: 1, what },
            None => Fault::Unrecognized { text },
        })
    }
}
