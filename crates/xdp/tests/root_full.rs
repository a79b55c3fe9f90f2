//! The full Internet tables in the kernel: all borders of routes and 2^24 random addresses, three tables at
//! once, and fifteen minutes of updates within seconds while programs look up.
//!
//! Needs root (`CAP_BPF`), hence the feature `root-tests`, and the data of `FINGERPOST_DATA`.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use feed::{Change, Label, Options, Update};
use fib::{Addr, Choice, Family, Hop, Prefix, Rib, Updater};
use fingerpost_xdp::probe::Keys;
use fingerpost_xdp::{BpfArrays, KernelTable, Probe, Publication};

const V4: &str = "ipv4-20260730-routeviews-origin.dat.gz";
const V6: &str = "ipv6-20260730-routeviews-origin.dat.gz";
const UPDATES: &str = "updates-20260222.1530-routeviews-bgp4mp_et.mrt.bz2";

/// The addresses of one run.
const SLICE: usize = 1 << 20;

fn path(name: &str) -> PathBuf {
    let default = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data");
    let folder = std::env::var_os("FINGERPOST_DATA").map_or(default.into(), PathBuf::from);
    let path = folder.join(name);
    assert!(path.exists(), "{} is missing: set FINGERPOST_DATA to the data", path.display());
    path
}

fn hop(label: Label) -> Hop {
    Hop(1 + (label.0.wrapping_mul(0x9e37_79b9) >> 7) % 300)
}

fn rib<A: Addr>(routes: &[(Prefix<A>, Label)]) -> Rib<A> {
    Rib::from_sorted(routes.iter().map(|&(prefix, label)| (prefix, hop(label))))
}

/// A table in the kernel, and a program that looks up in it.
struct InKernel<A: Family> {
    updater: Updater<A>,
    table: KernelTable<A>,
    probe: Probe,
}

impl<A: Family> InKernel<A> {
    fn new(rib: Rib<A>, choice: Choice) -> Self {
        let files = BpfArrays::new("chunks");
        let updater = Updater::new_in(rib, choice, 2, files.clone()).unwrap();
        let table = KernelTable::new(&files, updater.fib()).unwrap();
        let keys = Keys::new::<A>(SLICE as u32).unwrap();
        let begin = Instant::now();
        let probe = Probe::new(keys, table.arrays()).unwrap();
        assert!(
            begin.elapsed() < Duration::from_secs(2),
            "the verifier took {:?}",
            begin.elapsed()
        );
        Self { updater, table, probe }
    }

    /// Compares the kernel's answers to all of `addrs` with the routes, of which this process's table
    /// is a stand-in where `exact` is false.
    fn agree(&self, addrs: &[A], exact: bool) {
        let (mut answers, mut want) = (vec![Hop::NONE; SLICE], vec![Hop::NONE; SLICE]);
        for addrs in addrs.chunks(SLICE) {
            let (answers, want) = (&mut answers[..addrs.len()], &mut want[..addrs.len()]);
            self.probe.run(addrs, answers).unwrap();
            if exact {
                let longest = |&addr| self.updater.rib().longest(addr);
                let hops = addrs.iter().map(|addr| longest(addr).map_or(Hop::NONE, |(_, hop)| hop));
                want.iter_mut().zip(hops).for_each(|(want, hop)| *want = hop);
            } else {
                self.updater.fib().lookup_batch(addrs, want);
            }
            if let Some(at) = answers.iter().zip(&*want).position(|(is, want)| is != want) {
                panic!("{:?} gives {:?}, not {:?}", addrs[at], answers[at], want[at]);
            }
        }
    }

    fn agree_everywhere(&self) {
        let rib = self.updater.rib();
        let mut addrs: Vec<A> = Vec::with_capacity(4 * rib.len());
        let within = u128::MAX >> (128 - A::BITS);
        for (prefix, _) in rib {
            let (first, last) = (prefix.addr().to_u128(), prefix.last().to_u128());
            let around = [first.wrapping_sub(1), first, last, last.wrapping_add(1)];
            addrs.extend(around.map(|addr| A::from_u128(addr & within)));
        }
        self.agree(&addrs, true);
        let mut rng = fastrand::Rng::with_seed(24);
        let routes: Vec<Prefix<A>> = rib.iter().map(|(prefix, _)| prefix).collect();
        for _ in 0..(1 << 24) / SLICE {
            addrs.clear();
            for i in 0..SLICE {
                let random = rng.u128(..) >> (128 - A::BITS);
                addrs.push(if i % 2 == 0 {
                    A::from_u128(random)
                } else {
                    // Within a route.
                    let prefix = routes[rng.usize(..routes.len())];
                    let host = within.checked_shr(prefix.len()).unwrap_or(0);
                    A::from_u128(prefix.addr().to_u128() | random & host)
                });
            }
            self.agree(&addrs, false);
        }
    }
}

#[test]
fn three_full_tables_in_the_kernel_answer_as_the_routes() {
    let v4 = feed::load(path(V4), &Options::default()).unwrap().v4;
    let v6 = feed::load(path(V6), &Options::default()).unwrap().v6;
    // A table of a VRF: every third route.
    let vrf: Vec<_> = v4.iter().copied().step_by(3).collect();
    let v6 = InKernel::new(rib(&v6), Choice::Flat);
    let (v4, vrf) = (InKernel::new(rib(&v4), Choice::Flat), InKernel::new(rib(&vrf), Choice::Rank));
    assert!(v4.updater.rib().len() > 1_100_000 && v6.updater.rib().len() > 250_000);
    v4.agree_everywhere();
    vrf.agree_everywhere();
    v6.agree_everywhere();
}

