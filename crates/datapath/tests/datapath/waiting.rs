//! Packets that wait for a neighbor: held, requested, released in order or ended, and counted as
//! held until then.

use std::collections::VecDeque;
use std::net::IpAddr;

use fib::{Choice, Hop, Rib, Updater};
use fingerpost_datapath::{
    Adjacency, Group, HELD, ReversePathFilter, Tables, Verdict, VerdictMap, Want,
};

use crate::packets::{arriving, draw, v4, v6};
use crate::reference::{Model, RouteTarget};
use crate::rig::{FRAMES, LONG_FRAMES, Rig, adjacencies, hop, ingresses};

const HERE: u32 = 0xc000_0263;
const HERE6: u128 = 0x2001_0db8 << 96 | 0x63;
/// The number of ticks after which a held packet ends.
const TICKS: usize = 10;

/// Publishes the model's gateways, those in `unknown` without a MAC address.
fn publish(rig: &mut Rig, unknown: &[usize]) {
    let mut changed = adjacencies(&rig.model);
    for &at in unknown {
        let port = rig.model.gateways[at].port as u16;
        changed.set(hop(RouteTarget::To(at)), Adjacency::unresolved(port));
    }
    rig.adjacencies.publish(Box::new(changed));
}

/// Makes packets to 10.0.0.x, by gateway 0, each with a destination of its own.
fn to_ten(numbers: std::ops::Range<u32>) -> impl Iterator<Item = Vec<u8>> {
    numbers.map(|number| v4(HERE, 0x0a00_0000 | number))
}

/// Returns the last bytes of the destinations of the packets that left on a port.
fn left(rig: &mut Rig, port: usize) -> Vec<u8> {
    std::iter::from_fn(|| rig.far[port].take()).map(|frame| frame[33]).collect()
}

#[test]
fn packets_wait_and_leave_in_order_when_the_neighbor_is_known() {
    let mut rig = Rig::new();
    publish(&mut rig, &[0]);
    let counted = rig.pass(to_ten(1..50));
    assert_eq!((counted.received, counted.held, counted.sent()), (49, 49, 0));
    assert!(left(&mut rig, 1).is_empty());
    // Packets to other neighbors do not wait.
    assert_eq!(rig.pass([v4(HERE, 0x0a01_0001)]).sent(), 1);
    let more: Vec<_> = to_ten(50..60).collect();
    for frame in &more {
        assert!(rig.far[0].send(frame));
    }
    publish(&mut rig, &[]);
    let counted = rig.pass(to_ten(60..70));
    assert_eq!((counted.sent(), rig.worker.held()), (69, 0));
    assert_eq!(left(&mut rig, 1), (1..70).collect::<Vec<u8>>());
    // A packet that waited leaves as the model requires, byte by byte.
    publish(&mut rig, &[0]);
    rig.far[2].take();
    let frame = v4(HERE, 0x0a00_0007);
    rig.pass([&frame]);
    rig.model.gateways[0].dst_mac = [2, 7, 7, 7, 7, 7];
    publish(&mut rig, &[]);
    assert_eq!(rig.pass::<&[u8]>([]).sent(), 1, "a turn without packets lets go too");
    assert_eq!(rig.far[1].take(), rig.model.decide(0, &frame).1.pop().map(|out| out.1));
}

#[test]
fn the_control_plane_receives_hop_table_and_destination() {
    let mut rig = Rig::new();
    publish(&mut rig, &[0, 1, 2]);
    let frames = [
        v4(HERE, 0x0a00_0001),
        v4(HERE, 0x0a00_0001),
        v4(HERE, 0x0a00_0002),
        v4(HERE, 0x0a01_0001),
        v6(HERE6, 0x2001_0db8 << 96 | 1),
    ];
    rig.pass(&frames);
    rig.pass(&frames);
    let want = |gateway, address: &str| Want {
        hop: hop(RouteTarget::To(gateway)),
        table: 0,
        address: address.parse::<IpAddr>().unwrap(),
    };
    let expect =
        [want(0, "10.0.0.1"), want(0, "10.0.0.2"), want(1, "10.1.0.1"), want(0, "2001:db8::1")];
    assert_eq!(rig.wants.drain().collect::<Vec<_>>(), expect);
    // In the other table the same destination has another hop.
    rig.pass_on(2, [arriving(v4(HERE, 0x0a00_0002), 2)]);
    assert_eq!(rig.wants.take(), Some(Want { table: 1, ..want(1, "10.0.0.2") }));
    // Packets that still wait after some ticks are requested again, once.
    for _ in 0..5 {
        rig.worker.tick();
    }
    rig.pass::<&[u8]>([]);
    rig.pass::<&[u8]>([]);
    assert_eq!(rig.wants.drain().count(), 5);
}

