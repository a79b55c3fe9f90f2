//! Block lists in the kernel: the verdict on each frame, and its count, are those of a scan of all lists.
//!
//! Needs root (`CAP_BPF`), hence the feature `root-tests`.

mod full;

use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use feed::Options;
use fib::{Addr, Prefix};
use fingerpost_xdp::block::blocked::{ALLOWED, BLOCKED, BlockedLookup, is_blocked};
use fingerpost_xdp::block::count::Count;
use fingerpost_xdp::block::filter::Counts;
use fingerpost_xdp::block::tables::ListTables;
use fingerpost_xdp::block::watch::MAX_WATCHES;
use fingerpost_xdp::{Blocker, ListAction, Publication};
use port::af_xdp::bpf::Program;
use port::af_xdp::bpf::asm::Action;
use port::af_xdp::steer::{
    BlockedSources, EarlyDropConfig, Extensions, IngressFilter, Locals, Steering, SteeringOutcome,
};

const PASS: u32 = Action::Pass as u32;
const DROP: u32 = Action::Drop as u32;

/// A frame with this source, and as many tags.
fn frame(source: Source, tags: usize) -> Vec<u8> {
    let mut frame = vec![2; 12];
    for tag in 0..tags {
        frame.extend(if tag == 0 && tags == 2 { [0x88, 0xa8] } else { [0x81, 0x00] });
        frame.extend([0, 7]);
    }
    match source {
        Source::V4(addr) => {
            frame.extend([0x08, 0x00, 0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0]);
            frame.extend(addr.to_be_bytes());
            frame.extend([203, 0, 113, 1]);
        }
        Source::V6(addr) => {
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 6, 17, 64]);
            frame.extend(addr.to_be_bytes());
            frame.extend([0x20; 16]);
        }
    }
    frame.extend([0; 26]);
    frame
}

#[derive(Clone, Copy, Debug)]
enum Source {
    V4(u32),
    V6(u128),
}

/// A list of both families.
#[derive(Clone, Default)]
struct List {
    v4: Vec<Prefix<u32>>,
    v6: Vec<Prefix<u128>>,
}

impl List {
    fn contains(&self, source: Source) -> bool {
        match source {
            Source::V4(addr) => self.v4.iter().any(|prefix| prefix.contains(addr)),
            Source::V6(addr) => self.v6.iter().any(|prefix| prefix.contains(addr)),
        }
    }
}

/// A prefix among few upper bits, so that prefixes are nested.
fn prefix<A: Addr>(rng: &mut fastrand::Rng) -> Prefix<A> {
    let upper = 0x0a00 + rng.u128(..2);
    let addr = (upper << 112 | rng.u128(..) >> 16) >> (128 - A::BITS);
    Prefix::truncate(A::from_u128(addr), rng.u32(8..=A::BITS))
}

/// The lists, the same in a program, and what its counters must be.
struct Model {
    actions: Vec<ListAction>,
    lists: Vec<List>,
    blocker: Blocker,
    program: Program,
    expected: Counts,
}

impl Model {
    fn new(actions: &[ListAction]) -> Self {
        let lists = vec![List::default(); actions.len()];
        let counts = vec![Count::default(); actions.len()];
        let expected = Counts { lists: counts, ..Counts::default() };
        let blocker = Blocker::new(actions).unwrap();
        let program = blocker.load().unwrap();
        Self { actions: actions.to_vec(), lists, blocker, program, expected }
    }

    /// Shows the changes to the program.
    fn commit(&mut self) -> Publication {
        let publication = self.blocker.commit().unwrap();
        if publication == Publication::Replaced {
            self.program = self.blocker.load().unwrap();
        }
        publication
    }

    /// Runs the program on a frame and compares the verdict with the scan.
    fn check(&mut self, source: Source, tags: usize) {
        let first = self.lists.iter().position(|list| list.contains(source));
        let frame = frame(source, tags);
        let run = self.program.test_run(&frame, 1).unwrap();
        let drops = first.is_some_and(|list| self.actions[list] == ListAction::Drop);
        assert_eq!(run.retval, if drops { DROP } else { PASS }, "{source:?} in {first:?}");
        assert_eq!(run.output, frame, "the frame is not changed");
        let count = match first {
            Some(list) => &mut self.expected.lists[list],
            None => &mut self.expected.not_listed,
        };
        count.packets += 1;
        count.bytes += frame.len() as u64;
    }

