//! Queues of egress ports: the classes and their order, the rate, marks and drops of CoDel, ports that
//! refuse, the end, and the memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fastrand::Rng;
use fingerpost_datapath::{
    Adjacency, DeviceQueue, FIRST_STACKED, PRIORITIES, PortQueue, PortQueues, StackedDevice,
    Verdict, VlanTag,
};
use qos::{CodelParameters, EgressQueueParameters, QueueCounters, SharedPacer, TrafficClass};

use crate::packets::{draw, header_checksum, sound, sound6, v4_with, v6_with};
use crate::reference::RouteTarget;
use crate::rig::{Rig, adjacencies, hop};
use wire::{ipv4, ipv6};

const MS: u64 = 1_000_000;
/// The length of a frame of these tests: its packet has 1000 bytes.
const FRAME: u64 = 1014;

/// The number of the queue of a VLAN device.
const VLAN_QUEUE: u16 = 3;

/// A rig whose port 1 has a queue, and the time.
struct Queued {
    rig: Rig,
    now: Arc<AtomicU64>,
    counters: Arc<QueueCounters>,
    /// Those of the queue of a VLAN device.
    vlan_counters: Arc<QueueCounters>,
}

impl Queued {
    /// Makes a queue for a link of this many bits a second, if any.
    fn new(rate: Option<u64>) -> Self {
        Self::on(Rig::new(), rate, 64)
    }

    fn on(mut rig: Rig, rate: Option<u64>, places: usize) -> Self {
        let now = Arc::new(AtomicU64::new(1000 * MS));
        let counters = Arc::new(QueueCounters::default());
        let mut requests_to = acl::Addresses::default();
        requests_to.add("10.0.9.0/24").unwrap();
        let own = DeviceQueue {
            parameters: EgressQueueParameters {
                places,
                codel: CodelParameters::default(),
                control_share: 10,
                request_share: 5,
            },
            pacer: rate.map(|rate| Arc::new(SharedPacer::new(rate, 0, 1))),
            worker: 0,
            within: None,
            weight: 1,
            requests_to: Arc::new(requests_to),
            counters: Arc::clone(&counters),
        };
        let vlan_counters = Arc::new(QueueCounters::default());
        let of_vlan = DeviceQueue {
            // A frame of the VLAN each 4 ms.
            pacer: Some(Arc::new(SharedPacer::new((FRAME + 4) * 8 * 250, 0, 1))),
            worker: 0,
            counters: Arc::clone(&vlan_counters),
            ..own.clone()
        };
        let stacked = vec![(VLAN_QUEUE, of_vlan)];
        let time = Arc::clone(&now);
        rig.worker = rig.worker.with_egress_queues(PortQueues {
            by_port: vec![None, Some(PortQueue { own, stacked, host: None })],
            clock: Box::new(move || time.load(Ordering::Relaxed)),
        });
        Self { rig, now, counters, vlan_counters }
    }

    fn advance(&self, by: u64) {
        self.now.fetch_add(by, Ordering::Relaxed);
    }

    /// Takes the TOS of the packets that have left on port 1.
    fn left(&mut self) -> Vec<u8> {
        let frames = std::iter::from_fn(|| self.rig.far[1].take());
        frames.map(|frame| traffic_class(&frame)).collect()
    }
}

fn traffic_class(frame: &[u8]) -> u8 {
    if frame[14] >> 4 == 4 {
        assert_eq!(
            header_checksum(&frame[14..34]),
            usize::from(u16::from_be_bytes([frame[24], frame[25]]))
        );
        return frame[15];
    }
    ipv6::View::parse(&frame[14..]).unwrap().traffic_class()
}

/// A packet to 10.0.`host`.1, by port 1.
fn packet(host: u8, tos: u8) -> Vec<u8> {
    let dst = 0x0a00_0001 | u32::from(host) << 8;
    v4_with(ipv4::Header { tos, dst, total_len: 1000, ..sound() }, 0)
}

fn packet6(traffic_class: u8) -> Vec<u8> {
    v6_with(ipv6::Header { traffic_class, payload_len: 960, ..sound6() }, 0)
}

