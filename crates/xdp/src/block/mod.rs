//! Block lists: an XDP program that drops packets by the lists in which their source is.
//!
//! ```text
//!   lists, by priority ──► masks of a prefix ──► Updater ──► KernelTable ─┐
//!   frame ─► source ─► lookup: the lists that contain it ─► the first decides ─► drop or pass, counted
//! ```
//!
//! - [`masks`]: prefixes with the lists that contain them; a hop of the table is a set of lists.
//! - [`filter`]: the program and its counters.
//!
//! The first list in the order of priority that contains a source decides, whatever the length of its
//! prefix: an allow list before the block lists is an exception from all of them (decision 18).
//! A list is replaced as a whole, or changed prefix by prefix; [`Blocker::commit`] shows all changes
//! to the program.
//!
//! Limits: [`MAX_LISTS`] lists. Up to eight, an address takes one byte in a chunk of the table; with more lists,
//! two or four.

pub mod filter;
pub mod masks;

use std::error::Error;
use std::fmt;
use std::io;
use std::sync::Arc;

use fib::{Addr, Choice, Family, Full, Prefix, Rib, Updater};
use port::af_xdp::bpf::Program;

use crate::{BpfArrays, KernelTable, ProgramError, Publication, TableError};
use filter::{Counts, Filter};
use masks::ListMasks;

/// The maximum number of lists.
pub const MAX_LISTS: usize = 30;

/// The end of a packet whose source a list contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListAction {
    /// The host gets it.
    Pass,
    /// It ends in the driver.
    Drop,
}

/// The prefixes of one family, in lists and in the kernel.
struct Listed<A: Family> {
    masks: ListMasks<A>,
    updater: Updater<A>,
    table: KernelTable<A>,
    /// Changes are not yet in the kernel.
    is_behind: bool,
}

impl<A: Family> Listed<A> {
    fn new(name: &str, engine: Choice) -> Result<Self, BlockError> {
        let files = BpfArrays::new(name);
        let updater = Updater::new_in(Rib::new(), engine, 1, files.clone())?;
        let table = KernelTable::new(&files, updater.fib())?;
        Ok(Self { masks: ListMasks::default(), updater, table, is_behind: false })
    }

    /// Brings the table in the kernel up to date.
    fn commit(&mut self) -> Result<(), BlockError> {
        self.is_behind |= self.masks.has_changed();
        if self.is_behind {
            self.masks.apply(&mut self.updater);
            self.updater.commit()?;
            self.table.publish(self.updater.fib())?;
            self.is_behind = false;
        }
        Ok(())
    }
}

/// The lists of a host, and the program that acts on them.
pub struct Blocker {
    v4: Listed<u32>,
    v6: Listed<u128>,
    filter: Filter,
    program: Arc<Program>,
}

impl Blocker {
    /// Creates empty lists with these actions, in the order of priority, and loads the program.
    ///
    /// # Errors
    ///
    /// [`BlockError`]: too many lists, or what the kernel refuses.
    pub fn new(actions: &[ListAction]) -> Result<Self, BlockError> {
        if actions.len() > MAX_LISTS {
            return Err(BlockError::Lists(actions.len()));
        }
        // Single addresses all over the space make `flat` several times as large.
        let v4 = Listed::new("blocked4", Choice::Rank)?;
        let v6 = Listed::new("blocked6", Choice::Flat)?;
        let mut filter = Filter::new(actions)?;
        let program = Arc::new(filter.load(v4.table.arrays(), v6.table.arrays())?);
        Ok(Self { v4, v6, filter, program })
    }

    /// Replaces the prefixes of list number `list`, from the next commit on.
    ///
    /// # Panics
    ///
    /// If there is no such list.
    ///
    /// # Complexity
    ///
    /// O(prefixes of all lists).
    pub fn replace(&mut self, list: usize, v4: &[Prefix<u32>], v6: &[Prefix<u128>]) {
        assert!(list < self.filter.lists(), "list {list} of {}", self.filter.lists());
        self.v4.masks.replace(list, v4);
        self.v6.masks.replace(list, v6);
    }

