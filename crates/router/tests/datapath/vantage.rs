//! A worker with a gate between its ports: every packet ends once, whatever comes, nothing
//! is allocated, and what enters a tunnel comes out as it was.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fastrand::Rng;
use fib::engine::linear::Linear;
use fib::{Engine, Hop, Prefix, Publisher};
use fingerpost_router::datapath::{
    Adjacencies, Adjacency, Ingress, Ingresses, Locals, Lookup, Verdict, Worker, WorkerSetup, wants,
};
use fingerpost_router::stats::WorkerStats;
use fingerpost_router::vantage::{Config, Fate, Rings, Setup, Station, Steering, Tally, rings};
use gate::cookie::Secret;
use gate::decision::{Item, Say, Scope};
use gate::flow::{Flow, Key};
use gate::policy::Policy;
use gate::state::{Decision, Grant, Stamp};
use port::handover::Handed;
use port::{Arena, MemoryPort, Port};
use wire::tunnel::Outer;
use wire::{ethernet, icmp, ipv4, ipv6, tcp};

use crate::packets::{draw, ether, spoil, v4, v4_with, v6};
use crate::rig::{OWN4, mac};

mod cookies;
mod parts;
mod steering;

const FRAMES: u32 = 4096;
const MS: u64 = 1_000_000;
const PROTECTED: u32 = 0x0a00_0001;
const GRANTOR: u32 = 0xac10_0001;
const GRANTOR6: u128 = 0xfd02 << 112 | 2;
const BACK4: u32 = 0xac10_00fe;
const BACK6: u128 = 0xfd02 << 112 | 1;
const NEXT: [u8; 6] = [2, 0, 0, 0, 9, 1];

/// One table for all ports.
struct List(Linear<u32>, Linear<u128>);

impl Lookup for List {
    fn lookup_v4(&mut self, _: usize, keys: &[u32], hops: &mut [Hop]) {
        self.0.lookup_batch(keys, hops);
    }
    fn lookup_v6(&mut self, _: usize, keys: &[u128], hops: &mut [Hop]) {
        self.1.lookup_batch(keys, hops);
    }
    fn pass(&mut self) {}
    fn idle(&mut self) {}
}

struct Rig {
    worker: Worker<List>,
    far: Vec<MemoryPort>,
    clock: Arc<AtomicU64>,
    rings: Rings,
    tally: Arc<Tally>,
    adjacencies: Publisher<Adjacencies>,
    policy: Publisher<Policy>,
    config: Config,
}

fn config(bandwidth: &str, more: &str) -> Config {
    let text = format!(
        r#"
        [front]
        interface = "front"
        [back]
        interface = "back"
        [link]
        bandwidth = "{bandwidth}"
        requests = 64
        granted = 512
        [table]
        entries = 1024
        [[grantors]]
        name = "site"
        members = [{{ address = "172.16.0.1" }}]
        [[grantors]]
        name = "site6"
        members = [{{ address = "fd02::2" }}]
        [[grantors]]
        name = "nobody"
        members = [{{ address = "172.16.0.9", weight = 0 }}]
        [[policy]]
        prefix = "10.0.0.0/8"
        grantors = "site"
        [[policy]]
        prefix = "192.0.2.0/24"
        action = "front"
        [[policy]]
        prefix = "10.1.2.0/24"
        action = "drop"
        [[policy]]
        prefix = "10.1.3.0/24"
        grantors = "nobody"
        [[policy]]
        prefix = "198.51.100.0/24"
        action = "back"
        [[policy]]
        prefix = "2001:db8::/32"
        grantors = "site6"
        [[policy]]
        prefix = "2001:db8:1::/48"
        grantors = "site"
        [[policy]]
        prefix = "10.1.4.0/24"
        grantors = "site"
        limit = "400kbit"
        [[policy]]
        prefix = "10.1.5.0/24"
        grantors = "site"
        limit_each = "400kbit"
        {more}"#
    );
    Config::parse(&text, Path::new("gate.toml")).expect("the configuration is sound")
}

fn meanings() -> Adjacencies {
    let mut adjacencies = Adjacencies::new();
    adjacencies.set(Hop(1), Adjacency::new(0, NEXT, mac(0), 1500));
    adjacencies.set(Hop(2), Adjacency::new(1, NEXT, mac(1), 1500));
    adjacencies
}

impl Rig {
    fn new(config: Config) -> Self {
        Self::among(config, Key::random(), None)
    }

