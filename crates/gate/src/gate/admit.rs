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
use super::source::past;
use super::{Counts, GROUP, Gate, Ledger, Left, Line, Packet, Reason, Verdict, judged, sent};
use crate::admission::{Admission, Arrival};
use crate::cookie::{Cookie, Cookies};
use crate::flow::Flow;
use crate::index::Index;
use crate::policy::Action;
use crate::priority::{FIRST, dscp};
use crate::state::{Outcome, Record};
use crate::table::{Belongs, FlowTable};

/// What is at hand for those who come.
struct Door<'g, I> {
    table: &'g mut FlowTable<I>,
    admission: Option<&'g mut Admission>,
    cookies: Option<&'g mut Cookies>,
    counts: &'g mut Counts,
    ledger: &'g Ledger,
    gives_up: bool,
    /// Insertion has failed: it is not tried again.
    full: bool,
}

/// What a flow without an entry has come to.
enum Came {
    /// It has this entry.
    In(u32),
    /// It has none, and its packet this outcome.
    Out(Outcome),
    /// It has none, and has to answer this first.
    Asked(Cookie),
}

impl<I: Index> Gate<I> {
    /// Goes through packets of flows that have no entry, or one of another policy.
    pub(super) fn admit<'a>(
        &mut self,
        now: u64,
        packets: &[Packet],
        read: impl Fn(usize) -> &'a [u8],
        verdicts: &mut [Verdict],
        left: &[Left],
        resets: Resets,
    ) {
        let policy = self.policy.current();
        let generation = policy.generation() as u16;
        let mut door = Door {
            table: &mut self.table,
            admission: self.admission.as_mut(),
            cookies: self.cookies.as_mut(),
            counts: &mut self.counts,
            ledger: &self.ledger,
            gives_up: self.gives_up,
            full: false,
        };
        door.prepare(now, packets, &read, left, resets.right);
        for &Left { at, action, line } in left {
            let at = usize::from(at);
            let Packet { flow, hash, bytes } = &packets[at];
            // It may have come since, with a packet before this one, or gone.
            let entry = door.table.find(flow, *hash);
            verdicts[at] = if let Some(Action::Grantors(set)) = action {
                let belongs = Belongs { set, generation };
                if resets.right >> at & 1 != 0 {
                    match entry {
                        Some(entry) => {
                            door.table.belong(entry, belongs);
                            door.table.prove(entry, now);
                        }
                        None => {
                            if let Some(entry) = door.prove(flow, *hash, belongs, now) {
                                let (table, runner) = (&mut *door.table, &mut self.runner);
                                self.wide.apply(table, runner, entry, flow, now);
                            }
                        }
                    }
                    verdicts[at] = Verdict::Drop(Reason::Proof);
                    door.count(line, &verdicts[at], *bytes);
                    continue;
                }
                let mut asked = None;
                let came = match entry {
                    Some(entry) => {
                        door.table.belong(entry, belongs);
                        Came::In(entry)
                    }
                    None => {
                        door.counts.invalid_cookies += u64::from(resets.wrong >> at & 1);
                        door.come(flow, *hash, belongs, now, || read(at))
                    }
                };
                let outcome = match came {
                    Came::In(number) => {
                        let (table, runner) = (&mut *door.table, &mut self.runner);
                        if entry.is_none() {
                            self.wide.apply(table, runner, number, flow, now);
                        }
                        runner.outcome(table, number, now, *bytes, || read(at))
                    }
                    Came::Out(_) | Came::Asked(_) if self.wide.declines(flow, now) => {
                        Outcome::Declined
                    }
                    Came::Asked(cookie) => {
                        asked = Some(cookie);
                        Outcome::Request { dscp: dscp(FIRST) }
                    }
                    Came::Out(outcome) => {
                        door.counts.without_entry += 1;
                        outcome
                    }
                };
                match asked {
                    None => sent(policy, &mut self.limits, set, now, &packets[at], outcome),
                    // Where nobody could decide of it nobody is asked for anything.
                    Some(cookie) => match judged(policy.set(set), *hash, outcome) {
                        Verdict::Request { .. } => Verdict::Ask { cookie },
                        verdict => verdict,
                    },
                }
            } else {
                door.dismiss(entry, *hash, now);
                past(action)
            };
            door.count(line, &verdicts[at], *bytes);
        }
    }
}

