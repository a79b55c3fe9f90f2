//! The gate against an oracle, packet by packet: with a full table, with changing policies, and
//! with decisions about prefixes.

use std::collections::HashMap;

use fib::{Prefix, Publisher};

use std::sync::Arc;

use super::{DropReason, Gate, IgnoredReason, MAX_PREFIX_DECISIONS, Packet, Verdict};
use crate::admission::AdmissionConfig;
use crate::decision::{FlowCommand, Item, ProgramDecision, Scope};
use crate::flow::{Flow, Key};
use crate::policy::{Action, Address, Grantor, Policy, PolicyBuilder};
use crate::program::tests::shipped;
use crate::program::{Machine, ProgramVerdict, Programs};
use crate::state::{Decision, Grant, Outcome, Provisional, Record, Stamp, StartedProgram, Traffic};

mod admission;
mod cookies;
mod declines;
mod forged;
mod limits;
mod rule_counters;
mod versions;

const SECOND: u64 = 1_000_000_000;
const PROTECTED: u32 = 0xc000_0200;
const GRANT: Grant =
    Grant { rate_kib: 64, expire_s: 300, next_renewal_ms: 240_000, renewal_step_ms: 3_000 };

/// Returns a policy: 192.0.2.0/24 and 2001:db8::/32 go to set 0, 192.0.2.240/28 to a set without a
/// usable grantor, 198.51.100.0/24 past the gate, 203.0.113.0/24 back to the front; 10.0.0.0/8 is
/// dropped.
fn draft() -> PolicyBuilder {
    let grantor = |address, weight| Grantor { address: Address::V4(address), weight };
    let mut draft = PolicyBuilder::new();
    let set = draft.set(&[grantor(0x0a00_0001, 1), grantor(0x0a00_0002, 3)]);
    let unusable = draft.set(&[grantor(0x0a00_0003, 0)]);
    let p4 = |text: &str| text.parse::<Prefix<u32>>().unwrap();
    draft.v4(p4("192.0.2.0/24"), Action::Grantors(set));
    draft.v4(p4("192.0.2.240/28"), Action::Grantors(unusable));
    draft.v4(p4("198.51.100.0/24"), Action::Back);
    draft.v4(p4("203.0.113.0/24"), Action::Front);
    draft.v4(p4("10.0.0.0/8"), Action::Drop);
    draft.v6("2001:db8::/32".parse().unwrap(), Action::Grantors(set));
    draft
}

fn packet(key: &Key, flow: Flow, bytes: u32) -> Packet {
    Packet { flow, hash: key.hash(&flow), bytes }
}

fn random_flow(rng: &mut fastrand::Rng) -> Flow {
    let src = rng.u32(..40);
    match rng.u8(..10) {
        0 => Flow::v4(src, 0xc633_6401),
        1 => Flow::v4(src, 0xcb00_7101),
        2 => Flow::v4(src, 0x0a00_0009),
        3 => Flow::v4(src, 0x0808_0808),
        4 => Flow::v4(src, PROTECTED + 250),
        5..8 => Flow::v4(src, PROTECTED + rng.u32(..5)),
        _ => Flow::v6(src.into(), (0x2001_0db8 << 96) + rng.u128(..3)),
    }
}

/// Programs 0, granted, and 2, grantedv2.
fn programs() -> Programs {
    let mut programs = Programs::default();
    programs.set(0, Some(Arc::new(shipped("granted"))));
    programs.set(2, Some(Arc::new(shipped("grantedv2"))));
    programs
}

/// Returns the packet's bytes from its IP header on, which contain only its protocol.
fn bytes_of(packet: &Packet) -> [u8; 40] {
    let mut bytes = [0; 40];
    if packet.flow.is_v6() {
        (bytes[0], bytes[6]) = (0x60, 17);
    } else {
        // Every other packet is a fragment.
        (bytes[0], bytes[3], bytes[7], bytes[9]) = (0x45, 20, packet.bytes as u8 & 1, 6);
    }
    bytes
}

