//! Readers: threads that look up at full speed, and notice one change after another.
//!
//! A reader takes the published table, looks a batch of keys up and begins anew. While
//! changes are watched, the first key of each batch is an address at which the next of
//! them will show; the reader whose answer is the new one says at what time it had it:
//!
//! ```text
//!   writer   watch = 7   change 7, commit            sleeps until seen ≥ 7
//!   reader        ├─ batch ─┼─ batch ─┼─ batch ─┤
//!   key 0                old       old       new ─► seen = 7, at this time
//! ```
//!
//! The keys are copied into the batch with the watched one, in rounds with a feed and
//! without, so that both cost the same.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use fib::{Family, Fib, Hop, Reader};

use crate::clock::{Clock, pin};

/// How many addresses are looked up in one table before the next is asked for.
pub(super) const BATCH: usize = 256;

/// A change that can be seen: where, and by which answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sight<A> {
    pub(super) addr: A,
    pub(super) hop: Hop,
}

/// What the writer and its readers share.
pub(super) struct Stage<'a, A> {
    keys: &'a [A],
    sights: &'a [Sight<A>],
    /// The time that `seen` counts from.
    start: Instant,
    /// How many of the sights are to be watched for so far.
    watch: AtomicUsize,
    over: AtomicBool,
    notes: Vec<Note>,
    ready: Barrier,
}

/// What one reader has seen, in a cache line of its own.
#[repr(align(128))]
#[derive(Default)]
struct Note {
    /// How many sights.
    seen: AtomicUsize,
    /// When it saw the last of them, in nanoseconds.
    at: AtomicU64,
}

impl<'a, A: Family> Stage<'a, A> {
    /// Prepares for so many readers and one writer.
    pub(super) fn new(keys: &'a [A], sights: &'a [Sight<A>], readers: usize) -> Self {
        Self {
            keys,
            sights,
            start: Instant::now(),
            watch: AtomicUsize::new(0),
            over: AtomicBool::new(false),
            notes: (0..readers).map(|_| Note::default()).collect(),
            ready: Barrier::new(readers + 1),
        }
    }

    /// Looks up on `cpu` until the stage is over; returns the lookups and the seconds
    /// on the CPU.
    pub(super) fn read(&self, who: usize, cpu: usize, reader: &mut Reader<Fib<A>>) -> (u64, f64) {
        pin(cpu);
        let (mut batch, mut out) = ([A::MIN; BATCH], [Hop::NONE; BATCH]);
        let mut keys = self.keys.chunks_exact(BATCH).cycle();
        let note = &self.notes[who];
        let mut lookups = 0;
        let mut seen = 0;
        self.ready.wait();
        let clock = Clock::start();
        while !self.over.load(Ordering::Relaxed) {
            if let Some(keys) = keys.next() {
                batch.copy_from_slice(keys);
            }
            // Acquire is not needed for the sight, which never changes.
            let sight = match self.watch.load(Ordering::Relaxed) {
                watch if watch > seen => self.sights.get(seen),
                _ => None,
            };
            if let Some(sight) = sight {
                batch[0] = sight.addr;
            }
            reader.current().lookup_batch(&batch, &mut out);
            lookups += BATCH as u64;
            if sight.is_some_and(|sight| out[0] == sight.hop) {
                seen += 1;
                note.at.store(self.now(), Ordering::Relaxed);
                note.seen.store(seen, Ordering::Release);
            }
        }
        let seconds = clock.seconds();
        reader.idle();
        (lookups, seconds)
    }

    /// Waits for all readers to begin.
    pub(super) fn begin(&self) {
        self.ready.wait();
    }

    /// Ends it.
    pub(super) fn end(&self) {
        self.over.store(true, Ordering::Relaxed);
    }

    /// Ends it when what is returned goes, in a panic too.
    pub(super) fn ending(&self) -> impl Drop + '_ {
        struct Ending<'a>(&'a AtomicBool);
        impl Drop for Ending<'_> {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Relaxed);
            }
        }
        Ending(&self.over)
    }

    /// Returns the nanoseconds since the stage was prepared.
    pub(super) fn now(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    /// Has readers watch for the first `count` sights.
    pub(super) fn watch(&self, count: usize) {
        self.watch.store(count, Ordering::Relaxed);
    }

    /// Returns when the first and the last reader saw sight number `count`, once all
    /// have.
    pub(super) fn seen(&self, count: usize) -> Option<(u64, u64)> {
        let mut span = (u64::MAX, 0);
        for note in &self.notes {
            if note.seen.load(Ordering::Acquire) < count {
                return None;
            }
            let at = note.at.load(Ordering::Relaxed);
            span = (span.0.min(at), span.1.max(at));
        }
        Some(span)
    }
}

#[cfg(test)]
mod tests {
    use super::{BATCH, Sight, Stage};
    use fib::{Choice, Hop, Prefix, Rib, Updater};

    #[test]
    fn a_reader_sees_each_change_and_not_before_it_is_made() {
        let prefix = Prefix::truncate(0x0a00_0000u32, 8);
        let sights: Vec<_> =
            (1..=20).map(|hop| Sight { addr: prefix.addr() | 5, hop: Hop(hop) }).collect();
        let keys = vec![0u32; BATCH];
        let mut updater = Updater::new(Rib::new(), Choice::Auto, 1).unwrap();
        let stage = Stage::new(&keys, &sights, 1);
        let mut reader = updater.reader();
        std::thread::scope(|scope| {
            let running = scope.spawn(|| stage.read(0, 0, &mut reader));
            stage.begin();
            for (i, sight) in sights.iter().enumerate() {
                stage.watch(i + 1);
                assert_eq!(stage.seen(i + 1), None);
                let begun = stage.now();
                updater.announce(prefix, sight.hop);
                updater.commit().unwrap();
                let (first, last) = loop {
                    if let Some(span) = stage.seen(i + 1) {
                        break span;
                    }
                    std::thread::yield_now();
                };
                assert!(begun <= first && first == last, "{begun} {first} {last}");
            }
            stage.end();
            assert!(running.join().unwrap().0 >= 20 * BATCH as u64);
        });
    }
}
