//! Distribution: policies and lists from one place, to gates and grantors, as signed bundles.
//!
//! ```text
//!   operator: pack, sign ─► file, folder or http ─► each member: known key? higher? my turn? sound?
//!                                                     └─► kept on disk ─► reload ─► watched ─► held
//!                                                              ▲                      └ worse ┐
//!                                                              └───── the version before ◄────┘
//! ```
//!
//! A bundle holds what may change while a member works: for a gate `gate.toml`, with grantor sets,
//! policy, allow-list, programs and rules; for a grantor `grantor.toml`, with its policy, a
//! candidate and lists; and the files they name. What is the machine's own (interfaces,
//! addresses, keys) stays in its configuration. Decision record 16 has the reasons.
//!
//! | file | what it is |
//! |---|---|
//! | [`bundle`] | the format |
//! | [`key`] | who may sign |
//! | [`share`] | who tries a version first |
//! | [`config`] | `[distribution]` |
//! | `source` | from a path or by HTTP |
//! | `record` | what is remembered, whatever happens |
//! | `kept` | on the disk, whole or not at all |
//! | `health` | worse than before? |
//! | `machine` | what is done when |
//! | `agent` | a thread that does it |
//! | `begin` | what is in force when a process starts |
//! | [`told`] | what is told of it |

mod agent;
mod begin;
pub mod bundle;
pub mod config;
mod health;
mod kept;
pub mod key;
mod machine;
mod record;
pub mod share;
mod source;
pub mod told;

pub(crate) use agent::{Agent, Board, Member, Wish};
pub use begin::survey;
pub(crate) use begin::{begin, in_force, text};
pub(crate) use bundle::Folder;
pub use bundle::{BadBundle, Bundle, Header};
pub use config::Settings;
pub(crate) use health::Sample;
pub use share::Share;
