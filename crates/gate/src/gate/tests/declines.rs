//! Declines: limits of those for unproven sources, and the share of the table that they may use.

use fib::Publisher;

use super::*;

const ENTRIES: usize = 4096;

struct Rig {
    key: Key,
    gate: Gate,
    now: u64,
    _policy: Publisher<Policy>,
    _programs: Publisher<Programs>,
}

fn rig(admission: bool) -> Rig {
    let policy = Publisher::new(draft().build(1).unwrap());
    let of_programs = Publisher::new(programs());
    let mut gate: Gate = Gate::new(ENTRIES, policy.reader(), 0);
    gate.set_programs(of_programs.reader());
    if admission {
        gate.set_admission(&admission_above(0.5));
    }
    Rig { key: Key::random(), gate, now: 0, _policy: policy, _programs: of_programs }
}

impl Rig {
    fn send(&mut self, flow: Flow, bytes: &[u8]) -> Verdict {
        let mut verdict = [Verdict::NoRoute];
        let packets = [packet(&self.key, flow, 60)];
        self.gate.process_with(self.now, &packets, |_| bytes, &mut verdict);
        verdict[0]
    }

    fn command(&mut self, flow: Flow, command: FlowCommand) -> Result<(), IgnoredReason> {
        let key = self.key.clone();
        let item = Item { scope: Scope::of(&flow), command };
        self.gate.decide(self.now, &item, Stamp::default(), |flow| key.hash(flow))
    }

    fn decide(&mut self, flow: Flow, decision: Decision) -> Result<(), IgnoredReason> {
        self.command(flow, FlowCommand::Decide(decision))
    }
}

fn provisional(traffic: Traffic) -> Decision {
    Decision::Provisional(Provisional { expire_s: 600, traffic })
}

/// A packet of a flow from its IP header on: `protocol`, to a port.
fn bytes(protocol: u8, port: u16) -> [u8; 40] {
    let mut bytes = [0; 40];
    (bytes[0], bytes[3], bytes[9]) = (0x45, 40, protocol);
    bytes[22..24].copy_from_slice(&port.to_be_bytes());
    bytes
}

#[test]
fn decline_without_proof_overrides_no_grant_and_no_program() {
    let mut rig = rig(false);
    let (granted, running) = (Flow::v4(1, PROTECTED), Flow::v4(2, PROTECTED));
    let grant = Grant { next_renewal_ms: 1, ..GRANT };
    rig.decide(granted, Decision::Grant(grant)).unwrap();
    let mut cookie = [0; 64];
    cookie[..4].copy_from_slice(&64u32.to_le_bytes());
    rig.command(running, FlowCommand::Run(ProgramDecision { expire_s: 300, program: 0, cookie }))
        .unwrap();
    for flow in [granted, running] {
        rig.now += SECOND;
        for traffic in [Traffic::All, Traffic::Protocol(6)] {
            assert_eq!(rig.decide(flow, provisional(traffic)), Err(IgnoredReason::Unproven));
        }
        let verdict = rig.send(flow, &bytes(6, 80));
        assert!(matches!(verdict, Verdict::Granted { .. }), "{verdict:?}");
        // By its addresses, or on proof, it may be declined.
        assert_eq!(rig.decide(flow, Decision::Decline { expire_s: 600 }), Ok(()));
        assert_eq!(rig.send(flow, &bytes(6, 80)), Verdict::Drop(DropReason::Declined));
    }
    assert_eq!((rig.gate.counts().unproven, rig.gate.table().declined()), (4, 2));
}

#[test]
fn decline_of_a_port_leaves_the_rest_of_the_flow() {
    let mut rig = rig(false);
    let flow = Flow::v4(1, PROTECTED);
    let is_request = |verdict| matches!(verdict, Verdict::Request { .. });
    assert!(is_request(rig.send(flow, &bytes(17, 80))));
    rig.decide(flow, provisional(Traffic::Protocol(17))).unwrap();
    assert_eq!(rig.send(flow, &bytes(17, 80)), Verdict::Drop(DropReason::Declined));
    assert!(is_request(rig.send(flow, &bytes(6, 80))));
    rig.decide(flow, provisional(Traffic::Port { protocol: 6, port: 23 })).unwrap();
    assert_eq!(rig.send(flow, &bytes(6, 23)), Verdict::Drop(DropReason::Declined));
    assert!(is_request(rig.send(flow, &bytes(6, 80))));
    rig.now += 10 * SECOND;
    assert!(is_request(rig.send(flow, &bytes(6, 23))));
    rig.decide(flow, provisional(Traffic::All)).unwrap();
    assert_eq!(rig.send(flow, &bytes(6, 80)), Verdict::Drop(DropReason::Declined));
    rig.decide(flow, Decision::Grant(GRANT)).unwrap();
    assert!(matches!(rig.send(flow, &bytes(6, 80)), Verdict::Granted { .. }));
}

