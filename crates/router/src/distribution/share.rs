//! A share of all members: the canaries, who try a version before the others.
//!
//! ```text
//!   SHA-256(name, 0, version) ─► its first 64 bits as a part of 2^64 ─► below the share? a canary
//! ```
//!
//! Nobody keeps a list: each member knows by itself, and anybody can work out who is one. By the
//! version in the hash the same members are not canaries every time; a share that is raised
//! keeps those it had.

use core::fmt;
use core::str::FromStr;

use sha2::{Digest, Sha256};

/// A share of all, in hundredths of a per cent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Share(u16);

impl Share {
    /// All of them.
    pub const ALL: Self = Self(10_000);

    /// Returns so many hundredths of a per cent, 10000 at the most.
    pub fn of(hundredths: u16) -> Option<Self> {
        (hundredths <= Self::ALL.0).then_some(Self(hundredths))
    }

    /// Returns its hundredths of a per cent.
    pub fn hundredths(self) -> u16 {
        self.0
    }

    /// Says whether the member of this name is of this share for a version.
    pub fn holds(self, name: &str, version: u64) -> bool {
        let mut hash = Sha256::new();
        hash.update(name.as_bytes());
        hash.update([0]);
        hash.update(version.to_be_bytes());
        let part = hash.finalize().iter().take(8).fold(0, |sum, byte| sum << 8 | u128::from(*byte));
        part * u128::from(Self::ALL.0) < u128::from(self.0) << 64
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} %", f64::from(self.0) / 100.0)
    }
}

/// Why a text is no share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoShare;

impl fmt::Display for NoShare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a share is a number from 0 to 100 and %, such as 10% or 0.5%")
    }
}

impl std::error::Error for NoShare {}

impl FromStr for Share {
    type Err = NoShare;

    fn from_str(text: &str) -> Result<Self, NoShare> {
        let number = text.trim().strip_suffix('%').ok_or(NoShare)?;
        let share: f64 = number.trim().parse().map_err(|_| NoShare)?;
        let hundredths = (share * 100.0).round();
        // What is finer than can be said is no slip of ours to mend.
        if !(0.0..=100.0).contains(&share) || (share * 100.0 - hundredths).abs() > 1e-6 {
            return Err(NoShare);
        }
        Self::of(hundredths as u16).ok_or(NoShare)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_read_as_it_is_written() {
        for (text, hundredths) in [("0%", 0), ("10%", 1000), ("0.5 %", 50), ("100%", 10_000)] {
            let share: Share = text.parse().unwrap();
            assert_eq!(share.hundredths(), hundredths);
            assert_eq!(share.to_string().parse(), Ok(share));
        }
        for bad in ["", "10", "-1%", "100.01%", "0.001%", "x%", "NaN%", "inf%"] {
            assert_eq!(bad.parse::<Share>(), Err(NoShare), "{bad}");
        }
    }

    #[test]
    fn canaries_are_the_share_that_was_asked_for() {
        const MEMBERS: usize = 20_000;
        let names: Vec<String> = (0..MEMBERS).map(|at| format!("gate-{at}")).collect();
        let of = |hundredths, version| -> Vec<bool> {
            let share = Share::of(hundredths).unwrap();
            names.iter().map(|name| share.holds(name, version)).collect()
        };
        for version in [1, 2, 1 << 40] {
            let mut before = vec![false; MEMBERS];
            for hundredths in [0, 50, 1000, 5000, 9900, 10_000] {
                let now = of(hundredths, version);
                let count = now.iter().filter(|it| **it).count() as f64;
                let share = f64::from(hundredths) / 10_000.0;
                // Five standard deviations of a binomial distribution.
                let slack = 5.0 * (MEMBERS as f64 * share * (1.0 - share)).sqrt();
                let expect = MEMBERS as f64 * share;
                assert!((count - expect).abs() <= slack, "{share} of {MEMBERS}: {count}");
                // A share that is raised keeps those it had.
                assert!(before.iter().zip(&now).all(|(was, is)| *is || !*was));
                before = now;
            }
        }
        // By another version there are others: of two tenths a hundredth in both.
        let (one, two) = (of(1000, 1), of(1000, 2));
        let both = one.iter().zip(&two).filter(|(one, two)| **one && **two).count();
        assert!((130..270).contains(&both), "{both}");
    }
}
