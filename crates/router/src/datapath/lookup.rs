//! Lookup: a batch of destinations of one family to a batch of hops.
//!
//! The only station that knows the routes. It is a trait of four methods, so
//! that the rest of the datapath can be tested against a list of routes as well as
//! run on the tables; [`Tables`] is what the router runs on.
//!
//! The read section of a table lasts one batch: the table is taken, all keys are
//! looked up in it, and the next batch, or [`Lookup::idle`], is the quiescent
//! point after which the writer may take that table back. All packets of a batch
//! therefore see one table. A family without packets has no next batch for as long
//! as that lasts: [`Lookup::pass`], once a turn, is its quiescent point.

use fib::{Fib, Hop, Reader};

/// Looks destinations up, a batch at a time.
pub trait Lookup: Send {
    /// Writes the hop of each of `keys` to the same place of `hops`, which is as
    /// long.
    fn lookup_v4(&mut self, keys: &[u32], hops: &mut [Hop]);

    /// The same for IPv6.
    fn lookup_v6(&mut self, keys: &[u128], hops: &mut [Hop]);

    /// Lets go of tables that have been replaced: called after every turn, so that a
    /// family without packets holds up no update while the other has some.
    fn pass(&mut self);

    /// Lets go of the tables until the next batch: called when there is nothing to
    /// do, so that a worker without packets holds up no update.
    fn idle(&mut self);
}

/// A worker's readers of the published tables.
#[derive(Debug)]
pub struct Tables {
    /// The IPv4 table.
    pub v4: Reader<Fib<u32>>,
    /// The IPv6 table.
    pub v6: Reader<Fib<u128>>,
}

impl Lookup for Tables {
    #[inline]
    fn lookup_v4(&mut self, keys: &[u32], hops: &mut [Hop]) {
        self.v4.current().lookup_batch(keys, hops);
    }

    #[inline]
    fn lookup_v6(&mut self, keys: &[u128], hops: &mut [Hop]) {
        self.v6.current().lookup_batch(keys, hops);
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
