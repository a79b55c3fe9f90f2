//! The programs of a gate: those of its configuration, and those that grantors send.
//!
//! ```text
//!   Piece ─► take ─┬─► Standing, the answer to an offer
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
//! [`MOST_OBJECT`](crate::decision::v2::piece::MOST_OBJECT) bytes, one that is judged, and for each
//! number the words of one refusal. Another program of the same sender takes the place of the one in the making.
//!
//! **A number is its sender's** who sent first, so that two grantors that disagree do not replace each
//! other's for ever; one who is silent has none. The same object from both is in force for both.
//!
//! This does no I/O and takes no locks; `router::vantage` does both.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{Program, Programs, digest};
use crate::decision::v2::piece::{PIECE, Piece, Reason, Standing, State};

/// A whole program that is to be judged.
#[derive(Clone, Debug)]
pub struct Job {
    /// Who sent it.
    pub sender: u32,
    /// Its number.
    pub number: u8,
    digest: [u8; 32],
    object: Vec<u8>,
}

impl Job {
    /// Has the verifier look at it: up to some milliseconds.
    ///
    /// # Errors
    ///
    /// The verifier's words.
    pub fn judge(&self) -> Result<Program, String> {
        Program::load(&self.object).map_err(|refusal| refusal.to_string())
    }
}

/// A program whose pieces are coming in.
#[derive(Debug)]
struct Making {
    number: u8,
    digest: [u8; 32],
    bytes: Vec<u8>,
    missing: BTreeSet<u32>,
}

impl Making {
    fn of(piece: &Piece<'_>) -> Self {
        let pieces = piece.length.div_ceil(PIECE as u32);
        Self {
            number: piece.program,
            digest: piece.digest,
            bytes: vec![0; piece.length as usize],
            missing: (0..pieces).collect(),
        }
    }

    fn is_of(&self, piece: &Piece<'_>) -> bool {
        let (number, length) = (piece.program, piece.length as usize);
        (self.number, self.digest, self.bytes.len()) == (number, piece.digest, length)
    }

    /// Puts a piece in its place, and says whether that was the last.
    fn put(&mut self, piece: &Piece<'_>) -> bool {
        let at = piece.offset as usize;
        if let Some(place) = self.bytes.get_mut(at..at + piece.bytes.len()) {
            place.copy_from_slice(piece.bytes);
            self.missing.remove(&(piece.offset / PIECE as u32));
        }
        self.missing.is_empty()
    }
}

/// A program, and where it comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shelved {
    /// Its number.
    pub number: u8,
    /// Who sent it; nobody where the gate's own configuration has it.
    pub sender: Option<u32>,
    /// The SHA-256 of its object file.
    pub digest: [u8; 32],
    /// How it stands with it.
    pub state: State,
    /// What the verifier says, where it refuses.
    pub words: String,
    /// The bytes that are there and those of the whole, where it is being sent.
    pub there: Option<(usize, usize)>,
    /// The version before it is kept for the flows that began with that.
    pub before: bool,
}

/// The programs of a gate.
#[derive(Debug, Default)]
pub struct Library {
    allowed: bool,
    own: Programs,
    /// Whose each number is.
    sent: BTreeMap<u8, u32>,
    in_force: Programs,
    making: BTreeMap<u32, Making>,
    /// What was not taken last, by sender and number, and why.
    refused: BTreeMap<(u32, u8), ([u8; 32], Reason, String)>,
    judging: BTreeMap<u32, (u8, [u8; 32])>,
}

impl Library {
    /// Has the programs of a configuration, and takes others from grantors if that is `allowed`.
    pub fn new(own: Programs, allowed: bool) -> Self {
        Self { allowed, in_force: own.clone(), own, ..Self::default() }
    }

    /// Returns the programs in force.
    pub fn programs(&self) -> &Programs {
        &self.in_force
    }

