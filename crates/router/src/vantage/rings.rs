//! Rings: to a worker and back, bounded, without locks.
//!
//! ```text
//!   decisions thread ── Decided ──► worker     when it is full the message is not taken
//!   decisions thread ◄── Early ──── worker     what the kernel is to drop, or no longer
//!   panel ──────────── Question ──► worker
//!   panel ◄──────────── Answer ──── worker     when it is full the worker goes on later
//!   panel ◄─────────── Sampled ──── worker     when it is full, or nobody reads, they are lost
//! ```
//!
//! One producer and one consumer each (`rtrb`, wait-free); what is in them is copied and
//! owns nothing, so that neither end allocates or frees.

use gate::decision::Item;
use gate::flow::Flow;
use gate::state::{Stamp, State, Traffic};
use rtrb::{Consumer, Producer, RingBuffer};

use super::sampler::Sampled;
use crate::datapath::Verdict;

/// Decisions on their way: several messages of the most that one holds.
pub(super) const DECISIONS: usize = 8192;
/// The most decisions of a message.
pub(super) const MESSAGE: usize = 1024;
/// Questions and answers on their way.
const TALK: usize = 256;
/// Samples on their way: more than a second has (`sampler.rs`).
const SAMPLES: usize = 8192;

/// A decision, or the end of some.
#[derive(Clone, Copy, Debug)]
pub(super) enum Decided {
    /// A decision and which it is.
    Item(Item, Stamp),
    /// All decisions of this sender up to this number are retracted.
    Retract(Stamp),
}

/// What the kernel is to know of declined flows.
#[derive(Clone, Copy, Debug)]
pub(super) enum Early {
    /// A flow is declined for so many seconds.
    Decline(Flow, u32),
    /// A flow is not, or no longer.
    Forgive(Flow),
    /// Whatever was said is worth nothing.
    Clear,
}

/// What is asked of a worker.
#[derive(Clone, Copy, Debug)]
pub(super) enum Question {
    /// What it knows of a flow.
    About(Flow),
    /// Its flows, at most so many.
    Flows(u32),
}

/// What a worker answers, with the number of the question.
#[derive(Clone, Copy, Debug)]
pub(super) enum Answer {
    /// A flow.
    Known(Known),
    /// There is no entry, but the first packet of the flow came so many nanoseconds ago.
    Seen(u64),
    /// Why the last packet of the flow was dropped, and how long ago in nanoseconds.
    Dropped(Verdict, u64),
    /// All has been said.
    End,
}

/// What a worker knows of a flow.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    pub(super) flow: Flow,
    pub(super) state: State,
    pub(super) program: u8,
    /// Nanoseconds until the state is over.
    pub(super) left: u64,
    /// Of a flow that is declined provisionally: which of its packets.
    pub(super) traffic: Traffic,
    /// Nanoseconds since a packet asked.
    pub(super) idle: u64,
    pub(super) priority: u8,
    pub(super) set: u16,
    pub(super) generation: u16,
    /// Bytes left in this second.
    pub(super) budget: u64,
    /// Nanoseconds until packets ask for renewal.
    pub(super) renewal: u64,
    pub(super) stamp: Stamp,
}

/// The worker's ends.
#[derive(Debug)]
pub struct Ends {
    pub(super) decisions: Consumer<Decided>,
    pub(super) early: Producer<Early>,
    pub(super) questions: Consumer<(u32, Question)>,
    pub(super) answers: Producer<(u32, Answer)>,
    pub(super) samples: Producer<Sampled>,
}

/// The other ends.
#[derive(Debug)]
pub struct Rings {
    pub(super) decisions: Producer<Decided>,
    pub(super) early: Consumer<Early>,
    pub(super) talk: Talk,
    pub(super) samples: Consumer<Sampled>,
}

impl Rings {
    /// Tells the worker a decision; says whether there was room.
    pub fn decide(&mut self, item: Item, stamp: Stamp) -> bool {
        self.decisions.push(Decided::Item(item, stamp)).is_ok()
    }

    /// Sends the worker a retraction of a sender's decisions up to a number; returns whether there
    /// was room.
    pub fn retract(&mut self, upto: Stamp) -> bool {
        self.decisions.push(Decided::Retract(upto)).is_ok()
    }

    /// Takes the oldest sample.
    pub fn sample(&mut self) -> Option<Sampled> {
        self.samples.pop().ok()
    }
}

/// Who asks a worker.
#[derive(Debug)]
pub(super) struct Talk {
    pub(super) questions: Producer<(u32, Question)>,
    pub(super) answers: Consumer<(u32, Answer)>,
}

/// Makes the rings of a worker.
pub fn rings() -> (Rings, Ends) {
    let (decide, decisions) = RingBuffer::new(DECISIONS);
    let (tell, early) = RingBuffer::new(DECISIONS);
    let (ask, questions) = RingBuffer::new(TALK);
    let (answer, answers) = RingBuffer::new(TALK);
    let (sample, samples) = RingBuffer::new(SAMPLES);
    let talk = Talk { questions: ask, answers };
    let ends = Ends { decisions, early: tell, questions, answers: answer, samples: sample };
    (Rings { decisions: decide, early, talk, samples }, ends)
}
