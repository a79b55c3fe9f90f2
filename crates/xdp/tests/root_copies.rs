//! Copies of packets that programs forward or drop: as many as the counters of the program, with the bytes of the frame
//! before and after it, for each session that wants them, and none without a session.
//!
//! Needs root (`CAP_BPF`, `CAP_PERFMON`), hence the feature `root-tests`.

use std::sync::Arc;

use fib::{Choice, Family, Hop, Prefix, Rib, Updater};
use fingerpost_xdp::forward::{
    EgressLink, ForwardPath, GroupHash, NextHop, NextHops, OwnSources, SourceCheck, Tags,
};
use fingerpost_xdp::{Blocker, BpfArrays, KernelTable, ListAction};
use port::af_xdp::bpf::RingBuffer;
use port::af_xdp::bpf::asm::Action;
use port::af_xdp::steer::{
    COPY_SESSIONS, CopyConditions, CopyOccasion, DriverPath, Extensions, IngressFilter, Locals,
    MAX_COPY, PacketCopies, PacketCopy, Steering, SteeringOutcome,
};

const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
/// Sources in this block are dropped; destinations in `UNTAGGED` leave without a tag, in `TAGGED` with two.
const BLOCKED: u32 = 0x0b00_0000;
const PLAIN: u32 = 0x0a00_0000;
const UNTAGGED: u32 = 0x1000_0000;
const TAGGED: u32 = 0x1100_0000;
/// The links by which they leave: that of a stacked device has a number beyond a byte.
const LINKS: [u16; 2] = [1, 2050];
const PORT: u16 = 700;

const FORWARDED: CopyOccasion = CopyOccasion::End(SteeringOutcome::Forwarded);
const DROPPED: CopyOccasion = CopyOccasion::End(SteeringOutcome::Blocked);

/// A steering program that forwards and drops.
struct Router {
    steering: Steering,
    _tables: (Updater<u32>, KernelTable<u32>, Updater<u128>, KernelTable<u128>),
    _blocker: Blocker,
}

fn table<A: Family>(routes: &[(Prefix<A>, Hop)]) -> (Updater<A>, KernelTable<A>) {
    let files = BpfArrays::new("chunks");
    let rib = Rib::from_sorted(routes.iter().copied());
    let updater = Updater::new_in(rib, Choice::Flat, 1, files.clone()).unwrap();
    let table = KernelTable::new(&files, updater.fib()).unwrap();
    (updater, table)
}

impl Router {
    fn new() -> Self {
        let route = |addr: u32, hop| (Prefix::truncate(addr, 8), Hop(hop));
        let (updater_v4, v4) = table(&[route(UNTAGGED, 1), route(TAGGED, 2)]);
        let (updater_v6, v6) = table::<u128>(&[]);
        let next_hops = NextHops::new().unwrap();
        let tags = Tags::new([(0x88a8, 5), (0x8100, 6)]).unwrap();
        for (at, tags) in [Tags::NONE, tags].into_iter().enumerate() {
            let link = EgressLink { device: 1, mac: [2, 0, 0, 0, 2, 2], mtu: 1500, tags };
            next_hops.set_link(LINKS[at], Some(link)).unwrap();
            let next = NextHop { mac: [2, 0, 0, 0, 1, at as u8], link: LINKS[at] };
            next_hops.set_hop(Hop(at as u32 + 1), Some(next));
        }
        let path: Arc<dyn DriverPath> = Arc::new(ForwardPath {
            v4: Arc::clone(v4.arrays()),
            v6: Arc::clone(v6.arrays()),
            next_hops: Arc::new(next_hops),
            own_sources: Arc::new(OwnSources::new().unwrap()),
            link: 0,
            sources: [SourceCheck::Off; 2],
            group_hash: GroupHash::default(),
        });
        let mut blocker = Blocker::new(&[ListAction::Drop]).unwrap();
        assert!(blocker.replace(0, &[Prefix::truncate(BLOCKED, 8)], &[]));
        blocker.commit().unwrap();
        let filter: Arc<dyn IngressFilter> = blocker.filter().clone();
        let steering = Steering::for_router(MAC, 1, &Locals::default()).unwrap();
        let extensions =
            Extensions { filter: Some(filter), driver_path: Some(path), blocked: None };
        steering.set_program(steering.load_with(&extensions).unwrap());
        steering.forward_in_driver([true; 2]).unwrap();
        Self { steering, _tables: (updater_v4, v4, updater_v6, v6), _blocker: blocker }
    }