/// A flood of 1,750 forged packets a second, each declined for 600 s.
#[test]
fn flood_of_declines_leaves_grants_their_room() {
    for (admission, proven) in [(false, false), (false, true), (true, false), (true, true)] {
        let mut rig = rig(admission);
        let honest = |number: u32| Flow::v4(1 << 24 | number, PROTECTED);
        for number in 0..1_000 {
            rig.decide(honest(number), Decision::Grant(GRANT)).unwrap();
        }
        for number in 0..100_000u32 {
            rig.now += SECOND / 1_750;
            rig.gate.run_maintenance(rig.now, 64);
            let forged = Flow::v4(2 << 24 | number, PROTECTED);
            rig.send(forged, &bytes(17, 53));
            let decline = match proven {
                true => Decision::Decline { expire_s: 600 },
                false => provisional(Traffic::Protocol(17)),
            };
            let _ = rig.decide(forged, decline);
            assert!(rig.gate.table().declined() <= ENTRIES / 4, "{admission} {proven}");
        }
        let later = 1_000..3_000;
        for number in later.clone() {
            assert_eq!(rig.decide(honest(number), Decision::Grant(GRANT)), Ok(()), "{number}");
        }
        for number in (0..1_000).chain(later) {
            let verdict = rig.send(honest(number), &bytes(6, 80));
            assert!(matches!(verdict, Verdict::Granted { .. }), "{number}: {verdict:?}");
        }
        // Grants can use the whole table: they evict every decline, but no other grant.
        for number in 3_000..2 * ENTRIES as u32 {
            let full = number >= ENTRIES as u32;
            let result = rig.decide(honest(number), Decision::Grant(GRANT));
            assert_eq!(result, if full { Err(IgnoredReason::NoRoom) } else { Ok(()) }, "{number}");
        }
        assert_eq!((rig.gate.table().granted(), rig.gate.table().declined()), (ENTRIES, 0));
    }
}

/// With admission, a first packet makes no entry, and neither does an unproven decline of it.
#[test]
fn decline_without_proof_makes_no_entry_under_table_pressure() {
    let mut rig = rig(true);
    (0..ENTRIES as u32 / 2).for_each(|n| _ = rig.send(Flow::v4(n, PROTECTED), &bytes(6, 80)));
    let flows = rig.gate.table().len();
    let forged = Flow::v4(1 << 24, PROTECTED);
    rig.send(forged, &bytes(17, 80));
    assert_eq!(rig.decide(forged, provisional(Traffic::All)), Err(IgnoredReason::Unproven));
    assert_eq!(rig.gate.table().len(), flows);
    assert_eq!(rig.decide(forged, Decision::Decline { expire_s: 1 }), Ok(()));
}

/// A packet with an invalid header chain is an error, and the flow is unchanged.
#[test]
fn malformed_packet_leaves_a_flow_of_a_program_unchanged() {
    let mut rig = rig(false);
    let flow = Flow::v6(1, 0x2001_0db8 << 96);
    let mut good = [0; 48];
    (good[0], good[5], good[6]) = (0x60, 8, 6);
    let mut broken = good;
    (broken[6], broken[41]) = (60, 200);
    for number in [0, 2] {
        let mut cookie = [0; 64];
        (cookie[0], cookie[4], cookie[10]) = (64, 64, 64);
        rig.command(
            flow,
            FlowCommand::Run(ProgramDecision { expire_s: 300, program: number, cookie }),
        )
        .unwrap();
        assert!(matches!(rig.send(flow, &good), Verdict::Granted { .. }));
        let entry = rig.gate.table().find(&flow, rig.key.hash(&flow)).unwrap();
        let before = rig.gate.table().entry(entry).record().to_bytes();
        for packet in [&broken[..], &good[..44], &[]] {
            assert_eq!(rig.send(flow, packet), Verdict::Drop(DropReason::ProgramError));
        }
        assert_eq!(rig.gate.table().entry(entry).record().to_bytes(), before);
        assert!(matches!(rig.send(flow, &good), Verdict::Granted { .. }));
    }
}
