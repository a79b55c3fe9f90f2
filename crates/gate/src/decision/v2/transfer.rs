//! The grantor's side of programs: what a gate is to have, and what it says of it.
//!
//! ```text
//!   each program    Asking ── offer ═► gate: wanted ──► Sending ── pieces, acknowledged ──► Asking
//!                     ▲  └──────────── in force, refused ──► Settled
//!                     └── another session ──────────────────────┘    an offer now and then
//! ```
//!
//! Nothing is pushed at a gate: it is offered what it is to have, by number and digest, and
//! says itself whether it wants that sent. An offer is sent once, as signs of life are; who is not
//! answered asks again, after [`POLL`] while something is under way and after [`CHECK`] when all
//! is settled, so that a gate that has lost a program is found out even if it does not say so. A
//! gate that starts anew has another session, and is asked at once.
//!
//! Pieces are messages like others: numbered, kept until they are acknowledged, sent again. One
//! program is sent at a time, and at most [`MAX_CHUNKS_IN_FLIGHT`] pieces are under way, after all
//! decisions: a program never holds a decision up, and what a gate has to keep is bounded.
//!
//! An answer counts if it is to an offer that was made since the last that counted, and since
//! pieces were sent last: what is late or played back is no answer.

use std::sync::Arc;

use super::chunk::{CHUNK_LEN, Chunk, ProgramStatus, TransferState};
use crate::program::digest;

/// How long an answer is waited for while something is under way: nanoseconds.
pub const POLL_INTERVAL: u64 = 250_000_000;
/// How often a gate is asked that has what it is to have, or will not have it: nanoseconds.
pub const CHECK_INTERVAL: u64 = 5_000_000_000;
/// The most pieces under way to a gate.
pub const MAX_CHUNKS_IN_FLIGHT: usize = 16;

/// A program as it is sent.
#[derive(Clone, Debug)]
pub struct ProgramImage {
    number: u8,
    name: Arc<str>,
    object: Arc<[u8]>,
    digest: [u8; 32],
}

impl ProgramImage {
    /// Packs an object file, of at most [`MAX_OBJECT_LEN`](super::chunk::MAX_OBJECT_LEN) bytes, which
    /// decisions name by this number and people by this name.
    pub fn new(number: u8, name: &str, object: &[u8]) -> Self {
        Self { number, name: name.into(), object: object.into(), digest: digest(object) }
    }

    /// Returns the number that decisions name it by.
    pub fn number(&self) -> u8 {
        self.number
    }

    /// Returns what people call it.
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
    /// It is not known how it stands.
    Offering,
    /// The piece at this offset is next.
    Sending(usize),
    /// In force, or refused.
    Done,
}

/// A program, and what is known of it at the gate.
#[derive(Clone, Debug)]
pub struct ProgramTransfer {
    image: ProgramImage,
    phase: Phase,
    /// When it is to be offered next.
    next_offer_at: u64,
    /// The number of the last offer, and that above which answers count.
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

    /// Returns what the gate has said last, if it has in this session.
    pub fn status(&self) -> Option<&ProgramStatus> {
        self.status.as_ref()
    }

    /// Returns the bytes that have been sent, while they are.
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

/// A message that this has to send.
#[derive(Debug)]
pub(super) struct TransferMessage {
    /// Which program's offer it is; a piece otherwise.
    pub(super) offer: Option<usize>,
    pub(super) body: Vec<u8>,
}

/// The grantor's programs at one gate.
#[derive(Debug, Default)]
pub(super) struct TransferSender {
    transfers: Vec<ProgramTransfer>,
}

impl TransferSender {
    /// Has these programs to be at the gate from now on. What is known of those that there were
    /// stays known.
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

    /// Forgets what is known of the gate: it has started anew.
    pub(super) fn reset(&mut self) {
        for transfer in &mut self.transfers {
            *transfer = ProgramTransfer::new(transfer.image.clone());
        }
    }

    /// Returns what is to be sent next, with so many pieces under way.
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
                // All of it is there, or was given up: what says the gate?
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

    /// Takes note of the number that an offer was given.
    pub(super) fn record_offer(&mut self, at: usize, number: u64) {
        if let Some(transfer) = self.transfers.get_mut(at) {
            transfer.last_offer = number;
        }
    }

    /// Returns when there is something to offer next.
    pub(super) fn due_at(&self) -> Option<u64> {
        self.transfers.iter().map(|transfer| transfer.next_offer_at).min()
    }

    /// Takes what the gate says in answer to the message of this number; says whether that
    /// counts.
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
            // One at a time; this one is offered again.
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
