//! Programs by number, and the one before each.
//!
//! ```text
//!   number ─► now       what decisions that name the number begin with
//!             before    what it was, for flows that began with that
//! ```
//!
//! A cookie means something to the program that wrote it and to no other. So a flow goes on
//! with the version that it began with: its record has the version's *tag*, the first 16 bits of
//! the object's SHA-256, which says the same over a restart. When a program is replaced the old
//! one stays for the flows that it has, until they end, are decided of anew, or the number
//! gets yet another; who has an older one asks again. One step back is kept, and no more, so
//! that memory is bounded by the numbers there are. Two versions whose tags are the same by
//! chance, one pair in 65,536, are not told apart: the new one reads the old one's cookies, which
//! costs wrong verdicts and can cost nothing worse.

use std::sync::Arc;

use super::{MOST_PROGRAMS, Program};

#[derive(Clone, Debug, Default)]
struct Slot {
    now: Option<Arc<Program>>,
    before: Option<Arc<Program>>,
}

/// Programs by their number.
#[derive(Clone, Debug)]
pub struct Programs(Vec<Slot>);

impl Default for Programs {
    fn default() -> Self {
        Self(vec![Slot::default(); MOST_PROGRAMS])
    }
}

impl Programs {
    /// Puts a program under a number: the one that is there goes on for its flows. `None`
    /// takes away what is there, and the flows of that ask again.
    pub fn set(&mut self, number: u8, program: Option<Arc<Program>>) {
        let slot = &mut self.0[usize::from(number)];
        let Some(program) = program else {
            *slot = Slot::default();
            return;
        };
        let other = slot.now.as_ref().is_some_and(|now| now.digest() != program.digest());
        if other {
            slot.before = slot.now.take();
        }
        slot.now = Some(program);
    }

    /// Returns the program of a number.
    #[inline]
    pub fn get(&self, number: u8) -> Option<&Arc<Program>> {
        self.0[usize::from(number)].now.as_ref()
    }

    /// Says whether the version before a number's is kept.
    pub fn has_before(&self, number: u8) -> bool {
        self.0[usize::from(number)].before.is_some()
    }

    /// Returns the version that a flow began with: the program of its number, or the one
    /// before that.
    #[inline]
    pub fn version(&self, number: u8, tag: u16) -> Option<&Program> {
        let Slot { now, before } = &self.0[usize::from(number)];
        let of = |it: &'_ Option<Arc<Program>>| it.as_ref().is_some_and(|it| it.tag() == tag);
        if of(now) { now.as_deref() } else { before.as_deref().filter(|_| of(before)) }
    }

    /// Comes after `last`: keeps, for the flows of each number, the version that it had there.
    pub fn follow(&mut self, last: &Self) {
        for (slot, last) in self.0.iter_mut().zip(&last.0) {
            let (Some(now), Some(was)) = (&slot.now, &last.now) else { continue };
            let same = now.digest() == was.digest();
            slot.before = if same { last.before.clone() } else { Some(Arc::clone(was)) };
        }
    }
}