    fn copies(&self) -> &PacketCopies {
        self.steering.copies().expect("Linux 5.18 or later")
    }

    fn open(&self, ring: &RingBuffer, conditions: &CopyConditions) -> usize {
        self.copies().open(ring, conditions).unwrap().expect("a slot")
    }

    /// Runs the program on a frame, and returns the frame after it with the action.
    fn run(&self, frame: &[u8]) -> (Vec<u8>, u32) {
        let run = self.steering.program().test_run(frame, 1).unwrap();
        (run.output, run.retval)
    }
}

/// Returns the conditions of all packets, whole.
fn everything() -> CopyConditions {
    let ends = SteeringOutcome::ALL.map(CopyOccasion::End);
    let occasions = ends.into_iter().chain([CopyOccasion::Arrival]).collect();
    CopyConditions { occasions, one_in: 1, snap: usize::MAX, port: PORT }
}

fn ring() -> RingBuffer {
    RingBuffer::new("copies", 1 << 20).unwrap()
}

fn read(ring: &mut RingBuffer) -> Vec<PacketCopy> {
    let mut copies = Vec::new();
    ring.read(|record| copies.push(PacketCopy::read(record).expect("a record of the program")));
    copies
}

/// A frame of at least 60 bytes with a packet of UDP, whose bytes depend on its length.
fn frame(src: u32, dst: u32, length: usize) -> Vec<u8> {
    let total = (length - 14) as u16;
    let mut header = vec![0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 17, 0, 0];
    header[2..4].copy_from_slice(&total.to_be_bytes());
    header.extend(src.to_be_bytes());
    header.extend(dst.to_be_bytes());
    let words = header.as_chunks::<2>().0.iter().map(|word| u32::from(u16::from_be_bytes(*word)));
    let sum: u32 = words.sum();
    let checksum = !((sum & 0xffff) + (sum >> 16)) as u16;
    header[10..12].copy_from_slice(&checksum.to_be_bytes());
    let mut frame = [&MAC[..], &[2; 6], &[0x08, 0x00], &header].concat();
    let mut rng = fastrand::Rng::with_seed(length as u64);
    frame.resize_with(length, || rng.u8(..));
    frame
}

#[test]
fn copies_are_the_frames_before_and_after_the_program() {
    let router = Router::new();
    let mut ring = ring();
    let slot = router.open(&ring, &everything());
    let mut last = 0;
    for length in (60..=1514).step_by(7) {
        for (src, dst, egress) in [
            (PLAIN, UNTAGGED, Some(LINKS[0])),
            (PLAIN, TAGGED, Some(LINKS[1])),
            (BLOCKED, UNTAGGED, None),
        ] {
            // Two tags would make the longest packet longer than its device allows.
            if dst == TAGGED && length > 1510 {
                continue;
            }
            let sent = frame(src, dst, length);
            let (after, action) = router.run(&sent);
            let is_forwarded = action == Action::Redirect as u32;
            assert_eq!(is_forwarded, egress.is_some(), "{length} bytes to {dst:x}");
            let [arrival, end] = &read(&mut ring)[..] else { panic!("not two copies") };
            assert_eq!((arrival.occasion, arrival.port), (CopyOccasion::Arrival, PORT));
            assert_eq!((arrival.length as usize, &arrival.bytes), (length, &sent));
            assert_eq!(end.occasion, if is_forwarded { FORWARDED } else { DROPPED });
            assert_eq!((end.port, end.egress), (PORT, egress.unwrap_or(0)));
            assert_eq!((end.length as usize, &end.bytes), (after.len(), &after));
            assert_eq!(after.len(), length + if egress == Some(LINKS[1]) { 8 } else { 0 });
            assert!(last < arrival.time && arrival.time <= end.time, "the clock goes on");
            last = end.time;
        }
    }
    assert_eq!(router.copies().close(slot).unwrap(), 0, "nothing is lost");
}

