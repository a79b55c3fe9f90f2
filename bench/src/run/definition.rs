//! The definition of a measurement: `bench/definitions/*.toml`.
//!
//! ```text
//!   [table]     file, sha256 of the file              ─┐ is it the same table?
//!   [hops]      how each route gets its next hop       │
//!   labeled    sha256 of the lines `PREFIX HOP`      ─┘ and with the same next hops?
//!   [[stream]]  name, sha256 of all answers           ─► are the keys the same, and right?
//!   [measure]   engines, rivals, bursts, threads, rounds, keys
//! ```
//!
//! A definition contains enough to repeat the measurement with another program and to verify it by
//! three checksums: of the file, of the routes with their next hops, and of the answers to each stream.
//! A mismatch is refused before the measurement. `fingerpost-bench run --sums` computes the checksums
//! again, and `--export` writes routes, keys and answers for programs that do not draw them themselves.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use fib::{Choice, Family};
use output::progress;
use serde::{Deserialize, Serialize};

use super::hops::{self, Rule};
use super::sums;
use crate::engines::changes::List;
use crate::keys::Stream;

/// Keys of a quick run: the first ones of every stream.
pub(super) const QUICK: usize = 1 << 20;

/// A whole definition.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Definition {
    pub(super) name: String,
    pub(super) about: String,
    /// 4 or 6.
    pub(super) family: u8,
    pub(super) table: Table,
    pub(super) hops: Rule,
    pub(super) measure: Measure,
    #[serde(rename = "stream")]
    pub(super) streams: Vec<StreamSums>,
}

/// The file of routes.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Table {
    /// A name in the data folder or beside the definition.
    file: String,
    /// Of the file.
    sha256: String,
    /// The number of routes of the family.
    routes: usize,
    /// Of the routes with their next hops (see [`sums::of_routes`]).
    labeled: String,
}

/// The parameters of the measurement.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Measure {
    pub(super) engines: Vec<String>,
    #[serde(default)]
    pub(super) rivals: Vec<String>,
    pub(super) bursts: Vec<usize>,
    pub(super) threads: Vec<usize>,
    pub(super) rounds: usize,
    pub(super) keys: usize,
    /// Random single changes of the table.
    #[serde(default)]
    pub(super) changes: usize,
    /// Dependent lookups per time measurement of the latency.
    pub(super) chain: usize,
}

/// A stream and the checksums of its answers.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StreamSums {
    #[serde(deserialize_with = "stream", serialize_with = "stream_name")]
    pub(super) name: Stream,
    /// Of the answers to all keys (see [`sums::of_answers`]).
    pub(super) answers: String,
    /// Of the answers to the first [`QUICK`] keys.
    pub(super) quick: String,
}

fn stream<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Stream, D::Error> {
    let name = String::deserialize(from)?;
    let known = Stream::ALL.into_iter().find(|stream| stream.to_string() == name);
    known.ok_or_else(|| serde::de::Error::custom(format!("no stream {name}")))
}

fn stream_name<S: serde::Serializer>(stream: &Stream, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(stream)
}

/// The treatment of checksums that differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Strict {
    /// An error.
    Refuse,
    /// Accepted, because the checksums are computed again.
    Accept,
}

impl Definition {
    /// Reads and checks a definition.
    pub(super) fn read(path: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("reading the definition {}", path.display()))?;
        let read: Self = toml::from_str(&text).with_context(|| path.display().to_string())?;
        read.check().with_context(|| path.display().to_string())?;
        Ok(read)
    }

    fn check(&self) -> anyhow::Result<()> {
        let Measure { engines, bursts, threads, rounds, keys, chain, .. } = &self.measure;
        ensure!(matches!(self.family, 4 | 6), "family: 4 or 6");
        ensure!(!engines.is_empty() && !self.streams.is_empty(), "an engine and a stream");
        ensure!(*rounds > 0 && !threads.is_empty(), "a round and a number of threads");
        ensure!(*keys >= 1024 && (1..=*keys).contains(chain), "at least 1024 keys, and a chain");
        ensure!(
            !bursts.is_empty() && bursts.iter().all(|burst| (1..=1024).contains(burst)),
            "bursts: 1 to 1024 keys a call"
        );
        for engine in engines {
            let known = if self.family == 4 {
                Choice::parse::<u32>(engine)
            } else {
                Choice::parse::<u128>(engine)
            };
            known.with_context(|| format!("the engine {engine}"))?;
        }
        self.hops.check()
    }

    /// Loads the table, assigns next hops, and compares the checksums of both with the definition.
    pub(super) fn routes<A: Family>(
        &self,
        folders: &[PathBuf],
        strict: Strict,
    ) -> anyhow::Result<(List<A>, Sums)> {
        let Table { file, sha256, routes: count, labeled } = &self.table;
        let path = folders.iter().map(|folder| folder.join(file)).find(|path| path.exists());
        let Some(path) = path else {
            let places: Vec<_> = folders.iter().map(|path| path.display().to_string()).collect();
            bail!("no table {file} in {}", places.join(" or "));
        };
        let bytes = std::fs::read(&path).with_context(|| path.display().to_string())?;
        let of_file = sums::of_bytes(&bytes);
        same(strict, sha256, &of_file, || {
            format!("{} is another file than the definition is about", path.display())
        })?;
        let what = format!("loading {}", path.display());
        let loaded = progress::during(&what, || feed::load(&path, &feed::Options::default()))?;
        let routes = hops::assign(&self.hops, &loaded, A::BITS)?;
        let of_routes = sums::of_routes(&routes);
        if routes.len() != *count && strict == Strict::Refuse {
            bail!("{file} has {} routes of IPv{}, not {count}", routes.len(), self.family);
        }
        same(strict, labeled, &of_routes, || "the routes have other next hops".to_owned())?;
        Ok((routes, Sums { file: of_file, labeled: of_routes }))
    }
}

/// The checksums of a table.
pub(super) struct Sums {
    pub(super) file: String,
    pub(super) labeled: String,
}

/// Compares a checksum with that of the definition.
pub(super) fn same(
    strict: Strict,
    wanted: &str,
    found: &str,
    what: impl FnOnce() -> String,
) -> anyhow::Result<()> {
    if strict == Strict::Refuse && wanted != found {
        bail!("{}: its SHA-256 is {found}, not {wanted}", what());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::Definition;
    use std::path::Path;

    #[test]
    fn all_definitions_are_valid() {
        let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/definitions"));
        let mut count = 0;
        for entry in folder.read_dir().unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "toml") {
                let read = Definition::read(&path).unwrap();
                assert_eq!(path.file_stem().unwrap().to_str(), Some(&*read.name));
                count += 1;
            }
        }
        assert!(count >= 4, "{count} definitions");
    }

    #[test]
    fn check_refuses_invalid_definitions() {
        let whole = include_str!("../../definitions/tiny.toml");
        let read = |from: &str, to: &str| {
            assert!(whole.contains(from), "{from}");
            let text = whole.replacen(from, to, 1);
            let read = toml::from_str::<Definition>(&text).map_err(|error| error.to_string());
            read.and_then(|read| read.check().map_err(|error| format!("{error:#}"))).unwrap_err()
        };
        assert!(read("family = 4", "family = 5").contains("4 or 6"));
        assert!(read("\"RND\"", "\"RAND\"").contains("no stream RAND"));
        assert!(read("\"poptrie\"", "\"poptree\"").contains("poptree"));
        assert!(read("rounds = ", "round = ").contains("round"));
        assert!(read("shares = [", "shares = [60, ").contains("100"));
    }
}
