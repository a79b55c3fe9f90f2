//! The packet path with coroutines: the alternative to groups (thesis, 4.5.3, 4.5.4).
//!
//! ```text
//!   packet 0   index ─┐          entry ─┐          decided ─► state, verdict
//!   packet 1          index ─┐          entry ─┐              decided ─► …
//!   packet 2                 index ─┐          entry ─┐
//! ```
//!
//! Each packet in flight is a stackless coroutine: it prefetches what it needs next and yields
//! until its turn comes again. The caller chooses how many are in flight, and may change this while
//! it runs (`fib::engine::overlap::Tuner`).
//!
//! All take the same number of steps, so they end in the order of the batch, and the last step
//! makes all changes to the table: the outcome is that of one packet after the other, for any
//! number in flight. In a full table that is also the cost: entries are evicted packet by packet,
//! where a group evicts for all of its packets at once, with overlapping waits.
//!
//! This is kept for the comparison of the gate's benchmark: the gate uses groups.

use fib::engine::overlap::MAX_IN_FLIGHT;

use super::families::look_up;
use super::prove::Resets;
use super::{Gate, Packet, Unresolved, Verdict};
use crate::index::Index;

/// The next step of a packet.
#[derive(Clone, Copy)]
enum At {
    Index,
    Entry,
    Decided,
}

impl<I: Index> Gate<I> {
    /// Returns a verdict for each packet, at `now`, with `in_flight` packets at a time, 1 to
    /// [`MAX_IN_FLIGHT`].
    ///
    /// # Panics
    ///
    /// If the slices differ in length.
    pub fn process_with_coroutines(
        &mut self,
        now: u64,
        packets: &[Packet],
        in_flight: usize,
        verdicts: &mut [Verdict],
    ) {
        assert_eq!(packets.len(), verdicts.len(), "a verdict for each packet");
        let in_flight = in_flight.clamp(1, MAX_IN_FLIGHT);
        let mut under_way = [At::Index; MAX_IN_FLIGHT];
        let mut candidates = [None; MAX_IN_FLIGHT];
        // Packet n is in slot n of the ring, modulo its length; `begun` are in flight or done.
        let (mut begun, mut done) = (0, 0);
        while done < packets.len() {
            while begun < packets.len() && begun - done < in_flight {
                self.table.fetch(packets[begun].hash);
                under_way[begun % MAX_IN_FLIGHT] = At::Index;
                begun += 1;
            }
            let sweep = done..begun;
            for at in sweep {
                let (packet, place) = (&packets[at], at % MAX_IN_FLIGHT);
                under_way[place] = match under_way[place] {
                    At::Index => {
                        candidates[place] = self.table.candidate(packet.hash);
                        At::Entry
                    }
                    At::Entry => {
                        let table = &self.table;
                        let entry = table.find_from(candidates[place], &packet.flow, packet.hash);
                        if let Some(entry) = entry {
                            table.fetch_decided(entry);
                        }
                        At::Decided
                    }
                    At::Decided => {
                        self.finish(now, packet, &mut verdicts[at]);
                        done += 1;
                        continue;
                    }
                };
            }
        }
    }

    /// Runs the last step: group step 3 for a known flow, and 4 to 6 otherwise.
    fn finish(&mut self, now: u64, packet: &Packet, verdict: &mut Verdict) {
        let policy = self.policy.current();
        let generation = policy.generation() as u16;
        if let Some(said) = policy.source(&packet.flow) {
            let line;
            (*verdict, line) = super::source::verdict(policy, packet, said);
            self.counts.verdict(&self.ledger, line, verdict, packet.bytes);
            return;
        }
        // Another packet may have evicted its entry since, or made one for it.
        let entry = self.table.find(&packet.flow, packet.hash);
        let known = |entry: &u32| self.table.entry(*entry).binding().generation == generation;
        if let Some(entry) = entry.filter(known) {
            let (table, runner) = (&mut self.table, &mut self.runner);
            let limits = &mut self.limits;
            let line = policy.rule_of(table.entry(entry).binding().set);
            *verdict = super::known_flow_verdict(
                table,
                runner,
                policy,
                limits,
                entry,
                now,
                packet,
                || &[],
            );
            self.counts.verdict(&self.ledger, line, verdict, packet.bytes);
            return;
        }
        let mut left = [Unresolved::default()];
        let packets = core::slice::from_ref(packet);
        look_up(policy, packets, &mut left);
        let verdicts = core::slice::from_mut(verdict);
        self.admit(now, packets, |_| &[], verdicts, &left, Resets::default());
    }
}
