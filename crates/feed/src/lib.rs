//! Where routes come from: text tables, MRT files, update streams, MaxMind databases, a generator,
//! the kernel, FRR.
//!
//! The first stage of the control plane. A file is opened, decompressed by its first bytes (gzip,
//! bzip2 or neither), recognized by its content and read once, sequentially and in pieces: no file
//! but a MaxMind database is held in memory as a whole.
//!
//! ```text
//! file ─► Source ──► text/  a line  ─┐            ┌► RoutingTable   a table: sorted, unique
//!         unpack,    mrt/   a record ─┼► routes ──┤
//!         offsets    mmdb/  a network ┘           └► UpdateStream   events in time ─► BestPath
//! generate(Recipe) ───────────────────────────────► RoutingTable
//! kernel ─► netlink::Kernel ─► Mirror ─┬──────────► Follower   changes of the best routes
//! FRR ────► fpm::Fpm ────────► Mirror ─┘
//! ```
//!
//! [`write()`] writes a table in each format that is read.
//!
//! The text behind a prefix in a file, a next hop, an origin, a record or nothing, is opaque to this crate:
//! a [`Label`], which is a small index into [`Labels`]. The control plane gives a label its meaning
//! (an interface, a MAC address).
//!
//! Files from outside may be damaged. A damaged file gives an [`Error`], which names the line, or
//! the byte and the record, and no routes; with [`Options::partial`] it gives the routes before the
//! damage, and the same text as a warning. No content of a file makes this crate panic.
//!
//! # Examples
//!
//! ```
//! use fingerpost_feed::{read, Options};
//! let text = "10.0.0.0/8 west\n2001:db8::/32 east\n10.1.0.0/16 east # comment\n";
//! let table = read(text.as_bytes(), "inline".as_ref(), &Options::default())?;
//! assert_eq!(table.v4.len(), 2);
//! assert_eq!(table.labels.get(table.v6[0].1), "east");
//! # Ok::<(), fingerpost_feed::Error>(())
//! ```

#![forbid(unsafe_code)]

mod best;
mod bgp_label;
mod collector;
mod error;
mod event;
pub mod fpm;
mod generate;
mod label;
mod load;
mod mmdb;
mod mrt;
pub mod netlink;
mod options;
mod prefix;
mod route_list;
mod routing_table;
mod source;
mod table_builder;
mod text;
mod updates;
mod write;

pub use best::{BestPath, Change, Peer, Rank};
pub use error::{Error, WriteError};
pub use event::{Event, EventKind};
pub use generate::{Recipe, generate};
pub use label::{Label, Labels, fnv1a};
pub use load::{load, read};
pub use options::{Compression, Format, Options, WriteOptions};
pub use prefix::AnyPrefix;
pub use routing_table::{Report, RoutingTable};
pub use text::scan::prefix as parse_prefix;
pub use updates::{Update, UpdateStream, read_updates, updates};
pub use write::write;

/// The examples of the README, compiled and run as documentation tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod examples {}
