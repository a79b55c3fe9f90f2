//! Punts: packets that the host forwards and answers for the router, and their rates.

use fastrand::Rng;
use fingerpost_datapath::{Ingress, Ingresses, PuntRates, Verdict, VerdictMap};
use wire::{ipv4, ipv6};

use crate::packets::{MAC, OWN4};
use crate::packets::{draw_spoilt, sound, sound6, v4, v4_with, v6, v6_with};
use crate::rig::{Rig, ingresses};

const HERE: u32 = 0xc000_0263;
/// A destination without a route.
const NOWHERE: u32 = 0x0808_0808;
/// A destination behind the port with the small MTU of 100.
const NARROW: u32 = 0xcb00_7107;
/// A destination behind port 0, on which the packets of `pass` arrive.
const BACK: u32 = 0xc000_0201;
const DONT_FRAGMENT: u8 = 0b010;

/// No limit for any class except redirects.
const ALL: PuntRates = PuntRates {
    unreachable: PuntRates::UNLIMITED,
    too_big: PuntRates::UNLIMITED,
    ..PuntRates::LOCAL_ONLY
};

fn big(flags: u8) -> Vec<u8> {
    v4_with(ipv4::Header { total_len: 200, dst: NARROW, src: HERE, flags, ..sound() }, 0)
}

fn big6() -> Vec<u8> {
    let dst = 0x2001_0db8_0003 << 80 | 3;
    v6_with(ipv6::Header { payload_len: 100, dst, ..sound6() }, 0)
}

#[test]
fn drawn_packets_that_the_router_cannot_send_reach_the_host_as_they_came() {
    let mut rig = Rig::new().with_punts(ALL);
    rig.model.answers = true;
    let mut met = VerdictMap::<u64>::default();
    for seed in 0..1_000 {
        let mut rng = Rng::with_seed(seed);
        let frames: Vec<_> = (0..rng.usize(1..200)).map(|_| draw_spoilt(&mut rng, 32)).collect();
        let counted = rig.compare_on(0, &frames);
        counted.iter().for_each(|(verdict, n)| met[verdict] += n);
    }
    for verdict in [Verdict::Unreachable, Verdict::Oversize, Verdict::HostRoute] {
        assert!(met[verdict] > 100, "{verdict:?}: {met:?}");
    }
    for verdict in [Verdict::NoRoute, Verdict::PuntLimit] {
        assert_eq!(met[verdict], 0, "{verdict:?}");
    }
    // Fragments that reach beyond 64 KiB are neither divided nor for the host.
    assert!(met[Verdict::TooBig] < 20, "{met:?}");
}

#[test]
fn flood_of_one_class_is_dropped_beyond_its_rate_and_leaves_the_others_theirs() {
    let rates = PuntRates { local: 50, unreachable: 100, too_big: 20, ..ALL };
    let mut rig = Rig::new().with_punts(rates);
    // The buckets contain two ticks' worth at the start.
    let counted = rig.pass((0..200).map(|_| big(DONT_FRAGMENT)));
    assert_eq!((counted.count(Verdict::Oversize), counted.count(Verdict::TooBig)), (4, 196));
    let counted = rig.pass([big6(), v4(HERE, NOWHERE), v4(HERE, OWN4)]);
    assert_eq!(counted.count(Verdict::TooBig), 1, "Packet Too Big is of the class of the flood");
    assert_eq!((counted.count(Verdict::Unreachable), counted.count(Verdict::OwnAddress)), (1, 1));
    // In ten seconds of flood each class gets its rate.
    let mut all = counted - counted;
    for _ in 0..100 {
        rig.worker.tick();
        let frames = (0..40).flat_map(|_| [big(DONT_FRAGMENT), v4(HERE, NOWHERE), v4(HERE, OWN4)]);
        all = all + rig.pass(frames);
        while rig.hosts[0].take().is_some() {}
    }
    let count = |verdict| all.count(verdict);
    assert!((200..=204).contains(&count(Verdict::Oversize)), "{all:?}");
    assert_eq!(count(Verdict::Oversize) + count(Verdict::TooBig), 4_000);
    assert!((1_000..=1_020).contains(&count(Verdict::Unreachable)), "{all:?}");
    assert_eq!(count(Verdict::Unreachable) + count(Verdict::NoRoute), 4_000);
    assert!((500..=510).contains(&count(Verdict::OwnAddress)), "{all:?}");
    assert_eq!(count(Verdict::OwnAddress) + count(Verdict::PuntLimit), 4_000);
}