    fn check_counts(&self) {
        assert_eq!(self.blocker.counts().unwrap(), self.expected);
    }
}

#[test]
fn verdicts_and_counts_are_those_of_a_scan() {
    use ListAction::{Drop, Pass};
    let mut rng = fastrand::Rng::with_seed(30);
    let mut model = Model::new(&[Pass, Drop, Drop, Pass, Drop]);
    let mut replaced = 0;
    for _ in 0..60 {
        for _ in 0..rng.usize(1..20) {
            let nth = rng.usize(..5);
            let list = &mut model.lists[nth];
            if rng.u8(..5) == 0 {
                list.v4 = (0..rng.usize(..60)).map(|_| prefix(&mut rng)).collect();
                list.v6 = (0..rng.usize(..60)).map(|_| prefix(&mut rng)).collect();
                model.blocker.replace(nth, &list.v4, &list.v6);
            } else {
                let (v4, v6) = (prefix(&mut rng), prefix(&mut rng));
                model.blocker.set_v4(nth, v4, true);
                model.blocker.set_v6(nth, v6, true);
                list.v4.push(v4);
                list.v6.push(v6);
                if rng.bool() {
                    let gone = list.v4[rng.usize(..list.v4.len())];
                    assert!(model.blocker.set_v4(nth, gone, false));
                    assert!(!model.blocker.set_v4(nth, gone, false));
                    list.v4.retain(|prefix| *prefix != gone);
                }
            }
        }
        replaced += u32::from(model.commit() == Publication::Replaced);
        for _ in 0..60 {
            let tags = rng.usize(..3);
            model.check(Source::V4(prefix::<u32>(&mut rng).last()), tags);
            model.check(Source::V6(prefix::<u128>(&mut rng).addr()), tags);
        }
        model.check(Source::V4(rng.u32(..)), 0);
        model.check_counts();
    }
    assert!(replaced > 0, "the tables have outgrown their arrays");
}

#[test]
fn other_protocols_and_short_headers_pass() {
    let mut model = Model::new(&[ListAction::Drop]);
    let all = ("0.0.0.0/0".parse().unwrap(), "::/0".parse().unwrap());
    model.blocker.replace(0, &[all.0], &[all.1]);
    model.commit();
    let (v4, v6) = (Source::V4(1), Source::V6(1));
    let mut arp = frame(v4, 0);
    arp[12..14].copy_from_slice(&[0x08, 0x06]);
    let three_tags = [&frame(v4, 2)[..12], &[0x81, 0, 0, 7], &frame(v4, 2)[12..]].concat();
    let short = |source, tags, end: usize| frame(source, tags)[..14 + 4 * tags + end].to_vec();
    let others =
        [arp, three_tags, short(v4, 0, 19), short(v4, 2, 19), short(v6, 0, 39), short(v6, 1, 39)];
    for frame in &others {
        let run = model.program.test_run(frame, 1).unwrap();
        assert_eq!(run.retval, PASS, "{frame:x?}");
    }
    for frame in [short(v4, 0, 20), short(v6, 0, 40), short(v6, 2, 40)] {
        assert_eq!(model.program.test_run(&frame, 1).unwrap().retval, DROP);
    }
    let counts = model.blocker.counts().unwrap();
    assert_eq!((counts.others.packets, counts.lists[0].packets), (others.len() as u64, 3));
    assert_eq!(counts.others.bytes, others.iter().map(|frame| frame.len() as u64).sum::<u64>());
}

#[test]
fn thirty_lists_are_the_most() {
    let mut model = Model::new(&[ListAction::Drop; 30]);
    for nth in 0..30u32 {
        let prefix = Prefix::truncate(0x0a00_0000 + (nth << 8), 24);
        model.lists[nth as usize].v4.push(prefix);
        model.blocker.set_v4(nth as usize, prefix, true);
    }
    model.commit();
    (0..32).for_each(|nth| model.check(Source::V4(0x0a00_0001 + (nth << 8)), 0));
    model.check_counts();
    assert!(Blocker::new(&[ListAction::Drop; 31]).unwrap_err().to_string().contains("at most 30"));
}

