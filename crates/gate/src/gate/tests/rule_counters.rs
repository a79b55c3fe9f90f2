//! Outcome counters by rule, against an independent count: the longest prefix of a list, packet by
//! packet, while rules are added, removed and renumbered.

use std::collections::BTreeMap;

use fib::{Prefix, Publisher};

use super::{GRANT, SECOND, packet, random_flow};
use crate::decision::{FlowCommand, Item, Scope};
use crate::flow::{Flow, Key, Pair};
use crate::gate::{DropReason, Gate, OutcomeCounts, Packet, RuleOutcome, Verdict};
use crate::policy::sources::{SourceClass, SourceListBuilder};
use crate::policy::{Action, Address, Grantor, MAX_RULE_IDS, Policy, PolicyBuilder, RuleId};
use crate::state::{Decision, Stamp};

/// Rules of both families; the number is the rule's, if it has one.
const RULES_OF: [(&str, u8, Option<usize>); 9] = [
    ("192.0.2.0/24", 0, Some(0)),
    ("192.0.2.2/32", 0, Some(1)),
    ("192.0.2.240/28", 1, Some(MAX_RULE_IDS - 1)),
    ("192.0.2.3/32", 2, None),
    ("198.51.100.0/24", 3, Some(2)),
    ("203.0.113.0/24", 4, Some(9)),
    ("10.0.0.0/8", 5, None),
    ("2001:db8::/32", 0, Some(4)),
    ("2001:db8::1/128", 2, Some(5)),
];

