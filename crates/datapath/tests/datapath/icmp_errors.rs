//! ICMP errors: the answers of the router itself, byte for byte, and their limits.

use std::sync::Arc;

use fastrand::Rng;
use fib::Hop;
use fingerpost_datapath::stats::IcmpCounter;
use fingerpost_datapath::{
    Adjacency, Candidate, IcmpLimits, Ingress, Ingresses, Lookup, OwnSources, PuntRates, Verdict,
    VerdictMap,
};
use wire::icmp_error::{self, Reason};
use wire::{ipv4, ipv6};

use crate::packets::{draw_spoilt, sound, sound6, v4, v4_with, v6_with};
use crate::reference::{Gateway, RouteTarget, may_fragment};
use crate::rig::{Rig, hop, ingresses, lists, model};

const HERE: u32 = 0xc000_0263;
const NOWHERE: u32 = 0x0808_0808;
/// A destination behind the port with the small MTU of 100.
const NARROW: u32 = 0xcb00_7107;
const DONT_FRAGMENT: u8 = 0b010;
const UNLIMITED: IcmpLimits = IcmpLimits {
    rate: 1_000_000,
    burst: 1_000_000,
    interval_v4: 0,
    interval_v6: 0,
    ..IcmpLimits::DEFAULT
};
const HOST: PuntRates = PuntRates {
    unreachable: PuntRates::UNLIMITED,
    too_big: PuntRates::UNLIMITED,
    ..PuntRates::LOCAL_ONLY
};

/// Returns the own address of errors over IPv4 by a gateway.
fn own4(gateway: usize) -> u32 {
    0x0a63_0001 + ((gateway as u32) << 8)
}

/// Returns the own address of errors over IPv6 about packets of a port.
fn own6(port: usize) -> u128 {
    0x2001_0db8_0063 << 80 | port as u128
}

/// Makes the settings of ports whose packets are answered by table 0.
fn answering() -> Ingresses {
    let terms = ingresses(&model());
    Ingresses::new((0..3).map(|port| {
        let v6 = vec![Candidate { address: own6(port), length: 64 }];
        let answer_sources = Arc::new(OwnSources { v4: Vec::new(), v6 });
        Ingress { answers: [Some(0); 2], answer_sources, ..terms.get(port).clone() }
    }))
}

/// Makes a rig whose worker sends ICMP errors by table 0, within these limits.
fn rig(limits: IcmpLimits) -> Rig {
    let mut rig = Rig::new().with_punts(HOST);
    rig.worker = rig.worker.with_icmp_errors(limits);
    rig.ingresses.publish(Box::new(answering()));
    let mut adjacencies = crate::rig::adjacencies(&model());
    for gateway in 0..4 {
        let v4 = vec![Candidate { address: own4(gateway), length: 32 }];
        let sources = Some(Arc::new(OwnSources::v4_only(v4)));
        assert!(adjacencies.set_own_sources(hop(RouteTarget::To(gateway)), sources));
    }
    rig.adjacencies.publish(Box::new(adjacencies));
    rig
}

/// Returns the frame that answers an IPv4 or IPv6 packet, and its gateway, if the router answers.
fn expected(reason: Reason, frame: &[u8], id: u16) -> Option<(usize, Vec<u8>)> {
    let model = model();
    let (mut tables, mut found, packet) = (lists(&model), [Hop::NONE], &frame[14..]);
    let mut out = [0; 1280];
    let is_v6 = packet[0] >> 4 == 6;
    if is_v6 {
        tables.lookup_v6(0, &[ipv6::View::parse(packet).unwrap().src()], &mut found);
    } else {
        tables.lookup_v4(0, &[ipv4::View::parse(packet).unwrap().src()], &mut found);
    }
    let at = (0..4).find(|at| hop(RouteTarget::To(*at)) == found[0])?;
    let (len, kind) = if is_v6 {
        (icmp_error::emit_v6(reason, packet, own6(0), &mut out), [0x86, 0xdd])
    } else {
        (icmp_error::emit_v4(reason, packet, own4(at), id, &mut out), [8, 0])
    };
    let len = len.unwrap()?;
    let gateway = &model.gateways[at];
    let (dst, src) = (&gateway.dst_mac[..], &gateway.src_mac[..]);
    Some((at, [dst, src, &kind, &out[..len]].concat()))
}

/// Returns whether the host examines the options of a packet, and answers it.
fn has_options(frame: &[u8]) -> bool {
    if frame[14] >> 4 == 6 { frame[14 + 6] == 0 } else { frame[14] != 0x45 }
}

