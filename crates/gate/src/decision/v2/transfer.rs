//! The grantor's side of the program transfer: offers programs to a gate and sends those it wants.
//!
//! ```text
//!   each program    Offering ── offer ═► gate: wanted ─► Sending ── chunks, acknowledged ─► Offering
//!                     ▲  └──────────── active, rejected ──► Done
//!                     └── another session ───────────────────┘    an offer every CHECK_INTERVAL
//! ```
//!
//! The grantor offers a program by number and digest, and the gate answers whether it wants the
//! program. An offer is sent once, like a heartbeat; without an answer it is repeated after
//! [`POLL_INTERVAL`] while a transfer is under way and after [`CHECK_INTERVAL`] otherwise, so that
//! a gate that has lost a program gets it again. A gate that restarts has another session, and all
//! programs are offered at once.
//!
//! Chunks are messages like others: numbered, kept until they are acknowledged, retransmitted. One
//! program is sent at a time, at most [`MAX_CHUNKS_IN_FLIGHT`] chunks are in flight, and decisions
//! go first: a program never delays a decision, and the gate's memory is bounded.
//!
//! An answer counts if it is to an offer that is newer than the last answered one, and newer than
//! the last chunk: late and replayed answers are refused.

use std::sync::Arc;

use super::chunk::{CHUNK_LEN, Chunk, ProgramStatus, TransferState};
use crate::program::digest;

/// The interval of offers while a transfer is under way, in nanoseconds.
pub const POLL_INTERVAL: u64 = 250_000_000;
/// The interval of offers of programs that are active or rejected, in nanoseconds.
pub const CHECK_INTERVAL: u64 = 5_000_000_000;
/// Maximum number of chunks in flight to a gate.
pub const MAX_CHUNKS_IN_FLIGHT: usize = 16;

/// A program to send: its object file with number and name.
#[derive(Clone, Debug)]
pub struct ProgramImage {
    number: u8,
    name: Arc<str>,
    object: Arc<[u8]>,
    digest: [u8; 32],
}

impl ProgramImage {
    /// Takes an object file of at most [`MAX_OBJECT_LEN`](super::chunk::MAX_OBJECT_LEN) bytes, the
    /// number that decisions use, and a name for people.
    pub fn new(number: u8, name: &str, object: &[u8]) -> Self {
        Self { number, name: name.into(), object: object.into(), digest: digest(object) }
    }

    /// Returns the number that decisions use.
    pub fn number(&self) -> u8 {
        self.number
    }

    /// Returns the name for people.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the SHA-256 of the object file.
    pub fn digest(&self) -> &[u8; 32] {
        &self.digest
    }

    /// Returns the bytes of the object file.
    pub fn object(&self) -> &[u8] {
        &self.object
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The gate's status is not known.
    Offering,
    /// The next chunk starts at this offset.
    Sending(usize),
    /// The program is active or rejected.
    Done,
}

/// A program and its status at the gate.
#[derive(Clone, Debug)]
pub struct ProgramTransfer {
    image: ProgramImage,
    phase: Phase,
    /// The time of the next offer.
    next_offer_at: u64,
    /// The numbers of the last offer and of the last answered one.
    last_offer: u64,
    answered_up_to: u64,
    status: Option<ProgramStatus>,
}

impl ProgramTransfer {
    fn new(image: ProgramImage) -> Self {
        Self {
            image,
            phase: Phase::Offering,
            next_offer_at: 0,
            last_offer: 0,
            answered_up_to: 0,
            status: None,
        }
    }

    /// Returns the program.
    pub fn image(&self) -> &ProgramImage {
        &self.image
    }

    /// Returns the last status of this session that the gate sent, if any.
    pub fn status(&self) -> Option<&ProgramStatus> {
        self.status.as_ref()
    }

    /// Returns the number of bytes sent so far, while a transfer is under way.
    pub fn sending(&self) -> Option<usize> {
        match self.phase {
            Phase::Sending(next) => Some(next),
            _ => None,
        }
    }

