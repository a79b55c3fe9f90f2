//! One engine under test: its updater, its readers, and the expected results.

use std::collections::BTreeMap;
use std::rc::Rc;

use fib::engine::linear::Linear;
use fib::{Choice, Engine, Family, Fib, Hop, Prefix, Reader, Rib, Updater};

/// The routes at one commit.
pub(crate) type Routes<A> = BTreeMap<Prefix<A>, Hop>;

/// The lookups after a commit, and the oracle's results.
pub(crate) struct Exam<A: Family> {
    pub(crate) routes: Rc<Routes<A>>,
    /// The addresses of the batch.
    pub(crate) addrs: Vec<A>,
    /// The addresses that are looked up one by one: the borders.
    pub(crate) singly: Vec<A>,
    pub(crate) expected: Vec<Hop>,
}

impl<A: Family> Exam<A> {
    /// Computes the oracle's results.
    pub(crate) fn new(routes: Rc<Routes<A>>, addrs: Vec<A>, singly: Vec<A>) -> Self {
        let expected = answers(&routes, &addrs);
        Self { routes, addrs, singly, expected }
    }
}

/// Returns the oracle's results. For all 65,536 addresses they are filled in by the routes from
/// short to long, which is faster; the result is compared with the oracle at the ends of every
/// route.
fn answers<A: Family>(routes: &Routes<A>, addrs: &[A]) -> Vec<Hop> {
    let oracle = Linear::new(routes.iter().map(|(&prefix, &hop)| (prefix, hop)));
    if addrs.len() <= 1 << 12 || A::BITS > 16 {
        return addrs.iter().map(|&addr| oracle.lookup(addr)).collect();
    }
    let mut canvas = vec![Hop::NONE; 1 << A::BITS];
    let mut shortest_first: Vec<_> = routes.iter().collect();
    shortest_first.sort_by_key(|(prefix, _)| prefix.len());
    for (prefix, hop) in shortest_first {
        canvas[prefix.addr().to_u128() as usize..=prefix.last().to_u128() as usize].fill(*hop);
    }
    for end in routes.keys().flat_map(|prefix| [prefix.addr(), prefix.last()]) {
        assert_eq!(canvas[end.to_u128() as usize], oracle.lookup(end), "the oracle, {end:x?}");
    }
    addrs.iter().map(|addr| canvas[addr.to_u128() as usize]).collect()
}

/// Counters of the work done, so that a test can check that they are not zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Commits that readers have seen.
    pub published: u64,
    /// Commits that waited for a reader.
    pub deferred: u64,
    /// Commits that exceeded a limit.
    pub full: u64,
    /// Fresh builds compared.
    pub rebuilt: u64,
    /// Answers compared.
    pub answers: u64,
    /// Scripts played by a reused engine.
    pub reused: u64,
}

/// An engine that follows a script.
pub(crate) struct Subject<A: Family> {
    choice: Choice,
    name: String,
    updater: Updater<A>,
    reader: Reader<Fib<A>>,
    sleeper: Reader<Fib<A>>,
    /// The routes of the last commit that was published.
    seen: Rc<Routes<A>>,
    /// The routes are more than the engine can hold.
    full: bool,
    /// The bytes of its table without a route.
    empty: usize,
    /// The number of scripts that it has played.
    played: u64,
}

impl<A: Family> Subject<A> {
    pub(crate) fn new(choice: Choice, name: String) -> Self {
        let updater = Updater::new(Rib::new(), choice, 1)
            .unwrap_or_else(|full| panic!("{name}: no route, and {full}"));
        let (reader, sleeper) = (updater.reader(), updater.reader());
        let (seen, empty) = (Rc::default(), updater.fib().footprint());
        Self { choice, name, updater, reader, sleeper, seen, full: false, empty, played: 0 }
    }

    /// The bytes of its table without a route.
    pub(crate) fn empty_bytes(&self) -> usize {
        self.empty
    }

    /// Begins another script; an error names the number of earlier ones.
    pub(crate) fn begin_script(&mut self) {
        self.played += 1;
        let bare = self.name.split(',').next().unwrap_or_default();
        self.name = format!("{bare}, after {} other scripts,", self.played);
    }

    pub(crate) fn announce(&mut self, prefix: Prefix<A>, hop: Hop, before: Option<Hop>) {
        assert_eq!(self.updater.announce(prefix, hop), before, "{}: {prefix}", self.name);
    }