/// The oracle: a map of records, one packet at a time.
fn expected(
    programs: &Programs,
    policy: &Policy,
    records: &mut HashMap<Flow, Record>,
    now: u64,
    packet: &Packet,
) -> Verdict {
    let action = policy.action(&packet.flow);
    let set = match action {
        Some(Action::Grantors(set)) => set,
        other => {
            records.remove(&packet.flow);
            return match other {
                Some(Action::Back) => Verdict::Back,
                Some(Action::Front) => Verdict::Front,
                None => Verdict::NoRoute,
                Some(_) => Verdict::Drop(DropReason::Policy),
            };
        }
    };
    let record = records.entry(packet.flow).or_insert_with(|| Record::new(now));
    let mut outcome = record.packet(now, packet.bytes);
    if outcome == Outcome::Classify {
        let traffic = record.provisional_traffic();
        outcome = record.classified(now, traffic.contains(&bytes_of(packet)));
    }
    if let Outcome::Run(number) = outcome {
        let (mut cookie, until) = (record.cookie(), record.expire_at());
        let answer = match programs.get(number) {
            Some(program) => {
                let (mut machine, bytes) = (Machine::default(), bytes_of(packet));
                machine.packet(program, now, until, &mut cookie, &bytes, packet.bytes)
            }
            None => ProgramVerdict::Missing,
        };
        record.set_cookie(&cookie);
        outcome = record.answer(now, answer);
    }
    let grantor = policy.set(set).unwrap().pick(packet.hash).map(|grantor| grantor.address);
    match (outcome, grantor) {
        (Outcome::Declined, _) => Verdict::Drop(DropReason::Declined),
        (Outcome::OverRate, _) => Verdict::Drop(DropReason::OverRate),
        (Outcome::DeclinedByProgram, _) => Verdict::Drop(DropReason::Program),
        (Outcome::Error, _) => Verdict::Drop(DropReason::ProgramError),
        (Outcome::Run(_) | Outcome::Classify, _) => {
            panic!("the program was run, or the packet classified")
        }
        (_, None) => Verdict::Drop(DropReason::NoGrantor),
        (Outcome::Direct, Some(grantor)) => Verdict::Direct { grantor },
        (Outcome::Request { dscp }, Some(grantor)) => Verdict::Request { grantor, dscp },
        (Outcome::Granted { renew }, Some(grantor)) => Verdict::Granted { grantor, renew },
    }
}

/// Returns the admission above this share of the table, with room for all tracked flows.
fn admission_above(share: f64) -> AdmissionConfig {
    AdmissionConfig { threshold: share, tracked_flows: 1 << 16, seed: 7 }
}

