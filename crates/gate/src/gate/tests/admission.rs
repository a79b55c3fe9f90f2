//! Admission: a flood leaves a share of the table free, and flows without an entry keep their
//! priority.

use fib::{Prefix, Publisher};

use super::{GRANT, PROTECTED, SECOND, admission_above, draft, packet};
use crate::admission::AdmissionConfig;
use crate::decision::{FlowCommand, Item, Scope};
use crate::flow::{Flow, Key};
use crate::gate::{DropReason, Gate, IgnoredReason, Packet, Verdict};
use crate::state::{Decision, Grant, Stamp};

/// With admission, a million random flows leave the table half empty, and a patient client is
/// recognized at each packet.
#[test]
fn flood_fills_the_table_up_to_the_threshold_only() {
    const ENTRIES: usize = 4096;
    let key = Key::new({
        let mut rng = fastrand::Rng::with_seed(12);
        move || rng.u64(..)
    });
    let publisher = Publisher::new(draft().build(1).unwrap());
    let mut gate: Gate = Gate::new(ENTRIES, publisher.reader(), 0);
    gate.set_admission(&AdmissionConfig { threshold: 0.5, tracked_flows: 1 << 22, seed: 7 });
    let hash = |flow: &Flow| key.hash(flow);
    for src in 0..1000 {
        let scope = Scope::of(&Flow::v4(src, PROTECTED));
        let grant = Grant { rate_kib: 1 << 20, ..GRANT };
        let item = Item { scope, command: FlowCommand::Decide(Decision::Grant(grant)) };
        gate.decide(0, &item, Stamp::default(), hash).unwrap();
    }
    let mut verdicts = [Verdict::NoRoute; 32];
    let mut now = 0;
    // In each hundredth of the first second a patient client starts; it sends after 1, 2 and 4 s.
    let mut dscps: Vec<Vec<u8>> = vec![Vec::new(); 100];
    let gaps = [0, SECOND, 3 * SECOND, 7 * SECOND];
    for batch in 0..9 * 200_000 / 32 {
        now += 160_000;
        let mut packets: [Packet; 32] = core::array::from_fn(|at| {
            packet(&key, Flow::v4((1 << 24) + batch * 32 + at as u32, PROTECTED), 60)
        });
        packets[0] = packet(&key, Flow::v4(batch % 1000, PROTECTED), 60);
        let due = |client: usize| {
            let sent = dscps[client].len();
            sent < 4 && now >= SECOND / 2 + client as u64 * SECOND / 100 + gaps[sent]
        };
        let client = (0..100).find(|&client| due(client));
        if let Some(client) = client {
            packets[1] = packet(&key, Flow::v4((1 << 23) + client as u32, PROTECTED), 60);
        }
        gate.process(now, &packets, &mut verdicts);
        assert!(matches!(verdicts[0], Verdict::Granted { .. }), "batch {batch}");
        let of = |at: usize| match verdicts[at] {
            Verdict::Request { dscp, .. } => dscp,
            other => panic!("{other:?}"),
        };
        if let Some(client) = client {
            dscps[client].push(of(1));
        }
        assert!((2..32).all(|at| of(at) == 41));
        gate.run_maintenance(now, 64);
        assert!(gate.table().len() <= ENTRIES / 2 + 100);
    }
    let (counts, known) = (gate.counts(), [41, 42, 43, 44]);
    assert!(dscps.iter().all(|got| got[..] == known), "{dscps:?}");
    assert!(counts.evicted == 0 && counts.first_seen_overflow < 100, "{counts:?}");
    assert!(counts.first_seen > 1_400_000 && counts.readmitted >= 100, "{counts:?}");
}

