//! The rings between the control threads and a worker: bounded and lock-free.
//!
//! ```text
//!   decision receiver ── DecisionMessage ──► worker   full: the message is not accepted
//!   decision receiver ◄── DeclinedUpdate ─── worker   full: the map is cleared later
//!   controller ─────── Query ──────────────► worker
//!   controller ◄────── QueryReply ────────── worker   full: the worker continues in a later turn
//!   controller ◄────── PacketSample ──────── worker   full, or not read: samples are lost
//! ```
//!
//! Each ring has one producer and one consumer (`rtrb`, wait-free). The elements are `Copy` and own no
//! memory, so that neither end allocates or frees.

use gate::decision::Item;
use gate::flow::Flow;
use gate::state::{Stamp, State, Traffic};
use rtrb::{Consumer, Producer, RingBuffer};

use datapath::Verdict;
use gate::sample::PacketSample;

/// Capacity of the decision ring: several messages of the maximum size.
pub(super) const DECISIONS: usize = 8192;
/// The maximum number of decisions in a message.
pub(super) const MESSAGE: usize = 1024;
/// Capacity of the query and reply rings.
const QUERIES: usize = 256;
/// Capacity of the sample ring: more than one second has (`sampler.rs`).
const SAMPLES: usize = 8192;

/// A message of the decision receiver to a worker.
#[derive(Clone, Copy, Debug)]
pub(super) enum DecisionMessage {
    /// Apply a decision with this stamp.
    Apply(Item, Stamp),
    /// Retract all decisions of a sender up to this number.
    Retract(Stamp),
}

/// A change to the kernel's map of declined flows.
#[derive(Clone, Copy, Debug)]
pub(super) enum DeclinedUpdate {
    /// The flow is declined for this many seconds.
    Insert(Flow, u32),
    /// The flow is not declined, or no longer.
    Remove(Flow),
    /// All flows are to be removed.
    Clear,
}

/// A query to a worker.
#[derive(Clone, Copy, Debug)]
pub(super) enum Query {
    /// The state of a flow.
    Flow(Flow),
    /// The worker's flows, at most this many.
    Flows(u32),
}

/// A reply to the query with the same number.
#[derive(Clone, Copy, Debug)]
pub(super) enum QueryReply {
    /// A flow with an entry.
    Entry(FlowEntry),
    /// The flow has no entry; its first packet arrived this many nanoseconds ago.
    FirstSeen(u64),
    /// The verdict of the flow's last dropped packet, and the nanoseconds since.
    Dropped(Verdict, u64),
    /// The query is complete.
    End,
}

/// The state of a flow in a worker's table.
#[derive(Clone, Copy, Debug)]
pub(super) struct FlowEntry {
    pub(super) flow: Flow,
    pub(super) state: State,
    pub(super) program: u8,
    /// Nanoseconds until the state expires.
    pub(super) left: u64,
    /// The packets that a provisional decline covers.
    pub(super) traffic: Traffic,
    /// Nanoseconds since the last request.
    pub(super) idle: u64,
    pub(super) priority: u8,
    pub(super) set: u16,
    pub(super) generation: u16,
    /// Bytes left in this second.
    pub(super) budget: u64,
    /// Nanoseconds until packets request a renewal.
    pub(super) renewal: u64,
    pub(super) stamp: Stamp,
}

/// The worker's ends of its rings.
#[derive(Debug)]
pub struct WorkerRings {
    pub(super) decisions: Consumer<DecisionMessage>,
    pub(super) declined: Producer<DeclinedUpdate>,
    pub(super) queries: Consumer<(u32, Query)>,
    pub(super) replies: Producer<(u32, QueryReply)>,
    pub(super) samples: Producer<PacketSample>,
}

/// The control threads' ends of a worker's rings.
#[derive(Debug)]
pub struct ControlRings {
    pub(super) decisions: Producer<DecisionMessage>,
    pub(super) declined: Consumer<DeclinedUpdate>,
    pub(super) queries: QueryChannel,
    pub(super) samples: Consumer<PacketSample>,
}

impl ControlRings {
    /// Sends the worker a decision; returns whether there was room.
    pub fn decide(&mut self, item: Item, stamp: Stamp) -> bool {
        self.decisions.push(DecisionMessage::Apply(item, stamp)).is_ok()
    }

    /// Sends the worker a retraction of a sender's decisions up to a number; returns whether there
    /// was room.
    pub fn retract(&mut self, upto: Stamp) -> bool {
        self.decisions.push(DecisionMessage::Retract(upto)).is_ok()
    }

    /// Returns the oldest sample.
    pub fn sample(&mut self) -> Option<PacketSample> {
        self.samples.pop().ok()
    }
}

/// The queries to a worker and its replies.
#[derive(Debug)]
pub(super) struct QueryChannel {
    pub(super) queries: Producer<(u32, Query)>,
    pub(super) replies: Consumer<(u32, QueryReply)>,
}

/// Makes the rings of a worker.
pub fn rings() -> (ControlRings, WorkerRings) {
    let (send_decision, decisions) = RingBuffer::new(DECISIONS);
    let (send_declined, declined) = RingBuffer::new(DECISIONS);
    let (send_query, queries) = RingBuffer::new(QUERIES);
    let (send_reply, replies) = RingBuffer::new(QUERIES);
    let (send_sample, samples) = RingBuffer::new(SAMPLES);
    let channel = QueryChannel { queries: send_query, replies };
    let worker = WorkerRings {
        decisions,
        declined: send_declined,
        queries,
        replies: send_reply,
        samples: send_sample,
    };
    (ControlRings { decisions: send_decision, declined, queries: channel, samples }, worker)
}
