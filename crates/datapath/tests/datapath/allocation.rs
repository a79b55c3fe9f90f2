//! The fast path does not allocate: the tests count allocations while packets of every kind pass.

use crate::flows::{grouped, odd};
use crate::packets::{arriving, draw, spoil};
use crate::reference::RouteTarget;
use crate::rig::{Rig, hop};
use fastrand::Rng;
use fingerpost_datapath::{
    Adjacency, Candidate, IcmpLimits, Ingress, Ingresses, OwnSources, Verdict,
};
use std::sync::Arc;

#[test]
fn polling_allocates_nothing() {
    let mut rig = Rig::new();
    let mut rng = Rng::with_seed(42);
    let mut passed = 0;
    for turn in 0..200 {
        for _ in 0..rng.usize(..500) {
            let mut frame = draw(&mut rng);
            if rng.bool() {
                spoil(&mut rng, &mut frame);
            }
            assert!(rig.far[0].send(&frame));
        }
        let allocated = allocation_counter::measure(|| {
            let mut now = rig.worker.poll();
            while now > 0 {
                passed += now;
                now = rig.worker.poll();
            }
        });
        assert_eq!(allocated.count_total, 0, "in turn {turn}");
        // Emptying the far ends allocates, outside the measured section.
        for far in &mut rig.far {
            while far.take().is_some() {}
        }
        while rig.hosts[0].take().is_some() {}
    }
    assert!(passed > 10_000, "packets did pass: {passed}");
    assert!(rig.worker.stats().snapshot().balanced());
}

/// Covers groups, source checks, ICMP errors, fragments, and packets that wait, are requested, released and ended. The
/// control plane makes and reclaims the adjacencies outside the measured section.
#[test]
fn waiting_choosing_checking_and_answering_allocate_nothing() {
    let mut rig = grouped();
    let limits =
        IcmpLimits { rate: 1_000_000, interval_v4: 0, interval_v6: 0, ..IcmpLimits::DEFAULT };
    rig.worker = rig.worker.with_icmp_errors(limits);
    let answering = {
        let terms = rig.ingresses.current();
        let v6 = vec![Candidate { address: 0x2001_0db8_0063 << 80 | 1, length: 64 }];
        let answer_sources = Arc::new(OwnSources { v4: Vec::new(), v6 });
        let answering = |port| {
            let answer_sources = Arc::clone(&answer_sources);
            Ingress { answers: [Some(0); 2], answer_sources, ..terms.get(port).clone() }
        };
        Ingresses::new((0..3).map(answering))
    };
    rig.ingresses.publish(Box::new(answering));
    let mut rng = Rng::with_seed(43);
    let mut all = rig.adjacencies.current().clone();
    for at in 0..7 {
        let v4 = vec![Candidate { address: 0x0a63_0001, length: 32 }];
        let own = Arc::new(OwnSources::v4_only(v4));
        all.set_own_sources(hop(RouteTarget::To(at)), Some(own));
    }
    let gateways = [0, 1, 2, 4, 5, 6].map(|at| hop(RouteTarget::To(at)));
    let mut wanted = 0;
    for turn in 0..200 {
        let mut changed = all.clone();
        for hop in gateways {
            if rng.bool() {
                changed.set(hop, Adjacency::unresolved(1));
            }
        }
        rig.adjacencies.publish(Box::new(changed));
        while rig.adjacencies.reclaim().is_some() {}
        for port in 0..3 {
            for _ in 0..rng.usize(..400) {
                let frame = if rng.bool() { draw(&mut rng) } else { odd(&mut rng) };
                assert!(rig.far[port].send(&arriving(frame, port)));
            }
        }
        let allocated = allocation_counter::measure(|| {
            while rig.worker.poll() > 0 {
                rig.worker.tick();
            }
            wanted += rig.wants.drain().count();
            if turn % 20 == 0 {
                rig.worker.close();
            }
        });
        assert_eq!((allocated.count_total, allocated.count_current), (0, 0), "in turn {turn}");
        for far in &mut rig.far {
            while far.take().is_some() {}
        }
        for host in &rig.hosts {
            while host.take().is_some() {}
        }
    }
    let counted = rig.worker.stats().snapshot();
    assert!(counted.originated > 1000 && counted.fragmented > 100, "{counted:?}");
    assert!(counted.balanced() && wanted > 1000, "{wanted} wanted, {counted:?}");
    for met in [Verdict::Unresolved, Verdict::Spoofed, Verdict::Sent] {
        assert!(counted.count(met) > 1000, "{met:?}: {counted:?}");
    }
}

/// The counter counts, so that the tests above can fail.
#[test]
fn the_counter_counts() {
    let allocated = allocation_counter::measure(|| drop(std::hint::black_box(vec![1_u8; 10])));
    assert_eq!(allocated.count_total, 1);
}

/// Covers rules of every action in both directions.
#[test]
fn examining_by_access_lists_allocates_nothing() {
    let rules = ["count", "sample 3 port1", "police 1mbit", "deny length 0-100", "permit"];
    let (mut rig, _lists) = crate::access::Lists::both(&rules);
    let mut rng = Rng::with_seed(44);
    for turn in 0..100 {
        for port in 0..3 {
            for _ in 0..rng.usize(..400) {
                assert!(rig.far[port].send(&arriving(draw(&mut rng), port)));
            }
        }
        let allocated = allocation_counter::measure(|| while rig.worker.poll() > 0 {});
        assert_eq!(allocated.count_total, 0, "in turn {turn}");
        for far in &mut rig.far {
            while far.take().is_some() {}
        }
        for host in &rig.hosts {
            while host.take().is_some() {}
        }
    }
    let counted = rig.worker.stats().snapshot();
    assert!(counted.balanced() && counted.originated > 1000, "{counted:?}");
    for met in [Verdict::AclDenied, Verdict::AclPoliced, Verdict::Sent] {
        assert!(counted.count(met) > 100, "{met:?}: {counted:?}");
    }
}
