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

use super::{MAX_PROGRAMS, Program};

#[derive(Clone, Debug, Default)]
struct Slot {
    current: Option<Arc<Program>>,
    previous: Option<Arc<Program>>,
}

/// Programs by their number.
#[derive(Clone, Debug)]
pub struct Programs(Vec<Slot>);

impl Default for Programs {
    fn default() -> Self {
        Self(vec![Slot::default(); MAX_PROGRAMS])
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
        let other =
            slot.current.as_ref().is_some_and(|current| current.digest() != program.digest());
        if other {
            slot.previous = slot.current.take();
        }
        slot.current = Some(program);
    }

    /// Returns the program of a number.
    #[inline]
    pub fn get(&self, number: u8) -> Option<&Arc<Program>> {
        self.0[usize::from(number)].current.as_ref()
    }

    /// Says whether the version before a number's is kept.
    pub fn has_previous(&self, number: u8) -> bool {
        self.0[usize::from(number)].previous.is_some()
    }

    /// Returns the version that a flow began with: the program of its number, or the one
    /// before that.
    #[inline]
    pub fn version(&self, number: u8, tag: u16) -> Option<&Program> {
        let Slot { current, previous } = &self.0[usize::from(number)];
        let of = |program: &'_ Option<Arc<Program>>| {
            program.as_ref().is_some_and(|program| program.tag() == tag)
        };
        if of(current) { current.as_deref() } else { previous.as_deref().filter(|_| of(previous)) }
    }

    /// Comes after `last`: keeps, for the flows of each number, the version that it had there.
    pub fn keep_previous(&mut self, last: &Self) {
        for (slot, last) in self.0.iter_mut().zip(&last.0) {
            let (Some(current), Some(was)) = (&slot.current, &last.current) else { continue };
            let same = current.digest() == was.digest();
            slot.previous = if same { last.previous.clone() } else { Some(Arc::clone(was)) };
        }
    }
}