/// The answers of one run of the probe.
struct Seen {
    /// The last state that was complete before the run, and the last that had begun after it.
    states: (usize, usize),
    answers: Vec<Hop>,
}

/// The answers to some keys over time: from which state on, and which.
struct History<A> {
    keys: Vec<A>,
    answers: Vec<Vec<(usize, Hop)>>,
}

impl<A: Family> History<A> {
    /// Appends the answers of `updater`'s table, which is of number `state`.
    fn append(&mut self, state: usize, updater: &Updater<A>) {
        let mut now = vec![Hop::NONE; self.keys.len()];
        updater.fib().lookup_batch(&self.keys, &mut now);
        for (answers, hop) in self.answers.iter_mut().zip(now) {
            if answers.last().is_none_or(|&(_, last)| last != hop) {
                answers.push((state, hop));
            }
        }
    }

    /// Returns whether `hop` was the answer to key `at` in any of the states.
    fn had(&self, at: usize, (first, last): (usize, usize), hop: Hop) -> bool {
        let answers = &self.answers[at];
        let after = answers.partition_point(|&(state, _)| state <= first);
        let until = answers.partition_point(|&(state, _)| state <= last);
        answers[after - 1..until].iter().any(|&(_, had)| had == hop)
    }
}

#[test]
fn programs_see_each_state_of_a_stream_and_no_other() {
    sees_each_state(Choice::Flat);
}

#[test]
fn programs_see_each_state_of_a_stream_by_rank() {
    sees_each_state(Choice::Rank);
}

fn sees_each_state(choice: Choice) {
    let base = feed::load(path(V4), &Options::default()).unwrap().v4;
    let stream = feed::updates(path(UPDATES), &Options::default()).unwrap();
    let mut changes = Vec::new();
    stream.replay(|_, update| {
        if let Update::V4(change) = update {
            changes.push(change);
        }
    });
    assert!(changes.len() > 10_000, "{} changes", changes.len());
    // Few routes at first, so that the table outgrows its arrays.
    let few = rib(&base.iter().copied().step_by(200).collect::<Vec<_>>());
    let InKernel { mut updater, mut table, probe } = InKernel::new(few, choice);
    let mut rng = fastrand::Rng::with_seed(5);
    let keys = (0..4096)
        .map(|_| match changes[rng.usize(..changes.len())] {
            Change::Announce { prefix, .. } | Change::Withdraw { prefix } => prefix.last(),
        })
        .collect();
    let mut history = History { keys, answers: vec![Vec::new(); 4096] };
    history.append(0, &updater);
    let keys = history.keys.clone();
    // The states that programs see at least, and at most.
    let (complete, begun) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let present = Mutex::new(Arc::new(probe));
    let ends = AtomicBool::new(false);
    let mut replaced = 0;
    let seen = thread::scope(|scope| {
        let prober = scope.spawn(|| {
            let mut seen = Vec::new();
            while !ends.load(Ordering::SeqCst) {
                let first = complete.load(Ordering::SeqCst);
                let probe = Arc::clone(&present.lock().unwrap());
                let mut answers = vec![Hop::NONE; keys.len()];
                probe.run(&keys, &mut answers).unwrap();
                seen.push(Seen { states: (first, begun.load(Ordering::SeqCst)), answers });
            }
            seen
        });
        for (number, changes) in changes.chunks(8).enumerate() {
            for change in changes {
                match *change {
                    Change::Announce { prefix, label } => updater.announce(prefix, hop(label)),
                    Change::Withdraw { prefix } => updater.withdraw(prefix),
                };
            }
            assert!(updater.commit().unwrap().published);
            let state = number + 1;
            history.append(state, &updater);
            begun.store(state, Ordering::SeqCst);
            if table.publish(updater.fib()).unwrap() == Publication::Replaced {
                replaced += 1;
                let keys = Keys::new::<u32>(SLICE as u32).unwrap();
                *present.lock().unwrap() = Arc::new(Probe::new(keys, table.arrays()).unwrap());
            }
            complete.store(state, Ordering::SeqCst);
        }
        ends.store(true, Ordering::SeqCst);
        prober.join().unwrap()
    });
    let states = begun.load(Ordering::SeqCst);
    assert!(replaced > 0, "the table has outgrown its arrays");
    assert!(seen.len() > states / 100, "{} runs during {states} states", seen.len());
    for Seen { states, answers } in &seen {
        for (at, &hop) in answers.iter().enumerate() {
            let had = history.had(at, *states, hop);
            assert!(had, "{:?} in states {states:?}: {:?}", keys[at], history.answers[at]);
        }
    }
    let changed = history.answers.iter().filter(|answers| answers.len() > 1).count();
    assert!(changed > 1000, "the answers to {changed} keys changed");
    let probe = present.into_inner().unwrap();
    let probe = Arc::into_inner(probe).unwrap();
    InKernel { updater, table, probe }.agree_everywhere();
}
