//! Loads static routes from files and the configuration into the tables that workers read.
//!
//! ```text
//!   file ─ feed ─► (Prefix, Label) ─ Via ─► (Prefix, Target) ─┐ later wins
//!   [[route]] ────────────────────────────► (Prefix, Target) ─┴► sorted, unique
//!                                                                   │
//!                        StaticRoutes ◄─────────────────────────────┤
//!   HopTable: Target ↔ Hop, those with most routes first ◄──────────┤ StaticRoutes::build
//!                                                                   ▼
//!                                       Rib ─► Updater ─► Fib: StaticTables of a plane
//! ```
//!
//! A start builds the tables with several threads ([`StaticRoutes::build`]); a reload reads the
//! routes, and the plane changes those that differ ([`StaticRoutes::replace_in`]).
//!
//! A label without a next hop is an error that names the file, the prefix and the label, and the
//! router does not start: a router with some of its routes is worse than one that does not start.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use feed::{Label, Labels, RoutingTable};
use fib::{Choice, Family, Full, Hop, HopTable, Prefix, Rib, Updater};

use crate::plane::{HopTarget, Plane, StaticNextHop, StaticNextHops, StaticTables};
use config::{Config, RouteFile, Target, Via};

/// The routes of a configuration, of both families.
#[derive(Debug)]
pub struct StaticRoutes {
    /// The IPv4 routes in order, each prefix once.
    v4: RouteList<u32>,
    /// The IPv6 routes in order, each prefix once.
    v6: RouteList<u128>,
    /// The number of routes that a later one for the same prefix replaced.
    pub replaced: usize,
    /// Warnings of the feeds, with the file.
    pub warnings: Vec<String>,
}

/// The reason that the routes cannot be loaded.
#[derive(Debug)]
pub enum RoutesError {
    /// A file cannot be loaded; the feed's error names it.
    Feed(feed::Error),
    /// Labels of a file without a next hop.
    Unknown {
        /// The file.
        path: PathBuf,
        /// The prefix of the first such route.
        prefix: String,
        /// Its label.
        label: String,
        /// The number of routes with such labels.
        routes: usize,
    },
    /// The routes exceed the engine.
    Full {
        /// The family.
        family: &'static str,
        /// The limit.
        source: Full,
    },
}

impl fmt::Display for RoutesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Feed(error) => error.fmt(f),
            Self::Unknown { path, prefix, label, routes } => {
                write!(
                    f,
                    "{}: {prefix} {label}: no [[nexthop]] has {label:?} as its name or address",
                    path.display()
                )?;
                if *routes > 1 {
                    write!(f, ", and {} more routes have such labels", routes - 1)?;
                }
                f.write_str(" (add it, or set `nexthop` or `nexthops` for the file)")
            }
            Self::Full { family, source } => write!(f, "{family}: {source}"),
        }
    }
}

impl std::error::Error for RoutesError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Feed(error) => Some(error),
            Self::Unknown { .. } => None,
            Self::Full { source, .. } => Some(source),
        }
    }
}

impl From<feed::Error> for RoutesError {
    fn from(error: feed::Error) -> Self {
        Self::Feed(error)
    }
}

type RouteList<A> = Vec<(Prefix<A>, Target)>;

impl StaticRoutes {
    /// Reads all routes of `config`.
    ///
    /// # Errors
    ///
    /// [`RoutesError`].
    pub fn read(config: &Config) -> Result<Self, RoutesError> {
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        let mut warnings = Vec::new();
        for file in &config.files {
            let loaded = feed::load(&file.path, &feed::Options::default())?;
            let targets = targets(config, file, &loaded.labels);
            check_labels(&file.path, &loaded, &targets)?;
            let of_file = loaded.report.warnings.iter();
            warnings.extend(of_file.map(|warning| format!("{}: {warning}", file.path.display())));
            translate(loaded.v4, &targets, &mut v4);
            translate(loaded.v6, &targets, &mut v6);
        }
        v4.extend(&config.routes_v4);
        v6.extend(&config.routes_v6);
        let replaced = keep_last(&mut v4) + keep_last(&mut v6);
        Ok(Self { v4, v6, replaced, warnings })
    }

    /// Builds the tables of the routes with `threads` threads.
    ///
    /// # Errors
    ///
    /// [`RoutesError::Full`].
    pub fn build(&self, config: &Config, threads: usize) -> Result<StaticTables, RoutesError> {
        let full = |family| move |source| RoutesError::Full { family, source };
        let used = self.v4.iter().map(|route| route.1).chain(self.v6.iter().map(|route| route.1));
        let targets = HopTargets::of(config);
        let counts = count(config, used).into_iter();
        let counts = counts.map(|(target, count)| (targets.get(target).clone(), count));
        let hops = HopTable::ranked(counts).map_err(full("next hops"))?;
        let of = |target| hops.find(targets.get(target));
        let v4 = table(&self.v4, of, config.engine_v4, threads).map_err(full("IPv4"))?;
        let v6 = table(&self.v6, of, config.engine_v6, threads).map_err(full("IPv6"))?;
        Ok(StaticTables { v4, v6, hops, next_hops: targets.next_hops(config) })
    }

    /// Replaces the routes of a plane by these; returns the number of changed routes.
    pub fn replace_in(&self, plane: &mut Plane, config: &Config) -> u64 {
        let targets = HopTargets::of(config);
        let v4 = self.v4.iter().map(|&(prefix, target)| (prefix, targets.get(target)));
        let v6 = self.v6.iter().map(|&(prefix, target)| (prefix, targets.get(target)));
        plane.replace_static_routes(targets.next_hops(config), v4, v6)
    }
}