    /// Puts an IPv4 prefix into a list or takes it out, from the next commit on. Returns whether that is a
    /// change.
    ///
    /// # Panics
    ///
    /// If there is no such list.
    pub fn set_v4(&mut self, list: usize, prefix: Prefix<u32>, listed: bool) -> bool {
        assert!(list < self.filter.lists(), "list {list} of {}", self.filter.lists());
        self.v4.masks.set(list, prefix, listed)
    }

    /// The same for an IPv6 prefix.
    ///
    /// # Panics
    ///
    /// If there is no such list.
    pub fn set_v6(&mut self, list: usize, prefix: Prefix<u128>, listed: bool) -> bool {
        assert!(list < self.filter.lists(), "list {list} of {}", self.filter.lists());
        self.v6.masks.set(list, prefix, listed)
    }

    /// Shows all changes to the program. After [`Publication::Replaced`] there is another
    /// [`program`](Self::program), which must replace the present one wherever that is attached.
    ///
    /// # Errors
    ///
    /// [`BlockError`]; the program acts by the lists of the last commit, and the next commit makes
    /// another attempt.
    pub fn commit(&mut self) -> Result<Publication, BlockError> {
        self.v4.commit()?;
        self.v6.commit()?;
        let (v4, v6) = (self.v4.table.arrays(), self.v6.table.arrays());
        if self.filter.is_of(v4, v6) {
            return Ok(Publication::InPlace);
        }
        self.program = Arc::new(self.filter.load(v4, v6)?);
        Ok(Publication::Replaced)
    }

    /// Returns the present program.
    pub fn program(&self) -> &Arc<Program> {
        &self.program
    }

    /// Returns the counts of packets since the start.
    ///
    /// # Errors
    ///
    /// Those of `bpf(2)`.
    pub fn counts(&self) -> io::Result<Counts> {
        self.filter.counts()
    }

    /// Returns the lists that contain `addr`, a bit for each, as of the last commit.
    pub fn lists_of<A: Addr>(&self, addr: A) -> u32 {
        match A::BITS {
            ..=32 => self.v4.updater.fib().lookup(addr.to_u128() as u32).0,
            _ => self.v6.updater.fib().lookup(addr.to_u128()).0,
        }
    }

    /// Returns the bytes that the program may read of both tables.
    pub fn bytes(&self) -> usize {
        self.v4.table.arrays().bytes() + self.v6.table.arrays().bytes()
    }
}

impl fmt::Debug for Blocker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Blocker").field("filter", &self.filter).finish_non_exhaustive()
    }
}

/// The reason why lists are not in the kernel.
#[derive(Debug)]
pub enum BlockError {
    /// There are more lists than [`MAX_LISTS`].
    Lists(usize),
    /// The prefixes exceed a limit of the table.
    Full(Full),
    /// The table is not in the kernel.
    Table(TableError),
    /// The program is not.
    Program(ProgramError),
    /// Another map is not.
    System(io::Error),
}

impl From<Full> for BlockError {
    fn from(error: Full) -> Self {
        Self::Full(error)
    }
}

impl From<TableError> for BlockError {
    fn from(error: TableError) -> Self {
        Self::Table(error)
    }
}

impl From<ProgramError> for BlockError {
    fn from(error: ProgramError) -> Self {
        Self::Program(error)
    }
}

impl From<io::Error> for BlockError {
    fn from(error: io::Error) -> Self {
        Self::System(error)
    }
}

impl fmt::Display for BlockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lists(count) => write!(f, "{count} lists: at most {MAX_LISTS} are possible"),
            Self::Full(error) => error.fmt(f),
            Self::Table(error) => error.fmt(f),
            Self::Program(error) => error.fmt(f),
            Self::System(error) => write!(f, "the kernel has not created a map: {error}"),
        }
    }
}

impl Error for BlockError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Lists(_) => None,
            Self::Full(error) => Some(error),
            Self::Table(error) => Some(error),
            Self::Program(error) => Some(error),
            Self::System(error) => Some(error),
        }
    }
}
