//! One array that all tables of a builder snapshot on.
//!
//! ```text
//!   builder  ── stores what is new where no table that is out reaches ──┐
//!                                                                       ▼
//!   pool   ┃ A ┃ B ┃ freed, still reached by 7 ┃ C ┃ hole ┃ new D ┃
//!              ▲   ▲            ▲                 ▲               ▲
//!   tables     └───┴── no. 7 ───┴─────────────────┤               │
//!              └─────────── no. 8 ────────────────┴───────────────┘
//! ```
//!
//! A table that is published in place of another is as cold as it is new to the reader's
//! cache. Where two copies take turns ([`Master`](crate::table::Master)), each publication
//! therefore costs a reader the whole table once more, whatever has changed: on the table
//! of 2026 a hundred single changes a second took 13 % of a reader's speed, and a thousand
//! 38 %. Spans that are stored by content, and never changed but replaced, need no copy:
//! here both tables look at the same words, and only what leads to them takes turns.
//!
//! **Why no table sees a word change.** A word is written when a span is stored at its
//! place, and a place is given out again when every table that could reach the span there
//! before has gone or been refreshed. Each table holds a *stay*, shared by those that were
//! made between two changes. A span that is freed is noted with the stay that begins then,
//! and waits for all older ones:
//!
//! ```text
//!   epochs    7 (pin by a table) │ 8 (pin)   │ 9 (not yet)
//!   freed     what 8 lacks of 7   ┘ of 8: 9's ─┘
//! ```
//!
//! A stay that nobody holds any more is found by `Arc::get_mut`, which also orders what its
//! last holder read before what is written next. Readers reach a table, and with it what
//! was stored for it, by what publishes it (`publish.rs`).
//!
//! So no word is read by one thread while another writes it, but the array as a whole is:
//! its items are atomics, stored and loaded without any order of their own. On the CPUs
//! that we compile for these are plain loads and stores.
//!
//! Limits: a table that epochs out keeps what was freed since from being used again. More
//! than half of the array of that counts as holes, which has an updater build anew, on
//! other pool. The builder keeps its own copy of the words, to compare by (`pool.rs`).
//! Storing is O(len), or O(words) when the pool is full and all moves to a larger one.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Deref;
// Not those of `sync.rs`: kernels load what loom's would hide.
use core::sync::atomic::{AtomicU32, Ordering};

use crate::pool::Pool;
use crate::table::{Shared, Table};

/// A pool of which the tables share the words.
#[derive(Debug)]
pub(crate) struct SharedPool {
    pool: Pool<u32>,
    words: Shared<AtomicU32>,
    /// The oldest first; the last is the one that tables are given now.
    epochs: VecDeque<Epoch>,
    /// How many words are freed and wait.
    waiting: usize,
}

/// The time between two changes in which tables were made.
#[derive(Debug, Default)]
struct Epoch {
    /// By each of those tables.
    pin: Arc<()>,
    /// What they lack of what older ones reach.
    freed: Vec<(usize, usize)>,
}

impl SharedPool {
    pub(crate) fn new() -> Self {
        let words = room(0);
        Self { pool: Pool::new(), words, epochs: VecDeque::from([Epoch::default()]), waiting: 0 }
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

    /// Moves all to pool with room to grow. Tables that are out keep theirs.
    fn relocate(&mut self) {
        let all = self.pool.all();
        self.words = room(all.len());
        copy(all, &self.words);
    }

    /// Counts one user more of the span, as [`Pool::retain`] does.
    pub(crate) fn retain(&mut self, at: usize, len: usize) {
        self.pool.retain(at, len);
    }

    /// Takes one user off the span; says whether it was the last, as [`Pool::release`]
    /// does. The place is used again once no table reaches it.
    pub(crate) fn release(&mut self, at: usize, len: usize) -> bool {
        if !self.pool.forget(at, len) {
            return false;
        }
        // Asked this way, not by a count: what its last holder has read comes before.
        if self.epochs.back_mut().is_none_or(|now| Arc::get_mut(&mut now.pin).is_none()) {
            self.epochs.push_back(Epoch::default());
        }
        match self.epochs.make_contiguous() {
            [_, .., now] => {
                now.freed.push((at, len));
                self.waiting += len;
            }
            // Nobody can look at it.
            _ => self.pool.give(at, len),
        }
        true
    }

    /// Takes back what no table reaches any more, and cuts holes off the end of the array.
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
        if room_for(self.pool.all().len()) * 2 < self.words.len() {
            self.relocate();
        }
    }

    /// Returns one span's words.
    pub(crate) fn get(&self, at: usize, len: usize) -> &[u32] {
        self.pool.get(at, len)
    }

    /// Returns the whole array, holes and all.
    pub(crate) fn all(&self) -> &[u32] {
        self.pool.all()
    }

    /// Counts the distinct spans.
    #[cfg(test)]
    pub(crate) fn spans(&self) -> usize {
        self.pool.spans()
    }

    /// Counts the bytes in holes, and of what waits those that half of the array has no
    /// room for.
    pub(crate) fn holes(&self) -> usize {
        let beyond = self.waiting.saturating_sub(self.pool.all().len() / 2);
        self.pool.holes() + beyond * size_of::<u32>()
    }

    /// Counts the 64-bit words written.
    pub(crate) fn written(&self) -> u64 {
        self.pool.written()
    }

    /// Has a table snapshot here.
    pub(crate) fn freeze(&self) -> PoolSnapshot {
        let pin = self.epochs.back().map(|now| Arc::clone(&now.pin)).unwrap_or_default();
        PoolSnapshot { words: self.words.first(self.pool.all().len()), pin }
    }

