//! The store: routes and tables of one family, those of all the kernel's tables that are
//! followed, by their place in the plane's list.
//!
//! ```text
//!   Apart      an Updater a table: an engine for each, by its size or by name
//!   Together   one FibsUpdater: what is equal in several tables is stored once
//! ```
//!
//! One table is by itself, on the engine that suits it best. Several are together, so that
//! the second full table costs what is different in it and a small one some KiB; a lookup
//! has one load more then (`fib/src/engine/dxr/shared`). Whoever names an engine, or wants
//! an image of the tables, has them apart: only single tables are of an engine with a name,
//! and only they can be saved.
//!
//! [`One`] is one of them, to be asked: what is outside the plane sees no difference.

use feed::netlink::RouteInfo;
use fib::engine::Step;
use fib::{Choice, Family, Fib, FibsUpdater, Full, Hop, Prefix, Rib, Updater};

use super::HopTarget;
use super::hops::Hops;
use crate::datapath::Numbered;

/// Routes and tables of a family.
#[derive(Debug)]
pub(super) enum Store<A: Family> {
    Apart(Vec<Updater<A>>),
    Together(FibsUpdater<A>),
}

impl<A: Family> Store<A> {
    /// Starts with `count` tables without routes: together, if that is wanted and possible.
    pub(super) fn new(count: usize, choice: Choice, together: bool) -> Result<Self, Full> {
        if together && count > 1 && choice == Choice::Auto {
            let mut tables = FibsUpdater::new()?;
            for _ in 0..count {
                tables.add(Rib::new());
            }
            tables.commit()?;
            return Ok(Self::Together(tables));
        }
        let each = (0..count).map(|_| Updater::new(Rib::new(), choice, 1));
        Ok(Self::Apart(each.collect::<Result<_, _>>()?))
    }

    pub(super) fn readers(&self) -> Numbered<A> {
        match self {
            Self::Apart(tables) => Numbered::Apart(tables.iter().map(Updater::reader).collect()),
            Self::Together(tables) => Numbered::Together(tables.reader()),
        }
    }

    /// Returns the table of this place, if there is one.
    pub(super) fn one(&self, at: usize) -> One<'_, A> {
        match self {
            Self::Apart(tables) => One::Apart(&tables[at]),
            Self::Together(tables) => One::Together(tables, at),
        }
    }

    /// Announces a prefix with a hop, or withdraws it; returns the hop it had.
    pub(super) fn put(&mut self, at: usize, prefix: Prefix<A>, hop: Option<Hop>) -> Option<Hop> {
        match (self, hop) {
            (Self::Apart(tables), Some(hop)) => tables[at].announce(prefix, hop),
            (Self::Apart(tables), None) => tables[at].withdraw(prefix),
            (Self::Together(tables), Some(hop)) => tables.announce(at, prefix, hop),
            (Self::Together(tables), None) => tables.withdraw(at, prefix),
        }
    }

    /// Takes a route over; says whether it leads where none has led before.
    pub(super) fn follow(
        &mut self,
        at: usize,
        hops: &mut Hops,
        prefix: Prefix<A>,
        best: Option<&RouteInfo>,
    ) -> bool {
        let way = best.map(|best| HopTarget::Route(best.target.clone()));
        // Without an index left, which takes four billion ways, there is no route.
        let hop = way.and_then(|way| hops.acquire(&way).ok());
        let old = self.put(at, prefix, hop.map(|(hop, _)| hop));
        hops.release(old.unwrap_or(Hop::NONE));
        hop.is_some_and(|(_, new)| new)
    }

    /// Publishes what has changed; says whether workers have all of it, and how many tables
    /// were published. Those that can be are, whatever is said of another.
    pub(super) fn commit(&mut self) -> (bool, u64, Option<Full>) {
        let (mut published, mut commits, mut full) = (true, 0, None);
        let mut note = |result: Result<fib::Commit, Full>| match result {
            Ok(commit) => {
                published &= commit.published;
                commits += 1;
            }
            Err(error) => full = Some(error),
        };
        match self {
            Self::Apart(tables) => {
                tables.iter_mut().filter(|it| it.is_behind()).for_each(|it| note(it.commit()));
            }
            Self::Together(tables) if tables.is_behind() => note(tables.commit()),
            Self::Together(_) => {}
        }
        (published, commits, full)
    }

    /// Says whether every worker has left all tables but those published last.
    pub(super) fn passed(&self) -> bool {
        match self {
            Self::Apart(tables) => tables.iter().all(Updater::passed),
            Self::Together(tables) => tables.passed(),
        }
    }

    /// Publishes a table of an image in place of that of the routes, where tables are apart.
    pub(super) fn adopt(&mut self, at: usize, fib: Fib<A>) {
        if let Self::Apart(tables) = self {
            tables[at].adopt(fib);
        }
    }
}

/// The routes of one table, and what was made of them.
#[derive(Clone, Copy, Debug)]
pub enum One<'a, A: Family> {
    /// It is by itself.
    Apart(&'a Updater<A>),
    /// It is the one of this number among several.
    Together(&'a FibsUpdater<A>, usize),
}

impl<'a, A: Family> One<'a, A> {
    /// Returns the routes.
    pub fn rib(self) -> &'a Rib<A> {
        match self {
            Self::Apart(table) => table.rib(),
            Self::Together(tables, at) => match tables.rib(at) {
                Some(rib) => rib,
                None => unreachable!("the plane removes no table"),
            },
        }
    }

    /// Looks an address up, as workers do.
    pub fn lookup(self, address: A) -> Hop {
        match self {
            Self::Apart(table) => table.fib().lookup(address),
            Self::Together(tables, at) => tables.fibs().lookup(at, address),
        }
    }

    /// Looks `addresses[i]` up into `hops[i]` for every i.
    ///
    /// # Panics
    ///
    /// If the slices differ in length.
    pub fn lookup_batch(self, addresses: &[A], hops: &mut [Hop]) {
        match self {
            Self::Apart(table) => table.fib().lookup_batch(addresses, hops),
            Self::Together(tables, at) => tables.fibs().lookup_batch(at, addresses, hops),
        }
    }

    /// Looks an address up slowly, and tells every load.
    pub fn trace(self, address: A) -> (Hop, Vec<Step>) {
        match self {
            Self::Apart(table) => table.fib().trace(address),
            Self::Together(tables, at) => tables.fibs().trace(at, address),
        }
    }

    /// Returns the table that workers have, if it is by itself.
    pub fn fib(self) -> Option<&'a Fib<A>> {
        match self {
            Self::Apart(table) => Some(table.fib()),
            Self::Together(..) => None,
        }
    }

    /// Names the engine.
    pub fn engine(self) -> String {
        self.fib().map_or_else(|| "shared".to_owned(), Fib::name)
    }

    /// Says whether other tables are in the same memory.
    pub fn is_shared(self) -> bool {
        matches!(self, Self::Together(..))
    }

    /// Returns the bytes that lookups may touch; those of all that share them, if they do.
    pub fn footprint(self) -> usize {
        match self {
            Self::Apart(table) => table.fib().footprint(),
            Self::Together(tables, _) => tables.fibs().footprint(),
        }
    }

    /// Returns how many tables have been published since the first.
    pub fn generation(self) -> u64 {
        match self {
            Self::Apart(table) => table.generation(),
            Self::Together(tables, _) => tables.generation(),
        }
    }

    /// Says whether a commit would change what workers see.
    pub fn is_behind(self) -> bool {
        match self {
            Self::Apart(table) => table.is_behind(),
            Self::Together(tables, _) => tables.is_behind(),
        }
    }
}
