//! Access lists: random lists on all ports in both directions, compared with their slow twin; then each
//! action by itself.

use std::sync::Arc;

use acl::{AccessList, InstalledList, PacketFamily, RuleCount};
use fastrand::Rng;
use fib::Publisher;
use fingerpost_datapath::{
    AccessLists, Adjacency, AppliedList, Class, FIRST_STACKED, Verdict, VerdictMap,
};

use crate::packets::{arriving, draw, spoil, v4, v6};
use crate::reference::{RouteTarget, may_fragment};
use crate::rig::{Rig, adjacencies, hop};

/// The destinations of packets that leave by port 1, and by port 2.
const TO_1: u32 = 0x0a00_0001;
const TO_2: u32 = 0x0a01_0001;

fn list(rules: &[&str], permits: bool) -> Arc<InstalledList> {
    let rules = rules.iter().map(|text| acl::Rule::parse(text, &|_| None).unwrap()).collect();
    let list = AccessList::build("list", permits, rules).unwrap();
    Arc::new(InstalledList::new(Arc::new(list), 1))
}

/// The lists of a rig: of each port, for received packets and for those that leave.
pub(crate) struct Lists {
    inbound: [Option<Arc<InstalledList>>; 3],
    outbound: [Option<Arc<InstalledList>>; 3],
    publisher: Publisher<AccessLists>,
}

impl Lists {
    fn apply(
        mut rig: Rig,
        inbound: [Option<Arc<InstalledList>>; 3],
        outbound: [Option<Arc<InstalledList>>; 3],
    ) -> (Rig, Self) {
        let port = |name: &str| name.strip_prefix("port").and_then(|number| number.parse().ok());
        let all = inbound.iter().chain(&outbound).flatten();
        let lists = all.map(|list| AppliedList::new(Arc::clone(list), port)).collect();
        let mut index = 0..;
        let mut numbers = |lists: &[Option<Arc<InstalledList>>; 3]| -> Vec<(u16, u16)> {
            let ports = (0..).zip(lists).filter(|(_, list)| list.is_some());
            ports.map(|(port, _)| port).zip(&mut index).collect()
        };
        let (inbound_of, outbound_of) = (numbers(&inbound), numbers(&outbound));
        let publisher = Publisher::new(AccessLists::new(lists, inbound_of, outbound_of));
        rig.worker = rig.worker.with_access_lists(publisher.reader(), 0);
        (rig, Self { inbound, outbound, publisher })
    }

    /// Makes a rig with the same rules on all ports in both directions, each list with its own state.
    pub(crate) fn both(rules: &[&str]) -> (Rig, Self) {
        let lists = || [(); 3].map(|()| Some(list(rules, true)));
        Self::apply(Rig::new(), lists(), lists())
    }

    fn inbound(rules: &[&str], permits: bool) -> (Rig, Self) {
        Self::apply(Rig::new(), [Some(list(rules, permits)), None, None], [const { None }; 3])
    }

    fn outbound(rules: &[&str], permits: bool) -> (Rig, Self) {
        Self::apply(Rig::new(), [const { None }; 3], [None, Some(list(rules, permits)), None])
    }
}

fn packets(list: &InstalledList) -> Vec<u64> {
    list.counts().iter().map(|count| count.packets).collect()
}

/// Applies a list to a frame by its slow twin: counts, and returns whether the packet passes.
fn passes(list: &Option<Arc<InstalledList>>, frame: &[u8], counts: &mut [RuleCount]) -> bool {
    fn of<A: PacketFamily>(list: &AccessList, packet: &[u8], counts: &mut [RuleCount]) -> bool {
        let fields = A::fields(packet).expect("a packet that parse accepted");
        let rules: Vec<_> = list.matches(&fields).collect();
        let last = rules.last().map(|rule| &list.rules()[*rule].action);
        let ended = last.filter(|action| action.is_terminal());
        let default = ended.is_none().then_some(list.rules().len());
        for rule in rules.iter().copied().chain(default) {
            counts[rule].packets += 1;
            counts[rule].bytes += u64::from(fields.length);
        }
        ended.map_or(list.permits, |action| *action == acl::Action::Permit)
    }
    let Some(list) = list else { return true };
    match frame[14] >> 4 {
        6 => of::<u128>(list.list(), &frame[14..], counts),
        _ => of::<u32>(list.list(), &frame[14..], counts),
    }
}

