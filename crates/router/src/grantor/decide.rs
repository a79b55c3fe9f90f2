//! A worker's policy, on a thread of its own: asks in, answers and decisions out.
//!
//! The Lua state is made on this thread and stays there. When nothing asks, it sleeps for
//! [`PAUSE`], which is what a request may wait. Another policy is taken over between two
//! batches; what comes of it is told to who sent it. Where fragments are judged together, the
//! first of a packet is what the policy sees, and the others get what it gets. A candidate beside the policy is asked
//! after it, when the answers are on their way.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
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

use super::hook::{Answer, Ask};
use super::told::ShadowTold;
use crate::control::progress::Turns;
use crate::control::rights;

/// How long the thread sleeps when nothing asks.
const PAUSE: Duration = Duration::from_micros(200);

/// The DSCP of packets that ask for renewal.
const RENEWAL: u8 = 2;
/// How often what the candidate says is shown: it takes some making.
const SHOW: Duration = Duration::from_millis(200);

/// A decision, and whom it is for.
pub(super) type Letter = (Address, Item);

/// The policy, and a candidate whose words are only compared.
#[derive(Clone, Debug)]
pub struct Policies {
    /// The text of the policy.
    pub policy: String,
    /// The text of the candidate.
    pub shadow: Option<String>,
}

/// Other policies, and where to say what came of them.
type Order = (Policies, Sender<Result<(), String>>);

/// What the thread shows.
#[derive(Clone, Debug, Default)]
pub(super) struct Shown {
    pub(super) counts: GrantorCounters,
    pub(super) memory: usize,
    pub(super) last_error: Option<String>,
    /// Decisions that found no room on their way to the gates.
    pub(super) lost: u64,
    pub(super) pieces: Pieces,
    /// Of the candidate, if there is one.
    pub(super) shadow: Option<ShadowTold>,
}

/// What a thread is made from.
pub(super) struct Setup {
    pub(super) policies: Policies,
    /// For the policy and for the candidate.
    pub(super) lists: [Reader<Lists>; 2],
    pub(super) limits: Limits,
    pub(super) fragments: Option<PolicyResult>,
    pub(super) asks: Consumer<Ask>,
    pub(super) answers: Producer<Answer>,
    pub(super) post: SyncSender<Letter>,
    pub(super) record: Option<Producer<Ask>>,
}

/// The policy and what is beside it.
struct Deciding {
    grantor: Grantor,
    shadow: Option<Shadow>,
    /// The lists of the next candidate.
    lists: Reader<Lists>,
    limits: Limits,
}

impl Deciding {
    /// Loads the policies.
    fn new(
        policies: &Policies,
        [mine, beside]: [Reader<Lists>; 2],
        limits: Limits,
    ) -> Result<Self, String> {
        let grantor =
            Grantor::new(&policies.policy, mine, limits).map_err(|bad| bad.to_string())?;
        let mut deciding = Self { grantor, shadow: None, lists: beside, limits };
        deciding.shadow = deciding.candidate(policies)?;
        Ok(deciding)
    }

    /// Loads the candidate, which has to be sound too.
    fn candidate(&self, policies: &Policies) -> Result<Option<Shadow>, String> {
        let Some(text) = &policies.shadow else { return Ok(None) };
        let candidate = Grantor::new(text, self.lists.clone(), self.limits);
        let candidate = candidate.map_err(|bad| format!("the candidate: {bad}"))?;
        Ok(Some(Shadow::new(candidate)))
    }

    /// Goes over to others, both or neither.
    fn reload(&mut self, policies: &Policies) -> Result<(), String> {
        let candidate = self.candidate(policies)?;
        self.grantor.reload(&policies.policy).map_err(|bad| bad.to_string())?;
        self.shadow = candidate;
        Ok(())
    }

    fn show(&mut self, shown: &mut Shown) {
        shown.counts = *self.grantor.counts();
        shown.memory = self.grantor.memory();
        if let Some(error) = self.grantor.last_error() {
            shown.last_error = Some(error);
        }
    }

    fn show_shadow(&mut self, shown: &mut Shown) {
        shown.shadow = self.shadow.as_mut().map(|shadow| {
            if let Some(error) = shadow.last_error() {
                shown.last_error = Some(format!("the candidate: {error}"));
            }
            ShadowTold::of(shadow)
        });
    }
}

