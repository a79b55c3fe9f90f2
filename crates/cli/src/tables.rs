//! Loading of routing tables from the files of the command line.
//!
//! ```text
//! --table A --table B ─► feed ─► labels ─► Hop(label + 1) ─► Rib v4, Rib v6 ─► Fib
//! ```
//!
//! The full tables of the two families are usually separate files, so several files form one table; if
//! two have the same prefix, the later file wins. `-` is standard input. The label of a prefix, a next
//! hop or an origin AS, is not interpreted: no packets are forwarded, so next hops need not be
//! resolved.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use feed::{Label, Labels, Options, Report, RoutingTable};
use fib::{Addr, Choice, Family, Fib, Hop, Prefix, Rib};

use output::progress;

/// The arguments of commands that load and build tables.
#[derive(clap::Args)]
pub(crate) struct TableArgs {
    /// Use the routes before a damaged line of a file [default: refuse the file]
    #[arg(long)]
    pub(crate) partial: bool,
    /// Lookup engine: D12R to D16X8R and so on, `linear`, or `auto`
    #[arg(long, value_name = "NAME", default_value = "auto")]
    pub(crate) engine: String,
    /// Cache that a table may fill, in bytes or as 512K, 1M, 1G: `auto` chooses the fastest engine
    /// that fits [default: half of the L2 cache of a core]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub(crate) cache_budget: Option<usize>,
    /// Threads that build the table [default: one per core]
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<usize>,
    /// Use only IPv4 routes
    #[arg(short = '4', conflicts_with = "only_v6")]
    pub(crate) only_v4: bool,
    /// Use only IPv6 routes
    #[arg(short = '6')]
    pub(crate) only_v6: bool,
}

/// The routes of files, by family.
pub(crate) struct Tables {
    pub(crate) v4: Rib<u32>,
    pub(crate) v6: Rib<u128>,
    labels: Labels,
    /// The files and their reports.
    pub(crate) files: Vec<(PathBuf, Report)>,
    /// The time of reading, decompressing and parsing.
    pub(crate) loading: Duration,
    /// The time of inserting the routes into the two tables.
    pub(crate) inserting: Duration,
}

/// A table and the time of its build.
pub(crate) struct Built<A: Family> {
    pub(crate) fib: Fib<A>,
    pub(crate) took: Duration,
    pub(crate) threads: usize,
}

impl Tables {
    /// Loads `files` in order; prints warnings to standard error.
    pub(crate) fn load(files: &[PathBuf], table_args: &TableArgs) -> anyhow::Result<Self> {
        let options = Options { partial: table_args.partial, ..Options::default() };
        Self::load_families(files, &options, table_args.families())
    }

    /// Loads `files` with the AS that originated each route after its next hop, where a file has it.
    pub(crate) fn load_with_origins(files: &[PathBuf]) -> anyhow::Result<Self> {
        let options = Options { origin: true, ..Options::default() };
        Self::load_families(files, &options, [true; 2])
    }

    /// Loads the routes of IPv4, of IPv6 or of both.
    pub(crate) fn load_families(
        files: &[PathBuf],
        options: &Options,
        families: [bool; 2],
    ) -> anyhow::Result<Self> {
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
            let loaded = progress::during(&what, || open(path, options))?;
            tables.loading += start.elapsed();
            for warning in &loaded.report.warnings {
                eprintln!("fingerpost: warning: {}: {warning}", path.display());
            }
            let start = Instant::now();
            tables.add(&loaded, families);
            tables.inserting += start.elapsed();
            tables.files.push((path.clone(), loaded.report));
        }
        Ok(tables)
    }

    fn add(&mut self, loaded: &RoutingTable, [v4, v6]: [bool; 2]) {
        let hops: Vec<Hop> =
            loaded.labels.iter().map(|(_, text)| hop_of(self.labels.intern(text))).collect();
        if v4 {
            merge(&mut self.v4, &loaded.v4, &hops);
        }
        if v6 {
            merge(&mut self.v6, &loaded.v6, &hops);
        }
    }

    /// Returns the routes of all files, as those of one.
    pub(crate) fn into_routing_table(self) -> RoutingTable {
        RoutingTable {
            v4: self.v4.iter().map(|(prefix, hop)| (prefix, Label(hop.0 - 1))).collect(),
            v6: self.v6.iter().map(|(prefix, hop)| (prefix, Label(hop.0 - 1))).collect(),
            labels: self.labels,
            report: Report::default(),
        }
    }

    /// Returns the labels of all hops, from hop 0 on.
    pub(crate) fn labels(&self) -> Vec<&str> {
        std::iter::once("").chain(self.labels.iter().map(|(_, text)| text)).collect()
    }

    /// Returns the label of `hop`.
    pub(crate) fn label(&self, hop: Hop) -> Option<&str> {
        hop.is_some().then(|| self.labels.get(Label(hop.0 - 1)))
    }
}

impl TableArgs {
    /// Returns whether the routes of IPv4 and of IPv6 are used.
    fn families(&self) -> [bool; 2] {
        [!self.only_v6, !self.only_v4]
    }

    /// Returns the engine of the command line.
    pub(crate) fn choice<A: Family>(&self) -> anyhow::Result<Choice> {
        let choice = Choice::parse::<A>(&self.engine).with_context(|| {
            let family = family::<A>();
            format!(
                "--engine {}: not available for {family} (-4 or -6 selects a family)",
                self.engine
            )
        })?;
        match (choice, self.cache_budget) {
            (Choice::Auto, Some(bytes)) => Ok(Choice::Within(bytes)),
            (_, Some(_)) => {
                bail!("--cache-budget requires --engine auto: the size of {} is fixed", self.engine)
            }
            (_, None) => Ok(choice),
        }
    }