fn check_against_oracle(group: usize, seed: u64, admission: Option<f64>) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let key = Key::new(|| rng.u64(..));
    let mut publisher = Publisher::new(draft().build(1).unwrap());
    let mut gate: Gate = Gate::new(2000, publisher.reader(), 0);
    gate.set_group(group);
    if let Some(share) = admission {
        gate.set_admission(&admission_above(share));
    }
    let mut of_programs = Publisher::new(programs());
    gate.set_programs(of_programs.reader());
    let mut records = HashMap::new();
    let mut now = 0;
    let mut generation = 1;
    for step in 0..6_000 {
        let magnitude = rng.u32(10..32);
        now += rng.u64(..1 << magnitude);
        if rng.u8(..50) == 0 {
            // Another policy: one protected address moves to another set or is exempt.
            generation += 1;
            let mut draft = draft();
            let other = draft.set(&[Grantor { address: Address::V6(7), weight: 1 }]);
            let prefix = Prefix::truncate(PROTECTED + 3, 32);
            match rng.u8(..3) {
                0 => draft.v4(prefix, Action::Grantors(other)),
                1 => draft.exempt_v4(prefix, Action::Back),
                _ => {}
            }
            publisher.publish(Box::new(draft.build(generation).unwrap()));
            // One of the programs is removed or restored.
            let mut programs = programs();
            if rng.bool() {
                programs.set(2, None);
            }
            of_programs.publish(Box::new(programs));
            gate.idle();
            publisher.reclaim();
            assert!(of_programs.reclaim().is_some());
        }
        let packets: Vec<Packet> = (0..rng.usize(..80))
            .map(|_| {
                let flow = random_flow(&mut rng);
                packet(&key, flow, rng.u32(60..1514))
            })
            .collect();
        let mut verdicts = vec![Verdict::NoRoute; packets.len()];
        let bytes: Vec<[u8; 40]> = packets.iter().map(bytes_of).collect();
        gate.process_with(now, &packets, |at| &bytes[at], &mut verdicts);
        for (at, packet) in packets.iter().enumerate() {
            let programs = of_programs.current();
            let expect = expected(programs, publisher.current(), &mut records, now, packet);
            assert_eq!(verdicts[at], expect, "step {step}, packet {at}: {}", packet.flow);
        }
        for _ in 0..rng.u8(..4) {
            let flow = random_flow(&mut rng);
            let decision = match rng.u8(..4) {
                0 => Decision::Decline { expire_s: rng.u32(..20) },
                1 => Decision::Provisional(Provisional {
                    expire_s: rng.u32(..20),
                    traffic: [Traffic::All, Traffic::Protocol(6), Traffic::Protocol(17)]
                        [rng.usize(..3)],
                }),
                _ => Decision::Grant(Grant {
                    rate_kib: rng.u32(..4),
                    next_renewal_ms: 1_000,
                    renewal_step_ms: 500,
                    ..GRANT
                }),
            };
            let stamp = Stamp { sender: rng.u32(..2), number: step + rng.u64(..20) };
            if rng.u8(..3) == 0 {
                let programs = of_programs.current();
                assign_program(&mut rng, &mut gate, &key, programs, &mut records, now, flow, stamp);
                continue;
            }
            let item = Item { scope: Scope::of(&flow), command: FlowCommand::Decide(decision) };
            let result = gate.decide(now, &item, stamp, |flow| key.hash(flow));
            let set = publisher.current().action(&flow);
            // Entries from the previous policy still get decisions.
            if let Some(Action::Grantors(_)) = set {
                let provisional = matches!(decision, Decision::Provisional(_));
                let known = records.get(&flow);
                let settled = known.is_some_and(|record| record.is_settled(now));
                if provisional && (settled || result == Err(IgnoredReason::Unproven)) {
                    // Nor is there an entry for a source that is still unproven.
                    assert_eq!(result, Err(IgnoredReason::Unproven));
                    assert!(settled || admission.is_some());
                    continue;
                }
                let record = records.entry(flow).or_insert_with(|| Record::new(now));
                let counts = record.decide(now, &decision, stamp);
                assert_eq!(result, if counts { Ok(()) } else { Err(IgnoredReason::Late) });
            } else if admission.is_some() && result == Err(IgnoredReason::Unprotected) {
                // It was seen once, and has no entry for a decision.
            } else if let Some(record) = records.get_mut(&flow) {
                record.decide(now, &decision, stamp);
            } else {
                assert_eq!(result, Err(IgnoredReason::Unprotected));
            }
        }
        let counts = gate.counts();
        assert_eq!(counts.received, counts.ended());
        rule_counters::check_balance(&gate);
        assert_eq!((counts.evicted, counts.first_seen_overflow), (0, 0));
        assert_eq!(counts.without_entry, counts.first_seen);
    }
    let counts = gate.counts();
    let met = [
        counts.requests,
        counts.granted,
        counts.renewals,
        counts.back,
        counts.front,
        counts.dropped[DropReason::NoRoute],
        counts.dropped[DropReason::Declined],
        counts.dropped[DropReason::OverRate],
        counts.dropped[DropReason::Policy],
        counts.dropped[DropReason::NoGrantor],
        counts.direct,
        counts.dropped[DropReason::Program],
    ];
    assert_eq!(gate.faults(), 0);
    let admitted = counts.first_seen > 500 && counts.readmitted > 200;
    assert_eq!(admission.is_some(), admitted, "{} {}", counts.first_seen, counts.readmitted);
    assert!(counts.programs > 100, "{}", counts.programs);
    assert!(met.iter().all(|count| count.packets > 100), "an outcome is missing: {met:?}");
}

