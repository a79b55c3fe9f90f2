//! A table as it was loaded, and the report that goes with it.
//!
//! [`load`] opens a file, [`read`] takes anything that can be read (a pipe, a
//! slice). Both families come sorted by address, then length, each prefix once:
//! what `Rib::from_sorted` and the sweep want.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

use fib::{Addr, Prefix};

use crate::error::Fault;
use crate::gather::Gather;
use crate::intake::{Intake, Sink};
use crate::source::Source;
use crate::{Compression, Error, Format, Label, Labels, Options};
use crate::{mrt, text};

/// A routing table of both families.
#[derive(Clone, Debug, Default)]
pub struct Loaded {
    /// The IPv4 routes, sorted, each prefix once.
    pub v4: Vec<(Prefix<u32>, Label)>,
    /// The IPv6 routes, sorted, each prefix once.
    pub v6: Vec<(Prefix<u128>, Label)>,
    /// What the labels stand for.
    pub labels: Labels,
    /// What was found on the way.
    pub report: Report,
}

/// What a file was and what was found in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The format, `None` for a table that was not read but generated.
    pub format: Option<Format>,
    /// How the file was packed.
    pub compression: Compression,
    /// The size of the unpacked content, in bytes.
    pub bytes: u64,
    /// The lines or records read (for JSON, the objects).
    pub records: u64,
    /// The routes met: lines of a table, entries of a dump.
    pub entries: u64,
    /// The announcements met in a stream of updates.
    pub announcements: u64,
    /// The withdrawals met in a stream of updates.
    pub withdrawals: u64,
    /// The IPv4 prefixes of the table; of a stream, those it touched.
    pub v4: usize,
    /// The IPv6 prefixes of the table; of a stream, those it touched.
    pub v6: usize,
    /// The entries that lost against another of the same prefix.
    pub duplicates: u64,
    /// The peers whose routes these are, 0 where the format names none.
    pub peers: usize,
    /// What a user should know: damage (see [`Options::partial`]), what was
    /// skipped and why.
    pub warnings: Vec<String>,
}

/// Loads a table from a file.
///
/// Of a dump with several peers the best path of each prefix is taken, by the
/// rule at [`Rank`](crate::Rank); of a stream of updates, what is left at its
/// end.
///
/// # Errors
///
/// See [`Error`]; nothing is returned of a file that is damaged, unless
/// [`Options::partial`] is set.
///
/// # Complexity
///
/// One pass, and a sort only if the file is not in order. Memory for the routes
/// and the distinct labels, not for the file.
pub fn load(path: impl AsRef<Path>, options: &Options) -> Result<Loaded, Error> {
    let path = path.as_ref();
    let file = File::open(path).map_err(|source| Error::Open { path: path.into(), source })?;
    read(file, path, options)
}

/// Reads a table from anything; `name` stands for it in errors.
///
/// # Errors
///
/// As [`load`].
pub fn read(reader: impl Read, name: &Path, options: &Options) -> Result<Loaded, Error> {
    let (mut source, format) = open(reader, name, options)?;
    let (mut loaded, fault) = match format {
        Format::Table => read_table(&mut source, options),
        Format::IpRoute => read_iproute(&mut source, options),
        _ => {
            let sink = Sink::Replay(Box::default());
            let mut intake = Intake::new(sink, options.truncate_host_bits);
            let fault = read_ranked(&mut source, format, &mut intake).unwrap_or(Ok(()));
            (intake.into_table(), fault)
        }
    };
    let report = &mut loaded.report;
    conclude(report, &source, format, fault, name, options)?;
    report.v4 = loaded.v4.len();
    report.v6 = loaded.v6.len();
    Ok(loaded)
}

/// Sets up the unpacking and settles the format.
pub(crate) fn open<'r>(
    reader: impl Read + 'r,
    name: &Path,
    options: &Options,
) -> Result<(Source<'r>, Format), Error> {
    let mut source =
        Source::new(reader).map_err(|source| Error::Open { path: name.into(), source })?;
    let format = match options.format {
        Some(format) => format,
        None => match text::recognize(&mut source) {
            Ok(format) => format,
            // Nothing came before the damage: that nothing is what there is.
            Err(Fault::Damage { .. }) if options.partial => Format::Table,
            Err(fault) => return Err(fault.at(name.into())),
        },
    };
    Ok((source, format))
}

/// Fills in what every format reports; the fault becomes an error or a warning.
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

/// Reads a format whose routes are ranked or timed; `None` for the others.
pub(crate) fn read_ranked(
    source: &mut Source<'_>,
    format: Format,
    intake: &mut Intake,
) -> Option<Result<(), Fault>> {
    match format {
        Format::Mrt => Some(mrt::read(source, intake)),
        Format::Bgpdump => Some(text::bgpdump::read(source, intake)),
        Format::UpdateText => Some(text::changes::read(source, intake)),
        Format::Table | Format::IpRoute => None,
    }
}

fn read_table(source: &mut Source<'_>, options: &Options) -> (Loaded, Result<(), Fault>) {
    let mut labels = Labels::new();
    let (mut v4, mut v6) = (Gather::new(), Gather::new());
    let mut entries = 0;
    let fault = text::table::read(
        source,
        options.truncate_host_bits,
        &mut labels,
        &mut v4,
        &mut v6,
        &mut entries,
    );
    (assemble(labels, v4, v6, entries), fault)
}

fn read_iproute(source: &mut Source<'_>, options: &Options) -> (Loaded, Result<(), Fault>) {
    let mut labels = Labels::new();
    let mut routes = text::iproute::Routes {
        labels: &mut labels,
        v4: Gather::new(),
        v6: Gather::new(),
        entries: 0,
        truncate: options.truncate_host_bits,
    };
    let fault = text::iproute::read(source, &mut routes);
    let text::iproute::Routes { v4, v6, entries, .. } = routes;
    (assemble(labels, v4, v6, entries), fault)
}

fn assemble<R: Copy + Ord>(
    labels: Labels,
    v4: Gather<u32, R>,
    v6: Gather<u128, R>,
    entries: u64,
) -> Loaded {
    let (v4, lost4) = v4.finish();
    let (v6, lost6) = v6.finish();
    let report =
        Report { entries, records: entries, duplicates: lost4 + lost6, ..Report::default() };
    Loaded { v4, v6, labels, report }
}

impl Loaded {
    /// Writes the table as text, `PREFIX LABEL` a line, IPv4 first; it can be
    /// loaded again. A route with the empty label is its prefix alone.
    ///
    /// # Errors
    ///
    /// What the writer says.
    pub fn write_text(&self, out: &mut impl Write) -> io::Result<()> {
        write_routes(&self.v4, &self.labels, out)?;
        write_routes(&self.v6, &self.labels, out)
    }
}

fn write_routes<A: Addr>(
    routes: &[(Prefix<A>, Label)],
    labels: &Labels,
    out: &mut impl Write,
) -> io::Result<()> {
    for &(prefix, label) in routes {
        match labels.get(label) {
            "" => writeln!(out, "{prefix}")?,
            label => writeln!(out, "{prefix} {label}")?,
        }
    }
    Ok(())
}
