//! The canary share: the part of all members that applies a version before the others.
//!
//! ```text
//!   SHA-256(name, 0, version) ─► first 64 bits / 2^64 ─► below the share: a canary
//! ```
//!
//! There is no list of canaries: each member computes by itself whether it is one, and every tool can
//! compute it from the name. The hash includes the version, so that the canaries differ between
//! versions. A larger share of the same version includes the canaries of a smaller one.

use core::fmt;
use core::str::FromStr;

use sha2::{Digest, Sha256};

/// A share of all members, in hundredths of a percent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CanaryShare(u16);

impl CanaryShare {
    /// All members.
    pub const ALL: Self = Self(10_000);
    /// No member.
    pub const NONE: Self = Self(0);

    /// Returns a share of `hundredths` of a percent; none if there are more than 10000.
    pub fn from_hundredths(hundredths: u16) -> Option<Self> {
        (hundredths <= Self::ALL.0).then_some(Self(hundredths))
    }

    /// Returns the hundredths of a percent.
    pub fn hundredths(self) -> u16 {
        self.0
    }

    /// Returns whether the member of this name is a canary of a version.
    pub fn contains(self, name: &str, version: u64) -> bool {
        let mut hash = Sha256::new();
        hash.update(name.as_bytes());
        hash.update([0]);
        hash.update(version.to_be_bytes());
        let part = hash.finalize().iter().take(8).fold(0, |sum, byte| sum << 8 | u128::from(*byte));
        part * u128::from(Self::ALL.0) < u128::from(self.0) << 64
    }
}

impl fmt::Display for CanaryShare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} %", f64::from(self.0) / 100.0)
    }
}

/// The error of a text that is not a share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParseShareError;

impl fmt::Display for ParseShareError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a share: write a number from 0 to 100 with at most two decimals and %, such as 10% or 0.5%")
    }
}

impl std::error::Error for ParseShareError {}

impl FromStr for CanaryShare {
    type Err = ParseShareError;

    fn from_str(text: &str) -> Result<Self, ParseShareError> {
        let number = text.trim().strip_suffix('%').ok_or(ParseShareError)?;
        let share: f64 = number.trim().parse().map_err(|_| ParseShareError)?;
        let hundredths = (share * 100.0).round();
        // A finer share cannot be represented and is not rounded.
        if !(0.0..=100.0).contains(&share) || (share * 100.0 - hundredths).abs() > 1e-6 {
            return Err(ParseShareError);
        }
        Self::from_hundredths(hundredths as u16).ok_or(ParseShareError)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn share_survives_formatting_and_parsing() {
        for (text, hundredths) in [("0%", 0), ("10%", 1000), ("0.5 %", 50), ("100%", 10_000)] {
            let share: CanaryShare = text.parse().unwrap();
            assert_eq!(share.hundredths(), hundredths);
            assert_eq!(share.to_string().parse(), Ok(share));
        }
        for bad in ["", "10", "-1%", "100.01%", "0.001%", "x%", "NaN%", "inf%"] {
            assert_eq!(bad.parse::<CanaryShare>(), Err(ParseShareError), "{bad}");
        }
    }

    #[test]
    fn canaries_are_the_requested_share_of_members() {
        const MEMBERS: usize = 20_000;
        let names: Vec<String> = (0..MEMBERS).map(|at| format!("gate-{at}")).collect();
        let canaries = |hundredths, version| -> Vec<bool> {
            let share = CanaryShare::from_hundredths(hundredths).unwrap();
            names.iter().map(|name| share.contains(name, version)).collect()
        };
        for version in [1, 2, 1 << 40] {
            let mut before = vec![false; MEMBERS];
            for hundredths in [0, 50, 1000, 5000, 9900, 10_000] {
                let now = canaries(hundredths, version);
                let count = now.iter().filter(|is_canary| **is_canary).count() as f64;
                let share = f64::from(hundredths) / 10_000.0;
                // Five standard deviations of a binomial distribution.
                let slack = 5.0 * (MEMBERS as f64 * share * (1.0 - share)).sqrt();
                let expect = MEMBERS as f64 * share;
                assert!((count - expect).abs() <= slack, "{share} of {MEMBERS}: {count}");
                // A larger share includes the canaries of a smaller one.
                assert!(before.iter().zip(&now).all(|(was, is)| *is || !*was));
                before = now;
            }
        }
        // Versions have independent canaries: of two tenths a hundredth is in both.
        let (one, two) = (canaries(1000, 1), canaries(1000, 2));
        let both = one.iter().zip(&two).filter(|(one, two)| **one && **two).count();
        assert!((130..270).contains(&both), "{both}");
    }
}
