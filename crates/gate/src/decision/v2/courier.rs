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
//! program is sent at a time, and at most [`MOST_PIECES`] pieces are under way, after all
//! decisions: a program never holds a decision up, and what a gate has to keep is bounded.
//!
//! An answer counts if it is to an offer that was made since the last that counted, and since
//! pieces were sent last: what is late or played back is no answer.

use std::sync::Arc;

use super::piece::{PIECE, Piece, Standing, State};
use crate::program::digest;

/// How long an answer is waited for while something is under way: nanoseconds.
pub const POLL: u64 = 250_000_000;
/// How often a gate is asked that has what it is to have, or will not have it: nanoseconds.
pub const CHECK: u64 = 5_000_000_000;
/// The most pieces under way to a gate.
pub const MOST_PIECES: usize = 16;

/// A program as it is sent.
#[derive(Clone, Debug)]
pub struct Parcel {
    number: u8,
    name: Arc<str>,
    object: Arc<[u8]>,
    digest: [u8; 32],
}

impl Parcel {
    /// Packs an object file, of at most [`MOST_OBJECT`](super::piece::MOST_OBJECT) bytes, which
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
enum Stage {
    /// It is not known how it stands.
    Asking,
    /// The piece at this offset is next.
    Sending(usize),
    /// In force, or refused.
    Settled,
}

/// A program, and what is known of it at the gate.
#[derive(Clone, Debug)]
pub struct Carried {
    parcel: Parcel,
    stage: Stage,
    /// When it is to be offered next.
    again_at: u64,
    /// The number of the last offer, and that above which answers count.
    asked: u64,
    floor: u64,
    told: Option<Standing>,
}

impl Carried {
    fn new(parcel: Parcel) -> Self {
        Self { parcel, stage: Stage::Asking, again_at: 0, asked: 0, floor: 0, told: None }
    }

    /// Returns the program.
    pub fn parcel(&self) -> &Parcel {
        &self.parcel
    }

    /// Returns what the gate has said last, if it has in this session.
    pub fn told(&self) -> Option<&Standing> {
        self.told.as_ref()
    }

    /// Returns the bytes that have been sent, while they are.
    pub fn sending(&self) -> Option<usize> {
        match self.stage {
            Stage::Sending(next) => Some(next),
            _ => None,
        }
    }

    fn piece(&self, offset: usize, most: usize) -> Vec<u8> {
        let object = &self.parcel.object;
        let bytes = object.get(offset..).unwrap_or_default();
        Piece {
            program: self.parcel.number,
            length: object.len() as u32,
            offset: offset as u32,
            digest: self.parcel.digest,
            bytes: &bytes[..bytes.len().min(most)],
        }
        .write()
    }
}

/// A message that this has to send.
#[derive(Debug)]
pub(super) struct Load {
    /// Which program's offer it is; a piece otherwise.
    pub(super) offer: Option<usize>,
    pub(super) body: Vec<u8>,
}

/// The grantor's programs at one gate.
#[derive(Debug, Default)]
pub(super) struct Courier {
    each: Vec<Carried>,
}

impl Courier {
    /// Has these programs to be at the gate from now on. What is known of those that there were
    /// stays known.
    pub(super) fn carry(&mut self, parcels: &[Parcel]) {
        let before = core::mem::take(&mut self.each);
        let known = |parcel: &Parcel| {
            let same = |it: &&Carried| {
                (it.parcel.number, it.parcel.digest) == (parcel.number, parcel.digest)
            };
            before.iter().find(same).cloned()
        };
        self.each = parcels
            .iter()
            .map(|it| known(it).unwrap_or_else(|| Carried::new(it.clone())))
            .collect();
    }

    pub(super) fn each(&self) -> &[Carried] {
        &self.each
    }

    /// Forgets what is known of the gate: it has started anew.
    pub(super) fn begin(&mut self) {
        for it in &mut self.each {
            *it = Carried::new(it.parcel.clone());
        }
    }

    /// Returns what is to be sent next, with so many pieces under way.
    pub(super) fn next(&mut self, now: u64, pieces: usize) -> Option<Load> {
        for it in &mut self.each {
            let Stage::Sending(offset) = it.stage else { continue };
            if offset < it.parcel.object.len() && pieces < MOST_PIECES {
                it.stage = Stage::Sending(offset + PIECE);
                return Some(Load { offer: None, body: it.piece(offset, PIECE) });
            }
            if offset >= it.parcel.object.len() && pieces == 0 {
                // All of it is there, or was given up: what says the gate?
                (it.stage, it.again_at, it.floor) = (Stage::Asking, now, it.asked);
            }
        }
        let due = |it: &&mut Carried| it.again_at <= now && it.sending().is_none();
        let (at, it) = self.each.iter_mut().enumerate().find(|(_, it)| due(it))?;
        it.again_at = now + if it.stage == Stage::Asking { POLL } else { CHECK };
        Some(Load { offer: Some(at), body: it.piece(0, 0) })
    }

    /// Takes note of the number that an offer was given.
    pub(super) fn offered(&mut self, at: usize, number: u64) {
        if let Some(it) = self.each.get_mut(at) {
            it.asked = number;
        }
    }

    /// Returns when there is something to offer next.
    pub(super) fn due_at(&self) -> Option<u64> {
        self.each.iter().map(|it| it.again_at).min()
    }

    /// Takes what the gate says in answer to the message of this number; says whether that
    /// counts.
    pub(super) fn take(&mut self, now: u64, number: u64, standing: Standing) -> bool {
        let busy = self.each.iter().any(|it| it.sending().is_some());
        let about = |it: &&mut Carried| {
            (it.parcel.number, it.parcel.digest) == (standing.program, standing.digest)
        };
        let Some(it) = self.each.iter_mut().find(about) else { return false };
        if number <= it.floor || number > it.asked || it.sending().is_some() {
            return false;
        }
        it.floor = number;
        match standing.state {
            // One at a time; this one is offered again.
            State::Wanted if busy => it.stage = Stage::Asking,
            State::Wanted => it.stage = Stage::Sending(0),
            State::Judging => it.stage = Stage::Asking,
            State::InForce | State::Refused(_) => {
                (it.stage, it.again_at) = (Stage::Settled, now + CHECK);
            }
        }
        if it.stage == Stage::Asking {
            it.again_at = now + POLL;
        }
        it.told = Some(standing);
        true
    }
}
