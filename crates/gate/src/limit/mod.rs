//! What leaves towards the protected network, and how much of it (thesis, 4.3.4).
//!
//! ```text
//!   operational ──────────────────────► reserve, 5 % ──┐
//!   requests ── by priority ──► RequestQueue, 5 % ────────┼─► the link
//!   granted ── by destination ──► RED queues, 95 % ────┘
//! ```
//!
//! | file | what it is |
//! |---|---|
//! | [`bucket`] | bytes a second, exactly, with a short burst |
//! | [`request_queue`] | requests by priority; the lowest go when it is full |
//! | [`red`] | granted packets, in queues that begin to drop before they are full |
//! | [`aggregate`] | limits of prefixes, and of each destination within |
//! | [`link`] | the three of them, and who is next |
//!
//! A packet is a small handle of any type `T`; queues never look into it. Time is
//! monotonic, in nanoseconds; nothing reads a clock. Who gets a handle back, because it
//! was dropped or refused, frees it.

pub mod aggregate;
pub mod bucket;
pub mod link;
pub mod red;
pub mod request_queue;

/// What a frame occupies on the wire beside its bytes from the destination MAC to the end
/// of the payload: preamble 7, delimiter 1, checksum 4, gap 12 (IEEE 802.3).
pub const FRAMING: u32 = 24;
