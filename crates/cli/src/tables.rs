//! The routing table that the files on the command line make together.
//!
//! ```text
//! --table A --table B ─► feed ─► labels ─► Hop(label + 1) ─► Rib v4, Rib v6 ─► Fib
//! ```
//!
//! A full table of either family usually comes as a file of its own, so several
//! may be named; where two have the same prefix, the later file wins. `-` is
//! standard input. What a file has behind its prefixes, a next hop or an origin,
//! is shown as it is: here nothing is forwarded, so nothing needs to be resolved.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use feed::{Label, Labels, Loaded, Options, Report};
use fib::{Addr, Choice, Family, Fib, Hop, Prefix, Rib};

use crate::progress;

/// What every command that reads tables takes.
#[derive(clap::Args)]
pub(crate) struct Reading {
    /// Keep what came before damage in a file, where the default is to refuse it
    #[arg(long)]
    pub(crate) partial: bool,
    /// The engine: D12R to D16X8R and so on, `linear`, or `auto`
    #[arg(long, value_name = "NAME", default_value = "auto")]
    pub(crate) engine: String,
    /// The cache that a table may fill, in bytes or as 512K, 1M, 1G: `auto` takes the
    /// quickest engine that fits [default: half of a core's second-level cache]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) cache_budget: Option<usize>,
    /// Threads that build the table [default: one a core]
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<usize>,
    /// IPv4 only
    #[arg(short = '4', conflicts_with = "only_v6")]
    pub(crate) only_v4: bool,
    /// IPv6 only
    #[arg(short = '6')]
    pub(crate) only_v6: bool,
}

/// The routes of some files, both families.
pub(crate) struct Tables {
    pub(crate) v4: Rib<u32>,
    pub(crate) v6: Rib<u128>,
    labels: Labels,
    /// Each file and what was found in it.
    pub(crate) files: Vec<(PathBuf, Report)>,
    /// How long reading took, unpacking and parsing included.
    pub(crate) loading: Duration,
    /// How long putting the routes into the two tables took.
    pub(crate) inserting: Duration,
}

/// A table and how long it took to build.
pub(crate) struct Built<A: Family> {
    pub(crate) fib: Fib<A>,
    pub(crate) took: Duration,
    pub(crate) threads: usize,
}

impl Tables {
    /// Loads `files` one after the other; warnings go to standard error.
    pub(crate) fn load(files: &[PathBuf], reading: &Reading) -> anyhow::Result<Self> {
        let mut tables = Self {
            v4: Rib::new(),
            v6: Rib::new(),
            labels: Labels::new(),
            files: Vec::new(),
            loading: Duration::ZERO,
            inserting: Duration::ZERO,
        };
        for path in files {
            let start = Instant::now();
            let what = format!("loading {}", path.display());
            let loaded = progress::during(&what, || open(path, reading.partial))?;
            tables.loading += start.elapsed();
            for warning in &loaded.report.warnings {
                eprintln!("fingerpost: warning: {}: {warning}", path.display());
            }
            let start = Instant::now();
            tables.add(&loaded, reading);
            tables.inserting += start.elapsed();
            tables.files.push((path.clone(), loaded.report));
        }
        Ok(tables)
    }

    fn add(&mut self, loaded: &Loaded, reading: &Reading) {
        let hops: Vec<Hop> =
            loaded.labels.iter().map(|(_, text)| hop(self.labels.intern(text))).collect();
        if !reading.only_v6 {
            merge(&mut self.v4, &loaded.v4, &hops);
        }
        if !reading.only_v4 {
            merge(&mut self.v6, &loaded.v6, &hops);
        }
    }

    /// Lists what the files have behind the prefixes of each hop, from hop 0 on.
    pub(crate) fn labels(&self) -> Vec<&str> {
        std::iter::once("").chain(self.labels.iter().map(|(_, text)| text)).collect()
    }

    /// Returns what the files have behind the prefixes of `hop`.
    pub(crate) fn label(&self, hop: Hop) -> Option<&str> {
        hop.is_some().then(|| self.labels.get(Label(hop.0 - 1)))
    }
}

impl Reading {
    /// Returns the engine that the command line asks for.
    pub(crate) fn choice<A: Family>(&self) -> anyhow::Result<Choice> {
        let choice = Choice::parse::<A>(&self.engine).with_context(|| {
            let family = family::<A>();
            format!("--engine {} does not suit {family} (-4 or -6 leaves one out)", self.engine)
        })?;
        match (choice, self.cache_budget) {
            (Choice::Auto, Some(bytes)) => Ok(Choice::Within(bytes)),
            (_, Some(_)) => {
                bail!("--cache-budget is for --engine auto: {} has its size", self.engine)
            }
            (_, None) => Ok(choice),
        }
    }

    /// Returns how many threads build.
    pub(crate) fn threads(&self) -> anyhow::Result<usize> {
        match self.threads {
            Some(0) => bail!("--threads 0: at least one thread must build"),
            Some(threads) => Ok(threads),
            None => Ok(std::thread::available_parallelism().map_or(1, usize::from)),
        }
    }
}

