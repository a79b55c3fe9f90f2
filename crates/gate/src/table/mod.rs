//! The flow table: index, entries and timer wheels.
//!
//! ```text
//!             0        32      36    38   40       48          56      64      120      128
//!   entry     │ words  │ hash  │ of  │gen │ expire │ state …  │ body, 8 words  │ number │
//!             └── the flow ────┴─────┴────┴──────────────── record ─────────────────────┘
//!             │◄───────────────────── one line ───────────────────►│
//! ```
//!
//! A request needs only an entry's first line, so that a flood of requests touches one line a flow,
//! and one of the index. `of` is the version of the flow and its grantor set, `gen` the generation
//! of the policy that has assigned the set (`policy.rs`).
//!
//! A flow has an entry from its first packet on, if there is room, or from its second if admission
//! requires one (`admission.rs`). A full table evicts its cheapest request (`expiry.rs`); it keeps
//! granted flows until they expire. Declines have a share of the table
//! ([`FlowTable::enforce_declined_share`]), and the one that expires soonest is evicted before a
//! grant is refused. Without a request to evict, the packet is forwarded as a request without an
//! entry.
//!
//! Nothing is allocated after [`FlowTable::new`].

mod eviction;

use fib::{Table, fetch_ahead};

use crate::expiry::{Wheel, Wheels};
use crate::flow::Flow;
use crate::index::lines::Lines;
use crate::index::{Full, Index, MAX_ENTRIES};
use crate::program::ProgramVerdict;
use crate::state::{Decision, Outcome, Record, Stamp, StartedProgram, State};

/// The grantor set of a flow, by one generation of the policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct PolicyBinding {
    /// The grantor set, below 2^15.
    pub set: u16,
    /// The policy's generation, by its lower 16 bits.
    pub generation: u16,
}

/// An entry of the flow table.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub struct Entry {
    words: [u64; 4],
    hash: u32,
    /// The set, and whether the flow is IPv6.
    of: u16,
    generation: u16,
    record: Record,
}

/// Marks IPv6 in [`Entry::of`].
const V6: u16 = 1 << 15;

const _: () = assert!(size_of::<Entry>() == 128);

impl Entry {
    fn new(flow: &Flow, hash: u32, binding: PolicyBinding, record: Record) -> Self {
        let version = if flow.is_v6() { V6 } else { 0 };
        let of = binding.set & !V6 | version;
        Self { words: flow.to_words(), hash, of, generation: binding.generation, record }
    }

    #[inline(always)]
    fn is_of(&self, flow: &Flow) -> bool {
        self.words == flow.to_words() && (self.of & V6 != 0) == flow.is_v6()
    }

    /// Returns the entry's flow.
    #[inline]
    pub fn flow(&self) -> Flow {
        Flow::from_words(self.words, if self.of & V6 != 0 { 6 } else { 4 })
    }

    /// Returns the flow's grantor set and policy generation.
    #[inline]
    pub fn binding(&self) -> PolicyBinding {
        PolicyBinding { set: self.of & !V6, generation: self.generation }
    }

    /// Returns the flow's hash.
    #[inline]
    pub fn hash(&self) -> u32 {
        self.hash
    }

    /// Returns the record.
    #[inline]
    pub fn record(&self) -> &Record {
        &self.record
    }
}

/// Returns the wheel of an entry in this state.
fn wheel(state: State) -> Wheel {
    match state {
        State::Request => Wheel::Requests,
        State::Granted | State::Program => Wheel::Decided,
        State::Declined | State::Provisional => Wheel::Declined,
    }
}

/// All flows of a worker.
#[derive(Debug)]
pub struct FlowTable<I = Lines> {
    index: I,
    entries: Table<Entry>,
    wheels: Wheels,
    /// Entries that were used and are free.
    free: Vec<u32>,
    /// The first entry that was never used.
    unused: u32,
    granted: usize,
    declined: usize,
    running: usize,
}

impl<I: Index> FlowTable<I> {
    /// Makes an empty table for up to `entries` flows, at `now`.
    ///
    /// The index has at least twice as many slots. Memory: 128 + 12 bytes an entry and 16
    /// to 32 of index.
    ///
    /// # Panics
    ///
    /// If `entries` is 0 or more than [`MAX_ENTRIES`].
    pub fn new(entries: usize, now: u64) -> Self {
        assert!((1..=MAX_ENTRIES).contains(&entries), "a flow table has 1 to 2^28 - 1 entries");
        let slots = (2 * entries).next_power_of_two().max(64);
        let blank = Entry::new(&Flow::default(), 0, PolicyBinding::default(), Record::default());
        Self {
            index: I::with_slots(slots),
            entries: Table::filled(blank, entries),
            wheels: Wheels::new(entries, now),
            free: Vec::with_capacity(entries),
            unused: 0,
            granted: 0,
            declined: 0,
            running: 0,
        }
    }

