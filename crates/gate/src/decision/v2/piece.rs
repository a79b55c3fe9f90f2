//! Flow programs on their way, as bytes: pieces of an object file, and how it stands with it.
//!
//! ```text
//!   grantor ─► gate, kind 4
//!   program:8 | 0:24 | length:32 | offset:32 | SHA-256 of the whole:256 | bytes …
//!
//!   gate ─► grantor, kind 5
//!   program:8 | state:8 | reason:8 | 0:8 | SHA-256 of the whole:256 | why, in words …
//! ```
//!
//! A piece begins at a multiple of [`PIECE`] and is as long, but for the last; so any piece can
//! come first, twice or last, and none can overlap another. With its headers it is 1136 bytes
//! over IPv4, which every path of IPv6 carries. A message without bytes is an *offer*: it asks how
//! it stands with the program, and is answered so. Each piece names the whole, so that none can be
//! put together with those of another.

use crate::decision::Refused;
use crate::decision::cursor::Cursor;

/// The bytes of a piece, the last but.
pub const PIECE: usize = 1024;
/// The most bytes of an object file that is sent.
pub const MOST_OBJECT: usize = 1 << 18;
/// The most bytes of a reason in words.
pub const MOST_WORDS: usize = 512;

/// A piece of an object file, or an offer of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece<'a> {
    /// The number that decisions name the program by.
    pub program: u8,
    /// The bytes of the whole.
    pub length: u32,
    /// Where these begin.
    pub offset: u32,
    /// The SHA-256 of the whole.
    pub digest: [u8; 32],
    /// The bytes; none in an offer.
    pub bytes: &'a [u8],
}

impl<'a> Piece<'a> {
    /// Says whether this only asks.
    pub fn is_offer(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Reads a body.
    pub(super) fn parse(body: &'a [u8]) -> Result<Self, Refused> {
        let mut cursor = Cursor(body);
        let [program, zeros @ ..] = cursor.take::<4>()?;
        let (length, offset) = (cursor.u32()?, cursor.u32()?);
        let piece = Self { program, length, offset, digest: cursor.take()?, bytes: cursor.0 };
        let left = (length as usize).saturating_sub(offset as usize);
        let whole = match piece.bytes.len() {
            0 => offset == 0,
            bytes => (offset as usize).is_multiple_of(PIECE) && bytes == left.min(PIECE),
        };
        let sound = zeros == [0; 3] && (1..=MOST_OBJECT).contains(&(length as usize)) && whole;
        if sound { Ok(piece) } else { Err(Refused::Malformed) }
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

/// Why a gate has no use for a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reason {
    /// It takes programs from nobody.
    NotAllowed,
    /// Its own configuration has a program of that number.
    Own,
    /// Another grantor has sent one of that number, and lives.
    Others,
    /// It does not pass the verifier.
    Verifier,
    /// What came is not what was said to come.
    Digest,
}

/// The reasons by their numbers, from 1 on.
const REASONS: [Reason; 5] =
    [Reason::NotAllowed, Reason::Own, Reason::Others, Reason::Verifier, Reason::Digest];

impl Reason {
    /// Returns what it is counted by.
    pub fn name(self) -> &'static str {
        match self {
            Self::NotAllowed => "not_allowed",
            Self::Own => "own_number",
            Self::Others => "others_number",
            Self::Verifier => "verifier",
            Self::Digest => "digest",
        }
    }
}

impl core::fmt::Display for Reason {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::NotAllowed => {
                "the gate takes no programs from grantors: `accept_programs` in its [decisions]"
            }
            Self::Own => "the gate's own configuration has a program of that number",
            Self::Others => "another grantor has sent a program of that number: name another",
            Self::Verifier => "it does not pass the verifier",
            Self::Digest => "what came is not what was announced",
        })
    }
}

/// How it stands with a program at a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It is to be sent.
    Wanted,
    /// It, or another one of this grantor, is being verified.
    Judging,
    /// Decisions that name it have it run.
    InForce,
    /// It is not taken.
    Refused(Reason),
}

/// What a gate says of a program that was offered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Its number.
    pub program: u8,
    /// The SHA-256 of it.
    pub digest: [u8; 32],
    /// How it stands.
    pub state: State,
    /// What the verifier says, where it refuses.
    pub words: String,
}

