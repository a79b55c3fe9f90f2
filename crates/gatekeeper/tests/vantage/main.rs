//! A worker with a gate's hook: every packet ends once, nothing is allocated, and packets leave a
//! tunnel unchanged.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::Ordering;

use datapath::{Adjacency, Origin, SIZE, Verdict};
use fastrand::Rng;
use fib::Hop;
use fingerpost_gatekeeper::RuleOutcome;
use gate::decision::{FlowCommand, Item, Scope};
use gate::flow::{Flow, Key};
use gate::state::{Decision, Grant, Stamp};
use wire::tunnel::Outer;
use wire::{ethernet, icmp, ipv4, ipv6, tcp};

use crate::packets::{OWN4, mac};
use crate::packets::{draw, ether, sound, spoil, v4, v4_with, v6, v6_with};
use rig::{BACK4, BACK6, GRANTOR, GRANTOR6, MS, NEXT, OUTSIDE6, PROTECTED, Rig, config, meanings};

mod cookies;
mod forged;
#[path = "../../../datapath/tests/datapath/packets.rs"]
#[expect(dead_code, reason = "the tests of the datapath use all generators")]
mod packets;
mod parts;
mod rig;
mod sealed;
mod steering;

#[test]
fn oversize_packet_is_punted_unless_it_is_for_a_tunnel() {
    let mut rig = Rig::new(config("1gbit", ""));
    let flags = ipv4::DONT_FRAGMENT;
    let header = ipv4::Header { total_len: 1501, flags, src: 0xc000_0201, ..sound() };
    let long = |dst| v4_with(ipv4::Header { dst, ..header }, 0);
    rig.far[0].send(&long(0xc633_6409));
    rig.rest();
    assert_eq!((rig.count(Verdict::Oversize), rig.count(Verdict::TooBig)), (1, 0));
    assert!(rig.hosts[0].take().is_some(), "the host is handed the plain one");
    // Without that flag it leaves in two fragments.
    rig.far[0].send(&v4_with(ipv4::Header { flags: 0, dst: 0xc633_6409, ..header }, 0));
    rig.rest();
    assert_eq!(rig.worker.stats().snapshot().fragments, 2);
    let left = rig.far.iter_mut().map(|far| std::iter::from_fn(|| far.take()).count());
    assert_eq!(left.sum::<usize>(), 2);
    rig.far[0].send(&long(PROTECTED));
    rig.rest();
    assert_eq!((rig.count(Verdict::Oversize), rig.count(Verdict::TooBig)), (1, 1));
    assert!(rig.hosts.iter().all(|host| host.take().is_none()), "and not the one for a tunnel");
    rig.check();
}