    /// Prefetches the index line of a flow with this hash.
    #[inline(always)]
    pub fn fetch(&self, hash: u32) {
        self.index.fetch(hash);
    }

    /// Returns an entry with this hash and prefetches it; rarely it is another flow's, which
    /// [`find_from`](Self::find_from) detects.
    #[inline(always)]
    pub fn candidate(&self, hash: u32) -> Option<u32> {
        let entry = self.index.find(hash, |_| true)?;
        fetch_ahead(&self.entries[entry as usize]);
        Some(entry)
    }

    /// Returns the number of a flow's entry.
    #[inline]
    pub fn find(&self, flow: &Flow, hash: u32) -> Option<u32> {
        self.index.find(hash, |entry| self.entries[entry as usize].is_of(flow))
    }

    /// The same, given the candidate.
    #[inline(always)]
    pub fn find_from(&self, candidate: Option<u32>, flow: &Flow, hash: u32) -> Option<u32> {
        match candidate {
            Some(entry) if self.entries[entry as usize].is_of(flow) => Some(entry),
            Some(_) => self.find(flow, hash),
            None => None,
        }
    }

    /// Prefetches the decision of the flow with this entry, if it has one.
    #[inline(always)]
    pub fn fetch_decided(&self, entry: u32) {
        let record = &self.entries[entry as usize].record;
        if record.state() != State::Request {
            record.fetch_decided();
        }
    }

    /// Makes an entry for a flow that has none, and returns its number.
    ///
    /// # Errors
    ///
    /// [`Full`] if there is no entry left, or no place in the index; see
    /// [`make_room`](Self::make_room).
    pub fn insert(
        &mut self,
        flow: &Flow,
        hash: u32,
        binding: PolicyBinding,
        now: u64,
    ) -> Result<u32, Full> {
        let reused = self.free.last().copied();
        let entry = reused.unwrap_or(self.unused);
        if entry as usize >= self.entries.len() {
            return Err(Full);
        }
        self.index.insert(hash, entry)?;
        match reused {
            Some(_) => drop(self.free.pop()),
            None => self.unused += 1,
        }
        let record = Record::new(now);
        self.wheels.schedule(entry, Wheel::Requests, record.expire_at());
        self.entries[entry as usize] = Entry::new(flow, hash, binding, record);
        Ok(entry)
    }

    /// Returns the outcome for a packet of the flow with this entry.
    #[inline(always)]
    pub fn packet(&mut self, entry: u32, now: u64, bytes: u32) -> Outcome {
        let record = &mut self.entries[entry as usize].record;
        let (before, expire_at) = (record.state(), record.expire_at());
        let outcome = record.packet(now, bytes);
        // The wheel detects a postponed expiry by itself, but not an earlier one.
        if before != record.state() || record.expire_at() < expire_at {
            self.reschedule(entry, before);
        }
        outcome
    }

    /// Returns the outcome for a packet with these bytes, Ethernet header left out, of a flow with
    /// declined traffic, after [`packet`](Self::packet) returned [`Outcome::Classify`].
    #[cold]
    pub fn classify(&mut self, entry: u32, now: u64, bytes: &[u8]) -> Outcome {
        let record = &mut self.entries[entry as usize].record;
        let expire_at = record.expire_at();
        let is_declined = record.provisional_traffic().contains(bytes);
        let outcome = record.classified(now, is_declined);
        if record.expire_at() < expire_at {
            self.reschedule(entry, State::Provisional);
        }
        outcome
    }

    /// Records that the source of the flow with this entry has proven its address.
    pub fn prove(&mut self, entry: u32, now: u64) {
        let record = &mut self.entries[entry as usize].record;
        let before = record.state();
        record.prove(now);
        self.reschedule(entry, before);
    }

    /// Applies a decision to the flow with this entry, and returns whether it counts.
    pub fn decide(&mut self, entry: u32, now: u64, decision: &Decision, stamp: Stamp) -> bool {
        let record = &mut self.entries[entry as usize].record;
        let before = record.state();
        let counts = record.decide(now, decision, stamp);
        if counts {
            self.reschedule(entry, before);
        }
        counts
    }

