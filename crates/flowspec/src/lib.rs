#![forbid(unsafe_code)]
#![doc = include_str!("../README.md")]

mod action;
mod flow;
mod message;
mod octets;
mod operators;
mod rules;
mod session;
mod speaker;
mod table;

pub use flow::{FlowFamily, FlowSpec};
pub use message::{Notification, Update};
pub use session::{EndReason, Session, SpeakerIdentity};
pub use speaker::{
    FlowspecOptions, MOST_SESSIONS, PORT, SessionStatus, Speaker, SpeakerEvent, SpeakerStatus,
    StatusReader,
};
pub use table::{FlowRules, MOST_FLOWS, PeerId, RefusedFlow, Table};
