//! Plays the bytes of a BGP peer that sends flow specifications.
//!
//! ```text
//! input: messages: a type, a length of one byte, and so many bytes of its body; type 0 is bytes without a
//!        header
//!
//!   OPEN, KEEPALIVE, messages ─┬─► Session, all at once ─► Table ─► rules ┐
//!                              └─► Session, in pieces   ─► Table ─► rules ┴─ equal
//!   rule ─► text ─► Rule                                                 the same rule
//! ```
//!
//! The ends of the sessions and the bytes that they send are equal, too.

use std::time::Instant;

use acl::Rule;
use flowspec::{EndReason, FlowRules, Session, SpeakerIdentity, Table};

const LOCAL: SpeakerIdentity =
    SpeakerIdentity { own_as: 65001, peer_as: 65002, identifier: 1, hold_time: 90 };
/// The types of messages (RFC 4271, section 4.1).
const OPEN: u8 = 1;
const KEEPALIVE: u8 = 4;
/// An OPEN of AS 65002 with both families of flow specifications (RFC 4271, section 4.2; RFC 4760, section 8).
const OPEN_BODY: [u8; 26] = [
    4, 0xfd, 0xea, 0, 90, 0, 0, 0, 2, 16, // version, AS, hold time, identifier, parameters
    2, 6, 1, 4, 0, 1, 0, 133, // capability: IPv4, flow specifications
    2, 6, 1, 4, 0, 2, 0, 133, // capability: IPv6, flow specifications
];
/// The lengths of the pieces in which the second session receives.
const PIECES: [usize; 5] = [1, 19, 7, 64, 3];

/// Counts of the inputs' contents.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Flow specifications that were read.
    pub flows: usize,
    /// Rules that they became.
    pub rules: usize,
    /// Flow specifications that were refused.
    pub refused: usize,
    /// Sessions that ended with an error.
    pub ended: usize,
}

/// Plays one input.
///
/// # Panics
///
/// If the two sessions differ, or a rule differs when it is written and parsed again.
pub fn flowspec(input: &[u8], tally: &mut Tally) {
    let mut bytes = message(OPEN, &OPEN_BODY);
    bytes.extend(message(KEEPALIVE, &[]));
    let mut rest = input;
    while let Some((&[kind, len], after)) = rest.split_first_chunk() {
        let (body, after) = after.split_at(after.len().min(len.into()));
        if kind == 0 {
            bytes.extend(body);
        } else {
            bytes.extend(message(kind, body));
        }
        rest = after;
    }
    let now = Instant::now();
    let (end, sent, all) = play(now, [&bytes[..]]);
    let mut pieces = Vec::new();
    let (mut rest, mut sizes) = (&bytes[..], PIECES.iter().cycle());
    while let Some(size) = sizes.next().filter(|_| !rest.is_empty()) {
        let (piece, after) = rest.split_at(rest.len().min(*size));
        pieces.push(piece);
        rest = after;
    }
    let (end_of_pieces, sent_of_pieces, of_pieces) = play(now, pieces);
    assert_eq!((end, &sent), (end_of_pieces, &sent_of_pieces));
    assert_eq!(all, of_pieces);
    for rule in &all.rules {
        let written = rule.to_string();
        assert_eq!(Rule::parse(&written, &|_| None).as_ref(), Ok(rule), "{written:?}");
    }
    tally.flows += all.flows;
    tally.rules += all.rules.len();
    tally.refused += all.refused.len();
    tally.ended += usize::from(end.is_some());
}

/// Makes a message with its header.
fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = 19 + body.len() as u16;
    [&[0xff; 16][..], &length.to_be_bytes(), &[kind], body].concat()
}

/// Gives a new session these pieces, and returns its end, if it ended, the bytes that it sends, and the
/// rules.
fn play<'p>(
    now: Instant,
    pieces: impl IntoIterator<Item = &'p [u8]>,
) -> (Option<EndReason>, Vec<u8>, FlowRules) {
    let mut session = Session::new(LOCAL, now);
    let mut table = Table::default();
    let mut end = None;
    for piece in pieces {
        if let Err(reason) = session.receive(piece, now, |update| table.apply(7, update)) {
            end = Some(reason);
            break;
        }
    }
    (end, session.to_send, table.rules())
}
