//! Routes of many tables and the published tables that are kept equal to them.
//!
//! It does for many tables what [`Updater`](crate::Updater) does for one: a commit lays the changed
//! blocks out again, each once, and publishes one [`Fibs`] for all tables; two copies alternate
//! (`double_buffer.rs`). The addition or removal of a table is such a change too. The number of a
//! removed table is given to the next one added.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;
use core::mem;

use super::{Fibs, Layout, build, lay_out};
use crate::double_buffer::DoubleBuffer;
use crate::runs::sweep_block;
use crate::{Commit, Family, Full, Hop, Prefix, Reader, Rib};

/// The routes of many tables, the tables made of them, and their readers.
///
/// # Examples
///
/// ```
/// use fingerpost_fib::{FibsUpdater, Hop, Rib};
/// let mut routers = FibsUpdater::<u32>::new()?;
/// let mut reader = routers.reader();
/// let (red, blue) = (routers.add(Rib::new()), routers.add(Rib::new()));
/// routers.announce(red, "10.0.0.0/8".parse()?, Hop(1));
/// routers.announce(blue, "10.0.0.0/8".parse()?, Hop(2));
/// routers.commit()?;
/// assert_eq!(reader.current().lookup(blue, 0x0a00_0001), Hop(2));
///
/// routers.remove(red);
/// routers.commit()?;
/// assert_eq!(reader.current().lookup(red, 0x0a00_0001), Hop::NONE);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct FibsUpdater<A: Family> {
    /// By number; `None` where a table was removed.
    ribs: Vec<Option<Rib<A>>>,
    /// The tables added or removed since the last commit.
    whole: Vec<usize>,
    layout: Box<dyn Layout<A>>,
    buffers: DoubleBuffer<Fibs<A>>,
    /// The layout holds changes that are not yet published.
    behind: bool,
    /// The layout has exceeded a limit during a patch and must be replaced.
    broken: bool,
    /// The number of states published after the first.
    publications: u64,
}

impl<A: Family> FibsUpdater<A> {
    /// Starts without tables.
    ///
    /// # Errors
    ///
    /// None at present; [`Full`] is the error of a build.
    pub fn new() -> Result<Self, Full> {
        let layout = build(&[].into_iter())?;
        let buffers = DoubleBuffer::new(Fibs { tables: layout.freeze() });
        let (ribs, whole) = (Vec::new(), Vec::new());
        Ok(Self { ribs, whole, layout, buffers, behind: false, broken: false, publications: 0 })
    }

    /// Adds a table of `rib`'s routes, from the next commit on, and returns its number.
    pub fn add(&mut self, rib: Rib<A>) -> usize {
        let free = self.ribs.iter().position(Option::is_none);
        let table = free.unwrap_or_else(|| {
            self.ribs.push(None);
            self.ribs.len() - 1
        });
        self.ribs[table] = Some(rib);
        self.whole.push(table);
        table
    }

    /// Removes a table, from the next commit on, and returns its routes; `None` if there is no such
    /// table. A later table may get its number.
    pub fn remove(&mut self, table: usize) -> Option<Rib<A>> {
        let rib = self.ribs.get_mut(table)?.take()?;
        self.whole.push(table);
        Some(rib)
    }

    /// Returns a table's routes.
    pub fn rib(&self, table: usize) -> Option<&Rib<A>> {
        self.ribs.get(table)?.as_ref()
    }

