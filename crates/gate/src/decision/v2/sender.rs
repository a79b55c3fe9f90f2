//! The grantor's side of one gate: keeps messages until they are acknowledged.
//!
//! ```text
//!   push ─► open ─ full, or polled ─► waiting ─► in flight ─ acknowledged ─► removed
//!                                                 │     ▲
//!                                                 └─ due ┘  retransmitted, [`MAX_TRANSMISSIONS`] times
//! ```
//!
//! At most [`WINDOW`] numbers are in flight, counted from the oldest unacknowledged one, so that
//! the gate's window holds every number that may still arrive. A message is retransmitted after the
//! timeout of RFC 6298, estimated from messages that were sent once, and doubled with each
//! transmission. After [`MAX_TRANSMISSIONS`] it is given up: the gate is unreachable, and its flows
//! send requests again later. While the gate's session is unknown or has changed, one message is in
//! flight at a time, until the hello that carries the session.
//!
//! [`Sender::queue_heartbeat`] queues an empty message when nothing was sent for
//! [`HEARTBEAT_INTERVAL`]. A heartbeat is sent once.
//!
//! Programs use the same messages, after all decisions: `transfer.rs` decides which programs and
//! chunks to send.
//!
//! A grantor whose clock was set back begins with numbers that the gate has passed. The gate's
//! answer carries the highest number, and all messages in flight get new ones.

use std::collections::VecDeque;

use super::chunk::ProgramStatus;
use super::keys::Keys;
use super::transfer::{ProgramImage, ProgramTransfer, TransferMessage, TransferSender};
use super::window::Window;
use super::{ACKNOWLEDGEMENT, DECISIONS, HEADER, HELLO, Header, MAX_ITEMS, TAG, WINDOW, item};
use super::{PROGRAM, PROGRAM_STATUS};
use crate::decision::cursor::Cursor;
use crate::decision::{Item, MessageError};

/// Maximum number of transmissions of a message.
pub const MAX_TRANSMISSIONS: u32 = 12;
/// The interval of heartbeats, in nanoseconds.
pub const HEARTBEAT_INTERVAL: u64 = 200 * MILLISECOND;
/// Maximum number of messages that wait, besides those in flight.
pub const MAX_QUEUED: usize = 1024;

const MILLISECOND: u64 = 1_000_000;
const FIRST_TIMEOUT: u64 = 200 * MILLISECOND;
const MIN_TIMEOUT: u64 = 10 * MILLISECOND;
const MAX_TIMEOUT: u64 = 3_000 * MILLISECOND;

#[derive(Debug)]
struct InFlightMessage {
    number: u64,
    kind: u8,
    body: Vec<u8>,
    /// A heartbeat or an offer: it is not retransmitted.
    once: bool,
    tries: u32,
    sent_at: u64,
    due: u64,
}

/// The grantor's side of one gate.
#[derive(Debug)]
pub struct Sender {
    id: u32,
    keys: Keys,
    /// Maximum length of a body.
    most: usize,
    session: u64,
    next: u64,
    open: Vec<u8>,
    open_items: usize,
    waiting: VecDeque<Vec<u8>>,
    in_flight: VecDeque<InFlightMessage>,
    /// The smoothed round-trip time and its variance, once known.
    rtt: Option<(u64, u64)>,
    given_up: u64,
    transfers: TransferSender,
    /// The time of the last transmission.
    last_sent_at: Option<u64>,
}

/// The error that too many messages wait: the gate does not answer, or too slowly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendQueueFull;

impl core::fmt::Display for SendQueueFull {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("too many decisions wait for this gate's acknowledgement")
    }
}

impl core::error::Error for SendQueueFull {}

impl Sender {
    /// Creates the side of grantor `id`, not 0. Datagrams carry at most `payload` bytes (1452 for
    /// IPv4 and IPv6 on Ethernet, at least 256); `unix_time` is the start in seconds.
    pub fn new(id: u32, keys: Keys, payload: usize, unix_time: u64) -> Self {
        Self {
            id,
            keys,
            most: payload.max(256) - HEADER - TAG,
            session: 0,
            // Above every earlier number, at less than four million messages a second.
            next: unix_time << 22 | 1,
            open: Vec::new(),
            open_items: 0,
            waiting: VecDeque::new(),
            in_flight: VecDeque::new(),
            rtt: None,
            given_up: 0,
            transfers: TransferSender::default(),
            last_sent_at: None,
        }
    }

