//! Why packets were dropped lately, by flow: what `flow explain` says of the last one.
//!
//! ```text
//!   hash ── lower 12 bits ──► │ hash │ verdict │ when │     4096 of them, 64 KiB
//! ```
//!
//! Each drop is one store; another flow at the same place takes it over, so that what is
//! found is true, and under a flood may be gone. It knows of flows without an entry too.

use crate::datapath::Verdict;

const PLACES: usize = 4096;

#[derive(Clone, Copy, Debug)]
struct Drop {
    hash: u32,
    verdict: Verdict,
    when: u64,
}

/// The last drops.
#[derive(Debug)]
pub(super) struct Last {
    places: Box<[Option<Drop>]>,
}

impl Last {
    pub(super) fn new() -> Self {
        Self { places: vec![None; PLACES].into() }
    }

    /// Remembers why a packet of the flow with this hash was dropped.
    #[inline]
    pub(super) fn note(&mut self, hash: u32, verdict: Verdict, when: u64) {
        if let Some(place) = self.places.get_mut(hash as usize % PLACES) {
            *place = Some(Drop { hash, verdict, when });
        }
    }

    /// Says why and when the last packet of a flow was dropped, if it is remembered.
    pub(super) fn of(&self, hash: u32) -> Option<(Verdict, u64)> {
        let drop = (*self.places.get(hash as usize % PLACES)?)?;
        (drop.hash == hash).then_some((drop.verdict, drop.when))
    }
}

#[cfg(test)]
mod tests {
    use super::{Last, PLACES};
    use crate::datapath::Verdict;

    #[test]
    fn what_is_found_is_of_that_flow() {
        let mut last = Last::new();
        assert_eq!(last.of(7), None);
        last.note(7, Verdict::Declined, 1);
        last.note(7, Verdict::OverRate, 2);
        assert_eq!(last.of(7), Some((Verdict::OverRate, 2)));
        last.note(7 + PLACES as u32, Verdict::Policy, 3);
        assert_eq!(last.of(7), None);
    }
}