/// Assigns a program to a flow, at the gate and in the oracle.
#[expect(clippy::too_many_arguments, reason = "the state of a step of the oracle")]
fn assign_program(
    rng: &mut fastrand::Rng,
    gate: &mut Gate,
    key: &Key,
    programs: &Programs,
    records: &mut HashMap<Flow, Record>,
    now: u64,
    flow: Flow,
    stamp: Stamp,
) {
    let mut cookie = [0; 64];
    // Rates in KiB, one or both; renewal after half a second; directly or not.
    (cookie[0], cookie[4], cookie[16]) = (rng.u8(..9), rng.u8(..3), rng.u8(..4));
    (cookie[9], cookie[10], cookie[13]) = (2, rng.u8(..9), 2);
    let program = ProgramDecision { expire_s: rng.u32(..20), program: rng.u8(..3), cookie };
    let item = Item { scope: Scope::of(&flow), command: FlowCommand::Run(program) };
    let result = gate.decide(now, &item, stamp, |flow| key.hash(flow));
    // Other decisions cover flows that the policy does not protect.
    let Some(record) = records.get_mut(&flow) else {
        if result == Ok(()) {
            let mut record = Record::new(now);
            assert!(run(programs, &mut record, now, &program, stamp));
            records.insert(flow, record);
        }
        return;
    };
    if gate.counts().first_seen > 0 && result == Err(IgnoredReason::Unprotected) {
        return;
    }
    if record.is_late(stamp) {
        assert_eq!(result, Err(IgnoredReason::Late));
    } else if run(programs, record, now, &program, stamp) {
        assert_eq!(result, Ok(()));
    } else {
        assert_eq!(result, Err(IgnoredReason::Program));
    }
}

fn run(
    programs: &Programs,
    record: &mut Record,
    now: u64,
    named: &ProgramDecision,
    stamp: Stamp,
) -> bool {
    let mut cookie = named.cookie;
    let Some(program) = programs.get(named.program) else { return false };
    let accepted = Machine::default().init(program, now, &mut cookie);
    let ProgramDecision { program: number, expire_s, .. } = *named;
    let started = StartedProgram { program: number, tag: program.tag(), expire_s, cookie };
    accepted && record.run(now, &started, stamp)
}

#[test]
fn every_packet_has_the_verdict_of_the_oracle() {
    check_against_oracle(super::GROUP, 1, None);
    check_against_oracle(1, 2, None);
    check_against_oracle(7, 3, None);
}

/// Admission changes no verdict: the oracle is the same.
#[test]
fn admission_changes_no_verdict() {
    check_against_oracle(super::GROUP, 4, Some(0.0));
    check_against_oracle(1, 5, Some(0.0));
    check_against_oracle(7, 6, Some(0.05));
}

