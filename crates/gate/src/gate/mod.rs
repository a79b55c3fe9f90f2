//! The gate: batches of packets in, a verdict for each out (thesis, algorithms 5 to 8).
//!
//! ```text
//!   packets, a group at a time
//!     0  sources on either list: verdict            all, if there is a list
//!     1  index lines fetched                        the others
//!     2  candidates found, their entries fetched    these
//!     3  known flows: state, verdict                those whose entry is current
//!     4  policy, by family, together                the others
//!     5  entries evicted from a full table, together    as many as will need one
//!     6  entry if admitted, state, verdict          the others
//! ```
//!
//! Each step goes through the whole group before the next begins, so that its waits for
//! memory overlap: group prefetching (4.5.3), of [`GROUP`] packets. A group of one is
//! algorithm 5, for comparison.
//!
//! **Known flows skip the policy lookup** while the policy has the generation in their entry. With
//! another generation they take the path of new flows and are found again in step 6: a flow whose
//! destination has another grantor set gets it, one whose destination is no longer protected loses
//! its entry.
//!
//! **Admission** (`admission.rs`): while the table is fuller than a threshold, a flow gets its
//! entry with its second packet. The mark of the first is prefetched ahead of step 5. With cookies
//! (`cookie.rs`) a TCP flow gets it when it has returned one; resets that do so are recognized
//! between steps 0 and 1, while any cookie is outstanding.
//!
//! **Insertion stops after the first failure in a group** (4.5.2): the packets after it continue as
//! requests without an entry, at the priority of new ones. It fails only when nothing in the table
//! can be evicted: when all of it is granted or declined (declines have a share only, and are
//! evicted before a grant is refused).
//!
//! **Forged packets** (`policy/forged.rs`) are found with the policy, in step 4, and so have no
//! entry; a source on the allow-list does not exempt them.
//!
//! **Lists of sources** come first: packets of an allowed source go to the grantor of their
//! destination like granted ones, without an entry, a rate, or any limit but the link's;
//! unprotected destinations are handled as usual. Packets of a blocked source are dropped, whatever
//! their destination.
//!
//! **Limits** of prefixes and destinations (`limit/aggregate.rs`) come last: every packet towards a
//! grantor is charged, or dropped.
//!
//! **Flows with a program** run it in the steps that know a flow's state, on the packet's bytes,
//! which [`Gate::process_with`] reads by a closure. Without bytes the result is an error.
//!
//! `coroutines.rs` has the alternative with coroutines.
//!
//! Time is the group's: one reading for all its packets.

mod admit;
mod coroutines;
mod decide;
mod families;
mod prove;
mod rule_counters;
mod run;
mod source;
mod verdict;

pub use decide::{IgnoredReason, MAX_PREFIX_DECISIONS};
pub use rule_counters::{Count, OutcomeCounts, RuleCounters, RuleOutcome};
pub use verdict::{DropReason, GateCounters, Verdict};

use std::sync::Arc;

use fib::Reader;

use crate::admission::{Admission, AdmissionConfig};
use crate::cookie::{self, Cookies, Secrets};
use crate::flow::Flow;
use crate::index::Index;
use crate::index::lines::Lines;
use crate::limit::aggregate::{Aggregates, Class, ExceededLimit};
use crate::policy::{Action, Address, GrantorSet, Policy, RuleId};
use crate::program::Programs;
use crate::state::{Outcome, Record};
use crate::table::{FlowTable, PolicyBinding};
use decide::PrefixDecisions;
use families::{dst, look_up};
use prove::Resets;
use run::ProgramRunner;

/// Maximum number of packets in a group.
pub const GROUP: usize = 32;

/// The fields of a packet that the gate needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// The packet's flow.
    pub flow: Flow,
    /// The flow's hash, carried from steering.
    pub hash: u32,
    /// The frame's length, Ethernet header included.
    pub bytes: u32,
}

