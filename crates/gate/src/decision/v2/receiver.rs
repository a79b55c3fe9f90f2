//! The gate's side: accepts each message of its grantors once, and answers it.
//!
//! The checks, in order, and no state changes before all have passed: length and version; a known
//! sender; a key in use; the authentication code; a kind that a gate accepts; a valid body; the
//! current session; a number within the window that was not accepted before. A message that is not
//! authentic gets no answer, so that a gate is no amplifier. An authentic one always gets an
//! answer: an acknowledgement, also of a repeated message (its acknowledgement may have been lost),
//! or a hello if the session is another. An offer of a program that was not accepted before is also
//! answered with the program's status ([`Receiver::write_status`]).

use super::chunk::{Chunk, ProgramStatus};
use super::keys::Keys;
use super::window::Window;
use super::{ACKNOWLEDGEMENT, DECISIONS, HELLO, Header, ITEM_BITS, PROGRAM, PROGRAM_STATUS, item};
use crate::decision::{Item, MessageError};
use crate::state::Stamp;

#[derive(Debug)]
struct Peer {
    sender: u32,
    keys: Keys,
    window: Window,
}

/// The gate's side of all its grantors.
#[derive(Debug)]
pub struct Receiver {
    session: u64,
    peers: Vec<Peer>,
    items: Vec<Item>,
}

/// An accepted message.
#[derive(Clone, Copy, Debug)]
pub struct ReceivedMessage<'a, 'm> {
    /// The number of the sender.
    pub sender: u32,
    /// A chunk or an offer of a program; none if the message has decisions.
    pub chunk: Option<Chunk<'m>>,
    number: u64,
    key: u16,
    items: &'a [Item],
}

/// The message that an answer is for.
#[derive(Clone, Copy, Debug)]
pub struct ReplyTarget {
    sender: u32,
    number: u64,
    key: u16,
}

impl<'a> ReceivedMessage<'a, '_> {
    /// Returns each decision with its stamp, in the grantor's order.
    pub fn items(self) -> impl Iterator<Item = (&'a Item, Stamp)> {
        let Self { sender, number, items, .. } = self;
        (0..).zip(items).map(move |(at, item): (u64, _)| {
            (item, Stamp { sender, number: number << ITEM_BITS | at })
        })
    }

    /// Returns the number of the key that signed the message.
    pub fn key(&self) -> u16 {
        self.key
    }

    /// Returns the message as the target of an answer.
    pub fn reply_target(&self) -> ReplyTarget {
        ReplyTarget { sender: self.sender, number: self.number, key: self.key }
    }
}

impl Receiver {
    /// Begins a session of a random number that is never used again.
    pub fn new(session: u64) -> Self {
        // 0 stands for an unknown session.
        Self { session: session.max(1), peers: Vec::new(), items: Vec::new() }
    }

    /// Returns the number of this session.
    pub fn session(&self) -> u64 {
        self.session
    }

    /// Accepts decisions of this sender, not 0, under these keys, or replaces its keys.
    pub fn set_sender(&mut self, sender: u32, keys: Keys) {
        match self.peers.iter_mut().find(|peer| peer.sender == sender) {
            Some(peer) => peer.keys = keys,
            None => self.peers.push(Peer { sender, keys, window: Window::default() }),
        }
    }

    /// Removes this sender, and returns whether there was one.
    /// [`Gate::retract`](crate::gate::Gate::retract) retracts its decisions; the record of the
    /// numbers taken stays, in case the sender is added again.
    pub fn remove_sender(&mut self, sender: u32) -> bool {
        let peer = self.peers.iter_mut().find(|peer| peer.sender == sender);
        peer.map(|peer| peer.keys = Keys::default()).is_some()
    }

    /// Processes a message: returns its decisions or its chunk of a program, and writes the answer
    /// to `reply`, which stays empty if there is none.
    ///
    /// # Errors
    ///
    /// [`MessageError`], by the first check that fails; the caller sends `reply` all the same.
    pub fn receive<'m>(
        &mut self,
        message: &'m [u8],
        reply: &mut Vec<u8>,
    ) -> Result<ReceivedMessage<'_, 'm>, MessageError> {
        reply.clear();
        let (header, body) = Header::parse(message)?;
        let peer = self.peers.iter_mut().find(|peer| peer.sender == header.sender);
        let peer = peer.ok_or(MessageError::UnknownSender)?;
        peer.keys.check(header.key, message)?;
        self.items.clear();
        let chunk = match header.kind {
            DECISIONS => item::get_all(body, &mut self.items).map(|()| None)?,
            PROGRAM => Some(Chunk::parse(body)?),
            _ => return Err(MessageError::Malformed),
        };
        if header.session != self.session {
            let hello = Header { kind: HELLO, session: self.session, ..header };
            hello.write(&[], &peer.keys, reply);
            return Err(MessageError::OtherSession);
        }
        let taken = peer.window.accept(header.number);
        let number = peer.window.highest;
        let mut seen = [0; 32];
        for (bytes, word) in seen.chunks_exact_mut(8).zip(peer.window.seen) {
            bytes.copy_from_slice(&word.to_be_bytes());
        }
        Header { kind: ACKNOWLEDGEMENT, number, ..header }.write(&seen, &peer.keys, reply);
        taken?;
        let Header { sender, number, key, .. } = header;
        Ok(ReceivedMessage { sender, chunk, number, key, items: &self.items })
    }

    /// Writes the status of the program that a message offered to `out`, replacing its content.
    pub fn write_status(&self, target: &ReplyTarget, standing: &ProgramStatus, out: &mut Vec<u8>) {
        out.clear();
        let ReplyTarget { sender, number, key } = *target;
        let Some(peer) = self.peers.iter().find(|peer| peer.sender == sender) else { return };
        let header = Header { kind: PROGRAM_STATUS, key, sender, session: self.session, number };
        header.write(&standing.write(), &peer.keys, out);
    }
}
