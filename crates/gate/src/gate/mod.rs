//! The gate: batches of packets in, a verdict for each out (thesis, algorithms 5 to 8).
//!
//! ```text
//!   packets, a group at a time
//!     0  sources on either list: verdict            all, if there is a list
//!     1  index lines fetched                        the others
//!     2  candidates found, their entries fetched    these
//!     3  known flows: state, verdict                those whose entry is current
//!     4  policy, by family, together                the others
//!     5  room made in a full table, together        as many as will need it
//!     6  entry if admitted, state, verdict          the others
//! ```
//!
//! Each step goes through the whole group before the next begins, so that its waits for
//! memory overlap: group prefetching (4.5.3), of [`GROUP`] packets. A group of one is
//! algorithm 5, for comparison.
//!
//! **Known flows never look at the policy** while it is of the generation that their entry
//! remembers. When it is another, they go the way of new ones and are found again in step 6:
//! a flow whose destination has another grantor set gets it, one whose destination is no
//! longer protected loses its entry.
//!
//! **Admission** (`admission.rs`): while the table is fuller than is said, a flow gets its entry
//! with its second packet. What is remembered of the first is fetched ahead of step 5. With
//! cookies (`cookie.rs`) a TCP flow gets it when it has answered one; resets that do so are told
//! from others between steps 0 and 1, while any is awaited.
//!
//! **Insertion stops after the first failure in a group** (4.5.2): the packets after it go
//! on as requests without an entry, at the priority of new ones. It fails only when nothing
//! in the table can be given up, which is when all of it was granted or declined (declines have a
//! share only, and go before a grant is refused).
//!
//! **Forged packets** (`policy/forged.rs`) are found with the policy, in step 4, and so have no
//! entry; a source on the allow-list does not help them.
//!
//! **Lists of sources** come before everything: packets of one that is allowed go to the grantor of
//! their destination like granted ones, with no entry, no rate and no limit but the link's; what is not
//! protected goes its way as ever. Packets of one that is blocked are dropped, wherever they go.
//!
//! **Limits** of prefixes and destinations (`limit/aggregate.rs`) come last: whatever is to leave for a
//! grantor is charged, or dropped.
//!
//! **Flows with a program** have it run in the steps that know a flow's state, with the
//! packet's bytes, which [`Gate::process_with`] is given a way to. Without bytes they
//! are errors.
//!
//! The alternative by coroutines is in `woven.rs`.
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
pub use rule_counters::{OutcomeCounts, RULES, RuleCounters, RuleId, RuleOutcome};
pub use verdict::{Count, DropReason, GateCounters, Verdict};

use std::sync::Arc;

use fib::Reader;

use crate::admission::{Admission, AdmissionConfig};
use crate::cookie::{self, Cookies, Secrets};
use crate::flow::Flow;
use crate::index::Index;
use crate::index::lines::Lines;
use crate::limit::aggregate::{Aggregates, Class, ExceededLimit};
use crate::policy::{Action, Address, GrantorSet, Policy};
use crate::program::Programs;
use crate::state::{Outcome, Record};
use crate::table::{FlowTable, PolicyBinding};
use decide::PrefixDecisions;
use families::{dst, look_up};
use prove::Resets;
use run::ProgramRunner;

/// The most packets of a group.
pub const GROUP: usize = 32;

/// A packet as far as the gate is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Whose it is.
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

/// What is known of a packet that step 3 has left over.
#[derive(Clone, Copy, Default)]
struct Unresolved {
    /// Its place in the group.
    at: u8,
    action: Option<Action>,
    line: RuleId,
}

impl<I: Index> Gate<I> {
    /// Makes a gate for up to `entries` flows by this policy, at `now`.
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

    /// Has these programs from now on; without, decisions that name one are ignored.
    pub fn set_programs(&mut self, programs: Reader<Programs>) {
        self.runner.set(programs);
    }

    /// Enters packets by the rule that decides of them there from now on, which is no other gate's.
    pub fn set_ledger(&mut self, ledger: Arc<RuleCounters>) {
        self.ledger = ledger;
    }

    /// Has flows show themselves from now on before they get an entry; without, none has to.
    pub fn set_admission(&mut self, terms: &AdmissionConfig) {
        self.admission = Some(Admission::new(terms, self.table.capacity()));
    }

