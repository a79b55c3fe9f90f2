//! Every packet to a protected host passes by a verdict that allows it.
//!
//! ```text
//!   frame ─► the steering program, in the kernel ─► passed: would the kernel forward it?
//!                │ (BPF_PROG_TEST_RUN)
//!                └ taken ─► a worker with a gate ─► packets that leave: were they allowed?
//!                                       └────────► punts: would the host forward them to a protected one?
//! ```
//!
//! The frames are random, of every kind that a host can send (`passage/frames.rs`), with random grants
//! and declines. The rules are implemented a second time from the documents (`passage/rule.rs`).
//!
//! No socket is bound under `BPF_PROG_TEST_RUN`, so that a frame for a worker ends as `Unserved`.
//!
//! Limits: one interface and one queue. Changes of interfaces are tested in network namespaces
//! (`smoke/devices_test.sh`, `smoke/queues_test.sh`, `smoke/passage_test.sh`).
//!
//! Needs root, hence the feature `root-tests`.

#![allow(dead_code, reason = "the rig and its packets serve other tests too")]

#[path = "passage/frames.rs"]
mod frames;
#[path = "vantage/rig.rs"]
mod gate_rig;
#[path = "../../datapath/tests/datapath/packets.rs"]
mod packets;
#[path = "passage/rule.rs"]
mod rule;

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use fastrand::Rng;
use gate::flow::Flow;
use port::af_xdp::Locals;
use port::af_xdp::bpf::asm::Action;
use port::af_xdp::steer::{EarlyDropConfig, Steering, SteeringOutcome};

use frames::{CLIENTS, PROTECTED6};
use gate_rig::{BACK4, BACK6, FRONT6, MS, OUTSIDE6, PROTECTED, Rig, config};
use packets::{MAC, OWN4};
use rule::{Exit, Rule};

/// The number of parts of a case, and the frames of a part. Decisions come between parts.
const PARTS: usize = 400;
const PART: usize = 64;

fn locals() -> Locals {
    let v4 = [OWN4, BACK4].map(|own| IpAddr::V4(Ipv4Addr::from(own)));
    let v6 = [FRONT6, BACK6].map(|own| IpAddr::V6(Ipv6Addr::from(own)));
    v4.into_iter().chain(v6).collect()
}

/// Runs the steering program on a frame; returns the counter that grew and the frame afterwards.
fn steer(steering: &Steering, frame: &[u8]) -> (SteeringOutcome, Vec<u8>) {
    let before = steering.counts().expect("the counters can be read");
    let run = steering.program().test_run(frame, 1).expect("the program runs");
    let after = steering.counts().expect("the counters can be read");
    let moved = after.iter().zip(before.iter()).find(|((_, after), (_, before))| after != before);
    let (which, _) = moved.expect("every frame is counted").0;
    let action = if which.drops() { Action::Drop } else { Action::Pass };
    assert_eq!(run.retval, action as u32, "{which:?}");
    (which, run.output)
}

/// Applies random decisions about flows.
fn decide(rng: &mut Rng, rig: &mut Rig, rule: &mut Rule) {
    for _ in 0..rng.usize(..4) {
        let client = rng.u32(..8);
        let flow = match rng.bool() {
            true => Flow::v4(CLIENTS | client, PROTECTED | rng.u32(..2)),
            false => {
                let src = OUTSIDE6 | u128::from(client) << 16;
                Flow::v6(src, PROTECTED6 | rng.u128(..2))
            }
        };
        let grants = rng.u8(..3) > 0;
        if grants {
            rig.grant(flow, 1 << 20);
        } else {
            rig.decline(flow);
        }
        rule.decide(&flow, grants);
    }
}

