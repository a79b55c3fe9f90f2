//! Ports in memory: a cable, and a generator that replays.
//!
//! - [`MemoryPort`]: each of a pair receives the packets that the other transmits. For tests, and
//!   for the demonstration without root.
//! - [`Replay`]: repeats the packets of a [`Pool`], and sends to a [`Sink`]. For measuring the
//!   datapath alone.

mod cable;
mod replay;

pub use cable::{MemoryPort, PuntedPackets};
pub use replay::{Inspect, Pool, Replay, Sink};