    /// Has TCP answer a cookie from now on where a flow has to show itself, which takes
    /// [`set_admission`](Self::set_admission) and packets whose bytes can be had.
    pub fn set_cookies(&mut self, terms: &cookie::CookieConfig, now: u64) {
        self.cookies = Some(Cookies::new(terms, now));
    }

    /// Has cookies made with the secrets that are published, where they are made at all.
    pub fn follow_secrets(&mut self, published: Reader<Secrets>) {
        if let Some(cookies) = &mut self.cookies {
            cookies.follow(published);
        }
    }

    /// Has so many bytes between outer and inner header count against limits from now on: where
    /// tunnels have UDP.
    pub fn set_encapsulation(&mut self, between: u32) {
        self.limits.set_between(between);
    }

    /// Says when the first packet of a flow without an entry came, if that is remembered.
    pub fn first_seen_at(&self, hash: u32, now: u64) -> Option<u64> {
        self.admission.as_ref()?.first_seen_at(hash, now)
    }

    /// Remembers a flow as it was remembered before, unless that is over at `now`; says
    /// whether it does. The policy is asked of it with its next packet.
    pub fn restore(&mut self, now: u64, flow: &Flow, hash: u32, record: Record) -> bool {
        if record.expire_at() <= now || self.table.find(flow, hash).is_some() {
            return false;
        }
        let another = (self.policy.current().generation() as u16).wrapping_sub(1);
        let binding = PolicyBinding { set: 0, generation: another };
        self.table.restore(flow, hash, binding, record, now).is_ok()
    }

    /// Takes groups of so many packets, 1 to [`GROUP`], from now on: for measuring.
    pub fn set_group(&mut self, packets: usize) {
        self.group = packets.clamp(1, GROUP);
    }

    /// Gives no request up for another from now on: for measuring.
    pub fn disable_eviction(&mut self) {
        self.evicts = false;
    }

    /// Asks the CPU for what judging a packet of a flow with this hash begins with: worth it as soon
    /// as the hash is known, where others are still parsed before it is judged.
    #[inline]
    pub fn fetch(&self, hash: u32) {
        self.table.fetch(hash);
    }

    /// Gives each packet its verdict, at `now`.
    ///
    /// # Panics
    ///
    /// If the slices differ in length.
    pub fn process(&mut self, now: u64, packets: &[Packet], verdicts: &mut [Verdict]) {
        self.process_with(now, packets, |_| &[], verdicts);
    }

    /// Does so, for packets whose bytes can be had: `bytes` of a packet's number in the
    /// batch begin with its IP header. Only flow programs read them.
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
                            Verdict::Drop(DropReason::Proof)
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

    /// Does what is due beside packets: forgets flows that are over, and goes on with
    /// decisions about prefixes; `work` bounds it, in entries looked at. To be called with
    /// every turn.
    pub fn run_maintenance(&mut self, now: u64, work: u32) {
        self.counts.expired += self.table.expire(now, work) as u64;
        let (table, runner) = (&mut self.table, &mut self.runner);
        self.wide.walk(table, runner, &mut self.counts, now, work as usize);
        self.runner.idle();
    }

    /// Says that no packets come for a while, so that a new policy need not wait.
    pub fn idle(&mut self) {
        self.policy.idle();
        self.runner.idle();
    }

    /// Counts what verified programs did that they must not: always 0, or the verifier is
    /// wrong.
    pub fn faults(&self) -> u64 {
        self.runner.faults()
    }

    /// Returns the flows.
    pub fn table(&self) -> &FlowTable<I> {
        &self.table
    }

    /// Counts the times that a destination with a limit took the place of another in use.
    pub fn displaced(&self) -> u64 {
        self.limits.displaced()
    }

    /// Returns what became of packets by the rule that decided.
    pub fn ledger(&self) -> &RuleCounters {
        &self.ledger
    }

    /// Returns what has happened so far.
    pub fn counts(&self) -> &GateCounters {
        &self.counts
    }
}

/// Says what becomes of a packet whose flow has an entry.
#[expect(clippy::too_many_arguments, reason = "what a gate is made of, without the rest of it")]
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

/// Says where a packet of a flow with this set goes by its outcome.
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

/// Says so, limits aside.
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
        // Whoever names a program has it run before a verdict is made.
        Outcome::Error | Outcome::Run(_) | Outcome::Classify => {
            Verdict::Drop(DropReason::ProgramError)
        }
        Outcome::Declined => Verdict::Drop(DropReason::Declined),
    }
}

#[cfg(test)]
mod tests;
