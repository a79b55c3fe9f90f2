//! Forwarding in the driver: the lookup, the rewrite and the redirection to another device.
//!
//! ```text
//!   steering program ─► path: checks ─► table ─► next hop ─► link ─► rewritten, to the device
//!                         │               │         │         └─ MTU too small, the packet's own link ─┐
//!                         │               │         └─ not resolved ─────────────────────────────────────┤
//!                         │               └─ no route ─────────────────────────────────────────────────┤
//!                         └─ options, bad checksum, TTL used up, martian … ────────────────────────────┴─► rest
//! ```
//!
//! - [`path`]: the code, which the steering program runs in front of its sockets
//!   ([`port::af_xdp::steer::DriverPath`]).
//! - [`next_hops`]: the MAC and the link of each hop, and the device of each link.
//! - [`groups`]: several next hops, by the flow hash of the workers.
//! - [`samples`]: destinations of forwarded packets, for the auditor.
//! - [`own_sources`]: the own addresses, from which no packet is forwarded.
//!
//! **Only what is certain.** The path forwards a packet if the router's worker would forward it unchanged but for
//! MACs, TTL and checksum, by the same route. It leaves any other packet untouched to the worker, which
//! decides, answers and counts as ever. So the path needs no verdicts of its own, and what it does not know can
//! only make it slower.
//!
//! **Partial checksums.** A veth's peer leaves checksums to a card that does not exist; the worker completes
//! them (`port/src/af_xdp/socket/checksum.rs`). The path leaves TCP segments and UDP datagrams to it whose checksum
//! is the sum of the pseudo header. One in 65,536 others has the same checksum, and loses only time.

mod code;
pub mod groups;
pub mod next_hops;
pub mod own_sources;
pub mod path;
pub mod samples;

pub use groups::{GroupHash, HashFields};
pub use next_hops::{EgressLink, NextHop, NextHops, Tags};
pub use own_sources::OwnSources;
pub use path::{ForwardPath, SourceCheck};
pub use samples::Samples;