    /// One of several, that hand each other what is of their flows.
    fn among(config: Config, key: Key, place: Option<(Steering, Handed)>) -> Self {
        let (steering, handed) = place.unzip();
        let (mut far, mut ports) = (Vec::new(), Vec::<Box<dyn Port>>::new());
        for at in 0..2 {
            let (end, near) = MemoryPort::pair(&format!("far{at}"), &format!("near{at}"));
            far.push(end);
            ports.push(Box::new(near.with_mac(mac(at))));
        }
        let four = |text: &str, hop| (text.parse::<Prefix<u32>>().unwrap(), Hop(hop));
        let six = |text: &str, hop| (text.parse::<Prefix<u128>>().unwrap(), Hop(hop));
        let v4 = [four("0.0.0.0/0", 1), four("172.16.0.0/16", 2), four("198.51.100.0/24", 2)];
        let v6 = [six("::/0", 1), six("fd02::/64", 2)];
        let locals = Arc::new(Locals::new([OWN4], []));
        let adjacencies = Publisher::new(meanings());
        let ingresses = Publisher::new(Ingresses::alike(Ingress { locals, ..Ingress::default() }));
        let policy = Publisher::new(config.rules.policy(1).unwrap());
        let (its, ends) = rings();
        let clock = Arc::new(AtomicU64::new(5_000 * MS));
        let time = Arc::clone(&clock);
        let tally = Arc::new(Tally::default());
        let station = Station::new(Setup {
            fixed: &config.fixed,
            workers: 1,
            from4: BACK4,
            from6: BACK6,
            front4: Some(OWN4),
            front6: Some(0xfd01 << 112 | 1),
            mtu: 1500,
            overhead: 40,
            key,
            seed: 7,
            secret: Secret::new(|| 7),
            policy: policy.reader(),
            programs: Publisher::new(config.programs.clone()).reader(),
            ends,
            steering,
            tally: Arc::clone(&tally),
            retained: Vec::new(),
            leave: None,
            clock: Box::new(move || time.load(Ordering::Relaxed)),
        });
        let mut worker = Worker::new(WorkerSetup {
            arena: Arena::new(FRAMES, 2048).unwrap(),
            ports,
            tables: List(Linear::new(v4), Linear::new(v6)),
            adjacencies: adjacencies.reader(),
            ingresses: ingresses.reader(),
            wants: wants().0,
            stats: Arc::new(WorkerStats::new()),
        })
        .with_station(Box::new(station));
        if let Some(handed) = handed {
            worker = worker.with_handed(Box::new(handed.behind(mac(0), 1500)), 0);
        }
        Self { worker, far, clock, rings: its, tally, adjacencies, policy, config }
    }

    /// Takes turns until all is quiet, a tenth of a millisecond each; returns how many.
    fn rest(&mut self) {
        for _ in 0..100_000 {
            self.clock.fetch_add(MS / 10, Ordering::Relaxed);
            if self.worker.poll() == 0 && self.worker.held() == 0 {
                return;
            }
        }
        panic!("something waits for ever");
    }

    fn check(&self) {
        let now = self.worker.stats().snapshot();
        assert!(now.balanced(), "{now:?}");
        // A packet that waits is one frame.
        let back = self.worker.arena().available() + self.worker.held();
        assert_eq!(back, FRAMES as usize);
    }

    fn count(&self, verdict: Verdict) -> u64 {
        self.worker.stats().snapshot().count(verdict)
    }

    fn grant(&mut self, flow: Flow, rate_kib: u32) {
        let terms =
            Grant { rate_kib, expire_s: 60, next_renewal_ms: 50_000, renewal_step_ms: 1000 };
        let say = Say::Decide(Decision::Grant(terms));
        assert!(self.rings.decide(Item { scope: Scope::of(&flow), say }, Stamp::default()));
    }

    fn decline(&mut self, flow: Flow) {
        let say = Say::Decide(Decision::Decline { expire_s: 60 });
        assert!(self.rings.decide(Item { scope: Scope::of(&flow), say }, Stamp::default()));
    }
}

