//! Version 2: authenticated, each message taken once, acknowledged, retransmitted.
//!
//! ```text
//!    0        8        16               32
//!   +--------+--------+----------------+--------------------------------+
//!   |   2    |  kind  |     key id     |             sender             |
//!   +--------+--------+----------------+--------------------------------+
//!   |                             session                               |
//!   +--------------------------------------------------------------------+
//!   |                              number                               |
//!   +--------------------------------------------------------------------+
//!   |  decisions … , the replay window, a chunk of a program or its status |
//!   +--------------------------------------------------------------------+
//!   |  HMAC-SHA-256 of all of it, its first 16 bytes                    |
//!   +--------------------------------------------------------------------+
//! ```
//!
//! docs/decision-protocol.md is the specification. In short: a grantor numbers its messages and
//! keeps each until the gate acknowledges it; a gate accepts each number once, within a window, and
//! acknowledges every authentic message. The **session** is a random number that the gate chooses
//! at each start, so that recorded messages cannot be replayed to a gate that has restarted; a
//! grantor learns it from the gate's first answer. **Numbers** only increase, across restarts too,
//! because they begin at the clock; they order decisions that arrive out of order (`state::Stamp`).
//!
//! | file | contents |
//! |---|---|
//! | [`sender`] | the grantor's side of one gate |
//! | [`receiver`] | the gate's side of all its grantors |
//! | [`keys`] | keys by number, and key rollover |
//! | [`transfer`] | the grantor's side of the program transfer |
//! | [`library`] | the gate's side of the program transfer |
//! | `window` | the replay window |
//! | `item` | encoding of decisions |
//! | [`chunk`] | encoding of program chunks and program status |

pub mod chunk;
mod item;
pub mod keys;
pub mod library;
pub mod receiver;
pub mod sender;
pub mod transfer;
mod window;

pub use item::{decode_item, encode_item};

use super::MessageError;
use super::cursor::Cursor;
use keys::Keys;

/// The UDP port of gates.
pub const PORT: u16 = 45_233;
/// The length of the header.
const HEADER: usize = 24;
/// The length of the authentication code.
const TAG: usize = 16;
/// The size of the replay window, in numbers.
pub const WINDOW: u64 = 256;
/// Maximum number of decisions in a message: a stamp has this many below the message's number.
const MAX_ITEMS: usize = 1 << ITEM_BITS;
const ITEM_BITS: u32 = 10;

const VERSION: u8 = 2;
const DECISIONS: u8 = 1;
const ACKNOWLEDGEMENT: u8 = 2;
const HELLO: u8 = 3;
const PROGRAM: u8 = 4;
const PROGRAM_STATUS: u8 = 5;

/// The header of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Header {
    kind: u8,
    key: u16,
    /// The grantor's number, in both directions.
    sender: u32,
    session: u64,
    number: u64,
}

impl Header {
    /// Parses the header of a message and returns the body, which is not authenticated yet.
    fn parse(message: &[u8]) -> Result<(Self, &[u8]), MessageError> {
        let mut cursor = Cursor(message);
        if cursor.u8()? != VERSION {
            return Err(MessageError::Version);
        }
        let header = Self {
            kind: cursor.u8()?,
            key: cursor.u16()?,
            sender: cursor.u32()?,
            session: cursor.u64()?,
            number: cursor.u64()?,
        };
        let body = cursor.0.len().checked_sub(TAG).ok_or(MessageError::Truncated)?;
        Ok((header, &cursor.0[..body]))
    }

    /// Writes a whole message to `out`, replacing its content.
    fn write(&self, body: &[u8], keys: &Keys, out: &mut Vec<u8>) {
        out.clear();
        out.extend_from_slice(&[VERSION, self.kind]);
        out.extend_from_slice(&self.key.to_be_bytes());
        out.extend_from_slice(&self.sender.to_be_bytes());
        out.extend_from_slice(&self.session.to_be_bytes());
        out.extend_from_slice(&self.number.to_be_bytes());
        out.extend_from_slice(body);
        keys.seal(self.key, out);
    }
}