#[test]
fn the_oldest_packet_is_dropped_when_the_queue_is_full() {
    let mut rig = Rig::new();
    publish(&mut rig, &[0]);
    let counted = rig.pass((0..HELD as u32 + 30).map(|number| v4(HERE, 0x0a00_0000 | number)));
    assert_eq!(counted.count(Verdict::Unresolved), 30);
    assert_eq!(counted.held, HELD as u64);
    // The packets of another port wait in a queue of their own.
    let other = rig.pass_on(1, [arriving(v4(0x0a00_0001, 0x0a00_0001), 1)]);
    assert_eq!((other.held, other.dropped()), (1, 0));
    publish(&mut rig, &[]);
    rig.pass::<&[u8]>([]);
    let expect: Vec<u8> = (30..HELD as u8 + 30).chain([1]).collect();
    assert_eq!(left(&mut rig, 1), expect);
}

#[test]
fn packets_are_dropped_after_the_waiting_time() {
    let mut rig = Rig::new();
    publish(&mut rig, &[0]);
    rig.pass(to_ten(1..4));
    rig.worker.tick();
    rig.pass(to_ten(4..6));
    for _ in 0..TICKS - 2 {
        rig.worker.tick();
    }
    assert_eq!(rig.worker.held(), 5);
    rig.worker.tick();
    assert_eq!(rig.worker.held(), 2);
    let stats = rig.worker.stats().snapshot();
    assert_eq!((stats.count(Verdict::Unresolved), stats.held), (3, 2));
    assert!(stats.balanced());
    publish(&mut rig, &[]);
    rig.pass::<&[u8]>([]);
    assert_eq!(left(&mut rig, 1), [4, 5]);
}

#[test]
fn held_packets_are_dropped_with_the_worker() {
    let mut rig = Rig::new();
    publish(&mut rig, &[0]);
    rig.pass(to_ten(1..4));
    rig.worker.close();
    let stats = rig.worker.stats().snapshot();
    assert_eq!((stats.count(Verdict::Unresolved), stats.held), (3, 0));
    assert_eq!(rig.worker.arena().available(), (FRAMES + LONG_FRAMES) as usize);
    rig.pass(to_ten(1..4));
    let stats = std::sync::Arc::clone(rig.worker.stats());
    drop(rig);
    let stats = stats.snapshot();
    assert_eq!((stats.count(Verdict::Unresolved), stats.held), (6, 0));
    assert!(stats.balanced());
}

