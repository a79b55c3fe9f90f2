//! Programs that are replaced while flows run them.

use std::sync::Arc;

use fib::{Prefix, Publisher};

use super::{PROTECTED, bytes_of, draft, packet};
use crate::decision::{FlowCommand, Item, ProgramDecision, Scope};
use crate::flow::{Flow, Key};
use crate::gate::{DropReason, Gate, Verdict};
use crate::program::Programs;
use crate::program::tests::shipped;
use crate::state::Stamp;

/// Each flow continues with the version that it began with, while that is the current or previous
/// one: by a decision of its own or of its prefix, and after a restart.
#[test]
fn flow_continues_with_the_version_that_it_began_with() {
    let key = Key::random();
    let hash = |flow: &Flow| key.hash(flow);
    let policy = Publisher::new(draft().build(1).unwrap());
    let mut published = Publisher::new(Programs::default());
    let mut gate: Gate = Gate::new(1000, policy.reader(), 0);
    gate.set_programs(published.reader());
    let mut cookie = [0; 64];
    // 100 KiB a second, for both limits of grantedv2; renewal after some minutes.
    (cookie[0], cookie[4], cookie[10], cookie[13]) = (100, 100, 9, 9);
    let run = FlowCommand::Run(ProgramDecision { expire_s: 100, program: 7, cookie });
    let begin = |gate: &mut Gate, scope| {
        gate.decide(1, &Item { scope, command: run }, Stamp::default(), hash)
    };
    let send = |gate: &mut Gate, src| {
        let packets = [packet(&key, Flow::v4(src, PROTECTED), 100)];
        let (bytes, mut verdict) = (bytes_of(&packets[0]), [Verdict::NoRoute]);
        gate.process_with(2, &packets, |_| &bytes, &mut verdict);
        verdict[0]
    };
    let one = |src| Scope::of(&Flow::v4(src, PROTECTED));
    let granted = |verdict| matches!(verdict, Verdict::Granted { .. });
    let declined = Verdict::Drop(DropReason::Program);
    let asks = |verdict| matches!(verdict, Verdict::Request { dscp: 41, .. });

    let mut programs = Programs::default();
    programs.set(7, Some(Arc::new(shipped("granted"))));
    published.publish(Box::new(programs.clone()));
    begin(&mut gate, one(1)).unwrap();
    // 0.1.0.0/16 by one decision, with each flow's first packet.
    begin(&mut gate, Scope::V4(Prefix::truncate(0x0001_0000, 16), Prefix::ALL)).unwrap();
    assert!(granted(send(&mut gate, 1)) && granted(send(&mut gate, 0x0001_0001)));

    programs.set(7, Some(Arc::new(shipped("declined"))));
    published.publish(Box::new(programs.clone()));
    assert!(granted(send(&mut gate, 1)) && granted(send(&mut gate, 0x0001_0001)));
    begin(&mut gate, one(2)).unwrap();
    assert_eq!(send(&mut gate, 2), declined);
    assert_eq!(send(&mut gate, 0x0001_0002), declined, "a new flow begins with the new version");
    // A restart changes nothing.
    let flow = Flow::v4(1, PROTECTED);
    let entry = gate.table().find(&flow, hash(&flow)).unwrap();
    let record = *gate.table().entry(entry).record();
    let mut next: Gate = Gate::new(1000, policy.reader(), 0);
    next.set_programs(published.reader());
    assert!(next.restore(2, &flow, hash(&flow), record));
    assert!(granted(send(&mut next, 1)));
    // After another decision the flow has the new version.
    begin(&mut next, one(1)).unwrap();
    assert_eq!(send(&mut next, 1), declined);

    programs.set(7, Some(Arc::new(shipped("grantedv2"))));
    published.publish(Box::new(programs.clone()));
    assert!(asks(send(&mut gate, 1)), "the version before the previous one is gone");
    assert_eq!(send(&mut gate, 2), declined);
    programs.set(7, None);
    published.publish(Box::new(programs.clone()));
    assert!(asks(send(&mut gate, 2)));
    assert_eq!(gate.faults(), 0);
}