/// Reads a size: bytes, or with K, M or G behind it.
fn size(text: &str) -> Result<usize, String> {
    let (digits, unit) = match text.as_bytes().last() {
        Some(b'K' | b'k') => (&text[..text.len() - 1], 1 << 10),
        Some(b'M' | b'm') => (&text[..text.len() - 1], 1 << 20),
        Some(b'G' | b'g') => (&text[..text.len() - 1], 1 << 30),
        _ => (text, 1),
    };
    let bytes = digits.parse::<usize>().ok().and_then(|number| number.checked_mul(unit));
    bytes.filter(|&bytes| bytes > 0).ok_or_else(|| "a size is like 65536, 512K, 1M or 1G".into())
}

fn family<A: Addr>() -> &'static str {
    if A::BITS == 32 { "IPv4" } else { "IPv6" }
}

/// Builds the table of `rib` that the command line asks for.
pub(crate) fn build<A: Family>(rib: &Rib<A>, reading: &Reading) -> anyhow::Result<Built<A>> {
    let (family, choice, threads) = (family::<A>(), reading.choice::<A>()?, reading.threads()?);
    let start = Instant::now();
    let fib = progress::during(&format!("building the {family} table"), || {
        Fib::build(rib, choice, threads)
    })
    .with_context(|| format!("building the {family} table as {}", reading.engine))?;
    Ok(Built { fib, took: start.elapsed(), threads })
}

fn open(path: &Path, partial: bool) -> anyhow::Result<Loaded> {
    let options = Options { partial, ..Options::default() };
    if path == Path::new("-") {
        let name = Path::new("standard input");
        return Ok(feed::read(std::io::stdin().lock(), name, &options)?);
    }
    Ok(feed::load(path, &options)?)
}

/// A label as the tables hold it: 0 is kept for "no route".
fn hop(label: Label) -> Hop {
    Hop(label.0 + 1)
}

fn merge<A: Addr>(rib: &mut Rib<A>, routes: &[(Prefix<A>, Label)], hops: &[Hop]) {
    let routes = routes.iter().map(|&(prefix, Label(label))| (prefix, hops[label as usize]));
    if rib.is_empty() {
        *rib = Rib::from_sorted(routes);
    } else {
        for (prefix, hop) in routes {
            rib.insert(prefix, hop);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loaded(text: &str) -> Loaded {
        feed::read(text.as_bytes(), Path::new("test"), &Options::default()).unwrap()
    }

    fn reading() -> Reading {
        Reading {
            partial: false,
            engine: "auto".to_owned(),
            cache_budget: None,
            threads: Some(1),
            only_v4: false,
            only_v6: false,
        }
    }

    fn empty() -> Tables {
        Tables::load(&[], &reading()).unwrap()
    }

    #[test]
    fn the_later_file_wins_and_labels_are_shared() {
        let mut tables = empty();
        tables.add(&loaded("10.0.0.0/8 west\n10.1.0.0/16 east\n"), &reading());
        tables.add(&loaded("10.1.0.0/16 north\n2001:db8::/32 west\n"), &reading());
        let get = |addr: u32| tables.v4.longest(addr).map(|(_, hop)| tables.label(hop).unwrap());
        assert_eq!(get(0x0a01_0001), Some("north"));
        assert_eq!(get(0x0a02_0001), Some("west"));
        assert_eq!(get(0x0b00_0001), None);
        let (_, hop) = tables.v6.longest(0x2001_0db8 << 96).unwrap();
        assert_eq!(tables.label(hop), Some("west"));
        assert_eq!(tables.label(Hop::NONE), None);
    }

    #[test]
    fn a_family_can_be_left_out() {
        let mut tables = empty();
        let only = Reading { only_v6: true, ..reading() };
        tables.add(&loaded("10.0.0.0/8 west\n2001:db8::/32 west\n"), &only);
        assert_eq!((tables.v4.len(), tables.v6.len()), (0, 1));
    }

    #[test]
    fn an_engine_that_does_not_suit_is_named() {
        let build = |engine: &str| {
            let reading = Reading { engine: engine.to_owned(), ..reading() };
            build(&empty().v4, &reading).map(|built| built.fib.name())
        };
        assert_eq!(build("D16X4R").unwrap(), "D16X4R");
        let error = format!("{:#}", build("D99R").unwrap_err());
        assert!(error.starts_with("--engine D99R does not suit IPv4"), "{error}");
    }

    #[test]
    fn a_budget_is_for_the_automatic_choice() {
        let reading = Reading { cache_budget: Some(1 << 20), ..reading() };
        assert_eq!(reading.choice::<u32>().unwrap(), Choice::Within(1 << 20));
        let named = Reading { engine: "D18R".to_owned(), ..reading };
        let error = named.choice::<u32>().unwrap_err().to_string();
        assert!(error.contains("D18R has its size"), "{error}");
    }

    #[test]
    fn sizes_have_units() {
        assert_eq!(size("65536"), Ok(65536));
        assert_eq!(size("512K"), Ok(512 << 10));
        assert_eq!(size("1m"), Ok(1 << 20));
        for bad in ["", "0", "M", "1MB", "-1", "1.5M", "99999999999G"] {
            assert!(size(bad).is_err(), "{bad}");
        }
    }
}