#[test]
fn rate_is_kept_and_nothing_is_lost_meanwhile() {
    // A frame each 2 ms.
    let mut queued = Queued::new(Some(FRAME * 8 * 500));
    let counted = queued.rig.pass((0..64).map(|_| packet(0, 0)));
    // A late worker makes up for 4 ms.
    let first = counted.sent();
    assert!((1..=4).contains(&first), "{first}");
    assert_eq!((counted.dropped(), queued.rig.worker.held() as u64), (0, 64 - first));
    let waiting = queued.counters.snapshot()[TrafficClass::Default as usize];
    assert_eq!((waiting.waiting, waiting.waiting_bytes), (64 - first, (64 - first) * FRAME));
    for _ in 0..10 {
        queued.advance(2 * MS);
        assert_eq!(queued.rig.pass([[0u8; 0]; 0]).sent(), 1);
    }
    assert_eq!(queued.left().len() as u64, first + 10);
}

#[test]
fn classes_leave_in_their_order_and_other_ports_have_no_queue() {
    let mut queued = Queued::new(Some(FRAME * 8 * 500));
    queued.rig.pass((0..10).map(|_| packet(0, 0)));
    queued.left();
    // Requests with DSCP 10 and 40, others with those DSCPs, control packets of both families.
    let waiting = [
        packet(9, 40),
        packet(0, 40),
        packet(9, 160),
        packet(0, 160),
        packet(0, 192),
        packet6(224),
    ];
    let counted = queued.rig.pass(waiting);
    assert_eq!((counted.sent(), counted.dropped()), (0, 0));
    queued.advance(8 * MS);
    queued.rig.pass([[0u8; 0]; 0]);
    // 4 ms are made up for, and the link is free at their end.
    assert_eq!(queued.left(), [192, 224, 160]);
    queued.advance(4 * MS);
    queued.rig.pass([[0u8; 0]; 0]);
    assert_eq!(queued.left()[0], 40);
    // 192.0.2.0/24 is behind port 0.
    let back = v4_with(ipv4::Header { dst: 0xc000_0207, ..sound() }, 0);
    assert_eq!(queued.rig.pass([back]).sent(), 1);
    let counts = queued.counters.snapshot();
    assert_eq!((counts[0].packets, counts[1].packets), (2, 2));
}

/// A link with half of what comes, for two seconds.
#[test]
fn codel_drops_and_marks_what_has_waited_for_too_long() {
    for (is_ecn_capable, family) in [(false, 4), (true, 4), (false, 6), (true, 6)] {
        let mut queued = Queued::new(Some(FRAME * 8 * 1000));
        let ecn = u8::from(is_ecn_capable) * 2;
        let (mut delayed, mut full, mut marked) = (0, 0, 0);
        for _ in 0..2000 {
            queued.advance(MS);
            let packet = if family == 4 { packet(0, 40 | ecn) } else { packet6(40 | ecn) };
            let counted = queued.rig.pass([&packet, &packet]);
            delayed += counted.count(Verdict::EgressQueueDelay);
            full += counted.count(Verdict::EgressQueueFull);
            for traffic_class in queued.left() {
                assert!(matches!(traffic_class & 3, 3) || traffic_class & 3 == ecn);
                assert_eq!(traffic_class >> 2, 10);
                marked += u64::from(traffic_class & 3 == 3);
            }
        }
        assert_eq!((delayed > 20, marked > 20), (!is_ecn_capable, is_ecn_capable));
        assert!(full > 100, "{full}");
        let counts = queued.counters.snapshot()[TrafficClass::Default as usize];
        assert_eq!((counts.full, counts.delayed, counts.marked), (full, delayed, marked));
        assert!(counts.delay > 5 * MS);
    }
}

