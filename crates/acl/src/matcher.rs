//! The matcher: a batch of packets of one family, and the rows and candidates of each.
//!
//! ```text
//!   packet ─► address filter ─► unmatched: no rule can match it by its addresses
//!                    │
//!   source, destination, length  │ packet 0 │ packet 1 │ …
//!   rows                         │ packet 0 │ packet 1 │ …      of the first dimension, then of the next
//!   candidates                   │ packet 0 │ packet 1 │ …      of the first summary, then of the next
//!   fields                       │ packet 0 │          │ …      if a rule may match it by its addresses
//! ```
//!
//! In lists whose rules have addresses most packets end at the filter (`filter.rs`). For the others each step is
//! a loop over the whole batch, so that the loads of many packets overlap. Addresses come first: the tables of
//! sources and of destinations, and the words of rules that they leave. Where none is left, the other fields are
//! not even read. The others are looked up in one array after the other. Few words are left to read for each
//! packet. All memory is allocated with the matcher.

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
    /// The packets that no rule can match, and their bytes.
    unmatched: (u64, u64),
    // Of each packet behind the filter.
    sources: Vec<A>,
    destinations: Vec<A>,
    lengths: Vec<u16>,
    numbers: Vec<u16>,
    room: usize,
    rows: Vec<Hop>,
    candidates: Vec<u64>,
    /// The packets that rules may match by their addresses.
    remaining: Vec<u16>,
    /// The fields of these packets, by packet.
    fields: Box<[Fields<A>]>,
}

impl<A: PacketFamily> Matcher<A> {
    /// Allocates the memory for batches of up to `room` packets, at most 65,536, and lists of any number of
    /// rules.
    pub fn new(room: usize) -> Self {
        let room = room.min(1 << 16);
        Self {
            unmatched: (0, 0),
            sources: Vec::with_capacity(room),
            destinations: Vec::with_capacity(room),
            lengths: Vec::with_capacity(room),
            numbers: Vec::with_capacity(room),
            room,
            rows: vec![Hop::NONE; room * DIMENSIONS],
            candidates: vec![0; room * MOST_PARTS],
            remaining: Vec::with_capacity(room),
            fields: vec![Fields::new(A::default(), A::default(), 0, 0); room].into(),
        }
    }

    /// Begins a batch.
    #[inline]
    pub fn clear(&mut self) {
        self.unmatched = (0, 0);
        self.sources.clear();
        self.destinations.clear();
        self.lengths.clear();
        self.numbers.clear();
    }

    /// Adds an IP packet, whose header must be valid, with a number for the caller, if a rule of the classifier may
    /// match it by its addresses; counts it otherwise. Returns `false` if no rule can match it, if there is no whole
    /// header, or if the batch is full.
    #[inline(always)]
    pub fn push(&mut self, classifier: &Classifier<A>, number: u16, packet: &[u8]) -> bool {
        let Some((source, destination, length)) = A::addresses(packet) else { return false };
        if classifier.may_match(source, destination) {
            return self.keep(source, destination, length, number);
        }
        self.unmatched.0 += 1;
        self.unmatched.1 += u64::from(length);
        false
    }

    /// Adds a packet that a rule may match.
    #[inline(never)]
    fn keep(&mut self, source: A, destination: A, length: u16, number: u16) -> bool {
        let has_room = self.numbers.len() < self.room;
        if has_room {
            self.sources.push(source);
            self.destinations.push(destination);
            self.lengths.push(length);
            self.numbers.push(number);
        }
        has_room
    }

    /// Returns the number of the batch's packets that no rule can match, and their bytes.
    #[inline]
    pub fn unmatched(&self) -> (u64, u64) {
        self.unmatched
    }

    /// Returns the numbers of the packets in the batch.
    #[inline]
    pub fn numbers(&self) -> &[u16] {
        &self.numbers
    }