    /// Has a table snapshot where it would if it were made now.
    pub(crate) fn refresh(&self, snapshot: &mut PoolSnapshot) {
        *snapshot = self.freeze();
    }
}

/// What a table sees of the pool: all words that it reaches stay as they are.
#[derive(Clone, Debug)]
pub(crate) struct PoolSnapshot {
    words: Shared<AtomicU32>,
    #[expect(dead_code, reason = "it is there to be pin")]
    pin: Arc<()>,
}

impl PoolSnapshot {
    /// Has a table snapshot on words of its own.
    pub(crate) fn alone(words: &[u32]) -> Self {
        let own = Table::collect(words.iter().map(|&word| AtomicU32::new(word)));
        Self { words: Shared::new(own), pin: Arc::default() }
    }

    /// Returns a word.
    #[inline(always)]
    pub(crate) fn word(&self, at: usize) -> u32 {
        self.words[at].load(Ordering::Relaxed)
    }

    /// Copies all words, also those that this table does not reach.
    pub(crate) fn to_vec(&self) -> Vec<u32> {
        self.words.iter().map(|word| word.load(Ordering::Relaxed)).collect()
    }
}

impl Deref for PoolSnapshot {
    type Target = [AtomicU32];

    #[inline(always)]
    fn deref(&self) -> &[AtomicU32] {
        &self.words
    }
}

/// Says how many words to make room for where there are so many.
fn room_for(words: usize) -> usize {
    Table::<AtomicU32>::filling(words.saturating_add(words / 4))
}

/// Makes room.
fn room(words: usize) -> Shared<AtomicU32> {
    Shared::new(Table::collect((0..room_for(words)).map(|_| AtomicU32::new(0))))
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

    /// A table, and what it reached when it was made.
    struct Out {
        snapshot: PoolSnapshot,
        reached: BTreeMap<usize, Vec<u32>>,
    }

    impl Out {
        fn check(&self) {
            for (&at, content) in &self.reached {
                let seen: Vec<u32> =
                    (at..at + content.len()).map(|at| self.snapshot.word(at)).collect();
                assert_eq!(&seen, content, "a span that a table reaches has changed");
            }
        }
    }

    /// Spans of random lengths and content, which no two have alike.
    struct Exercise {
        pool: SharedPool,
        live: BTreeMap<usize, Vec<u32>>,
        state: u64,
        number: u32,
    }

    impl Exercise {
        fn new() -> Self {
            Self { pool: SharedPool::new(), live: BTreeMap::new(), state: 7, number: 0 }
        }

        fn below(&mut self, bound: usize) -> usize {
            self.state ^= self.state << 13;
            self.state ^= self.state >> 7;
            self.state ^= self.state << 17;
            self.state as usize % bound
        }

        fn store(&mut self, len: usize) {
            self.number += 1;
            let content = vec![self.number; len];
            let (at, fresh) = self.pool.intern(&content, 1);
            assert!(fresh);
            self.live.insert(at, content);
        }

        /// Replaces or removes some, as a patch does.
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

        fn out(&self) -> Out {
            Out { snapshot: self.pool.freeze(), reached: self.live.clone() }
        }
    }

    #[test]
    fn what_a_table_reaches_stays_while_it_is_out() {
        let mut exercise = Exercise::new();
        let mut out: Vec<Out> = Vec::new();
        for round in 0..6000 {
            // Growth, so that all moves, and shrinking.
            exercise.change(if round % 2000 < 1000 { 400 } else { 10 });
            match exercise.below(8) {
                0..3 if out.len() < 5 => out.push(exercise.out()),
                3..5 if !out.is_empty() => {
                    let nth = exercise.below(out.len());
                    out.swap_remove(nth);
                }
                5..8 if !out.is_empty() => {
                    let nth = exercise.below(out.len());
                    exercise.pool.refresh(&mut out[nth].snapshot);
                    out[nth].reached = exercise.live.clone();
                }
                _ => {}
            }
            out.iter().for_each(Out::check);
        }
        drop(out);
        let Exercise { mut pool, live, .. } = exercise;
        for (at, content) in live {
            pool.release(at, content.len());
        }
        pool.trim();
        assert_eq!((pool.spans(), pool.all().len(), pool.waiting), (0, 0, 0));
        assert_eq!(pool.words.len(), 0, "room is given back");
    }

    /// Two tables that take turns, as an updater's do: what one change frees is used by the
    /// next but one.
    #[test]
    fn places_come_back_in_two_turns() {
        let mut exercise = Exercise::new();
        (0..1000).for_each(|_| exercise.store(10));
        let (mut idle, mut present) = (exercise.out(), exercise.out());
        let place = exercise.pool.words.as_ptr();
        for _ in 0..5000 {
            let at = *exercise.live.keys().nth(exercise.state as usize % 1000).unwrap();
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
            exercise.below(2);
        }
        assert_eq!(exercise.pool.words.as_ptr(), place, "nothing grows, and nothing moves");
        idle.check();
        present.check();
    }

    #[test]
    fn a_table_that_stays_out_makes_holes_of_what_it_keeps() {
        let mut exercise = Exercise::new();
        (0..100).for_each(|_| exercise.store(10));
        let kept = exercise.out();
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
        assert_eq!(holes[0], 0, "as much as is in use may wait");
        assert!(holes[39] > 0);
        kept.check();
    }
}
