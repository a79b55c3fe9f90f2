//! AF_XDP: packets straight from a network interface's queue.
//!
//! Linux passes a packet to this process before its own stack sees it: a small program in the
//! kernel ([`steer`]) selects the packets, and a socket of family `AF_XDP` delivers them into the
//! arena. Karlsson and Töpel, "The Path to DPDK Speeds for AF_XDP", Linux Plumbers Conference 2018.
//!
//! ```text
//!   interface, queue 0          kernel                    this process
//!   ──────────────────  ─ steering program ─► XSKMAP ─► Socket of queue 0 ─┐
//!   interface, queue 1  ─        │         ─► XSKMAP ─► Socket of queue 1  │ one worker's
//!                                └─► host's own stack                      │ share an Arena
//!   other interface, queue 0 ...                     ─► Socket ────────────┘
//! ```
//!
//! - [`Interface::open`], once per device: looks it up and attaches the program.
//! - [`Socket::bind`], once per queue: creates a [`Port`](crate::Port).
//! - [`bpf`]: the assembler, maps, programs and links, of which steering consists.
//! - `ring`: the four rings a socket shares with the kernel. The memory is the arena's.
//! - [`Error`]: errors before the first packet.
//!
//! Three modes are tried in this order, and [`Port::mode`](crate::Port::mode) returns the result:
//! *zero-copy*, in which the device itself writes into the arena; *copy*, in which the driver runs
//! the program and the kernel copies; *generic*, in which the stack runs it. Nothing is pinned, and
//! the program is attached by a link, so nothing remains when the process ends in any way.
//!
//! # Examples
//!
//! ```no_run
//! use fingerpost_port::af_xdp::{Interface, Locals, ModeChoice, RingSizes, Socket};
//! use fingerpost_port::{Arena, Port};
//!
//! let sizes = RingSizes::default();
//! let mut arena = Arena::new(2 * sizes.frames() + 256, 2048)?;
//! let eth0 = Interface::open("eth0", 1, &Locals::default(), ModeChoice::Auto)?;
//! let mut port = Socket::bind(&eth0, 0, &mut arena, sizes)?;
//! println!("{}: {}", port.name(), port.mode());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod bpf;
mod counters;
mod descriptor;
mod device;
mod error;
mod ethtool;
mod host_egress;
mod interface;
mod mapping;
mod refused;
mod ring;
mod rss;
mod socket;
pub mod steer;

pub use device::{DeviceInfo, compute_checksums, describe, queues};
pub use error::Error;
pub use host_egress::{HostEgress, HostEgressShare, HostTraffic};
pub use interface::{Interface, InterfaceCounts, InterfaceHandover, ModeChoice, QueueSetup};
pub use refused::RefusedFrames;
pub use rss::{Rss, has_rss};
pub use socket::{RingSizes, Socket, largest_mtu, longest_mtu, synchronize_rcu};
pub use steer::Locals;
