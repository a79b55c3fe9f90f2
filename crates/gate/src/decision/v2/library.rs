//! The programs of a gate: those of its configuration, and those that grantors send.
//!
//! ```text
//!   Chunk ─► receive_chunk ─┬─► ProgramStatus, the answer to an offer
//!                           └─► VerificationJob, after the last chunk ─► verify, on another thread
//!                                 ─► finish_verification ─► Programs ◄─ reload
//! ```
//!
//! The status of a program is the first of these that holds: it is active; this gate accepts none
//! from grantors; the number is used by the gate's own configuration; the number belongs to another
//! grantor, which is alive; the verifier rejected it before; a program of this grantor is being
//! verified; it is wanted. Nothing of a program is read before all of it has arrived with the right
//! digest, and nothing runs before the verifier has passed it.
//!
//! **Memory is bounded**: for each sender one incomplete program of at most
//! [`MAX_OBJECT_LEN`](super::chunk::MAX_OBJECT_LEN) bytes, one that is being
//! verified, and for each number the error of one rejection. Another program of the same sender
//! replaces the incomplete one.
//!
//! **A number belongs to the first sender**, so that two grantors that disagree do not replace each
//! other's programs for ever; a silent sender loses its numbers. The same object from both is
//! active for both.
//!
//! This does no I/O and takes no locks; `router::vantage` does both.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::chunk::{CHUNK_LEN, Chunk, ProgramStatus, RejectReason, TransferState};
use crate::program::{Program, Programs, digest};

/// A complete program to verify.
#[derive(Clone, Debug)]
pub struct VerificationJob {
    /// The number of the sender.
    pub sender: u32,
    /// Its number.
    pub number: u8,
    digest: [u8; 32],
    object: Vec<u8>,
}

impl VerificationJob {
    /// Runs the verifier: up to some milliseconds.
    ///
    /// # Errors
    ///
    /// The verifier's error.
    pub fn verify(&self) -> Result<Program, String> {
        Program::load(&self.object).map_err(|error| error.to_string())
    }
}

/// A program whose chunks are arriving.
#[derive(Debug)]
struct PartialProgram {
    number: u8,
    digest: [u8; 32],
    bytes: Vec<u8>,
    missing: BTreeSet<u32>,
}

impl PartialProgram {
    fn of(chunk: &Chunk<'_>) -> Self {
        let chunks = chunk.length.div_ceil(CHUNK_LEN as u32);
        Self {
            number: chunk.program,
            digest: chunk.digest,
            bytes: vec![0; chunk.length as usize],
            missing: (0..chunks).collect(),
        }
    }

    fn is_of(&self, chunk: &Chunk<'_>) -> bool {
        let (number, length) = (chunk.program, chunk.length as usize);
        (self.number, self.digest, self.bytes.len()) == (number, chunk.digest, length)
    }

    /// Stores a chunk, and returns whether the program is complete.
    fn put(&mut self, chunk: &Chunk<'_>) -> bool {
        let at = chunk.offset as usize;
        if let Some(place) = self.bytes.get_mut(at..at + chunk.bytes.len()) {
            place.copy_from_slice(chunk.bytes);
            self.missing.remove(&(chunk.offset / CHUNK_LEN as u32));
        }
        self.missing.is_empty()
    }
}

/// A program with its origin and state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredProgram {
    /// Its number.
    pub number: u8,
    /// The sender; `None` for a program of the gate's own configuration.
    pub sender: Option<u32>,
    /// The SHA-256 of its object file.
    pub digest: [u8; 32],
    /// Its state.
    pub state: TransferState,
    /// The verifier's error, if it rejects the program.
    pub error: String,
    /// The bytes received and those of the whole file, while it is being sent.
    pub received: Option<(usize, usize)>,
    /// Whether the previous version is kept for the flows that began with it.
    pub has_previous: bool,
}

/// The programs of a gate.
#[derive(Debug, Default)]
pub struct Library {
    allowed: bool,
    configured: Programs,
    /// The sender of each number.
    owners: BTreeMap<u8, u32>,
    in_force: Programs,
    partial: BTreeMap<u32, PartialProgram>,
    /// The last rejected program by sender and number, and the reason.
    refused: BTreeMap<(u32, u8), ([u8; 32], RejectReason, String)>,
    verifying: BTreeMap<u32, (u8, [u8; 32])>,
}

impl Library {
    /// Starts with the programs of a configuration; `allowed` accepts others from grantors.
    pub fn new(configured: Programs, allowed: bool) -> Self {
        Self { allowed, in_force: configured.clone(), configured, ..Self::default() }
    }

    /// Returns the active programs.
    pub fn programs(&self) -> &Programs {
        &self.in_force
    }