/// A worker's gate.
#[derive(Debug)]
pub struct Gate<I = Lines> {
    table: FlowTable<I>,
    policy: Reader<Policy>,
    /// Packets of a group, at most [`GROUP`].
    group: usize,
    evicts: bool,
    admission: Option<Admission>,
    cookies: Option<Cookies>,
    limits: Aggregates,
    counts: GateCounters,
    ledger: Arc<RuleCounters>,
    wide: PrefixDecisions,
    runner: ProgramRunner,
}

/// A packet that step 3 has not decided, and what is known of it.
#[derive(Clone, Copy, Default)]
struct Unresolved {
    /// Its position in the group.
    at: u8,
    action: Option<Action>,
    line: RuleId,
}

impl<I: Index> Gate<I> {
    /// Creates a gate for up to `entries` flows with this policy, at `now`.
    ///
    /// # Panics
    ///
    /// As [`FlowTable::new`].
    pub fn new(entries: usize, policy: Reader<Policy>, now: u64) -> Self {
        Self {
            table: FlowTable::new(entries, now),
            policy,
            group: GROUP,
            evicts: true,
            admission: None,
            cookies: None,
            limits: Aggregates::new(now),
            counts: GateCounters::default(),
            ledger: Arc::default(),
            wide: PrefixDecisions::default(),
            runner: ProgramRunner::default(),
        }
    }

    /// Sets the programs; without them, decisions that name one are ignored.
    pub fn set_programs(&mut self, programs: Reader<Programs>) {
        self.runner.set(programs);
    }

    /// Sets the counters by rule, which belong to this gate alone.
    pub fn set_ledger(&mut self, ledger: Arc<RuleCounters>) {
        self.ledger = ledger;
    }

    /// Requires a second packet before a flow gets an entry; without this, no flow needs one.
    pub fn set_admission(&mut self, terms: &AdmissionConfig) {
        self.admission = Some(Admission::new(terms, self.table.capacity()));
    }

    /// Requires a returned cookie of TCP flows where flows need a second packet, which takes
    /// [`set_admission`](Self::set_admission) and packets whose bytes can be read.
    pub fn set_cookies(&mut self, terms: &cookie::CookieConfig, now: u64) {
        self.cookies = Some(Cookies::new(terms, now));
    }

    /// Makes cookies with the published secrets, if cookies are enabled.
    pub fn follow_secrets(&mut self, published: Reader<Secrets>) {
        if let Some(cookies) = &mut self.cookies {
            cookies.follow(published);
        }
    }

    /// Sets the bytes between outer and inner header that count against limits: where tunnels use
    /// UDP.
    pub fn set_encapsulation(&mut self, between: u32) {
        self.limits.set_between(between);
    }

    /// Returns the time of the first packet of a flow without an entry, if it is remembered.
    pub fn first_seen_at(&self, hash: u32, now: u64) -> Option<u64> {
        self.admission.as_ref()?.first_seen_at(hash, now)
    }

    /// Restores the record of a flow, unless it has expired at `now`; returns whether it was
    /// restored. The policy is looked up with its next packet.
    pub fn restore(&mut self, now: u64, flow: &Flow, hash: u32, record: Record) -> bool {
        if record.expire_at() <= now || self.table.find(flow, hash).is_some() {
            return false;
        }
        let another = (self.policy.current().generation() as u16).wrapping_sub(1);
        let binding = PolicyBinding { set: 0, generation: another };
        self.table.restore(flow, hash, binding, record, now).is_ok()
    }

    /// Sets the group size, 1 to [`GROUP`]: for measurements.
    pub fn set_group(&mut self, packets: usize) {
        self.group = packets.clamp(1, GROUP);
    }

    /// Disables the eviction of requests: for measurements.
    pub fn disable_eviction(&mut self) {
        self.evicts = false;
    }

    /// Prefetches the index line of a flow with this hash: worth it as soon as the hash is known,
    /// while other packets are still parsed.
    #[inline]
    pub fn fetch(&self, hash: u32) {
        self.table.fetch(hash);
    }

    /// Returns a verdict for each packet, at `now`.
    ///
    /// # Panics
    ///
    /// If the slices differ in length.
    pub fn process(&mut self, now: u64, packets: &[Packet], verdicts: &mut [Verdict]) {
        self.process_with(now, packets, |_| &[], verdicts);
    }

