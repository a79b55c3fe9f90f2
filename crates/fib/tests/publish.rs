//! Publication with real threads; `tests/loom.rs` tests small cases exhaustively.
//!
//! Under ThreadSanitizer every access to a table that is not ordered against its reuse is an error,
//! even if the timing hides it. Compile without optimization, so that `tsan.supp` can identify the
//! frames by name:
//!
//! ```text
//! CARGO_PROFILE_DEV_OPT_LEVEL=0 CARGO_PROFILE_DEV_DEBUG=2 \
//! RUSTC_BOOTSTRAP=1 TSAN_OPTIONS="suppressions=tests/tsan.supp" \
//! RUSTFLAGS="--cfg tsan -Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer" \
//!     cargo test -p fingerpost-fib --target x86_64-unknown-linux-gnu --test publish
//! ```
#![cfg(all(feature = "std", not(loom)))]

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fingerpost_fib::{Choice, Hop, Prefix, Publisher, Reader, Rib, Updater};

const WORDS: usize = 64;

/// A table that can check whether it is consistent and not dropped.
struct Table {
    number: u64,
    words: [u64; WORDS],
    /// All words and the number, mixed.
    sum: u64,
    dropped: Arc<AtomicUsize>,
}

impl Table {
    fn new(number: u64, dropped: &Arc<AtomicUsize>) -> Self {
        let mut table = Self { number, words: [0; WORDS], sum: 0, dropped: Arc::clone(dropped) };
        table.write(number);
        table
    }

    fn write(&mut self, number: u64) {
        self.number = number;
        self.words = std::array::from_fn(|at| number.wrapping_mul(0x9e37_79b9) ^ at as u64);
        self.sum = self.mixed();
    }

    fn mixed(&self) -> u64 {
        self.words.iter().fold(self.number, |sum, word| sum.rotate_left(7) ^ word)
    }

    /// Checks that no word is from another table or poisoned; returns the number.
    fn read(&self) -> u64 {
        assert_eq!(self.mixed(), self.sum, "a reader sees a table that is torn or dead");
        self.number
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        self.words = [0xdead_dead_dead_dead; WORDS];
        black_box(&mut self.words);
        self.dropped.fetch_add(1, Ordering::Relaxed);
    }
}

/// The action of a reader between two batches.
#[derive(Clone, Copy)]
enum Habit {
    Online,
    /// Goes idle after every n-th batch.
    Sleepy(u64),
    /// Registers again after every n-th batch.
    Fickle(u64),
}

fn read_until(stop: &AtomicBool, mut reader: Reader<Table>, habit: Habit) -> u64 {
    let (mut batches, mut newest) = (0, 0);
    while !stop.load(Ordering::Relaxed) {
        let table = reader.current();
        // Twice, so that something may happen in between.
        let number = table.read();
        assert_eq!(table.read(), number);
        assert!(newest <= number, "table {number} after table {newest}");
        newest = number;
        batches += 1;
        match habit {
            Habit::Sleepy(every) if batches % every == 0 => {
                reader.idle();
                thread::yield_now();
            }
            Habit::Fickle(every) if batches % every == 0 => reader = reader.clone(),
            _ => {}
        }
    }
    assert!(batches > 0);
    newest
}

/// As in the updater, the oldest retired table is overwritten and published again; if readers still
/// hold it, a new one is made.
#[test]
fn readers_see_consistent_tables_while_the_writer_reuses_them() {
    let stop = Arc::new(AtomicBool::new(false));
    let dropped = Arc::new(AtomicUsize::new(0));
    let mut publisher = Publisher::new(Table::new(0, &dropped));
    let habits =
        [Habit::Online, Habit::Online, Habit::Sleepy(1), Habit::Sleepy(7), Habit::Fickle(5)];
    let threads: Vec<_> = habits
        .into_iter()
        .map(|habit| {
            let (stop, reader) = (Arc::clone(&stop), publisher.reader());
            thread::spawn(move || read_until(&stop, reader, habit))
        })
        .collect();
    let (mut number, mut made, mut reused) = (0, 1, 0);
    let end = Instant::now() + Duration::from_secs(2);
    while Instant::now() < end || reused < 100 {
        number += 1;
        let table = match publisher.reclaim() {
            Some(mut table) => {
                table.write(number);
                reused += 1;
                table
            }
            None => {
                made += 1;
                Box::new(Table::new(number, &dropped))
            }
        };
        publisher.publish(table);
        // Some tables do not come back into use.
        if number % 3 == 0 {
            drop(publisher.reclaim());
        }
        if publisher.pending() > 50 {
            drop(publisher.reclaim_within(Duration::from_secs(60)).expect("a reader stalls"));
        }
    }
    stop.store(true, Ordering::Relaxed);
    for thread in threads {
        assert!(thread.join().unwrap() <= number);
    }
    while publisher.reclaim().is_some() {}
    assert_eq!(publisher.pending(), 0, "the readers are gone and something is still held");
    assert_eq!(publisher.current().read(), number);
    assert_eq!(dropped.load(Ordering::Relaxed), made - 1);
    drop(publisher);
    assert_eq!(dropped.load(Ordering::Relaxed), made);
}