    /// Returns the number of threads that build.
    pub(crate) fn threads(&self) -> anyhow::Result<usize> {
        match self.threads {
            Some(0) => bail!("--threads 0: must be at least 1"),
            Some(threads) => Ok(threads),
            None => Ok(std::thread::available_parallelism().map_or(1, usize::from)),
        }
    }
}

/// Parses a size in bytes, with an optional suffix K, M or G.
fn parse_size(text: &str) -> Result<usize, String> {
    let (digits, unit) = match text.as_bytes().last() {
        Some(b'K' | b'k') => (&text[..text.len() - 1], 1 << 10),
        Some(b'M' | b'm') => (&text[..text.len() - 1], 1 << 20),
        Some(b'G' | b'g') => (&text[..text.len() - 1], 1 << 30),
        _ => (text, 1),
    };
    let bytes = digits.parse::<usize>().ok().and_then(|number| number.checked_mul(unit));
    bytes
        .filter(|&bytes| bytes > 0)
        .ok_or_else(|| "not a size such as 65536, 512K, 1M or 1G".into())
}

fn family<A: Addr>() -> &'static str {
    if A::BITS == 32 { "IPv4" } else { "IPv6" }
}

/// Builds the table of `rib` with the engine of the command line.
pub(crate) fn build<A: Family>(rib: &Rib<A>, table_args: &TableArgs) -> anyhow::Result<Built<A>> {
    let (family, choice, threads) =
        (family::<A>(), table_args.choice::<A>()?, table_args.threads()?);
    let start = Instant::now();
    let fib = progress::during(&format!("building the {family} table"), || {
        Fib::build(rib, choice, threads)
    })
    .with_context(|| format!("building the {family} table as {}", table_args.engine))?;
    Ok(Built { fib, took: start.elapsed(), threads })
}

fn open(path: &Path, options: &Options) -> anyhow::Result<RoutingTable> {
    if path == Path::new("-") {
        let name = Path::new("standard input");
        return Ok(feed::read(std::io::stdin().lock(), name, options)?);
    }
    Ok(feed::load(path, options)?)
}

/// Returns the hop of a label: 0 is reserved for "no route".
fn hop_of(label: Label) -> Hop {
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

    fn loaded(text: &str) -> RoutingTable {
        feed::read(text.as_bytes(), Path::new("test"), &Options::default()).unwrap()
    }

    fn table_args() -> TableArgs {
        TableArgs {
            partial: false,
            engine: "auto".to_owned(),
            cache_budget: None,
            threads: Some(1),
            only_v4: false,
            only_v6: false,
        }
    }

    fn empty() -> Tables {
        Tables::load(&[], &table_args()).unwrap()
    }

    #[test]
    fn later_file_wins_and_labels_are_shared() {
        let mut tables = empty();
        tables.add(&loaded("10.0.0.0/8 west\n10.1.0.0/16 east\n"), [true; 2]);
        tables.add(&loaded("10.1.0.0/16 north\n2001:db8::/32 west\n"), [true; 2]);
        let get = |addr: u32| tables.v4.longest(addr).map(|(_, hop)| tables.label(hop).unwrap());
        assert_eq!(get(0x0a01_0001), Some("north"));
        assert_eq!(get(0x0a02_0001), Some("west"));
        assert_eq!(get(0x0b00_0001), None);
        let (_, hop) = tables.v6.longest(0x2001_0db8 << 96).unwrap();
        assert_eq!(tables.label(hop), Some("west"));
        assert_eq!(tables.label(Hop::NONE), None);
    }

    #[test]
    fn only_v6_skips_ipv4_routes() {
        let mut tables = empty();
        let only = TableArgs { only_v6: true, ..table_args() };
        tables.add(&loaded("10.0.0.0/8 west\n2001:db8::/32 west\n"), only.families());
        assert_eq!((tables.v4.len(), tables.v6.len()), (0, 1));
    }

    #[test]
    fn unsupported_engine_is_named_in_the_error() {
        let build = |engine: &str| {
            let table_args = TableArgs { engine: engine.to_owned(), ..table_args() };
            build(&empty().v4, &table_args).map(|built| built.fib.name())
        };
        assert_eq!(build("D16X4R").unwrap(), "D16X4R");
        let error = format!("{:#}", build("D99R").unwrap_err());
        assert!(error.starts_with("--engine D99R: not available for IPv4"), "{error}");
    }

    #[test]
    fn cache_budget_requires_the_automatic_choice() {
        let table_args = TableArgs { cache_budget: Some(1 << 20), ..table_args() };
        assert_eq!(table_args.choice::<u32>().unwrap(), Choice::Within(1 << 20));
        let named = TableArgs { engine: "D18R".to_owned(), ..table_args };
        let error = named.choice::<u32>().unwrap_err().to_string();
        assert!(error.contains("size of D18R is fixed"), "{error}");
    }

    #[test]
    fn parse_size_accepts_units() {
        assert_eq!(parse_size("65536"), Ok(65536));
        assert_eq!(parse_size("512K"), Ok(512 << 10));
        assert_eq!(parse_size("1m"), Ok(1 << 20));
        for bad in ["", "0", "M", "1MB", "-1", "1.5M", "99999999999G"] {
            assert!(parse_size(bad).is_err(), "{bad}");
        }
    }
}