/// A packet has no hop while it waits: it takes the route at the time that it leaves, even if its
/// old hop stands for another neighbor by then.
#[test]
fn the_way_is_that_of_the_moment_of_leaving() {
    let mut rib = Rib::new();
    rib.insert("10.0.0.0/8".parse().unwrap(), Hop(5));
    let mut v4_table = Updater::<u32>::new(rib, Choice::Auto, 1).unwrap();
    let v6_table = Updater::<u128>::new(Rib::new(), Choice::Auto, 1).unwrap();
    let tables = |_: &Model| Tables::single(v4_table.reader(), v6_table.reader());
    let mut rig = Rig::build(tables, |_, port| Box::new(port));
    let adjacency = |last| Adjacency::new(1, [2, 0, 0, 0, 5, last], [2; 6], 1500);
    let mut published = rig.adjacencies.current().clone();
    published.set(Hop(5), Adjacency::unresolved(1));
    rig.adjacencies.publish(Box::new(published.clone()));
    assert_eq!(rig.pass([v4(HERE, 0x0a00_0001), v4(HERE, 0x0a02_0001)]).held, 2);

    // A longer route by another next hop: the waiting packet that it covers leaves by it.
    published.set(Hop(6), adjacency(6));
    rig.adjacencies.publish(Box::new(published.clone()));
    v4_table.announce("10.2.0.0/16".parse().unwrap(), Hop(6));
    v4_table.commit().unwrap();
    assert_eq!(rig.pass::<&[u8]>([]).sent(), 1);
    assert_eq!(rig.far[1].take().unwrap()[5], 6);

    // The route is withdrawn, and its hop assigned to another neighbor: no packet leaves by that.
    v4_table.withdraw("10.0.0.0/8".parse().unwrap());
    v4_table.commit().unwrap();
    published.set(Hop(5), adjacency(99));
    rig.adjacencies.publish(Box::new(published));
    let counted = rig.pass::<&[u8]>([]);
    assert_eq!((counted.sent(), counted.count(Verdict::NoRoute)), (0, 1));
}

/// If a group has an unresolved member, the worker requests the member and not the group.
#[test]
fn of_a_group_the_member_is_asked_for() {
    let mut rig = Rig::new();
    let mut changed = adjacencies(&rig.model);
    let (known, unknown) = (Hop(100), Hop(101));
    changed.set(known, Adjacency::new(2, [2; 6], [2; 6], 1500));
    changed.set(unknown, Adjacency::unresolved(1));
    let group = Group::of(&[(known, 1), (unknown, 1)], &Group::default());
    changed.set_group(hop(RouteTarget::To(0)), group.into());
    rig.adjacencies.publish(Box::new(changed));
    let counted = rig.pass(to_ten(0..100));
    assert_eq!(counted.sent() + counted.held, 100);
    assert!((30..70).contains(&counted.held), "{counted:?}");
    let wanted: Vec<_> = rig.wants.drain().collect();
    assert_eq!(wanted.len() as u64, counted.held);
    assert!(wanted.iter().all(|want| want.hop == unknown));
}

/// A source behind a neighbor without a MAC address is behind the port of its route.
#[test]
fn a_source_is_right_by_its_port_before_its_mac_is_known() {
    let mut rig = Rig::new();
    rig.model.ports[1].sources = [ReversePathFilter::Strict; 2];
    rig.ingresses.publish(Box::new(ingresses(&rig.model)));
    publish(&mut rig, &[0]);
    // 10.0.0.0/8 is behind port 1; the packets go to 10.1.0.0/16, which is resolved.
    let frame = |source| arriving(v4(source, 0x0a01_0001), 1);
    let counted = rig.pass_on(1, [frame(0x0a00_0009), frame(0xc000_0205)]);
    assert_eq!((counted.sent(), counted.count(Verdict::Spoofed)), (1, 1));
}

/// The reference for the hold: the waiting packets of each port, with the tick of their arrival.
struct Room {
    waiting: Vec<VecDeque<(usize, Vec<u8>)>>,
    now: usize,
}

/// The required result of one step.
#[derive(Default)]
struct Step {
    sent: Vec<Vec<Vec<u8>>>,
    verdicts: VerdictMap<u64>,
    punted: usize,
}

impl Room {
    /// Computes one turn: for each port first the waiting packets, then the received ones.
    fn turn(&mut self, model: &Model, unknown: &[usize], port: usize, frames: &[Vec<u8>]) -> Step {
        let mut step =
            Step { sent: vec![Vec::new(); 3], verdicts: VerdictMap::default(), punted: 0 };
        for ingress in 0..3 {
            let mut stay = VecDeque::new();
            let waiting = self.waiting[ingress].drain(..);
            let came = frames.iter().filter(|_| ingress == port);
            for (since, frame) in waiting.chain(came.map(|frame| (self.now, frame.clone()))) {
                match model.decide(ingress, &frame) {
                    (Verdict::Sent | Verdict::TooBig, _)
                        if waits(model, unknown, ingress, &frame) =>
                    {
                        stay.push_back((since, frame));
                        if stay.len() > HELD {
                            stay.pop_front();
                            step.verdicts[Verdict::Unresolved] += 1;
                        }
                    }
                    (verdict, out) => {
                        step.verdicts[verdict] += out.len().max(1) as u64;
                        for (egress, bytes) in out {
                            step.sent[egress].push(bytes);
                        }
                        if verdict.class() == fingerpost_datapath::Class::Punted {
                            step.punted += 1;
                        }
                    }
                }
            }
            self.waiting[ingress] = stay;
        }
        step
    }