/// As a steering program's first part, the filter gives the same verdicts and counts, also after it has other tables.
#[test]
fn filter_in_a_steering_program_decides_as_the_scan() {
    use ListAction::{Drop, Pass};
    let mut rng = fastrand::Rng::with_seed(31);
    let mut model = Model::new(&[Pass, Drop, Drop]);
    let steering = Steering::for_router([2; 6], 1, &Locals::default()).unwrap();
    let (mut dropped, mut bytes) = (0, 0);
    let mut load = true;
    for round in 0..40 {
        let (v4, v6) = (prefix(&mut rng), prefix(&mut rng));
        let nth = rng.usize(..3);
        model.blocker.set_v4(nth, v4, true);
        model.blocker.set_v6(nth, v6, true);
        model.lists[nth].v4.push(v4);
        model.lists[nth].v6.push(v6);
        load |= model.commit() == Publication::Replaced;
        if std::mem::take(&mut load) {
            let filter: Arc<dyn IngressFilter> = model.blocker.filter().clone();
            let extensions = Extensions { filter: Some(filter), ..Extensions::default() };
            steering.set_program(steering.load_with(&extensions).unwrap());
        }
        let observes = round % 8 == 7;
        steering.observe(observes).unwrap();
        for _ in 0..60 {
            let source = match rng.bool() {
                true => Source::V4(prefix::<u32>(&mut rng).last()),
                false => Source::V6(prefix::<u128>(&mut rng).addr()),
            };
            let frame = frame(source, rng.usize(..3));
            let first = model.lists.iter().position(|list| list.contains(source));
            let drops = !observes && first.is_some_and(|list| model.actions[list] == Drop);
            let run = steering.program().test_run(&frame, 1).unwrap();
            assert_eq!(run.retval == DROP, drops, "{source:?} in {first:?}");
            dropped += u64::from(drops);
            bytes += if drops { frame.len() as u64 } else { 0 };
            if !observes {
                let counts = &mut model.expected;
                let count = first.map(|list| &mut counts.lists[list]);
                let count = count.unwrap_or(&mut counts.not_listed);
                count.packets += 1;
                count.bytes += frame.len() as u64;
            }
        }
        model.check_counts();
        assert_eq!(steering.counts().unwrap()[SteeringOutcome::Blocked], dropped);
        assert_eq!(steering.blocked_bytes().unwrap(), bytes);
        assert_eq!(
            steering.counts().unwrap().iter().map(|(_, n)| n).sum::<u64>(),
            (round + 1) * 60
        );
    }
    assert!(dropped > 100, "{dropped}");
}

