//! The kernel feed: Linux's routes, followed as they change.
//!
//! ```text
//!  netlink ─► Socket ─► Messages ─► Attributes ─► views ─► Mirror ─► Follower
//!             socket    message     attribute     link, address,  mirror/   follower
//!                                                 neighbor, route,
//!                                                 nexthop, rule
//! ```
//!
//! BIRD, FRR, GoBGP and `ip route` install routes in the kernel's tables, so this feed works with all
//! of them unpatched. [`Kernel`] reads the complete state once and then every change (rtnetlink(7)),
//! keeps it in a [`Mirror`], and reports the best route of a prefix of a table to a [`Follower`] when
//! it changes.
//!
//! Netlink does not report everything. Messages are lost when they are not read in time, and some
//! changes have no message: IPv4 routes disappear with their link, their nexthop object or their
//! source address. A loss is detected and leads to a resynchronization (`kernel.rs`); the unreported
//! removals are derived from reported changes (`mirror/implicit.rs`).
//!
//! The parser is the project's own: a full table is a million messages, and the existing crates
//! allocate for each and do not know nexthop objects (`docs/decisions/0006-netlink-parser.md`). No
//! content of a message makes it panic; a damaged message is skipped and counted.

mod address;
mod attribute;
mod device_features;
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
mod settings;
mod socket;
mod uapi;

pub use crate::prefix::AnyPrefix;
pub use address::AddressView;
pub use attribute::{Attribute, Attributes};
pub use device_features::{DeviceFeatures, XdpFeatures};
pub use error::{Damage, Error};
pub use follower::{
    AddressChange, Follower, InterfaceSettings, NullFollower, RouteInfo, RpFilter, Target, Via,
};
pub use kernel::{Kernel, KernelCounters, KernelOptions, KernelProgress};
pub use link::{Link, LinkView, Vlan};
pub use lookup::{Lookup, LookupResult};
pub use message::{Message, Messages};
pub use mirror::Mirror;
pub use neighbor::{Neighbor, NeighborView};
pub use netconf::NetconfView;
pub use nexthop::{NexthopObject, NexthopObjectView};
pub use owner::{SocketOwner, SocketOwners};
pub use route::{RouteNexthop, RouteNexthops, RouteView};
pub use rule::{Action, Rule};
