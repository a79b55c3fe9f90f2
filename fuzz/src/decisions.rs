//! Messages of the decision protocol, both versions: an accepted message can be written again.
//!
//! ```text
//!   v1  bytes ─► Reader ─► items ─► Writer ─► Reader ─► the same items
//!   v2  bytes ─► kind and body, signed ─► Receiver ─► items ─► Sender ─► Receiver ─► the same
//!                        any bit flipped ─► rejected
//! ```
//!
//! Version 2 is authenticated, so random bytes never pass the check. So the input is a body that
//! the harness signs, with its own HMAC and not the crate's.

use gate::decision::v1;
use gate::decision::v2::keys::Keys;
use gate::decision::v2::receiver::Receiver;
use gate::decision::v2::sender::Sender;
use gate::decision::{Item, MessageError};
use hmac::{Hmac, Mac};
use sha2::Sha256;

const SECRET: [u8; 32] = [7; 32];
const KEY: u16 = 3;
const SENDER: u32 = 99;
const SESSION: u64 = 0x1122_3344_5566_7788;

/// Counts of the results of inputs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Accepted decisions of version 1.
    pub v1: u32,
    /// Accepted decisions of version 2.
    pub v2: u32,
    /// Rejected messages.
    pub refused: u32,
}

/// Plays one input.
///
/// # Panics
/// If a message is read differently than written, or a forged message is accepted.
pub fn decisions(input: &[u8], tally: &mut Tally) {
    let Some((mode, bytes)) = input.split_first() else { return };
    if mode & 1 == 0 { version_1(bytes, tally) } else { version_2(*mode, bytes, tally) }
}

fn read_v1(bytes: &[u8]) -> (Vec<Item>, Option<MessageError>) {
    let reader = match v1::Reader::new(bytes) {
        Ok(reader) => reader,
        Err(refused) => return (Vec::new(), Some(refused)),
    };
    let mut items = Vec::new();
    for item in reader {
        match item {
            Ok(item) => items.push(item),
            Err(refused) => return (items, Some(refused)),
        }
    }
    (items, None)
}

fn version_1(bytes: &[u8], tally: &mut Tally) {
    let (items, refused) = read_v1(bytes);
    tally.v1 += items.len() as u32;
    tally.refused += u32::from(refused.is_some());
    let mut writer = v1::Writer::new(bytes.len().max(4));
    for item in &items {
        assert!(writer.push(item), "the items of a message fit one as long: {item:?}");
    }
    let rewritten = writer.finish();
    assert!(rewritten.len() <= bytes.len().max(4));
    assert_eq!(read_v1(&rewritten), (items, None));
}

/// Builds a message as docs/decision-protocol.md specifies.
fn message(kind: u8, number: u64, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![2, kind];
    bytes.extend_from_slice(&KEY.to_be_bytes());
    bytes.extend_from_slice(&SENDER.to_be_bytes());
    bytes.extend_from_slice(&SESSION.to_be_bytes());
    bytes.extend_from_slice(&number.to_be_bytes());
    bytes.extend_from_slice(body);
    let mut mac = Hmac::<Sha256>::new_from_slice(&SECRET).expect("a key of any length");
    mac.update(&bytes);
    bytes.extend_from_slice(&mac.finalize().into_bytes()[..16]);
    bytes
}

fn receiver() -> Receiver {
    let mut receiver = Receiver::new(SESSION);
    receiver.set_sender(SENDER, Keys::new(KEY, &SECRET));
    receiver
}

fn taken(receiver: &mut Receiver, message: &[u8]) -> Result<Vec<Item>, MessageError> {
    let taken = receiver.receive(message, &mut Vec::new())?;
    Ok(taken.items().map(|(item, _)| *item).collect())
}

fn version_2(mode: u8, body: &[u8], tally: &mut Tally) {
    // Decisions, or a chunk of a program.
    let kind = if mode & 2 == 0 { 1 } else { 4 };
    let number = 1_700_000_000 << 32;
    let message = message(kind, number, body);
    // With one flipped bit anywhere, it is rejected and leaves no state.
    let mut receiver = receiver();
    let mut forged = message.clone();
    let bit = usize::from(mode >> 2) * 37 % (8 * forged.len());
    forged[bit / 8] ^= 1 << (bit % 8);
    assert!(taken(&mut receiver, &forged).is_err(), "bit {bit} was flipped");
    let Ok(items) = taken(&mut receiver, &message) else {
        tally.refused += 1;
        return;
    };
    assert_eq!(taken(&mut receiver, &message), Err(MessageError::Replayed));
    tally.v2 += items.len() as u32;
    let mut sender = Sender::new(SENDER, Keys::new(KEY, &SECRET), 1400, 1_700_000_000);
    for item in &items {
        sender.push(item).expect("a message's decisions fit the queue");
    }
    let (mut far, mut received) = (self::receiver(), Vec::new());
    let (mut out, mut reply) = (Vec::new(), Vec::new());
    for turn in 0..1000u64 {
        let now = turn * 1_000_000;
        while sender.poll(now, &mut out) {
            let taken = far.receive(&out, &mut reply);
            if let Ok(taken) = taken {
                received.extend(taken.items().map(|(item, _)| *item));
            }
            if !reply.is_empty() {
                let _ = sender.receive(now, &reply);
            }
        }
        if sender.pending() == 0 {
            break;
        }
    }
    assert_eq!(received, items, "the written items are the same");
}