    /// Returns the gate's session, 0 if unknown.
    pub fn session(&self) -> u64 {
        self.session
    }

    /// Signs with these keys from now on, also the messages in flight.
    pub fn set_keys(&mut self, keys: Keys) {
        self.keys = keys;
    }

    /// Replaces the programs for the gate, which keeps those that it has. The programs are offered,
    /// and sent if the gate wants them.
    pub fn set_programs(&mut self, programs: &[ProgramImage]) {
        self.transfers.set_programs(programs);
    }

    /// Returns the programs with the gate's status of each.
    pub fn programs(&self) -> &[ProgramTransfer] {
        self.transfers.transfers()
    }

    /// Adds a decision to the message that is being filled.
    ///
    /// # Errors
    ///
    /// [`SendQueueFull`] if too much waits; the decision is not queued then.
    pub fn push(&mut self, item: &Item) -> Result<(), SendQueueFull> {
        let before = self.open.len();
        item::put(&mut self.open, item);
        if self.open.len() > self.most || self.open_items == MAX_ITEMS {
            if self.waiting.len() == MAX_QUEUED {
                self.open.truncate(before);
                return Err(SendQueueFull);
            }
            let rest = self.open.split_off(before);
            let full = core::mem::replace(&mut self.open, rest);
            self.open_items = 0;
            self.waiting.push_back(full);
        }
        self.open_items += 1;
        Ok(())
    }

    /// Queues an empty message if nothing was sent for [`HEARTBEAT_INTERVAL`]. Call this before
    /// [`poll`](Self::poll) if gates monitor this grantor.
    pub fn queue_heartbeat(&mut self, now: u64) {
        let due = self.last_sent_at.is_none_or(|at| now >= at + HEARTBEAT_INTERVAL);
        if due && self.pending() == 0 {
            self.waiting.push_back(Vec::new());
        }
    }

    /// Writes the next message to `out`, replacing its content, and returns whether there is one:
    /// retransmissions first, then waiting messages, then the open one, then programs.
    pub fn poll(&mut self, now: u64, out: &mut Vec<u8>) -> bool {
        self.give_up(now);
        let first = self.in_flight.front().map_or(self.next, |sent| sent.number);
        let probing = self.session == 0;
        let most = if probing { 1 } else { self.in_flight.len() };
        let due = self.in_flight.iter().take(most).position(|sent| sent.due <= now);
        let at = match due {
            Some(at) => at,
            None if self.next - first >= if probing { 1 } else { WINDOW } => return false,
            None => {
                let body = self.waiting.pop_front().or_else(|| {
                    self.open_items = 0;
                    Some(core::mem::take(&mut self.open)).filter(|body| !body.is_empty())
                });
                let (number, chunks) = (self.next, self.chunks());
                let (kind, once, body) = match body {
                    Some(body) => (DECISIONS, body.is_empty(), body),
                    None => match self.transfers.next_message(now, chunks) {
                        None => return false,
                        Some(TransferMessage { offer, body }) => {
                            offer.iter().for_each(|&at| self.transfers.record_offer(at, number));
                            (PROGRAM, offer.is_some(), body)
                        }
                    },
                };
                self.next += 1;
                let (tries, sent_at, due) = (0, now, now);
                let sent = InFlightMessage { number, kind, body, once, tries, sent_at, due };
                self.in_flight.push_back(sent);
                self.in_flight.len() - 1
            }
        };
        let timeout = self.timeout();
        let sent = &mut self.in_flight[at];
        sent.due = now + (timeout << sent.tries.min(8)).min(MAX_TIMEOUT);
        sent.tries += 1;
        sent.sent_at = now;
        let header = Header {
            kind: sent.kind,
            key: self.keys.signing(),
            sender: self.id,
            session: self.session,
            number: sent.number,
        };
        header.write(&sent.body, &self.keys, out);
        self.last_sent_at = Some(now);
        true
    }

    /// Returns the time of the next transmission if nothing new is pushed.
    pub fn due_at(&self) -> Option<u64> {
        let retransmit_at = self.in_flight.iter().map(|sent| sent.due).min();
        retransmit_at.into_iter().chain(self.transfers.due_at()).min()
    }