#[test]
fn decision_about_a_prefix_applies_to_present_and_new_flows() {
    let key = Key::random();
    let hash = |flow: &Flow| key.hash(flow);
    let publisher = Publisher::new(draft().build(1).unwrap());
    let mut gate: Gate = Gate::new(1000, publisher.reader(), 0);
    let send = |gate: &mut Gate, now, src| {
        let mut verdict = [Verdict::NoRoute];
        gate.process(now, &[packet(&key, Flow::v4(src, PROTECTED), 60)], &mut verdict);
        verdict[0]
    };
    let declined = Verdict::Drop(DropReason::Declined);
    let is_request = |verdict| matches!(verdict, Verdict::Request { .. });
    (0..512).for_each(|src| assert!(is_request(send(&mut gate, 0, src))));
    // Those of 0.0.0.0/24 are declined for ten seconds.
    let scope = Scope::V4(Prefix::truncate(0, 24), Prefix::ALL);
    let decline = FlowCommand::Decide(Decision::Decline { expire_s: 10 });
    let stamp = |number| Stamp { sender: 1, number };
    // One of them has a later decision of its own.
    let own = Item {
        scope: Scope::of(&Flow::v4(9, PROTECTED)),
        command: FlowCommand::Decide(Decision::Grant(GRANT)),
    };
    gate.decide(0, &own, stamp(6), hash).unwrap();
    gate.decide(0, &Item { scope, command: decline }, stamp(5), hash).unwrap();
    let mut turns = 0;
    while gate.counts().decided < 256 {
        gate.run_maintenance(0, 100);
        turns += 1;
    }
    assert!((3..=12).contains(&turns), "{turns} turns");
    let half = SECOND / 2;
    for src in 0..512 {
        let verdict = send(&mut gate, half, src);
        match src {
            9 => assert!(matches!(verdict, Verdict::Granted { .. })),
            0..256 => assert_eq!(verdict, declined, "{src}"),
            _ => assert!(is_request(verdict), "{src}"),
        }
    }
    gate.decide(
        half,
        &Item { scope: Scope::of(&Flow::v4(3, PROTECTED)), command: FlowCommand::Flush },
        stamp(7),
        hash,
    )
    .unwrap();
    // A flow that returns while the decline is in force.
    assert_eq!(send(&mut gate, half, 3), declined);
    // The remaining time is rounded up to whole seconds.
    assert!(is_request(send(&mut gate, half + 10 * SECOND, 3)));
    // After a flush, all flows send requests again.
    let decline_all = Item { scope: Scope::V4(Prefix::ALL, Prefix::ALL), command: decline };
    gate.decide(20 * SECOND, &decline_all, stamp(8), hash).unwrap();
    gate.run_maintenance(20 * SECOND, 4000);
    assert_eq!(send(&mut gate, 20 * SECOND, 300), declined);
    let flush_all = Item { command: FlowCommand::Flush, ..decline_all };
    gate.decide(20 * SECOND, &flush_all, stamp(9), hash).unwrap();
    gate.run_maintenance(20 * SECOND, 4000);
    assert!(gate.table().is_empty());
    assert!(is_request(send(&mut gate, 20 * SECOND, 300)));
    // The number of decisions about prefixes is bounded.
    for number in 0..MAX_PREFIX_DECISIONS as u32 + 1 {
        let scope = Scope::V4(Prefix::truncate(number << 8, 24), Prefix::ALL);
        let result = gate.decide(21 * SECOND, &Item { scope, command: decline }, stamp(10), hash);
        let full = number == MAX_PREFIX_DECISIONS as u32;
        assert_eq!(result, if full { Err(IgnoredReason::TooManyPrefixes) } else { Ok(()) });
    }
    // A gate that takes the decisions in force, with what is left of their lifetimes, answers alike.
    let in_force: Vec<_> = gate.prefix_decisions(25 * SECOND).collect();
    assert_eq!(in_force.len(), MAX_PREFIX_DECISIONS);
    let mut next: Gate = Gate::new(4000, publisher.reader(), 25 * SECOND);
    for (item, stamp) in &in_force {
        next.decide(25 * SECOND, item, *stamp, hash).unwrap();
    }
    assert!(next.prefix_decisions(25 * SECOND).eq(in_force));
    for now in [25 * SECOND, 40 * SECOND] {
        assert_eq!(send(&mut next, now, 0x501), send(&mut gate, now, 0x501));
        assert_eq!(next.prefix_decisions(now).count(), gate.prefix_decisions(now).count());
    }
    assert_eq!(gate.prefix_decisions(40 * SECOND).count(), 0);
    // A decision that names a missing program is ignored.
    let run = FlowCommand::Run(ProgramDecision { expire_s: 1, program: 0, cookie: [0; 64] });
    let one = Item { scope: Scope::of(&Flow::v4(3, PROTECTED)), command: run };
    assert_eq!(gate.decide(0, &one, stamp(11), hash), Err(IgnoredReason::Program));
}

#[test]
fn program_of_a_prefix_has_a_new_cookie_for_each_flow() {
    let key = Key::random();
    let hash = |flow: &Flow| key.hash(flow);
    let publisher = Publisher::new(draft().build(1).unwrap());
    let of_programs = Publisher::new(programs());
    let mut gate: Gate = Gate::new(1000, publisher.reader(), 0);
    gate.set_programs(of_programs.reader());
    let mut cookie = [0; 64];
    // One KiB a second, and renewal in four minutes.
    (cookie[0], cookie[6]) = (1, 4);
    let program = ProgramDecision { expire_s: 100, program: 0, cookie };
    let scope = Scope::V4(Prefix::truncate(0, 24), Prefix::ALL);
    let send = |gate: &mut Gate, now, src| {
        let packets = [packet(&key, Flow::v4(src, PROTECTED), 1000)];
        let (bytes, mut verdict) = (bytes_of(&packets[0]), [Verdict::NoRoute]);
        gate.process_with(now, &packets, |_| &bytes, &mut verdict);
        verdict[0]
    };
    for src in 0..10 {
        assert!(matches!(send(&mut gate, 0, src), Verdict::Request { .. }));
    }
    gate.decide(1, &Item { scope, command: FlowCommand::Run(program) }, Stamp::default(), hash)
        .unwrap();
    gate.run_maintenance(1, 4000);
    assert_eq!(gate.table().running(), 10);
    for src in 0..20 {
        assert!(matches!(send(&mut gate, 2, src), Verdict::Granted { renew: false, .. }), "{src}");
        assert_eq!(send(&mut gate, 3, src), Verdict::Drop(DropReason::Program));
    }
    // Without bytes it is an error, and the flow is unchanged.
    let packets = [packet(&key, Flow::v4(7, PROTECTED), 1000)];
    let mut verdict = [Verdict::NoRoute];
    gate.process(4, &packets, &mut verdict);
    assert_eq!(verdict[0], Verdict::Drop(DropReason::ProgramError));
    assert_eq!(gate.table().running(), 20);
}

