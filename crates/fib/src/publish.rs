//! Publication of whole tables by one writer to any number of readers, which never wait.
//!
//! ```text
//! Publisher                  shared                       Reader (one a thread)
//! publish(new) ── swap ──► table │ epoch ◄─── load ───── current()
//!     │ old                      (one line)                  │ store, only when
//!     ▼                                                      ▼ the epoch is new
//! retired: (old, left at 7) … ── reclaim() ── scan ──► slot: 6 | 7 | IDLE
//!                                                     (a line each)
//! ```
//!
//! Quiescent-state-based reclamation (Hart, McKenney, Brown, Walpole,
//! "Performance of memory reclamation for lockless synchronization", J. Parallel
//! Distrib. Comput. 67(12), 2007; RCU in user space). Publication number n swaps
//! in table n and then sets the epoch to n; table n − 1 is *retired, left at n*.
//! Each reader owns a slot: the last epoch it has announced, or `IDLE`. A reader that announces
//! n holds nothing older than table n. It does so at the only point where that is certain: in
//! [`Reader::current`], whose borrow of the reader ends all earlier borrows. A retired table is
//! free once no slot is below the epoch at which it was left; `IDLE` is above every epoch.
//!
//! A reader executes two loads from one line that only a publication writes, and one store to
//! its own line for each publication, without a fence and without a locked instruction. Only
//! the return from `IDLE` needs a fence.
//!
//! **Why no reader sees a freed table.** Let a table, left at n, be reclaimed.
//! The scan read a value of at least n from every slot (acquire).
//!
//! 1. *Tables that a reader held before.* Slots are stored with release, after the last
//!    use of the held table: those uses happen before the table is freed.
//! 2. *Tables that it loads after announcing e ≥ n.* It read e from the epoch (acquire),
//!    which was stored (release) after the swap that brought in table e: the
//!    load of the pointer gives table e or a later one, never one left at n.
//!    A late announcement, or one of an older epoch, only keeps a table longer.
//! 3. *Tables that it loads after `IDLE`.* The writer does swap, fence, read slot; the
//!    reader does store slot, fence, load pointer; both fences are sequentially
//!    consistent, so one comes first. If the reader's, the scan reads its
//!    announcement or something later from that slot, and 1 and 2 hold. If the
//!    writer's, the reader loads the table of that swap, or a later one. Release and
//!    acquire alone would let both read the old value (store buffering).
//! 4. *A reader that registers.* The slot list is under a mutex. A scan either
//!    finds the slot, or was over before the reader got it, and then its swap
//!    happens before the reader's first load.
//!
//! `tests/loom.rs` runs a small case in every order that the memory model allows, and
//! `tests/publish.rs` runs threads, also under ThreadSanitizer.
//!
//! Limits: a reader that stalls between two calls of `current`, or is leaked,
//! prevents the reclamation of every table retired after it: memory grows by one table a
//! publication. [`Publisher::pending`] returns their number; a thread that is about to sleep
//! calls [`Reader::idle`].

#![expect(unsafe_code, reason = "readers hold plain pointers to tables; the proof is above")]

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::fmt;
use core::marker::PhantomData;
use core::ops::Deref;
use std::sync::PoisonError;

use crate::sync::{Arc, AtomicPtr, AtomicU64, Mutex, MutexGuard, Ordering, fence};

/// The value of the slot of a reader that holds no table.
const IDLE: u64 = u64::MAX;

/// Places values that different cores write in different cache lines: pairs of lines, because
/// x86 prefetches the neighboring line and some Arm cores have lines of 128 bytes.
#[repr(align(128))]
struct Line<T>(T);

impl<T> Deref for Line<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

/// The present table and its epoch, which every reader loads.
struct Now<T> {
    /// From `Box::into_raw`, never null; owned by the `Shared` around it.
    table: AtomicPtr<T>,
    /// The number of publications.
    epoch: AtomicU64,
}

struct Retired<T> {
    /// From `Box::into_raw`; owned by the queue, and shared with readers until
    /// all have reached `left`.
    table: *mut T,
    left: u64,
}

// SAFETY: it is a box that readers on other threads may still look into
// (`T: Sync`) and that may be freed or handed out on another thread (`T: Send`).
unsafe impl<T: Send + Sync> Send for Retired<T> {}

struct Registry<T> {
    /// The slot of each reader.
    slots: Vec<Arc<Line<AtomicU64>>>,
    /// In order of retirement, and so of `left`.
    retired: VecDeque<Retired<T>>,
}

struct Shared<T> {
    now: Line<Now<T>>,
    registry: Mutex<Registry<T>>,
    /// Threads share tables, and the last handle frees them: `Send` and `Sync`
    /// as for an `Arc`.
    tables: PhantomData<Arc<T>>,
}