#[test]
fn packet_is_unchanged_after_encapsulation_and_decapsulation() {
    let mut rig = Rig::new(config("1gbit", ""));
    // Inner and outer packets of both families.
    let six = 0x2001_0db8 << 96;
    let cases = [
        (v4(0xc000_0201, PROTECTED), 20, true),
        (v6(OUTSIDE6 | 1 << 16, six | 9), 40, false),
        (v6(OUTSIDE6 | 2 << 16, six | 1 << 80), 20, true),
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

/// The same with UDP: a flow keeps its source port, and flows have different ones.
#[test]
fn udp_tunnel_leaves_packets_unchanged_and_has_one_source_port_a_flow() {
    let mut rig = Rig::new(config("1gbit", "[tunnel]\nudp_port = 6080"));
    let six = 0x2001_0db8 << 96;
    let mut ports = std::collections::HashSet::new();
    for n in 0..200u32 {
        let sent = match n % 3 {
            0 => v4(0xc000_0200 + n, PROTECTED),
            1 => v6(OUTSIDE6 | 1 << 16 | u128::from(n), six | 9),
            _ => v6(OUTSIDE6 | 2 << 16 | u128::from(n), six | 1 << 80),
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
            // IPv6 has a UDP checksum, IPv4 has none.
            assert_eq!(udp[6..8] == [0, 0], n % 3 != 1);
            of_flow.push(u16::from_be_bytes([udp[0], udp[1]]));
        }
        assert!(of_flow[0] == of_flow[1] && of_flow[0] >= 49152);
        ports.insert(of_flow[0]);
    }
    assert!(ports.len() > 190, "{}", ports.len());
    rig.check();
    // ICMP errors report the MTU that fits: 28 bytes less over IPv4, 48 over IPv6.
    let answers = [1452, 1453, 1472, 1473].map(|len| answered_mtus(&mut rig, len));
    let (four, six) = (Some(1472), Some(1452));
    assert_eq!(answers, [[None, None], [None, six], [None, six], [four, six]]);
    rig.check();
}

/// Sends a packet of this length over IPv4 and one over IPv6; returns the MTU of each ICMP error, or
/// `None` if the packet reaches the grantor.
fn answered_mtus(rig: &mut Rig, len: u16) -> [Option<u16>; 2] {
    let four = ipv4::Header {
        ttl: 9,
        protocol: 17,
        src: 0xc000_0299,
        dst: PROTECTED,
        total_len: len,
        ..Default::default()
    };
    let six = ipv6::Header {
        payload_len: len - 40,
        next_header: 17,
        hop_limit: 9,
        src: OUTSIDE6 | 7,
        dst: 0x2001_0db8 << 96 | 9,
        ..Default::default()
    };
    // The MTU of Fragmentation Needed, and the low half of that of Packet Too Big.
    [(v4_with(four, 0), 40), (v6_with(six, 0), 60)].map(|(frame, at)| {
        rig.far[0].send(&frame);
        rig.rest();
        let mtu = rig.far[0].take().map(|got| u16::from_be_bytes([got[at], got[at + 1]]));
        assert_eq!(mtu.is_none(), rig.far[1].take().is_some());
        mtu
    })
}

/// With random packets and decisions, a slow link and a running clock: every packet ends once, every
/// verdict of the gate occurs, and nothing is allocated.
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
                // Few sources, so that decisions apply to packets.
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
    // The tests of the gate have packets for each reason of the gate's own. Tested elsewhere are the
    // handover between two workers (steering.rs), and packets that no worker takes and the kernel drops
    // (smoke/queues_test.sh).
    let own = [
        Verdict::Blocked,
        Verdict::Declined,
        Verdict::OverRate,
        Verdict::Policy,
        Verdict::NoGrantor,
        Verdict::OverLimit,
        Verdict::OverDestinationLimit,
        Verdict::Forged,
    ];
    let elsewhere = [Verdict::HandoverFull, Verdict::Unserved];
    let queues =
        |verdict: &Verdict| verdict.origin() == Origin::GateQueues && !elsewhere.contains(verdict);
    for verdict in Verdict::ALL.into_iter().filter(queues).chain(own) {
        assert!(rig.count(verdict) > 0, "no packet ended as {verdict:?}");
    }
    let packets = |name: &str| rig.counters.packets(name);
    let forwarded = ["request", "granted", "back", "front", "no_route", "allowed"];
    let ended = forwarded.into_iter().chain(Verdict::GATE.map(Verdict::name));
    assert_eq!(packets("received"), ended.map(packets).sum::<u64>());
    for verdict in Verdict::GATE {
        assert_eq!(packets(verdict.name()), rig.count(verdict), "{verdict:?}");
    }
    assert!(packets("allowed") > 0);
    rig.worker.close();
    rig.check();
    assert_eq!(rig.worker.held(), 0);
}

/// There are so few packets that each is a sample, with its destination, bytes and outcome.
#[test]
fn samples_have_the_addresses_bytes_and_outcome_of_packets() {
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
    let (mut fates, mut bytes, mut declined) = ([0; 4], 0, 0);
    while let Some(sampled) = rig.rings.sample() {
        assert_eq!(sampled.every, 1);
        fates[sampled.outcome as usize] += 1;
        bytes += u64::from(sampled.bytes);
        let dropped = sampled.outcome == RuleOutcome::Dropped;
        let protected = std::net::IpAddr::V4(PROTECTED.into());
        declined += u64::from(dropped && sampled.destination == protected);
    }
    let packets = |name: &str| rig.counters.packets(name);
    let passed = packets("back") + packets("front");
    let granted = packets("granted") + packets("direct");
    let dropped = packets("received") - packets("request") - granted - passed;
    assert_eq!(fates, [packets("request"), granted, passed, dropped]);
    assert!(packets("request") > 0 && passed > 0 && declined >= 40, "{fates:?}");
    let counted = rig.counters.bytes("received");
    assert_eq!(bytes, counted);
}

#[test]
fn tunneled_packet_is_held_for_its_neighbor_and_never_punted() {
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
    let got = rig.far[1].take().expect("it leaves when the neighbor is known");
    assert_eq!(ipv4::View::parse(&got[14..]).unwrap().ttl(), 64, "it has passed no hop");

    let mut host = meanings();
    host.set(Hop(2), Adjacency::HOST);
    rig.adjacencies.publish(Box::new(host));
    rig.far[0].send(&sent);
    rig.rest();
    rig.check();
    assert_eq!((rig.count(Verdict::HostRoute), rig.count(Verdict::NoRoute)), (0, 1));
}

/// Returns a packet that is one byte longer than the tunnel's MTU.
fn oversize(src: u32, dst: u32) -> Vec<u8> {
    let header =
        ipv4::Header { ttl: 9, protocol: 17, src, dst, total_len: 1481, ..Default::default() };
    v4_with(header, 0)
}

#[test]
fn oversize_packets_are_answered_within_the_budget_of_their_source() {
    let mut rig = Rig::new(config("1gbit", "[tunnel]\nicmp_rate = 50"));
    let mut answers = 0;
    // A thousand a second for two seconds.
    for step in 0..2000u32 {
        rig.far[0].send(&oversize(0xc000_0201, PROTECTED));
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
    // A tenth of fifty a second, and a burst of nine.
    assert!((18..=20).contains(&answers), "{answers}");
    assert_eq!(rig.count(Verdict::TooBig), 2000);
    assert_eq!(rig.worker.stats().snapshot().originated, answers);
}

/// A turn sends at most [`SIZE`] packets, in parts of 64. If the last part is too long for the
/// tunnel, the hook gets its packets back in the same turn, in a call without room, and the answers
/// leave in the next turn.
#[test]
fn oversize_packets_of_a_full_turn_are_answered_in_the_next_turn() {
    let mut rig = Rig::new(config("100gbit", "[tunnel]\nicmp_rate = 1000000"));
    let sources: Vec<u32> = (0..SIZE as u32).map(|i| 0x0b00_0001 + (i << 8)).collect();
    for &source in &sources {
        rig.grant(Flow::v4(source, PROTECTED), 1 << 20);
    }
    let (short, long) = sources.split_at(SIZE - 64);
    for &source in short {
        rig.far[0].send(&v4(source, PROTECTED));
    }
    for &source in long {
        rig.far[0].send(&oversize(source, PROTECTED));
    }
    rig.worker.poll();
    rig.check();
    let stats = rig.worker.stats().snapshot();
    assert_eq!((stats.sent(), stats.count(Verdict::TooBig)), (short.len() as u64, 64));
    assert_eq!((stats.originated, stats.held), (64, 64));
    rig.worker.poll();
    rig.check();
    let mut answered = BTreeSet::new();
    while let Some(got) = rig.far[0].take() {
        answered.insert(ipv4::View::parse(&got[14..]).unwrap().dst());
    }
    assert!(answered.iter().eq(long), "{answered:?}");
}

/// Neither one source nor forged sources use up the answers of others.
#[test]
fn flood_of_oversize_packets_leaves_answers_for_others() {
    for forged in [false, true] {
        let mut rig = Rig::new(config("1gbit", "[tunnel]\nicmp_rate = 50"));
        let (modest, granted) = (0xc000_0301, 0xc000_0401);
        rig.grant(Flow::v4(granted, PROTECTED), 1 << 20);
        let mut answers: HashMap<u32, u32> = HashMap::new();
        for step in 0..2000u32 {
            let source = if forged { 0x0b00_0000 + (step << 8) } else { 0xc000_0201 };
            rig.far[0].send(&oversize(source, PROTECTED));
            if step % 200 == 199 {
                rig.far[0].send(&oversize(modest, PROTECTED + 1));
                rig.far[0].send(&oversize(granted, PROTECTED));
            }
            rig.clock.fetch_add(MS, Ordering::Relaxed);
            rig.worker.poll();
            rig.worker.poll();
            while let Some(got) = rig.far[0].take() {
                let view = ipv4::View::parse(&got[14..]).unwrap();
                *answers.entry(view.dst()).or_default() += 1;
            }
            rig.check();
        }
        assert_eq!(answers.get(&granted), Some(&10), "{forged}: {}", answers.len());
        if !forged {
            assert_eq!(answers.get(&modest), Some(&10), "{answers:?}");
        }
        // All answers are within the rate, and two bursts.
        assert!(answers.values().sum::<u32>() <= 100 + 20, "{forged}");
    }
}

#[test]
fn mss_of_syns_from_the_back_is_clamped_to_the_tunnel() {
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
