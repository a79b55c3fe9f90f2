//! Serialization of a record, for a restart.
//!
//! ```text
//!   expire_at:64 sender:32 state:8 priority:8 allowance:8 program:8 | body, eight words | number:64
//! ```
//!
//! All fields are little-endian, as they are in memory on most machines. Times are those of the
//! gate's clock, which continues across a restart. Any bytes decode to a valid record: a priority
//! is no higher than the maximum. While a program decides, the bytes of priority and allowance hold
//! the tag of its version.

use super::{ALLOWANCE, Record, State};

/// The bytes of a record.
pub const BYTES: usize = 88;
/// The highest priority that has a DSCP of its own.
const HIGHEST: u8 = 60;

impl Record {
    /// Returns the record as bytes.
    pub fn to_bytes(&self) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        bytes[..8].copy_from_slice(&self.expire_at.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.sender.to_le_bytes());
        bytes[12..16].copy_from_slice(&[
            self.state as u8,
            self.priority,
            self.allowance,
            self.program,
        ]);
        bytes[16..80].copy_from_slice(&self.cookie());
        bytes[80..].copy_from_slice(&self.number.to_le_bytes());
        bytes
    }

    /// Decodes a record; nothing if its state is invalid.
    pub fn from_bytes(bytes: &[u8; BYTES]) -> Option<Self> {
        let word = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
        let state = match bytes[12] {
            0 => State::Request,
            1 => State::Granted,
            2 => State::Declined,
            3 => State::Program,
            4 => State::Provisional,
            _ => return None,
        };
        let runs = state == State::Program;
        let mut record = Self {
            expire_at: word(0)?,
            sender: word(8)? as u32,
            state,
            priority: if runs { bytes[13] } else { bytes[13].min(HIGHEST) },
            allowance: if runs { bytes[14] } else { bytes[14].min(ALLOWANCE) },
            program: bytes[15],
            number: word(80)?,
            ..Self::default()
        };
        record.set_cookie(bytes[16..80].try_into().ok()?);
        Some(record)
    }
}

#[cfg(test)]
mod tests {
    use super::{BYTES, Record, State};
    use crate::state::{Decision, Grant, Stamp, StartedProgram};

    #[test]
    fn restored_record_continues_unchanged() {
        let terms = Grant { rate_kib: 9, expire_s: 8, next_renewal_ms: 7, renewal_step_ms: 6 };
        let started = StartedProgram { program: 2, tag: 0xfedc, expire_s: 60, cookie: [0xa5; 64] };
        let mut record = Record::new(77);
        for step in 0..4u64 {
            let now = 1_000_000 * step;
            match step {
                1 => assert!(record.decide(
                    now,
                    &Decision::Grant(terms),
                    Stamp { sender: 5, number: 9 }
                )),
                2 => assert!(record.decide(
                    now,
                    &Decision::Decline { expire_s: 3 },
                    Stamp::default()
                )),
                3 => assert!(record.run(now, &started, Stamp { sender: 5, number: 10 })),
                _ => {}
            }
            let mut same = Record::from_bytes(&record.to_bytes()).unwrap();
            assert_eq!(same.to_bytes(), record.to_bytes());
            assert_eq!(same.tag(), record.tag());
            for at in 0..20 {
                let later = now + at * 400_000_000;
                let mut other = record;
                assert_eq!(same.packet(later, 1000), other.packet(later, 1000), "step {step}");
                record = other;
            }
        }
    }

    /// Any decoded record handles packets and decisions without harm.
    #[test]
    fn arbitrary_bytes_give_a_valid_record_or_none() {
        let mut rng = fastrand::Rng::with_seed(1);
        for _ in 0..100_000 {
            let mut bytes = [0; BYTES];
            rng.fill(&mut bytes);
            bytes[12] &= 7;
            let Some(mut record) = Record::from_bytes(&bytes) else {
                assert!(bytes[12] > State::Provisional as u8);
                continue;
            };
            let terms = Grant { rate_kib: 1, expire_s: 8, next_renewal_ms: 7, renewal_step_ms: 6 };
            for _ in 0..3 {
                let now = rng.u64(..1 << 62);
                record.packet(now, rng.u32(..));
                record.decide(now, &Decision::Grant(terms), Stamp::default());
            }
        }
    }
}
