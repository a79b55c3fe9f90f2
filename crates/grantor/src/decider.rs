//! The decider: a worker's policy on a thread of its own. Requests in, answers and decisions out.
//!
//! The Lua state is created on this thread and stays there. Without requests the thread sleeps for
//! [`PAUSE`], which is the longest time that a request waits for it. A reload is applied between two
//! batches, and its result is returned to the caller. If fragments are decided together, the policy
//! sees the first one of a packet, and its answer applies to all. A candidate is evaluated after the
//! policy, when the answers are sent.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use fib::Reader;
use gate::decision::{Item, Scope};
use gate::flow::Flow;
use gate::grantor::{
    BATCH, Fragments, Grantor, GrantorCounters, Limits, Lists, PolicyResult, Reassembly, Request,
    Shadow,
};
use gate::policy::Address;
use rtrb::{Consumer, Producer};
use threads::{Rights, Stop, Task};

use super::comparison::comparison;
use super::hook::{PolicyAnswer, RequestPacket};
use api::PolicyComparison;
use control::progress::Turns;

/// How long the thread sleeps without requests.
const PAUSE: Duration = Duration::from_micros(200);

/// The DSCP of packets that request a renewal.
const RENEWAL: u8 = 2;
/// How often the comparison with the candidate is published, because it costs some time.
const PUBLISH_INTERVAL: Duration = Duration::from_millis(200);

/// A decision, and the gate that it is for.
pub(super) type OutgoingDecision = (Address, Item);

/// The text of the policy, and of a candidate that is only compared.
#[derive(Clone, Debug)]
pub struct Policies {
    /// The text of the policy.
    pub policy: String,
    /// The text of the candidate.
    pub candidate: Option<String>,
}

/// Other policies, and the channel for the result.
type ReloadRequest = (Policies, Sender<Result<(), String>>);

/// The status of the thread.
#[derive(Clone, Debug, Default)]
pub(super) struct DeciderStatus {
    pub(super) counts: GrantorCounters,
    pub(super) memory: usize,
    pub(super) last_error: Option<String>,
    /// Decisions that found the decision sender's queue full.
    pub(super) lost: u64,
    pub(super) fragments: FragmentCounters,
    /// The comparison with the candidate, if there is one.
    pub(super) candidate: Option<PolicyComparison>,
}

/// The parameters of a decider.
pub(super) struct DeciderSetup {
    pub(super) policies: Policies,
    /// The lists for the policy and for the candidate.
    pub(super) lists: [Reader<Lists>; 2],
    pub(super) limits: Limits,
    pub(super) fragments: Option<PolicyResult>,
    pub(super) requests: Consumer<RequestPacket>,
    pub(super) answers: Producer<PolicyAnswer>,
    pub(super) decisions: SyncSender<OutgoingDecision>,
    pub(super) record: Option<Producer<RequestPacket>>,
}

/// The loaded policy and candidate.
struct LoadedPolicies {
    grantor: Grantor,
    candidate: Option<Shadow>,
    /// The lists of the next candidate.
    lists: Reader<Lists>,
    limits: Limits,
}

impl LoadedPolicies {
    /// Loads the policies.
    fn new(
        policies: &Policies,
        [lists, candidate_lists]: [Reader<Lists>; 2],
        limits: Limits,
    ) -> Result<Self, String> {
        let grantor =
            Grantor::new(&policies.policy, lists, limits).map_err(|error| error.to_string())?;
        let mut loaded = Self { grantor, candidate: None, lists: candidate_lists, limits };
        loaded.candidate = loaded.load_candidate(policies)?;
        Ok(loaded)
    }

    /// Loads the candidate, which has to be valid too.
    fn load_candidate(&self, policies: &Policies) -> Result<Option<Shadow>, String> {
        let Some(text) = &policies.candidate else { return Ok(None) };
        let candidate = Grantor::new(text, self.lists.clone(), self.limits);
        let candidate = candidate.map_err(|error| format!("the candidate: {error}"))?;
        Ok(Some(Shadow::new(candidate)))
    }

    /// Applies another policy and candidate, both or neither.
    fn reload(&mut self, policies: &Policies) -> Result<(), String> {
        let candidate = self.load_candidate(policies)?;
        self.grantor.reload(&policies.policy).map_err(|error| error.to_string())?;
        self.candidate = candidate;
        Ok(())
    }

    /// Updates the status of the policy.
    fn update_status(&mut self, status: &mut DeciderStatus) {
        status.counts = *self.grantor.counts();
        status.memory = self.grantor.memory();
        if let Some(error) = self.grantor.last_error() {
            status.last_error = Some(error);
        }
    }

    /// Updates the comparison with the candidate.
    fn update_comparison(&mut self, status: &mut DeciderStatus) {
        status.candidate = self.candidate.as_mut().map(|candidate| {
            if let Some(error) = candidate.last_error() {
                status.last_error = Some(format!("the candidate: {error}"));
            }
            comparison(candidate)
        });
    }
}

