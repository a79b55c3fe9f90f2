//! Compares every route with the kernel's, and a sample of addresses (`fib diff kernel`).
//!
//! ```text
//!   Kernel::start, a connection of its own ─► every route of a fresh dump
//!   plane, a /8 at a time ─► routes ────────────── merged in order ─┐
//!                         └► workers' table, at each route's first address ─┤ discrepancies
//!   sampled addresses ─► RTM_GETROUTE fibmatch, workers' table ─────┘  │
//!                    settle: compared again until both agree ◄─────────┘
//!                    remaining at the end ─► reported
//! ```
//!
//! The comparison uses none of the router's own state of the kernel, neither its mirror nor its
//! sockets. It shares the netlink parser; for this reason it also queries the kernel's own lookup
//! for a sample of addresses, and `smoke/routes.py`, which shares no code with the router, exists
//! beside it.
//!
//! The control thread is queried for a /8 at a time, so that it stops following the kernel for
//! a few milliseconds at the most. Routes change between two such blocks, and between them and the
//! dump: a discrepancy is compared again until both sides agree or until `settle` is over, while
//! the connection follows the kernel's changes.
//!
//! The workers' table is looked up at the first address of every route, where the longest
//! route that begins there must win. This detects a table that does not match its routes (an
//! engine at its limit keeps the last table that it could build).
//!
//! Only addresses in the main table are queried from the kernel: for other tables the query would
//! have to name the ingress interface. A result from another table than the main one (policy rules)
//! is not compared, nor is an own address, for which the kernel may report either table.
//!
//! Memory: a mirror of the kernel during the comparison, about 40 bytes a route.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use feed::netlink::{Kernel, Lookup, NullFollower, Target};
use fib::{Family, Hop, Prefix};

use super::{
    AuditFamily, KernelRoute, MAIN, is_compared, is_resolvable, is_same_path, is_same_route,
    kernel_route,
};
use crate::handle::ControlHandle;
use crate::kernel_sync::KernelSync;
use crate::plane::{HopTarget, Plane};
use crate::server::RequestError;
use crate::target::{TargetView, target_view};
use api::{Compared, Difference, Item, RouteView};

/// The prefix length of the blocks in which routes are fetched.
const BLOCK_LEN: u32 = 8;
/// Discrepancies that one request to the control thread looks up.
const BATCH: usize = 4096;
/// The pause between two comparisons of the remaining discrepancies.
const PAUSE: Duration = Duration::from_millis(20);
/// The upper limit of `settle`.
const MAX_SETTLE: Duration = Duration::from_secs(60);

/// The options of a comparison.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DiffOptions {
    /// The time that a discrepancy has to disappear.
    pub(crate) settle: Duration,
    /// Addresses that the kernel is queried for, for each thousand routes.
    pub(crate) sample: u32,
    /// The seed of the sample.
    pub(crate) seed: u64,
}

impl From<feed::netlink::Error> for RequestError {
    fn from(error: feed::netlink::Error) -> Self {
        Self::Failed(format!("cannot read the kernel's routes: {error}"))
    }
}

/// A comparison in progress.
struct Diff<'a> {
    control: &'a ControlHandle<KernelSync>,
    kernel: Kernel,
    lookup: Lookup,
    options: DiffOptions,
    totals: Compared,
}

/// A point at which the router and the kernel may differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Discrepancy<A: Family> {
    /// The routes for a prefix.
    Route(Prefix<A>),
    /// The workers' table and the routes, at the first address of a prefix.
    Table(Prefix<A>),
    /// The target of packets to an address.
    Address(A),
}

/// The router's side of a discrepancy.
#[derive(Clone, Debug)]
struct RouterAnswer<A: Family> {
    /// The longest prefix of the routes.
    prefix: Option<Prefix<A>>,
    /// The target in the workers' table.
    table: Option<HopTarget>,
    /// The target in the routes.
    routes: Option<HopTarget>,
    /// Whether the workers' table and the routes have the same hop.
    is_consistent: bool,
    /// Whether the address is one of the router's own.
    is_own: bool,
}

/// A discrepancy with the answers of both sides.
struct Comparison<'a, A: Family> {
    discrepancy: Discrepancy<A>,
    router: &'a RouterAnswer<A>,
    /// The kernel's prefix and target.
    kernel: KernelRoute,
    agrees: bool,
}

/// The routes of a block: each with its hop, and whether the workers' table agrees at its first
/// address.
struct RouteBlock<A: Family> {
    routes: Vec<(Prefix<A>, Hop, bool)>,
    targets: HashMap<Hop, HopTarget>,
}

