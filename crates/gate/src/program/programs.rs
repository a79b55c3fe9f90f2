//! Programs by number, with the previous version of each.
//!
//! ```text
//!   number ─► current     the program of new decisions that name the number
//!             previous    its previous version, for flows that began with it
//! ```
//!
//! Only the program that wrote a cookie can interpret it. So a flow continues with the version that
//! it began with: its record has the version's *tag*, the first 16 bits of the object's SHA-256,
//! which is the same after a restart. When a program is replaced, the old version stays for its
//! flows until they end, a new decision arrives, or the number is replaced once more; flows of an
//! older version send requests again. Only one previous version is stored, so that memory is
//! bounded by the numbers. Two versions have the same tag by chance once in 65,536 pairs; the new
//! version then reads the old one's cookies. This can cause wrong verdicts, but nothing worse.

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
    /// Sets the program of a number; the current one becomes the previous. `None` removes both, and
    /// their flows send requests again.
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

    /// Returns whether the previous version of a number's program is stored.
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

    /// Keeps the programs of `last`, the table before this one, as the previous versions.
    pub fn keep_previous(&mut self, last: &Self) {
        for (slot, last) in self.0.iter_mut().zip(&last.0) {
            let (Some(current), Some(was)) = (&slot.current, &last.current) else { continue };
            let same = current.digest() == was.digest();
            slot.previous = if same { last.previous.clone() } else { Some(Arc::clone(was)) };
        }
    }
}
