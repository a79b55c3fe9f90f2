//! A pool of spans whose words all tables of one builder share.
//!
//! ```text
//!   builder  ── stores new spans where no pinned table reaches ─────────┐
//!                                                                       ▼
//!   pool     ┃ A ┃ B ┃ freed, still reached by 7 ┃ C ┃ hole ┃ new D ┃
//!              ▲   ▲            ▲                  ▲               ▲
//!   tables     └───┴── no. 7 ───┴──────────────────┤               │
//!              └─────────── no. 8 ─────────────────┴───────────────┘
//! ```
//!
//! A newly published table is cold in the reader's cache. With two whole copies refreshed in turn
//! ([`Master`](crate::table::Master)), each publication therefore makes a reader load the whole
//! table once more, however small the change: on the table of 2026 a hundred single changes a
//! second took 13 % of a reader's speed, and a thousand 38 %. Spans that are stored by content, and
//! replaced instead of changed, need no copy: both tables read the same words, and only the stages
//! that lead to them exist twice.
//!
//! **Why no table sees a word change.** A word is written when a span is stored at its place. A
//! place is allocated again only when every table that could reach the earlier span there has been
//! dropped or refreshed. Each snapshot pins an *epoch*, the time between two changes. A freed span
//! is recorded with the epoch that begins then, and waits until no older epoch is pinned:
//!
//! ```text
//!   epochs   7 (pinned by a table) │ 8 (pinned)    │ 9 (not pinned)
//!   freed    spans of 7 not in 8   ┘ of 8 not in 9 ┘
//! ```
//!
//! `Arc::get_mut` finds an epoch with no remaining pins. It also orders the last reads of that
//! epoch's tables before the next write. Readers reach a table, and the spans stored for it, through
//! its publication (`publish.rs`).
//!
//! So no word is read by one thread while another writes it, but the array as a whole is: its items
//! are atomics, loaded and stored with relaxed ordering, which compile to plain loads and stores on
//! the CPUs that this crate supports.
//!
//! Limits: a table that stays pinned prevents the reuse of all that was freed since. If that is more
//! than half of the array, the excess counts as holes, which make an updater rebuild, in another
//! pool. The builder keeps its own copy of the words, for comparison (`pool.rs`). Storing is O(len),
//! or O(words) when the array is full and all words move to a larger one.
//! `docs/decisions/0021-shared-pool.md` has the measurements.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::ops::Deref;
// Not those of `sync.rs`: kernels load words that loom's types would hide.
use core::sync::atomic::{AtomicU32, Ordering};

#[cfg(all(feature = "std", target_os = "linux"))]
use crate::mapped::{MappedWords, WordFiles};
use crate::pool::Pool;
use crate::table::{Shared, Table};

/// The words of a page.
#[cfg(all(feature = "std", target_os = "linux"))]
const PAGE: usize = 1 << 10;

/// A pool whose words the tables share.
pub(crate) struct SharedPool {
    pool: Pool<u32>,
    /// Creates the files in which the words lie, if not ordinary memory.
    #[cfg(all(feature = "std", target_os = "linux"))]
    files: Option<Arc<dyn WordFiles>>,
    words: Shared<AtomicU32>,
    /// The oldest first; new snapshots pin the last.
    epochs: VecDeque<Epoch>,
    /// The number of freed words that wait for older epochs.
    waiting: usize,
}

/// The time between two changes: all snapshots taken in it reach the same spans.
#[derive(Debug, Default)]
struct Epoch {
    /// Shared with each snapshot of this epoch.
    pin: Arc<()>,
    /// The spans that older epochs reach and this one does not: (place, length).
    freed: Vec<(usize, usize)>,
}

impl SharedPool {
    pub(crate) fn new() -> Self {
        Self {
            pool: Pool::new(),
            #[cfg(all(feature = "std", target_os = "linux"))]
            files: None,
            words: in_memory(0),
            epochs: VecDeque::from([Epoch::default()]),
            waiting: 0,
        }
    }