#[test]
fn what_enters_a_tunnel_comes_out_as_it_was() {
    let mut rig = Rig::new(config("1gbit", ""));
    // Over either family, and from either.
    let six = 0x2001_0db8 << 96;
    let cases = [
        (v4(0xc000_0201, PROTECTED), 20, true),
        (v6(six | 1 << 16, six | 9), 40, false),
        (v6(six | 2 << 16, six | 1 << 80), 20, true),
    ];
    for (sent, outer_len, four) in cases {
        rig.far[0].send(&sent);
        rig.rest();
        let got = rig.far[1].take().expect("it goes to the grantor");
        assert_eq!(got[..6], NEXT);
        let outer = Outer::parse(&got[14..]).unwrap();
        assert_eq!((outer.dscp, outer.offset), (41, outer_len));
        let inner = &got[14 + outer.offset..14 + outer.end];
        assert_eq!(inner, &sent[14..14 + inner.len()]);
        if four {
            let view = ipv4::View::parse(&got[14..]).unwrap();
            assert_eq!((view.src(), view.dst(), view.ttl()), (BACK4, GRANTOR, 64));
            assert!(view.checksum_ok() && view.flags() == ipv4::DONT_FRAGMENT);
        } else {
            let view = ipv6::View::parse(&got[14..]).unwrap();
            assert_eq!((view.src(), view.dst(), view.hop_limit()), (BACK6, GRANTOR6, 64));
        }
    }
    rig.check();
}

/// The same in UDP: a flow keeps to its source port, and flows have different ones.
#[test]
fn what_enters_a_tunnel_with_udp_comes_out_as_it_was() {
    let mut rig = Rig::new(config("1gbit", "[tunnel]\nudp_port = 6080"));
    let six = 0x2001_0db8 << 96;
    let mut ports = std::collections::HashSet::new();
    for n in 0..200u32 {
        let sent = match n % 3 {
            0 => v4(0xc000_0200 + n, PROTECTED),
            1 => v6(six | 1 << 16 | u128::from(n), six | 9),
            _ => v6(six | 2 << 16 | u128::from(n), six | 1 << 80),
        };
        let mut of_flow = Vec::new();
        for _ in 0..2 {
            rig.far[0].send(&sent);
            rig.rest();
            let got = rig.far[1].take().expect("it goes to the grantor");
            let outer = Outer::parse_with(&got[14..], Some(6080)).unwrap();
            assert_eq!((outer.dscp, outer.offset), (41, if n % 3 == 1 { 48 } else { 28 }));
            let inner = &got[14 + outer.offset..14 + outer.end];
            assert_eq!(inner, &sent[14..14 + inner.len()]);
            let udp = &got[14 + outer.offset - 8..];
            // Over IPv6 there is a checksum, over IPv4 there is none.
            assert_eq!(udp[6..8] == [0, 0], n % 3 != 1);
            of_flow.push(u16::from_be_bytes([udp[0], udp[1]]));
        }
        assert!(of_flow[0] == of_flow[1] && of_flow[0] >= 49152);
        ports.insert(of_flow[0]);
    }
    assert!(ports.len() > 190, "{}", ports.len());
    rig.check();
    // What does not fit is told what does: 28 bytes less, and 48.
    let mut told = Vec::new();
    for (dst, four) in [(PROTECTED, true), (0, false)] {
        for len in [1452u16, 1453, 1472, 1473] {
            let frame = if four {
                let src = 0xc000_0299;
                let header = ipv4::Header {
                    ttl: 9,
                    protocol: 17,
                    src,
                    dst,
                    total_len: len,
                    ..Default::default()
                };
                v4_with(header, 0)
            } else {
                let header = ipv6::Header {
                    payload_len: len - 40,
                    next_header: 17,
                    hop_limit: 9,
                    src: six | 7,
                    dst: six | 9,
                    ..Default::default()
                };
                crate::packets::v6_with(header, 0)
            };
            rig.far[0].send(&frame);
            rig.rest();
            let got = rig.far[0].take().map(|got| match four {
                true => u32::from(u16::from_be_bytes([got[40], got[41]])),
                false => u32::from_be_bytes([got[58], got[59], got[60], got[61]]),
            });
            assert_eq!(got.is_none(), rig.far[1].take().is_some());
            told.push(got);
        }
    }
    let expect = [None, None, None, Some(1472), None, Some(1452), Some(1452), Some(1452)];
    assert_eq!(told, expect);
    rig.check();
}

