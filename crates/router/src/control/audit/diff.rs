//! `fib diff kernel`: every route held against the kernel's, and a sample of addresses.
//!
//! ```text
//!   Kernel::start, a connection of its own ─► every route, as a fresh dump says
//!   plane, in pieces of a /8 ─► routes ──────────── walked side by side ─┐
//!                            └► workers' table, at each route's first address ─┤ doubts
//!   some addresses ─► RTM_GETROUTE fibmatch, workers' table ─────────────┘  │
//!                    settle: what differs is compared again and again ◄─────┘
//!                    what still differs at the end ─► told
//! ```
//!
//! Nothing of the router's own picture of the kernel is used: neither its mirror nor its
//! sockets. The parser is the same code, which is why a sample of addresses is asked of
//! the kernel's own lookup as well, and why `smoke/routes.py`, which shares nothing with
//! the router, stays.
//!
//! The control thread is asked for a /8 at a time, so that following the kernel stops for
//! a few milliseconds at the most. Between two pieces, and between them and the dump, routes
//! change: whatever differs is looked at again until it agrees, or until `settle` is over.
//! In the meantime the connection follows the kernel's changes as well.
//!
//! The workers' table is looked up at the first address of every route, where the longest
//! route that begins there must win; this finds a table that is not made of its routes
//! (an engine at its limit keeps the last table it could make).
//!
//! Only addresses of the main table are asked of the kernel, as for others it would have
//! to be told where the packet comes from; an answer by another table than the main one
//! (an address of the host's own; policy rules) is not compared.
//!
//! Memory: a mirror of the kernel while it lasts, about 40 bytes a route.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use feed::netlink::{AnyPrefix, Found, Kernel, Lookup, Nobody, Target};
use fib::{Family, Hop, Prefix};

use super::{Side, compared, resolvable, same_route, same_way};
use crate::control::api::{Compared, Difference, Item, RouteView};
use crate::control::handle::ControlHandle;
use crate::control::items::words;
use crate::control::kernel_sync::KernelSync;
use crate::control::plane::{HopTarget, Plane};

/// The kernel's main table.
pub(super) const MAIN: u32 = 254;
/// The bits of the address by which routes are fetched in pieces.
const PIECE: u32 = 8;
/// How many doubts are looked at in one question.
const DOUBTS: usize = 4096;
/// How long doubts are left alone between two looks.
const PAUSE: Duration = Duration::from_millis(20);
/// The longest settling.
const LONGEST: Duration = Duration::from_secs(60);

/// How to compare.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    /// How long what differs may take to agree.
    pub(crate) settle: Duration,
    /// Addresses asked of the kernel, for each thousand routes.
    pub(crate) sample: u32,
    /// What the addresses are drawn by.
    pub(crate) seed: u64,
}

/// Why a comparison came to no end.
#[derive(Debug)]
pub(crate) enum Ended {
    /// Whoever asked does not listen any more.
    Client(io::Error),
    /// In words.
    Words(String),
}

impl From<io::Error> for Ended {
    fn from(error: io::Error) -> Self {
        Self::Client(error)
    }
}

impl From<feed::netlink::Error> for Ended {
    fn from(error: feed::netlink::Error) -> Self {
        Self::Words(format!("the kernel cannot be compared with: {error}"))
    }
}

/// Who is compared, and how far that has come.
struct Diff<'a> {
    control: &'a ControlHandle<KernelSync>,
    kernel: Kernel,
    lookup: Lookup,
    settings: Settings,
    done: Compared,
}

/// What may differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doubt<A: Family> {
    /// The routes for a prefix.
    Route(Prefix<A>),
    /// The workers' table and the routes, at the first address of a prefix.
    Table(Prefix<A>),
    /// Where packets to an address go.
    Address(A),
}

/// What the router says of a doubt.
#[derive(Clone, Debug)]
struct Says<A: Family> {
    /// By the workers' table.
    prefix: Option<Prefix<A>>,
    table: Option<HopTarget>,
    /// By the routes.
    routes: Option<HopTarget>,
    alike: bool,
}

/// A doubt, looked at.
struct Judged<'a, A: Family> {
    doubt: Doubt<A>,
    says: &'a Says<A>,
    /// What the kernel has, and for which prefix.
    kernel: Option<(String, Target)>,
    same: bool,
}

/// Routes of a piece of the table: each with its hop, and the one that the workers' table
/// has for the first address.
struct Piece<A: Family> {
    routes: Vec<(Prefix<A>, Hop, bool)>,
    ways: HashMap<Hop, HopTarget>,
}

