//! Fifteen minutes of BGP updates within seconds, while programs look up and forward in the same tables: each
//! answer is one of the routes at that moment, and each packet is counted.
//!
//! Needs root (`CAP_BPF`, `CAP_PERFMON`), hence the feature `root-tests`, and the data of `FINGERPOST_DATA`.

mod full;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use feed::{Change, Options, Update};
use fib::{Choice, Hop, Updater};
use fingerpost_xdp::forward::{
    EgressLink, ForwardPath, GroupHash, NextHop, NextHops, OwnSources, SourceCheck, Tags,
};
use fingerpost_xdp::probe::Keys;
use fingerpost_xdp::{KernelTable, Probe, Publication, TableArrays};
use full::{InKernel, SLICE, V4, hop, path, rib};
use port::af_xdp::bpf::asm::Action;
use port::af_xdp::steer::{Extensions, Locals, Steering, SteeringOutcome};

const UPDATES: &str = "updates-20260222.1530-routeviews-bgp4mp_et.mrt.bz2";

/// How much faster than they came the updates are replayed while packets are forwarded.
const SPEED: u32 = 100;

/// Returns the changes to the IPv4 routes, each with its time in microseconds.
fn changes() -> Vec<(u64, Change<u32>)> {
    let mut changes = Vec::new();
    feed::updates(path(UPDATES), &Options::default()).unwrap().replay(|time, update| {
        if let Update::V4(change) = update {
            changes.push((time, change));
        }
    });
    assert!(changes.len() > 10_000, "{} changes", changes.len());
    changes
}

/// The state of a table that programs see at least, and the one that they see at most.
#[derive(Default)]
struct States {
    complete: AtomicUsize,
    begun: AtomicUsize,
}

impl States {
    fn complete(&self) -> usize {
        self.complete.load(Ordering::SeqCst)
    }

    fn begun(&self) -> usize {
        self.begun.load(Ordering::SeqCst)
    }
}

/// The answers to some keys over time: from which state on, and which.
struct History {
    keys: Vec<u32>,
    answers: Vec<Vec<(usize, Hop)>>,
}

impl History {
    /// Draws keys from the prefixes of `changes`, for a table in state 0.
    fn new(changes: &[(u64, Change<u32>)], updater: &Updater<u32>) -> Self {
        let mut rng = fastrand::Rng::with_seed(5);
        let draw = || match changes[rng.usize(..changes.len())].1 {
            Change::Announce { prefix, .. } | Change::Withdraw { prefix } => prefix.last(),
        };
        // Unicast addresses alone: routers forward to no others.
        let keys = std::iter::repeat_with(draw)
            .filter(|key| !matches!(key >> 24, 0 | 127 | 224..) && key >> 16 != 0xa9fe)
            .take(4096)
            .collect();
        let mut history = Self { keys, answers: vec![Vec::new(); 4096] };
        history.append(0, updater);
        history
    }

    /// Appends the answers of `updater`'s table, which is in this state.
    fn append(&mut self, state: usize, updater: &Updater<u32>) {
        let mut now = vec![Hop::NONE; self.keys.len()];
        updater.fib().lookup_batch(&self.keys, &mut now);
        for (answers, hop) in self.answers.iter_mut().zip(now) {
            if answers.last().is_none_or(|&(_, last)| last != hop) {
                answers.push((state, hop));
            }
        }
    }

    /// Returns whether `is` holds for the answer to key `at` in any of the states.
    fn had(&self, at: usize, [first, last]: [usize; 2], is: impl Fn(Hop) -> bool) -> bool {
        let answers = &self.answers[at];
        let after = answers.partition_point(|&(state, _)| state <= first);
        let until = answers.partition_point(|&(state, _)| state <= last);
        answers[after - 1..until].iter().any(|&(_, had)| is(had))
    }

    /// Returns the number of keys whose answers have changed.
    fn changed(&self) -> usize {
        self.answers.iter().filter(|answers| answers.len() > 1).count()
    }
}

/// A table that follows the updates.
struct UpdatedTable {
    updater: Updater<u32>,
    table: KernelTable<u32>,
    history: History,
}