/// The thread.
#[derive(Debug)]
pub(super) struct Decider {
    orders: Sender<Order>,
    shown: Arc<Mutex<Shown>>,
    turns: Turns,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Decider {
    /// Starts it; the policy is loaded when this returns.
    pub(super) fn start(number: usize, setup: Setup) -> io::Result<Self> {
        let (orders, ordered) = channel();
        let (ready, loaded) = channel();
        let shown = Arc::new(Mutex::new(Shown::default()));
        let stop = Arc::new(AtomicBool::new(false));
        let turns = Turns::default();
        let (mine, ending) = (Arc::clone(&shown), Arc::clone(&stop));
        let counted = Arc::clone(&turns);
        let name = format!("policy {number}");
        let thread = Builder::new().name(name).spawn(move || {
            let _ = rights::keep(&[]);
            match Deciding::new(&setup.policies, setup.lists, setup.limits) {
                Ok(deciding) => {
                    let _ = ready.send(Ok(()));
                    let ends = Ends {
                        asks: setup.asks,
                        answers: setup.answers,
                        post: setup.post,
                        record: setup.record,
                        fragments: setup.fragments,
                        turns: counted,
                    };
                    decide(deciding, ends, &ordered, &mine, &ending);
                }
                Err(bad) => drop(ready.send(Err(bad))),
            }
        })?;
        let loaded = loaded.recv().unwrap_or_else(|_| Err("the thread is gone".into()));
        loaded.map_err(io::Error::other)?;
        Ok(Self { orders, shown, turns, stop, thread: Some(thread) })
    }

    /// Has it go over to other policies.
    pub(super) fn reload(&self, policies: Policies) -> Result<(), String> {
        let (tell, told) = channel();
        let gone = || "the policy's thread is gone".to_owned();
        self.orders.send((policies, tell)).map_err(|_| gone())?;
        told.recv_timeout(Duration::from_secs(10)).map_err(|_| gone())?
    }

    /// Returns what it shows.
    pub(super) fn shown(&self) -> Shown {
        lock(&self.shown).clone()
    }

    pub(super) fn turns(&self) -> Turns {
        Arc::clone(&self.turns)
    }

    pub(super) fn alive(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }
}

impl Drop for Decider {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Where requests come from and decisions go.
struct Ends {
    asks: Consumer<Ask>,
    answers: Producer<Answer>,
    post: SyncSender<Letter>,
    record: Option<Producer<Ask>>,
    fragments: Option<PolicyResult>,
    turns: Turns,
}

/// What is to be decided of next: packets, each with the further fragments of it.
struct Intake {
    /// What becomes of who leaves packets incomplete; nothing if fragments are judged by themselves.
    punishment: Option<PolicyResult>,
    fragments: Fragments<Ask>,
    batch: Vec<Ask>,
    others: Vec<Vec<Ask>>,
    pieces: Pieces,
}

/// What became of fragments that were judged together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Pieces {
    /// Fragments.
    fragments: u64,
    /// Packets that became whole.
    whole: u64,
    /// Packets that did not.
    broken: u64,
}

impl Intake {
    /// Takes what asks, as much as a batch takes, and calls `broken` for what cannot be decided
    /// of, which also says whether its sender is to blame.
    fn take(
        &mut self,
        now: u64,
        asks: &mut Consumer<Ask>,
        mut broken: impl FnMut(Flow, Vec<Ask>, bool),
    ) {
        while self.batch.len() < BATCH
            && let Ok(ask) = asks.pop()
        {
            // Of a packet that asks for renewal the other pieces do not ask.
            if self.punishment.is_none() || ask.dscp == RENEWAL {
                self.batch.push(ask);
                self.others.push(Vec::new());
                continue;
            }
            let packet = ask.clone();
            match self.fragments.offer(now, packet.packet(), ask) {
                Reassembly::NotFragment(ask) => {
                    self.batch.push(ask);
                    self.others.push(Vec::new());
                    continue;
                }
                Reassembly::Incomplete => {}
                Reassembly::Complete(mut all) => {
                    self.pieces.whole += 1;
                    self.batch.push(all.remove(0));
                    self.others.push(all);
                }
                Reassembly::Invalid(flow, all) => {
                    self.pieces.broken += 1;
                    let known = self.fragments.was_decided(now, &flow);
                    broken(flow, all, !known);
                }
            }
            self.pieces.fragments += 1;
        }
        while let Some((flow, all)) = self.fragments.expire_one(now) {
            self.pieces.broken += 1;
            let known = self.fragments.was_decided(now, &flow);
            broken(flow, all, !known);
        }
    }
}

fn lock(shown: &Mutex<Shown>) -> MutexGuard<'_, Shown> {
    shown.lock().unwrap_or_else(PoisonError::into_inner)
}

