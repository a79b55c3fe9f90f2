//! The matcher: a batch of packets of one family, and the rows and candidates of each.
//!
//! ```text
//!   fields      │ packet 0 │ packet 1 │ …
//!   rows        │ packet 0 │ packet 1 │ …      of the first dimension, then of the next
//!   candidates  │ packet 0 │ packet 1 │ …      of the first summary, then of the next
//! ```
//!
//! Each step is a loop over the whole batch, so that the loads of many packets overlap: the tables of
//! addresses, then one array after the other, then the summaries of one dimension after the other. Few
//! words are left to read for each packet. All memory is allocated with the matcher.

use fib::Hop;

use crate::field::Field;
use crate::{Classifier, Fields, MOST_RULES, PacketFamily};

/// The greatest number of dimensions: source, destination and the other fields.
const DIMENSIONS: usize = 2 + Field::ALL.len();

/// The greatest number of summaries: 64 rules are in a word, and each combination of conditions begins
/// a new one.
const MOST_PARTS: usize = (MOST_RULES / 64 + (1 << DIMENSIONS)) / 64;

/// The packets of a batch.
#[derive(Debug)]
pub struct Matcher<A> {
    /// Those of the packets, and unused ones.
    fields: Box<[Fields<A>]>,
    count: usize,
    addresses: Vec<A>,
    room: usize,
    rows: Vec<Hop>,
    candidates: Vec<u64>,
}

impl<A: PacketFamily> Matcher<A> {
    /// Allocates the memory for batches of up to `room` packets, and lists of any number of rules.
    pub fn new(room: usize) -> Self {
        Self {
            fields: vec![Fields::new(A::default(), A::default(), 0, 0); room].into(),
            count: 0,
            addresses: Vec::with_capacity(room),
            room,
            rows: vec![Hop::NONE; room * DIMENSIONS],
            candidates: vec![0; room * MOST_PARTS],
        }
    }

    /// Returns the number of packets.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Returns whether there is no packet.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Begins a batch.
    #[inline]
    pub fn clear(&mut self) {
        self.count = 0;
    }

    /// Adds an IP packet; returns `false` without adding it if the batch is full, or the packet's header
    /// is not valid.
    #[inline]
    pub fn push(&mut self, packet: &[u8]) -> bool {
        let Some(slot) = self.fields.get_mut(self.count) else { return false };
        let Some(fields) = A::fields(packet) else { return false };
        *slot = fields;
        self.count += 1;
        true
    }

    /// Finds the rows of all packets, and the words of rules that may match them.
    #[inline]
    pub fn classify(&mut self, classifier: &Classifier<A>) {
        let Self { fields, count, addresses, room, rows, candidates } = self;
        let (count, room) = (*count, *room);
        let Some(fields) = fields.get(..count) else { return };
        let mut by_dimension = rows.chunks_exact_mut(room).map(|rows| &mut rows[..count]);
        let source: fn(&Fields<A>) -> A = |fields| fields.src;
        for (table, address) in
            [(&classifier.sources, source), (&classifier.destinations, |fields| fields.dst)]
        {
            let Some(table) = table else { continue };
            let Some(rows) = by_dimension.next() else { return };
            addresses.clear();
            addresses.extend(fields.iter().map(address));
            table.lookup_batch(addresses, rows);
        }
        for (field, rows) in classifier.fields.iter().zip(by_dimension) {
            field.lookup(fields, rows);
        }
        let by_part = candidates.chunks_exact_mut(room).map(|words| &mut words[..count]);
        for (part, candidates) in (0..classifier.parts()).zip(by_part) {
            candidates.fill(classifier.all_candidates(part));
            for (dimension, rows) in classifier.dimensions.iter().zip(rows.chunks_exact(room)) {
                dimension.narrow(&rows[..count], part, candidates);
            }
        }
    }

    /// Returns the first rule from number `from` on that matches packet `at`.
    #[inline]
    pub fn first(&self, classifier: &Classifier<A>, at: usize, from: u32) -> Option<u32> {
        let row =
            |dimension: usize| self.rows.get(dimension * self.room + at).map_or(0, |&Hop(row)| row);
        let mut lowest = u32::MAX;
        for part in 0..classifier.parts() {
            let candidates = self.candidates.get(part * self.room + at).copied().unwrap_or(0);
            if candidates != 0 {
                lowest = classifier.lowest(part, candidates, row, from, lowest);
            }
        }
        (lowest != u32::MAX).then_some(lowest)
    }

    /// Returns the length of packet `at` in bytes.
    #[inline]
    pub fn length(&self, at: usize) -> u16 {
        self.fields.get(at).map_or(0, |fields| fields.length)
    }
}