impl UpdatedTable {
    /// Brings the table to the next state. `replace` gives the programs other arrays, if there are such.
    fn apply(
        &mut self,
        changes: &[(u64, Change<u32>)],
        states: &States,
        replace: impl FnOnce(&Arc<TableArrays<u32>>),
    ) {
        for (_, change) in changes {
            match *change {
                Change::Announce { prefix, label } => self.updater.announce(prefix, hop(label)),
                Change::Withdraw { prefix } => self.updater.withdraw(prefix),
            };
        }
        self.updater.commit().unwrap();
        let state = states.begun() + 1;
        self.history.append(state, &self.updater);
        states.begun.store(state, Ordering::SeqCst);
        if self.table.publish(self.updater.fib()).unwrap() == Publication::Replaced {
            replace(self.table.arrays());
        }
        states.complete.store(state, Ordering::SeqCst);
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

/// The answers of one run of the probe, and the states that it may have seen.
struct Seen {
    states: [usize; 2],
    answers: Vec<Hop>,
}

fn sees_each_state(choice: Choice) {
    let base = feed::load(path(V4), &Options::default()).unwrap().v4;
    let changes = changes();
    // Few routes at first, so that the table outgrows its arrays.
    let few = rib(&base.iter().copied().step_by(200).collect::<Vec<_>>());
    let InKernel { updater, table, probe } = InKernel::new(few, choice);
    let history = History::new(&changes, &updater);
    let keys = history.keys.clone();
    let mut updated = UpdatedTable { updater, table, history };
    let states = States::default();
    let present = Mutex::new(Arc::new(probe));
    let (ends, runs) = (AtomicBool::new(false), AtomicUsize::new(0));
    let mut replaced = 0;
    let seen = thread::scope(|scope| {
        let prober = scope.spawn(|| {
            let mut seen = Vec::new();
            while !ends.load(Ordering::SeqCst) {
                let first = states.complete();
                let probe = Arc::clone(&present.lock().unwrap());
                let mut answers = vec![Hop::NONE; keys.len()];
                probe.run(&keys, &mut answers).unwrap();
                seen.push(Seen { states: [first, states.begun()], answers });
                runs.fetch_add(1, Ordering::SeqCst);
            }
            seen
        });
        for changes in changes.chunks(8) {
            updated.apply(changes, &states, |arrays| {
                replaced += 1;
                let keys = Keys::new::<u32>(SLICE as u32).unwrap();
                *present.lock().unwrap() = Arc::new(Probe::new(keys, arrays).unwrap());
            });
            // A fast machine has no more states for a run than a slow one.
            let is_ahead = || runs.load(Ordering::SeqCst) < states.begun() / 50;
            while is_ahead() && !prober.is_finished() {
                thread::yield_now();
            }
        }
        ends.store(true, Ordering::SeqCst);
        prober.join().unwrap()
    });
    let UpdatedTable { updater, table, history } = updated;
    assert!(replaced > 0, "the table has outgrown its arrays");
    assert!(seen.len() > states.begun() / 100, "{} runs of {} states", seen.len(), states.begun());
    for Seen { states, answers } in &seen {
        for (at, &hop) in answers.iter().enumerate() {
            let had = history.had(at, *states, |had| had == hop);
            assert!(had, "{:?} in states {states:?}: {:?}", keys[at], history.answers[at]);
        }
    }
    assert!(history.changed() > 1000, "the answers to {} keys changed", history.changed());
    let probe = Arc::into_inner(present.into_inner().unwrap()).unwrap();
    InKernel { updater, table, probe }.agree_everywhere();
}

const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];

/// The device that packets leave by: the loopback interface, since test runs send nothing.
const EGRESS: EgressLink =
    EgressLink { device: 1, mac: [2, 0, 0, 0, 2, 2], mtu: 1500, tags: Tags::NONE };
const LINKS: [u16; 2] = [0, 1];

/// Returns the MAC of a next hop; every sixteenth is not resolved.
fn neighbor(hop: Hop) -> Option<[u8; 6]> {
    let [_, _, high, low] = hop.0.to_be_bytes();
    (hop != Hop::NONE && !hop.0.is_multiple_of(16)).then_some([2, 0, 1, 0, high, low])
}

/// A frame with a packet of UDP without data.
fn frame(dst: u32) -> Vec<u8> {
    let mut header = vec![0x45, 0, 0, 28, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 9];
    header.extend(dst.to_be_bytes());
    let words = header.as_chunks::<2>().0.iter().map(|word| u32::from(u16::from_be_bytes(*word)));
    let sum: u32 = words.sum();
    let checksum = !((sum & 0xffff) + (sum >> 16)) as u16;
    header[10..12].copy_from_slice(&checksum.to_be_bytes());
    let datagram = [0, 9, 0, 9, 0, 8, 0, 0];
    [&MAC[..], &[2; 6], &[0x08, 0x00], &header, &datagram, &[0; 18]].concat()
}

/// A packet, the next hop that it was forwarded to, and the states that the program may have seen.
struct Packet {
    key: usize,
    states: [usize; 2],
    sent_to: Option<[u8; 6]>,
}

/// The steering program's code for a path.
fn extensions(path: &ForwardPath) -> Extensions {
    Extensions { driver_path: Some(Arc::new(path.clone())), ..Extensions::default() }
}

#[test]
fn packets_are_forwarded_by_a_route_of_that_moment_and_counted() {
    let base = feed::load(path(V4), &Options::default()).unwrap().v4;
    let changes = changes();
    let InKernel { updater, table, .. } = InKernel::new(rib(&base), Choice::Flat);
    let no_routes = InKernel::<u128>::new(rib(&[]), Choice::Flat);
    let history = History::new(&changes, &updater);
    let keys = history.keys.clone();
    let next_hops = NextHops::new().unwrap();
    next_hops.set_link(LINKS[1], Some(EGRESS)).unwrap();
    for hop in (1..=300).map(Hop) {
        next_hops.set_hop(hop, neighbor(hop).map(|mac| NextHop { mac, link: LINKS[1] }));
    }
    let mut path = ForwardPath {
        v4: Arc::clone(table.arrays()),
        v6: Arc::clone(no_routes.table.arrays()),
        next_hops: Arc::new(next_hops),
        own_sources: Arc::new(OwnSources::new().unwrap()),
        link: LINKS[0],
        sources: [SourceCheck::Off; 2],
        group_hash: GroupHash::default(),
    };
    let steering = Steering::for_router(MAC, 1, &Locals::default()).unwrap();
    steering.set_program(steering.load_with(&extensions(&path)).unwrap());
    steering.forward_in_driver([true; 2]).unwrap();

    let mut updated = UpdatedTable { updater, table, history };
    let states = States::default();
    let ends = AtomicBool::new(false);
    let packets = thread::scope(|scope| {
        let sender = scope.spawn(|| {
            let mut rng = fastrand::Rng::with_seed(6);
            let mut packets = Vec::new();
            while !ends.load(Ordering::SeqCst) {
                let key = rng.usize(..keys.len());
                let first = states.complete();
                let run = steering.program().test_run(&frame(keys[key]), 1).unwrap();
                let forwarded = run.retval == Action::Redirect as u32;
                let sent_to = forwarded.then(|| run.output[..6].try_into().unwrap());
                packets.push(Packet { key, states: [first, states.begun()], sent_to });
            }
            packets
        });
        let (start, zero) = (Instant::now(), changes[0].0);
        let mut rest = &changes[..];
        while !rest.is_empty() {
            let now = start.elapsed() * SPEED;
            let due = |(time, _): &(u64, _)| Duration::from_micros(time - zero) <= now;
            let (due, later) = rest.split_at(rest.partition_point(due));
            rest = later;
            updated.apply(due, &states, |arrays| {
                path.v4 = Arc::clone(arrays);
                steering.set_program(steering.load_with(&extensions(&path)).unwrap());
            });
            thread::sleep(Duration::from_millis(1));
        }
        ends.store(true, Ordering::SeqCst);
        sender.join().unwrap()
    });
    let history = updated.history;
    for Packet { key, states, sent_to } in &packets {
        let had = history.had(*key, *states, |hop| neighbor(hop) == *sent_to);
        let answers = &history.answers[*key];
        assert!(had, "{:x} to {sent_to:x?} in states {states:?}: {answers:?}", keys[*key]);
    }
    let forwarded = packets.iter().filter(|packet| packet.sent_to.is_some()).count() as u64;
    let counts = steering.counts().unwrap();
    let all: u64 = SteeringOutcome::ALL.iter().map(|&outcome| counts[outcome]).sum();
    assert_eq!((counts[SteeringOutcome::Forwarded], all), (forwarded, packets.len() as u64));
    assert!(history.changed() > 1000, "the answers to {} keys changed", history.changed());
    assert!(forwarded > 10_000 && forwarded < all, "{forwarded} of {all} packets");
}
