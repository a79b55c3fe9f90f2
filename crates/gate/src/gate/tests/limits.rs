//! Limits of prefixes and destinations, and allowed and blocked sources, at the gate.

use std::sync::Arc;

use fib::Publisher;

use super::{GRANT, PROTECTED, SECOND, packet};
use crate::decision::{FlowCommand, Item, Scope};
use crate::flow::{Flow, Key};
use crate::gate::{DropReason, Gate, Verdict};
use crate::policy::sources::{SourceClass, SourceListBuilder};
use crate::policy::{Action, Address, Grantor, PolicyBuilder, PolicyError};
use crate::state::{Decision, Grant, Stamp};

const MBIT: u64 = 1_000_000;

/// 192.0.2.0/24 with these limits, 198.51.100.0/24 with none, both by one set; 10.0.0.0/8 back;
/// 203.0.113.0/24 and 2001:db8::/64 may pass, the rest of 203.0.112.0/20 and 2001:db8::/48 may not.
fn draft(all: Option<u64>, each: Option<u64>) -> PolicyBuilder {
    let mut draft = PolicyBuilder::new();
    let set = draft.set(&[Grantor { address: Address::V4(1), weight: 1 }]);
    let limited = draft.set_with_limits(set, all, each);
    draft.v4("192.0.2.0/24".parse().unwrap(), Action::Grantors(limited));
    draft.v4("198.51.100.0/24".parse().unwrap(), Action::Grantors(set));
    draft.v4("10.0.0.0/8".parse().unwrap(), Action::Back);
    draft.v6("2001:db8:1::/48".parse().unwrap(), Action::Grantors(limited));
    let mut listed = SourceListBuilder::default();
    listed.v4("203.0.113.0/24".parse().unwrap(), SourceClass::Allowed);
    listed.v4("203.0.112.0/20".parse().unwrap(), SourceClass::Blocked);
    listed.v6("2001:db8::/64".parse().unwrap(), SourceClass::Allowed);
    listed.v6("2001:db8::/48".parse().unwrap(), SourceClass::Blocked);
    draft.sources(Arc::new(listed.build().unwrap()));
    draft
}

struct Rig {
    gate: Gate,
    key: Key,
    publisher: Publisher<crate::policy::Policy>,
}

impl Rig {
    fn new(all: Option<u64>, each: Option<u64>) -> Self {
        let publisher = Publisher::new(draft(all, each).build(1).unwrap());
        let gate = Gate::new(1000, publisher.reader(), 0);
        Self { gate, key: Key::random(), publisher }
    }

    fn grant(&mut self, flow: Flow) {
        let grant = Grant { rate_kib: 1 << 22, ..GRANT };
        let item =
            Item { scope: Scope::of(&flow), command: FlowCommand::Decide(Decision::Grant(grant)) };
        self.gate.decide(0, &item, Stamp::default(), |flow| self.key.hash(flow)).unwrap();
    }

    /// Sends packets of 976 bytes, which leave as 1020, at a megabyte and more each tenth of a second.
    fn rate(&mut self, flows: &[Flow], from: u64) -> Vec<f64> {
        let mut passed = vec![0u32; flows.len()];
        for step in 0..10_000u64 {
            let at = step as usize % flows.len();
            let sent = [packet(&self.key, flows[at], 976)];
            let mut verdict = [Verdict::NoRoute];
            self.gate.process(from + step * SECOND / 10_000, &sent, &mut verdict);
            passed[at] += u32::from(!matches!(verdict[0], Verdict::Drop(_)));
        }
        assert_eq!(self.gate.counts().received, self.gate.counts().ended());
        super::rule_counters::check_balance(&self.gate);
        passed.into_iter().map(|count| f64::from(count) * 1020.0 * 8.0 / 1e6).collect()
    }
}

fn is_near(rate: f64, expect: f64) -> bool {
    (0.95 * expect..1.07 * expect).contains(&rate)
}

#[test]
fn limit_applies_to_its_prefix_only() {
    let mut rig = Rig::new(Some(20 * MBIT), None);
    let flows = [1, 2, 3].map(|src| Flow::v4(src, PROTECTED + src % 2));
    let free = Flow::v4(1, 0xc633_6401);
    flows.into_iter().chain([free]).for_each(|flow| rig.grant(flow));
    let rates = rig.rate(&flows, 0);
    assert!(is_near(rates.iter().sum(), 19.0), "{rates:?}");
    let counts = rig.gate.counts();
    assert!(
        counts.dropped[DropReason::OverLimit].packets > 5_000
            && counts.dropped[DropReason::OverDestinationLimit].packets == 0
    );
    assert!(is_near(rig.rate(&[free], SECOND)[0], 81.6));
    // Packets above the limit are dropped for that reason, also those of flows without an entry.
    let asks = [packet(&rig.key, Flow::v4(9, PROTECTED), 1400); 64];
    let mut verdicts = [Verdict::NoRoute; 64];
    rig.gate.process(2 * SECOND, &asks, &mut verdicts);
    assert!(matches!(verdicts[0], Verdict::Request { dscp: 41, .. }));
    assert_eq!(verdicts[63], Verdict::Drop(DropReason::OverLimit));
    // A new policy takes effect immediately.
    let wider = draft(Some(40 * MBIT), None).build(2).unwrap();
    rig.publisher.publish(Box::new(wider));
    rig.gate.idle();
    assert!(is_near(rig.rate(&flows, 3 * SECOND).iter().sum(), 38.0));
}