    /// Returns the outcome for the verdict of the flow's program, and stores the program's cookie.
    pub fn answer(
        &mut self,
        entry: u32,
        now: u64,
        cookie: &[u8; 64],
        answer: ProgramVerdict,
    ) -> Outcome {
        let record = &mut self.entries[entry as usize].record;
        let before = record.state();
        record.set_cookie(cookie);
        let outcome = record.answer(now, answer);
        if before != record.state() {
            self.reschedule(entry, before);
        }
        outcome
    }

    /// Starts a program for the flow with this entry, and returns whether that counts.
    pub fn run(&mut self, entry: u32, now: u64, started: &StartedProgram, stamp: Stamp) -> bool {
        let record = &mut self.entries[entry as usize].record;
        let before = record.state();
        let counts = record.run(now, started, stamp);
        if counts {
            self.reschedule(entry, before);
        }
        counts
    }

    /// Replaces the grantor set and policy generation of the flow with this entry.
    #[inline]
    pub fn bind(&mut self, entry: u32, binding: PolicyBinding) {
        let entry = &mut self.entries[entry as usize];
        entry.of = entry.of & V6 | binding.set & !V6;
        entry.generation = binding.generation;
    }

    /// Counts and schedules an entry whose state was `before`.
    fn reschedule(&mut self, entry: u32, before: State) {
        let record = &self.entries[entry as usize].record;
        let (after, expire_at) = (record.state(), record.expire_at());
        self.count(before, -1);
        self.count(after, 1);
        self.wheels.cancel(entry);
        self.wheels.schedule(entry, wheel(after), expire_at);
    }

    fn count(&mut self, state: State, by: isize) {
        match state {
            State::Request => {}
            State::Granted => self.granted = self.granted.wrapping_add_signed(by),
            State::Declined | State::Provisional => {
                self.declined = self.declined.wrapping_add_signed(by);
            }
            State::Program => self.running = self.running.wrapping_add_signed(by),
        }
    }

    /// Makes an entry for a flow that has none, with a saved record.
    ///
    /// # Errors
    ///
    /// As [`insert`](Self::insert).
    pub fn restore(
        &mut self,
        flow: &Flow,
        hash: u32,
        binding: PolicyBinding,
        record: Record,
        now: u64,
    ) -> Result<u32, Full> {
        let entry = self.insert(flow, hash, binding, now)?;
        let before = self.entries[entry as usize].record.state();
        self.entries[entry as usize].record = record;
        self.reschedule(entry, before);
        Ok(entry)
    }

    /// Removes a flow.
    pub fn remove(&mut self, entry: u32) {
        self.wheels.cancel(entry);
        self.forget(entry);
    }

    /// Removes a flow that is in no wheel.
    fn forget(&mut self, entry: u32) {
        let Entry { hash, record, .. } = self.entries[entry as usize];
        if self.index.remove(hash, entry) {
            self.count(record.state(), -1);
            self.free.push(entry);
        }
    }

    /// Returns the entry with a number that [`find`](Self::find) returned.
    #[inline]
    pub fn entry(&self, entry: u32) -> &Entry {
        &self.entries[entry as usize]
    }

    /// Returns the flows whose entries are in this range of numbers, with the numbers: for walks
    /// through the table, part by part.
    pub fn within(&self, range: core::ops::Range<usize>) -> impl Iterator<Item = (u32, &Entry)> {
        let end = range.end.min(self.unused as usize);
        let start = range.start.min(end);
        let part = (start as u32..).zip(&self.entries[start..end]);
        part.filter(|(number, entry)| self.index.find(entry.hash, |at| at == *number).is_some())
    }

    /// Counts the entries that were ever used: higher numbers are free.
    pub fn used(&self) -> usize {
        self.unused as usize
    }

    /// Counts all entries.
    pub fn capacity(&self) -> usize {
        self.entries.len()
    }

    /// Counts the flows.
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Returns whether there are no flows.
    pub fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// Counts the granted flows, including expired ones that no packet has met since.
    pub fn granted(&self) -> usize {
        self.granted
    }

    /// Counts the declined flows, provisional ones included, likewise.
    pub fn declined(&self) -> usize {
        self.declined
    }

    /// Counts the flows with a program, likewise.
    pub fn running(&self) -> usize {
        self.running
    }
}

#[cfg(test)]
mod tests;