/// The targets of a plane's hops, one for each next hop of the configuration.
struct HopTargets {
    names: Vec<Arc<str>>,
    next_hops: Vec<HopTarget>,
    blackhole: HopTarget,
}

impl HopTargets {
    fn of(config: &Config) -> Self {
        let names: Vec<Arc<str>> =
            config.next_hops.iter().map(|next| next.name.as_str().into()).collect();
        let next_hops = names.iter().map(|name| HopTarget::Static(Arc::clone(name))).collect();
        let blackhole = HopTarget::Route(Arc::new(feed::netlink::Target::Blackhole));
        Self { names, next_hops, blackhole }
    }

    fn get(&self, target: Target) -> &HopTarget {
        match target {
            Target::NextHop(at) => &self.next_hops[at],
            Target::Blackhole => &self.blackhole,
        }
    }

    fn next_hops(&self, config: &Config) -> StaticNextHops {
        let next_hops = config.next_hops.iter().map(|next| {
            let config::NextHop { name: _, interface, mac, address } = *next;
            StaticNextHop { port: interface, mac, address }
        });
        self.names.iter().cloned().zip(next_hops).collect()
    }
}

/// Returns the target of each label of a file; `None` for an unknown label.
fn targets(config: &Config, file: &RouteFile, labels: &Labels) -> Vec<Option<Target>> {
    let by_label = |label: &str| {
        let address = label.parse().ok();
        let next = config
            .next_hops
            .iter()
            .position(|next| next.name == label || (address.is_some() && next.address == address));
        let blackhole = (label == "blackhole").then_some(Target::Blackhole);
        next.map(Target::NextHop).or(blackhole)
    };
    let each = labels.iter().map(|(_, text)| match &file.via {
        Via::One(target) => Some(*target),
        Via::Label => by_label(text),
        Via::Spread(targets) => targets.get(spread(text, targets.len())).copied(),
    });
    each.collect()
}

/// Picks one of `count` by a label (FNV-1a, its upper bits mixed in): the same
/// label gets the same on every machine and in every run.
fn spread(label: &str, count: usize) -> usize {
    let hash = feed::fnv1a(label.bytes());
    ((hash ^ hash >> 32) % count.max(1) as u64) as usize
}

fn check_labels(
    path: &Path,
    loaded: &RoutingTable,
    targets: &[Option<Target>],
) -> Result<(), RoutesError> {
    let is_unknown = |label: &Label| targets[label.0 as usize].is_none();
    let first = |prefix: String, label: Label| (prefix, loaded.labels.get(label).to_owned());
    let v4 = loaded.v4.iter().filter(|(_, label)| is_unknown(label));
    let v6 = loaded.v6.iter().filter(|(_, label)| is_unknown(label));
    let routes = v4.clone().count() + v6.clone().count();
    let v4 = v4.map(|&(prefix, label)| first(prefix.to_string(), label)).next();
    let v6 = v6.map(|&(prefix, label)| first(prefix.to_string(), label)).next();
    match v4.or(v6) {
        None => Ok(()),
        Some((prefix, label)) => {
            Err(RoutesError::Unknown { path: path.into(), prefix, label, routes })
        }
    }
}

fn translate<A: Family>(
    routes: Vec<(Prefix<A>, Label)>,
    targets: &[Option<Target>],
    out: &mut RouteList<A>,
) {
    // `check_labels` has refused labels without a target.
    let each = routes.into_iter();
    out.extend(each.filter_map(|(prefix, label)| Some((prefix, targets[label.0 as usize]?))));
}

/// Sorts by prefix, keeps the last route of each prefix, and returns the number of the others. One
/// sorted file, the usual case, is one run for the stable sort: O(routes).
fn keep_last<A: Family>(routes: &mut RouteList<A>) -> usize {
    let before = routes.len();
    routes.sort_by_key(|route| route.0);
    routes.dedup_by(|later, earlier| {
        let same = later.0 == earlier.0;
        if same {
            earlier.1 = later.1;
        }
        same
    });
    before - routes.len()
}

/// Counts the routes of each target, in the order of the configuration.
fn count(config: &Config, used: impl Iterator<Item = Target>) -> Vec<(Target, u64)> {
    let blackhole = config.next_hops.len();
    let mut counts = vec![0; blackhole + 1];
    for target in used {
        counts[match target {
            Target::NextHop(at) => at,
            Target::Blackhole => blackhole,
        }] += 1;
    }
    let target = |at| if at == blackhole { Target::Blackhole } else { Target::NextHop(at) };
    counts.into_iter().enumerate().map(|(at, count)| (target(at), count)).collect()
}

fn table<A: Family>(
    routes: &RouteList<A>,
    hop: impl Fn(Target) -> Option<Hop>,
    engine: Choice,
    threads: usize,
) -> Result<Updater<A>, Full> {
    // The last target is cached: adjacent routes of a table tend to share a next hop.
    let mut last = (Target::Blackhole, hop(Target::Blackhole));
    let routes = routes.iter().map(|&(prefix, target)| {
        if target != last.0 {
            last = (target, hop(target));
        }
        (prefix, last.1.unwrap_or(Hop::NONE))
    });
    Updater::new(Rib::from_sorted(routes), engine, threads)
}
