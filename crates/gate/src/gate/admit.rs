//! Packets of flows that have no entry, or one of another policy: steps 5 and 6 of a group.
//!
//! ```text
//!   destination ─┬─ not protected ─► verdict by the policy, its entry is removed
//!                └─ protected ─┬─ returns a cookie ─► an entry, and the packet is dropped
//!                              ├─ has an entry, or is admitted to one ─► state ─► verdict
//!                              └─ none ─┬─► a request without an entry
//!                                       └─ a SYN that may be answered by a cookie ─► challenged
//! ```
//!
//! A flow that has to return a cookie (`cookie.rs`) is challenged at its first SYN. If it sends
//! more packets without returning the cookie, as where a middlebox drops the unexpected answer,
//! these are requests with the priority of its waiting time; the flow only lacks an entry.
//!
//! Entries are evicted only for flows that will get an entry, so that first packets do not evict
//! flows that have sent a second one.

use super::prove::{Resets, Segment, is_tcp, segment};
use super::source::unprotected_verdict;
use super::{
    DropReason, GROUP, Gate, GateCounters, Packet, RuleCounters, Unresolved, Verdict,
    charged_verdict, verdict_by_outcome,
};
use crate::admission::{Admission, Arrival};
use crate::cookie::{Cookie, Cookies};
use crate::flow::Flow;
use crate::index::Index;
use crate::policy::{Action, RuleId};
use crate::priority::{FIRST, dscp};
use crate::state::{Outcome, Record};
use crate::table::{FlowTable, PolicyBinding};

/// The state that admission reads and writes.
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

/// The result for a flow without an entry.
enum AdmissionResult {
    /// It has this entry.
    Entry(u32),
    /// It has none, and its packet has this outcome.
    NoEntry(Outcome),
    /// It has none, and has to return this cookie first.
    Challenge(Cookie),
}

impl<I: Index> Gate<I> {
    /// Decides about packets of flows that have no entry, or one of another policy.
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
            // A packet before this one may have made or removed it.
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
                    verdicts[at] = Verdict::Drop(DropReason::CookieReset);
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
                    // Without a grantor there is no challenge.
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

    /// Evicts entries for those flows of a group that will get one.
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
        let admission =
            self.admission.as_deref().filter(|admission| admission.is_relevant(flows, now));
        let hash = |left: &Unresolved| packets[usize::from(left.at)].hash;
        if let Some(admission) = admission {
            left.iter().for_each(|left| admission.fetch(hash(left)));
        }
        // The maximum number of new entries.
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

    /// Removes the state of a flow that is no longer protected.
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

    /// Decides about a packet of a flow that has no entry.
    fn admit_flow<'a>(
        &mut self,
        flow: &Flow,
        hash: u32,
        binding: PolicyBinding,
        now: u64,
        read: impl FnOnce() -> &'a [u8],
    ) -> AdmissionResult {
        let flows = self.table.len();
        // The TCP segment, if TCP has to return a cookie.
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
                    // Its first packet may be of this group.
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

    /// Ranks a packet of a flow that gets no entry by its patience, which stays counted.
    fn rank_without_entry(&mut self, hash: u32, mut record: Record, now: u64) -> AdmissionResult {
        if let Some(admission) = &mut self.admission {
            admission.remember(hash, now);
        }
        AdmissionResult::NoEntry(record.packet(now, 0))
    }

    /// Makes an entry for a flow that has returned a cookie, if there is room; its patience counts
    /// from its first SYN.
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