/// A list for some destinations decides about a packet with one of these only, in the program and in this process.
#[test]
fn pairs_of_sources_and_destinations_decide_as_a_scan() {
    use ListAction::{Drop, Pass};
    let mut rng = fastrand::Rng::with_seed(33);
    let actions = [Pass, Drop, Pass, Drop, Drop];
    let restricted = 0b0_1101_u32;
    let mut blocker = Blocker::for_destinations(&actions, restricted).unwrap();
    let mut program = blocker.load().unwrap();
    let mut lists: [[List; 2]; 5] = Default::default();
    let mut counts = vec![Count::default(); 5];
    let (mut not_listed, mut replaced) = (0, 0);
    for _ in 0..80 {
        for _ in 0..rng.usize(1..6) {
            let nth = rng.usize(..5);
            let [sources, destinations] = &mut lists[nth];
            if rng.bool() && restricted & 1 << nth != 0 {
                destinations.v4 = (0..rng.usize(..6)).map(|_| prefix(&mut rng)).collect();
                destinations.v6 = (0..rng.usize(..6)).map(|_| prefix(&mut rng)).collect();
                blocker.replace_destinations(nth, &destinations.v4, &destinations.v6);
            } else {
                sources.v4 = (0..rng.usize(..12)).map(|_| prefix(&mut rng)).collect();
                sources.v6 = (0..rng.usize(..12)).map(|_| prefix(&mut rng)).collect();
                blocker.replace(nth, &sources.v4, &sources.v6);
            }
        }
        if blocker.commit().unwrap() == Publication::Replaced {
            program = blocker.load().unwrap();
            replaced += 1;
        }
        for _ in 0..80 {
            let tags = rng.usize(..3);
            let at = 14 + 4 * tags;
            let (source, destination, mut frame, decision) = match rng.bool() {
                true => {
                    let ends = [(); 2].map(|()| prefix::<u32>(&mut rng).last());
                    let [source, destination] = ends.map(Source::V4);
                    let mut frame = frame(source, tags);
                    frame[at + 16..at + 20].copy_from_slice(&ends[1].to_be_bytes());
                    (source, destination, frame, blocker.decision(ends[0], ends[1]))
                }
                false => {
                    let ends = [(); 2].map(|()| prefix::<u128>(&mut rng).addr());
                    let [source, destination] = ends.map(Source::V6);
                    let mut frame = frame(source, tags);
                    frame[at + 24..at + 40].copy_from_slice(&ends[1].to_be_bytes());
                    (source, destination, frame, blocker.decision(ends[0], ends[1]))
                }
            };
            let decides = |nth: &usize| {
                let [sources, destinations] = &lists[*nth];
                let is_for = restricted & 1 << nth == 0 || destinations.contains(destination);
                sources.contains(source) && is_for
            };
            let first = (0..5).find(decides);
            assert_eq!(decision, first, "{source:?} to {destination:?}");
            frame.truncate(at + 40);
            let run = program.test_run(&frame, 1).unwrap();
            let drops = first.is_some_and(|list| actions[list] == Drop);
            assert_eq!(run.retval == DROP, drops, "{source:?} to {destination:?}: {first:?}");
            match first {
                Some(list) => counts[list].packets += 1,
                None => not_listed += 1,
            }
        }
        let now = blocker.counts().unwrap();
        let packets = |counts: &[Count]| counts.iter().map(|c| c.packets).collect::<Vec<_>>();
        assert_eq!(packets(&now.lists), packets(&counts));
        assert_eq!(now.not_listed.packets, not_listed);
    }
    assert!(replaced > 0 && counts.iter().all(|count| count.packets > 20), "{counts:?}");
}

/// A watch counts the packets of its prefix that a list has decided about, and no others.
#[test]
fn watches_count_the_packets_of_their_prefixes() {
    let mut rng = fastrand::Rng::with_seed(32);
    let mut model = Model::new(&[ListAction::Pass, ListAction::Drop]);
    for nth in [0, 1, 1, 1, 1] {
        let (v4, v6) = (prefix(&mut rng), prefix(&mut rng));
        model.blocker.set_v4(nth, v4, true);
        model.blocker.set_v6(nth, v6, true);
        model.lists[nth].v4.push(v4);
        model.lists[nth].v6.push(v6);
    }
    model.commit();
    let mut watched: Vec<Option<(Watched, Count)>> = vec![None; MAX_WATCHES];
    let mut total = 0;
    for _ in 0..60 {
        let slot = rng.usize(..MAX_WATCHES);
        watched[slot] = match rng.u8(..4) {
            0 => None,
            1 => Some((Watched::V6(prefix(&mut rng)), Count::default())),
            2 => Some((Watched::V4("0.0.0.0/0".parse().unwrap()), Count::default())),
            _ => Some((Watched::V4(prefix(&mut rng)), Count::default())),
        };
        let prefix_of = |watched: Watched| match watched {
            Watched::V4(prefix) => (IpAddr::V4(prefix.addr().into()), prefix.len()),
            Watched::V6(prefix) => (IpAddr::V6(prefix.addr().into()), prefix.len()),
        };
        model.blocker.watch(slot, watched[slot].map(|(watched, _)| prefix_of(watched))).unwrap();
        for _ in 0..40 {
            let source = match rng.bool() {
                true => Source::V4(prefix::<u32>(&mut rng).last()),
                false => Source::V6(prefix::<u128>(&mut rng).addr()),
            };
            model.check(source, 0);
            if !model.lists.iter().any(|list| list.contains(source)) {
                continue;
            }
            for (watched, count) in watched.iter_mut().flatten() {
                let is_in = match (*watched, source) {
                    (Watched::V4(prefix), Source::V4(addr)) => prefix.contains(addr),
                    (Watched::V6(prefix), Source::V6(addr)) => prefix.contains(addr),
                    _ => false,
                };
                count.packets += u64::from(is_in);
                count.bytes += if is_in { frame(source, 0).len() as u64 } else { 0 };
                total += u64::from(is_in);
            }
        }
        for (slot, watched) in watched.iter().enumerate() {
            if let Some((prefix, count)) = watched {
                assert_eq!(model.blocker.watched(slot).unwrap(), *count, "{prefix:?}");
            }
        }
    }
    model.check_counts();
    assert!(total > 500, "{total}");
}