/// The thread of a worker's policy.
#[derive(Debug)]
pub(super) struct Decider {
    reloads: Sender<ReloadRequest>,
    status: Arc<Mutex<DeciderStatus>>,
    turns: Turns,
    thread: Task,
}

impl Decider {
    /// Starts the thread; the policy is loaded when this returns.
    pub(super) fn start(number: usize, setup: DeciderSetup) -> io::Result<Self> {
        let (reloads, received_reloads) = channel();
        let (ready, loaded) = channel();
        let status = Arc::new(Mutex::new(DeciderStatus::default()));
        let turns = Turns::default();
        let (thread_status, thread_turns) = (Arc::clone(&status), Arc::clone(&turns));
        let thread = Task::start(format!("policy {number}"), Rights::None, move |stop| {
            match LoadedPolicies::new(&setup.policies, setup.lists, setup.limits) {
                Ok(policies) => {
                    let _ = ready.send(Ok(()));
                    let rings = DeciderRings {
                        requests: setup.requests,
                        answers: setup.answers,
                        decisions: setup.decisions,
                        record: setup.record,
                        fragments: setup.fragments,
                        turns: thread_turns,
                    };
                    run(policies, rings, &received_reloads, &thread_status, stop);
                }
                Err(error) => drop(ready.send(Err(error))),
            }
        })?;
        let loaded = loaded.recv().unwrap_or_else(|_| Err("the policy thread ended".into()));
        loaded.map_err(io::Error::other)?;
        Ok(Self { reloads, status, turns, thread })
    }

    /// Applies other policies.
    ///
    /// # Errors
    ///
    /// The error of a policy, or that the thread does not answer.
    pub(super) fn reload(&self, policies: Policies) -> Result<(), String> {
        let (reply, result) = channel();
        let no_reply = || "the policy thread does not answer".to_owned();
        self.reloads.send((policies, reply)).map_err(|_| no_reply())?;
        result.recv_timeout(Duration::from_secs(10)).map_err(|_| no_reply())?
    }

    /// Returns the status of the thread.
    pub(super) fn status(&self) -> DeciderStatus {
        lock(&self.status).clone()
    }

    pub(super) fn turns(&self) -> Turns {
        Arc::clone(&self.turns)
    }

    pub(super) fn is_alive(&self) -> bool {
        self.thread.is_alive()
    }
}

/// The thread's inputs and outputs.
struct DeciderRings {
    requests: Consumer<RequestPacket>,
    answers: Producer<PolicyAnswer>,
    decisions: SyncSender<OutgoingDecision>,
    record: Option<Producer<RequestPacket>>,
    fragments: Option<PolicyResult>,
    turns: Turns,
}

/// The next batch of packets, each with its further fragments.
struct RequestIntake {
    /// The decision about flows that leave packets incomplete; `None` if fragments are decided one by
    /// one.
    incomplete: Option<PolicyResult>,
    fragments: Fragments<RequestPacket>,
    batch: Vec<RequestPacket>,
    further_fragments: Vec<Vec<RequestPacket>>,
    counters: FragmentCounters,
}

/// Counts fragments that were decided together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct FragmentCounters {
    /// The number of fragments.
    fragments: u64,
    /// Packets that became complete.
    whole: u64,
    /// Packets that stayed incomplete.
    broken: u64,
}

impl RequestIntake {
    /// Takes requests until the batch is full, and calls `broken` for packets that stayed incomplete,
    /// with whether their flow gets the decision for that.
    fn take(
        &mut self,
        now: u64,
        requests: &mut Consumer<RequestPacket>,
        mut broken: impl FnMut(Flow, Vec<RequestPacket>, bool),
    ) {
        while self.batch.len() < BATCH
            && let Ok(request) = requests.pop()
        {
            // The further fragments of a renewal are no requests.
            if self.incomplete.is_none() || request.dscp == RENEWAL {
                self.batch.push(request);
                self.further_fragments.push(Vec::new());
                continue;
            }
            let packet = request.clone();
            match self.fragments.offer(now, packet.packet(), request) {
                Reassembly::NotFragment(request) => {
                    self.batch.push(request);
                    self.further_fragments.push(Vec::new());
                    continue;
                }
                Reassembly::Incomplete => {}
                Reassembly::Complete(mut all) => {
                    self.counters.whole += 1;
                    self.batch.push(all.remove(0));
                    self.further_fragments.push(all);
                }
                Reassembly::Invalid(flow, all) => {
                    self.counters.broken += 1;
                    let known = self.fragments.was_decided(now, &flow);
                    broken(flow, all, !known);
                }
            }
            self.counters.fragments += 1;
        }
        while let Some((flow, all)) = self.fragments.expire_one(now) {
            self.counters.broken += 1;
            let known = self.fragments.was_decided(now, &flow);
            broken(flow, all, !known);
        }
    }
}