    /// Moves all words into a file, and into a larger one when they outgrow it.
    #[cfg(all(feature = "std", target_os = "linux"))]
    pub(crate) fn place_in(&mut self, files: Arc<dyn WordFiles>) {
        self.files = Some(files);
        self.relocate();
    }

    /// Finds or stores `content`, as [`Pool::intern`] does.
    pub(crate) fn intern(&mut self, content: &[u32], users: u32) -> (usize, bool) {
        let (at, fresh) = self.pool.intern(content, users);
        let end = at + content.len();
        if end > self.words.len() {
            self.relocate();
        } else if fresh {
            copy(content, &self.words[at..end]);
        }
        (at, fresh)
    }

    /// Moves all words to a larger array. Existing snapshots keep theirs.
    fn relocate(&mut self) {
        let all = self.pool.all();
        self.words = self.allocate(all.len());
        copy(all, &self.words);
    }

    /// Returns the capacity for `words` words and some growth; a file has whole pages, at least one.
    fn capacity_for(&self, words: usize) -> usize {
        #[cfg(all(feature = "std", target_os = "linux"))]
        if self.files.is_some() {
            return words.saturating_add(words / 8).next_multiple_of(PAGE).max(PAGE);
        }
        capacity_for(words)
    }

    /// Allocates an array for `words` words and some growth, in a file if one can be had.
    fn allocate(&self, words: usize) -> Shared<AtomicU32> {
        #[cfg(all(feature = "std", target_os = "linux"))]
        if let Some(files) = &self.files {
            let len = self.capacity_for(words);
            let mapped = files.create(len).and_then(|file| MappedWords::new(file, len));
            if let Ok(mapped) = mapped {
                return Shared::mapped(mapped);
            }
        }
        in_memory(words)
    }

    /// Counts one user more of the span, as [`Pool::retain`] does.
    pub(crate) fn retain(&mut self, at: usize, len: usize) {
        self.pool.retain(at, len);
    }

    /// Removes one user of the span; returns whether it was the last, as [`Pool::release`] does. The
    /// place is free once no table reaches it.
    pub(crate) fn release(&mut self, at: usize, len: usize) -> bool {
        if !self.pool.forget(at, len) {
            return false;
        }
        // `get_mut` and not a count: it also orders the reads of the last snapshot before this.
        if self.epochs.back_mut().is_none_or(|now| Arc::get_mut(&mut now.pin).is_none()) {
            self.epochs.push_back(Epoch::default());
        }
        match self.epochs.make_contiguous() {
            [_, .., now] => {
                now.freed.push((at, len));
                self.waiting += len;
            }
            // No snapshot reaches the span.
            _ => self.pool.give(at, len),
        }
        true
    }

    /// Frees the spans that no table reaches any more, and cuts holes off the end of the array.
    pub(crate) fn trim(&mut self) {
        while let Some(oldest) = self.epochs.front_mut() {
            for (at, len) in oldest.freed.drain(..) {
                self.waiting -= len;
                self.pool.give(at, len);
            }
            if Arc::get_mut(&mut oldest.pin).is_none() || self.epochs.len() == 1 {
                break;
            }
            self.epochs.pop_front();
        }
        self.pool.trim();
        if self.capacity_for(self.pool.all().len()) * 2 < self.words.len() {
            self.relocate();
        }
    }

    /// Returns one span's words.
    pub(crate) fn get(&self, at: usize, len: usize) -> &[u32] {
        self.pool.get(at, len)
    }

    /// Returns the whole array, including holes.
    pub(crate) fn all(&self) -> &[u32] {
        self.pool.all()
    }

    /// Counts the distinct spans.
    #[cfg(test)]
    pub(crate) fn spans(&self) -> usize {
        self.pool.spans()
    }

    /// Counts the bytes in holes, and the waiting bytes in excess of half of the array.
    pub(crate) fn holes(&self) -> usize {
        let beyond = self.waiting.saturating_sub(self.pool.all().len() / 2);
        self.pool.holes() + beyond * size_of::<u32>()
    }

    /// Counts the 64-bit words written.
    pub(crate) fn written(&self) -> u64 {
        self.pool.written()
    }

