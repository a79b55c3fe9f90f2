//! Block lists: where their prefixes come from, what is held, and what is in force.
//!
//! ```text
//!   URL, CrowdSec, routing table ─► feed's thread ─► file ─┐
//!   files and folders of the operator ─────────────────────┼─► List ─► held? ─► Blocker ─► XDP program
//!   orders to ban and to lift a ban ─► Bans ─► file ───────┘                      └─► counters, watches
//! ```
//!
//! [`BlockLists`] has the lists of a host in the order of their priority, and gives their contents to an
//! [`xdp::Blocker`]. Its owner, `fingerpost block` or a router, calls [`BlockLists::turn`] some times a second
//! and brings the blocker's filter to its interfaces.
//!
//! | module | content |
//! |---|---|
//! | `config` | [`ListConfig`]: a source, an action and destinations |
//! | `lists` | [`BlockLists`]: all lists, and their present state in the blocker |
//! | `list` | one list that is read, and what of it is applied |
//! | `place` | where a list's lines are, and which version of them was read |
//! | `lines` | the lines of a list, and the times at which they end |
//! | `bans` | the list that orders change |
//! | `protected` | what no list may block, and why a list is held |
//! | `source` | [`Source`]: a list's path, URL, CrowdSec engine, routing table or policy |
//! | `feed` | lists from outside: a thread that writes a file |
//! | `watched` | the prefixes whose packets are counted on request |
//! | `status` | the state of the lists, for the control socket |
//! | `error` | [`ListError`] |

#![forbid(unsafe_code)]

mod bans;
mod config;
mod error;
pub mod feed;
mod lines;
mod list;
mod lists;
mod place;
mod protected;
mod source;
mod status;
mod watched;

pub use config::{ListConfig, check, parse_prefix};
pub use error::ListError;
pub use fetch::UrlError;
pub use lists::BlockLists;
pub use source::Source;
