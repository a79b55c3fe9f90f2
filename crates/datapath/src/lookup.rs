//! Lookup: a batch of destinations of one family to a batch of hops.
//!
//! The only station that knows the routes. It is a trait of four methods, so that
//! the rest of the datapath can be tested against a list of routes as well as run on
//! tables. A batch came in on one port and is looked up in that port's table, by
//! number (VRFs; see `ingress.rs`):
//!
//! ```text
//!   Tables ─┬ v4 ─► Apart     number ─► Reader<Fib>, each of an engine of its own
//!           └ v6 ─► Together  number ─► within one Reader<Fibs>, what is equal stored once
//! ```
//!
//! The read section of a table lasts one batch: the table is taken, all keys are
//! looked up in it, and the next batch, or [`Lookup::idle`], is the quiescent
//! point after which the writer may take that table back. All packets of a batch
//! therefore see one table. A table without packets has no next batch for as long
//! as that lasts: [`Lookup::pass`], once a turn, is its quiescent point.

use fib::{Family, Fib, Fibs, Hop, Reader};

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

/// A worker's readers of one family's published tables, by number.
#[derive(Debug)]
pub enum Numbered<A: Family> {
    /// Each of an engine of its own; how many is settled at the start.
    Apart(Vec<Reader<Fib<A>>>),
    /// Over one memory: what is equal is stored once, and they come and go as they like.
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

/// Published tables of both families.
#[derive(Debug)]
pub struct Tables {
    /// The IPv4 tables.
    pub v4: Numbered<u32>,
    /// The IPv6 tables.
    pub v6: Numbered<u128>,
}

impl Tables {
    /// Takes the only table there is of each family, number 0.
    pub fn one(v4: Reader<Fib<u32>>, v6: Reader<Fib<u128>>) -> Self {
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