    /// Takes a snapshot.
    pub(crate) fn freeze(&self) -> PoolSnapshot {
        let pin = self.epochs.back().map(|now| Arc::clone(&now.pin)).unwrap_or_default();
        PoolSnapshot { words: self.words.first(self.pool.all().len()), pin }
    }

    /// Replaces a snapshot by one of the present state.
    pub(crate) fn refresh(&self, snapshot: &mut PoolSnapshot) {
        *snapshot = self.freeze();
    }
}

/// The words of the pool as one table sees them: no word that it reaches changes while the snapshot
/// or a clone of it lives.
///
/// It derefs to the whole array, of which a table reaches a part. Only the pool stores to these atomics:
/// a store by others makes answers wrong, though no access to memory.
#[derive(Clone, Debug)]
pub struct PoolSnapshot {
    words: Shared<AtomicU32>,
    #[expect(dead_code, reason = "held for its reference count")]
    pin: Arc<()>,
}

impl PoolSnapshot {
    /// Makes a snapshot of words of its own, without a pool.
    pub(crate) fn alone(words: &[u32]) -> Self {
        let own = Table::collect(words.iter().map(|&word| AtomicU32::new(word)));
        Self { words: Shared::new(own), pin: Arc::default() }
    }

    /// Returns a word.
    #[inline(always)]
    pub(crate) fn word(&self, at: usize) -> u32 {
        self.words[at].load(Ordering::Relaxed)
    }

    /// Copies all words, including those that this table does not reach.
    pub(crate) fn to_vec(&self) -> Vec<u32> {
        self.words.iter().map(|word| word.load(Ordering::Relaxed)).collect()
    }

    /// Returns the file in which the words lie, if they do: that of
    /// [`Updater::new_in`](crate::Updater::new_in).
    #[cfg(all(feature = "std", target_os = "linux"))]
    pub fn mapping(&self) -> Option<&MappedWords> {
        self.words.mapping()
    }
}

impl Deref for PoolSnapshot {
    type Target = [AtomicU32];

    #[inline(always)]
    fn deref(&self) -> &[AtomicU32] {
        &self.words
    }
}

impl fmt::Debug for SharedPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let waiting = self.waiting;
        f.debug_struct("SharedPool").field("pool", &self.pool).field("waiting", &waiting).finish()
    }
}

/// Returns the capacity for `words` words and some growth.
fn capacity_for(words: usize) -> usize {
    Table::<AtomicU32>::filling(words.saturating_add(words / 4))
}

/// Allocates an array for `words` words and some growth, in ordinary memory.
fn in_memory(words: usize) -> Shared<AtomicU32> {
    Shared::new(Table::collect((0..capacity_for(words)).map(|_| AtomicU32::new(0))))
}