    fn chunk(&self, offset: usize, most: usize) -> Vec<u8> {
        let object = &self.image.object;
        let bytes = object.get(offset..).unwrap_or_default();
        Chunk {
            program: self.image.number,
            length: object.len() as u32,
            offset: offset as u32,
            digest: self.image.digest,
            bytes: &bytes[..bytes.len().min(most)],
        }
        .write()
    }
}

/// A message to send.
#[derive(Debug)]
pub(super) struct TransferMessage {
    /// The program that is offered; none for a chunk.
    pub(super) offer: Option<usize>,
    pub(super) body: Vec<u8>,
}

/// The programs of a grantor at one gate.
#[derive(Debug, Default)]
pub(super) struct TransferSender {
    transfers: Vec<ProgramTransfer>,
}

impl TransferSender {
    /// Replaces the programs; the status of those that stay is kept.
    pub(super) fn set_programs(&mut self, images: &[ProgramImage]) {
        let before = core::mem::take(&mut self.transfers);
        let known = |image: &ProgramImage| {
            let same = |transfer: &&ProgramTransfer| {
                (transfer.image.number, transfer.image.digest) == (image.number, image.digest)
            };
            before.iter().find(same).cloned()
        };
        self.transfers = images
            .iter()
            .map(|transfer| {
                known(transfer).unwrap_or_else(|| ProgramTransfer::new(transfer.clone()))
            })
            .collect();
    }

    pub(super) fn transfers(&self) -> &[ProgramTransfer] {
        &self.transfers
    }

    /// Forgets the gate's status after a restart of the gate.
    pub(super) fn reset(&mut self) {
        for transfer in &mut self.transfers {
            *transfer = ProgramTransfer::new(transfer.image.clone());
        }
    }

    /// Returns the next message, given the number of chunks in flight.
    pub(super) fn next_message(&mut self, now: u64, chunks: usize) -> Option<TransferMessage> {
        for transfer in &mut self.transfers {
            let Phase::Sending(offset) = transfer.phase else { continue };
            if offset < transfer.image.object.len() && chunks < MAX_CHUNKS_IN_FLIGHT {
                transfer.phase = Phase::Sending(offset + CHUNK_LEN);
                return Some(TransferMessage {
                    offer: None,
                    body: transfer.chunk(offset, CHUNK_LEN),
                });
            }
            if offset >= transfer.image.object.len() && chunks == 0 {
                // All chunks are acknowledged or given up: ask for the status.
                (transfer.phase, transfer.next_offer_at, transfer.answered_up_to) =
                    (Phase::Offering, now, transfer.last_offer);
            }
        }
        let due = |transfer: &&mut ProgramTransfer| {
            transfer.next_offer_at <= now && transfer.sending().is_none()
        };
        let (at, transfer) =
            self.transfers.iter_mut().enumerate().find(|(_, transfer)| due(transfer))?;
        transfer.next_offer_at =
            now + if transfer.phase == Phase::Offering { POLL_INTERVAL } else { CHECK_INTERVAL };
        Some(TransferMessage { offer: Some(at), body: transfer.chunk(0, 0) })
    }

    /// Records the message number of an offer.
    pub(super) fn record_offer(&mut self, at: usize, number: u64) {
        if let Some(transfer) = self.transfers.get_mut(at) {
            transfer.last_offer = number;
        }
    }

    /// Returns the time of the next offer.
    pub(super) fn due_at(&self) -> Option<u64> {
        self.transfers.iter().map(|transfer| transfer.next_offer_at).min()
    }

    /// Accepts the gate's status in answer to message `number`; returns whether it counts.
    pub(super) fn accept_status(
        &mut self,
        now: u64,
        number: u64,
        new_status: ProgramStatus,
    ) -> bool {
        let busy = self.transfers.iter().any(|transfer| transfer.sending().is_some());
        let about = |transfer: &&mut ProgramTransfer| {
            (transfer.image.number, transfer.image.digest)
                == (new_status.program, new_status.digest)
        };
        let Some(transfer) = self.transfers.iter_mut().find(about) else { return false };
        if number <= transfer.answered_up_to
            || number > transfer.last_offer
            || transfer.sending().is_some()
        {
            return false;
        }
        transfer.answered_up_to = number;
        match new_status.state {
            // One transfer at a time; this program is offered again.
            TransferState::Wanted if busy => transfer.phase = Phase::Offering,
            TransferState::Wanted => transfer.phase = Phase::Sending(0),
            TransferState::Verifying => transfer.phase = Phase::Offering,
            TransferState::Active | TransferState::Rejected(_) => {
                (transfer.phase, transfer.next_offer_at) = (Phase::Done, now + CHECK_INTERVAL);
            }
        }
        if transfer.phase == Phase::Offering {
            transfer.next_offer_at = now + POLL_INTERVAL;
        }
        transfer.status = Some(new_status);
        true
    }
}
