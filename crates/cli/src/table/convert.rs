//! `fingerpost table convert FILE... --to FORMAT`.
//!
//! ```text
//!   files ─► Rib ─► RoutingTable ─► label: next hop, origin or both ─► feed::write ─► file or standard output
//! ```
//!
//! Dumps are read with the origin of each route if the format has a place for origins, or if `--origin`
//! replaces the next hops by them. A file is replaced as a whole: an error leaves the old one.

use std::io::{IsTerminal, Write};
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail};
use feed::{Format, Labels, Options, RoutingTable, WriteOptions};
use output::progress;
use serde::Serialize;

use crate::tables::Tables;

/// The arguments of `table convert`.
#[derive(clap::Args)]
pub(crate) struct ConvertArgs {
    /// Files with routes, `-` for standard input; all files form one table
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Format to write
    #[arg(long, value_name = "FORMAT")]
    to: Target,
    /// Write to this file instead of standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Write a summary of the file as JSON
    #[arg(short, long, requires = "output")]
    json: bool,
    /// Label routes of MRT and `bgpdump -m` with the AS that originated them instead of the next hop
    #[arg(long)]
    origin: bool,
    /// Make each record of a MaxMind database a map of this key to the label, such as
    /// autonomous_system_number [default: the label itself]
    #[arg(long, value_name = "KEY")]
    record_key: Option<String>,
    /// Type in the metadata of a MaxMind database
    #[arg(long, value_name = "TYPE", default_value = "fingerpost")]
    database_type: String,
    /// Time of dumps, updates and databases, in seconds since 1970
    /// [default: the environment's SOURCE_DATE_EPOCH, or the present]
    #[arg(long, value_name = "SECONDS")]
    time: Option<u64>,
    /// Use the routes before a damaged line of a file [default: refuse the file]
    #[arg(long)]
    partial: bool,
    /// Use only IPv4 routes
    #[arg(short = '4', conflicts_with = "only_v6")]
    only_v4: bool,
    /// Use only IPv6 routes
    #[arg(short = '6')]
    only_v6: bool,
}

/// A format, by its name on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Target {
    /// Lines of PREFIX LABEL
    Text,
    /// Lines of ADDRESS LENGTH AS, as CAIDA's
    Pfx2as,
    /// Configuration of the Click modular router
    Click,
    /// JSON, as `ip -j route` prints it
    IpRoute,
    /// Lines of TIME a PREFIX NEXTHOP
    Updates,
    /// Lines, as `bgpdump -m` prints a table
    Bgpdump,
    /// TABLE_DUMP_V2 of RFC 6396
    Mrt,
    /// MaxMind database
    Mmdb,
}

/// The summary of a file that was written.
#[derive(Debug, Serialize)]
struct Summary {
    path: PathBuf,
    format: String,
    v4: usize,
    v6: usize,
    bytes: usize,
}

impl From<Target> for Format {
    fn from(target: Target) -> Self {
        match target {
            Target::Text => Self::Table,
            Target::Pfx2as => Self::Pfx2as,
            Target::Click => Self::Click,
            Target::IpRoute => Self::IpRoute,
            Target::Updates => Self::UpdateText,
            Target::Bgpdump => Self::Bgpdump,
            Target::Mrt => Self::Mrt,
            Target::Mmdb => Self::Mmdb,
        }
    }
}

impl Target {
    /// Returns whether a terminal cannot show the format.
    fn is_binary(self) -> bool {
        matches!(self, Self::Mrt | Self::Mmdb)
    }

    /// Returns whether the format has a place for the origin of a route beside its next hop.
    fn has_origin(self) -> bool {
        matches!(self, Self::Mrt | Self::Bgpdump)
    }
}