    /// Advances the clock by one tick and returns how many packets end.
    fn tick(&mut self) -> u64 {
        self.now += 1;
        let mut ended = 0;
        for waiting in &mut self.waiting {
            while waiting.front().is_some_and(|(since, _)| self.now - since >= TICKS) {
                waiting.pop_front();
                ended += 1;
            }
        }
        ended
    }
}

/// Returns whether the gateway of a packet that would be sent has no MAC address: a copy of the
/// model, in which each gateway's MAC address contains its index, identifies the gateway.
fn waits(model: &Model, unknown: &[usize], port: usize, frame: &[u8]) -> bool {
    let marked: Vec<_> = (0..model.gateways.len()).map(|at| [0xfe, at as u8]).collect();
    let mut marking = crate::rig::model();
    marking.gateways = Vec::new();
    for (gateway, [mark, at]) in model.gateways.iter().zip(&marked) {
        let dst_mac = [*mark, *at, 0, 0, 0, 0];
        marking.gateways.push(crate::reference::Gateway { dst_mac, mtu: 70_000, ..*gateway });
    }
    let sent = marking.decide(port, frame).1;
    sent.first().is_some_and(|(_, bytes)| unknown.contains(&usize::from(bytes[1])))
}

#[test]
fn histories_of_neighbors_go_as_in_the_model() {
    let (mut released, mut ended) = (0, 0);
    for seed in 0..40 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut rig = Rig::new();
        let mut room = Room { waiting: vec![VecDeque::new(); 3], now: 0 };
        let mut unknown = Vec::new();
        let mut seen = rig.worker.stats().snapshot();
        for _ in 0..60 {
            let mut expect = VerdictMap::<u64>::default();
            match rng.u8(..4) {
                0 => {
                    unknown = (0..4).filter(|_| rng.u8(..3) == 0).collect();
                    for gateway in &mut rig.model.gateways {
                        gateway.dst_mac[4] = rng.u8(..);
                    }
                    publish(&mut rig, &unknown);
                }
                1 => {
                    for _ in 0..rng.usize(..6) {
                        rig.worker.tick();
                        expect[Verdict::Unresolved] += room.tick();
                    }
                }
                _ => {}
            }
            let port = rng.usize(..3);
            let frames: Vec<_> =
                (0..rng.usize(..256)).map(|_| arriving(draw(&mut rng), port)).collect();
            let before: usize = room.waiting.iter().map(VecDeque::len).sum();
            let step = room.turn(&rig.model, &unknown, port, &frames);
            rig.pass_on(port, &frames);
            for (egress, sent) in step.sent.into_iter().enumerate() {
                let got: Vec<_> = std::iter::from_fn(|| rig.far[egress].take()).collect();
                assert_eq!(got, sent, "seed {seed}: what leaves on port {egress}");
            }
            let punted: usize =
                rig.hosts.iter().map(|host| std::iter::from_fn(|| host.take()).count()).sum();
            assert_eq!(punted, step.punted);
            let now = rig.worker.stats().snapshot();
            for (verdict, &count) in step.verdicts.iter() {
                expect[verdict] += count;
            }
            assert_eq!((now - seen).verdicts, expect, "seed {seed}");
            seen = now;
            let after: usize = room.waiting.iter().map(VecDeque::len).sum();
            assert_eq!(rig.worker.held(), after);
            assert_eq!(now.held, after as u64);
            released += before.saturating_sub(after);
            ended += expect[Verdict::Unresolved];
        }
    }
    assert!(released > 1000 && ended > 1000, "{released} let go, {ended} ended");
}
