//! A worker's policy, on a thread of its own: asks in, answers and decisions out.
//!
//! The Lua state is made on this thread and stays there. When nothing asks, it sleeps for
//! [`PAUSE`], which is what a request may wait. Another policy is taken over between two
//! batches; what comes of it is told to who sent it.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use fib::Reader;
use gate::decision::Item;
use gate::grantor::{BATCH, Counts, Grantor, Limits, Lists, Request};
use gate::policy::Address;
use rtrb::{Consumer, Producer};

use super::station::{Answer, Ask};
use crate::control::rights;

/// How long the thread sleeps when nothing asks.
const PAUSE: Duration = Duration::from_micros(200);

/// A decision, and whom it is for.
pub(super) type Letter = (Address, Item);

/// Another policy, and where to say what came of it.
type Order = (String, Sender<Result<(), String>>);

/// What the thread shows.
#[derive(Clone, Debug, Default)]
pub(super) struct Shown {
    pub(super) counts: Counts,
    pub(super) memory: usize,
    pub(super) last_error: Option<String>,
    /// Decisions that found no room on their way to the gates.
    pub(super) lost: u64,
}

/// What a thread is made from.
pub(super) struct Setup {
    pub(super) policy: String,
    pub(super) lists: Reader<Lists>,
    pub(super) limits: Limits,
    pub(super) asks: Consumer<Ask>,
    pub(super) answers: Producer<Answer>,
    pub(super) post: SyncSender<Letter>,
}

/// The thread.
#[derive(Debug)]
pub(super) struct Decider {
    orders: Sender<Order>,
    shown: Arc<Mutex<Shown>>,
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
        let (mine, ending) = (Arc::clone(&shown), Arc::clone(&stop));
        let name = format!("policy {number}");
        let thread = Builder::new().name(name).spawn(move || {
            let _ = rights::keep(&[]);
            let Setup { policy, lists, limits, asks, answers, post } = setup;
            match Grantor::new(&policy, lists, limits) {
                Ok(grantor) => {
                    let _ = ready.send(Ok(()));
                    decide(grantor, asks, answers, &post, &ordered, &mine, &ending);
                }
                Err(bad) => drop(ready.send(Err(bad.to_string()))),
            }
        })?;
        let loaded = loaded.recv().unwrap_or_else(|_| Err("the thread is gone".into()));
        loaded.map_err(io::Error::other)?;
        Ok(Self { orders, shown, stop, thread: Some(thread) })
    }

    /// Has it go over to another policy.
    pub(super) fn reload(&self, policy: String) -> Result<(), String> {
        let (tell, told) = channel();
        let gone = || "the policy's thread is gone".to_owned();
        self.orders.send((policy, tell)).map_err(|_| gone())?;
        told.recv_timeout(Duration::from_secs(10)).map_err(|_| gone())?
    }

    /// Returns what it shows.
    pub(super) fn shown(&self) -> Shown {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner).clone()
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

fn decide(
    mut grantor: Grantor,
    mut asks: Consumer<Ask>,
    mut answers: Producer<Answer>,
    post: &SyncSender<Letter>,
    orders: &Receiver<Order>,
    shown: &Mutex<Shown>,
    stop: &AtomicBool,
) {
    let begin = Instant::now();
    let (mut batch, mut decided) = (Vec::with_capacity(BATCH), Vec::with_capacity(BATCH));
    let mut lost = 0;
    while !stop.load(Ordering::Relaxed) {
        for (policy, tell) in orders.try_iter() {
            let done = grantor.reload(&policy).map_err(|bad| bad.to_string());
            let _ = tell.send(done);
        }
        while batch.len() < BATCH
            && let Ok(ask) = asks.pop()
        {
            batch.push(ask);
        }
        if batch.is_empty() {
            std::thread::sleep(PAUSE);
            continue;
        }
        let now = begin.elapsed().as_nanos() as u64;
        let requests: Vec<Request<'_>> = batch
            .iter()
            .map(|ask: &Ask| Request {
                packet: ask.packet(),
                dscp: ask.dscp,
                congested: ask.congested,
            })
            .collect();
        grantor.decide(now, &requests, &mut decided);
        for (ask, decided) in batch.iter().zip(decided.drain(..)) {
            if let Some(item) = decided.item {
                lost += u64::from(post.try_send((ask.gate, item)).is_err());
            }
            // There is a place in this ring for each that is kept.
            let _ = answers.push(Answer { number: ask.number, deliver: decided.deliver });
        }
        batch.clear();
        let mut shown = shown.lock().unwrap_or_else(PoisonError::into_inner);
        shown.counts = *grantor.counts();
        shown.memory = grantor.memory();
        shown.lost = lost;
        if let Some(error) = grantor.last_error() {
            shown.last_error = Some(error);
        }
    }
}

impl Shown {
    /// Adds the numbers to those of other workers.
    pub(super) fn add_to(&self, sums: &mut BTreeMap<&'static str, u64>) {
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
            ("lost", self.lost),
            ("memory_bytes", self.memory as u64),
        ] {
            *sums.entry(name).or_default() += number;
        }
    }
}