#[test]
fn each_destination_has_its_own_limit() {
    let mut rig = Rig::new(Some(40 * MBIT), Some(10 * MBIT));
    let flows = [1, 2, 3].map(|src| Flow::v4(src, PROTECTED + src / 3));
    let six = Flow::v6(9, 0x2001_0db8_0001 << 80);
    flows.into_iter().chain([six]).for_each(|flow| rig.grant(flow));
    let rates = rig.rate(&flows, 0);
    assert!(is_near(rates[0] + rates[1], 9.5) && is_near(rates[2], 9.5), "{rates:?}");
    assert!(rig.gate.counts().dropped[DropReason::OverDestinationLimit].packets > 5_000);
    assert_eq!(rig.gate.counts().dropped[DropReason::OverLimit].packets, 0);
    assert!(is_near(rig.rate(&[six], SECOND)[0], 9.5));
    assert_eq!(rig.gate.displaced(), 0);
}

/// In groups and with coroutines: entries, rates, declines and limits do not apply to an allowed
/// source.
#[test]
fn allowed_source_passes_before_everything() {
    let mut rig = Rig::new(Some(8), None);
    let friend = Flow::v4(0xcb00_7105, PROTECTED);
    let decline = FlowCommand::Decide(Decision::Decline { expire_s: 600 });
    let item = Item { scope: Scope::of(&friend), command: decline };
    rig.gate.decide(0, &item, Stamp::default(), |flow| rig.key.hash(flow)).unwrap();
    let flows = [
        friend,
        Flow::v4(0xcb00_8005, 0xc633_6401),
        Flow::v6(0x2001_0db8 << 96 | 7, 0x2001_0db8_0001 << 80),
        Flow::v4(0xcb00_7106, 0x0a00_0001),
        Flow::v4(0xcb00_7106, 0x0808_0808),
    ];
    let sent = flows.map(|flow| packet(&rig.key, flow, 1000));
    let allowed = Verdict::Allowed { grantor: Address::V4(1) };
    for is_concurrent in [false, true] {
        let mut verdicts = [Verdict::NoRoute; 5];
        match is_concurrent {
            false => rig.gate.process(1, &sent, &mut verdicts),
            true => rig.gate.process_with_coroutines(2, &sent, 3, &mut verdicts),
        }
        assert_eq!((verdicts[0], verdicts[2]), (allowed, allowed));
        assert!(matches!(verdicts[1], Verdict::Request { .. }));
        assert_eq!(verdicts[3..], [Verdict::Back, Verdict::NoRoute]);
    }
    let counts = rig.gate.counts();
    assert_eq!((counts.allowed.packets, counts.dropped[DropReason::Declined].packets), (4, 0));
    // The declined entry, and that of the source that is not on the list.
    assert_eq!(rig.gate.table().len(), 2);
    assert_eq!(counts.received, counts.ended());
}

/// In groups and with coroutines: to any destination, in spite of any grant, and without a new
/// entry.
#[test]
fn blocked_source_is_dropped_before_everything() {
    let mut rig = Rig::new(None, None);
    let granted = Flow::v4(0xcb00_7005, PROTECTED);
    rig.grant(granted);
    let six = 0x2001_0db8 << 96;
    let flows = [
        granted,
        Flow::v4(0xcb00_7205, 0xc633_6401),
        Flow::v4(0xcb00_7205, 0x0a00_0001),
        Flow::v4(0xcb00_7205, 0x0808_0808),
        Flow::v6(six | 1 << 64, 0x2001_0db8_0001 << 80),
        // A neighboring prefix, and exceptions.
        Flow::v4(0xcb00_8005, 0x0a00_0001),
        Flow::v4(0xcb00_7105, 0x0a00_0001),
        Flow::v6(six | 7, six),
    ];
    let sent = flows.map(|flow| packet(&rig.key, flow, 1000));
    for is_concurrent in [false, true] {
        let mut verdicts = [Verdict::Front; 8];
        match is_concurrent {
            false => rig.gate.process(1, &sent, &mut verdicts),
            true => rig.gate.process_with_coroutines(2, &sent, 3, &mut verdicts),
        }
        assert_eq!(verdicts[..5], [Verdict::Drop(DropReason::Blocked); 5]);
        assert_eq!(verdicts[5..], [Verdict::Back, Verdict::Back, Verdict::NoRoute]);
    }
    let counts = rig.gate.counts();
    assert_eq!(
        (counts.dropped[DropReason::Blocked].packets, counts.dropped[DropReason::Blocked].bytes),
        (10, 10_000)
    );
    assert_eq!(rig.gate.table().len(), 1, "the granted one's");
    assert_eq!(counts.received, counts.ended());
    // Without the list, the grant is in force again.
    let mut draft = draft(None, None);
    draft.sources(Arc::default());
    rig.publisher.publish(Box::new(draft.build(2).unwrap()));
    let mut verdict = [Verdict::Front];
    rig.gate.process(3, &sent[..1], &mut verdict);
    assert!(matches!(verdict[0], Verdict::Granted { .. }), "{verdict:?}");
}

#[test]
fn limits_beyond_the_maximum_are_rejected() {
    let mut draft = draft(None, Some(MBIT));
    for _ in 0..crate::limit::aggregate::MAX_LIMITS {
        draft.set_with_limits(0, Some(MBIT), None);
    }
    assert_eq!(draft.build(1).unwrap_err(), PolicyError::TooManyLimits);
}