#[derive(Clone, Copy, Debug)]
enum Watched {
    V4(Prefix<u32>),
    V6(Prefix<u128>),
}

/// The lists of the data: each of their prefixes, and what is around, against a search in the sorted
/// list.
#[test]
fn real_lists_agree_with_a_search() {
    let names = [
        "firehol_level1-2026.netset",
        "firehol_level2-2026.netset",
        "firehol_level3-2026.netset",
        "firehol_abusers_30d-2026.netset",
        "ipsum-20260822.txt",
    ];
    let mut blocker = Blocker::new(&[ListAction::Drop; 5]).unwrap();
    let mut ranges: Vec<Vec<(u32, u32)>> = Vec::new();
    for (nth, name) in names.iter().enumerate() {
        let path = full::path(&format!("list-{name}.gz"));
        let list = feed::load(&path, &Options::default()).unwrap_or_else(|error| panic!("{error}"));
        let prefixes: Vec<Prefix<u32>> = list.v4.iter().map(|&(prefix, _)| prefix).collect();
        blocker.replace(nth, &prefixes, &[]);
        // Disjoint ranges, in order: nested prefixes are joined.
        let mut disjoint: Vec<(u32, u32)> = Vec::new();
        for prefix in prefixes {
            if disjoint.last().is_none_or(|&(_, end)| end < prefix.addr()) {
                disjoint.push((prefix.addr(), prefix.last()));
            }
        }
        ranges.push(disjoint);
    }
    blocker.commit().unwrap();
    let program = blocker.load().unwrap();
    let mut checked = 0;
    let addrs = ranges
        .iter()
        .flatten()
        .flat_map(|&(first, last)| [first.wrapping_sub(1), first, last, last.wrapping_add(1)]);
    for addr in addrs {
        let contains = |list: &Vec<(u32, u32)>| {
            let at = list.partition_point(|&(first, _)| first <= addr);
            at > 0 && addr <= list[at - 1].1
        };
        let want: u32 =
            (0..).zip(&ranges).map(|(bit, list)| u32::from(contains(list)) << bit).sum();
        assert_eq!(blocker.lists_of(addr), want, "{addr:x}");
        if checked % 16 == 0 {
            let run = program.test_run(&frame(Source::V4(addr), 0), 1).unwrap();
            assert_eq!(run.retval, if want == 0 { PASS } else { DROP }, "{addr:x}");
        }
        checked += 1;
    }
    assert!(checked > 1_000_000, "{checked} addresses");
}

/// The steering program of a gate, the lists that it looks up in, and the same lists.
struct Gate {
    steering: Arc<Steering>,
    tables: ListTables,
    lists: [List; 2],
}

impl Gate {
    fn new() -> Self {
        let early = EarlyDropConfig::default();
        let steering = Steering::for_gate([2; 6], 1, &Locals::default(), early).unwrap();
        let steering = Arc::new(steering);
        let gate = Self { steering, tables: ListTables::new().unwrap(), lists: Default::default() };
        gate.load();
        gate
    }

    fn load(&self) {
        let lookup = BlockedLookup::new(&self.tables);
        let blocked: Arc<dyn BlockedSources> = Arc::new(lookup);
        let extensions = Extensions { blocked: Some(blocked), ..Extensions::default() };
        self.steering.set_program(self.steering.load_with(&extensions).unwrap());
    }