impl<I: Index> Door<'_, I> {
    fn count(&mut self, line: Line, verdict: &Verdict, bytes: u32) {
        self.counts.verdict(self.ledger, line, verdict, bytes);
    }

    /// Makes room for those of a group who will get an entry.
    fn prepare<'a>(
        &mut self,
        now: u64,
        packets: &[Packet],
        read: impl Fn(usize) -> &'a [u8],
        left: &[Left],
        right: u32,
    ) {
        let protected = |left: &&Left| matches!(left.action, Some(Action::Grantors(_)));
        let flows = self.table.len();
        let admission = self.admission.as_deref().filter(|it| it.concerns(flows, now));
        let hash = |left: &Left| packets[usize::from(left.at)].hash;
        if let Some(admission) = admission {
            left.iter().for_each(|left| admission.fetch(hash(left)));
        }
        // At most so many get one.
        if !self.gives_up || self.table.room() >= GROUP {
            return;
        }
        let wanted = match admission {
            Some(admission) => {
                let asks = self.cookies.is_some() && admission.is_pressed(flows);
                let admitted = |left: &&Left| match usize::from(left.at) {
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
    fn dismiss(&mut self, entry: Option<u32>, hash: u32, now: u64) {
        match (entry, &mut self.admission) {
            (Some(entry), _) => self.table.remove(entry),
            (None, Some(admission)) => admission.forget(hash, now),
            (None, None) => {}
        }
    }

    fn make_room(&mut self, wanted: usize) {
        if self.gives_up && self.table.room() < wanted {
            self.counts.evicted += self.table.make_room(wanted) as u64;
        }
    }

    /// Decides of a flow that has no entry, one packet of which is here.
    fn come<'a>(
        &mut self,
        flow: &Flow,
        hash: u32,
        belongs: Belongs,
        now: u64,
        read: impl FnOnce() -> &'a [u8],
    ) -> Came {
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
            Arrival::Shown(first) if proving.is_some() => {
                return self.patience(hash, Record::asked(first), now);
            }
            Arrival::Shown(first) => Some(Record::asked(first)),
            Arrival::Noted | Arrival::Unnoted => {
                let first_seen = arrival == Arrival::Noted;
                *if first_seen {
                    &mut self.counts.first_seen
                } else {
                    &mut self.counts.first_seen_overflow
                } += 1;
                if let (Some(Segment::Syn(syn)), Some(cookies)) = (proving, &mut self.cookies) {
                    if let Some(cookie) = cookies.give(flow, &syn, now) {
                        return Came::Asked(cookie);
                    }
                    self.counts.cookies_rate_limited += 1;
                }
                return Came::Out(Outcome::Request { dscp: dscp(FIRST) });
            }
        };
        if !self.full {
            let entry = match shown {
                Some(record) => {
                    // Its first packet may be of this very group.
                    self.make_room(1);
                    self.table.restore(flow, hash, belongs, record, now)
                }
                None => self.table.insert(flow, hash, belongs, now),
            };
            if let Ok(entry) = entry {
                self.counts.inserted += 1;
                self.counts.readmitted += u64::from(shown.is_some());
                return Came::In(entry);
            }
            self.full = true;
        }
        self.patience(hash, shown.unwrap_or_else(|| Record::new(now)), now)
    }

    /// Ranks a packet of a flow that gets no entry by its patience, which goes on being counted.
    fn patience(&mut self, hash: u32, mut record: Record, now: u64) -> Came {
        if let Some(admission) = &mut self.admission {
            admission.note(hash, now);
        }
        Came::Out(record.packet(now, 0))
    }

    /// Gives a flow its entry that has answered a cookie, if there is room for it; since when it
    /// has been patient is known by its first SYN.
    fn prove(&mut self, flow: &Flow, hash: u32, belongs: Belongs, now: u64) -> Option<u32> {
        let first = self.admission.as_ref().and_then(|admission| admission.seen(hash, now));
        self.make_room(1);
        let mut record = Record::asked(first.unwrap_or(now));
        record.prove(now);
        let entry = self.table.restore(flow, hash, belongs, record, now).ok()?;
        if let Some(admission) = &mut self.admission {
            admission.forget(hash, now);
        }
        self.counts.inserted += 1;
        self.counts.validated += 1;
        Some(entry)
    }
}