#[test]
fn packet_path_allocates_nothing() {
    let mut rng = fastrand::Rng::with_seed(9);
    let key = Key::random();
    let publisher = Publisher::new(draft().build(1).unwrap());
    let of_programs = Publisher::new(programs());
    let mut gate: Gate = Gate::new(300, publisher.reader(), 0);
    gate.set_admission(&admission_above(0.5));
    gate.set_programs(of_programs.reader());
    let mut verdicts = [Verdict::NoRoute; 64];
    let allocated = allocation_counter::measure(|| {
        for step in 0..2_000u64 {
            let packets: [Packet; 64] = core::array::from_fn(|_| {
                let flow = random_flow(&mut rng);
                packet(&key, flow, 100)
            });
            let bytes = packets.map(|packet| bytes_of(&packet));
            gate.process_with(step * 1_000_000, &packets, |at| &bytes[at], &mut verdicts);
            let command = match step % 2 {
                0 => FlowCommand::Decide(Decision::Decline { expire_s: 3 }),
                _ => FlowCommand::Run(ProgramDecision { expire_s: 3, program: 2, cookie: [1; 64] }),
            };
            let item = Item { scope: Scope::of(&packets[0].flow), command };
            let _ = gate.decide(step * 1_000_000, &item, Stamp::default(), |flow| key.hash(flow));
            gate.run_maintenance(step * 1_000_000, 64);
        }
    });
    assert_eq!(allocated.count_total, 0);
    assert!(gate.counts().direct.packets > 100, "{:?}", gate.counts());
}

/// With any number of packets in flight, coroutines give the verdicts of sequential processing,
/// also with a table that is full most of the time, and with decisions in between.
#[test]
fn coroutines_equal_sequential_processing() {
    for in_flight in [1, 2, 7, 64] {
        let mut rng = fastrand::Rng::with_seed(in_flight as u64);
        let key = Key::random();
        let publisher = Publisher::new(draft().build(1).unwrap());
        let mut concurrent: Gate = Gate::new(64, publisher.reader(), 0);
        let mut sequential: Gate = Gate::new(64, publisher.reader(), 0);
        sequential.set_group(1);
        if in_flight % 2 == 1 {
            concurrent.set_admission(&admission_above(0.5));
            sequential.set_admission(&admission_above(0.5));
        }
        let mut now = 0;
        for round in 0..400 {
            now += rng.u64(..SECOND / 4);
            let packets: Vec<_> = (0..rng.usize(..90))
                .map(|_| packet(&key, random_flow(&mut rng), rng.u32(60..1500)))
                .collect();
            let mut got = vec![Verdict::NoRoute; packets.len()];
            let mut want = got.clone();
            concurrent.process_with_coroutines(now, &packets, in_flight, &mut got);
            sequential.process(now, &packets, &mut want);
            assert_eq!(got, want, "{in_flight} in flight, round {round}");
            let flow = random_flow(&mut rng);
            let command = match rng.u8(..3) {
                0 => FlowCommand::Flush,
                1 => FlowCommand::Decide(Decision::Decline { expire_s: 2 }),
                _ => FlowCommand::Decide(Decision::Grant(GRANT)),
            };
            let item = Item { scope: Scope::of(&flow), command };
            for gate in [&mut concurrent, &mut sequential] {
                let _ = gate.decide(now, &item, Stamp::default(), |flow| key.hash(flow));
                gate.run_maintenance(now, 64);
            }
            assert_eq!(concurrent.counts(), sequential.counts());
        }
        let counts = sequential.counts();
        assert!(counts.evicted > 1000 || in_flight % 2 == 1 && counts.readmitted > 1000);
        assert!(counts.granted.packets > 100, "{counts:?}");
    }
}
