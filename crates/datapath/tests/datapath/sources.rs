//! Accepted and spoofed sources: the cases of RFC 3704 and RFC 8704, and a strict port in random
//! traffic.

use std::sync::Arc;

use fingerpost_datapath::{Adjacency, Group, ReversePathFilter, Verdict};

use crate::flows::grouped;
use crate::packets::{OWN4, OWN6};
use crate::packets::{arriving, draw, v4, v6};
use crate::reference::RouteTarget;
use crate::rig::{Rig, adjacencies, hop, ingresses};

/// The destination of all packets, which the router sends on port 1.
const THERE: u32 = 0x0a00_0001;
const THERE6: u128 = 0x2001_0db8 << 96 | 1;

use ReversePathFilter::{Loose, Off, Strict};

/// Makes a rig whose port `port` has this filter and table 0.
fn rig(port: usize, sources: ReversePathFilter) -> Rig {
    let mut rig = Rig::new();
    check(&mut rig, port, sources);
    rig
}

fn check(rig: &mut Rig, port: usize, sources: ReversePathFilter) {
    rig.model.ports[port].table = 0;
    rig.model.ports[port].sources = [sources; 2];
    rig.ingresses.publish(Box::new(ingresses(&rig.model)));
}

/// Returns whether a packet with this source that arrives on `port` is sent; any verdict other than
/// sent or spoofed is a failure.
fn passes(rig: &mut Rig, port: usize, source: u32) -> bool {
    let counted = rig.compare_on(port, &[arriving(v4(source, THERE), port)]);
    assert_eq!(counted.sent() + counted.count(Verdict::Spoofed), 1, "{counted:?}");
    counted.sent() == 1
}

fn passes6(rig: &mut Rig, port: usize, source: u128) -> bool {
    let counted = rig.compare_on(port, &[arriving(v6(source, THERE6), port)]);
    assert_eq!(counted.sent() + counted.count(Verdict::Spoofed), 1, "{counted:?}");
    counted.sent() == 1
}

/// RFC 3704, 2.2 and 2.4: a route by the same port, a route by another one, no route.
#[test]
fn strict_wants_the_port_and_loose_a_route() {
    // The routes: 192.0.2.0/24 by port 0, 10.0.0.0/8 by port 1, none for 8.8.8.8.
    for (sources, expect) in
        [(Off, [true; 3]), (Loose, [true, true, false]), (Strict, [true, false, false])]
    {
        for (port, [near, far]) in
            [(0, [0xc000_0205, 0x0a00_0009]), (1, [0x0a00_0009, 0xc000_0205])]
        {
            let mut rig = rig(port, sources);
            let got = [near, far, 0x0808_0808].map(|source| passes(&mut rig, port, source));
            assert_eq!(got, expect, "{sources:?} on port {port}");
        }
        // 2001:db8::/32 by port 1, 2001:db8:1:2:8000::/65 by port 0.
        let mut rig = rig(1, sources);
        let near = 0x2001_0db8 << 96 | 9;
        let far = 0x2001_0db8_0001_0002_8000 << 48;
        let got = [near, far, 0x2620_00fe << 96].map(|source| passes6(&mut rig, 1, source));
        assert_eq!(got, expect, "{sources:?}");
    }
}

/// RFC 5635, 4: a prefix that is dropped as a destination is dropped as a source.
#[test]
fn a_source_in_a_black_hole_passes_no_check() {
    for (sources, expect) in [(Off, true), (Loose, false), (Strict, false)] {
        let mut rig = rig(1, sources);
        assert_eq!(passes(&mut rig, 1, 0x0a01_0201), expect, "{sources:?}");
        assert_eq!(passes6(&mut rig, 1, 0x2001_0db8_0001_0002 << 64 | 1), expect, "{sources:?}");
    }
}

#[test]
fn an_own_address_is_nobody_elses() {
    for (sources, expect) in [(Off, true), (Loose, false), (Strict, false)] {
        let mut rig = rig(2, sources);
        // The routes to the two are by port 2 and by port 1; no other host may use these addresses. As by
        // Linux, parse refuses the one of IPv4 without a filter, too.
        let counted = rig.compare_on(2, &[arriving(v4(OWN4, THERE), 2)]);
        assert_eq!(counted.count(Verdict::MartianSource), 1, "{sources:?}");
        assert_eq!(passes6(&mut rig, 2, OWN6), expect, "{sources:?}");
    }
}