/// Whatever comes, with decisions at random, a link that is too narrow, and time that
/// passes: every packet ends once, each of the gate's ways is met, and nothing allocates.
#[test]
fn every_packet_ends_once_and_nothing_is_allocated() {
    let mut rig = Rig::new(config(
        "20mbit",
        "[allow]\nprefixes = [\"192.0.2.39\"]\n[block]\nprefixes = [\"192.0.2.36/30\"]",
    ));
    let mut rng = Rng::with_seed(6);
    for turn in 0..600 {
        let burst = rng.usize(..400);
        for _ in 0..burst {
            let mut frame = if rng.bool() {
                // Few sources, so that decisions meet their packets.
                let dst = [0x0a00_0000, 0x0a00_0000, 0x0a01_0400, 0x0a01_0500][rng.usize(..4)];
                v4(0xc000_0200 | rng.u32(1..40), dst | rng.u32(1..4))
            } else {
                draw(&mut rng)
            };
            if rng.u8(..) < 20 {
                spoil(&mut rng, &mut frame);
            }
            let _ = rig.far[0].send(&frame);
        }
        for _ in 0..rng.usize(..6) {
            let flow = Flow::v4(0xc000_0200 | rng.u32(1..40), 0x0a00_0000 | rng.u32(1..4));
            if rng.u8(..) < 200 {
                let magnitude = rng.u32(..12);
                rig.grant(flow, 1 << magnitude);
            } else {
                rig.decline(flow);
            }
        }
        if turn % 100 == 50 {
            let next = rig.config.rules.policy(turn as u64).unwrap();
            rig.policy.publish(Box::new(next));
        }
        let allocated = allocation_counter::measure(|| {
            for _ in 0..rng.usize(1..20) {
                rig.clock.fetch_add(MS / 10, Ordering::Relaxed);
                rig.worker.poll();
            }
        });
        assert_eq!(allocated.count_total, 0, "in turn {turn}");
        rig.check();
        while rig.policy.reclaim().is_some() {}
        for far in &mut rig.far {
            while far.take().is_some() {}
        }
    }
    // Programs are compiled by clang: smoke/gate.sh. Cookies have to be asked for: cookies.rs. To hand
    // packets over takes two workers: steering.rs.
    let elsewhere = [
        Verdict::Program,
        Verdict::ProgramError,
        Verdict::SynCookie,
        Verdict::Proof,
        Verdict::HandoverFull,
    ];
    let gates = |verdict: &Verdict| verdict.is_gates() && !elsewhere.contains(verdict);
    for verdict in Verdict::ALL.into_iter().filter(gates) {
        assert!(rig.count(verdict) > 0, "no packet ended as {verdict:?}");
    }
    let packets = |name: &str| rig.tally.packets(name);
    let ended = [
        "request",
        "granted",
        "back",
        "front",
        "no_route",
        "blocked",
        "declined",
        "over_rate",
        "policy",
        "no_grantor",
        "program",
        "program_error",
        "over_limit",
        "over_limit_each",
        "syn_cookie",
        "proof",
        "allowed",
    ];
    assert_eq!(packets("received"), ended.into_iter().map(packets).sum::<u64>());
    for (name, verdict) in [
        ("blocked", Verdict::Blocked),
        ("declined", Verdict::Declined),
        ("over_rate", Verdict::OverRate),
        ("policy", Verdict::Policy),
        ("no_grantor", Verdict::NoGrantor),
        ("over_limit", Verdict::OverLimit),
        ("over_limit_each", Verdict::OverLimitEach),
    ] {
        assert_eq!(packets(name), rig.count(verdict), "{name}");
    }
    assert!(packets("allowed") > 0);
    rig.worker.close();
    rig.check();
    assert_eq!(rig.worker.held(), 0);
}

/// So few that each is a sample: where it went, its bytes, and what the gate made of it.
#[test]
fn samples_are_of_what_was_judged() {
    let mut rig = Rig::new(config("1gbit", ""));
    let mut rng = Rng::with_seed(11);
    rig.decline(Flow::v4(0xc000_0201, PROTECTED));
    rig.rest();
    for _ in 0..40 {
        for _ in 0..20 {
            let _ = rig.far[0].send(&draw(&mut rng));
        }
        let _ = rig.far[0].send(&v4(0xc000_0201, PROTECTED));
        rig.rest();
        rig.far[1].take();
    }
    let (mut became, mut bytes, mut declined) = ([0; 4], 0, 0);
    while let Some(sampled) = rig.rings.sample() {
        assert_eq!(sampled.every, 1);
        became[sampled.became as usize] += 1;
        bytes += u64::from(sampled.bytes);
        let dropped = sampled.became == Fate::Dropped;
        let protected = std::net::IpAddr::V4(PROTECTED.into());
        declined += u64::from(dropped && sampled.destination == protected);
    }
    let packets = |name: &str| rig.tally.packets(name);
    let passed = packets("back") + packets("front");
    let granted = packets("granted") + packets("direct");
    let dropped = packets("received") - packets("request") - granted - passed;
    assert_eq!(became, [packets("request"), granted, passed, dropped]);
    assert!(packets("request") > 0 && passed > 0 && declined >= 40, "{became:?}");
    let counted = rig.tally.bytes("received");
    assert_eq!(bytes, counted);
}