impl<T> Shared<T> {
    /// Locks the registry. No critical section can panic halfway, so that poison is ignored.
    fn registry(&self) -> MutexGuard<'_, Registry<T>> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        let table = self.now.table.load(Ordering::Relaxed);
        let retired: Vec<_> = self.registry().retired.drain(..).map(|old| old.table).collect();
        for table in retired.into_iter().chain([table]) {
            // SAFETY:
            // - each pointer came from `Box::into_raw` and is owned here alone:
            //   `reclaim` takes out of the queue what it hands out.
            // - the publisher and all readers are gone, and with them every
            //   borrow of a table; the `Arc` around us makes that happen before.
            drop(unsafe { Box::from_raw(table) });
        }
    }
}

/// The one writer: holds the present table and those that readers may still use.
///
/// It may be dropped before its readers; they keep the last table.
///
/// # Examples
///
/// ```
/// use fingerpost_fib::Publisher;
/// let mut publisher = Publisher::new("old");
/// let mut reader = publisher.reader();
/// assert_eq!(*reader.current(), "old");
///
/// publisher.publish(Box::new("new"));
/// assert_eq!(publisher.reclaim(), None); // the reader may still look at it
/// assert!(!publisher.passed());
/// assert_eq!(*reader.current(), "new");
/// assert!(publisher.passed());
/// assert_eq!(publisher.reclaim(), Some(Box::new("old")));
/// ```
pub struct Publisher<T> {
    shared: Arc<Shared<T>>,
}

impl<T> Publisher<T> {
    /// Publishes a first table.
    pub fn new(table: T) -> Self {
        let table = AtomicPtr::new(Box::into_raw(Box::new(table)));
        let now = Line(Now { table, epoch: AtomicU64::new(0) });
        let registry = Mutex::new(Registry { slots: Vec::new(), retired: VecDeque::new() });
        Self { shared: Arc::new(Shared { now, registry, tables: PhantomData }) }
    }

    /// Adds a reader, to be sent to the thread that is to read. It is idle.
    pub fn reader(&self) -> Reader<T> {
        Reader::register(&self.shared)
    }

    /// Returns the table that readers are given now.
    pub fn current(&self) -> &T {
        // SAFETY:
        // - only `publish` retires the present table, and only a retired one is
        //   freed; it needs `&mut self`, which this borrow rules out.
        // - the pointer was stored by this publisher, or by `new`.
        unsafe { &*self.shared.now.table.load(Ordering::Relaxed) }
    }

    /// Gives `table` to every reader from its next [`Reader::current`] on.
    ///
    /// The table before it is retired: kept until [`reclaim`](Self::reclaim)
    /// takes it out. Retired tables accumulate if the writer does not reclaim them, or if a
    /// reader never passes.
    ///
    /// # Complexity
    ///
    /// O(1); no reader waits.
    pub fn publish(&mut self, table: Box<T>) {
        let now = &self.shared.now;
        // Release: a reader that loads the pointer sees the table behind it.
        let old = now.table.swap(Box::into_raw(table), Ordering::Release);
        let left = now.epoch.load(Ordering::Relaxed) + 1;
        // Release: a reader that reads this epoch loads this table or a later one.
        now.epoch.store(left, Ordering::Release);
        self.shared.registry().retired.push_back(Retired { table: old, left });
    }

    /// Takes out the oldest retired table, if every reader has left it.
    ///
    /// # Complexity
    ///
    /// O(readers).
    pub fn reclaim(&mut self) -> Option<Box<T>> {
        // Between the swap in `publish` and the scan: point 3 of the proof.
        fence(Ordering::SeqCst);
        let mut registry = self.shared.registry();
        let left = registry.retired.front()?.left;
        // Acquire: what readers did before announcing happens before the free.
        if registry.slots.iter().any(|slot| slot.load(Ordering::Acquire) < left) {
            return None;
        }
        let old = registry.retired.pop_front()?;
        // SAFETY:
        // - the pointer came from `Box::into_raw` and has just left the queue,
        //   its only owner since it was swapped out.
        // - no reader holds it or will: every slot has reached `left`, see the
        //   proof at the head of this file.
        Some(unsafe { Box::from_raw(old.table) })
    }

    /// Does as [`reclaim`](Self::reclaim), but waits up to `patience` for the readers to pass.
    ///
    /// Returns `None` at once if nothing is retired.
    #[cfg(not(loom))]
    pub fn reclaim_within(&mut self, patience: core::time::Duration) -> Option<Box<T>> {
        let begin = std::time::Instant::now();
        while self.pending() > 0 {
            let table = self.reclaim();
            if table.is_some() || begin.elapsed() >= patience {
                return table;
            }
            // A reader passes once a batch, which takes microseconds. Yield instead of spinning:
            // the reader may be waiting for this core.
            std::thread::yield_now();
        }
        None
    }

