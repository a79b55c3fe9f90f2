//! Holds the routes and tables of one family, for all of the kernel's tables that are followed,
//! by their index in the plane's list.
//!
//! ```text
//!   Separate   an Updater a table: an engine for each, chosen by its size or by name
//!   Shared     one FibsUpdater: equal parts of several tables are stored once
//! ```
//!
//! A single table is separate, on the engine that suits it best. Several tables are shared, so that
//! the second full table costs only its differences and a small one some KiB; a lookup then has
//! one load more (`fib/src/engine/dxr/shared`). If the configuration names an engine or an image
//! of the tables, they are separate: only separate tables have a named engine and can be saved.
//!
//! With forwarding in the driver, tables are separate and their words are in arrays that programs read
//! (`driver.rs`).
//!
//! [`TableView`] reads one table of either form.

use std::sync::Arc;

use feed::netlink::RouteInfo;
use fib::engine::Step;
use fib::{Choice, Family, Fib, FibsUpdater, Full, Hop, Prefix, Rib, Updater};

use super::HopTarget;
use super::hops::Hops;
use datapath::Numbered;
use xdp::BpfArrays;

/// The routes and tables of a family.
#[derive(Debug)]
pub(super) enum TableStore<A: Family> {
    Separate(Vec<Updater<A>>),
    Shared(FibsUpdater<A>),
}

impl<A: Family> TableStore<A> {
    /// Starts with `count` tables without routes: in `files`, if there are any; shared, if `shared` is set and it
    /// is possible.
    pub(super) fn new(
        count: usize,
        choice: Choice,
        shared: bool,
        files: Option<&Arc<BpfArrays>>,
    ) -> Result<Self, Full> {
        if let Some(files) = files {
            // The engine that programs look up in.
            let choice = if choice == Choice::Auto { Choice::Flat } else { choice };
            let each =
                (0..count).map(|_| Updater::new_in(Rib::new(), choice, 1, Arc::clone(files) as _));
            return Ok(Self::Separate(each.collect::<Result<_, _>>()?));
        }
        if shared && count > 1 && choice == Choice::Auto {
            let mut tables = FibsUpdater::new()?;
            for _ in 0..count {
                tables.add(Rib::new());
            }
            tables.commit()?;
            return Ok(Self::Shared(tables));
        }
        let each = (0..count).map(|_| Updater::new(Rib::new(), choice, 1));
        Ok(Self::Separate(each.collect::<Result<_, _>>()?))
    }

    pub(super) fn readers(&self) -> Numbered<A> {
        match self {
            Self::Separate(tables) => Numbered::Apart(tables.iter().map(Updater::reader).collect()),
            Self::Shared(tables) => Numbered::Together(tables.reader()),
        }
    }

    /// Returns a view of the table with index `at`.
    pub(super) fn view(&self, at: usize) -> TableView<'_, A> {
        match self {
            Self::Separate(tables) => TableView::Separate(&tables[at]),
            Self::Shared(tables) => TableView::Shared(tables, at),
        }
    }

    /// Announces a prefix with a hop, or withdraws it; returns the previous hop.
    pub(super) fn set_route(
        &mut self,
        at: usize,
        prefix: Prefix<A>,
        hop: Option<Hop>,
    ) -> Option<Hop> {
        match (self, hop) {
            (Self::Separate(tables), Some(hop)) => tables[at].announce(prefix, hop),
            (Self::Separate(tables), None) => tables[at].withdraw(prefix),
            (Self::Shared(tables), Some(hop)) => tables.announce(at, prefix, hop),
            (Self::Shared(tables), None) => tables.withdraw(at, prefix),
        }
    }

    /// Applies a change of a route; returns whether its hop is new and has no adjacency yet.
    pub(super) fn apply(
        &mut self,
        at: usize,
        hops: &mut Hops,
        prefix: Prefix<A>,
        best: Option<&RouteInfo>,
    ) -> bool {
        let target = best.map(|best| HopTarget::Route(best.target.clone()));
        // If no index is left, which takes four billion targets, the route is dropped.
        let hop = target.and_then(|target| hops.acquire(&target).ok());
        let old = self.set_route(at, prefix, hop.map(|(hop, _)| hop));
        hops.release(old.unwrap_or(Hop::NONE));
        hop.is_some_and(|(_, new)| new)
    }

    /// Publishes the changes of every table; an error of one does not stop the others. Returns
    /// whether workers have all changes, the number of tables published, and the last error.
    pub(super) fn commit(&mut self) -> (bool, u64, Option<Full>) {
        let (mut published, mut commits, mut full) = (true, 0, None);
        let mut record = |result: Result<fib::Commit, Full>| match result {
            Ok(commit) => {
                published &= commit.published;
                commits += 1;
            }
            Err(error) => full = Some(error),
        };
        match self {
            Self::Separate(tables) => {
                for table in tables.iter_mut().filter(|table| table.is_behind()) {
                    record(table.commit());
                }
            }
            Self::Shared(tables) if tables.is_behind() => record(tables.commit()),
            Self::Shared(_) => {}
        }
        (published, commits, full)
    }

    /// Returns whether every worker has left all tables but those published last.
    pub(super) fn passed(&self) -> bool {
        match self {
            Self::Separate(tables) => tables.iter().all(Updater::passed),
            Self::Shared(tables) => tables.passed(),
        }
    }

    /// Publishes a table of an image in place of the routes' table, where tables are separate.
    pub(super) fn adopt(&mut self, at: usize, fib: Fib<A>) {
        if let Self::Separate(tables) = self {
            tables[at].adopt(fib);
        }
    }
}

