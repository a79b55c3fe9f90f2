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
//! A list may be for some destinations only ([`Blocker::for_destinations`]): a pair of source list and destination
//! prefixes, as filters by two longest matches have them.
//!
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
use filter::{Counts, Filter, FilterMaps, FilterTables};
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
    /// The lists for some destinations, and a bit for each of the others.
    destinations: Option<(ListTables, u32)>,
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
        Self::for_destinations(actions, 0)
    }

    /// The same, with some lists that are for their destinations only ([`replace_destinations`]); `restricted`
    /// has a bit for each of them. If there are any, a packet whose source is in a list takes another lookup.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    ///
    /// [`replace_destinations`]: Self::replace_destinations
    pub fn for_destinations(actions: &[ListAction], restricted: u32) -> Result<Self, BlockError> {
        if actions.len() > MAX_LISTS {
            return Err(BlockError::Lists(actions.len()));
        }
        let tables = ListTables::new()?;
        let destinations = (restricted != 0).then(ListTables::new).transpose()?;
        let destinations = destinations.map(|tables| (tables, !restricted));
        let maps = Arc::new(FilterMaps::new(actions)?);
        let filter = filter_of(&tables, destinations.as_ref(), &maps);
        Ok(Self { tables, destinations, maps, filter })
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

    /// Replaces the destinations of a restricted list, from the next commit on. Returns whether that is a change.
    /// If one commit changes sources and destinations, a packet may meet the new sources with the former destinations.
    ///
    /// # Panics
    ///
    /// If there is no such list, or it is not restricted.
    pub fn replace_destinations(
        &mut self,
        list: usize,
        v4: &[Prefix<u32>],
        v6: &[Prefix<u128>],
    ) -> bool {
        let is_restricted = |everywhere: u32| everywhere & 1 << list == 0;
        match &mut self.destinations {
            Some((tables, everywhere)) if is_restricted(*everywhere) => {
                tables.replace(list, v4, v6)
            }
            _ => panic!("list {list} is for all destinations"),
        }
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
        let mut is_present = self.filter.sources.are_of(&self.tables);
        if let Some((tables, _)) = &mut self.destinations {
            tables.commit()?;
            let present = self.filter.destinations.as_ref();
            is_present &= present.is_some_and(|(present, _)| present.are_of(tables));
        }
        if is_present {
            return Ok(Publication::InPlace);
        }
        self.filter = filter_of(&self.tables, self.destinations.as_ref(), &self.maps);
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

    /// Returns the list that decides about a packet, as of the last commit: the decision of the filter, in this process.
    pub fn decision<A: Addr>(&self, source: A, destination: A) -> Option<usize> {
        let lists = self.tables.lists_of(source);
        let lists = match &self.destinations {
            Some((tables, everywhere)) if lists != 0 => {
                lists & (tables.lists_of(destination) | everywhere)
            }
            _ => lists,
        };
        (lists != 0).then(|| lists.trailing_zeros() as usize)
    }

    /// Returns the bytes that the filter may read of all tables.
    pub fn bytes(&self) -> usize {
        self.tables.bytes() + self.destinations.as_ref().map_or(0, |(tables, _)| tables.bytes())
    }
}

fn filter_of(
    tables: &ListTables,
    destinations: Option<&(ListTables, u32)>,
    maps: &Arc<FilterMaps>,
) -> Arc<Filter> {
    let tables_of =
        |(tables, everywhere): &(ListTables, u32)| (FilterTables::new(tables), *everywhere);
    Arc::new(Filter {
        maps: Arc::clone(maps),
        sources: FilterTables::new(tables),
        destinations: destinations.map(tables_of),
    })
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