#[test]
fn a_tunnel_waits_for_its_neighbour_and_is_never_handed_to_the_host() {
    let mut rig = Rig::new(config("1gbit", ""));
    let mut unknown = meanings();
    unknown.set(Hop(2), Adjacency::unresolved(1));
    rig.adjacencies.publish(Box::new(unknown));
    let sent = v4(0xc000_0201, PROTECTED);
    rig.far[0].send(&sent);
    for _ in 0..10 {
        rig.worker.poll();
    }
    rig.check();
    assert_eq!((rig.worker.held(), rig.far[1].take()), (1, None));
    rig.adjacencies.publish(Box::new(meanings()));
    rig.rest();
    let got = rig.far[1].take().expect("it leaves when the neighbour is known");
    assert_eq!(ipv4::View::parse(&got[14..]).unwrap().ttl(), 64, "it has passed no hop");

    let mut host = meanings();
    host.set(Hop(2), Adjacency::HOST);
    rig.adjacencies.publish(Box::new(host));
    rig.far[0].send(&sent);
    rig.rest();
    rig.check();
    assert_eq!((rig.count(Verdict::HostRoute), rig.count(Verdict::NoRoute)), (0, 1));
}

#[test]
fn what_is_too_big_is_answered_as_often_as_allowed() {
    let mut rig = Rig::new(config("1gbit", "[tunnel]\nanswers = 50"));
    let big = |src| {
        let header = ipv4::Header {
            ttl: 9,
            protocol: 17,
            src,
            dst: PROTECTED,
            total_len: 1481,
            ..Default::default()
        };
        v4_with(header, 0)
    };
    let mut answers = 0;
    // For two seconds, a thousand a second.
    for step in 0..2000u32 {
        rig.far[0].send(&big(0xc000_0201));
        rig.clock.fetch_add(MS, Ordering::Relaxed);
        rig.worker.poll();
        rig.worker.poll();
        while let Some(got) = rig.far[0].take() {
            answers += 1;
            let view = ipv4::View::parse(&got[14..]).unwrap();
            assert_eq!((view.src(), view.dst(), view.ttl()), (OWN4, 0xc000_0201, 64));
            let message = view.payload();
            assert_eq!((message[0], message[1]), (icmp::UNREACHABLE, 4), "step {step}");
            assert_eq!(u16::from_be_bytes([message[6], message[7]]), 1480);
        }
        rig.check();
    }
    // Fifty a second, and a burst of nine.
    assert!((100..=110).contains(&answers), "{answers}");
    assert_eq!(rig.count(Verdict::TooBig), 2000);
    assert_eq!(rig.worker.stats().snapshot().originated, answers);
}

#[test]
fn tcp_is_held_to_what_fits_in_syns_from_the_back() {
    let mut rig = Rig::new(config("1gbit", "[tunnel]\nclamp_mss = true"));
    let mut segments = HashMap::new();
    for (mss, expect) in [(1460u16, 1420u16), (1400, 1400)] {
        let header = ipv4::Header {
            ttl: 9,
            protocol: tcp::PROTOCOL,
            src: PROTECTED,
            dst: 0xc000_0201,
            total_len: 44,
            ..Default::default()
        };
        let mut frame = v4_with(header, 0);
        ether(&mut frame, ethernet::IPV4);
        frame[..6].copy_from_slice(&mac(1));
        let segment = &mut frame[34..58];
        segment.fill(0);
        (segment[12], segment[13]) = (6 << 4, tcp::SYN);
        segment[20..22].copy_from_slice(&[2, 4]);
        segment[22..].copy_from_slice(&mss.to_be_bytes());
        rig.far[1].send(&frame);
        rig.rest();
        let got = rig.far[0].take().expect("it is routed");
        segments.insert(expect, u16::from_be_bytes([got[56], got[57]]));
    }
    assert!(segments.iter().all(|(expect, got)| expect == got), "{segments:?}");
}
