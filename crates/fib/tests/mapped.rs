//! Tables whose chunks lie in files: equal answers, the same words in any mapping, growth into a larger
//! file, and ordinary memory where no file can be had.

#![cfg(target_os = "linux")]

use std::any::Any;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use fingerpost_fib::engine::rank::Flat;
use fingerpost_fib::{
    Addr, Choice, Family, Fib, Hop, MappedWords, PoolSnapshot, Prefix, Rib, Updater, WordFile,
    WordFiles,
};

/// A file without a name.
struct Unnamed(File);

impl AsFd for Unnamed {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl WordFile for Unnamed {}

/// Creates files, or refuses to.
#[derive(Default)]
struct Files {
    created: AtomicUsize,
    refuses: AtomicBool,
    /// The sizes asked for.
    words: Mutex<Vec<usize>>,
}

impl WordFiles for Files {
    fn create(&self, words: usize) -> io::Result<Arc<dyn WordFile>> {
        if self.refuses.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        let number = self.created.fetch_add(1, Ordering::Relaxed);
        self.words.lock().unwrap().push(words);
        let name = format!("fingerpost-words-{}-{number}-{self:p}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let file = File::options().read(true).write(true).create_new(true).open(&path)?;
        std::fs::remove_file(path)?;
        file.set_len(4 * words as u64)?;
        Ok(Arc::new(Unnamed(file)))
    }
}

fn chunks<A: Family>(fib: &Fib<A>) -> PoolSnapshot {
    let engine: &dyn Any = fib.engine();
    engine.downcast_ref::<Flat<A>>().expect("the engine is flat").chunks().clone()
}

/// A prefix among few upper bits, so that changes meet.
fn prefix<A: Addr>(rng: &mut fastrand::Rng) -> Prefix<A> {
    let upper = 0x0a00 + rng.u128(..3);
    let addr = (upper << 112 | rng.u128(..) >> 16) >> (128 - A::BITS);
    Prefix::truncate(A::from_u128(addr), rng.u32(8..=A::BITS))
}

fn agree<A: Family>(fib: &Fib<A>, rib: &Rib<A>, rng: &mut fastrand::Rng) {
    for _ in 0..300 {
        let prefix = prefix::<A>(rng);
        for addr in [prefix.addr(), prefix.last()] {
            let want = rib.longest(addr).map_or(Hop::NONE, |(_, hop)| hop);
            assert_eq!(fib.lookup(addr), want, "{addr:?}");
        }
    }
}

fn follows_changes<A: Family>(seed: u64) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let files = Arc::new(Files::default());
    let mut updater = Updater::<A>::new_in(Rib::new(), Choice::Flat, 1, files.clone()).unwrap();
    let mut routes = Vec::new();
    for round in 0..400 {
        for _ in 0..rng.usize(1..40) {
            if round < 300 && (routes.len() < 50 || rng.u8(..) > 60) {
                let prefix = prefix::<A>(&mut rng);
                updater.announce(prefix, Hop(1 + rng.u32(..300)));
                routes.push(prefix);
            } else if !routes.is_empty() {
                let nth = rng.usize(..routes.len());
                updater.withdraw(routes.swap_remove(nth));
            }
        }
        assert!(updater.commit().unwrap().published);
        agree(updater.fib(), updater.rib(), &mut rng);
        let chunks = chunks(updater.fib());
        let mapping = chunks.mapping().expect("the words are in a file");
        let second = MappedWords::new(Arc::clone(mapping.file()), chunks.len()).unwrap();
        for (ours, theirs) in chunks.iter().zip(&second[..]) {
            assert_eq!(ours.load(Ordering::Relaxed), theirs.load(Ordering::Relaxed));
        }
    }
    let words = files.words.lock().unwrap();
    assert!(words.len() > 2, "the table has outgrown a file: {words:?}");
    assert!(words.iter().all(|&words| words >= 1024), "{words:?}");
}

#[test]
fn table_in_files_follows_changes_of_ipv4() {
    follows_changes::<u32>(1);
}

#[test]
fn table_in_files_follows_changes_of_ipv6() {
    follows_changes::<u128>(2);
}

#[test]
fn words_stay_in_memory_while_no_file_can_be_had() {
    let mut rng = fastrand::Rng::with_seed(3);
    let files = Arc::new(Files::default());
    files.refuses.store(true, Ordering::Relaxed);
    let mut updater = Updater::<u32>::new_in(Rib::new(), Choice::Flat, 1, files.clone()).unwrap();
    let mut grow = |updater: &mut Updater<u32>| {
        for _ in 0..3000 {
            updater.announce(prefix(&mut rng), Hop(1 + rng.u32(..300)));
        }
        updater.commit().unwrap();
        agree(updater.fib(), updater.rib(), &mut rng);
    };
    grow(&mut updater);
    assert!(chunks(updater.fib()).mapping().is_none());
    files.refuses.store(false, Ordering::Relaxed);
    grow(&mut updater);
    assert!(chunks(updater.fib()).mapping().is_some(), "growth moves the words into a file");
    files.refuses.store(true, Ordering::Relaxed);
    (0..4).for_each(|_| grow(&mut updater));
    assert!(chunks(updater.fib()).mapping().is_none());
}

#[test]
fn mapping_of_no_words_is_refused() {
    let file = Files::default().create(1024).unwrap();
    assert!(MappedWords::new(Arc::clone(&file), 0).is_err());
    assert!(MappedWords::new(Arc::clone(&file), usize::MAX / 2).is_err());
    assert!(MappedWords::new(file, 1024).is_ok());
}