/// Compares, and emits every difference and at the end the totals.
///
/// # Errors
///
/// [`RequestError`].
pub(crate) fn run(
    control: &ControlHandle<KernelSync>,
    options: DiffOptions,
    emit: &mut dyn FnMut(Item) -> io::Result<()>,
) -> Result<(), RequestError> {
    let start = Instant::now();
    let options = DiffOptions { settle: options.settle.min(MAX_SETTLE), ..options };
    let mut kernel = Kernel::open()?;
    kernel.start(&mut NullFollower)?;
    let totals = Compared { seed: options.seed, ..Compared::default() };
    let mut diff = Diff { control, kernel, lookup: Lookup::open()?, options, totals };
    let tables = diff.call(|plane| plane.tables().map(|table| table.number).collect::<Vec<_>>())?;
    let mut discrepancies = Vec::new();
    for &table in &tables {
        discrepancies.push((table, diff.compare::<u32>(table)?, diff.compare::<u128>(table)?));
    }
    let deadline = Instant::now() + options.settle;
    loop {
        diff.follow()?;
        let mut left = 0;
        for (table, v4, v6) in &mut discrepancies {
            *v4 = diff.recheck(*table, v4)?;
            *v6 = diff.recheck(*table, v6)?;
            left += v4.len() + v6.len();
        }
        if left == 0 || (Instant::now() >= deadline && !diff.kernel.is_resynchronizing()) {
            break;
        }
        std::thread::sleep(PAUSE);
    }
    for (table, v4, v6) in &discrepancies {
        diff.report(*table, v4, emit)?;
        diff.report(*table, v6, emit)?;
    }
    diff.totals.seconds = start.elapsed().as_secs_f64();
    emit(Item::Compared(diff.totals))?;
    Ok(())
}