    pub(crate) fn withdraw(&mut self, prefix: Prefix<A>, before: Option<Hop>) {
        assert_eq!(self.updater.withdraw(prefix), before, "{}: {prefix}", self.name);
    }

    pub(crate) fn sleep(&mut self) {
        self.sleeper.current();
    }

    pub(crate) fn wake(&mut self) {
        self.sleeper.idle();
    }

    /// Commits and compares with the oracle.
    pub(crate) fn commit(&mut self, exam: &Exam<A>, tally: &mut Tally) {
        match self.updater.commit() {
            Ok(commit) => {
                self.full = false;
                if commit.published {
                    self.seen = Rc::clone(&exam.routes);
                    tally.published += 1;
                    assert!(!self.updater.is_behind(), "{}: published, and behind", self.name);
                } else {
                    // Two tables are still in use, the current one and the sleeping reader's.
                    tally.deferred += 1;
                }
            }
            Err(_) => {
                self.full = true;
                tally.full += 1;
            }
        }
        let name = &self.name;
        if Rc::ptr_eq(&self.seen, &exam.routes) {
            compare(name, self.reader.current(), exam);
        } else {
            // Readers keep their table, with all its results.
            let old = Rc::clone(&self.seen);
            let exam = Exam::new(old, exam.addrs.clone(), exam.singly.clone());
            compare(name, self.reader.current(), &exam);
        }
        tally.answers += exam.addrs.len() as u64;
    }

    /// Compares a table built from the current routes with the oracle, and its limits with those of
    /// the last commit.
    pub(crate) fn rebuild(&mut self, exam: &Exam<A>, tally: &mut Tally) {
        let fresh = Rib::from_sorted(exam.routes.iter().map(|(&prefix, &hop)| (prefix, hop)));
        match Fib::build(&fresh, self.choice, 1) {
            Ok(fib) => {
                assert!(!self.full, "{}: an update is full, a build is not", self.name);
                compare(&format!("{} rebuilt", self.name), &fib, exam);
                tally.rebuilt += 1;
            }
            Err(full) => assert!(self.full, "{}: {full}, but an update was not", self.name),
        }
    }

    /// Withdraws all routes, and returns whether the table has its initial size again; it may have
    /// been laid out wider permanently.
    pub(crate) fn clear(&mut self, exam: &Exam<A>, tally: &mut Tally) -> bool {
        self.wake();
        let routes: Vec<_> = self.updater.rib().iter().collect();
        for (prefix, hop) in routes {
            assert_eq!(self.updater.withdraw(prefix), Some(hop), "{}: {prefix}", self.name);
        }
        self.reader.current();
        self.commit(exam, tally);
        assert!(!self.full, "{}: no route, and full", self.name);
        assert!(Rc::ptr_eq(&self.seen, &exam.routes), "{}: no reader sleeps", self.name);
        self.updater.fib().footprint() == self.empty
    }
}

/// Compares one table's results with the oracle's.
fn compare<A: Family>(name: &str, fib: &Fib<A>, exam: &Exam<A>) {
    let Exam { routes, addrs, singly, expected } = exam;
    let same = |how: &str, out: &[Hop]| {
        if let Some(at) = out.iter().zip(expected).position(|(got, want)| got != want) {
            let (addr, got, want) = (addrs[at], out[at], expected[at]);
            panic!("{name}: {how} gives {got:?} for {addr:x?}, not {want:?}; {routes:?}");
        }
    };
    // No script has this hop, so no engine returns it by mistake.
    let mut out = vec![Hop(0xdead_beef); addrs.len()];
    fib.lookup_batch(addrs, &mut out);
    same("a batch", &out);
    if let Some(overlapped) = fib.overlapped() {
        // A varying number in flight, from one to more than are useful.
        let flights = 1 + routes.len() % 40;
        out.fill(Hop(0xdead_beef));
        overlapped.group(addrs, &mut out, flights);
        same("a group", &out);
        out.fill(Hop(0xdead_beef));
        overlapped.coroutines(addrs, &mut out, flights);
        same("a coroutine", &out);
    }
    // `addrs` is in order, and holds all of `singly`.
    for (index, &addr) in singly.iter().enumerate() {
        let at = addrs.binary_search(&addr).expect("looked up singly, hence in the batch");
        let (got, want) = (fib.lookup(addr), expected[at]);
        assert_eq!(got, want, "{name}: a lookup of {addr:x?}; {routes:?}");
        if index % 8 == 0 {
            let (got, _) = fib.trace(addr);
            assert_eq!(got, want, "{name}: a trace of {addr:x?}; {routes:?}");
        }
    }
}