/// Writes rules about the packets that the tests draw.
fn random_list(rng: &mut Rng) -> Arc<InstalledList> {
    let prefixes = [
        "10.0.0.0/8",
        "10.1.0.0/16",
        "192.0.2.0/24",
        "0.0.0.0/1",
        "198.51.100.0/24",
        "2001:db8::/32",
        "2001:db8:1::/48",
        "::/1",
        "8000::/1",
    ];
    let others = [
        "",
        "ipproto tcp",
        "ipproto udp",
        "fragment yes",
        "fragment no",
        "length 0-100",
        "length 101-65535",
        "dport 0-32767",
        "sport 32768-65535",
        "dscp 0-7",
        "ipproto 0-127",
    ];
    let rules: Vec<String> = (0..rng.usize(..40))
        .map(|_| {
            let action = ["permit", "deny", "count"][rng.usize(..3)];
            let mut text = action.to_owned();
            for word in ["from", "to"] {
                if rng.bool() {
                    text += &format!(" {word} {}", prefixes[rng.usize(..prefixes.len())]);
                }
            }
            format!("{text} {}", others[rng.usize(..others.len())])
        })
        .filter(|text| acl::Rule::parse(text, &|_| None).is_ok())
        .collect();
    list(&rules.iter().map(|rule| &**rule).collect::<Vec<_>>(), rng.bool())
}

#[test]
fn random_packets_pass_random_lists_as_their_slow_twin_decides() {
    let mut rng = Rng::with_seed(18);
    let (mut denied, mut sent) = (0, 0);
    for _ in 0..60 {
        let mut random = || [(); 3].map(|()| rng.bool().then(|| random_list(&mut rng)));
        let (inbound, outbound) = (random(), random());
        let (mut rig, lists) = Lists::apply(Rig::new(), inbound, outbound);
        let counts = |list: &Option<Arc<InstalledList>>| {
            list.as_ref().map(|list| vec![RuleCount::default(); list.counts().len()])
        };
        let mut expected_in = lists.inbound.each_ref().map(counts);
        let mut expected_out = lists.outbound.each_ref().map(counts);
        for port in [0, 1, 2, 0] {
            let frames: Vec<_> = (0..200)
                .map(|_| {
                    let mut frame = draw(&mut rng);
                    if rng.u8(..4) == 0 {
                        spoil(&mut rng, &mut frame);
                    }
                    arriving(frame, port)
                })
                .collect();
            let mut verdicts = VerdictMap::<u64>::default();
            let mut leaving = vec![Vec::new(); 3];
            for frame in &frames {
                let (mut verdict, out) = rig.model.decide(port, frame);
                use Verdict as V;
                let is_examined = verdict == V::Sent
                    || matches!(
                        verdict,
                        V::HostRoute
                            | V::NoRoute
                            | V::Blackhole
                            | V::TooBig
                            | V::TtlExpired
                            | V::SourceRoute
                            | V::LinkLocal
                            | V::Spoofed
                    );
                let mut counts = expected_in[port].take().unwrap_or_default();
                if is_examined
                    && !passes(&lists.inbound[port], frame, &mut counts)
                    && verdict != V::Spoofed
                {
                    verdict = V::AclDenied;
                }
                expected_in[port] = lists.inbound[port].is_some().then_some(counts);
                if verdict == V::Sent {
                    let exit = out[0].0;
                    let mut counts = expected_out[exit].take().unwrap_or_default();
                    if !passes(&lists.outbound[exit], frame, &mut counts) {
                        verdict = V::AclDenied;
                    }
                    expected_out[exit] = lists.outbound[exit].is_some().then_some(counts);
                }
                if verdict == V::Sent {
                    verdicts[verdict] += out.len() as u64;
                    out.into_iter().for_each(|(exit, frame)| leaving[exit].push(frame));
                } else {
                    verdicts[verdict] += 1;
                }
            }
            let counted = rig.pass_on(port, &frames);
            assert_eq!(counted.verdicts, verdicts);
            for (exit, frames) in leaving.into_iter().enumerate() {
                for frame in frames {
                    assert_eq!(rig.far[exit].take().as_ref(), Some(&frame), "by port {exit}");
                }
                assert_eq!(rig.far[exit].take(), None);
            }
            while rig.hosts[port].take().is_some() {}
            denied += counted.count(Verdict::AclDenied);
            sent += counted.count(Verdict::Sent);
        }
        let lists = lists.inbound.iter().chain(&lists.outbound);
        for (list, expected) in lists.zip(expected_in.iter().chain(&expected_out)) {
            assert_eq!(list.as_ref().map(|list| list.counts()), *expected);
        }
    }
    assert!(denied > 1000 && sent > 1000, "{denied} denied, {sent} sent");
}

