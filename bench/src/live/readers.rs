//! Readers: threads that look up at full speed and detect one change after another.
//!
//! A reader takes the published table and looks up a batch of keys, in a loop. During an observation
//! the first key of each batch is an address whose answer the next change modifies; a reader records
//! the time of the first new answer:
//!
//! ```text
//!   writer   observe = 7  change 7, commit           sleeps until seen ≥ 7
//!   reader        ├─ batch ─┼─ batch ─┼─ batch ─┤
//!   key 0                old       old       new ─► seen = 7, at this time
//! ```
//!
//! The keys are copied into the batch with the observed one also in rounds without an observation, so
//! that all rounds have the same cost.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use fib::{Family, Fib, Hop, Reader};

use crate::clock::{Clock, pin};

/// Lookups per reference to the published table.
pub(super) const BATCH: usize = 256;

/// An address whose answer a change modifies, and the new answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Probe<A> {
    pub(super) addr: A,
    pub(super) hop: Hop,
}

/// The state that the writer and its readers share.
pub(super) struct Session<'a, A> {
    keys: &'a [A],
    probes: &'a [Probe<A>],
    /// The time that `seen` counts from.
    start: Instant,
    /// The number of probes that readers observe so far.
    observed: AtomicUsize,
    stop: AtomicBool,
    progress: Vec<ReaderProgress>,
    ready: Barrier,
}

/// The progress of one reader, in its own cache line.
#[repr(align(128))]
#[derive(Default)]
struct ReaderProgress {
    /// The number of probes with the new answer.
    seen: AtomicUsize,
    /// The time of the last of them, in nanoseconds.
    at: AtomicU64,
}

impl<'a, A: Family> Session<'a, A> {
    /// Returns a session for `readers` readers and one writer.
    pub(super) fn new(keys: &'a [A], probes: &'a [Probe<A>], readers: usize) -> Self {
        Self {
            keys,
            probes,
            start: Instant::now(),
            observed: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
            progress: (0..readers).map(|_| ReaderProgress::default()).collect(),
            ready: Barrier::new(readers + 1),
        }
    }

    /// Looks up on `cpu` until the session ends; returns the number of lookups and the CPU time in
    /// seconds.
    pub(super) fn read(
        &self,
        number: usize,
        cpu: usize,
        reader: &mut Reader<Fib<A>>,
    ) -> (u64, f64) {
        pin(cpu);
        let (mut batch, mut out) = ([A::MIN; BATCH], [Hop::NONE; BATCH]);
        let mut keys = self.keys.chunks_exact(BATCH).cycle();
        let progress = &self.progress[number];
        let mut lookups = 0;
        let mut seen = 0;
        self.ready.wait();
        let clock = Clock::start();
        while !self.stop.load(Ordering::Relaxed) {
            if let Some(keys) = keys.next() {
                batch.copy_from_slice(keys);
            }
            // The probes never change, so the load needs no acquire ordering.
            let probe = match self.observed.load(Ordering::Relaxed) {
                observed if observed > seen => self.probes.get(seen),
                _ => None,
            };
            if let Some(probe) = probe {
                batch[0] = probe.addr;
            }
            reader.current().lookup_batch(&batch, &mut out);
            lookups += BATCH as u64;
            if probe.is_some_and(|probe| out[0] == probe.hop) {
                seen += 1;
                progress.at.store(self.now(), Ordering::Relaxed);
                progress.seen.store(seen, Ordering::Release);
            }
        }
        let seconds = clock.seconds();
        reader.idle();
        (lookups, seconds)
    }

    /// Waits until all readers are ready.
    pub(super) fn begin(&self) {
        self.ready.wait();
    }

    /// Ends the session.
    pub(super) fn end(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Returns a guard that ends the session when dropped, also in a panic.
    pub(super) fn end_on_drop(&self) -> impl Drop + '_ {
        struct EndGuard<'a>(&'a AtomicBool);
        impl Drop for EndGuard<'_> {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Relaxed);
            }
        }
        EndGuard(&self.stop)
    }

    /// Returns the nanoseconds since the session was created.
    pub(super) fn now(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    /// Makes readers observe the first `count` probes.
    pub(super) fn observe(&self, count: usize) {
        self.observed.store(count, Ordering::Relaxed);
    }

    /// Returns the times of the new answer of probe `count` at the first and the last reader, once all
    /// have it.
    pub(super) fn seen(&self, count: usize) -> Option<(u64, u64)> {
        let mut span = (u64::MAX, 0);
        for progress in &self.progress {
            if progress.seen.load(Ordering::Acquire) < count {
                return None;
            }
            let at = progress.at.load(Ordering::Relaxed);
            span = (span.0.min(at), span.1.max(at));
        }
        Some(span)
    }
}

#[cfg(test)]
mod tests {
    use super::{BATCH, Probe, Session};
    use fib::{Choice, Hop, Prefix, Rib, Updater};

    #[test]
    fn reader_sees_each_change_only_after_it_is_made() {
        let prefix = Prefix::truncate(0x0a00_0000u32, 8);
        let probes: Vec<_> =
            (1..=20).map(|hop| Probe { addr: prefix.addr() | 5, hop: Hop(hop) }).collect();
        let keys = vec![0u32; BATCH];
        let mut updater = Updater::new(Rib::new(), Choice::Auto, 1).unwrap();
        let session = Session::new(&keys, &probes, 1);
        let mut reader = updater.reader();
        std::thread::scope(|scope| {
            let running = scope.spawn(|| session.read(0, 0, &mut reader));
            session.begin();
            for (i, probe) in probes.iter().enumerate() {
                session.observe(i + 1);
                assert_eq!(session.seen(i + 1), None);
                let start = session.now();
                updater.announce(prefix, probe.hop);
                updater.commit().unwrap();
                let (first, last) = loop {
                    if let Some(span) = session.seen(i + 1) {
                        break span;
                    }
                    std::thread::yield_now();
                };
                assert!(start <= first && first == last, "{start} {first} {last}");
            }
            session.end();
            assert!(running.join().unwrap().0 >= 20 * BATCH as u64);
        });
    }
}