impl Diff<'_> {
    /// Runs a query on the control thread.
    fn call<R: Send + 'static>(
        &self,
        query: impl FnOnce(&Plane) -> R + Send + 'static,
    ) -> Result<R, RequestError> {
        let result = self.control.call(move |sync| query(&sync.plane));
        result.ok_or_else(|| RequestError::Failed("the control thread does not answer".into()))
    }

    /// Reads the kernel's messages that have arrived.
    fn follow(&mut self) -> Result<(), RequestError> {
        while self.kernel.pump(&mut NullFollower, usize::MAX)?.more {}
        Ok(())
    }

    /// Compares a table of a family once; returns the discrepancies.
    fn compare<A: AuditFamily>(&mut self, table: u32) -> Result<Vec<Discrepancy<A>>, RequestError> {
        let mut discrepancies = Vec::new();
        let mut addresses = Vec::new();
        let mut random = fastrand::Rng::with_seed(self.options.seed);
        let mirror = self.kernel.mirror();
        let mut kernel =
            A::routes(mirror, table).filter(|(prefix, _)| is_compared(*prefix)).peekable();
        // Prefixes shorter than a block; the walk counts the kernel's.
        let short = self.call(move |plane| fetch_block::<A>(plane, table, None))?;
        let mut unmatched_short = 0;
        for top in 0..1 << BLOCK_LEN {
            let prefix = Prefix::truncate(A::from_bits(top, 0, BLOCK_LEN), BLOCK_LEN);
            let block = self.call(move |plane| fetch_block::<A>(plane, table, Some(prefix)))?;
            for (prefix, hop, agrees) in block.routes {
                let target = block.targets.get(&hop);
                let is_route = matches!(target, Some(HopTarget::Route(_)));
                if !agrees {
                    discrepancies.push(Discrepancy::Table(prefix));
                }
                while let Some((missing, _)) = kernel.next_if(|(next, _)| *next < prefix) {
                    if missing.len() >= BLOCK_LEN {
                        discrepancies.push(Discrepancy::Route(missing));
                    } else {
                        unmatched_short += 1;
                    }
                }
                let of_kernel = kernel.next_if(|(next, _)| *next == prefix);
                if !is_same_route(target, of_kernel.map(|(_, info)| &*info.target)) {
                    discrepancies.push(Discrepancy::Route(prefix));
                }
                if is_route {
                    self.totals.routes += 1;
                    if random.u32(0..1000) < self.options.sample {
                        addresses.push(draw_address(prefix, &mut random));
                    }
                }
            }
        }
        for (missing, _) in kernel {
            if missing.len() >= BLOCK_LEN {
                discrepancies.push(Discrepancy::Route(missing));
            } else {
                unmatched_short += 1;
            }
        }
        for (prefix, hop, agrees) in &short.routes {
            let of_kernel = A::best(mirror, table, *prefix);
            unmatched_short -= i64::from(of_kernel.is_some());
            self.totals.routes += 1;
            if !agrees {
                discrepancies.push(Discrepancy::Table(*prefix));
            }
            if !is_same_route(short.targets.get(hop), of_kernel.map(|info| &*info.target)) {
                discrepancies.push(Discrepancy::Route(*prefix));
            }
            addresses.push(draw_address(*prefix, &mut random));
        }
        if unmatched_short != 0 {
            // The kernel has short prefixes that the router lacks.
            let of_router: Vec<_> = short.routes.iter().map(|(prefix, ..)| *prefix).collect();
            let of_kernel = A::routes(mirror, table).map(|(prefix, _)| prefix);
            let missing =
                of_kernel.filter(|prefix| prefix.len() < BLOCK_LEN && !of_router.contains(prefix));
            discrepancies.extend(missing.map(Discrepancy::Route));
        }
        addresses.retain(|address| table == MAIN && is_resolvable(address.ip()));
        self.totals.addresses += addresses.len() as u64;
        let addresses: Vec<_> = addresses.into_iter().map(Discrepancy::Address).collect();
        discrepancies.extend(self.recheck(table, &addresses)?);
        Ok(discrepancies)
    }

    /// Compares discrepancies once more; returns those that remain.
    fn recheck<A: AuditFamily>(
        &mut self,
        table: u32,
        discrepancies: &[Discrepancy<A>],
    ) -> Result<Vec<Discrepancy<A>>, RequestError> {
        let mut left = Vec::new();
        self.compare_each(table, discrepancies, &mut |comparison| {
            left.extend((!comparison.agrees).then_some(comparison.discrepancy));
            Ok(())
        })?;
        Ok(left)
    }

    /// Queries both sides for each discrepancy and hands the comparison to `handle`.
    fn compare_each<A: AuditFamily>(
        &mut self,
        table: u32,
        discrepancies: &[Discrepancy<A>],
        handle: &mut dyn FnMut(Comparison<'_, A>) -> io::Result<()>,
    ) -> Result<(), RequestError> {
        for batch in discrepancies.chunks(BATCH) {
            let queries = batch.to_vec();
            let answers = self.call(move |plane| {
                let answers = queries.iter().map(|query| router_answer(plane, table, query));
                answers.collect::<Vec<_>>()
            })?;
            for (discrepancy, router) in batch.iter().zip(&answers) {
                let (kernel, agrees) = match *discrepancy {
                    Discrepancy::Route(prefix) => {
                        let of_kernel = A::best(self.kernel.mirror(), table, prefix);
                        let target = of_kernel.map(|info| Arc::clone(&info.target));
                        let agrees = is_same_route(router.routes.as_ref(), target.as_deref());
                        (target.map(|target| (prefix.to_string(), target)), agrees)
                    }
                    Discrepancy::Table(_) => (None, router.is_consistent),
                    Discrepancy::Address(address) => {
                        self.query_kernel(table, address.ip(), router)?
                    }
                };
                handle(Comparison { discrepancy: *discrepancy, router, kernel, agrees })?;
            }
        }
        Ok(())
    }

    /// Queries the kernel's own lookup for an address; returns its route, and whether the router
    /// agrees.
    fn query_kernel<A: AuditFamily>(
        &mut self,
        table: u32,
        address: IpAddr,
        router: &RouterAnswer<A>,
    ) -> Result<(KernelRoute, bool), RequestError> {
        let of_router = router.table.as_ref();
        // A route of type `throw` leaves the table: the rules decide.
        if matches!(of_router, Some(HopTarget::Route(route)) if **route == Target::Throw) {
            return Ok((None, true));
        }
        Ok(match kernel_route(&mut self.lookup, table, address, router.is_own)? {
            None => (None, true),
            Some(route) => {
                let target = route.as_ref().map(|(_, target)| &**target);
                (route.clone(), is_same_path(of_router, target))
            }
        })
    }

    /// Emits the discrepancies that still differ.
    fn report<A: AuditFamily>(
        &mut self,
        table: u32,
        discrepancies: &[Discrepancy<A>],
        emit: &mut dyn FnMut(Item) -> io::Result<()>,
    ) -> Result<(), RequestError> {
        let links = self.kernel.mirror().links();
        let names: HashMap<u32, String> =
            links.iter().map(|(&index, link)| (index, link.name.clone())).collect();
        let dev = |index: u32| names.get(&index).cloned().unwrap_or(format!("if{index}"));
        let view = |prefix: String, target: &HopTarget| {
            let TargetView { kind, via } = target_view(&dev, target);
            RouteView { prefix, kind: kind.to_owned(), via }
        };
        let mut count = 0;
        self.compare_each(table, discrepancies, &mut |comparison| {
            let Comparison { discrepancy, router, kernel, agrees } = comparison;
            if agrees {
                return Ok(());
            }
            count += 1;
            let router_view = |prefix: String, target: &Option<HopTarget>| {
                target.as_ref().map(|target| view(prefix, target))
            };
            let longest = router.prefix.map_or_else(String::new, |prefix| prefix.to_string());
            let kernel = kernel.map(|(prefix, target)| view(prefix, &HopTarget::Route(target)));
            let (what, of, kernel, router) = match discrepancy {
                Discrepancy::Route(prefix) => {
                    let routes = router_view(prefix.to_string(), &router.routes);
                    ("route", prefix.to_string(), kernel, routes)
                }
                Discrepancy::Table(prefix) => {
                    let routes = router_view(longest, &router.routes);
                    ("table", prefix.to_string(), routes, router_view(String::new(), &router.table))
                }
                Discrepancy::Address(address) => {
                    let table = router_view(longest, &router.table);
                    ("address", address.ip().to_string(), kernel, table)
                }
            };
            emit(Item::Difference(Difference { what: what.to_owned(), table, of, kernel, router }))
        })?;
        self.totals.differences += count;
        Ok(())
    }
}

