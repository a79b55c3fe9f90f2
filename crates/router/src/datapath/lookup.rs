//! Lookup: a batch of destinations of one family to a batch of hops.
//!
//! The only station that knows the routes. It is a trait of four methods, so that
//! the rest of the datapath can be tested against a list of routes as well as run on
//! tables. A batch came in on one port and is looked up in that port's table, by
//! number (VRFs; see `ingress.rs`):
//!
//! ```text
//!   Tables        number ─► Table { v4: Reader<Fib>, v6: Reader<Fib> }
//!                           each of an engine of its own; how many is settled at the start
//!   SharedTables  number ─► within one Reader<Fibs> a family
//!                           what is equal is stored once; they come and go as they like
//! ```
//!
//! The read section of a table lasts one batch: the table is taken, all keys are
//! looked up in it, and the next batch, or [`Lookup::idle`], is the quiescent
//! point after which the writer may take that table back. All packets of a batch
//! therefore see one table. A table without packets has no next batch for as long
//! as that lasts: [`Lookup::pass`], once a turn, is its quiescent point.

use fib::{Fib, Fibs, Hop, Reader};

/// Looks destinations up, a batch at a time.
pub trait Lookup: Send {
    /// Writes the hop of each of `keys`, by the table of this number, to the same
    /// place of `hops`, which is as long. Where there is no such table there is no
    /// route.
    fn lookup_v4(&mut self, table: usize, keys: &[u32], hops: &mut [Hop]);

    /// The same for IPv6.
    fn lookup_v6(&mut self, table: usize, keys: &[u128], hops: &mut [Hop]);

    /// Lets go of tables that have been replaced: called after every turn, so that a
    /// table without packets holds up no update while others have some.
    fn pass(&mut self);

    /// Lets go of the tables until the next batch: called when there is nothing to
    /// do, so that a worker without packets holds up no update.
    fn idle(&mut self);
}

/// A worker's readers of one published table of each family.
#[derive(Debug)]
pub struct Table {
    /// The IPv4 table.
    pub v4: Reader<Fib<u32>>,
    /// The IPv6 table.
    pub v6: Reader<Fib<u128>>,
}

/// Published tables by their number, each of an engine of its own.
#[derive(Debug)]
pub struct Tables(pub Vec<Table>);

impl From<Table> for Tables {
    /// Takes the only table there is, number 0.
    fn from(table: Table) -> Self {
        Self(vec![table])
    }
}

impl Lookup for Tables {
    #[inline]
    fn lookup_v4(&mut self, table: usize, keys: &[u32], hops: &mut [Hop]) {
        match self.0.get_mut(table) {
            Some(table) => table.v4.current().lookup_batch(keys, hops),
            None => hops.fill(Hop::NONE),
        }
    }

    #[inline]
    fn lookup_v6(&mut self, table: usize, keys: &[u128], hops: &mut [Hop]) {
        match self.0.get_mut(table) {
            Some(table) => table.v6.current().lookup_batch(keys, hops),
            None => hops.fill(Hop::NONE),
        }
    }

    #[inline]
    fn pass(&mut self) {
        for table in &mut self.0 {
            let _ = (table.v4.current(), table.v6.current());
        }
    }

    fn idle(&mut self) {
        for table in &mut self.0 {
            table.v4.idle();
            table.v6.idle();
        }
    }
}

/// Many published tables over one memory, by their number.
#[derive(Debug)]
pub struct SharedTables {
    /// The IPv4 tables.
    pub v4: Reader<Fibs<u32>>,
    /// The IPv6 tables.
    pub v6: Reader<Fibs<u128>>,
}

impl Lookup for SharedTables {
    #[inline]
    fn lookup_v4(&mut self, table: usize, keys: &[u32], hops: &mut [Hop]) {
        self.v4.current().lookup_batch(table, keys, hops);
    }

    #[inline]
    fn lookup_v6(&mut self, table: usize, keys: &[u128], hops: &mut [Hop]) {
        self.v6.current().lookup_batch(table, keys, hops);
    }

    #[inline]
    fn pass(&mut self) {
        let _ = (self.v4.current(), self.v6.current());
    }

    fn idle(&mut self) {
        self.v4.idle();
        self.v6.idle();
    }
}
