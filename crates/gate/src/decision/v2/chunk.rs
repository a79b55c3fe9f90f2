//! Encoding of the program transfer: chunks of an object file, and the gate's status of a program.
//!
//! ```text
//!   grantor ─► gate, kind 4
//!   program:8 | 0:24 | length:32 | offset:32 | SHA-256 of the whole:256 | bytes …
//!
//!   gate ─► grantor, kind 5
//!   program:8 | state:8 | reason:8 | 0:8 | SHA-256 of the whole:256 | error text …
//! ```
//!
//! A chunk begins at a multiple of [`CHUNK_LEN`] and has this length, except the last one; so
//! chunks may arrive in any order and repeatedly, and do not overlap. With its headers a chunk is
//! 1136 bytes over IPv4, which every IPv6 path carries. A message without bytes is an *offer*: the
//! gate answers it with the program's status. Each chunk carries the digest of the whole file, so
//! that chunks of different files are not combined.

use crate::decision::MessageError;
use crate::decision::cursor::Cursor;

/// The length of a chunk, except the last one of a file.
pub const CHUNK_LEN: usize = 1024;
/// Maximum length of an object file.
pub const MAX_OBJECT_LEN: usize = 1 << 18;
/// Maximum length of an error text.
pub const MAX_ERROR_LEN: usize = 512;

/// A chunk of an object file, or an offer of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk<'a> {
    /// The program's number.
    pub program: u8,
    /// The length of the whole file.
    pub length: u32,
    /// The offset of the bytes in the file.
    pub offset: u32,
    /// The SHA-256 of the whole file.
    pub digest: [u8; 32],
    /// The bytes; none in an offer.
    pub bytes: &'a [u8],
}

impl<'a> Chunk<'a> {
    /// Returns whether this is an offer.
    pub fn is_offer(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Parses a body.
    pub(super) fn parse(body: &'a [u8]) -> Result<Self, MessageError> {
        let mut cursor = Cursor(body);
        let [program, zeros @ ..] = cursor.take::<4>()?;
        let (length, offset) = (cursor.u32()?, cursor.u32()?);
        let chunk = Self { program, length, offset, digest: cursor.take()?, bytes: cursor.0 };
        let left = (length as usize).saturating_sub(offset as usize);
        let whole = match chunk.bytes.len() {
            0 => offset == 0,
            bytes => (offset as usize).is_multiple_of(CHUNK_LEN) && bytes == left.min(CHUNK_LEN),
        };
        let sound = zeros == [0; 3] && (1..=MAX_OBJECT_LEN).contains(&(length as usize)) && whole;
        if sound { Ok(chunk) } else { Err(MessageError::Malformed) }
    }

    /// Returns the body.
    pub(super) fn write(&self) -> Vec<u8> {
        let mut body = Vec::with_capacity(44 + self.bytes.len());
        body.extend_from_slice(&[self.program, 0, 0, 0]);
        body.extend_from_slice(&self.length.to_be_bytes());
        body.extend_from_slice(&self.offset.to_be_bytes());
        body.extend_from_slice(&self.digest);
        body.extend_from_slice(self.bytes);
        body
    }
}

/// The reason to reject a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RejectReason {
    /// The gate accepts no programs from grantors.
    NotAllowed,
    /// The gate's own configuration has a program of this number.
    Own,
    /// Another grantor, which is alive, has sent a program of this number.
    OtherSender,
    /// The verifier rejects it.
    Verifier,
    /// The received file does not have the announced digest.
    Digest,
}

/// The reasons by their numbers, from 1 on.
const REASONS: [RejectReason; 5] = [
    RejectReason::NotAllowed,
    RejectReason::Own,
    RejectReason::OtherSender,
    RejectReason::Verifier,
    RejectReason::Digest,
];

impl RejectReason {
    /// Returns the name in counters.
    pub fn name(self) -> &'static str {
        match self {
            Self::NotAllowed => "not_allowed",
            Self::Own => "own_number",
            Self::OtherSender => "others_number",
            Self::Verifier => "verifier",
            Self::Digest => "digest",
        }
    }
}

impl core::fmt::Display for RejectReason {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::NotAllowed => {
                "the gate accepts no programs from grantors: set `accept_programs` in its [decisions]"
            }
            Self::Own => "the gate's own configuration has a program of that number",
            Self::OtherSender => "another grantor has sent a program of that number: use another number",
            Self::Verifier => "the verifier rejects the program",
            Self::Digest => "the received file does not have the announced digest",
        })
    }
}

/// The state of a program at a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransferState {
    /// The gate wants the program's chunks.
    Wanted,
    /// The verifier checks it, or another program of this grantor.
    Verifying,
    /// Decisions can name it.
    Active,
    /// The gate rejects it.
    Rejected(RejectReason),
}

/// The status of an offered program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramStatus {
    /// The program's number.
    pub program: u8,
    /// The SHA-256 of the object file.
    pub digest: [u8; 32],
    /// The state.
    pub state: TransferState,
    /// The verifier's error, if it rejects the program.
    pub error: String,
}