/// Compares, and tells every difference and at the end what was compared.
///
/// # Errors
///
/// [`Ended`].
pub(crate) fn run(
    control: &ControlHandle<KernelSync>,
    settings: Settings,
    tell: &mut dyn FnMut(Item) -> io::Result<()>,
) -> Result<(), Ended> {
    let start = Instant::now();
    let settings = Settings { settle: settings.settle.min(LONGEST), ..settings };
    let mut kernel = Kernel::open()?;
    kernel.start(&mut Nobody)?;
    let done = Compared { seed: settings.seed, ..Compared::default() };
    let mut diff = Diff { control, kernel, lookup: Lookup::open()?, settings, done };
    let tables = diff.call(|plane| plane.tables().map(|it| it.number).collect::<Vec<_>>())?;
    let mut doubts = Vec::new();
    for &table in &tables {
        doubts.push((table, diff.compare::<u32>(table)?, diff.compare::<u128>(table)?));
    }
    let until = Instant::now() + settings.settle;
    loop {
        diff.follow()?;
        let mut left = 0;
        for (table, v4, v6) in &mut doubts {
            *v4 = diff.again(*table, v4)?;
            *v6 = diff.again(*table, v6)?;
            left += v4.len() + v6.len();
        }
        if left == 0 || (Instant::now() >= until && !diff.kernel.is_resynchronizing()) {
            break;
        }
        std::thread::sleep(PAUSE);
    }
    for (table, v4, v6) in &doubts {
        diff.report(*table, v4, tell)?;
        diff.report(*table, v6, tell)?;
    }
    diff.done.seconds = start.elapsed().as_secs_f64();
    tell(Item::Compared(diff.done))?;
    Ok(())
}