    /// Processes a chunk or an offer; returns the program's status, and the program if it is
    /// complete. `silent` returns whether a sender is no longer heard.
    pub fn receive_chunk(
        &mut self,
        sender: u32,
        chunk: &Chunk<'_>,
        silent: impl FnOnce(u32) -> bool,
    ) -> (ProgramStatus, Option<VerificationJob>) {
        let (program, digest) = (chunk.program, chunk.digest);
        let status = |state, error| ProgramStatus { program, digest, state, error };
        let answer = |state| (status(state, String::new()), None);
        if self.in_force.get(program).is_some_and(|active| *active.digest() == digest) {
            return answer(TransferState::Active);
        }
        let owner = self.owners.get(&program).copied().filter(|owner| *owner != sender);
        let refused = if !self.allowed {
            Some(RejectReason::NotAllowed)
        } else if self.configured.get(program).is_some() {
            Some(RejectReason::Own)
        } else {
            owner.filter(|owner| !silent(*owner)).map(|_| RejectReason::OtherSender)
        };
        if let Some(reason) = refused {
            self.refused.insert((sender, program), (digest, reason, String::new()));
            return answer(TransferState::Rejected(reason));
        }
        if let Some((of, RejectReason::Verifier, error)) = self.refused.get(&(sender, program))
            && *of == digest
        {
            return (status(TransferState::Rejected(RejectReason::Verifier), error.clone()), None);
        }
        // Earlier rejections no longer hold. The sender of a wrong digest gets one error, and may
        // try again.
        let before = self.refused.remove(&(sender, program));
        let has_wrong_digest =
            before.is_some_and(|(of, error, _)| (of, error) == (digest, RejectReason::Digest));
        if has_wrong_digest && chunk.is_offer() {
            return answer(TransferState::Rejected(RejectReason::Digest));
        }
        if self.verifying.contains_key(&sender) {
            return answer(TransferState::Verifying);
        }
        if chunk.is_offer() {
            return answer(TransferState::Wanted);
        }
        let partial = self.partial.entry(sender).or_insert_with(|| PartialProgram::of(chunk));
        if !partial.is_of(chunk) {
            *partial = PartialProgram::of(chunk);
        }
        if !partial.put(chunk) {
            return answer(TransferState::Wanted);
        }
        let object = self.partial.remove(&sender).map(|whole| whole.bytes).unwrap_or_default();
        if self::digest(&object) != digest {
            self.refused.insert((sender, program), (digest, RejectReason::Digest, String::new()));
            return answer(TransferState::Rejected(RejectReason::Digest));
        }
        self.verifying.insert(sender, (program, digest));
        let job = VerificationJob { sender, number: program, digest, object };
        (status(TransferState::Verifying, String::new()), Some(job))
    }

    /// Processes the verifier's result; returns the programs to publish, if it passed and is still
    /// wanted.
    pub fn finish_verification(
        &mut self,
        job: &VerificationJob,
        result: Result<Program, String>,
    ) -> Option<&Programs> {
        let VerificationJob { sender, number, digest, .. } = *job;
        // A reload came between.
        if self.verifying.remove(&sender) != Some((number, digest)) {
            return None;
        }
        match result {
            Ok(program) => {
                self.owners.insert(number, sender);
                self.refused.remove(&(sender, number));
                self.in_force.set(number, Some(Arc::new(program)));
                Some(&self.in_force)
            }
            Err(error) => {
                self.refused.insert((sender, number), (digest, RejectReason::Verifier, error));
                None
            }
        }
    }

    /// Applies another configuration: its programs, whether grantors may send some, and the
    /// senders. Sent programs stay where all of that still allows it. Returns the programs to
    /// publish.
    pub fn reload(&mut self, configured: Programs, allowed: bool, senders: &[u32]) -> &Programs {
        let mut next = configured.clone();
        let before = &self.in_force;
        self.owners.retain(|number, sender| {
            let stays = allowed && configured.get(*number).is_none() && senders.contains(sender);
            if stays {
                next.set(*number, before.get(*number).cloned());
            }
            stays
        });
        next.keep_previous(before);
        self.partial.clear();
        self.verifying.clear();
        self.refused.clear();
        (self.configured, self.allowed, self.in_force) = (configured, allowed, next);
        &self.in_force
    }

    /// Lists the programs: active, incomplete and rejected ones.
    pub fn list(&self) -> Vec<StoredProgram> {
        let stored = |number, sender, digest, state| StoredProgram {
            number,
            sender,
            digest,
            state,
            error: String::new(),
            received: None,
            has_previous: false,
        };
        let mut all = Vec::new();
        for number in 0..=u8::MAX {
            if let Some(program) = self.in_force.get(number) {
                let sender = self.owners.get(&number).copied();
                let one = stored(number, sender, *program.digest(), TransferState::Active);
                all.push(StoredProgram { has_previous: self.in_force.has_previous(number), ..one });
            }
        }
        for (sender, partial) in &self.partial {
            let received = partial.bytes.len().saturating_sub(partial.missing.len() * CHUNK_LEN);
            let one = stored(partial.number, Some(*sender), partial.digest, TransferState::Wanted);
            all.push(StoredProgram { received: Some((received, partial.bytes.len())), ..one });
        }
        for (sender, (number, digest)) in &self.verifying {
            all.push(stored(*number, Some(*sender), *digest, TransferState::Verifying));
        }
        for ((sender, number), (digest, reason, error)) in &self.refused {
            let one = stored(*number, Some(*sender), *digest, TransferState::Rejected(*reason));
            all.push(StoredProgram { error: error.clone(), ..one });
        }
        all
    }
}

#[cfg(test)]
mod tests;
