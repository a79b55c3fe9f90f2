//! Distribution of policies and lists from one place to gates and grantors, as signed bundles.
//!
//! ```text
//!   operator: pack, sign ─► file, HTTP or fleet ─► each member: trusted key? higher? canary? valid?
//!                                             └─► store on disk ─► apply ─► trial ─► confirmed
//!                                                                   ▲         └ worse ┐
//!                                                                   └─ previous ◄─────┘
//! ```
//!
//! A member is a gate or a grantor that applies bundles. A bundle holds the part of a configuration
//! that may change at run time: for a gate `gate.toml`, with grantor sets, policy, allow-list,
//! programs and rules; for a grantor `grantor.toml`, with its policy, a candidate and lists; and the
//! files that these name. Interfaces, addresses and keys stay in the local configuration of each
//! machine. Decision record 16 has the reasons.
//!
//! | module | contents |
//! |---|---|
//! | [`bundle`] | the file format |
//! | [`key`] | the keys of signers |
//! | [`label`] | the labels of members |
//! | [`share`] | the canary share |
//! | [`config`] | `[distribution]` |
//! | `source` | polls of a path, an HTTP URL or a fleet |
//! | [`blocks`] | the prefixes that a fleet drops |
//! | `signed` | a signed text |
//! | [`state`] | the signed state of a fleet's member |
//! | `record` | the persistent record of a rollout |
//! | `store` | the store on disk, with atomic writes |
//! | `health` | samples and their comparison with the baseline |
//! | `rollout` | the state machine |
//! | `agent` | the thread that drives it |
//! | `startup` | the bundle in force when a process starts |

#![forbid(unsafe_code)]

mod agent;
pub mod blocks;
pub mod bundle;
pub mod config;
mod health;
pub mod key;
pub mod label;
mod member_config;
mod record;
mod rollout;
pub mod share;
mod signed;
mod source;
mod startup;
pub mod state;
mod store;

pub use agent::{Agent, AgentStatus, Command, DistributionMember, InitialState};
pub use bundle::FileSource;
pub use bundle::{Bundle, BundleError, BundleHeader};
pub use config::DistributionConfig;
pub use health::HealthSample;
pub use label::Label;
pub use member_config::MemberConfig;
pub use share::CanaryShare;
pub use signed::SignedError;
pub use startup::{Startup, role_file};
