//! The kernel feed: what Linux has for routes, followed as it changes.
//!
//! ```text
//!  netlink ─► Socket ─► Messages ─► Attributes ─► views ─► Mirror ─► Follower
//!             socket    message     attribute     link, address,  mirror/   follower
//!                                                 neighbor, route,
//!                                                 nexthop, rule
//! ```
//!
//! BIRD, FRR, GoBGP and `ip route` put routes into the kernel's tables; whoever follows
//! those needs no patch to any of them. [`Kernel`] reads everything once and then every
//! change (rtnetlink(7)), keeps it in a [`Mirror`], and tells a [`Follower`] of what is
//! best for a prefix of a table, when that changes.
//!
//! Netlink says much but not all. Messages are lost when nobody reads them in time, and
//! some changes are not said at all: IPv4 routes go with their link, their nexthop
//! object or their source address without a word. The first is noticed and ends in
//! everything being read anew (`kernel.rs`); the second is worked out from what is said
//! (`mirror/silent.rs`).
//!
//! The parser is our own: a full table is a million messages, and the crates there are
//! allocate for each and know no nexthop objects (`docs/decisions/0006-netlink-parser.md`).
//! Nothing a message holds makes it panic; a damaged message is left out and counted.

mod address;
mod attribute;
mod error;
mod follower;
mod kernel;
mod link;
mod lookup;
mod message;
mod mirror;
mod neighbor;
mod netconf;
mod nexthop;
mod owner;
mod route;
mod rule;
mod socket;
mod uapi;

pub use crate::prefix::AnyPrefix;
pub use address::AddressView;
pub use attribute::{Attribute, Attributes};
pub use error::{Damage, Error};
pub use follower::{Follower, NullFollower, RouteInfo, Target, Via};
pub use kernel::{Kernel, KernelCounters, KernelOptions, KernelProgress};
pub use link::{Link, LinkView};
pub use lookup::{Lookup, LookupResult};
pub use message::{Message, Messages};
pub use mirror::Mirror;
pub use neighbor::{Neighbor, NeighborView};
pub use netconf::NetconfView;
pub use nexthop::{NexthopObject, NexthopObjectView};
pub use owner::{SocketOwner, SocketOwners};
pub use route::{RouteNexthop, RouteNexthops, RouteView};
pub use rule::{Action, Rule};