/// Fetches the routes within `prefix`, or those that are shorter than any block.
fn fetch_block<A: AuditFamily>(
    plane: &Plane,
    number: u32,
    prefix: Option<Prefix<A>>,
) -> RouteBlock<A> {
    let mut block = RouteBlock { routes: Vec::new(), targets: HashMap::new() };
    let Some(table) = plane.table(number) else { return block };
    let fib = A::of(table);
    let rib = fib.rib();
    match prefix {
        Some(prefix) => {
            let routes: Vec<_> =
                rib.covered(prefix).filter(|(prefix, _)| is_compared(*prefix)).collect();
            let firsts: Vec<A> = routes.iter().map(|(prefix, _)| prefix.addr()).collect();
            let mut hops = vec![Hop::NONE; firsts.len()];
            fib.lookup_batch(&firsts, &mut hops);
            // In order, the last of the prefixes that begin at an address is the longest.
            let mut longest = None;
            for (&(prefix, hop), found) in routes.iter().zip(hops).rev() {
                let (first, wins) = longest.unwrap_or((prefix.addr(), hop));
                let wins = if first == prefix.addr() { wins } else { hop };
                longest = Some((prefix.addr(), wins));
                block.routes.push((prefix, hop, found == wins));
            }
            block.routes.reverse();
        }
        None => {
            for length in 0..BLOCK_LEN {
                for top in 0..1 << length {
                    let prefix = Prefix::truncate(A::from_bits(top, 0, length), length);
                    if let Some(hop) = rib.get(prefix) {
                        let longest = rib.longest(prefix.addr()).map(|(_, hop)| hop);
                        let agrees = longest == Some(fib.lookup(prefix.addr()));
                        block.routes.push((prefix, hop, agrees));
                    }
                }
            }
        }
    }
    for (_, hop, _) in &block.routes {
        if !block.targets.contains_key(hop) {
            block.targets.extend(plane.hop_target(*hop).map(|target| (*hop, target.clone())));
        }
    }
    block
}

/// Looks up the router's side of a discrepancy.
fn router_answer<A: AuditFamily>(
    plane: &Plane,
    number: u32,
    discrepancy: &Discrepancy<A>,
) -> RouterAnswer<A> {
    let empty = RouterAnswer {
        prefix: None,
        table: None,
        routes: None,
        is_consistent: true,
        is_own: false,
    };
    let Some(table) = plane.table(number) else { return empty };
    let fib = A::of(table);
    let rib = fib.rib();
    let address = match *discrepancy {
        Discrepancy::Route(prefix) => {
            let routes = rib.get(prefix).and_then(|hop| plane.hop_target(hop).cloned());
            return RouterAnswer { prefix: Some(prefix), routes, ..empty };
        }
        Discrepancy::Table(prefix) => prefix.addr(),
        Discrepancy::Address(address) => address,
    };
    let longest = rib.longest(address);
    let (wanted, found) = (longest.map_or(Hop::NONE, |(_, hop)| hop), fib.lookup(address));
    RouterAnswer {
        prefix: longest.map(|(prefix, _)| prefix),
        table: plane.hop_target(found).cloned(),
        routes: plane.hop_target(wanted).cloned(),
        is_consistent: wanted == found,
        is_own: plane.is_own(address.ip()),
    }
}

/// Draws an address within a prefix.
fn draw_address<A: AuditFamily>(prefix: Prefix<A>, random: &mut fastrand::Rng) -> A {
    let host = prefix.addr().to_u128() ^ prefix.last().to_u128();
    A::from_u128(prefix.addr().to_u128() | (random.u128(..) & host))
}
