//! The pointers that are labels of routes: each has a number, which the tables store.
//!
//! ```text
//!   insert ─► HopTable ─► number ─► Updater        reader: number ─► Pointers::get
//!                │                                                       ▲
//!                └────────────── Pointers::set, before the commit ───────┘
//! ```
//!
//! Readers translate while the writer adds pointers, so that the places never move: segment n has 2^n of them.
//! The number of a pointer that no route has any longer is not given to another one until every reader has left
//! the tables in which it occurs.

use std::ffi::c_void;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, OnceLock};

use fib::{Full, Hop, HopTable};

/// The pointer of each number, for readers.
#[derive(Debug, Default)]
pub(crate) struct Pointers {
    segments: [OnceLock<Box<[AtomicPtr<c_void>]>>; 32],
}

/// Returns the segment of a number from 1 on, and the place in it.
fn place(hop: Hop) -> Option<(usize, usize)> {
    let segment = hop.0.checked_ilog2()?;
    Some((segment as usize, (hop.0 - (1 << segment)) as usize))
}

impl Pointers {
    /// Returns the pointer of a number; null if it has none. A number that a lookup has returned keeps its
    /// pointer until the reader's next lookup.
    pub(crate) fn get(&self, hop: Hop) -> *mut c_void {
        let found = place(hop).and_then(|(segment, at)| self.segments[segment].get()?.get(at));
        // The table with the number was published after the store.
        found.map_or(std::ptr::null_mut(), |pointer| pointer.load(Ordering::Relaxed))
    }

    fn set(&self, hop: Hop, pointer: *mut c_void) {
        let Some((segment, at)) = place(hop) else { return };
        let places = self.segments[segment]
            .get_or_init(|| (0..1_usize << segment).map(|_| AtomicPtr::default()).collect());
        places[at].store(pointer, Ordering::Relaxed);
    }
}

/// The pointers of a table, for its writer.
#[derive(Debug, Default)]
pub(crate) struct PointerLabels {
    hops: HopTable<usize>,
    places: Arc<Pointers>,
    /// Given up by routes since the last publication.
    given_up: Vec<Hop>,
    /// In no published table any longer; readers may still have an older one.
    unpublished: Vec<Hop>,
}

impl PointerLabels {
    /// Returns the number of a route's pointer.
    pub(crate) fn acquire(&mut self, pointer: *mut c_void) -> Result<Hop, Full> {
        let hop = self.hops.acquire(&pointer.expose_provenance())?;
        self.places.set(hop, pointer);
        Ok(hop)
    }

    /// A route has another label, or none, from the next commit on.
    pub(crate) fn give_up(&mut self, hop: Hop) {
        self.given_up.push(hop);
    }

    /// All changes are published.
    pub(crate) fn published(&mut self) {
        self.unpublished.append(&mut self.given_up);
    }

    /// Every reader has the published tables.
    pub(crate) fn passed(&mut self) {
        for hop in self.unpublished.drain(..) {
            self.hops.release(hop);
        }
    }

    /// Returns the places, for readers.
    pub(crate) fn places(&self) -> &Arc<Pointers> {
        &self.places
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pointer(to: &u8) -> *mut c_void {
        std::ptr::from_ref(to).cast_mut().cast()
    }

    #[test]
    fn number_is_free_after_readers_have_passed() {
        let things = [1, 2, 3];
        let [one, two, three] = [0, 1, 2].map(|at| pointer(&things[at]));
        let mut labels = PointerLabels::default();
        let first = labels.acquire(one).unwrap();
        assert_eq!(labels.acquire(one), Ok(first));
        labels.give_up(first);
        labels.give_up(first);
        labels.passed();
        assert_eq!(labels.acquire(two), Ok(Hop(2)), "not published yet");
        labels.published();
        assert_eq!(labels.places().get(first), one, "readers may still use it");
        labels.passed();
        assert_eq!(labels.acquire(three), Ok(first));
        assert_eq!(labels.places().get(first), three);
    }

    #[test]
    fn numbers_have_places_of_their_own() {
        let places = Pointers::default();
        let things: Vec<u8> = vec![0; 1000];
        for (number, thing) in (1..).zip(&things) {
            places.set(Hop(number), pointer(thing));
        }
        for (number, thing) in (1..).zip(&things) {
            assert_eq!(places.get(Hop(number)), pointer(thing));
        }
        assert!(places.get(Hop::NONE).is_null());
        assert!(places.get(Hop(u32::MAX)).is_null());
    }
}