fn run(more: &str, udp: Option<u16>, seed: u64) {
    let lists = "[allow]\nprefixes = [\"192.0.2.39\"]\n[block]\nprefixes = [\"192.0.2.36/30\"]\n";
    let mut rig = Rig::new(config("10gbit", &format!("{lists}{more}")));
    let closed = EarlyDropConfig { fail_closed: true, protected: 16, ..EarlyDropConfig::default() };
    let steering = Steering::for_gate(MAC, 1, &locals(), closed)
        .expect("the program loads (this test needs root)");
    steering.set_protected(&rule::behind()).expect("there is room");
    let (mut rng, mut rule) = (Rng::with_seed(seed), Rule::new(udp));
    let mut steered: HashMap<SteeringOutcome, u32> = HashMap::new();
    let mut left: HashMap<Exit, u32> = HashMap::new();
    let mut would_pass = 0;
    for _ in 0..PARTS {
        decide(&mut rng, &mut rig, &mut rule);
        rig.rest();
        for _ in 0..PART {
            let mut frame = frames::draw(&mut rng);
            if rng.bool() {
                frame = frames::with_checksum(frame);
            }
            if frame.len() < 14 {
                continue;
            }
            let forwards = rule::kernel_forwards(&frame);
            would_pass += u32::from(forwards);
            let (which, bytes) = steer(&steering, &frame);
            *steered.entry(which).or_default() += 1;
            if which.drops() {
                if which == SteeringOutcome::Unserved {
                    rig.far[0].send(&bytes);
                }
            } else {
                assert!(!forwards, "{which:?}: the kernel would forward {frame:02x?}");
                let answers = rule::host_answers_behind(&frame);
                assert!(!answers, "{which:?}: the kernel would answer {frame:02x?}");
            }
        }
        rig.rest();
        for (at, back) in [(0, false), (1, true)] {
            while let Some(frame) = rig.far[at].take() {
                let exit = if back { rule.back(&frame) } else { rule.front(&frame) };
                let exit = exit.unwrap_or_else(|error| panic!("{error}: {frame:02x?}"));
                *left.entry(exit).or_default() += 1;
            }
            while let Some(frame) = rig.hosts[at].take() {
                if let Err(error) = rule.host(&frame) {
                    panic!("{error}: {frame:02x?}");
                }
                *left.entry(Exit::Host).or_default() += 1;
            }
        }
        rig.check();
        rig.clock.fetch_add(MS, std::sync::atomic::Ordering::Relaxed);
    }
    // A generator that covers few rules would prove nothing.
    let common = [
        SteeringOutcome::Unserved,
        SteeringOutcome::Group,
        SteeringOutcome::Astray,
        SteeringOutcome::Tagged,
        SteeringOutcome::Nested,
        SteeringOutcome::Arp,
        SteeringOutcome::NotIp,
        SteeringOutcome::Unparsed,
        SteeringOutcome::Expiring,
        SteeringOutcome::Multicast,
        SteeringOutcome::LinkLocal,
        SteeringOutcome::Local,
        SteeringOutcome::Forged,
    ];
    for which in common {
        assert!(steered.get(&which).is_some_and(|&count| count >= 20), "{which:?}: {steered:?}");
    }
    for which in [Exit::Request, Exit::Granted, Exit::Allowed, Exit::Back, Exit::Front] {
        assert!(left.get(&which).is_some_and(|&count| count >= 20), "{which:?}: {left:?}");
    }
    assert!(would_pass as usize > PARTS * PART / 4, "{would_pass}");
}

#[test]
fn gate_passes_no_undecided_packet_to_a_protected_host() {
    run("", None, 1);
}

#[test]
fn gate_with_udp_tunnels_passes_no_undecided_packet_to_a_protected_host() {
    run("[tunnel]\nudp_port = 6080", Some(6080), 2);
}

/// The rules detect a program that passes too much: that of an interface without a gate.
#[test]
fn rules_detect_a_program_that_passes_packets_to_forward() {
    let open = Steering::new(MAC, 1, &locals()).expect("the program loads");
    let mut rng = Rng::with_seed(3);
    let past = (0..1000)
        .map(|_| frames::draw(&mut rng))
        .filter(|frame| frame.len() >= 14 && rule::kernel_forwards(frame))
        .filter(|frame| !steer(&open, frame).0.drops())
        .count();
    assert!(past > 250, "{past}");
}
