//! Packets of flows that have no entry, or one of another policy: steps 5 and 6 of a group.
//!
//! ```text
//!   destination ─┬─ not protected ─► verdict by the policy, an entry goes
//!                └─ protected ─┬─ brings a cookie back ─► an entry, and the packet is dropped
//!                              ├─ has an entry, or is admitted to one ─► state ─► verdict
//!                              └─ none ─┬─► a request, and nothing of it in the table
//!                                       └─ a SYN that may be answered by a cookie ─► asked
//! ```
//!
//! Who has to answer a cookie (`cookie.rs`) is asked with his first SYN. If he comes again and has
//! not answered, as where a box on his way swallows what looks wrong to it, his packets are
//! requests by his patience all the same; he has no entry, which is all that he lacks.
//!
//! Room is made for those who will get an entry and for no others, so that first packets do
//! not push out who has shown himself.

use super::prove::{Resets, Segment, is_tcp, segment};
use super::source::unprotected_verdict;
use super::{
    DropReason, GROUP, Gate, GateCounters, Packet, RuleCounters, RuleId, Unresolved, Verdict,
    charged_verdict, verdict_by_outcome,
};
use crate::admission::{Admission, Arrival};
use crate::cookie::{Cookie, Cookies};
use crate::flow::Flow;
use crate::index::Index;
use crate::policy::Action;
use crate::priority::{FIRST, dscp};
use crate::state::{Outcome, Record};
use crate::table::{FlowTable, PolicyBinding};

/// What is at hand for those who come.
struct AdmissionContext<'g, I> {
    table: &'g mut FlowTable<I>,
    admission: Option<&'g mut Admission>,
    cookies: Option<&'g mut Cookies>,
    counts: &'g mut GateCounters,
    ledger: &'g RuleCounters,
    evicts: bool,
    /// Insertion has failed: it is not tried again.
    full: bool,
}

/// What a flow without an entry has come to.
enum AdmissionResult {
    /// It has this entry.
    Entry(u32),
    /// It has none, and its packet this outcome.
    NoEntry(Outcome),
    /// It has none, and has to answer this first.
    Challenge(Cookie),
}

impl<I: Index> Gate<I> {
    /// Goes through packets of flows that have no entry, or one of another policy.
    pub(super) fn admit<'a>(
        &mut self,
        now: u64,
        packets: &[Packet],
        read: impl Fn(usize) -> &'a [u8],
        verdicts: &mut [Verdict],
        left: &[Unresolved],
        resets: Resets,
    ) {
        let policy = self.policy.current();
        let generation = policy.generation() as u16;
        let mut context = AdmissionContext {
            table: &mut self.table,
            admission: self.admission.as_mut(),
            cookies: self.cookies.as_mut(),
            counts: &mut self.counts,
            ledger: &self.ledger,
            evicts: self.evicts,
            full: false,
        };
        context.make_room_for_group(now, packets, &read, left, resets.valid);
        for &Unresolved { at, action, line } in left {
            let at = usize::from(at);
            let Packet { flow, hash, bytes } = &packets[at];
            // It may have come since, with a packet before this one, or gone.
            let entry = context.table.find(flow, *hash);
            verdicts[at] = if let Some(Action::Grantors(set)) = action {
                let binding = PolicyBinding { set, generation };
                if resets.valid >> at & 1 != 0 {
                    match entry {
                        Some(entry) => {
                            context.table.bind(entry, binding);
                            context.table.prove(entry, now);
                        }
                        None => {
                            if let Some(entry) = context.admit_proven(flow, *hash, binding, now) {
                                let (table, runner) = (&mut *context.table, &mut self.runner);
                                self.wide.apply(table, runner, entry, flow, now);
                            }
                        }
                    }
                    verdicts[at] = Verdict::Drop(DropReason::Proof);
                    context.record_verdict(line, &verdicts[at], *bytes);
                    continue;
                }
                let mut challenge = None;
                let admitted = match entry {
                    Some(entry) => {
                        context.table.bind(entry, binding);
                        AdmissionResult::Entry(entry)
                    }
                    None => {
                        context.counts.invalid_cookies += u64::from(resets.invalid >> at & 1);
                        context.admit_flow(flow, *hash, binding, now, || read(at))
                    }
                };
                let outcome = match admitted {
                    AdmissionResult::Entry(number) => {
                        let (table, runner) = (&mut *context.table, &mut self.runner);
                        if entry.is_none() {
                            self.wide.apply(table, runner, number, flow, now);
                        }
                        runner.outcome(table, number, now, *bytes, || read(at))
                    }
                    AdmissionResult::NoEntry(_) | AdmissionResult::Challenge(_)
                        if self.wide.declines(flow, now) =>
                    {
                        Outcome::Declined
                    }
                    AdmissionResult::Challenge(cookie) => {
                        challenge = Some(cookie);
                        Outcome::Request { dscp: dscp(FIRST) }
                    }
                    AdmissionResult::NoEntry(outcome) => {
                        context.counts.without_entry += 1;
                        outcome
                    }
                };
                match challenge {
                    None => {
                        charged_verdict(policy, &mut self.limits, set, now, &packets[at], outcome)
                    }
                    // Where nobody could decide of it nobody is asked for anything.
                    Some(cookie) => match verdict_by_outcome(policy.set(set), *hash, outcome) {
                        Verdict::Request { .. } => Verdict::Ask { cookie },
                        verdict => verdict,
                    },
                }
            } else {
                context.forget_flow(entry, *hash, now);
                unprotected_verdict(action)
            };
            context.record_verdict(line, &verdicts[at], *bytes);
        }
    }
}