    /// Returns whether every reader has passed: it holds the present table or none.
    ///
    /// From then on no reader uses an index that only older tables hold, and the writer may
    /// assign another meaning to it.
    ///
    /// # Complexity
    ///
    /// O(readers).
    pub fn passed(&self) -> bool {
        // As in `reclaim`, for the table that was retired last.
        fence(Ordering::SeqCst);
        let present = self.shared.now.epoch.load(Ordering::Relaxed);
        let registry = self.shared.registry();
        registry.slots.iter().all(|slot| slot.load(Ordering::Acquire) >= present)
    }

    /// Returns how many retired tables have not been reclaimed.
    pub fn pending(&self) -> usize {
        self.shared.registry().retired.len()
    }
}

impl<T> fmt::Debug for Publisher<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let epoch = self.shared.now.epoch.load(Ordering::Relaxed);
        f.debug_struct("Publisher")
            .field("epoch", &epoch)
            .field("pending", &self.pending())
            .finish_non_exhaustive()
    }
}

/// A reader of the published table, for one thread at a time.
///
/// The borrow that [`current`](Self::current) returns is the read section: no
/// table is kept across the quiescent point, because that does not compile.
///
/// ```compile_fail,E0499
/// # let publisher = fingerpost_fib::Publisher::new(1);
/// let mut reader = publisher.reader();
/// let before = reader.current();
/// let after = reader.current();
/// assert_eq!(before, after);
/// ```
///
/// ```compile_fail,E0499
/// # let publisher = fingerpost_fib::Publisher::new(1);
/// let mut reader = publisher.reader();
/// let table = reader.current();
/// reader.idle();
/// assert_eq!(*table, 1);
/// ```
///
/// ```compile_fail,E0505
/// # let publisher = fingerpost_fib::Publisher::new(1);
/// let mut reader = publisher.reader();
/// let table = reader.current();
/// drop(reader);
/// assert_eq!(*table, 1);
/// ```
///
/// Only tables that threads may share can be read on another thread:
///
/// ```compile_fail,E0277
/// # let publisher = fingerpost_fib::Publisher::new(core::cell::Cell::new(1));
/// let mut reader = publisher.reader();
/// std::thread::spawn(move || reader.current().set(2));
/// ```
pub struct Reader<T> {
    shared: Arc<Shared<T>>,
    slot: Arc<Line<AtomicU64>>,
    /// The value of the slot; only this reader stores to it.
    seen: u64,
}

impl<T> Reader<T> {
    fn register(shared: &Arc<Shared<T>>) -> Self {
        let slot = Arc::new(Line(AtomicU64::new(IDLE)));
        shared.registry().slots.push(Arc::clone(&slot));
        Self { shared: Arc::clone(shared), slot, seen: IDLE }
    }

    /// Returns the present table; once a batch, not once a packet.
    ///
    /// All earlier borrows have ended: this is the reader's quiescent point.
    #[inline]
    pub fn current(&mut self) -> &T {
        let now = &*self.shared.now;
        // Acquire: the load of the pointer below gives this epoch's table or a
        // later one.
        let epoch = now.epoch.load(Ordering::Acquire);
        if epoch != self.seen {
            // Release: the uses of the table held so far happen before.
            self.slot.store(epoch, Ordering::Release);
            if self.seen == IDLE {
                // Point 3 of the proof. From one epoch to the next there is no
                // need: while the writer still reads the older announcement, it
                // frees less.
                fence(Ordering::SeqCst);
            }
            self.seen = epoch;
        }
        let table = now.table.load(Ordering::Acquire);
        // SAFETY:
        // - never null: it is what `new` or `publish` stored.
        // - it is not older than the table of epoch `seen`, which the slot
        //   announces; so it is not freed before this reader stores to the slot
        //   again (proof above), for which the borrow of `self` must have ended.
        unsafe { &*table }
    }

    /// Holds no table until the next [`current`](Self::current), so that a thread that sleeps
    /// does not delay reclamation.
    pub fn idle(&mut self) {
        self.seen = IDLE;
        // Release: the uses of the table held so far happen before.
        self.slot.store(IDLE, Ordering::Release);
    }
}

impl<T> Clone for Reader<T> {
    /// Adds another reader of the same publisher, idle at first.
    fn clone(&self) -> Self {
        Self::register(&self.shared)
    }
}

impl<T> fmt::Debug for Reader<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seen = (self.seen != IDLE).then_some(self.seen);
        f.debug_struct("Reader").field("seen", &seen).finish_non_exhaustive()
    }
}

impl<T> Drop for Reader<T> {
    fn drop(&mut self) {
        // The mutex orders the uses of the last table before any later scan.
        self.shared.registry().slots.retain(|slot| !Arc::ptr_eq(slot, &self.slot));
    }
}