impl Standing {
    /// Reads a body.
    pub(super) fn parse(body: &[u8]) -> Result<Self, Refused> {
        let mut cursor = Cursor(body);
        let [program, state, reason, zero] = cursor.take()?;
        let state = match (state, reason) {
            (1, 0) => State::Wanted,
            (2, 0) => State::Judging,
            (3, 0) => State::InForce,
            (4, 1..) => {
                let reason = REASONS.get(usize::from(reason) - 1).ok_or(Refused::Malformed)?;
                State::Refused(*reason)
            }
            _ => return Err(Refused::Malformed),
        };
        let digest = cursor.take()?;
        let words = core::str::from_utf8(cursor.0).map_err(|_| Refused::Malformed)?;
        // Which an operator will read on a terminal.
        if zero != 0 || words.len() > MOST_WORDS || words.chars().any(char::is_control) {
            return Err(Refused::Malformed);
        }
        Ok(Self { program, digest, state, words: words.to_owned() })
    }

    /// Returns the body.
    pub(super) fn write(&self) -> Vec<u8> {
        let (state, reason) = match self.state {
            State::Wanted => (1, 0),
            State::Judging => (2, 0),
            State::InForce => (3, 0),
            State::Refused(why) => {
                (4, 1 + REASONS.iter().position(|it| *it == why).unwrap_or(0) as u8)
            }
        };
        let mut body = vec![self.program, state, reason, 0];
        body.extend_from_slice(&self.digest);
        let within = |bytes: &mut usize, it: char| {
            *bytes += it.len_utf8();
            (*bytes <= MOST_WORDS).then_some(it)
        };
        let letters = self.words.chars().filter(|it| !it.is_control()).scan(0, within);
        body.extend_from_slice(letters.collect::<String>().as_bytes());
        body
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_what_makes_no_sense_is_not() {
        let bytes = [7; PIECE];
        let piece = |length, offset, of| Piece {
            program: 9,
            length,
            offset,
            digest: [3; 32],
            bytes: &bytes[..of],
        };
        for sound in [piece(1, 0, 0), piece(1, 0, 1), piece(1024, 0, 1024), piece(1500, 1024, 476)]
        {
            assert_eq!(Piece::parse(&sound.write()), Ok(sound));
            assert_eq!(Piece::parse(&sound.write()[..40]), Err(Refused::Truncated));
        }
        let most = MOST_OBJECT as u32;
        assert!(Piece::parse(&piece(most, most - 1024, 1024).write()).is_ok());
        for wrong in [
            piece(0, 0, 0),
            piece(most + 1, 0, 0),
            piece(5000, 1024, 0),
            piece(5000, 1000, 1024),
            piece(5000, 1024, 1023),
            piece(1500, 1024, 477),
            piece(1500, 2048, 1),
            piece(1024, 1024, 1),
            piece(2, 0, 1),
        ] {
            assert_eq!(Piece::parse(&wrong.write()), Err(Refused::Malformed), "{wrong:?}");
        }
        let mut reserved = piece(1, 0, 1).write();
        reserved[2] = 1;
        assert_eq!(Piece::parse(&reserved), Err(Refused::Malformed));
        let of = |state, words: &str| Standing {
            program: 200,
            digest: [8; 32],
            state,
            words: words.to_owned(),
        };
        let refused = REASONS.map(State::Refused);
        for state in [State::Wanted, State::Judging, State::InForce].into_iter().chain(refused) {
            let standing = of(state, "instruction 3 `r0 = 1`: so");
            assert_eq!(Standing::parse(&standing.write()), Ok(standing));
        }
        // Long words are cut where a letter ends, and nothing gets at a terminal.
        let long = of(State::Refused(Reason::Verifier), &"\u{1b}[31mä".repeat(300));
        let read = Standing::parse(&long.write()).unwrap();
        assert!(read.words.len() <= MOST_WORDS && read.words.starts_with("[31mä[31m"));
        for (at, value) in [(1, 0), (1, 5), (2, 1), (3, 1)] {
            let mut wrong = of(State::Wanted, "").write();
            wrong[at] = value;
            assert_eq!(Standing::parse(&wrong), Err(Refused::Malformed), "{at}");
        }
        let mut wrong = of(State::Refused(Reason::Own), "").write();
        wrong[2] = 6;
        assert_eq!(Standing::parse(&wrong), Err(Refused::Malformed));
        wrong[2] = 1;
        wrong.push(0xff);
        assert_eq!(Standing::parse(&wrong), Err(Refused::Malformed));
    }
}
