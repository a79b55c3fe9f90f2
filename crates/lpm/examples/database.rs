//! A map from the prefixes of a MaxMind database to its records, as JSON, and some lookups. Prefixes with the same record
//! share it.
//!
//! `cargo run --release -p fingerpost-lpm --example database -- FILE.mmdb ADDRESS…`
//!
//! All other formats of route files work alike.

use std::env;
use std::error::Error;
use std::io::{self, Write};
use std::net::IpAddr;
use std::process::ExitCode;
use std::sync::Arc;

use feed::Options;
use fingerpost_lpm::LpmMap;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "database: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args().skip(1);
    let file = arguments.next().ok_or("usage: database FILE ADDRESS…")?;
    let table = feed::load(&file, &Options::default())?;
    // One value for each label. A program that knows its records parses them here, by `serde_json` into a type of its own.
    let values: Vec<Arc<str>> = table.labels.iter().map(|(_, text)| Arc::from(text)).collect();
    let record = |label: feed::Label| Arc::clone(&values[label.0 as usize]);
    let v4: LpmMap<_, _> =
        table.v4.iter().map(|&(prefix, label)| (prefix, record(label))).collect();
    let v6: LpmMap<_, _> =
        table.v6.iter().map(|&(prefix, label)| (prefix, record(label))).collect();

    let mut out = io::stdout().lock();
    writeln!(io::stderr(), "{} prefixes, {} records", v4.len() + v6.len(), values.len())?;
    for address in arguments {
        let found = match address.parse()? {
            IpAddr::V4(address) => {
                v4.longest(address.into()).map(|(at, record)| (at.to_string(), record))
            }
            IpAddr::V6(address) => {
                v6.longest(address.into()).map(|(at, record)| (at.to_string(), record))
            }
        };
        match found {
            Some((prefix, record)) => writeln!(out, "{address} {prefix} {record}")?,
            None => writeln!(out, "{address} - -")?,
        }
    }
    Ok(())
}