    /// Takes a piece or an offer; says how it stands with the program, and returns it if it is
    /// whole. `silent` says who has not been heard of for long.
    pub fn take(
        &mut self,
        sender: u32,
        piece: &Piece<'_>,
        silent: impl FnOnce(u32) -> bool,
    ) -> (Standing, Option<Job>) {
        let (program, digest) = (piece.program, piece.digest);
        let standing = |state, words| Standing { program, digest, state, words };
        let told = |state| (standing(state, String::new()), None);
        if self.in_force.get(program).is_some_and(|it| *it.digest() == digest) {
            return told(State::InForce);
        }
        let owner = self.sent.get(&program).copied().filter(|owner| *owner != sender);
        let refused = if !self.allowed {
            Some(Reason::NotAllowed)
        } else if self.own.get(program).is_some() {
            Some(Reason::Own)
        } else {
            owner.filter(|owner| !silent(*owner)).map(|_| Reason::Others)
        };
        if let Some(reason) = refused {
            self.refused.insert((sender, program), (digest, reason, String::new()));
            return told(State::Refused(reason));
        }
        if let Some((of, Reason::Verifier, words)) = self.refused.get(&(sender, program))
            && *of == digest
        {
            return (standing(State::Refused(Reason::Verifier), words.clone()), None);
        }
        // What was said of it before holds no more. Of a digest that was wrong its sender hears
        // once, and may then try again.
        let before = self.refused.remove(&(sender, program));
        let lied = before.is_some_and(|(of, why, _)| (of, why) == (digest, Reason::Digest));
        if lied && piece.is_offer() {
            return told(State::Refused(Reason::Digest));
        }
        if self.judging.contains_key(&sender) {
            return told(State::Judging);
        }
        if piece.is_offer() {
            return told(State::Wanted);
        }
        let making = self.making.entry(sender).or_insert_with(|| Making::of(piece));
        if !making.is_of(piece) {
            *making = Making::of(piece);
        }
        if !making.put(piece) {
            return told(State::Wanted);
        }
        let object = self.making.remove(&sender).map(|it| it.bytes).unwrap_or_default();
        if self::digest(&object) != digest {
            self.refused.insert((sender, program), (digest, Reason::Digest, String::new()));
            return told(State::Refused(Reason::Digest));
        }
        self.judging.insert(sender, (program, digest));
        let job = Job { sender, number: program, digest, object };
        (standing(State::Judging, String::new()), Some(job))
    }

    /// Takes what the verifier has said; returns the programs to have from now on, if it passed
    /// and is still wanted.
    pub fn judged(&mut self, job: &Job, result: Result<Program, String>) -> Option<&Programs> {
        let Job { sender, number, digest, .. } = *job;
        // Not what was waited for: a reload came between.
        if self.judging.remove(&sender) != Some((number, digest)) {
            return None;
        }
        match result {
            Ok(program) => {
                self.sent.insert(number, sender);
                self.refused.remove(&(sender, number));
                self.in_force.set(number, Some(Arc::new(program)));
                Some(&self.in_force)
            }
            Err(words) => {
                self.refused.insert((sender, number), (digest, Reason::Verifier, words));
                None
            }
        }
    }

    /// Goes over to another configuration: its programs, whether grantors may send some, and
    /// which senders there are. What was sent stays where all of that still allows it. Returns the
    /// programs to have from now on.
    pub fn reload(&mut self, own: Programs, allowed: bool, senders: &[u32]) -> &Programs {
        let mut next = own.clone();
        let before = &self.in_force;
        self.sent.retain(|number, sender| {
            let stays = allowed && own.get(*number).is_none() && senders.contains(sender);
            if stays {
                next.set(*number, before.get(*number).cloned());
            }
            stays
        });
        next.follow(before);
        self.making.clear();
        self.judging.clear();
        self.refused.clear();
        (self.own, self.allowed, self.in_force) = (own, allowed, next);
        &self.in_force
    }

    /// Lists the programs: those in force, those that are coming in, those that were refused.
    pub fn list(&self) -> Vec<Shelved> {
        let shelved = |number, sender, digest, state| Shelved {
            number,
            sender,
            digest,
            state,
            words: String::new(),
            there: None,
            before: false,
        };
        let mut all = Vec::new();
        for number in 0..=u8::MAX {
            if let Some(program) = self.in_force.get(number) {
                let sender = self.sent.get(&number).copied();
                let one = shelved(number, sender, *program.digest(), State::InForce);
                all.push(Shelved { before: self.in_force.has_before(number), ..one });
            }
        }
        for (sender, it) in &self.making {
            let there = it.bytes.len().saturating_sub(it.missing.len() * PIECE);
            let one = shelved(it.number, Some(*sender), it.digest, State::Wanted);
            all.push(Shelved { there: Some((there, it.bytes.len())), ..one });
        }
        for (sender, (number, digest)) in &self.judging {
            all.push(shelved(*number, Some(*sender), *digest, State::Judging));
        }
        for ((sender, number), (digest, reason, words)) in &self.refused {
            let one = shelved(*number, Some(*sender), *digest, State::Refused(*reason));
            all.push(Shelved { words: words.clone(), ..one });
        }
        all
    }
}

#[cfg(test)]
mod tests;