/// Returns the target of the route of a packet in table 0.
fn route_of(frame: &[u8]) -> Option<RouteTarget> {
    let model = model();
    let (mut tables, mut found, packet) = (lists(&model), [Hop::NONE], &frame[14..]);
    if packet[0] >> 4 == 6 {
        tables.lookup_v6(0, &[ipv6::View::parse(packet).unwrap().dst()], &mut found);
    } else {
        tables.lookup_v4(0, &[ipv4::View::parse(packet).unwrap().dst()], &mut found);
    }
    let targets = (0..4).map(RouteTarget::To).chain([RouteTarget::Blackhole, RouteTarget::Host]);
    targets.into_iter().find(|target| hop(*target) == found[0])
}

/// Returns the MTU of the next link, or 1280 for IPv6 if that is more.
fn stated_mtu(frame: &[u8]) -> u32 {
    let Some(RouteTarget::To(at)) = route_of(frame) else { panic!("no gateway") };
    let least = if frame[14] >> 4 == 6 { 1280 } else { 0 };
    (model().gateways[at].mtu as u32).max(least)
}

/// Returns whether the sender of a packet gets no error at all.
fn is_silent(reason: Reason, frame: &[u8]) -> bool {
    let packet = &frame[14..];
    if packet[0] >> 4 == 6 {
        !icmp_error::may_answer_v6(&ipv6::View::parse(packet).unwrap(), reason)
    } else {
        !icmp_error::may_answer_v4(&ipv4::View::parse(packet).unwrap())
    }
}

#[test]
fn drawn_packets_that_cannot_be_forwarded_get_the_expected_error_or_reach_the_host() {
    let mut rig = rig(UNLIMITED);
    let mut met = VerdictMap::<[u64; 3]>::default();
    for seed in 0..20_000 {
        let mut rng = Rng::with_seed(seed);
        let frame = draw_spoilt(&mut rng, 32);
        let (mut verdict, _) = rig.model.decide(0, &frame);
        let by_header = verdict;
        let reason = match verdict {
            Verdict::TtlExpired => match route_of(&frame) {
                // The route of the destination decides first.
                Some(RouteTarget::To(_)) => Reason::TimeExceeded,
                Some(_) => {
                    rig.pass([&frame]);
                    while rig.hosts[0].take().is_some() {}
                    continue;
                }
                None => {
                    verdict = Verdict::NoRoute;
                    Reason::NoRoute
                }
            },
            Verdict::NoRoute => Reason::NoRoute,
            Verdict::TooBig if !may_fragment(&frame) => Reason::TooBig(stated_mtu(&frame)),
            _ => {
                rig.pass([&frame]);
                (0..3).for_each(|port| while rig.far[port].take().is_some() {});
                while rig.hosts[0].take().is_some() {}
                continue;
            }
        };
        let counted = rig.pass([&frame]);
        let got = (0..3).find_map(|port| Some((port, rig.far[port].take()?)));
        let punted = rig.hosts[0].take();
        let id = got.as_ref().filter(|(_, got)| got[14] >> 4 == 4);
        let id = id.map_or(0, |(_, got)| u16::from_be_bytes([got[18], got[19]]));
        let want = expected(reason, &frame, id);
        if has_options(&frame) {
            assert!(got.is_none() && punted == Some(frame), "{verdict:?} of seed {seed}");
            met[verdict][2] += 1;
        } else if is_silent(reason, &frame) {
            assert!(got.is_none() && punted.is_none(), "{verdict:?} of seed {seed}");
            assert_eq!(counted.count(by_header), 1);
            met[verdict][0] += 1;
        } else if let Some((at, want)) = want {
            let Gateway { port, mtu, .. } = model().gateways[at];
            if want.len() - 14 > mtu {
                // An error over IPv4 is cut; links of IPv6 have an MTU of 1280 at least.
                let len = got.map_or(0, |(_, got)| got.len() - 14);
                assert_eq!(len, if want[12] == 8 { mtu } else { 0 }, "{verdict:?} of seed {seed}");
                continue;
            }
            let want = Some((port, want));
            assert!(got == want && punted.is_none(), "{verdict:?} of seed {seed}");
            assert_eq!(counted.count(verdict), 1);
            assert_eq!((counted.originated, counted.count(Verdict::Sent)), (1, 1));
            met[verdict][1] += 1;
        } else {
            assert!(got.is_none() && punted == Some(frame), "{verdict:?} of seed {seed}");
            met[verdict][2] += 1;
        }
    }
    for verdict in [Verdict::TtlExpired, Verdict::NoRoute, Verdict::TooBig] {
        assert!(met[verdict][1] > 20, "{verdict:?}: {:?}", met[verdict]);
    }
    assert!(met.iter().map(|(_, met)| met[0]).sum::<u64>() > 20, "silent: {met:?}");
    assert!(met.iter().map(|(_, met)| met[2]).sum::<u64>() > 20, "punted: {met:?}");
    let icmp = rig.worker.stats().snapshot().icmp;
    assert!(icmp[..3].iter().all(|count| *count > 0) && icmp[3] == 0, "{icmp:?}");
}