#[test]
fn denied_packet_causes_no_icmp_error_and_no_punt() {
    let rules = ["deny from 192.0.2.1", "deny from 2001:db8:9::1"];
    let (rig, _lists) = Lists::inbound(&rules, true);
    let mut rig = rig.with_punts(fingerpost_datapath::PuntRates::ROUTER);
    let mut expired = v4(0xc000_0201, TO_1);
    expired[14 + 8] = 1;
    crate::packets::seal(&mut expired);
    let no_route = v4(0xc000_0201, 0x0808_0808);
    let host = v4(0xc000_0201, 0x0a01_0301);
    let denied6 = v6(0x2001_0db8_0009 << 80 | 1, 0x2001_0db8 << 96 | 1);
    let permitted = v4(0xc000_0202, TO_1);
    let counted = rig.pass([expired, no_route, host, denied6, permitted]);
    assert_eq!(counted.count(Verdict::AclDenied), 4, "{counted:?}");
    assert_eq!(counted.sent(), 1);
    assert!(rig.hosts[0].take().is_none());
}

#[test]
fn outbound_list_examines_packets_to_an_unresolved_neighbor() {
    let (mut rig, lists) = Lists::outbound(&["deny to 10.0.0.1"], true);
    let mut unresolved = adjacencies(&rig.model);
    unresolved.set(hop(RouteTarget::To(0)), Adjacency::unresolved(1));
    rig.adjacencies.publish(Box::new(unresolved));
    let counted = rig.pass([v4(1 << 24, TO_1), v4(1 << 24, TO_1 + 1)]);
    assert_eq!((counted.count(Verdict::AclDenied), rig.worker.held()), (1, 1), "{counted:?}");
    assert_eq!(packets(lists.outbound[1].as_ref().unwrap()), [1, 1]);
}

#[test]
fn policed_rule_drops_packets_beyond_its_rate_and_goes_on_below() {
    let (mut rig, lists) = Lists::inbound(&["police 1pps ipproto udp", "count"], true);
    // The burst is eight packets; the test takes less than a second.
    let counted = rig.pass((0..20).map(|_| v4(0xc000_0201, TO_1)));
    let policed = counted.count(Verdict::AclPoliced);
    assert!((10..=12).contains(&policed), "{counted:?}");
    let counts = lists.inbound[0].as_ref().unwrap().counts();
    assert_eq!((counts[0].packets, counts[0].exceeded), (20, policed));
    assert_eq!((counts[1].packets, counts[2].packets), (20 - policed, 20 - policed));
}

#[test]
fn mirrored_packet_leaves_twice_and_sampled_ones_now_and_then() {
    let rules = ["mirror port2 from 192.0.2.1", "sample 10 port2 from 192.0.2.2", "mirror nowhere"];
    let (mut rig, lists) = Lists::inbound(&rules, true);
    let frame = v4(0xc000_0201, TO_1);
    let counted = rig.pass([&frame]);
    assert_eq!((counted.sent(), counted.originated), (2, 1), "{counted:?}");
    assert_eq!(rig.far[2].take(), Some(frame), "as it arrived");
    assert!(rig.far[1].take().is_some() && rig.far[2].take().is_none());
    let mut copies = 0;
    for _ in 0..40 {
        let counted = rig.pass((0..250).map(|_| v4(0xc000_0202, TO_2)));
        copies += counted.originated;
        assert_eq!(counted.sent(), 250 + counted.originated);
        while rig.far[2].take().is_some() {}
    }
    assert!((900..1100).contains(&copies), "one in ten of 10,000: {copies}");
    assert_eq!(packets(lists.inbound[0].as_ref().unwrap()), [1, 10_000, 10_001, 10_001]);
}