impl Diff<'_> {
    /// Asks the control thread.
    fn call<R: Send + 'static>(
        &self,
        question: impl FnOnce(&Plane) -> R + Send + 'static,
    ) -> Result<R, Ended> {
        let found = self.control.call(move |it| question(&it.plane));
        found.ok_or_else(|| Ended::Words("the control thread does not answer".into()))
    }

    /// Follows the kernel as far as it has come.
    fn follow(&mut self) -> Result<(), Ended> {
        while self.kernel.pump(&mut Nobody, usize::MAX)?.more {}
        Ok(())
    }

    /// Compares a table of a family once; returns what differs.
    fn compare<A: Side>(&mut self, table: u32) -> Result<Vec<Doubt<A>>, Ended> {
        let mut doubts = Vec::new();
        let mut addresses = Vec::new();
        let mut random = fastrand::Rng::with_seed(self.settings.seed);
        let mirror = self.kernel.mirror();
        let mut kernel =
            A::routes(mirror, table).filter(|(prefix, _)| compared(*prefix)).peekable();
        // Prefixes that several pieces lie in; the kernel's are met on the way.
        let short = self.call(move |plane| piece::<A>(plane, table, None))?;
        let mut met = 0;
        for top in 0..1 << PIECE {
            let block = Prefix::truncate(A::from_bits(top, 0, PIECE), PIECE);
            let piece = self.call(move |plane| piece::<A>(plane, table, Some(block)))?;
            for (prefix, hop, agrees) in piece.routes {
                let way = piece.ways.get(&hop);
                let route = matches!(way, Some(HopTarget::Route(_)));
                if !agrees {
                    doubts.push(Doubt::Table(prefix));
                }
                while let Some((missing, _)) = kernel.next_if(|(next, _)| *next < prefix) {
                    if missing.len() >= PIECE {
                        doubts.push(Doubt::Route(missing));
                    } else {
                        met += 1;
                    }
                }
                let theirs = kernel.next_if(|(next, _)| *next == prefix);
                if !same_route(way, theirs.map(|(_, info)| &*info.target)) {
                    doubts.push(Doubt::Route(prefix));
                }
                if route {
                    self.done.routes += 1;
                    if random.u32(0..1000) < self.settings.sample {
                        addresses.push(within(prefix, &mut random));
                    }
                }
            }
        }
        for (missing, _) in kernel {
            if missing.len() >= PIECE {
                doubts.push(Doubt::Route(missing));
            } else {
                met += 1;
            }
        }
        for (prefix, hop, agrees) in &short.routes {
            let theirs = A::best(mirror, table, *prefix);
            met -= i64::from(theirs.is_some());
            self.done.routes += 1;
            if !agrees {
                doubts.push(Doubt::Table(*prefix));
            }
            if !same_route(short.ways.get(hop), theirs.map(|info| &*info.target)) {
                doubts.push(Doubt::Route(*prefix));
            }
            addresses.push(within(*prefix, &mut random));
        }
        if met != 0 {
            // The kernel has short prefixes that the router has not.
            let ours: Vec<_> = short.routes.iter().map(|(prefix, ..)| *prefix).collect();
            let theirs = A::routes(mirror, table).map(|(prefix, _)| prefix);
            let missing = theirs.filter(|it| it.len() < PIECE && !ours.contains(it));
            doubts.extend(missing.map(Doubt::Route));
        }
        addresses.retain(|address| table == MAIN && resolvable(address.ip()));
        self.done.addresses += addresses.len() as u64;
        let addresses: Vec<_> = addresses.into_iter().map(Doubt::Address).collect();
        doubts.extend(self.again(table, &addresses)?);
        Ok(doubts)
    }

    /// Looks at doubts once more; returns those that stay.
    fn again<A: Side>(&mut self, table: u32, doubts: &[Doubt<A>]) -> Result<Vec<Doubt<A>>, Ended> {
        let mut left = Vec::new();
        self.judge(table, doubts, &mut |it| {
            left.extend((!it.same).then_some(it.doubt));
            Ok(())
        })?;
        Ok(left)
    }

    /// Asks both sides of each doubt, and hands what they say, and whether it is the same,
    /// to `hear`.
    fn judge<A: Side>(
        &mut self,
        table: u32,
        doubts: &[Doubt<A>],
        hear: &mut dyn FnMut(Judged<'_, A>) -> io::Result<()>,
    ) -> Result<(), Ended> {
        for some in doubts.chunks(DOUBTS) {
            let asked = some.to_vec();
            let says = self.call(move |plane| {
                asked.iter().map(|doubt| say(plane, table, doubt)).collect::<Vec<_>>()
            })?;
            for (doubt, says) in some.iter().zip(&says) {
                let (kernel, same) = match *doubt {
                    Doubt::Route(prefix) => {
                        let theirs = A::best(self.kernel.mirror(), table, prefix);
                        let target = theirs.map(|info| (*info.target).clone());
                        let same = same_route(says.routes.as_ref(), target.as_ref());
                        (target.map(|target| (prefix.to_string(), target)), same)
                    }
                    Doubt::Table(_) => (None, says.alike),
                    Doubt::Address(address) => {
                        let (kernel, same) = self.resolve(table, address.ip(), says)?;
                        (kernel, same)
                    }
                };
                hear(Judged { doubt: *doubt, says, kernel, same })?;
            }
        }
        Ok(())
    }

    /// Asks the kernel's own lookup for an address.
    fn resolve<A: Side>(
        &mut self,
        table: u32,
        address: IpAddr,
        says: &Says<A>,
    ) -> Result<(Option<(String, Target)>, bool), Ended> {
        // Where a route leads out of the table the rules decide.
        let throws = matches!(&says.table, Some(HopTarget::Route(it)) if **it == Target::Throw);
        let ours = says.table.as_ref();
        Ok(match self.lookup.get(address)? {
            Found::Route { table: other, .. } if other != table => (None, true),
            _ if throws => (None, true),
            Found::Route { prefix, info, .. } => {
                let same = same_way(ours, Some(&info.target));
                (Some((show(&prefix), (*info.target).clone())), same)
            }
            Found::Refused(target) => {
                let same = same_way(ours, Some(&target));
                (Some((address.to_string(), target)), same)
            }
            Found::Nothing => (None, ours.is_none()),
        })
    }

    /// Tells of the doubts that are differences.
    fn report<A: Side>(
        &mut self,
        table: u32,
        doubts: &[Doubt<A>],
        tell: &mut dyn FnMut(Item) -> io::Result<()>,
    ) -> Result<(), Ended> {
        let links = self.kernel.mirror().links();
        let names: HashMap<u32, String> =
            links.iter().map(|(&index, link)| (index, link.name.clone())).collect();
        let dev = |index: u32| names.get(&index).cloned().unwrap_or(format!("if{index}"));
        let said = |prefix: String, way: &HopTarget| {
            let words = words(&dev, way);
            RouteView { prefix, kind: words.kind.to_owned(), via: words.via }
        };
        let mut count = 0;
        self.judge(table, doubts, &mut |Judged { doubt, says, kernel, same }| {
            if same {
                return Ok(());
            }
            count += 1;
            let mine =
                |prefix: String, way: &Option<HopTarget>| way.as_ref().map(|way| said(prefix, way));
            let found = says.prefix.map_or_else(String::new, |prefix| prefix.to_string());
            let kernel =
                kernel.map(|(prefix, target)| said(prefix, &HopTarget::Route(target.into())));
            let (what, of, kernel, router) = match doubt {
                Doubt::Route(prefix) => {
                    ("route", prefix.to_string(), kernel, mine(prefix.to_string(), &says.routes))
                }
                Doubt::Table(prefix) => {
                    let routes = mine(found, &says.routes);
                    ("table", prefix.to_string(), routes, mine(String::new(), &says.table))
                }
                Doubt::Address(address) => {
                    ("address", address.ip().to_string(), kernel, mine(found, &says.table))
                }
            };
            tell(Item::Difference(Difference { what: what.to_owned(), table, of, kernel, router }))
        })?;
        self.done.differences += count;
        Ok(())
    }
}