impl<I: Index> AdmissionContext<'_, I> {
    fn record_verdict(&mut self, line: RuleId, verdict: &Verdict, bytes: u32) {
        self.counts.verdict(self.ledger, line, verdict, bytes);
    }

    /// Makes room for those of a group who will get an entry.
    fn make_room_for_group<'a>(
        &mut self,
        now: u64,
        packets: &[Packet],
        read: impl Fn(usize) -> &'a [u8],
        left: &[Unresolved],
        right: u32,
    ) {
        let protected = |left: &&Unresolved| matches!(left.action, Some(Action::Grantors(_)));
        let flows = self.table.len();
        let admission = self.admission.as_deref().filter(|it| it.is_relevant(flows, now));
        let hash = |left: &Unresolved| packets[usize::from(left.at)].hash;
        if let Some(admission) = admission {
            left.iter().for_each(|left| admission.fetch(hash(left)));
        }
        // At most so many get one.
        if !self.evicts || self.table.room() >= GROUP {
            return;
        }
        let wanted = match admission {
            Some(admission) => {
                let asks = self.cookies.is_some() && admission.is_pressed(flows);
                let admitted = |left: &&Unresolved| match usize::from(left.at) {
                    at if right >> at & 1 != 0 => true,
                    at if asks && is_tcp(read(at)) => false,
                    _ => admission.admits(hash(left), flows, now),
                };
                left.iter().filter(protected).filter(admitted).count()
            }
            None => left.iter().filter(protected).count(),
        };
        self.make_room(wanted);
    }

    /// Forgets a flow that is no longer protected.
    fn forget_flow(&mut self, entry: Option<u32>, hash: u32, now: u64) {
        match (entry, &mut self.admission) {
            (Some(entry), _) => self.table.remove(entry),
            (None, Some(admission)) => admission.forget(hash, now),
            (None, None) => {}
        }
    }

    fn make_room(&mut self, wanted: usize) {
        if self.evicts && self.table.room() < wanted {
            self.counts.evicted += self.table.make_room(wanted) as u64;
        }
    }

    /// Decides of a flow that has no entry, one packet of which is here.
    fn admit_flow<'a>(
        &mut self,
        flow: &Flow,
        hash: u32,
        binding: PolicyBinding,
        now: u64,
        read: impl FnOnce() -> &'a [u8],
    ) -> AdmissionResult {
        let flows = self.table.len();
        // What it is to cookies, if it is TCP and TCP has to answer one.
        let proving = match (&self.cookies, &self.admission) {
            (Some(_), Some(admission)) if admission.is_pressed(flows) => segment(read()),
            _ => None,
        };
        let arrival = match &mut self.admission {
            Some(admission) => admission.arrive(hash, flows, now),
            None => Arrival::New,
        };
        let shown = match arrival {
            Arrival::New => None,
            Arrival::Returning(first) if proving.is_some() => {
                return self.rank_without_entry(hash, Record::with_first_request(first), now);
            }
            Arrival::Returning(first) => Some(Record::with_first_request(first)),
            Arrival::FirstSeen | Arrival::Untracked => {
                let first_seen = arrival == Arrival::FirstSeen;
                *if first_seen {
                    &mut self.counts.first_seen
                } else {
                    &mut self.counts.first_seen_overflow
                } += 1;
                if let (Some(Segment::Syn(syn)), Some(cookies)) = (proving, &mut self.cookies) {
                    if let Some(cookie) = cookies.issue(flow, &syn, now) {
                        return AdmissionResult::Challenge(cookie);
                    }
                    self.counts.cookies_rate_limited += 1;
                }
                return AdmissionResult::NoEntry(Outcome::Request { dscp: dscp(FIRST) });
            }
        };
        if !self.full {
            let entry = match shown {
                Some(record) => {
                    // Its first packet may be of this very group.
                    self.make_room(1);
                    self.table.restore(flow, hash, binding, record, now)
                }
                None => self.table.insert(flow, hash, binding, now),
            };
            if let Ok(entry) = entry {
                self.counts.inserted += 1;
                self.counts.readmitted += u64::from(shown.is_some());
                return AdmissionResult::Entry(entry);
            }
            self.full = true;
        }
        self.rank_without_entry(hash, shown.unwrap_or_else(|| Record::new(now)), now)
    }

    /// Ranks a packet of a flow that gets no entry by its patience, which goes on being counted.
    fn rank_without_entry(&mut self, hash: u32, mut record: Record, now: u64) -> AdmissionResult {
        if let Some(admission) = &mut self.admission {
            admission.remember(hash, now);
        }
        AdmissionResult::NoEntry(record.packet(now, 0))
    }

    /// Gives a flow its entry that has answered a cookie, if there is room for it; since when it
    /// has been patient is known by its first SYN.
    fn admit_proven(
        &mut self,
        flow: &Flow,
        hash: u32,
        binding: PolicyBinding,
        now: u64,
    ) -> Option<u32> {
        let first =
            self.admission.as_ref().and_then(|admission| admission.first_seen_at(hash, now));
        self.make_room(1);
        let mut record = Record::with_first_request(first.unwrap_or(now));
        record.prove(now);
        let entry = self.table.restore(flow, hash, binding, record, now).ok()?;
        if let Some(admission) = &mut self.admission {
            admission.forget(hash, now);
        }
        self.counts.inserted += 1;
        self.counts.validated += 1;
        Some(entry)
    }
}