#[test]
fn packet_gets_the_code_points_of_its_rules_one_after_the_other() {
    let inbound = list(
        &[
            "count setdscp 10 to 10.0.0.0/8",
            "police 1gbit setdscp 46 dscp 10",
            "deny dscp 10",
            "permit setdscp 12 dscp 46 ipproto udp",
            "count setdscp 1",
        ],
        true,
    );
    let outbound = list(&["permit setdscp 2 dscp 1"], true);
    let (mut rig, _lists) = Lists::apply(
        Rig::new(),
        [Some(Arc::clone(&inbound)), None, None],
        [None, Some(Arc::clone(&outbound)), None],
    );
    let mut frame = v4(0xc000_0201, TO_1);
    frame[15] = 20 << 2 | 3;
    crate::packets::seal(&mut frame);
    let frame6 = v6(0x2001_0db8_0009 << 80 | 1, 0x2001_0db8 << 96 | 1);
    let decided = [&frame, &frame6].map(|frame| rig.model.decide(0, frame).1);
    assert_eq!(rig.pass([&frame, &frame6]).sent(), 2);
    for (out, traffic_class) in decided.into_iter().zip([12 << 2 | 3, 2 << 2]) {
        let (exit, mut expected) = out.into_iter().next().expect("a packet leaves");
        if expected[14] >> 4 == 4 {
            expected[15] = traffic_class;
            crate::packets::seal(&mut expected);
        } else {
            expected[14] = 0x60 | traffic_class >> 4;
            expected[15] = expected[15] & 0x0f | traffic_class << 4;
        }
        assert_eq!(rig.far[exit].take(), Some(expected));
    }
    assert_eq!((packets(&inbound), packets(&outbound)), (vec![1, 1, 0, 1, 1, 1], vec![1, 1]));
}

#[test]
fn list_that_is_replaced_applies_from_the_next_batch_on() {
    let (mut rig, mut lists) = Lists::inbound(&["deny"], true);
    assert_eq!(rig.pass([v4(0xc000_0201, TO_1)]).count(Verdict::AclDenied), 1);
    lists.publisher.publish(Box::new(AccessLists::default()));
    assert_eq!(rig.pass([v4(0xc000_0201, TO_1)]).sent(), 1);
    let stacked = [(FIRST_STACKED + 3, 0)];
    let other = AppliedList::new(list(&["deny"], true), |_| None);
    lists.publisher.publish(Box::new(AccessLists::new(vec![other], stacked, stacked)));
    assert_eq!(rig.pass([v4(0xc000_0201, TO_1)]).sent(), 1);
}

#[test]
fn second_list_of_a_port_examines_what_the_first_one_permits() {
    let mut rig = Rig::new();
    let lists = [
        list(&["permit dscp 0", "deny ipproto udp", "count"], true),
        list(&["deny dscp 46", "count"], true),
        list(&["count"], true),
    ];
    let applied = lists.iter().map(|list| AppliedList::new(Arc::clone(list), |_| None)).collect();
    let publisher = Publisher::new(AccessLists::new(applied, [(0, 0), (1, 2), (0, 1)], []));
    rig.worker = rig.worker.with_access_lists(publisher.reader(), 0);
    let frame = |dscp: u8, protocol: u8| {
        let mut frame = v4(0xc000_0201, TO_1);
        (frame[15], frame[23]) = (dscp << 2, protocol);
        crate::packets::seal(&mut frame);
        frame
    };
    let counted = rig.pass([frame(0, 17), frame(1, 17), frame(46, 6), frame(1, 6)]);
    assert_eq!((counted.count(Verdict::AclDenied), counted.sent()), (2, 2), "{counted:?}");
    let counts = lists.map(|list| packets(&list));
    assert_eq!(counts, [vec![1, 1, 2, 2], vec![1, 2, 2], vec![0, 0]]);
}

#[test]
fn fragments_of_a_packet_pass_the_outbound_list_as_the_packet() {
    let rules = ["deny fragment yes", "permit length 200-65535"];
    let applied = [None, None, Some(list(&rules, false))];
    let (mut rig, lists) = Lists::apply(Rig::new(), [const { None }; 3], applied);
    let mut frame = v4(0xc000_0201, 0xcb00_7107);
    frame.resize(14 + 400, 7);
    frame[16..18].copy_from_slice(&400_u16.to_be_bytes());
    frame[20..22].fill(0);
    crate::packets::seal(&mut frame);
    assert!(may_fragment(&frame));
    let counted = rig.pass([frame]);
    assert!(counted.fragments > 1 && counted.sent() == counted.fragments, "{counted:?}");
    assert_eq!(packets(lists.outbound[2].as_ref().unwrap()), [0, 1, 0]);

    assert_eq!(Verdict::AclDenied.class(), Class::Dropped);
}