#[test]
fn packets_without_a_session_or_left_to_others_are_not_copied() {
    let router = Router::new();
    let mut ring = ring();
    let packets = [frame(PLAIN, UNTAGGED, 100), frame(BLOCKED, UNTAGGED, 100)];
    let run = || packets.iter().for_each(|packet| drop(router.run(packet)));
    run();
    let slot = router.open(&ring, &everything());
    assert!(router.copies().is_open());
    // No route, another MAC, ARP: the worker and the host get these.
    let mut other = frame(PLAIN, UNTAGGED, 100);
    other[5] ^= 0x40;
    let mut arp = frame(PLAIN, UNTAGGED, 100);
    arp[12..14].copy_from_slice(&[0x08, 0x06]);
    for left in [frame(PLAIN, 0x5000_0001, 100), other, arp] {
        assert_eq!(router.run(&left).1, Action::Pass as u32);
    }
    assert_eq!(read(&mut ring), []);
    router.copies().close(slot).unwrap();
    assert!(!router.copies().is_open());
    run();
    assert_eq!(read(&mut ring), []);
    // A session ends with its ring, whose owner need not close it for the program to go on.
    let slot = router.open(&ring, &everything());
    drop(ring);
    run();
    router.copies().close(slot).unwrap();
}

#[test]
fn sessions_select_by_occasion_and_cut_to_their_length() {
    let router = Router::new();
    let occasions = [vec![FORWARDED], vec![DROPPED], vec![CopyOccasion::Arrival, DROPPED], vec![]];
    // The begin and the end of each number of bytes that a program reserves.
    let snaps = [0, 104, 105, MAX_COPY];
    let mut sessions = Vec::new();
    for (occasions, snap) in occasions.into_iter().zip(snaps) {
        let ring = ring();
        let conditions = CopyConditions { occasions, snap, ..everything() };
        sessions.push((router.open(&ring, &conditions), ring, conditions));
    }
    assert_eq!(sessions.len(), COPY_SESSIONS);
    assert_eq!(router.copies().open(&ring(), &everything()).unwrap(), None, "no slot is left");
    for _ in 0..50 {
        router.run(&frame(PLAIN, UNTAGGED, 700));
        router.run(&frame(BLOCKED, UNTAGGED, 700));
    }
    let counts = router.steering.counts().unwrap();
    let ended = [counts[SteeringOutcome::Forwarded], counts[SteeringOutcome::Blocked]];
    assert_eq!(ended, [50; 2]);
    for (slot, mut ring, CopyConditions { occasions, snap, .. }) in sessions {
        let copies = read(&mut ring);
        assert!(copies.iter().all(|copy| copy.length == 700 && copy.bytes.len() == snap.min(700)));
        for (occasion, expect) in [(FORWARDED, 50), (DROPPED, 50), (CopyOccasion::Arrival, 100)] {
            let expect = if occasions.contains(&occasion) { expect } else { 0 };
            let count = copies.iter().filter(|copy| copy.occasion == occasion).count();
            assert_eq!(count, expect, "{occasion:?} in slot {slot}");
        }
        assert_eq!(router.copies().close(slot).unwrap(), 0);
    }
}

#[test]
fn one_packet_in_n_is_copied_at_random() {
    const RUNS: u32 = 20_000;
    let router = Router::new();
    let mut ring = ring();
    let occasions = vec![DROPPED];
    let slot =
        router.open(&ring, &CopyConditions { occasions, one_in: 10, snap: 64, ..everything() });
    let frame = frame(BLOCKED, UNTAGGED, 100);
    router.steering.program().test_run(&frame, RUNS).unwrap();
    let copied = read(&mut ring).len();
    // 2000 with a standard deviation of 42.
    assert!((1750..2250).contains(&copied), "{copied} of {RUNS}");
    assert_eq!(router.copies().close(slot).unwrap(), 0);
}

#[test]
fn full_ring_loses_copies_and_counts_them() {
    const RUNS: u32 = 3000;
    let router = Router::new();
    let mut ring = RingBuffer::new("copies", 1 << 16).unwrap();
    let slot = router.open(&ring, &CopyConditions { occasions: vec![DROPPED], ..everything() });
    let frame = frame(BLOCKED, UNTAGGED, 100);
    let mut read_all = 0;
    for round in 1..=3 {
        router.steering.program().test_run(&frame, RUNS).unwrap();
        let copies = read(&mut ring);
        // Records of 128 bytes and a header of 8.
        assert!((450..=481).contains(&copies.len()), "{} copies", copies.len());
        assert!(copies.iter().all(|copy| copy.bytes == frame), "round {round}");
        read_all += copies.len() as u64;
        let dropped = router.steering.count(SteeringOutcome::Blocked).unwrap();
        assert_eq!(read_all + router.copies().lost(slot), dropped, "round {round}");
    }
    // The next session in the slot begins without losses.
    router.copies().close(slot).unwrap();
    let slot = router.open(&ring, &everything());
    assert_eq!(router.copies().lost(slot), 0);
    assert_eq!(router.copies().close(slot).unwrap(), 0);
}
