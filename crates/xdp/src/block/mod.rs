//! Block lists: a filter that drops packets by the lists in which their source is, in an XDP program of its own or
//! in front of a steering program.
//!
//! ```text
//!   lists, by priority ──► masks of a prefix ──► Updater ──► KernelTable ─┐
//!   frame ─► source ─► lookup: the lists that contain it ─► the first decides ─► drop or pass, counted
//! ```
//!
//! - [`masks`]: prefixes with the lists that contain them; a hop of the table is a set of lists.
//! - [`tables`]: the lists, and their table in the kernel for each family.
//! - [`filter`]: the filter and its counters.
//! - [`count`]: counters of packets and bytes.
//! - [`watch`]: the packets of some prefixes, counted on request.
//! - [`blocked`]: the lookup in a gate's program, of which the lists are a part.
//!
//! The first list in the order of priority that contains a source decides, whatever the length of its
//! prefix: an allow list before the block lists is an exception from all of them (decision 18).
//! A list is replaced as a whole, or changed prefix by prefix; [`Blocker::commit`] shows all changes
//! to the program.
//!
//! Limits: [`MAX_LISTS`] lists. Up to eight, an address takes one byte in a chunk of the table; with more lists,
//! two or four.

pub mod blocked;
pub mod count;
pub mod filter;
pub mod masks;
pub mod tables;
pub mod watch;

use std::error::Error;
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use fib::{Addr, Full, Prefix};
use port::af_xdp::bpf::Program;

use crate::{ProgramError, Publication, TableError};
use count::Count;
use filter::{Counts, Filter, FilterMaps};
use tables::ListTables;

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

/// The lists of a host, and the filter that acts on them.
pub struct Blocker {
    tables: ListTables,
    maps: Arc<FilterMaps>,
    filter: Arc<Filter>,
}

impl Blocker {
    /// Creates empty lists with these actions, in the order of priority.
    ///
    /// # Errors
    ///
    /// [`BlockError`]: too many lists, or what the kernel refuses.
    pub fn new(actions: &[ListAction]) -> Result<Self, BlockError> {
        if actions.len() > MAX_LISTS {
            return Err(BlockError::Lists(actions.len()));
        }
        let tables = ListTables::new()?;
        let maps = Arc::new(FilterMaps::new(actions)?);
        let filter = filter_of(&tables, &maps);
        Ok(Self { tables, maps, filter })
    }

    /// Replaces the prefixes of list number `list`, from the next commit on. Returns whether that is a change.
    ///
    /// # Panics
    ///
    /// If there is no such list.
    ///
    /// # Complexity
    ///
    /// O(prefixes of all lists).
    pub fn replace(&mut self, list: usize, v4: &[Prefix<u32>], v6: &[Prefix<u128>]) -> bool {
        assert!(list < self.maps.lists(), "list {list} of {}", self.maps.lists());
        self.tables.replace(list, v4, v6)
    }

    /// Puts an IPv4 prefix into a list or takes it out, from the next commit on. Returns whether that is a
    /// change.
    ///
    /// # Panics
    ///
    /// If there is no such list.
    pub fn set_v4(&mut self, list: usize, prefix: Prefix<u32>, listed: bool) -> bool {
        assert!(list < self.maps.lists(), "list {list} of {}", self.maps.lists());
        self.tables.set_v4(list, prefix, listed)
    }

    /// The same for an IPv6 prefix.
    ///
    /// # Panics
    ///
    /// If there is no such list.
    pub fn set_v6(&mut self, list: usize, prefix: Prefix<u128>, listed: bool) -> bool {
        assert!(list < self.maps.lists(), "list {list} of {}", self.maps.lists());
        self.tables.set_v6(list, prefix, listed)
    }

    /// Shows all changes to the filter. After [`Publication::Replaced`] there is another
    /// [`filter`](Self::filter), which must replace the present one in all programs.
    ///
    /// # Errors
    ///
    /// [`BlockError`]; the filter acts by the lists of the last commit, and the next commit makes
    /// another attempt.
    pub fn commit(&mut self) -> Result<Publication, BlockError> {
        self.tables.commit()?;
        let (v4, v6) = self.tables.arrays();
        if Arc::ptr_eq(v4, &self.filter.v4) && Arc::ptr_eq(v6, &self.filter.v6) {
            return Ok(Publication::InPlace);
        }
        self.filter = filter_of(&self.tables, &self.maps);
        Ok(Publication::Replaced)
    }

    /// Returns the present filter.
    pub fn filter(&self) -> &Arc<Filter> {
        &self.filter
    }

    /// Loads the present filter as a program of its own.
    ///
    /// # Errors
    ///
    /// [`BlockError::Program`].
    pub fn load(&self) -> Result<Program, BlockError> {
        Ok(self.filter.load()?)
    }

    /// Returns the counts of packets since the start.
    ///
    /// # Errors
    ///
    /// Those of `bpf(2)`.
    pub fn counts(&self) -> io::Result<Counts> {
        self.maps.counts()
    }

    /// Begins to count the packets from `prefix` that lists decide about, in place `slot` of
    /// [`MAX_WATCHES`](watch::MAX_WATCHES), or ends that.
    ///
    /// # Errors
    ///
    /// Those of `bpf(2)`.
    ///
    /// # Panics
    ///
    /// If there is no such place, or the length exceeds that of the address.
    pub fn watch(&self, slot: usize, prefix: Option<(IpAddr, u32)>) -> io::Result<()> {
        self.maps.watches.set(slot, prefix)
    }

    /// Returns the counts of place `slot` since the begin of its watch.
    ///
    /// # Errors
    ///
    /// Those of `bpf(2)`.
    pub fn watched(&self, slot: usize) -> io::Result<Count> {
        self.maps.watches.count(slot)
    }

    /// Returns the lists.
    pub fn tables(&self) -> &ListTables {
        &self.tables
    }

    /// Returns the lists that contain `addr`, a bit for each, as of the last commit.
    pub fn lists_of<A: Addr>(&self, addr: A) -> u32 {
        self.tables.lists_of(addr)
    }

    /// Returns the bytes that the program may read of both tables.
    pub fn bytes(&self) -> usize {
        self.tables.bytes()
    }
}

fn filter_of(tables: &ListTables, maps: &Arc<FilterMaps>) -> Arc<Filter> {
    let (v4, v6) = tables.arrays();
    Arc::new(Filter { maps: Arc::clone(maps), v4: Arc::clone(v4), v6: Arc::clone(v6) })
}

impl fmt::Debug for Blocker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Blocker").field("maps", &self.maps).finish_non_exhaustive()
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
