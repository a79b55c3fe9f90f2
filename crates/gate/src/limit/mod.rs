//! Egress to the protected network: limits and queues (thesis, 4.3.4).
//!
//! ```text
//!   operational ─────────────────► reserve, 5 % ───────┐
//!   requests ── by priority ─────► RequestQueue, 5 % ──┼─► the link
//!   granted ── by destination ───► RED queues, 95 % ───┘
//! ```
//!
//! | file | contents |
//! |---|---|
//! | [`bucket`] | exact token buckets with a short burst |
//! | [`request_queue`] | requests by priority; the lowest are dropped when it is full |
//! | [`red`] | RED queues of granted packets |
//! | [`aggregate`] | limits of prefixes, and of each destination within |
//! | [`link`] | the scheduler of the three classes |
//!
//! A packet is a small handle of any type `T`; queues never look into it. Time is monotonic, in
//! nanoseconds; nothing reads a clock. The caller frees a handle that is returned to it because its
//! packet was dropped or refused.

pub mod aggregate;
pub mod bucket;
pub mod link;
pub mod red;
pub mod request_queue;

/// The bytes that a frame occupies on the wire beside those from the destination MAC to the end of
/// the payload: preamble 7, delimiter 1, checksum 4, gap 12 (IEEE 802.3).
pub const FRAMING: u32 = 24;
