//! A fleet on NATS JetStream: its bundles, the states of its members, and the rollout in progress.
//!
//! ```text
//!   operator ─► Broker ─┬─ object store FLEET-bundles     7 ─► bytes of a bundle ──────┐
//!                       ├─ key-value FLEET-control        current ─► version, object ──┼─► MemberConnection
//!                       │                                 rollout ─► stage, state      │
//!                       └─ key-value FLEET-members ◄──── NAME ─► signed state ◄────────┘
//! ```
//!
//! [`Broker`] is the connection of a command, which waits for each answer. [`MemberConnection`] is that of a
//! member: a thread that follows `current`, reads the bundle that it names and publishes the member's
//! state.
//!
//! The broker needs no trust. This crate carries bytes: the member checks the signature of a bundle, and
//! the operator's commands check those of states (`fingerpost_bundle::state`). A dishonest broker can
//! withhold both, and nothing else. Without a broker a member stays with the version that it has.
//!
//! A member makes no consumer on the servers: it subscribes to the subject of `current`, and reads
//! messages by JetStream's direct get, which any replica answers. So the servers keep a subscription for
//! each member, and no state. After each connection, and every `interval`, a member reads `current` again,
//! because a subscription misses what was published while it was not connected.
//!
//! Subjects and names are those of NATS's own key-value and object stores (ADR-8, ADR-20), so that
//! `nats kv` and `nats object` read them. JetStream of 2.9 and later has all that is needed.
//!
//! | module | contents |
//! |---|---|
//! | [`url`] | [`FleetUrl`] |
//! | `names` | the buckets, subjects and records |
//! | `connection` | the options of a connection, and the reasons of its failure |
//! | `object` | an object, read by direct gets |
//! | `broker` | [`Broker`] |
//! | `member` | [`MemberConnection`] |

#![forbid(unsafe_code)]

mod broker;
mod connection;
mod member;
mod names;
mod object;
pub mod url;

pub use broker::{Broker, BrokerError, StoredState};
pub use connection::Access;
pub use member::{MemberConnection, ReadResult};
pub use names::{CurrentVersion, RolloutRecord, RolloutState, is_member_name};
pub use url::{FleetUrl, FleetUrlError};
