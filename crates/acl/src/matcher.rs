//! The matcher: a batch of packets of one family, and the rows of each.
//!
//! All memory is allocated with the matcher. The tables of addresses are looked up for the whole batch,
//! so that their loads overlap.

use fib::Hop;

use crate::classifier::PacketRows;
use crate::{Classifier, Fields, PacketFamily};

/// The packets of a batch.
#[derive(Debug)]
pub struct Matcher<A> {
    fields: Vec<Fields<A>>,
    addresses: Vec<A>,
    sources: Vec<Hop>,
    destinations: Vec<Hop>,
    rows: Vec<PacketRows>,
}

impl<A: PacketFamily> Matcher<A> {
    /// Allocates the memory for batches of up to `room` packets.
    pub fn new(room: usize) -> Self {
        Self {
            fields: Vec::with_capacity(room),
            addresses: Vec::with_capacity(room),
            sources: Vec::with_capacity(room),
            destinations: Vec::with_capacity(room),
            rows: Vec::with_capacity(room),
        }
    }

    /// Returns the number of packets.
    pub fn len(&self) -> usize {
        self.fields.len()
    }

    /// Returns whether there is no packet.
    pub fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }

    /// Begins a batch.
    #[inline]
    pub fn clear(&mut self) {
        self.fields.clear();
    }

    /// Adds an IP packet; returns `false` without adding it if the batch is full, or the packet's header
    /// is not valid.
    #[inline]
    pub fn push(&mut self, packet: &[u8]) -> bool {
        match A::fields(packet) {
            Some(fields) if self.fields.len() < self.fields.capacity() => {
                self.fields.push(fields);
                true
            }
            _ => false,
        }
    }

    /// Finds the rows of all packets.
    #[inline]
    pub fn classify(&mut self, classifier: &Classifier<A>) {
        let Self { fields, addresses, sources, destinations, rows } = self;
        let count = fields.len();
        for (table, hops, address) in [
            (&classifier.sources, &mut *sources, (|fields| fields.src) as fn(&Fields<A>) -> A),
            (&classifier.destinations, &mut *destinations, |fields| fields.dst),
        ] {
            hops.clear();
            hops.resize(count, Hop::NONE);
            if let Some(table) = table {
                addresses.clear();
                addresses.extend(fields.iter().map(address));
                table.lookup(addresses, hops);
            }
        }
        rows.clear();
        let hops = sources.iter().zip(&*destinations);
        rows.extend(fields.iter().zip(hops).map(|(fields, (&source, &destination))| {
            classifier.rows(source, destination, |field| fields.value(field))
        }));
    }

    /// Returns the first rule from number `from` on that matches packet `at`.
    #[inline]
    pub fn first(&self, classifier: &Classifier<A>, at: usize, from: u32) -> Option<u32> {
        classifier.first(self.rows.get(at)?, from)
    }

    /// Returns the length of packet `at` in bytes.
    #[inline]
    pub fn length(&self, at: usize) -> u16 {
        self.fields.get(at).map_or(0, |fields| fields.length)
    }
}