fn lock(status: &Mutex<DeciderStatus>) -> MutexGuard<'_, DeciderStatus> {
    status.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The loop of the thread.
fn run(
    mut policies: LoadedPolicies,
    rings: DeciderRings,
    reloads: &Receiver<ReloadRequest>,
    status: &Mutex<DeciderStatus>,
    stop: &Stop,
) {
    let DeciderRings { mut requests, mut answers, decisions, mut record, fragments, turns } = rings;
    let mut intake = RequestIntake {
        incomplete: fragments,
        fragments: Fragments::default(),
        batch: Vec::with_capacity(BATCH),
        further_fragments: Vec::with_capacity(BATCH),
        counters: FragmentCounters::default(),
    };
    let start = Instant::now();
    let (mut decided, mut fragment_counters) =
        (Vec::with_capacity(BATCH), FragmentCounters::default());
    let (mut lost, mut published, mut has_changed) = (0, Instant::now(), true);
    while !stop.is_set() {
        turns.fetch_add(1, Ordering::Relaxed);
        for (texts, reply) in reloads.try_iter() {
            let _ = reply.send(policies.reload(&texts));
            has_changed = true;
        }
        let now = start.elapsed().as_nanos() as u64;
        let incomplete = intake.incomplete.unwrap_or(PolicyResult::NOTHING);
        intake.take(now, &mut requests, |flow, all, is_punished| {
            // An incomplete packet is never delivered, whatever the decision about its flow is.
            if let (Some(command), Some(first), true) =
                (incomplete.command, all.first(), is_punished)
            {
                let item = Item { scope: Scope::of(&flow), command };
                lost += u64::from(decisions.try_send((first.gate, item)).is_err());
            }
            for request in &all {
                let _ = answers.push(PolicyAnswer { number: request.number, deliver: false });
            }
        });
        has_changed |= intake.counters != fragment_counters;
        fragment_counters = intake.counters;
        let RequestIntake { batch, further_fragments, fragments, incomplete, .. } = &mut intake;
        if has_changed && published.elapsed() > PUBLISH_INTERVAL {
            let mut status = lock(status);
            policies.update_comparison(&mut status);
            (status.lost, status.fragments) = (lost, fragment_counters);
            (published, has_changed) = (Instant::now(), false);
        }
        if batch.is_empty() {
            stop.wait(PAUSE);
            continue;
        }
        let batch_requests: Vec<Request<'_>> = batch
            .iter()
            .map(|request: &RequestPacket| Request {
                packet: request.packet(),
                dscp: request.dscp,
                congested: request.congested,
            })
            .collect();
        policies.grantor.decide(now, &batch_requests, &mut decided);
        for (request, decided) in batch.iter().zip(&decided) {
            if let Some(item) = decided.item {
                lost += u64::from(decisions.try_send((request.gate, item)).is_err());
                if let (Some(flow), true) = (item.scope.flow(), incomplete.is_some()) {
                    fragments.record_decision(now, flow);
                }
            }
        }
        for ((request, others), decided) in
            batch.iter().zip(further_fragments.drain(..)).zip(&decided)
        {
            // The ring has room for an answer to each queued request.
            for request in std::iter::once(request).chain(&others) {
                let _ =
                    answers.push(PolicyAnswer { number: request.number, deliver: decided.deliver });
            }
        }
        if let Some(candidate) = &mut policies.candidate {
            candidate.compare(now, &batch_requests, &decided);
        }
        decided.clear();
        for request in batch.drain(..) {
            // If the disk is slower than the requests, records are lost.
            if let Some(record) = &mut record {
                let _ = record.push(request);
            }
        }
        has_changed |= policies.candidate.is_some();
        let mut status = lock(status);
        policies.update_status(&mut status);
        (status.lost, status.fragments) = (lost, fragment_counters);
    }
}

impl DeciderStatus {
    /// Adds the counters to the sums of all workers.
    pub(super) fn add_to(&self, sums: &mut BTreeMap<String, u64>) {
        let counts = &self.counts;
        for (name, number) in [
            ("requests", counts.requests),
            ("renewals", counts.renewals),
            ("granted", counts.granted),
            ("declined", counts.declined),
            ("programs", counts.programs),
            ("undecided", counts.undecided),
            ("unread", counts.unread),
            ("delivered", counts.delivered),
            ("failed", counts.failed),
            ("over_time", counts.over_time),
            ("fragments", self.fragments.fragments),
            ("fragments_whole", self.fragments.whole),
            ("fragments_broken", self.fragments.broken),
            ("lost", self.lost),
            ("memory_bytes", self.memory as u64),
        ] {
            *sums.entry(name.to_owned()).or_default() += number;
        }
    }
}
