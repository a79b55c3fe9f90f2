//! Publication under loom: all interleavings, and all values that the memory
//! model lets a load return, of a few small histories.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test -p fingerpost-fib --release --test loom
//! ```
//!
//! A reclaimed table is not freed at once but *buried*: its word is overwritten
//! through `with_mut`, and it is kept to the end. A reader that still reads the
//! word is caught twice: loom reports an access that is not ordered against the
//! overwriting, and the reader finds the word of a dead table. (Freed memory
//! would only crash, perhaps.) Loom's own `Arc` reports what is leaked.
#![cfg(loom)]

use fingerpost_fib::{Publisher, Reader};
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;
use std::sync::Arc as StdArc;
use std::sync::atomic::{AtomicUsize as StdAtomicUsize, Ordering::SeqCst};

const DEAD: usize = 99;

/// Counts the tables that exist; not seen by loom.
#[derive(Clone, Default)]
struct Census(StdArc<StdAtomicUsize>);

impl Census {
    fn table(&self, number: usize) -> Table {
        self.0.fetch_add(1, SeqCst);
        Table { number, word: AtomicUsize::new(number), census: self.clone() }
    }

    fn alive(&self) -> usize {
        self.0.load(SeqCst)
    }
}

struct Table {
    number: usize,
    /// An atomic so that loom lets readers share it; written only when buried.
    word: AtomicUsize,
    census: Census,
}

impl Drop for Table {
    fn drop(&mut self) {
        self.census.0.fetch_sub(1, SeqCst);
    }
}

/// Reads the present table as a batch does; returns its number.
fn batch(reader: &mut Reader<Table>) -> usize {
    let table = reader.current();
    assert_eq!(table.word.load(Ordering::Relaxed), table.number, "a dead table is read");
    table.number
}

fn bury(graves: &mut Vec<Box<Table>>, publisher: &mut Publisher<Table>) {
    while let Some(mut table) = publisher.reclaim() {
        assert_eq!(table.number, graves.len(), "tables are not reclaimed in order");
        table.word.with_mut(|word| *word = DEAD);
        graves.push(table);
    }
}

/// Publishes `tables` tables one after the other against `readers`, then checks
/// that every table but the last can be reclaimed once the readers are gone.
///
/// `bound` limits how often one thread may be interrupted, `None` not at all.
fn history(bound: Option<usize>, tables: usize, readers: &'static [fn(Reader<Table>)]) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = bound;
    model.check(move || {
        let census = Census::default();
        let mut publisher = Publisher::new(census.table(0));
        let start = |&read: &fn(Reader<Table>)| {
            let reader = publisher.reader();
            thread::spawn(move || read(reader))
        };
        let threads: Vec<_> = readers.iter().map(start).collect();
        let mut graves = Vec::new();
        for number in 1..=tables {
            publisher.publish(Box::new(census.table(number)));
            bury(&mut graves, &mut publisher);
        }
        for thread in threads {
            thread.join().unwrap();
        }
        bury(&mut graves, &mut publisher);
        assert_eq!((graves.len(), publisher.pending()), (tables, 0));
        assert_eq!(publisher.current().number, tables);
        drop(publisher);
        drop(graves);
        assert_eq!(census.alive(), 0, "a table was not freed");
    });
}

/// Stays online from one batch to the next.
fn busy(mut reader: Reader<Table>) {
    let first = batch(&mut reader);
    assert!(first <= batch(&mut reader), "time went backwards");
}

/// Sleeps between two batches.
fn sleepy(mut reader: Reader<Table>) {
    let first = batch(&mut reader);
    reader.idle();
    assert!(first <= batch(&mut reader), "time went backwards");
}

/// Registers another reader while the writer publishes.
fn doubling(mut reader: Reader<Table>) {
    let mut other = reader.clone();
    let first = batch(&mut reader);
    drop(reader);
    assert!(first <= batch(&mut other), "time went backwards");
}

#[test]
fn one_busy_reader_is_safe() {
    history(None, 2, &[busy]);
}

#[test]
fn one_sleeping_reader_is_safe() {
    history(None, 2, &[sleepy]);
}

#[test]
fn one_cloning_reader_is_safe() {
    history(Some(4), 2, &[doubling]);
}

#[test]
fn two_readers_are_safe() {
    history(Some(3), 2, &[busy, sleepy]);
}

/// The readers outlive the publisher and free what it has left.
#[test]
fn readers_outlive_the_publisher() {
    loom::model(|| {
        let census = Census::default();
        let mut publisher = Publisher::new(census.table(0));
        let reader = publisher.reader();
        let thread = thread::spawn(move || sleepy(reader));
        publisher.publish(Box::new(census.table(1)));
        drop(publisher);
        thread.join().unwrap();
        assert_eq!(census.alive(), 0, "a table was not freed");
    });
}