/// A flow without an entry has the priority of its waiting time, and a decline of its prefix
/// applies to it.
#[test]
fn flow_without_an_entry_has_its_priority_and_the_declines_of_its_prefix() {
    let key = Key::random();
    let hash = |flow: &Flow| key.hash(flow);
    let publisher = Publisher::new(draft().build(1).unwrap());
    let mut gate: Gate = Gate::new(64, publisher.reader(), 0);
    gate.set_admission(&admission_above(0.0));
    let send = |gate: &mut Gate, now, src| {
        let mut verdict = [Verdict::NoRoute];
        gate.process(now, &[packet(&key, Flow::v4(src, PROTECTED), 60)], &mut verdict);
        match verdict[0] {
            Verdict::Request { dscp, .. } => dscp,
            Verdict::Drop(DropReason::Declined) => 0,
            other => panic!("{other:?}"),
        }
    };
    for src in 0..64 {
        let command = FlowCommand::Decide(Decision::Grant(GRANT));
        let item = Item { scope: Scope::of(&Flow::v4(src, PROTECTED)), command };
        gate.decide(0, &item, Stamp::default(), hash).unwrap();
    }
    let dscps = [0, 1, 3, 7, 8].map(|at| send(&mut gate, at * SECOND, 1000));
    assert_eq!(dscps, [41, 42, 43, 44, 42]);
    assert_eq!((gate.counts().without_entry, gate.table().len()), (5, 64));
    // After a flush the flow is new.
    let item = Item { scope: Scope::of(&Flow::v4(1000, PROTECTED)), command: FlowCommand::Flush };
    gate.decide(9 * SECOND, &item, Stamp::default(), hash).unwrap();
    assert_eq!(send(&mut gate, 10 * SECOND, 1000), 41);
    let scope = Scope::V4(Prefix::truncate(1 << 20, 16), Prefix::ALL);
    let decline = Item { scope, command: FlowCommand::Decide(Decision::Decline { expire_s: 10 }) };
    gate.decide(10 * SECOND, &decline, Stamp::default(), hash).unwrap();
    assert_eq!([0, 1].map(|at| send(&mut gate, (10 + at) * SECOND, 1 << 20)), [0, 0]);
    assert_eq!(send(&mut gate, 21 * SECOND, 1 << 20), 41);
    assert_eq!(gate.counts().dropped[DropReason::Declined].packets, 2);
}

/// 4096 entries under a million random flows.
#[test]
fn flood_evicts_no_granted_flow_and_a_decision_finds_room() {
    const ENTRIES: usize = 4096;
    let key = Key::random();
    let publisher = Publisher::new(draft().build(1).unwrap());
    let mut gate: Gate = Gate::new(ENTRIES, publisher.reader(), 0);
    let hash = |flow: &Flow| key.hash(flow);
    let decide = |gate: &mut Gate, now, src| {
        let scope = Scope::of(&Flow::v4(src, PROTECTED));
        let grant = Grant { rate_kib: 1 << 20, ..GRANT };
        let item = Item { scope, command: FlowCommand::Decide(Decision::Grant(grant)) };
        gate.decide(now, &item, Stamp::default(), hash)
    };
    for src in 0..1000 {
        decide(&mut gate, 0, src).unwrap();
    }
    let mut verdicts = [Verdict::NoRoute; 32];
    let mut now = 0;
    for batch in 0..1_000_000 / 32 {
        now += 32_000;
        // One packet of a granted flow in every batch of new ones.
        let packets: [Packet; 32] = core::array::from_fn(|at| {
            let src = if at == 0 { batch % 1000 } else { (1 << 24) + batch * 32 + at as u32 };
            packet(&key, Flow::v4(src, PROTECTED), 60)
        });
        gate.process(now, &packets, &mut verdicts);
        assert!(matches!(verdicts[0], Verdict::Granted { .. }), "batch {batch}");
        assert!(verdicts[1..].iter().all(|v| matches!(v, Verdict::Request { dscp: 41, .. })));
        gate.run_maintenance(now, 64);
    }
    assert!(gate.counts().evicted > 900_000);
    assert_eq!(gate.counts().without_entry, 0);
    // A decision for a flow whose entry was evicted.
    decide(&mut gate, now, 1 << 24 | 5).unwrap();
    assert_eq!(gate.decided(now), 1001);
    // A table full of grants rejects further ones, keeps them, and forwards requests.
    for src in 2000..2000 + ENTRIES as u32 {
        let full = gate.table().granted() == ENTRIES;
        let result = decide(&mut gate, now, src);
        assert_eq!(result, if full { Err(IgnoredReason::NoRoom) } else { Ok(()) });
    }
    let one = [packet(&key, Flow::v4(77_777, PROTECTED), 60)];
    gate.process(now, &one, &mut verdicts[..1]);
    assert!(matches!(verdicts[0], Verdict::Request { dscp: 41, .. }));
    assert_eq!(gate.counts().without_entry, 1);
    assert_eq!(gate.decided(now), ENTRIES);
}