#[test]
fn unreachable_and_prohibit_routes_and_unresolved_neighbors_have_their_codes() {
    let mut rig = rig(UNLIMITED);
    let first = hop(RouteTarget::To(1));
    for (adjacency, verdict, codes) in [
        (Adjacency::UNREACHABLE, Verdict::UnreachableRoute, [1, 0]),
        (Adjacency::PROHIBIT, Verdict::ProhibitRoute, [13, 1]),
        (Adjacency::unresolved(2), Verdict::Unresolved, [1, 3]),
    ] {
        let mut there = rig.adjacencies.current().clone();
        there.set(first, adjacency);
        rig.adjacencies.publish(Box::new(there));
        let six = v6_with(ipv6::Header { dst: 0x2001_0db8_0001 << 80 | 1, ..sound6() }, 0);
        let mut counted = rig.pass([v4(HERE, 0x0a01_0101), six]);
        if verdict == Verdict::Unresolved {
            assert_eq!((counted.count(verdict), rig.worker.held()), (0, 2));
            for _ in 0..20 {
                rig.worker.tick();
            }
            // The errors are sent with the next turn, and count as held until then.
            assert_eq!(rig.worker.held(), 2);
            counted = rig.pass::<Vec<u8>>([]);
        }
        assert_eq!((counted.count(verdict), counted.originated), (2, 2), "{verdict:?}");
        let got = rig.far[0].take().expect("an error over IPv4");
        assert_eq!(got[34..36], [3, codes[0]], "{verdict:?}");
        let got = rig.far[1].take().expect("an error over IPv6");
        assert_eq!(got[54..56], [1, codes[1]], "{verdict:?}");
    }
}

#[test]
fn error_waits_for_the_neighbor_of_its_destination() {
    let mut rig = rig(UNLIMITED);
    let (back, to) = (hop(RouteTarget::To(2)), rig.adjacencies.current().clone());
    let mut unresolved = to.clone();
    unresolved.set(back, Adjacency::unresolved(0));
    rig.adjacencies.publish(Box::new(unresolved));
    let counted = rig.pass([v4(HERE, NOWHERE)]);
    assert_eq!((counted.count(Verdict::NoRoute), counted.originated, counted.held), (1, 1, 1));
    assert_eq!(rig.wants.drain().count(), 1, "the next hop is requested");
    rig.adjacencies.publish(Box::new(to));
    let counted = rig.pass::<Vec<u8>>([]);
    assert_eq!(counted.count(Verdict::Sent), 1);
    assert_eq!(rig.far[0].take().expect("the error")[34..36], [3, 0]);
}

#[test]
fn errors_beyond_the_limits_are_counted_and_not_sent() {
    let mut rig = rig(IcmpLimits::DEFAULT);
    let counted = rig.pass((0..100).map(|_| v4(HERE, NOWHERE)));
    assert_eq!((counted.count(Verdict::NoRoute), counted.originated), (100, 6));
    assert_eq!(counted.icmp[IcmpCounter::RateLimited as usize], 94);
    // Those that are too big are not limited for a destination.
    let big = v4_with(
        ipv4::Header { total_len: 200, dst: NARROW, src: HERE, flags: DONT_FRAGMENT, ..sound() },
        0,
    );
    let counted = rig.pass((0..100).map(|_| &big));
    assert_eq!((counted.count(Verdict::TooBig), counted.originated), (100, 100));
}

#[test]
fn published_limits_apply_from_the_next_tick_on() {
    let mut rig = rig(UNLIMITED);
    let frames = || (0..100).map(|_| v4(HERE, NOWHERE));
    assert_eq!(rig.pass(frames()).originated, 100);
    rig.ingresses.publish(Box::new(answering().with_icmp_limits(Some(IcmpLimits::DEFAULT))));
    assert_eq!(rig.pass(frames()).originated, 100);
    rig.worker.tick();
    assert!(rig.pass(frames()).originated < 10);
    // Without published limits, those in force stay.
    rig.ingresses.publish(Box::new(answering()));
    rig.worker.tick();
    assert!(rig.pass(frames()).originated < 10);
}