impl ProgramStatus {
    /// Parses a body.
    pub(super) fn parse(body: &[u8]) -> Result<Self, MessageError> {
        let mut cursor = Cursor(body);
        let [program, state, reason, zero] = cursor.take()?;
        let state = match (state, reason) {
            (1, 0) => TransferState::Wanted,
            (2, 0) => TransferState::Verifying,
            (3, 0) => TransferState::Active,
            (4, 1..) => {
                let reason = REASONS.get(usize::from(reason) - 1).ok_or(MessageError::Malformed)?;
                TransferState::Rejected(*reason)
            }
            _ => return Err(MessageError::Malformed),
        };
        let digest = cursor.take()?;
        let error = core::str::from_utf8(cursor.0).map_err(|_| MessageError::Malformed)?;
        // An operator reads the text on a terminal.
        if zero != 0 || error.len() > MAX_ERROR_LEN || error.chars().any(char::is_control) {
            return Err(MessageError::Malformed);
        }
        Ok(Self { program, digest, state, error: error.to_owned() })
    }

    /// Returns the body.
    pub(super) fn write(&self) -> Vec<u8> {
        let (state, reason) = match self.state {
            TransferState::Wanted => (1, 0),
            TransferState::Verifying => (2, 0),
            TransferState::Active => (3, 0),
            TransferState::Rejected(why) => {
                (4, 1 + REASONS.iter().position(|reason| *reason == why).unwrap_or(0) as u8)
            }
        };
        let mut body = vec![self.program, state, reason, 0];
        body.extend_from_slice(&self.digest);
        let within = |bytes: &mut usize, letter: char| {
            *bytes += letter.len_utf8();
            (*bytes <= MAX_ERROR_LEN).then_some(letter)
        };
        let letters = self.error.chars().filter(|c| !c.is_control()).scan(0, within);
        body.extend_from_slice(letters.collect::<String>().as_bytes());
        body
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunk_and_status_round_trip_and_invalid_ones_are_refused() {
        let bytes = [7; CHUNK_LEN];
        let chunk = |length, offset, of| Chunk {
            program: 9,
            length,
            offset,
            digest: [3; 32],
            bytes: &bytes[..of],
        };
        for sound in [chunk(1, 0, 0), chunk(1, 0, 1), chunk(1024, 0, 1024), chunk(1500, 1024, 476)]
        {
            assert_eq!(Chunk::parse(&sound.write()), Ok(sound));
            assert_eq!(Chunk::parse(&sound.write()[..40]), Err(MessageError::Truncated));
        }
        let most = MAX_OBJECT_LEN as u32;
        assert!(Chunk::parse(&chunk(most, most - 1024, 1024).write()).is_ok());
        for bad in [
            chunk(0, 0, 0),
            chunk(most + 1, 0, 0),
            chunk(5000, 1024, 0),
            chunk(5000, 1000, 1024),
            chunk(5000, 1024, 1023),
            chunk(1500, 1024, 477),
            chunk(1500, 2048, 1),
            chunk(1024, 1024, 1),
            chunk(2, 0, 1),
        ] {
            assert_eq!(Chunk::parse(&bad.write()), Err(MessageError::Malformed), "{bad:?}");
        }
        let mut reserved = chunk(1, 0, 1).write();
        reserved[2] = 1;
        assert_eq!(Chunk::parse(&reserved), Err(MessageError::Malformed));
        let of = |state, error: &str| ProgramStatus {
            program: 200,
            digest: [8; 32],
            state,
            error: error.to_owned(),
        };
        let refused = REASONS.map(TransferState::Rejected);
        for state in [TransferState::Wanted, TransferState::Verifying, TransferState::Active]
            .into_iter()
            .chain(refused)
        {
            let standing = of(state, "instruction 3 `r0 = 1`: so");
            assert_eq!(ProgramStatus::parse(&standing.write()), Ok(standing));
        }
        // Long texts are cut at a character boundary, and control characters are removed.
        let long = of(TransferState::Rejected(RejectReason::Verifier), &"\u{1b}[31mä".repeat(300));
        let read = ProgramStatus::parse(&long.write()).unwrap();
        assert!(read.error.len() <= MAX_ERROR_LEN && read.error.starts_with("[31mä[31m"));
        for (at, value) in [(1, 0), (1, 5), (2, 1), (3, 1)] {
            let mut bad = of(TransferState::Wanted, "").write();
            bad[at] = value;
            assert_eq!(ProgramStatus::parse(&bad), Err(MessageError::Malformed), "{at}");
        }
        let mut bad = of(TransferState::Rejected(RejectReason::Own), "").write();
        bad[2] = 6;
        assert_eq!(ProgramStatus::parse(&bad), Err(MessageError::Malformed));
        bad[2] = 1;
        bad.push(0xff);
        assert_eq!(ProgramStatus::parse(&bad), Err(MessageError::Malformed));
    }
}
