//! Forged packets on the front port: dropped in every flow state and for every rule that would
//! forward them.

use super::*;
use crate::policy::sources::{SourceClass, SourceListBuilder};

const GRANTOR: u32 = 0x0a00_0001;
const INSIDE: u32 = PROTECTED + 77;
const HONEST: u32 = 0x0102_0304;

/// The policy of the other tests with what lies behind the gate: 192.0.2.0/24 but for
/// 192.0.2.128/28, which is at the front, and the grantors.
fn guarded(generation: u64, allow: &str) -> Policy {
    let mut draft = draft();
    draft.inside_v4("192.0.2.0/24".parse().unwrap(), true);
    draft.inside_v4("192.0.2.128/28".parse().unwrap(), false);
    draft.inside_v6("2001:db8::/32".parse().unwrap(), true);
    // Rules that lead to a grantor past the gate have no effect.
    draft.v4("10.0.0.1/32".parse().unwrap(), Action::Back);
    draft.tunnel_end(Address::V4(GRANTOR));
    draft.tunnel_end(Address::V6(0xfd02 << 112 | 2));
    let mut listed = SourceListBuilder::default();
    if !allow.is_empty() {
        listed.v4(allow.parse().unwrap(), SourceClass::Allowed);
    }
    draft.sources(Arc::new(listed.build().unwrap()));
    draft.build(generation).unwrap()
}

/// Returns whether a flow is forged, by a scan of the rules.
fn is_forged(flow: &Flow) -> bool {
    match flow.pair() {
        crate::flow::Pair::V4 { src, dst } => {
            let inside = src >> 8 == PROTECTED >> 8 && src >> 4 != (PROTECTED + 128) >> 4;
            inside || src == GRANTOR || dst == GRANTOR
        }
        crate::flow::Pair::V6 { src, dst } => {
            let grantor = 0xfd02 << 112 | 2;
            src >> 96 == 0x2001_0db8 || src == grantor || dst == grantor
        }
    }
}

#[test]
fn forged_packets_are_dropped_in_any_flow_state() {
    let publisher = Publisher::new(guarded(1, "192.0.0.0/16"));
    let mut gate: Gate = Gate::new(4096, publisher.reader(), 0);
    let mut rng = fastrand::Rng::with_seed(4);
    let key = Key::new(|| rng.u64(..));
    let (mut forged, mut honest) = (0u64, 0u64);
    let v4 = [HONEST, INSIDE, PROTECTED + 130, GRANTOR, 0x0a00_0002, 0xc633_6401, 0xcb00_7101];
    let six = 0x2001_0db8 << 96;
    let v6 = [six | 9, 0xfd02 << 112 | 2, 7, 0x2001_0db9 << 96];
    for step in 0..2_000u64 {
        let now = step * SECOND / 100;
        let packets: Vec<_> = (0..rng.usize(1..40))
            .map(|_| {
                let flow = match rng.bool() {
                    true => Flow::v4(*rng.choice(&v4).unwrap(), *rng.choice(&v4).unwrap()),
                    false => Flow::v6(*rng.choice(&v6).unwrap(), *rng.choice(&v6).unwrap()),
                };
                packet(&key, flow, 100)
            })
            .collect();
        // A deceived or malicious grantor.
        let flow = packets[0].flow;
        let item =
            Item { scope: Scope::of(&flow), command: FlowCommand::Decide(Decision::Grant(GRANT)) };
        let decided = gate.decide(now, &item, Stamp::default(), |flow| key.hash(flow));
        assert!(!is_forged(&flow) || decided == Err(IgnoredReason::Unprotected), "{flow}");
        let mut verdicts = vec![Verdict::NoRoute; packets.len()];
        gate.process(now, &packets, &mut verdicts);
        for (packet, verdict) in packets.iter().zip(&verdicts) {
            let dropped = *verdict == Verdict::Drop(DropReason::Forged);
            assert_eq!(dropped, is_forged(&packet.flow), "{} {verdict:?}", packet.flow);
            *if dropped { &mut forged } else { &mut honest } += 1;
        }
        assert_eq!(gate.counts().received, gate.counts().ended());
    }
    assert!(forged > 10_000 && honest > 10_000, "{forged} {honest}");
    assert_eq!(gate.counts().dropped[DropReason::Forged].packets, forged);
}

/// A flow that a new policy protects is granted no longer, though no decision retracted the grant.
#[test]
fn granted_flow_whose_source_moves_behind_the_gate_is_forged() {
    let mut publisher = Publisher::new(draft().build(1).unwrap());
    let mut gate: Gate = Gate::new(64, publisher.reader(), 0);
    let key = Key::new(|| 7);
    let flow = Flow::v4(INSIDE, PROTECTED + 1);
    let item =
        Item { scope: Scope::of(&flow), command: FlowCommand::Decide(Decision::Grant(GRANT)) };
    gate.decide(0, &item, Stamp::default(), |flow| key.hash(flow)).unwrap();
    let mut verdict = [Verdict::NoRoute];
    gate.process(1, &[packet(&key, flow, 100)], &mut verdict);
    assert!(matches!(verdict[0], Verdict::Granted { .. }), "{verdict:?}");
    publisher.publish(Box::new(guarded(2, "")));
    gate.process(2, &[packet(&key, flow, 100)], &mut verdict);
    assert_eq!(verdict[0], Verdict::Drop(DropReason::Forged));
    assert_eq!(gate.table().len(), 0);
}