fn decide(
    mut deciding: Deciding,
    ends: Ends,
    orders: &Receiver<Order>,
    shown: &Mutex<Shown>,
    stop: &AtomicBool,
) {
    let Ends { mut asks, mut answers, post, mut record, fragments, turns } = ends;
    let mut intake = Intake {
        punishment: fragments,
        fragments: Fragments::default(),
        batch: Vec::with_capacity(BATCH),
        others: Vec::with_capacity(BATCH),
        pieces: Pieces::default(),
    };
    let begin = Instant::now();
    let (mut decided, mut pieces) = (Vec::with_capacity(BATCH), Pieces::default());
    let (mut lost, mut told, mut untold) = (0, Instant::now(), true);
    while !stop.load(Ordering::Relaxed) {
        turns.fetch_add(1, Ordering::Relaxed);
        for (policies, tell) in orders.try_iter() {
            let _ = tell.send(deciding.reload(&policies));
            untold = true;
        }
        let now = begin.elapsed().as_nanos() as u64;
        let punished = intake.punishment.unwrap_or(PolicyResult::NOTHING);
        intake.take(now, &mut asks, |flow, all, to_blame| {
            // What was not whole does not go on, whatever becomes of its flow.
            if let (Some(say), Some(ask), true) = (punished.command, all.first(), to_blame) {
                let item = Item { scope: Scope::of(&flow), command: say };
                lost += u64::from(post.try_send((ask.gate, item)).is_err());
            }
            for ask in &all {
                let _ = answers.push(Answer { number: ask.number, deliver: false });
            }
        });
        untold |= intake.pieces != pieces;
        pieces = intake.pieces;
        let Intake { batch, others, fragments, punishment, .. } = &mut intake;
        if untold && told.elapsed() > SHOW {
            let mut shown = lock(shown);
            deciding.show_shadow(&mut shown);
            (shown.lost, shown.pieces) = (lost, pieces);
            (told, untold) = (Instant::now(), false);
        }
        if batch.is_empty() {
            std::thread::sleep(PAUSE);
            continue;
        }
        let requests: Vec<Request<'_>> = batch
            .iter()
            .map(|ask: &Ask| Request {
                packet: ask.packet(),
                dscp: ask.dscp,
                congested: ask.congested,
            })
            .collect();
        deciding.grantor.decide(now, &requests, &mut decided);
        for (ask, decided) in batch.iter().zip(&decided) {
            if let Some(item) = decided.item {
                lost += u64::from(post.try_send((ask.gate, item)).is_err());
                if let (Some(flow), true) = (item.scope.flow(), punishment.is_some()) {
                    fragments.record_decision(now, flow);
                }
            }
        }
        for ((ask, others), decided) in batch.iter().zip(others.drain(..)).zip(&decided) {
            // There is a place in this ring for each that is kept.
            for ask in std::iter::once(ask).chain(&others) {
                let _ = answers.push(Answer { number: ask.number, deliver: decided.deliver });
            }
        }
        if let Some(shadow) = &mut deciding.shadow {
            shadow.compare(now, &requests, &decided);
        }
        decided.clear();
        for ask in batch.drain(..) {
            // A disk that is slower than requests costs records of them.
            if let Some(record) = &mut record {
                let _ = record.push(ask);
            }
        }
        untold |= deciding.shadow.is_some();
        let mut shown = lock(shown);
        deciding.show(&mut shown);
        (shown.lost, shown.pieces) = (lost, pieces);
    }
}

impl Shown {
    /// Adds the numbers to those of other workers.
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
            ("fragments", self.pieces.fragments),
            ("fragments_whole", self.pieces.whole),
            ("fragments_broken", self.pieces.broken),
            ("lost", self.lost),
            ("memory_bytes", self.memory as u64),
        ] {
            *sums.entry(name.to_owned()).or_default() += number;
        }
    }
}
