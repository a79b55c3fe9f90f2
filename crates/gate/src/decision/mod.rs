//! The decision protocol: decisions between grantors and gates.
//!
//! ```text
//!   grantor: Item ─► v2::Sender ─► messages ═══► v2::Receiver ─► Item, Stamp ─► flow table
//!                         ▲                          │
//!                         └───── acknowledgements ◄══┘
//! ```
//!
//! | file | contents |
//! |---|---|
//! | [`v1`] | the messages of the published gates, byte for byte: neither authenticated nor acknowledged |
//! | [`v2`] | this project's protocol: authenticated, each message taken once, acknowledged, retransmitted |
//!
//! This module does no I/O: messages are bytes, time is an argument. docs/decision-protocol.md
//! specifies the formats.

pub mod v1;
pub mod v2;

mod cursor;

use fib::{Addr, Prefix};

use crate::flow::{Flow, Pair};
use crate::state::Decision;

/// A decision to run a flow program for a flow, with the program's number and initial cookie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProgramDecision {
    /// Seconds until the flow has to send requests again.
    pub expire_s: u32,
    /// The number of the program.
    pub program: u8,
    /// The initial cookie; on the wire without the zero words at its end.
    pub cookie: [u8; 64],
}

/// A command to a gate about a flow, or about all flows of a pair of prefixes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowCommand {
    /// Grant the flow or decline it.
    Decide(Decision),
    /// Run a program for each of its packets.
    Run(ProgramDecision),
    /// Forget the flow, which sends requests again with its next packet. Version 2 only.
    Flush,
}

/// The scope of a decision: all flows from one prefix to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// IPv4.
    V4(Prefix<u32>, Prefix<u32>),
    /// IPv6.
    V6(Prefix<u128>, Prefix<u128>),
}

impl Scope {
    /// Returns the scope that is this one flow.
    pub fn of(flow: &Flow) -> Self {
        match flow.pair() {
            Pair::V4 { src, dst } => Self::V4(Prefix::truncate(src, 32), Prefix::truncate(dst, 32)),
            Pair::V6 { src, dst } => {
                Self::V6(Prefix::truncate(src, 128), Prefix::truncate(dst, 128))
            }
        }
    }

    /// Returns the flow, if the scope is a single one.
    pub fn flow(&self) -> Option<Flow> {
        fn whole<A: Addr>(src: Prefix<A>, dst: Prefix<A>) -> bool {
            src.len() == A::BITS && dst.len() == A::BITS
        }
        match *self {
            Self::V4(src, dst) => whole(src, dst).then(|| Flow::v4(src.addr(), dst.addr())),
            Self::V6(src, dst) => whole(src, dst).then(|| Flow::v6(src.addr(), dst.addr())),
        }
    }

    /// Returns whether a flow is in the scope.
    pub fn contains(&self, flow: &Flow) -> bool {
        match (self, flow.pair()) {
            (Self::V4(from, to), Pair::V4 { src, dst }) => from.contains(src) && to.contains(dst),
            (Self::V6(from, to), Pair::V6 { src, dst }) => from.contains(src) && to.contains(dst),
            _ => false,
        }
    }
}

/// A command and its scope: one entry of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item {
    /// The flows that the command is about.
    pub scope: Scope,
    /// The command.
    pub command: FlowCommand,
}

/// The reason to refuse a message, or a part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MessageError {
    /// The message ends before its last field.
    Truncated,
    /// The message is of another version.
    Version,
    /// A field has an invalid value, or a reserved field is not zero.
    Malformed,
    /// No sender has this number.
    UnknownSender,
    /// The key is not, or no longer, in use.
    UnknownKey,
    /// The authentication code is wrong.
    Forged,
    /// The message is for another session.
    OtherSession,
    /// The message was accepted before.
    Replayed,
    /// The number is below the replay window.
    TooOld,
}

impl core::fmt::Display for MessageError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Truncated => "the message ends before its last field",
            Self::Version => "the message is of another version of the protocol",
            Self::Malformed => "a field of the message has an invalid value",
            Self::UnknownSender => "the sender is not among the grantors of the policy",
            Self::UnknownKey => "the message is signed with a key that is not in use",
            Self::Forged => "the message's authentication code is wrong",
            Self::OtherSession => "the message is for another session",
            Self::Replayed => "the message was accepted before",
            Self::TooOld => "the message's number is below the replay window",
        })
    }
}

impl core::error::Error for MessageError {}