/// Two tables share their words: each batch is answered by one of them, whose words are neither those
/// of the next table nor of another span that has taken the place.
#[test]
fn tables_that_share_words_answer_batches_consistently() {
    // Each of these has routes of its own in every table, all with the table's number; the
    // lengths have chunks of all kinds come and go.
    let prefix = |at: u32, len| Prefix::truncate((10 + at) << 24 | at << 17 | 0x0001_4100, len);
    let prefixes: Vec<Prefix<u32>> = (0..40).map(|at| prefix(at, 17 + at % 12)).collect();
    let addrs: Vec<u32> = prefixes.iter().map(|prefix| prefix.last()).collect();
    for choice in [Choice::Rank, Choice::Flat] {
        let rib = Rib::from_sorted(prefixes.iter().map(|&prefix| (prefix, Hop(1))));
        let mut updater = Updater::new(rib, choice, 1).unwrap();
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            for reader_number in 0..2 {
                let (mut reader, stop, addrs) = (updater.reader(), &stop, &addrs);
                scope.spawn(move || {
                    let (mut out, mut newest) = (vec![Hop::NONE; addrs.len()], Hop(1));
                    while !stop.load(Ordering::Relaxed) {
                        let table = reader.current();
                        table.lookup_batch(addrs, &mut out);
                        let number = table.lookup(addrs[7]);
                        assert!(out.iter().all(|&hop| hop == number), "{number:?}: {out:?}");
                        assert!(newest <= number, "table {number:?} after {newest:?}");
                        newest = number;
                        if reader_number == 1 {
                            reader.idle();
                            thread::yield_now();
                        }
                    }
                });
            }
            let end = Instant::now() + Duration::from_secs(2);
            let (mut number, mut state) = (1, 1u32);
            while Instant::now() < end {
                number += 1;
                for &prefix in &prefixes {
                    // Hops of one, two and four bytes.
                    updater.announce(prefix, Hop(number * number));
                    state = state.wrapping_mul(0x9e37_79b1).wrapping_add(number);
                    let other = Prefix::truncate(prefix.addr() ^ 0x8000 ^ (state & 0x7f00), 25);
                    if state >> 31 == 0 {
                        updater.announce(other, Hop(state >> 20));
                    } else {
                        updater.withdraw(other);
                    }
                }
                updater.commit().unwrap();
            }
            stop.store(true, Ordering::Relaxed);
            assert!(updater.generation() > 20, "{} tables", updater.generation());
        });
    }
}

#[test]
fn reader_delays_only_tables_that_it_may_hold() {
    let mut publisher = Publisher::new(0);
    assert_eq!(publisher.reclaim(), None);
    let mut reader = publisher.reader();
    // Registered, but idle.
    publisher.publish(Box::new(1));
    assert_eq!(publisher.reclaim(), Some(Box::new(0)));

    let held = reader.current();
    publisher.publish(Box::new(2));
    publisher.publish(Box::new(3));
    assert_eq!((publisher.reclaim(), publisher.pending()), (None, 2));
    assert_eq!(publisher.reclaim_within(Duration::from_millis(5)), None);
    assert_eq!(*held, 1);
    assert_eq!(*reader.current(), 3);
    assert_eq!(publisher.reclaim(), Some(Box::new(1)));
    assert_eq!(publisher.reclaim(), Some(Box::new(2)));
    assert_eq!(publisher.reclaim(), None);

    publisher.publish(Box::new(4));
    assert_eq!(publisher.reclaim(), None);
    reader.idle();
    assert_eq!(publisher.reclaim(), Some(Box::new(3)));
    assert_eq!(*reader.current(), 4);

    let mut other = reader.clone();
    assert_eq!(*other.current(), 4);
    publisher.publish(Box::new(5));
    assert_eq!(*reader.current(), 5);
    assert_eq!(publisher.reclaim(), None, "one of two readers is not enough");
    drop(other);
    assert_eq!(publisher.reclaim(), Some(Box::new(4)));
}

#[test]
fn leaked_reader_holds_its_table_for_ever() {
    let mut publisher = Publisher::new(0);
    let mut reader = publisher.reader();
    assert_eq!(*reader.current(), 0);
    std::mem::forget(reader);
    publisher.publish(Box::new(1));
    assert_eq!((publisher.reclaim(), publisher.pending()), (None, 1));
}

/// Waits with relaxed loads: ordering is the publisher's task.
fn wait_for(flag: &AtomicBool) {
    while !flag.load(Ordering::Relaxed) {
        thread::yield_now();
    }
}

#[test]
fn readers_may_outlive_the_publisher() {
    let dropped = Arc::new(AtomicUsize::new(0));
    let mut publisher = Publisher::new(Table::new(0, &dropped));
    let mut reader = publisher.reader();
    let (online, gone) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let thread = thread::spawn({
        let (online, gone) = (Arc::clone(&online), Arc::clone(&gone));
        move || {
            let table = reader.current();
            online.store(true, Ordering::Relaxed);
            wait_for(&gone);
            assert_eq!(table.read(), 0);
            assert_eq!(reader.current().read(), 2);
        }
    });
    wait_for(&online);
    publisher.publish(Box::new(Table::new(1, &dropped)));
    publisher.publish(Box::new(Table::new(2, &dropped)));
    drop(publisher);
    assert_eq!(dropped.load(Ordering::Relaxed), 0);
    gone.store(true, Ordering::Relaxed);
    thread.join().unwrap();
    assert_eq!(dropped.load(Ordering::Relaxed), 3);
}