/// A view of one table: its routes and its engine.
#[derive(Clone, Copy, Debug)]
pub enum TableView<'a, A: Family> {
    /// A separate table.
    Separate(&'a Updater<A>),
    /// The table of this index among shared ones.
    Shared(&'a FibsUpdater<A>, usize),
}

impl<'a, A: Family> TableView<'a, A> {
    /// Returns the routes.
    pub fn rib(self) -> &'a Rib<A> {
        match self {
            Self::Separate(table) => table.rib(),
            Self::Shared(tables, at) => match tables.rib(at) {
                Some(rib) => rib,
                None => unreachable!("the plane removes no table"),
            },
        }
    }

    /// Looks an address up, as workers do.
    pub fn lookup(self, address: A) -> Hop {
        match self {
            Self::Separate(table) => table.fib().lookup(address),
            Self::Shared(tables, at) => tables.fibs().lookup(at, address),
        }
    }

    /// Looks `addresses[i]` up into `hops[i]` for every i.
    ///
    /// # Panics
    ///
    /// If the slices differ in length.
    pub fn lookup_batch(self, addresses: &[A], hops: &mut [Hop]) {
        match self {
            Self::Separate(table) => table.fib().lookup_batch(addresses, hops),
            Self::Shared(tables, at) => tables.fibs().lookup_batch(at, addresses, hops),
        }
    }

    /// Looks an address up and returns every load of the lookup.
    pub fn trace(self, address: A) -> (Hop, Vec<Step>) {
        match self {
            Self::Separate(table) => table.fib().trace(address),
            Self::Shared(tables, at) => tables.fibs().trace(at, address),
        }
    }

    /// Returns the table that workers read, if it is separate.
    pub fn fib(self) -> Option<&'a Fib<A>> {
        match self {
            Self::Separate(table) => Some(table.fib()),
            Self::Shared(..) => None,
        }
    }

    /// Returns the name of the engine.
    pub fn engine(self) -> String {
        self.fib().map_or_else(|| "shared".to_owned(), Fib::name)
    }

    /// Returns whether other tables share its memory.
    pub fn is_shared(self) -> bool {
        matches!(self, Self::Shared(..))
    }

    /// Returns the bytes that lookups may touch; of shared tables, those of all together.
    pub fn footprint(self) -> usize {
        match self {
            Self::Separate(table) => table.fib().footprint(),
            Self::Shared(tables, _) => tables.fibs().footprint(),
        }
    }

    /// Returns the number of publications since the first.
    pub fn generation(self) -> u64 {
        match self {
            Self::Separate(table) => table.generation(),
            Self::Shared(tables, _) => tables.generation(),
        }
    }

    /// Returns whether a commit would change the table that workers read.
    pub fn is_behind(self) -> bool {
        match self {
            Self::Separate(table) => table.is_behind(),
            Self::Shared(tables, _) => tables.is_behind(),
        }
    }
}