/// Returns the policy of this generation: each has other line numbers, and one rule is missing.
fn policy(generation: u64) -> (Policy, Vec<(&'static str, RuleId)>) {
    let grantor = |weight| Grantor { address: Address::V4(0x0a00_0001), weight };
    let mut draft = PolicyBuilder::new();
    let sets = [draft.set(&[grantor(1)]), draft.set(&[grantor(0)])];
    let turn = generation as usize - 1;
    let mut lines = Vec::new();
    for (at, (prefix, what, number)) in RULES_OF.into_iter().enumerate() {
        if turn > 0 && turn % RULES_OF.len() == at {
            continue;
        }
        let number = number.map(|number| (number + 16 * turn) % MAX_RULE_IDS);
        let line = number.and_then(RuleId::of_rule).unwrap_or(RuleId::OTHERS);
        lines.push((prefix, line));
        draft.set_rule(line);
        let action = match what {
            0 | 1 if number.is_none() => Action::Grantors(sets[usize::from(what)]),
            0 | 1 => Action::Grantors(draft.set_with_limits(sets[usize::from(what)], None, None)),
            // A limit of a megabit, soon exceeded.
            2 => Action::Grantors(draft.set_with_limits(sets[0], Some(1_000_000), None)),
            3 => Action::Back,
            4 => Action::Front,
            _ => Action::Drop,
        };
        match prefix.contains(':') {
            true => draft.v6(prefix.parse().unwrap(), action),
            false => draft.v4(prefix.parse().unwrap(), action),
        }
    }
    let mut listed = SourceListBuilder::default();
    listed.v4(Prefix::truncate(4, 32), SourceClass::Allowed);
    listed.v4(Prefix::truncate(8, 32), SourceClass::Blocked);
    draft.sources(std::sync::Arc::new(listed.build().unwrap()));
    (draft.build(generation).unwrap(), lines)
}

/// Returns the line of a packet, by a scan of all rules.
fn line_by_scan(lines: &[(&str, RuleId)], flow: &Flow) -> RuleId {
    let length = |text: &str| match flow.pair() {
        Pair::V4 { src: 8, .. } => None,
        Pair::V4 { dst, .. } => {
            let prefix = text.parse::<Prefix<u32>>().ok()?;
            prefix.contains(dst).then(|| prefix.len())
        }
        Pair::V6 { dst, .. } => {
            let prefix = text.parse::<Prefix<u128>>().ok()?;
            prefix.contains(dst).then(|| prefix.len())
        }
    };
    let longest = lines.iter().filter_map(|(text, line)| Some((length(text)?, *line))).max();
    longest.map_or(RuleId::NONE, |(_, line)| line)
}

/// Checks that the ledger and the counters have the same packets and bytes by outcome.
pub(super) fn check_balance(gate: &Gate) {
    let mut sums = OutcomeCounts::default();
    for (_, outcomes) in gate.ledger().lines() {
        for (outcome, count) in outcomes.iter() {
            let sum = &mut sums[outcome];
            (sum.packets, sum.bytes) = (sum.packets + count.packets, sum.bytes + count.bytes);
        }
    }
    let counts = gate.counts();
    assert_eq!(sums.iter().map(|(_, c)| c.packets).sum::<u64>(), counts.received.packets);
    assert_eq!(sums.iter().map(|(_, c)| c.bytes).sum::<u64>(), counts.received.bytes);
    assert_eq!(sums[RuleOutcome::Request].packets, counts.requests.packets);
    let granted = counts.granted.packets + counts.allowed.packets;
    assert_eq!(sums[RuleOutcome::Granted].packets, granted);
    let passed = counts.back.packets + counts.front.packets;
    assert_eq!(sums[RuleOutcome::Passed].packets, passed);
}

#[test]
fn every_packet_is_counted_for_the_rule_that_decided() {
    for in_flight in [0, 5] {
        let mut rng = fastrand::Rng::with_seed(42);
        let key = Key::new(|| rng.u64(..));
        let (first, mut lines) = policy(1);
        let mut publisher = Publisher::new(first);
        let mut gate: Gate = Gate::new(400, publisher.reader(), 0);
        let mut expect = BTreeMap::<RuleId, OutcomeCounts>::new();
        let mut now = 0;
        for round in 0..1200 {
            now += rng.u64(..SECOND / 50);
            if round % 60 == 59 {
                let (next, its) = policy(2 + round / 60);
                publisher.publish(Box::new(next));
                lines = its;
                gate.idle();
                publisher.reclaim();
            }
            let packets: Vec<Packet> = (0..rng.usize(..90))
                .map(|_| packet(&key, random_flow(&mut rng), rng.u32(60..1500)))
                .collect();
            let mut verdicts = vec![Verdict::NoRoute; packets.len()];
            match in_flight {
                0 => gate.process(now, &packets, &mut verdicts),
                _ => gate.process_with_coroutines(now, &packets, in_flight, &mut verdicts),
            }
            for (packet, verdict) in packets.iter().zip(&verdicts) {
                let line = expect.entry(line_by_scan(&lines, &packet.flow)).or_default();
                let count = &mut line[verdict.outcome()];
                count.packets += 1;
                count.bytes += u64::from(packet.bytes);
            }
            let decision = match rng.bool() {
                true => Decision::Decline { expire_s: 2 },
                false => Decision::Grant(GRANT),
            };
            let flow = random_flow(&mut rng);
            let item = Item { scope: Scope::of(&flow), command: FlowCommand::Decide(decision) };
            let _ = gate.decide(now, &item, Stamp::default(), |flow| key.hash(flow));
            gate.run_maintenance(now, 64);
        }
        let used =
            gate.ledger().lines().filter(|(_, outcomes)| *outcomes != OutcomeCounts::default());
        assert_eq!(used.collect::<BTreeMap<_, _>>(), expect);
        check_balance(&gate);
        let counts = gate.counts();
        for (what, count) in [
            ("granted", counts.granted),
            ("allowed", counts.allowed),
            ("blocked", counts.dropped[DropReason::Blocked]),
            ("declined", counts.dropped[DropReason::Declined]),
            ("over a limit", counts.dropped[DropReason::OverLimit]),
            ("without a grantor", counts.dropped[DropReason::NoGrantor]),
            ("without a route", counts.dropped[DropReason::NoRoute]),
        ] {
            assert!(count.packets > 50, "{what}: {counts:?}");
        }
    }
}