#[test]
fn vlan_device_has_its_rate_within_that_of_its_port() {
    let mut queued = Queued::new(Some(FRAME * 8 * 1000));
    let tag = VlanTag { protocol: 0x8100, id: 100, priorities: [0; PRIORITIES] };
    let with_queue = StackedDevice::new(&[1], &[tag]).with_queue(VLAN_QUEUE);
    let without = StackedDevice::new(&[1], &[VlanTag { id: 200, ..tag }]);
    let mut changed = adjacencies(&queued.rig.model);
    changed.set_stacked([Some(with_queue), Some(without)].into());
    let macs = &queued.rig.model.gateways[0];
    for (target, port) in [(0, FIRST_STACKED), (1, FIRST_STACKED + 1), (2, 1)] {
        let adjacency = Adjacency::new(port, macs.dst_mac, macs.src_mac, 1500);
        changed.set(hop(RouteTarget::To(target)), adjacency);
    }
    queued.rig.adjacencies.publish(Box::new(changed));
    // By VLAN 100, by VLAN 200, and untagged; each is more than its part.
    let packets = [0x0a00_0001, 0x0a01_0001, 0xc000_0207]
        .map(|dst| v4_with(ipv4::Header { dst, total_len: 1000, ..sound() }, 0));
    let mut left = [0u32; 3];
    for _ in 0..400 {
        queued.advance(MS);
        queued.rig.pass(&packets);
        for frame in std::iter::from_fn(|| queued.rig.far[1].take()) {
            match frame[12..16] {
                [0x81, 0, 0, 100] => left[0] += 1,
                [0x81, 0, 0, 200] => left[1] += 1,
                _ => left[2] += 1,
            }
        }
    }
    // The two others are in the queue of the port, in their order.
    assert!(left[0].abs_diff(100) <= 2, "{left:?}");
    assert!((left[0] + left[1] + left[2]).abs_diff(400) <= 6, "{left:?}");
    assert!(left[1] > 20 && left[2] > 20, "{left:?}");
    let [of_vlan, of_port] = [&queued.vlan_counters, &queued.counters]
        .map(|counters| counters.snapshot()[TrafficClass::Default as usize]);
    assert_eq!((of_vlan.packets, of_port.packets), (left[0].into(), (left[1] + left[2]).into()));
    assert!(of_vlan.full > 100 && of_port.full > 100);
}

#[test]
fn port_that_refuses_keeps_the_packets_and_their_order() {
    // The far end's ring holds 1024 frames.
    let mut queued = Queued::on(Rig::with_frames(4096), None, 512);
    let mut sent = 0;
    for n in 0..6u32 {
        let counted = queued.rig.pass((0..250).map(|m| packet((n * 250 + m).to_le_bytes()[0], 0)));
        sent += counted.sent();
        assert_eq!(counted.dropped(), 0);
    }
    assert_eq!((sent, queued.rig.worker.held()), (1024, 1500 - 1024));
    let mut hosts = Vec::new();
    while queued.rig.worker.held() > 0 {
        hosts.extend(std::iter::from_fn(|| queued.rig.far[1].take()).map(|frame| frame[32]));
        queued.rig.pass([[0u8; 0]; 0]);
    }
    hosts.extend(std::iter::from_fn(|| queued.rig.far[1].take()).map(|frame| frame[32]));
    // 10.0.9.0/24 is without a DSCP, hence no request.
    assert_eq!(hosts, (0..1500u32).map(|n| n.to_le_bytes()[0]).collect::<Vec<_>>());
}

#[test]
fn closed_worker_sends_what_waits() {
    let mut queued = Queued::new(Some(FRAME * 8 * 1000));
    let first = queued.rig.pass((0..40).map(|_| packet(0, 0))).sent();
    queued.rig.worker.close();
    let counted = queued.rig.pass([[0u8; 0]; 0]);
    assert_eq!((counted.sent(), queued.rig.worker.held()), (40 - first, 0));
    assert_eq!(queued.left().len(), 40);
    assert_eq!(queued.counters.snapshot()[TrafficClass::Default as usize].waiting, 0);
}

#[test]
fn drawn_packets_are_all_accounted_for_and_allocate_nothing() {
    let mut queued = Queued::new(Some(FRAME * 8 * 200));
    let mut rng = Rng::with_seed(7);
    for turn in 0..300 {
        queued.advance(rng.u64(..5 * MS));
        for _ in 0..rng.usize(..200) {
            assert!(queued.rig.far[0].send(&draw(&mut rng)));
        }
        let worker = &mut queued.rig.worker;
        let allocated = allocation_counter::measure(|| while worker.poll() > 0 {});
        assert_eq!(allocated.count_total, 0, "in turn {turn}");
        queued.rig.pass([[0u8; 0]; 0]);
        for far in &mut queued.rig.far {
            while far.take().is_some() {}
        }
        while queued.rig.hosts[0].take().is_some() {}
    }
    let all = queued.rig.worker.stats().snapshot();
    assert!(all.count(Verdict::EgressQueueFull) > 100 && all.sent() > 1000, "{all:?}");
}
