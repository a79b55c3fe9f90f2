//! The programs of a gate: those of its configuration, and those that grantors send.
//!
//! ```text
//!   Chunk ─► take ─┬─► Standing, the answer to an offer
//!                  └─ the last of a whole ─► Job ─► Job::judge, on a thread beside ─► judged ─► Programs
//!   reload ───────────────────────────────────────────────────────────────────────────► Programs
//! ```
//!
//! What is said of a program is the first of these that holds: it is in force; this gate takes
//! none from grantors; the number is its own configuration's; the number is another grantor's, who
//! lives; it did not pass the verifier before; something of this grantor is being judged; it is wanted.
//! Nothing of a program is looked at before all of it is there and its digest is right, and nothing
//! runs before the verifier has passed it.
//!
//! **Memory is bounded**: for each sender one program in the making, of at most
//! [`MAX_OBJECT_LEN`](crate::decision::v2::chunk::MAX_OBJECT_LEN) bytes, one that is judged, and for each
//! number the words of one refusal. Another program of the same sender takes the place of the one in the making.
//!
//! **A number is its sender's** who sent first, so that two grantors that disagree do not replace each
//! other's for ever; one who is silent has none. The same object from both is in force for both.
//!
//! This does no I/O and takes no locks; `router::vantage` does both.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{Program, Programs, digest};
use crate::decision::v2::chunk::{CHUNK_LEN, Chunk, ProgramStatus, RejectReason, TransferState};

/// A whole program that is to be judged.
#[derive(Clone, Debug)]
pub struct VerificationJob {
    /// Who sent it.
    pub sender: u32,
    /// Its number.
    pub number: u8,
    digest: [u8; 32],
    object: Vec<u8>,
}

impl VerificationJob {
    /// Has the verifier look at it: up to some milliseconds.
    ///
    /// # Errors
    ///
    /// The verifier's words.
    pub fn verify(&self) -> Result<Program, String> {
        Program::load(&self.object).map_err(|error| error.to_string())
    }
}

/// A program whose pieces are coming in.
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

    /// Puts a piece in its place, and says whether that was the last.
    fn put(&mut self, chunk: &Chunk<'_>) -> bool {
        let at = chunk.offset as usize;
        if let Some(place) = self.bytes.get_mut(at..at + chunk.bytes.len()) {
            place.copy_from_slice(chunk.bytes);
            self.missing.remove(&(chunk.offset / CHUNK_LEN as u32));
        }
        self.missing.is_empty()
    }
}

/// A program, and where it comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredProgram {
    /// Its number.
    pub number: u8,
    /// Who sent it; nobody where the gate's own configuration has it.
    pub sender: Option<u32>,
    /// The SHA-256 of its object file.
    pub digest: [u8; 32],
    /// How it stands with it.
    pub state: TransferState,
    /// What the verifier says, where it refuses.
    pub error: String,
    /// The bytes that are there and those of the whole, where it is being sent.
    pub received: Option<(usize, usize)>,
    /// The version before it is kept for the flows that began with that.
    pub has_previous: bool,
}

/// The programs of a gate.
#[derive(Debug, Default)]
pub struct Library {
    allowed: bool,
    configured: Programs,
    /// Whose each number is.
    owners: BTreeMap<u8, u32>,
    in_force: Programs,
    partial: BTreeMap<u32, PartialProgram>,
    /// What was not taken last, by sender and number, and why.
    refused: BTreeMap<(u32, u8), ([u8; 32], RejectReason, String)>,
    verifying: BTreeMap<u32, (u8, [u8; 32])>,
}

impl Library {
    /// Has the programs of a configuration, and takes others from grantors if that is `allowed`.
    pub fn new(configured: Programs, allowed: bool) -> Self {
        Self { allowed, in_force: configured.clone(), configured, ..Self::default() }
    }

    /// Returns the programs in force.
    pub fn programs(&self) -> &Programs {
        &self.in_force
    }

    /// Takes a piece or an offer; says how it stands with the program, and returns it if it is
    /// whole. `silent` says who has not been heard of for long.
    pub fn receive_chunk(
        &mut self,
        sender: u32,
        chunk: &Chunk<'_>,
        silent: impl FnOnce(u32) -> bool,
    ) -> (ProgramStatus, Option<VerificationJob>) {
        let (program, digest) = (chunk.program, chunk.digest);
        let status = |state, error| ProgramStatus { program, digest, state, error };
        let answer = |state| (status(state, String::new()), None);
        if self.in_force.get(program).is_some_and(|it| *it.digest() == digest) {
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
        // What was said of it before holds no more. Of a digest that was wrong its sender hears
        // once, and may then try again.
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
        let object = self.partial.remove(&sender).map(|it| it.bytes).unwrap_or_default();
        if self::digest(&object) != digest {
            self.refused.insert((sender, program), (digest, RejectReason::Digest, String::new()));
            return answer(TransferState::Rejected(RejectReason::Digest));
        }
        self.verifying.insert(sender, (program, digest));
        let job = VerificationJob { sender, number: program, digest, object };
        (status(TransferState::Verifying, String::new()), Some(job))
    }

    /// Takes what the verifier has said; returns the programs to have from now on, if it passed
    /// and is still wanted.
    pub fn finish_verification(
        &mut self,
        job: &VerificationJob,
        result: Result<Program, String>,
    ) -> Option<&Programs> {
        let VerificationJob { sender, number, digest, .. } = *job;
        // Not what was waited for: a reload came between.
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

    /// Goes over to another configuration: its programs, whether grantors may send some, and
    /// which senders there are. What was sent stays where all of that still allows it. Returns the
    /// programs to have from now on.
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

    /// Lists the programs: those in force, those that are coming in, those that were refused.
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
        for (sender, it) in &self.partial {
            let received = it.bytes.len().saturating_sub(it.missing.len() * CHUNK_LEN);
            let one = stored(it.number, Some(*sender), it.digest, TransferState::Wanted);
            all.push(StoredProgram { received: Some((received, it.bytes.len())), ..one });
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