fn copy(words: &[u32], to: &[AtomicU32]) {
    for (&word, to) in words.iter().zip(to) {
        to.store(word, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::{PoolSnapshot, SharedPool};
    use alloc::collections::BTreeMap;
    use alloc::vec;
    use alloc::vec::Vec;

    /// A snapshot, and the spans that it reached when it was taken.
    struct Pinned {
        snapshot: PoolSnapshot,
        reached: BTreeMap<usize, Vec<u32>>,
    }

    impl Pinned {
        fn check(&self) {
            for (&at, content) in &self.reached {
                let seen: Vec<u32> =
                    (at..at + content.len()).map(|at| self.snapshot.word(at)).collect();
                assert_eq!(&seen, content, "a span that a table reaches has changed");
            }
        }
    }

    /// Spans of random lengths and distinct content.
    struct Exercise {
        pool: SharedPool,
        live: BTreeMap<usize, Vec<u32>>,
        rng: fastrand::Rng,
        number: u32,
    }

    impl Exercise {
        fn new() -> Self {
            Self {
                pool: SharedPool::new(),
                live: BTreeMap::new(),
                rng: fastrand::Rng::with_seed(7),
                number: 0,
            }
        }

        fn below(&mut self, bound: usize) -> usize {
            self.rng.usize(..bound)
        }

        fn store(&mut self, len: usize) {
            self.number += 1;
            let content = vec![self.number; len];
            let (at, fresh) = self.pool.intern(&content, 1);
            assert!(fresh);
            self.live.insert(at, content);
        }

        /// Replaces or removes some spans, as a patch does.
        fn change(&mut self, most: usize) {
            for _ in 0..self.below(6) {
                if self.live.len() < most && self.below(2) == 0 {
                    let len = 1 + self.below(40);
                    self.store(len);
                } else if !self.live.is_empty() {
                    let nth = self.below(self.live.len());
                    let at = *self.live.keys().nth(nth).unwrap();
                    let len = self.live.remove(&at).unwrap().len();
                    assert!(self.pool.release(at, len));
                }
            }
            self.pool.trim();
        }

        fn pin(&self) -> Pinned {
            Pinned { snapshot: self.pool.freeze(), reached: self.live.clone() }
        }
    }

    #[test]
    fn spans_of_a_pinned_snapshot_do_not_change() {
        let mut exercise = Exercise::new();
        let mut pinned: Vec<Pinned> = Vec::new();
        for round in 0..6000 {
            // Growth, which relocates all words, and shrinking, in turns.
            exercise.change(if round % 2000 < 1000 { 400 } else { 10 });
            match exercise.below(8) {
                0..3 if pinned.len() < 5 => pinned.push(exercise.pin()),
                3..5 if !pinned.is_empty() => {
                    let nth = exercise.below(pinned.len());
                    pinned.swap_remove(nth);
                }
                5..8 if !pinned.is_empty() => {
                    let nth = exercise.below(pinned.len());
                    exercise.pool.refresh(&mut pinned[nth].snapshot);
                    pinned[nth].reached = exercise.live.clone();
                }
                _ => {}
            }
            pinned.iter().for_each(Pinned::check);
        }
        drop(pinned);
        let Exercise { mut pool, live, .. } = exercise;
        for (at, content) in live {
            pool.release(at, content.len());
        }
        pool.trim();
        assert_eq!((pool.spans(), pool.all().len(), pool.waiting), (0, 0, 0));
        assert_eq!(pool.words.len(), 0, "memory is given back");
    }

    /// Two tables refreshed in turn, as an updater does: a place that one change frees is used by
    /// the next change but one.
    #[test]
    fn freed_places_are_reused_after_two_refreshes() {
        let mut exercise = Exercise::new();
        (0..1000).for_each(|_| exercise.store(10));
        let (mut idle, mut present) = (exercise.pin(), exercise.pin());
        let place = exercise.pool.words.as_ptr();
        for _ in 0..5000 {
            let nth = exercise.below(1000);
            let at = *exercise.live.keys().nth(nth).unwrap();
            exercise.live.remove(&at);
            exercise.pool.release(at, 10);
            exercise.store(10);
            exercise.pool.trim();
            assert!(exercise.pool.waiting <= 20, "{} words wait", exercise.pool.waiting);
            assert!(exercise.pool.all().len() <= 10_030);
            assert_eq!(
                exercise.pool.holes() / 4 + exercise.pool.waiting + 10_000,
                exercise.pool.all().len()
            );
            exercise.pool.refresh(&mut idle.snapshot);
            idle.reached = exercise.live.clone();
            core::mem::swap(&mut idle, &mut present);
        }
        assert_eq!(exercise.pool.words.as_ptr(), place, "the array neither grows nor moves");
        idle.check();
        present.check();
    }

    #[test]
    fn freed_spans_of_a_snapshot_that_stays_pinned_count_as_holes() {
        let mut exercise = Exercise::new();
        (0..100).for_each(|_| exercise.store(10));
        let old = exercise.pin();
        let mut holes = Vec::new();
        for _ in 0..40 {
            for at in exercise.live.keys().copied().take(100).collect::<Vec<_>>() {
                exercise.live.remove(&at);
                exercise.pool.release(at, 10);
                exercise.store(10);
            }
            exercise.pool.trim();
            holes.push(exercise.pool.holes());
        }
        assert_eq!(holes[0], 0, "up to half of the array may wait");
        assert!(holes[39] > 0);
        old.check();
    }
}
