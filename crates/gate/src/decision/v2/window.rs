//! The replay window: the highest number, and a bit for each of the 256 up to it.
//!
//! As in RFC 4303, 3.4.3. Bit i of `seen` is number `highest` − i.

use super::WINDOW;
use crate::decision::MessageError;

const WORDS: usize = (WINDOW / 64) as usize;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Window {
    pub(super) highest: u64,
    pub(super) seen: [u64; WORDS],
}

impl Window {
    /// Returns whether a number is in the window and was accepted.
    pub(super) fn contains(&self, number: u64) -> bool {
        let back = self.highest.checked_sub(number).filter(|&back| back < WINDOW);
        back.is_some_and(|back| self.seen[back as usize / 64] >> (back % 64) & 1 == 1)
    }

    /// Accepts a number.
    pub(super) fn accept(&mut self, number: u64) -> Result<(), MessageError> {
        if number > self.highest {
            self.shift(number - self.highest);
            self.highest = number;
        } else if self.highest - number >= WINDOW {
            return Err(MessageError::TooOld);
        } else if self.contains(number) {
            return Err(MessageError::Replayed);
        }
        let back = self.highest - number;
        self.seen[back as usize / 64] |= 1 << (back % 64);
        Ok(())
    }

    fn shift(&mut self, by: u64) {
        let (words, bits) = ((by / 64).min(WORDS as u64) as usize, by % 64);
        let old = self.seen;
        let word = |at: usize| at.checked_sub(words).map_or(0, |at| old[at]);
        self.seen = core::array::from_fn(|at| {
            let below = at.checked_sub(1).map_or(0, word);
            word(at) << bits | below.checked_shr(64 - bits as u32).unwrap_or(0)
        });
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_number_is_accepted_once_unless_too_old() {
        let mut rng = fastrand::Rng::with_seed(8);
        let mut window = Window::default();
        let mut taken = BTreeSet::new();
        for step in 0..100_000u64 {
            let jump = if rng.u8(..50) == 0 { rng.u64(..1000) } else { rng.u64(..3) };
            let highest = taken.last().copied().unwrap_or(0);
            let number = match rng.bool() {
                true => highest + jump,
                false => highest.saturating_sub(rng.u64(..400)),
            };
            let expect = if number + WINDOW <= highest {
                Err(MessageError::TooOld)
            } else if taken.contains(&number) {
                Err(MessageError::Replayed)
            } else {
                Ok(())
            };
            // Number 0 is the window's start, and is as any other.
            assert_eq!(window.accept(number), expect, "step {step}: {number} after {highest}");
            if expect.is_ok() {
                taken.insert(number);
            }
            let probe = highest.saturating_sub(rng.u64(..400));
            let within = probe + WINDOW > window.highest;
            assert_eq!(window.contains(probe), within && taken.contains(&probe));
        }
    }
}