/// Converts the table of the files.
pub(crate) fn convert(args: &ConvertArgs) -> anyhow::Result<ExitCode> {
    let format = Format::from(args.to);
    if args.output.is_none() && args.to.is_binary() && std::io::stdout().is_terminal() {
        bail!("{format} is binary: name a file by -o, or send the output to a program");
    }
    if args.record_key.is_some() && args.to != Target::Mmdb {
        bail!("--record-key is for a MaxMind database: add --to mmdb, or leave it out");
    }
    let write_options = WriteOptions {
        time: time(args.time)?,
        record_key: args.record_key.clone(),
        database_type: args.database_type.clone(),
    };
    let has_only_origins = args.origin || args.to == Target::Pfx2as;
    let options = Options {
        partial: args.partial,
        origin: has_only_origins || args.to.has_origin(),
        ..Options::default()
    };
    let families = [!args.only_v6, !args.only_v4];
    let mut table = Tables::load_families(&args.files, &options, families)?.into_routing_table();
    if has_only_origins && !args.to.has_origin() {
        keep_origins(&mut table);
    }
    if args.to == Target::Pfx2as {
        leave_out_others(&mut table);
    }
    let mut bytes = Vec::new();
    progress::during(&format!("converting to {format}"), || {
        feed::write(&table, format, &write_options, &mut bytes)
    })
    .with_context(|| format!("the table does not become {format}"))?;
    let Some(path) = &args.output else {
        let mut out = std::io::stdout().lock();
        out.write_all(&bytes)?;
        out.flush()?;
        return Ok(ExitCode::SUCCESS);
    };
    fib::image::replace(path, &bytes).with_context(|| format!("writing {}", path.display()))?;
    let summary = Summary {
        path: path.clone(),
        format: format.to_string(),
        v4: table.v4.len(),
        v6: table.v6.len(),
        bytes: bytes.len(),
    };
    let mut out = std::io::stdout().lock();
    if args.json {
        serde_json::to_writer_pretty(&mut out, &summary)?;
        writeln!(out)?;
    } else {
        let Summary { v4, v6, bytes, .. } = summary;
        writeln!(
            out,
            "{}: {format}, {v4} IPv4 and {v6} IPv6 routes, {bytes} bytes",
            path.display()
        )?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Replaces the labels of dumps by the origin, which stands behind the next hop, if there is one.
fn keep_origins(table: &mut RoutingTable) {
    let mut labels = Labels::new();
    let origin = |text: &str| {
        let (first, rest) = text.split_once(' ').unwrap_or((text, ""));
        // Blanks are in other labels, too: `dev eth0`, and the records of a MaxMind database.
        if first.parse::<IpAddr>().is_ok() { rest.to_owned() } else { text.to_owned() }
    };
    let origins: Vec<_> =
        table.labels.iter().map(|(_, text)| labels.intern(&origin(text))).collect();
    let v4 = table.v4.iter_mut().map(|(_, label)| label);
    let v6 = table.v6.iter_mut().map(|(_, label)| label);
    for label in v4.chain(v6) {
        *label = origins[label.0 as usize];
    }
    table.labels = labels;
}

/// Leaves out the routes without an origin, such as those whose path ends with a set, and warns.
fn leave_out_others(table: &mut RoutingTable) {
    let routes = table.v4.len() + table.v6.len();
    table.v4.retain(|&(_, label)| !table.labels.get(label).is_empty());
    table.v6.retain(|&(_, label)| !table.labels.get(label).is_empty());
    let others = routes - table.v4.len() - table.v6.len();
    if others > 0 {
        eprintln!(
            "fingerpost: warning: {others} of {routes} routes have no AS that originated them and are left out"
        );
    }
}

/// Returns the time of the arguments, of the environment, or of the clock.
fn time(argument: Option<u64>) -> anyhow::Result<u64> {
    if let Some(time) = argument {
        return Ok(time);
    }
    match std::env::var("SOURCE_DATE_EPOCH") {
        Ok(text) => text.parse().with_context(|| {
            format!("SOURCE_DATE_EPOCH is {text:?}, not a number of seconds since 1970")
        }),
        Err(_) => Ok(SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs()),
    }
}

#[cfg(test)]
mod tests {
    use super::keep_origins;

    #[test]
    fn origins_replace_next_hops_and_leave_other_labels() {
        let text =
            "10.0.0.0/8 192.0.2.1\n10.1.0.0/16 64500\n10.2.0.0/16 {\"a b\":1}\n10.3.0.0/16\n";
        let mut table = feed::read(text.as_bytes(), "x".as_ref(), &Default::default()).unwrap();
        let others =
            ["192.0.2.1 64501", "::1 64502", "dev eth0"].map(|text| table.labels.intern(text));
        for label in others {
            table.v6.push((fib::Prefix::ALL, label));
        }
        keep_origins(&mut table);
        let labels = |routes: Vec<feed::Label>| -> Vec<String> {
            routes.into_iter().map(|label| table.labels.get(label).to_owned()).collect()
        };
        let v4 = labels(table.v4.iter().map(|route| route.1).collect());
        assert_eq!(v4, ["", "64500", "{\"a b\":1}", ""]);
        let v6 = labels(table.v6.iter().map(|route| route.1).collect());
        assert_eq!(v6, ["64501", "64502", "dev eth0"]);
    }
}