    /// The same, for packets whose bytes can be read: `bytes` of a packet's number in the batch
    /// begin with its IP header. Only flow programs and declines of some traffic read them.
    ///
    /// # Panics
    ///
    /// If the slices differ in length.
    pub fn process_with<'a>(
        &mut self,
        now: u64,
        packets: &[Packet],
        bytes: impl Fn(usize) -> &'a [u8],
        verdicts: &mut [Verdict],
    ) {
        assert_eq!(packets.len(), verdicts.len(), "a verdict for each packet");
        let verdicts = verdicts.chunks_mut(self.group);
        let mut done = 0;
        for (packets, verdicts) in packets.chunks(self.group).zip(verdicts) {
            self.process_group(now, packets, |at| bytes(done + at), verdicts);
            done += packets.len();
        }
    }

    fn process_group<'a>(
        &mut self,
        now: u64,
        packets: &[Packet],
        bytes: impl Fn(usize) -> &'a [u8],
        verdicts: &mut [Verdict],
    ) {
        let policy = self.policy.current();
        let generation = policy.generation() as u16;
        let (table, limits) = (&mut self.table, &mut self.limits);
        let settled = match policy.sources().is_empty() {
            true => 0,
            false => source::apply_lists(policy, packets, verdicts, &mut self.counts, &self.ledger),
        };
        let resets = match &mut self.cookies {
            Some(cookies) => Resets::find(cookies, now, packets, &bytes),
            None => Resets::default(),
        };
        packets.iter().for_each(|packet| table.fetch(packet.hash));
        let mut candidates = [None; GROUP];
        for (packet, candidate) in packets.iter().zip(&mut candidates) {
            *candidate = table.candidate(packet.hash);
        }
        for (packet, candidate) in packets.iter().zip(&mut candidates) {
            *candidate = table.find_from(*candidate, &packet.flow, packet.hash);
            if let Some(entry) = *candidate {
                table.fetch_decided(entry);
            }
        }
        let mut left = [Unresolved::default(); GROUP];
        let mut count = 0;
        for (at, packet) in packets.iter().enumerate() {
            match candidates[at] {
                _ if settled >> at & 1 != 0 => {}
                Some(entry) if table.entry(entry).binding().generation == generation => {
                    let runner = &mut self.runner;
                    verdicts[at] = match resets.valid >> at & 1 {
                        0 => known_flow_verdict(
                            table,
                            runner,
                            policy,
                            limits,
                            entry,
                            now,
                            packet,
                            || bytes(at),
                        ),
                        _ => {
                            table.prove(entry, now);
                            Verdict::Drop(DropReason::CookieReset)
                        }
                    };
                    let line = policy.rule_of(table.entry(entry).binding().set);
                    self.counts.verdict(&self.ledger, line, &verdicts[at], packet.bytes);
                }
                _ => {
                    left[count].at = at as u8;
                    count += 1;
                }
            }
        }
        if count > 0 {
            let left = &mut left[..count];
            look_up(policy, packets, left);
            self.admit(now, packets, bytes, verdicts, left, resets);
        }
    }

    /// Counts a forged packet: its source is an address of the gate's own machine. The caller must
    /// not pass it to [`process`](Self::process).
    pub fn drop_forged(&mut self, bytes: u32) -> Verdict {
        let verdict = Verdict::Drop(DropReason::Forged);
        self.counts.verdict(&self.ledger, RuleId::NONE, &verdict, bytes);
        verdict
    }

    /// Does the work beside packets: removes expired flows, and continues decisions about prefixes;
    /// `work` is the maximum number of entries to read. Workers call this once a turn.
    pub fn run_maintenance(&mut self, now: u64, work: u32) {
        self.counts.expired += self.table.expire(now, work) as u64;
        let (table, runner) = (&mut self.table, &mut self.runner);
        self.wide.walk(table, runner, &mut self.counts, now, work as usize);
        self.runner.idle();
    }

    /// Declares that no packets come for a while, so that a new policy need not wait.
    pub fn idle(&mut self) {
        self.policy.idle();
        self.runner.idle();
    }

    /// Counts the accesses of verified programs that violate their limits: always 0, or the
    /// verifier is wrong.
    pub fn faults(&self) -> u64 {
        self.runner.faults()
    }

    /// Returns the flow table.
    pub fn table(&self) -> &FlowTable<I> {
        &self.table
    }

    /// Counts the times that a destination with a limit replaced another in use.
    pub fn displaced(&self) -> u64 {
        self.limits.displaced()
    }

    /// Returns the counters by rule.
    pub fn ledger(&self) -> &RuleCounters {
        &self.ledger
    }

    /// Returns the counters.
    pub fn counts(&self) -> &GateCounters {
        &self.counts
    }
}

