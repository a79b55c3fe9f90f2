//! Version 1: the messages of Gatekeeper's grantors, byte for byte.
//!
//! ```text
//!   message   1:8 | 0:8 | 0:16 | decision …                  UDP, port 41120 to 45232
//!   decision  type:8 | 0:8 | 0:16 | source | destination | parameters
//!
//!   type  0, 1  declined, IPv4 and IPv6    expire_s:32
//!         2, 3  granted                    rate_kib:32 expire_s:32 next_ms:32 step_ms:32
//!         4, 5  program                    expire_s:32 program:8 0:16 words:8 cookie
//! ```
//!
//! A decline of this version carries no proof that its packet was not forged: it is provisional
//! (`state/provisional.rs`). This version cannot decline a part of a flow's packets.
//!
//! Messages carry neither a sender nor a time: any host that can send a datagram to the gate can
//! decide. A gate accepts this version only if its configuration allows it, and only from the
//! addresses listed there.
//!
//! [`Reader`] returns decisions one by one and stops at the first invalid one; those before it
//! stand, as they do at the published gates. [`Writer`] never exceeds its maximum length, so that
//! messages fit the path; messages of the published grantors may exceed 1500 bytes and are then
//! lost.

use super::cursor::{Cursor, put_grant, put_program};
use super::{FlowCommand, Item, MessageError, Scope};
use crate::flow::{Flow, Pair};
use crate::state::{Decision, Provisional, Traffic};

/// The source UDP port of messages.
pub const SOURCE_PORT: u16 = 0xa0a0;
/// The destination UDP port of messages.
pub const DESTINATION_PORT: u16 = 0xb0b0;

const VERSION: u8 = 1;
const DECLINED: u8 = 0;
const GRANTED: u8 = 2;
const PROGRAM: u8 = 4;

/// Reads the decisions of a message.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    cursor: Cursor<'a>,
}

impl<'a> Reader<'a> {
    /// Reads the header of a datagram's payload.
    ///
    /// # Errors
    ///
    /// [`MessageError::Truncated`], [`MessageError::Version`], or [`MessageError::Malformed`] if a
    /// reserved field is not zero.
    pub fn new(payload: &'a [u8]) -> Result<Self, MessageError> {
        let mut cursor = Cursor(payload);
        let [version, reserved @ ..] = cursor.take::<4>()?;
        if version != VERSION {
            return Err(MessageError::Version);
        }
        if reserved != [0; 3] {
            return Err(MessageError::Malformed);
        }
        Ok(Self { cursor })
    }

    fn decision(&mut self) -> Result<Item, MessageError> {
        let cursor = &mut self.cursor;
        let [kind, reserved @ ..] = cursor.take::<4>()?;
        if kind > PROGRAM + 1 || reserved != [0; 3] {
            return Err(MessageError::Malformed);
        }
        let flow = if kind % 2 == 0 {
            Flow::v4(cursor.u32()?, cursor.u32()?)
        } else {
            Flow::v6(cursor.u128()?, cursor.u128()?)
        };
        let command = match kind & !1 {
            DECLINED => {
                let (expire_s, traffic) = (cursor.u32()?, Traffic::All);
                FlowCommand::Decide(Decision::Provisional(Provisional { expire_s, traffic }))
            }
            GRANTED => FlowCommand::Decide(Decision::Grant(cursor.grant()?)),
            _ => FlowCommand::Run(cursor.program()?),
        };
        Ok(Item { scope: Scope::of(&flow), command })
    }
}

impl Iterator for Reader<'_> {
    type Item = Result<Item, MessageError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.cursor.0.is_empty() {
            return None;
        }
        let item = self.decision();
        if item.is_err() {
            self.cursor.0 = &[];
        }
        Some(item)
    }
}

/// Writes a message.
#[derive(Debug)]
pub struct Writer {
    bytes: Vec<u8>,
    most: usize,
}

impl Writer {
    /// Begins a message of at most `most` bytes, at least 4.
    pub fn new(most: usize) -> Self {
        Self { bytes: vec![VERSION, 0, 0, 0], most }
    }

    /// Adds a decision and returns whether it was added. It is not if there is no room, or if this
    /// version cannot express it: only decisions about single flows are possible.
    pub fn push(&mut self, item: &Item) -> bool {
        let before = self.bytes.len();
        let fits = self.try_push(item).is_some() && self.bytes.len() <= self.most;
        if !fits {
            self.bytes.truncate(before);
        }
        fits
    }

    fn try_push(&mut self, item: &Item) -> Option<()> {
        let flow = item.scope.flow()?;
        let out = &mut self.bytes;
        let kind = match item.command {
            FlowCommand::Decide(Decision::Provisional(Provisional { traffic, .. }))
                if traffic != Traffic::All =>
            {
                return None;
            }
            FlowCommand::Decide(Decision::Decline { .. } | Decision::Provisional(_)) => DECLINED,
            FlowCommand::Decide(Decision::Grant(_)) => GRANTED,
            FlowCommand::Run(_) => PROGRAM,
            FlowCommand::Flush => return None,
        };
        out.extend_from_slice(&[kind | u8::from(flow.is_v6()), 0, 0, 0]);
        match flow.pair() {
            Pair::V4 { src, dst } => {
                out.extend_from_slice(&src.to_be_bytes());
                out.extend_from_slice(&dst.to_be_bytes());
            }
            Pair::V6 { src, dst } => {
                out.extend_from_slice(&src.to_be_bytes());
                out.extend_from_slice(&dst.to_be_bytes());
            }
        }
        match &item.command {
            FlowCommand::Decide(
                Decision::Decline { expire_s }
                | Decision::Provisional(Provisional { expire_s, .. }),
            ) => {
                out.extend_from_slice(&expire_s.to_be_bytes());
            }
            FlowCommand::Decide(Decision::Grant(grant)) => put_grant(out, grant),
            FlowCommand::Run(program) => put_program(out, program),
            FlowCommand::Flush => return None,
        }
        Some(())
    }

    /// Returns the message.
    pub fn finish(self) -> Vec<u8> {
        self.bytes
    }
}
