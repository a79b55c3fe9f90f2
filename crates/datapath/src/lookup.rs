//! Lookup: a batch of destinations of one family to a batch of hops.
//!
//! This is the only stage that knows the routes. It is a trait of four methods, so that the rest of
//! the datapath can be tested with a list of routes as well as run on tables. A batch arrived on
//! one port and is looked up in that port's table, by number (VRFs; see `ingress.rs`):
//!
//! ```text
//!   Tables ─┬ v4 ─► Apart     number ─► Reader<Fib>, each with its own engine
//!           └ v6 ─► Together  number ─► a table in one Reader<Fibs>, equal parts stored once
//! ```
//!
//! The read section of a table lasts one batch: the worker takes the table and looks all keys up in
//! it. The next batch, or [`Lookup::idle`], is the quiescent point after which the writer may
//! reclaim that table, so all packets of a batch see one table. A table that receives no packets
//! has no next batch; its quiescent point is [`Lookup::pass`], once a turn.

use fib::{Family, Fib, Fibs, Hop, Reader};

/// The lookup of destinations, a batch at a time.
pub trait Lookup: Send {
    /// Writes the hop of each of `keys`, in the table with this number, to the same index of
    /// `hops`, which has the same length. A table that does not exist has no routes.
    fn lookup_v4(&mut self, table: usize, keys: &[u32], hops: &mut [Hop]);

    /// Looks up IPv6 destinations in the same way.
    fn lookup_v6(&mut self, table: usize, keys: &[u128], hops: &mut [Hop]);

    /// Releases tables that have been replaced. The worker calls it after every turn, so that a
    /// table without packets delays no update while others have some.
    fn pass(&mut self);

    /// Releases the tables until the next batch. The worker calls it when there is nothing to do,
    /// so that a worker without packets delays no update.
    fn idle(&mut self);
}

/// A worker's readers of one family's published tables, by number.
#[derive(Debug)]
pub enum Numbered<A: Family> {
    /// Each table has its own engine; the number of tables is fixed at the start.
    Apart(Vec<Reader<Fib<A>>>),
    /// The tables share one memory: equal parts are stored once, and tables can be added and
    /// removed.
    Together(Reader<Fibs<A>>),
}

impl<A: Family> Numbered<A> {
    #[inline]
    fn lookup(&mut self, table: usize, keys: &[A], hops: &mut [Hop]) {
        match self {
            Self::Apart(tables) => match tables.get_mut(table) {
                Some(table) => table.current().lookup_batch(keys, hops),
                None => hops.fill(Hop::NONE),
            },
            Self::Together(tables) => tables.current().lookup_batch(table, keys, hops),
        }
    }

    #[inline]
    fn pass(&mut self) {
        match self {
            Self::Apart(tables) => {
                for table in tables {
                    let _ = table.current();
                }
            }
            Self::Together(tables) => {
                let _ = tables.current();
            }
        }
    }

    fn idle(&mut self) {
        match self {
            Self::Apart(tables) => tables.iter_mut().for_each(Reader::idle),
            Self::Together(tables) => tables.idle(),
        }
    }
}

/// The published tables of both families.
#[derive(Debug)]
pub struct Tables {
    /// The IPv4 tables.
    pub v4: Numbered<u32>,
    /// The IPv6 tables.
    pub v6: Numbered<u128>,
}

impl Tables {
    /// Makes the tables from the only one of each family, which has number 0.
    pub fn single(v4: Reader<Fib<u32>>, v6: Reader<Fib<u128>>) -> Self {
        Self { v4: Numbered::Apart(vec![v4]), v6: Numbered::Apart(vec![v6]) }
    }
}

impl Lookup for Tables {
    #[inline]
    fn lookup_v4(&mut self, table: usize, keys: &[u32], hops: &mut [Hop]) {
        self.v4.lookup(table, keys, hops);
    }

    #[inline]
    fn lookup_v6(&mut self, table: usize, keys: &[u128], hops: &mut [Hop]) {
        self.v6.lookup(table, keys, hops);
    }

    #[inline]
    fn pass(&mut self) {
        self.v4.pass();
        self.v6.pass();
    }

    fn idle(&mut self) {
        self.v4.idle();
        self.v6.idle();
    }
}