/// Returns the verdict for a packet whose flow has an entry.
#[expect(clippy::too_many_arguments, reason = "the parts of a gate, borrowed one by one")]
#[inline(always)]
fn known_flow_verdict<'a, I: Index>(
    table: &mut FlowTable<I>,
    runner: &mut ProgramRunner,
    policy: &Policy,
    limits: &mut Aggregates,
    entry: u32,
    now: u64,
    packet: &Packet,
    bytes: impl FnOnce() -> &'a [u8],
) -> Verdict {
    let set = table.entry(entry).binding().set;
    let outcome = runner.outcome(table, entry, now, packet.bytes, bytes);
    charged_verdict(policy, limits, set, now, packet, outcome)
}

/// Returns the verdict for a packet of a flow with this set by its outcome, and charges limits.
#[inline(always)]
fn charged_verdict(
    policy: &Policy,
    limits: &mut Aggregates,
    set: u16,
    now: u64,
    packet: &Packet,
    outcome: Outcome,
) -> Verdict {
    let set = policy.set(set);
    let verdict = verdict_by_outcome(set, packet.hash, outcome);
    let Some(limit) = set.and_then(GrantorSet::limit) else { return verdict };
    let between = limits.between();
    let outer = |grantor| match grantor {
        Address::V4(_) => wire::ipv4::LEN as u32 + between,
        Address::V6(_) => wire::ipv6::LEN as u32 + between,
    };
    let (class, bytes) = match verdict {
        Verdict::Request { grantor, dscp } => (Class::Request(dscp), outer(grantor)),
        Verdict::Granted { grantor, .. } => (Class::Granted, outer(grantor)),
        Verdict::Direct { .. } => (Class::Granted, 0),
        verdict => return verdict,
    };
    let to = match dst(&packet.flow) {
        Address::V4(dst) => dst.into(),
        Address::V6(dst) => dst,
    };
    match limits.charge(limit, to, class, packet.bytes.saturating_add(bytes), now) {
        Ok(()) => verdict,
        Err(ExceededLimit::Prefix) => Verdict::Drop(DropReason::OverLimit),
        Err(ExceededLimit::Destination) => Verdict::Drop(DropReason::OverDestinationLimit),
    }
}

/// Returns the verdict by the outcome, without limits.
#[inline(always)]
fn verdict_by_outcome(set: Option<&GrantorSet>, hash: u32, outcome: Outcome) -> Verdict {
    let grantor = || set.and_then(|set| set.pick(hash)).map(|to| to.address);
    const NO_GRANTOR: Verdict = Verdict::Drop(DropReason::NoGrantor);
    match outcome {
        Outcome::Request { dscp } => {
            grantor().map_or(NO_GRANTOR, |grantor| Verdict::Request { grantor, dscp })
        }
        Outcome::Granted { renew } => {
            grantor().map_or(NO_GRANTOR, |grantor| Verdict::Granted { grantor, renew })
        }
        Outcome::Direct => grantor().map_or(NO_GRANTOR, |grantor| Verdict::Direct { grantor }),
        Outcome::OverRate => Verdict::Drop(DropReason::OverRate),
        Outcome::DeclinedByProgram => Verdict::Drop(DropReason::Program),
        // A program has run, and traffic is classified, before a verdict is made.
        Outcome::Error | Outcome::Run(_) | Outcome::Classify => {
            Verdict::Drop(DropReason::ProgramError)
        }
        Outcome::Declined => Verdict::Drop(DropReason::Declined),
    }
}

#[cfg(test)]
mod tests;