/// Fetches the routes within a block, or those that are shorter than any block.
fn piece<A: Side>(plane: &Plane, number: u32, block: Option<Prefix<A>>) -> Piece<A> {
    let mut piece = Piece { routes: Vec::new(), ways: HashMap::new() };
    let Some(table) = plane.table(number) else { return piece };
    let fib = A::one(table);
    let rib = fib.rib();
    match block {
        Some(block) => {
            let routes: Vec<_> = rib.covered(block).filter(|(it, _)| compared(*it)).collect();
            let firsts: Vec<A> = routes.iter().map(|(prefix, _)| prefix.addr()).collect();
            let mut hops = vec![Hop::NONE; firsts.len()];
            fib.lookup_batch(&firsts, &mut hops);
            // In order: of the prefixes that begin at an address the longest is the last.
            let mut longest = None;
            for (&(prefix, hop), found) in routes.iter().zip(hops).rev() {
                let (first, wins) = longest.unwrap_or((prefix.addr(), hop));
                let wins = if first == prefix.addr() { wins } else { hop };
                longest = Some((prefix.addr(), wins));
                piece.routes.push((prefix, hop, found == wins));
            }
            piece.routes.reverse();
        }
        None => {
            for length in 0..PIECE {
                for top in 0..1 << length {
                    let prefix = Prefix::truncate(A::from_bits(top, 0, length), length);
                    if let Some(hop) = rib.get(prefix) {
                        let longest = rib.longest(prefix.addr()).map(|(_, hop)| hop);
                        let agrees = longest == Some(fib.lookup(prefix.addr()));
                        piece.routes.push((prefix, hop, agrees));
                    }
                }
            }
        }
    }
    for (_, hop, _) in &piece.routes {
        if !piece.ways.contains_key(hop) {
            piece.ways.extend(plane.hop_target(*hop).map(|way| (*hop, way.clone())));
        }
    }
    piece
}

/// Says what the router has of a doubt.
fn say<A: Side>(plane: &Plane, number: u32, doubt: &Doubt<A>) -> Says<A> {
    let nothing = Says { prefix: None, table: None, routes: None, alike: true };
    let Some(table) = plane.table(number) else { return nothing };
    let fib = A::one(table);
    let rib = fib.rib();
    let address = match *doubt {
        Doubt::Route(prefix) => {
            let way = rib.get(prefix).and_then(|hop| plane.hop_target(hop).cloned());
            return Says { prefix: Some(prefix), routes: way, ..nothing };
        }
        Doubt::Table(prefix) => prefix.addr(),
        Doubt::Address(address) => address,
    };
    let longest = rib.longest(address);
    let (wanted, found) = (longest.map_or(Hop::NONE, |(_, hop)| hop), fib.lookup(address));
    Says {
        prefix: longest.map(|(prefix, _)| prefix),
        table: plane.hop_target(found).cloned(),
        routes: plane.hop_target(wanted).cloned(),
        alike: wanted == found,
    }
}

/// Draws an address within a prefix.
fn within<A: Side>(prefix: Prefix<A>, random: &mut fastrand::Rng) -> A {
    let host = prefix.addr().to_u128() ^ prefix.last().to_u128();
    A::from_u128(prefix.addr().to_u128() | (random.u128(..) & host))
}

pub(super) fn show(prefix: &AnyPrefix) -> String {
    match prefix {
        AnyPrefix::V4(prefix) => prefix.to_string(),
        AnyPrefix::V6(prefix) => prefix.to_string(),
    }
}
