//! Egress queues: packets that wait for a link that is slower than what comes.
//!
//! ```text
//!   offer ─► Control   first in, first out     ─┐ within its share first
//!            Requests  by priority (DSCP)      ─┤ within its share next
//!            Default   CoDel, marks or drops   ─┴─► next, as the Pacers of device and link permit
//! ```
//!
//! | name | purpose |
//! |---|---|
//! | [`LinkQueues`] | the queues of a link: its own, and those of the devices over it (`link_queues.rs`) |
//! | [`EgressQueue`] | the three classes of a queue, and the order in which they leave (`egress_queue.rs`) |
//! | [`Codel`] | which packets of a standing queue are marked or dropped (`codel.rs`) |
//! | [`PriorityQueue`] | a bounded queue that drops the lowest priority (`priority_queue.rs`) |
//! | [`Pacer`] | the rate of a link (`pacer.rs`) |
//! | [`SharedPacer`] | the workers that share a link, and which of them sends next (`pacer_share.rs`) |
//! | [`QueueCounters`] | what left, was dropped, was marked and waits, by class (`counters.rs`) |
//!
//! The crate has no packets and no clock: items are of any type, and times are nanoseconds since a time
//! of the caller's choice. It allocates in constructors only.

#![forbid(unsafe_code)]

mod codel;
mod counters;
mod egress_queue;
mod link_queues;
mod pacer;
mod pacer_share;
mod priority_queue;

pub use codel::{Codel, CodelParameters};
pub use counters::{ClassCounts, QueueCounters, QueueCounts};
pub use egress_queue::{
    Departure, EgressQueue, EgressQueueParameters, MOST_CREDIT, Offer, TrafficClass, frames_of,
};
pub use link_queues::{LinkDevice, LinkQueues};
pub use pacer::Pacer;
pub use pacer_share::{PacerShare, SharedPacer};
pub use priority_queue::{PRIORITIES, PriorityQueue};