    /// Finds the words of rules that may match each packet of the batch; `packet` returns the bytes of a
    /// packet by its number.
    #[inline]
    pub fn classify<'p>(&mut self, classifier: &Classifier<A>, packet: impl Fn(u16) -> &'p [u8]) {
        let count = self.lengths.len();
        let by_part = self.candidates.chunks_exact_mut(self.room);
        for (part, words) in (0..classifier.parts()).zip(by_part) {
            words[..count].fill(classifier.all_candidates(part));
        }
        let by_field = self.narrow_by_addresses(classifier);
        if classifier.fields.is_empty() {
            return;
        }
        let Self { candidates, remaining, room, .. } = self;
        remaining.clear();
        for at in 0..count {
            let words = |part| candidates.get(part * *room + at).copied().unwrap_or(0);
            if (0..classifier.parts()).any(|part| words(part) != 0) {
                remaining.push(at as u16);
            }
        }
        self.narrow_by_fields(classifier, by_field, packet);
    }

    /// Removes the words without a rule that allows a packet's addresses, and returns the number of these
    /// dimensions.
    #[inline]
    fn narrow_by_addresses(&mut self, classifier: &Classifier<A>) -> usize {
        let Self { sources, destinations, lengths, room, rows, candidates, .. } = self;
        let (count, room) = (lengths.len(), *room);
        let tables = [(&classifier.sources, sources), (&classifier.destinations, destinations)];
        let tables =
            tables.into_iter().filter_map(|(table, values)| Some((table.as_ref()?, values)));
        let mut number = 0;
        for (((table, values), dimension), rows) in
            tables.zip(&classifier.dimensions).zip(rows.chunks_exact_mut(room))
        {
            let rows = &mut rows[..count];
            table.lookup_batch(values, rows);
            for (part, words) in (0..classifier.parts()).zip(candidates.chunks_exact_mut(room)) {
                for (words, Hop(row)) in words.iter_mut().zip(&*rows) {
                    *words &= dimension.candidates(*row, part);
                }
            }
            number += 1;
        }
        number
    }

    /// Removes the words without a rule that allows the other fields of the remaining packets, whose dimensions
    /// begin with number `first`.
    #[inline]
    fn narrow_by_fields<'p>(
        &mut self,
        classifier: &Classifier<A>,
        first: usize,
        packet: impl Fn(u16) -> &'p [u8],
    ) {
        let Self { numbers, room, rows, candidates, remaining, fields, .. } = self;
        let room = *room;
        for &at in &*remaining {
            let at = usize::from(at);
            let read = numbers.get(at).and_then(|&number| A::fields(packet(number)));
            if let (Some(slot), Some(read)) = (fields.get_mut(at), read) {
                *slot = read;
            }
        }
        let dimensions = classifier.dimensions.iter().zip(rows.chunks_exact_mut(room)).skip(first);
        for (table, (dimension, rows)) in classifier.fields.iter().zip(dimensions) {
            table.lookup(remaining, fields, rows);
            for (part, words) in (0..classifier.parts()).zip(candidates.chunks_exact_mut(room)) {
                for &at in &*remaining {
                    let at = usize::from(at);
                    if let (Some(words), Some(&Hop(row))) = (words.get_mut(at), rows.get(at)) {
                        *words &= dimension.candidates(row, part);
                    }
                }
            }
        }
    }

    /// Returns the first rule from number `from` on that matches packet `at`.
    #[inline]
    pub fn first(&self, classifier: &Classifier<A>, at: usize, from: u32) -> Option<u32> {
        let row =
            |dimension: usize| self.rows.get(dimension * self.room + at).map_or(0, |&Hop(row)| row);
        let allows = |rule: u32| match (self.sources.get(at), self.destinations.get(at)) {
            (Some(source), Some(destination)) => {
                classifier.allows_bits(rule, *source, *destination)
            }
            _ => true,
        };
        let mut lowest = u32::MAX;
        for part in 0..classifier.parts() {
            let candidates = self.candidates.get(part * self.room + at).copied().unwrap_or(0);
            if candidates != 0 {
                lowest = classifier.lowest(part, candidates, row, allows, from, lowest);
            }
        }
        (lowest != u32::MAX).then_some(lowest)
    }

    /// Changes the differentiated services code point of packet `at`, which a rule has matched: for the rules
    /// behind it that is its code point.
    pub fn set_dscp(&mut self, classifier: &Classifier<A>, at: usize, dscp: u8) {
        let Some(number) = classifier.fields.iter().position(|table| table.field() == Field::Dscp)
        else {
            return;
        };
        let Some(fields) = self.fields.get_mut(at) else { return };
        fields.set_dscp(dscp);
        let (room, dimensions) = (self.room, &classifier.dimensions);
        let changed = dimensions.len() - classifier.fields.len() + number;
        let Some(rows) = self.rows.chunks_exact_mut(room).nth(changed) else { return };
        if let (Some(table), Ok(index)) = (classifier.fields.get(number), u16::try_from(at)) {
            table.lookup(&[index], &self.fields, rows);
        }
        for part in 0..classifier.parts() {
            let rows = self.rows.get(at..).unwrap_or_default().iter().step_by(room);
            let words = dimensions.iter().zip(rows).map(|(each, row)| each.candidates(row.0, part));
            if let Some(candidates) = self.candidates.get_mut(part * room + at) {
                *candidates = words.fold(classifier.all_candidates(part), |all, words| all & words);
            }
        }
    }

    /// Returns the number of packet `at`, and its length in bytes.
    #[inline]
    pub fn packet(&self, at: usize) -> (u16, u16) {
        let get = |values: &[u16]| values.get(at).copied().unwrap_or(0);
        (get(&self.numbers), get(&self.lengths))
    }
}
