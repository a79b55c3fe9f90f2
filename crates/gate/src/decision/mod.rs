//! Decisions on their way from grantors to gates.
//!
//! ```text
//!   grantor: Item ─► v2::Sender ─► messages ═══► v2::Receiver ─► Item, Stamp ─► flow table
//!                         ▲                          │
//!                         └───── acknowledgements ◄══┘
//! ```
//!
//! | file | what it is |
//! |---|---|
//! | [`v1`] | the published gates' messages, byte for byte: neither authenticated nor acknowledged |
//! | [`v2`] | our own: authenticated, each message taken once, acknowledged, retransmitted |
//!
//! Nothing here sends or receives: messages are bytes, time is an argument. The formats
//! are in docs/decision-protocol.md.

pub mod v1;
pub mod v2;

mod cursor;

use fib::{Addr, Prefix};

use crate::flow::{Flow, Pair};
use crate::state::Decision;

/// A flow program to run for a flow, by number, with what it begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProgramDecision {
    /// Seconds until the flow has to ask again.
    pub expire_s: u32,
    /// Which program.
    pub program: u8,
    /// Its state at first; on the wire without the zero words at its end.
    pub cookie: [u8; 64],
}

/// What is to become of a flow, or of all flows of a pair of prefixes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowCommand {
    /// It is granted or declined.
    Decide(Decision),
    /// A program decides.
    Run(ProgramDecision),
    /// It is forgotten, and asks again with its next packet. Version 2 only.
    Flush,
}

/// Whom a decision is about: all flows from one prefix to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// IPv4.
    V4(Prefix<u32>, Prefix<u32>),
    /// IPv6.
    V6(Prefix<u128>, Prefix<u128>),
}

impl Scope {
    /// Makes the scope that is one flow.
    pub fn of(flow: &Flow) -> Self {
        match flow.pair() {
            Pair::V4 { src, dst } => Self::V4(Prefix::truncate(src, 32), Prefix::truncate(dst, 32)),
            Pair::V6 { src, dst } => {
                Self::V6(Prefix::truncate(src, 128), Prefix::truncate(dst, 128))
            }
        }
    }

    /// Returns the flow, if this is one.
    pub fn flow(&self) -> Option<Flow> {
        fn whole<A: Addr>(src: Prefix<A>, dst: Prefix<A>) -> bool {
            src.len() == A::BITS && dst.len() == A::BITS
        }
        match *self {
            Self::V4(src, dst) => whole(src, dst).then(|| Flow::v4(src.addr(), dst.addr())),
            Self::V6(src, dst) => whole(src, dst).then(|| Flow::v6(src.addr(), dst.addr())),
        }
    }

    /// Says whether a flow is within.
    pub fn contains(&self, flow: &Flow) -> bool {
        match (self, flow.pair()) {
            (Self::V4(from, to), Pair::V4 { src, dst }) => from.contains(src) && to.contains(dst),
            (Self::V6(from, to), Pair::V6 { src, dst }) => from.contains(src) && to.contains(dst),
            _ => false,
        }
    }
}

/// A decision and whom it is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item {
    /// Whom it is about.
    pub scope: Scope,
    /// What is to become of them.
    pub command: FlowCommand,
}

/// Why a message, or a part of it, is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MessageError {
    /// It ends before what it promises.
    Truncated,
    /// It is of another version.
    Version,
    /// A field has a value that means nothing, or one that must be zero is not.
    Malformed,
    /// Nobody of that number may decide.
    UnknownSender,
    /// The key is not, or no longer, in use.
    UnknownKey,
    /// The authentication code is not that of the message.
    Forged,
    /// It is for a session that is over.
    OtherSession,
    /// It was taken before.
    Replayed,
    /// It is older than what can be told from what was taken before.
    TooOld,
}

impl core::fmt::Display for MessageError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Truncated => "the message ends before what it promises",
            Self::Version => "the message is of another version of the protocol",
            Self::Malformed => "a field of the message has no meaning",
            Self::UnknownSender => "the sender is not among the grantors of the policy",
            Self::UnknownKey => "the message is under a key that is not in use",
            Self::Forged => "the message's authentication code is wrong",
            Self::OtherSession => "the message is for a session that is over",
            Self::Replayed => "the message was taken before",
            Self::TooOld => "the message is older than the window",
        })
    }
}

impl core::error::Error for MessageError {}
