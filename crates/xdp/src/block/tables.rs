//! The lists, and their table in the kernel for each family.

use std::fmt;
use std::sync::Arc;

use fib::{Addr, Choice, Family, Prefix, Rib, Updater};

use super::BlockError;
use super::masks::ListMasks;
use crate::{BpfArrays, KernelTable, Publication, TableArrays};

/// The prefixes of one family, in lists and in the kernel.
struct ListTable<A: Family> {
    masks: ListMasks<A>,
    updater: Updater<A>,
    table: KernelTable<A>,
    /// Changes are not yet in the kernel.
    is_behind: bool,
}

impl<A: Family> ListTable<A> {
    fn new(name: &str, engine: Choice) -> Result<Self, BlockError> {
        let files = BpfArrays::new(name);
        let updater = Updater::new_in(Rib::new(), engine, 1, files.clone())?;
        let table = KernelTable::new(&files, updater.fib())?;
        Ok(Self { masks: ListMasks::default(), updater, table, is_behind: false })
    }

    /// Brings the table in the kernel up to date. Returns whether it has other arrays.
    fn commit(&mut self) -> Result<Publication, BlockError> {
        self.is_behind |= self.masks.has_changed();
        if self.is_behind {
            self.masks.apply(&mut self.updater);
            self.updater.commit()?;
            let publication = self.table.publish(self.updater.fib())?;
            self.is_behind = false;
            return Ok(publication);
        }
        Ok(Publication::InPlace)
    }
}

/// Up to [`MAX_LISTS`](super::MAX_LISTS) lists of prefixes, in tables that programs look up in.
pub struct ListTables {
    v4: ListTable<u32>,
    v6: ListTable<u128>,
}

impl ListTables {
    /// Creates empty lists.
    ///
    /// # Errors
    ///
    /// [`BlockError`]: what the kernel refuses.
    pub fn new() -> Result<Self, BlockError> {
        // Single addresses all over the space make `flat` several times as large.
        let v4 = ListTable::new("blocked4", Choice::Rank)?;
        let v6 = ListTable::new("blocked6", Choice::Flat)?;
        Ok(Self { v4, v6 })
    }

    /// Replaces the prefixes of a list, from the next commit on. Returns whether that is a change.
    ///
    /// # Complexity
    ///
    /// O(prefixes of all lists).
    pub fn replace(&mut self, list: usize, v4: &[Prefix<u32>], v6: &[Prefix<u128>]) -> bool {
        let changes = [self.v4.masks.replace(list, v4), self.v6.masks.replace(list, v6)];
        changes.contains(&true)
    }

    /// Puts an IPv4 prefix into a list or takes it out, from the next commit on. Returns whether that is a
    /// change.
    pub fn set_v4(&mut self, list: usize, prefix: Prefix<u32>, listed: bool) -> bool {
        self.v4.masks.set(list, prefix, listed)
    }

    /// The same for an IPv6 prefix.
    pub fn set_v6(&mut self, list: usize, prefix: Prefix<u128>, listed: bool) -> bool {
        self.v6.masks.set(list, prefix, listed)
    }

    /// Returns the lines of IPv4, also those that are not yet committed.
    pub fn lines_v4(&self) -> &ListMasks<u32> {
        &self.v4.masks
    }

    /// Returns the lines of IPv6, also those that are not yet committed.
    pub fn lines_v6(&self) -> &ListMasks<u128> {
        &self.v6.masks
    }

    /// Shows all changes to the programs that look up. After [`Publication::Replaced`] the tables have other
    /// [`arrays`](Self::arrays), for which another program must replace the present one.
    ///
    /// # Errors
    ///
    /// [`BlockError`]; the programs see the lists of the last commit, and the next commit makes another attempt.
    pub fn commit(&mut self) -> Result<Publication, BlockError> {
        let publications = [self.v4.commit()?, self.v6.commit()?];
        let is_replaced = publications.contains(&Publication::Replaced);
        Ok(if is_replaced { Publication::Replaced } else { Publication::InPlace })
    }

    /// Returns the arrays of the present tables.
    pub fn arrays(&self) -> (&Arc<TableArrays<u32>>, &Arc<TableArrays<u128>>) {
        (self.v4.table.arrays(), self.v6.table.arrays())
    }

    /// Returns the lists that contain `addr`, a bit for each, as of the last commit.
    pub fn lists_of<A: Addr>(&self, addr: A) -> u32 {
        match A::BITS {
            ..=32 => self.v4.updater.fib().lookup(addr.to_u128() as u32).0,
            _ => self.v6.updater.fib().lookup(addr.to_u128()).0,
        }
    }

    /// Returns the bytes that programs may read of both tables.
    pub fn bytes(&self) -> usize {
        self.v4.table.arrays().bytes() + self.v6.table.arrays().bytes()
    }
}

impl fmt::Debug for ListTables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ListTables").field("bytes", &self.bytes()).finish_non_exhaustive()
    }
}