/// RFC 3704, 2.3 and RFC 8704, 3.2: a source with two paths may send by both, also while one of
/// them is down.
#[test]
fn every_member_of_a_group_is_a_feasible_path() {
    // 10.0.0.0/8 is a group of gateways on ports 1 and 2.
    let source = 0x0a05_0001;
    for (port, expect) in [(0, false), (1, true), (2, true)] {
        let mut rig = grouped();
        check(&mut rig, port, Strict);
        assert_eq!(passes(&mut rig, port, source), expect, "port {port}");
        check(&mut rig, port, Loose);
        assert!(passes(&mut rig, port, source));
    }
    let mut rig = Rig::new();
    rig.model.ports[2].table = 0;
    rig.model.ports[2].sources = [Strict; 2];
    rig.ingresses.publish(Box::new(ingresses(&rig.model)));
    let (up, down) = (hop(RouteTarget::To(0)), hop(RouteTarget::To(1)));
    let mut changed = adjacencies(&rig.model);
    let group = Group::of(&[(up, 1), (down, 0)], &Group::default());
    assert!(group.buckets().iter().all(|&bucket| bucket == up));
    // 192.0.2.0/24, by the group.
    changed.set_group(hop(RouteTarget::To(2)), Arc::new(group));
    rig.adjacencies.publish(Box::new(changed));
    let counted = rig.pass_on(2, [arriving(v4(0xc000_0205, THERE), 2)]);
    assert_eq!(counted.sent(), 1, "the member that is down is behind port 2");
}

#[test]
fn a_route_to_the_host_is_right_where_it_is_said_to_be() {
    // 10.1.3.0/24 leads to the host.
    let source = 0x0a01_0309;
    let frame = || [arriving(v4(source, THERE), 1)];
    for (sources, anywhere, here, elsewhere) in
        [(Off, true, true, true), (Loose, true, true, true), (Strict, false, true, false)]
    {
        let mut rig = rig(1, sources);
        assert_eq!(passes(&mut rig, 1, source), anywhere);
        for (port, expect) in [(1, here), (2, elsewhere)] {
            let mut changed = adjacencies(&rig.model);
            changed.set(hop(RouteTarget::Host), Adjacency::HOST.behind(port));
            rig.adjacencies.publish(Box::new(changed));
            assert_eq!(rig.pass_on(1, frame()).sent(), u64::from(expect), "{sources:?}");
        }
    }
}

/// The order of the rules: a packet that parse refuses keeps its verdict, a packet for the host is
/// not checked, and a wrong source precedes a missing route.
#[test]
fn the_check_stands_between_parse_and_the_route() {
    let mut rig = rig(1, Strict);
    let mut verdict = |source, destination| {
        let counted = rig.compare_on(1, &[arriving(v4(source, destination), 1)]);
        counted.iter().find(|(_, count)| *count > 0).unwrap().0
    };
    assert_eq!(verdict(0, THERE), Verdict::MartianSource);
    assert_eq!(verdict(0xe000_0001, THERE), Verdict::MulticastSource);
    assert_eq!(verdict(OWN4, THERE), Verdict::MartianSource);
    assert_eq!(verdict(0x7f00_0001, THERE), Verdict::Loopback);
    assert_eq!(verdict(0x0808_0808, OWN4), Verdict::OwnAddress);
    assert_eq!(verdict(0x0808_0808, 0x0909_0909), Verdict::Spoofed);
    assert_eq!(verdict(0x0a00_0009, 0x0909_0909), Verdict::HostRoute);
    assert_eq!(verdict(0x0808_0808, 0x0a01_0201), Verdict::Spoofed);
}

#[test]
fn drawn_sources_end_as_in_the_model() {
    let mut rng = fastrand::Rng::with_seed(77);
    for sources in [Loose, Strict] {
        for port in 0..3 {
            let mut rig = grouped();
            check(&mut rig, port, sources);
            let mut spoofed = 0;
            for _ in 0..300 {
                let frames: Vec<_> =
                    (0..rng.usize(1..256)).map(|_| arriving(draw(&mut rng), port)).collect();
                spoofed += rig.compare_on(port, &frames).count(Verdict::Spoofed);
            }
            assert!(spoofed > 50, "{sources:?} on port {port}: {spoofed}");
        }
    }
}

#[test]
fn port_whose_forwarding_is_off_leaves_the_host_its_packets_and_drops_the_others() {
    let mut rng = fastrand::Rng::with_seed(78);
    for off in [[true, false], [false, true], [true, true]] {
        for port in 0..3 {
            let mut rig = grouped();
            rig.model.ports[port].forwarding_off = off;
            check(&mut rig, port, Strict);
            let (mut refused, mut sent) = (0, 0);
            for _ in 0..100 {
                let frames: Vec<_> =
                    (0..rng.usize(1..256)).map(|_| arriving(draw(&mut rng), port)).collect();
                let counted = rig.compare_on(port, &frames);
                refused += counted.count(Verdict::ForwardingOff);
                sent += counted.sent();
            }
            assert!(refused > 50, "{off:?} on port {port}: {refused}");
            assert_eq!(sent == 0, off == [true; 2], "{off:?} on port {port}: {sent}");
        }
    }
}

#[test]
fn adjacency_without_a_port_has_no_exit() {
    assert_eq!(Adjacency::NONE.exit(), None);
    assert_eq!(Adjacency::BLACKHOLE.behind(3).exit(), Some(3));
    assert!(!Adjacency::BLACKHOLE.behind(3).leads(), "and still leads nowhere");
    let next = Adjacency::new(4, [2; 6], [2; 6], 1500);
    assert_eq!((next.exit(), next.behind(3)), (Some(4), next));
}