    /// Lists the numbers of the tables.
    pub fn tables(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.ribs.len()).filter(|&table| self.ribs[table].is_some())
    }

    /// Returns the published tables.
    pub fn fibs(&self) -> &Fibs<A> {
        self.buffers.current()
    }

    /// Adds a reader, for one thread that looks addresses up.
    pub fn reader(&self) -> Reader<Fibs<A>> {
        self.buffers.reader()
    }

    /// Returns whether every reader has left all tables but those published last. Hops that are not in
    /// those may then be assigned to other next hops.
    pub fn passed(&self) -> bool {
        self.buffers.passed()
    }

    /// Returns how many states of the tables were published after the first.
    pub fn generation(&self) -> u64 {
        self.publications
    }

    /// Adds a route to a table or changes its hop, from the next commit on. Returns
    /// the hop it had.
    ///
    /// # Panics
    ///
    /// If there is no such table.
    pub fn announce(&mut self, table: usize, prefix: Prefix<A>, hop: Hop) -> Option<Hop> {
        self.routes(table).insert(prefix, hop)
    }

    /// Removes a route from a table, from the next commit on, and returns the hop it
    /// had.
    ///
    /// # Panics
    ///
    /// If there is no such table.
    pub fn withdraw(&mut self, table: usize, prefix: Prefix<A>) -> Option<Hop> {
        self.routes(table).remove(prefix)
    }

    fn routes(&mut self, table: usize) -> &mut Rib<A> {
        match self.ribs.get_mut(table) {
            Some(Some(rib)) => rib,
            _ => panic!("there is no table {table}"),
        }
    }

    /// Returns whether a commit would change the tables that readers get.
    pub fn is_behind(&self) -> bool {
        let dirty = |rib: &Rib<A>| rib.dirty_len() > 0;
        self.behind
            || self.broken
            || !self.whole.is_empty()
            || self.ribs.iter().flatten().any(dirty)
    }

    /// Publishes all changes of all tables since the last commit as one.
    ///
    /// # Errors
    ///
    /// [`Full`] if the routes exceed every width of the layout. Readers keep the tables
    /// they have, the routes keep all changes, and a commit after some withdrawals may
    /// succeed.
    pub fn commit(&mut self) -> Result<Commit, Full> {
        let mut commit = Commit::default();
        if !self.is_behind() {
            commit.published = true;
            return Ok(commit);
        }
        let followed = if self.broken { Ok(None) } else { self.follow().map(Some) };
        match followed {
            // With many holes the tables outgrow the cache.
            Ok(Some(blocks))
                if self.layout.holes() <= self.fibs().footprint() / 16 + (64 << 10) =>
            {
                commit.blocks = blocks;
            }
            _ => {
                self.rebuild()?;
                commit.rebuilt = true;
            }
        }
        self.behind = true;
        let layout = &self.layout;
        commit.published = self.buffers.publish(
            || Fibs { tables: layout.freeze() },
            |idle| layout.refresh(&mut *idle.tables),
            |_| {},
        );
        self.behind = !commit.published;
        self.publications += u64::from(commit.published);
        Ok(commit)
    }

    /// Lays out the changes; returns the number of blocks.
    fn follow(&mut self) -> Result<usize, Full> {
        self.layout.extend(self.ribs.len());
        let len = self.layout.block_len();
        let mut blocks = 0;
        for table in mem::take(&mut self.whole) {
            if let Some(rib) = &mut self.ribs[table] {
                rib.mark_clean();
            }
            lay_out(&mut *self.layout, table, self.ribs[table].as_ref())?;
            blocks += 1;
        }
        let mut runs = Vec::new();
        for (table, rib) in self.ribs.iter_mut().enumerate() {
            let Some(rib) = rib else { continue };
            // From a quarter of the table on, one sweep of all is cheaper than sweeps of blocks.
            if rib.dirty_len() > 1024.max(rib.len() / 4) {
                rib.mark_clean();
                lay_out(&mut *self.layout, table, Some(rib))?;
                blocks += 1;
            } else if rib.dirty_len() > 0 {
                for block in rib.take_dirty(len) {
                    runs.clear();
                    sweep_block(rib, block, &mut runs);
                    self.layout.patch(table, block, &runs)?;
                    blocks += 1;
                }
            }
        }
        Ok(blocks)
    }

    fn rebuild(&mut self) -> Result<(), Full> {
        self.whole.clear();
        self.ribs.iter_mut().flatten().for_each(Rib::mark_clean);
        self.broken = true;
        self.layout = build(&self.ribs.iter().map(Option::as_ref))?;
        self.broken = false;
        self.buffers.renew();
        Ok(())
    }
}

impl<A: Family> fmt::Debug for FibsUpdater<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FibsUpdater({} tables, {:?})", self.tables().count(), self.fibs())
    }
}