    /// Replaces both lists. Returns whether that took another program.
    fn set(&mut self, lists: [List; 2]) -> bool {
        for (number, list) in [ALLOWED, BLOCKED].into_iter().zip(&lists) {
            self.tables.replace(number, &list.v4, &list.v6);
        }
        self.lists = lists;
        let is_replaced = self.tables.commit().unwrap() == Publication::Replaced;
        if is_replaced {
            self.load();
        }
        is_replaced
    }

    fn drops(&self, source: Source) -> bool {
        let run = self.steering.program().test_run(&frame(source, 0), 1).unwrap();
        run.retval == DROP
    }
}

fn is_listed([allowed, blocked]: &[List; 2], source: Source) -> bool {
    blocked.contains(source) && !allowed.contains(source)
}

/// Draws blocked prefixes, and longer allowed ones.
fn random_lists(rng: &mut fastrand::Rng, most: usize) -> [List; 2] {
    std::array::from_fn(|list| {
        let of = |bits: u32| move |len: u32| list == BLOCKED || len > bits / 2;
        let (v4, v6) = (of(32), of(128));
        List {
            v4: (0..rng.usize(..most)).map(|_| prefix(rng)).filter(|p| v4(p.len())).collect(),
            v6: (0..rng.usize(..most)).map(|_| prefix(rng)).filter(|p| v6(p.len())).collect(),
        }
    })
}

fn random_source(rng: &mut fastrand::Rng) -> Source {
    match rng.bool() {
        true => Source::V4(prefix::<u32>(rng).last()),
        false => Source::V6(prefix::<u128>(rng).last()),
    }
}

#[test]
fn gate_drops_packets_of_blocked_sources_but_of_allowed_ones() {
    let mut rng = fastrand::Rng::with_seed(31);
    let mut gate = Gate::new();
    let (mut dropped, mut runs, mut replaced) = (0, 0, 0);
    for round in 0..60 {
        let most = if round % 20 == 19 { 1 } else { 100 };
        replaced += u32::from(gate.set(random_lists(&mut rng, most)));
        for _ in 0..200 {
            let source = random_source(&mut rng);
            let expected = is_listed(&gate.lists, source);
            assert_eq!(gate.drops(source), expected, "{source:?}");
            let lists = match source {
                Source::V4(addr) => gate.tables.lists_of(addr),
                Source::V6(addr) => gate.tables.lists_of(addr),
            };
            assert_eq!(is_blocked(lists), expected);
            dropped += u64::from(expected);
            runs += 1;
        }
    }
    assert!(replaced > 0 && (runs / 10..runs).contains(&dropped), "{replaced}, {dropped}");
    let counts = gate.steering.counts().unwrap();
    assert_eq!(counts[SteeringOutcome::Blocked], dropped);
    assert_eq!(counts.iter().map(|(_, count)| count).sum::<u64>(), runs);
}

/// While another thread switches between lists, a source about which both agree never has another result.
#[test]
fn gate_never_drops_by_half_a_list() {
    let mut rng = fastrand::Rng::with_seed(32);
    let lists: [[List; 2]; 2] = std::array::from_fn(|_| random_lists(&mut rng, 200));
    let same: Vec<(Source, bool)> = (0..400)
        .map(|_| random_source(&mut rng))
        .filter(|&source| is_listed(&lists[0], source) == is_listed(&lists[1], source))
        .map(|source| (source, is_listed(&lists[0], source)))
        .collect();
    assert!(same.iter().any(|pair| pair.1) && same.iter().any(|pair| !pair.1));
    let mut gate = Gate::new();
    gate.set(lists[1].clone());
    let steering = Arc::clone(&gate.steering);
    let gate = Mutex::new(gate);
    let rounds = AtomicUsize::new(0);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut gate = gate.lock().unwrap();
            for round in 0..500 {
                gate.set(lists[round % 2].clone());
                rounds.store(round + 1, Ordering::Relaxed);
            }
        });
        let mut looks = 0;
        // The other thread's panic ends its lock, and this loop.
        while rounds.load(Ordering::Relaxed) < 500 && !gate.is_poisoned() {
            for &(source, expected) in &same {
                let run = steering.program().test_run(&frame(source, 0), 1).unwrap();
                assert_eq!(run.retval == DROP, expected, "{source:?}, look {looks}");
                looks += 1;
            }
        }
        assert!(looks > 1000, "{looks}");
    });
}
