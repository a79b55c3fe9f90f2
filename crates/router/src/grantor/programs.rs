//! Flow programs on their way to the gates: what they are to have, and what they say of it.
//!
//! ```text
//!   panel ── other programs ──► Programs ◄── what gates said ── post
//!         ◄─ list, news ───────    │
//!                                  └── what is to be sent ────► post ─► v2::Sender, a gate each
//! ```
//!
//! What is sent when is the protocol's business (`gate::decision::v2::transfer`); here is what two
//! threads tell one another of it. Operators are told when a gate has taken a program or refused one,
//! once, until it says something else.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gate::decision::v2::chunk::TransferState;
use gate::decision::v2::transfer::{ProgramImage, ProgramTransfer};

use crate::vantage::told::{ProgramTold, hexadecimal};

/// Messages for the operator that are kept until somebody takes them.
const NEWS: usize = 256;

/// What is known of a program at a gate, by both and the program's number.
type Known = BTreeMap<(IpAddr, u8), ProgramTold>;

#[derive(Debug)]
struct Kept {
    parcels: Arc<[ProgramImage]>,
    known: Known,
    news: Vec<String>,
}

/// The programs that gates are to have.
#[derive(Debug)]
pub(super) struct Programs(Mutex<Kept>);

impl Programs {
    pub(super) fn new(parcels: Vec<ProgramImage>) -> Self {
        let kept = Kept { parcels: parcels.into(), known: Known::new(), news: Vec::new() };
        Self(Mutex::new(kept))
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns what gates are to have.
    pub(super) fn parcels(&self) -> Arc<[ProgramImage]> {
        Arc::clone(&self.lock().parcels)
    }

    /// Has gates be given others. What they were given before they keep.
    pub(super) fn set(&self, parcels: Vec<ProgramImage>) {
        self.lock().parcels = parcels.into();
    }

    /// Takes note of how it stands with every program at every gate.
    pub(super) fn note<'a>(&self, each: impl Iterator<Item = (IpAddr, &'a ProgramTransfer)>) {
        let mut kept = self.lock();
        let Kept { known, news, .. } = &mut *kept;
        let before = std::mem::take(known);
        for (gate, carried) in each {
            let at = (gate, carried.image().number());
            let told = tell(gate, carried);
            let same = |it: &ProgramTold| {
                (&it.digest, &it.state, &it.reason) == (&told.digest, &told.state, &told.reason)
            };
            if !before.get(&at).is_some_and(same) && news.len() < NEWS {
                news.extend(words(&told));
            }
            known.insert(at, told);
        }
    }

    /// Lists the programs by gate and number.
    pub(super) fn list(&self) -> Vec<ProgramTold> {
        self.lock().known.values().cloned().collect()
    }

    /// Takes what an operator should know.
    pub(super) fn news(&self) -> Vec<String> {
        std::mem::take(&mut self.lock().news)
    }
}

fn tell(gate: IpAddr, carried: &ProgramTransfer) -> ProgramTold {
    let parcel = carried.image();
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
    let bytes = parcel.object().len();
    ProgramTold {
        number: parcel.number(),
        name: Some(parcel.name().to_owned()),
        gate: Some(gate),
        origin: "configuration".to_owned(),
        digest: hexadecimal(parcel.digest()),
        state: state.to_owned(),
        reason,
        received_bytes: sending.map(|next| next.min(bytes) as u64),
        bytes: Some(bytes as u64),
        previous_kept: false,
    }
}

/// Says what an operator should know of it, if he should.
fn words(told: &ProgramTold) -> Option<String> {
    let (gate, number) = (told.gate?, told.number);
    let name = told.name.as_deref().unwrap_or_default();
    match (told.state.as_str(), &told.reason) {
        ("active", _) => Some(format!("gate {gate} has program {number} ({name})")),
        ("rejected", Some(why)) => {
            Some(format!("gate {gate} refuses program {number} ({name}): {why}"))
        }
        _ => None,
    }
}