    /// Counts the unacknowledged chunks of programs.
    fn chunks(&self) -> usize {
        self.in_flight.iter().filter(|sent| sent.kind == PROGRAM && !sent.once).count()
    }

    /// Processes an answer of the gate.
    ///
    /// # Errors
    ///
    /// [`MessageError`] if the message is not this gate's answer to a message of this sender;
    /// nothing has changed then.
    pub fn receive(&mut self, now: u64, message: &[u8]) -> Result<(), MessageError> {
        let (header, body) = Header::parse(message)?;
        if header.sender != self.id {
            return Err(MessageError::UnknownSender);
        }
        self.keys.check(header.key, message)?;
        match header.kind {
            ACKNOWLEDGEMENT if header.session == self.session => {
                let mut cursor = Cursor(body);
                let mut window = Window { highest: header.number, ..Window::default() };
                for word in &mut window.seen {
                    *word = cursor.u64()?;
                }
                if !cursor.0.is_empty() {
                    return Err(MessageError::Malformed);
                }
                self.acknowledged(now, &window);
                Ok(())
            }
            ACKNOWLEDGEMENT => Err(MessageError::OtherSession),
            // Only a message in flight can have caused it.
            HELLO if self.in_flight.iter().all(|sent| sent.number != header.number) => {
                Err(MessageError::TooOld)
            }
            HELLO => {
                self.session = header.session;
                // The gate has lost the chunks that it received.
                self.in_flight.retain(|sent| sent.kind != PROGRAM);
                self.transfers.reset();
                for sent in &mut self.in_flight {
                    (sent.tries, sent.due) = (0, now);
                }
                Ok(())
            }
            PROGRAM_STATUS if header.session == self.session => {
                let status = ProgramStatus::parse(body)?;
                let counts = self.transfers.accept_status(now, header.number, status);
                if counts { Ok(()) } else { Err(MessageError::TooOld) }
            }
            PROGRAM_STATUS => Err(MessageError::OtherSession),
            _ => Err(MessageError::Malformed),
        }
    }

    fn acknowledged(&mut self, now: u64, window: &Window) {
        let once =
            self.in_flight.iter().find(|sent| sent.tries == 1 && window.contains(sent.number));
        if let Some(sent) = once {
            self.measured(now.saturating_sub(sent.sent_at));
        }
        self.in_flight.retain(|sent| !window.contains(sent.number));
        // The gate has passed these numbers, or an earlier sender has used them: messages in flight
        // get new ones.
        if window.highest >= self.next {
            self.next = window.highest + 1;
            for sent in &mut self.in_flight {
                sent.number = self.next;
                (sent.tries, sent.due) = (0, now);
                self.next += 1;
            }
        }
    }

    /// Updates the round-trip estimate (RFC 6298, 2).
    fn measured(&mut self, rtt: u64) {
        self.rtt = Some(match self.rtt {
            None => (rtt, rtt / 2),
            Some((smooth, variance)) => {
                (smooth - smooth / 8 + rtt / 8, variance - variance / 4 + smooth.abs_diff(rtt) / 4)
            }
        });
    }

    fn timeout(&self) -> u64 {
        let timeout = self.rtt.map_or(FIRST_TIMEOUT, |(smooth, variance)| smooth + 4 * variance);
        timeout.clamp(MIN_TIMEOUT, MAX_TIMEOUT)
    }

    fn give_up(&mut self, now: u64) {
        self.in_flight.retain(|sent| !sent.once || sent.tries == 0 || sent.due > now);
        let before = self.in_flight.len();
        self.in_flight.retain(|sent| sent.tries < MAX_TRANSMISSIONS || sent.due > now);
        let given_up = before - self.in_flight.len();
        self.given_up += given_up as u64;
        if given_up > 0 && self.in_flight.is_empty() {
            // The gate is unreachable: learn its session again before more is sent.
            self.session = 0;
        }
    }

    /// Counts the messages that are not acknowledged, including those that wait.
    pub fn pending(&self) -> usize {
        self.in_flight.len() + self.waiting.len() + usize::from(!self.open.is_empty())
    }

    /// Counts the messages that were given up.
    pub fn given_up(&self) -> u64 {
        self.given_up
    }
}