#[test]
fn packet_that_leaves_where_it_came_is_the_hosts_while_redirects_last() {
    let mut rig = Rig::new().with_punts(PuntRates { redirect: 20, ..ALL });
    let mut six = v6(0x2001_0db8 << 96 | 0x63, HERE.into());
    let frames: Vec<_> = (0..9).map(|_| v4(HERE, BACK)).collect();
    let counted = rig.pass(&frames);
    assert_eq!((counted.count(Verdict::Redirect), counted.count(Verdict::Sent)), (4, 5));
    for _ in 0..4 {
        let punted = rig.hosts[0].take().expect("the host got it");
        let mut want = frames[0].clone();
        // Only the MAC address of the frame's sender is lost.
        want[6..12].copy_from_slice(&punted[6..12]);
        assert_eq!((punted.len(), &punted[..6]), (want.len(), &MAC[..]));
        assert_eq!(punted, want, "TTL and checksum are those of before");
    }
    // The other family, by a route to a gateway behind port 0.
    rig.worker.tick();
    let mut there = rig.adjacencies.current().clone();
    let to = there.get(crate::rig::hop(crate::reference::RouteTarget::To(2)));
    there.set(crate::rig::hop(crate::reference::RouteTarget::To(0)), to);
    rig.adjacencies.publish(Box::new(there));
    six[14 + 24..14 + 40].copy_from_slice(&(0x2001_0db8u128 << 96 | 0x64).to_be_bytes());
    let counted = rig.pass([&six]);
    assert_eq!(counted.count(Verdict::Redirect), 1);
    let punted = rig.hosts[0].take().expect("the host got it");
    assert_eq!(punted[14..], six[14..], "the hop limit is that of before");
}

#[test]
fn host_with_another_table_gets_no_packet_to_forward() {
    let mut rig = Rig::new().with_punts(PuntRates { redirect: 100, ..ALL });
    let model = crate::rig::model();
    let terms = ingresses(&model);
    let isolated = |isolated| {
        let terms = terms.clone();
        Ingresses::new((0..3).map(move |port| Ingress { isolated, ..terms.get(port).clone() }))
    };
    let host4 = v4(HERE, 0x0a01_0309);
    let host6 = v6(0x2001_0db8 << 96 | 0x63, 0x2001_0db8_0001_0003 << 64 | 9);
    let frames =
        [v4(HERE, NOWHERE), big(DONT_FRAGMENT), host4, v4(HERE, BACK), host6, v4(HERE, OWN4)];
    rig.ingresses.publish(Box::new(isolated([true, false])));
    let counted = rig.pass(&frames);
    assert_eq!((counted.count(Verdict::NoRoute), counted.count(Verdict::TooBig)), (1, 1));
    assert_eq!((counted.count(Verdict::NoHost), counted.count(Verdict::HostRoute)), (1, 1));
    assert_eq!((counted.count(Verdict::OwnAddress), counted.count(Verdict::Sent)), (1, 1));
    rig.ingresses.publish(Box::new(isolated([false, true])));
    let counted = rig.pass(&frames);
    assert_eq!((counted.count(Verdict::Unreachable), counted.count(Verdict::Oversize)), (1, 1));
    assert_eq!((counted.count(Verdict::NoHost), counted.count(Verdict::HostRoute)), (1, 1));
    // No redirects where either family is isolated: the router forwards.
    assert_eq!((counted.count(Verdict::Redirect), counted.count(Verdict::Sent)), (0, 1));
}

/// Linux examines options, as many as its rate allows; the router forwards the others as they are.
#[test]
fn packets_with_options_are_the_hosts_within_their_rate() {
    let mut rig = Rig::new().with_punts(PuntRates { options: 20, ..ALL });
    let header = ipv4::Header { options: &[7, 3, 4, 0], total_len: 32, src: HERE, ..sound() };
    let four = v4_with(header, 28);
    let six = v6_with(ipv6::Header { next_header: ipv6::HOP_BY_HOP, ..sound6() }, 0);
    // Without a route, too: the kernel may find the options wrong.
    let nowhere = v4_with(ipv4::Header { dst: NOWHERE, ..header }, 28);
    let frames = [four, six, nowhere];
    let counted = rig.pass(&frames);
    assert_eq!(counted.count(Verdict::Options), 3);
    for frame in &frames {
        let punted = rig.hosts[0].take().expect("the host got it");
        assert_eq!(punted[14..], frame[14..], "as it came");
    }
    let counted = rig.pass((0..5).map(|_| &frames[0]));
    assert_eq!((counted.count(Verdict::Options), counted.count(Verdict::Sent)), (1, 4));
    // Where the host has other tables, it is given none.
    rig.worker.tick();
    let terms = ingresses(&crate::rig::model());
    let isolated = |port| Ingress { isolated: [true, false], ..terms.get(port).clone() };
    rig.ingresses.publish(Box::new(Ingresses::new((0..3).map(isolated))));
    assert_eq!(rig.pass([&frames[0]]).count(Verdict::Sent), 1);
}
