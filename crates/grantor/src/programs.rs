//! The transfer of flow programs to the gates: the programs to send, and their state at each gate.
//!
//! ```text
//!   controller ── other programs ─────► ProgramTransfers ◄── the gates' answers ── decision sender
//!              ◄─ list, log messages ──────┘   └── programs to send ─► decision sender ─► v2::Sender
//! ```
//!
//! The protocol decides what to send when (`gate::decision::v2`). This is the state that two threads
//! share about it. The log gets one message when a gate has accepted or rejected a program, until the
//! gate reports another state.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gate::decision::v2::chunk::TransferState;
use gate::decision::v2::transfer::{ProgramImage, ProgramTransfer};

use api::{ProgramInfo, hexadecimal};

/// The maximum number of log messages that wait to be drained.
const MESSAGES: usize = 256;

/// The state of each program at each gate, by the gate and the program's number.
type KnownPrograms = BTreeMap<(IpAddr, u8), ProgramInfo>;

#[derive(Debug)]
struct TransferTable {
    images: Arc<[ProgramImage]>,
    known: KnownPrograms,
    messages: Vec<String>,
}

/// The programs for the gates.
#[derive(Debug)]
pub(super) struct ProgramTransfers(Mutex<TransferTable>);

impl ProgramTransfers {
    pub(super) fn new(images: Vec<ProgramImage>) -> Self {
        let state = TransferTable {
            images: images.into(),
            known: KnownPrograms::new(),
            messages: Vec::new(),
        };
        Self(Mutex::new(state))
    }

    fn lock(&self) -> MutexGuard<'_, TransferTable> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the programs for the gates.
    pub(super) fn images(&self) -> Arc<[ProgramImage]> {
        Arc::clone(&self.lock().images)
    }

    /// Replaces the programs for the gates. A gate keeps the programs that it has.
    pub(super) fn replace(&self, images: Vec<ProgramImage>) {
        self.lock().images = images.into();
    }

    /// Records the state of every program at every gate.
    pub(super) fn record<'a>(&self, each: impl Iterator<Item = (IpAddr, &'a ProgramTransfer)>) {
        let mut state = self.lock();
        let TransferTable { known, messages, .. } = &mut *state;
        let before = std::mem::take(known);
        for (gate, carried) in each {
            let at = (gate, carried.image().number());
            let status = status(gate, carried);
            let is_same = |old: &ProgramInfo| {
                (&old.digest, &old.state, &old.reason)
                    == (&status.digest, &status.state, &status.reason)
            };
            if !before.get(&at).is_some_and(is_same) && messages.len() < MESSAGES {
                messages.extend(message(&status));
            }
            known.insert(at, status);
        }
    }

    /// Lists the programs by gate and number.
    pub(super) fn list(&self) -> Vec<ProgramInfo> {
        self.lock().known.values().cloned().collect()
    }

    /// Removes and returns the messages for the log.
    pub(super) fn drain_messages(&self) -> Vec<String> {
        std::mem::take(&mut self.lock().messages)
    }
}

fn status(gate: IpAddr, carried: &ProgramTransfer) -> ProgramInfo {
    let image = carried.image();
    let sending = carried.sending();
    let (state, reason) = match carried.status().map(|status| (status.state, &status.error)) {
        _ if sending.is_some() => ("transferring", None),
        None => ("offered", None),
        Some((TransferState::Wanted, _)) => ("transferring", None),
        Some((TransferState::Verifying, _)) => ("verifying", None),
        Some((TransferState::Active, _)) => ("active", None),
        Some((TransferState::Rejected(reason), words)) => {
            let words = (!words.is_empty()).then(|| words.clone());
            ("rejected", Some(words.unwrap_or_else(|| reason.to_string())))
        }
    };
    let bytes = image.object().len();
    ProgramInfo {
        number: image.number(),
        name: Some(image.name().to_owned()),
        gate: Some(gate),
        origin: "configuration".to_owned(),
        digest: hexadecimal(image.digest()),
        state: state.to_owned(),
        reason,
        received_bytes: sending.map(|next| next.min(bytes) as u64),
        bytes: Some(bytes as u64),
        previous_kept: false,
    }
}

/// Returns the log message about a new state, if it has one.
fn message(status: &ProgramInfo) -> Option<String> {
    let (gate, number) = (status.gate?, status.number);
    let name = status.name.as_deref().unwrap_or_default();
    match (status.state.as_str(), &status.reason) {
        ("active", _) => Some(format!("gate {gate} accepted program {number} ({name})")),
        ("rejected", Some(reason)) => {
            Some(format!("gate {gate} rejected program {number} ({name}): {reason}"))
        }
        _ => None,
    }
}
