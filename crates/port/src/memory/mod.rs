//! Ports in memory: a cable, and a generator that replays.
//!
//! - [`MemoryPort`]: what one of a pair transmits the other receives. For
//!   tests, and for the demonstration where it is not root.
//! - [`Replay`]: the packets of a [`Pool`] over and over, sent to a [`Sink`].
//!   For measuring the datapath with next to nothing around it.

mod cable;
mod replay;

pub use cable::{MemoryPort, PuntedPackets};
pub use replay::{Inspect, Pool, Replay, Sink};
