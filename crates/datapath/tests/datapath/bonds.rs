//! Bonds: packets leave by the member of their flow, and those that a member receives arrive on the bond.

use std::collections::BTreeSet;
use std::sync::Arc;

use fingerpost_datapath::{
    Adjacency, FIRST_STACKED, Ingress, Ingresses, PRIORITIES, PuntRates, ReversePathFilter,
    StackedDevice, Verdict, VlanTable, VlanTag,
};

use crate::packets::{MAC, v4, v6};
use crate::reference::RouteTarget;
use crate::rig::{Rig, adjacencies, hop, ingresses};

const HERE: u32 = 0xc000_0263;
/// Destinations by gateways 0 and 1, which are behind the bond.
const AWAY: u32 = 0x0a00_0001;
const AWAY6: u128 = 0x2001_0db8_0001 << 80 | 9;
const BOND: u16 = FIRST_STACKED;
const VLAN: u16 = FIRST_STACKED + 1;

/// Makes a rig with a bond of these ports, and a VLAN device over it; gateways 0 and 1 are behind one
/// of both.
fn with_bond(members: &[u16], gateway_behind: u16, sources: ReversePathFilter) -> Rig {
    let rates = PuntRates { redirect: 100, ..PuntRates::ROUTER };
    let mut rig = Rig::new().with_punts(rates);
    let terms = ingresses(&rig.model);
    let mut vlans = VlanTable::default();
    vlans.insert(0x8100, 100, VLAN);
    let like = Ingress { mac: Some(MAC), sources: [sources; 2], ..terms.get(0).clone() };
    let bond = Ingress { vlans: Arc::new(vlans), ..like.clone() };
    let port = |port: u16| {
        // The settings of the bond apply to its members, and not their own.
        let member_of = members.contains(&port).then_some(BOND);
        let other_table = Ingress { member_of, ..terms.get(2).clone() };
        if member_of.is_some() { other_table } else { terms.get(port.into()).clone() }
    };
    let settings = Ingresses::new((0..3).map(port)).with_stacked(vec![Some(bond), Some(like)]);
    rig.ingresses.publish(Box::new(settings));
    let mut changed = adjacencies(&rig.model);
    let tag = VlanTag { protocol: 0x8100, id: 100, priorities: [0; PRIORITIES] };
    let exits = [StackedDevice::new(members, &[]), StackedDevice::new(members, &[tag])];
    changed.set_stacked(exits.map(Some).into());
    for at in [0, 1] {
        let gateway = &rig.model.gateways[at];
        let adjacency = Adjacency::new(gateway_behind, gateway.dst_mac, gateway.src_mac, 1500);
        changed.set(hop(RouteTarget::To(at)), adjacency);
    }
    rig.adjacencies.publish(Box::new(changed));
    rig
}

/// Takes the frames that each port has sent.
fn sent(rig: &mut Rig) -> [Vec<Vec<u8>>; 3] {
    let mut far = rig.far.iter_mut().map(|far| std::iter::from_fn(|| far.take()).collect());
    std::array::from_fn(|_| far.next().expect("a rig has three ports"))
}

#[test]
fn each_flow_leaves_by_one_member_and_all_members_are_used() {
    for (behind, tag) in [(BOND, &[][..]), (VLAN, &[0x81, 0, 0, 100])] {
        let mut rig = with_bond(&[1, 2], behind, ReversePathFilter::Off);
        let mut alone = Rig::new();
        for family in [4, 6] {
            let flow = |n: u32| match family {
                4 => v4(HERE + n, AWAY),
                _ => v6(0x2001_0db8 << 96 | u128::from(n), AWAY6),
            };
            let mut used = BTreeSet::new();
            for n in 0..40 {
                let frame = flow(n);
                assert_eq!(rig.pass([&frame, &frame, &frame]).sent(), 3);
                let frames = sent(&mut rig);
                let by: Vec<_> = (0..3).filter(|at| !frames[*at].is_empty()).collect();
                assert_eq!(by.len(), 1, "one member for a flow");
                used.insert(by[0]);
                // Apart from its tag it is the frame that leaves without a bond.
                assert_eq!(alone.pass([&frame]).sent(), 1);
                let expected = sent(&mut alone).concat().remove(0);
                let of_bond = &frames[by[0]][2];
                assert_eq!(of_bond[..12], expected[..12]);
                assert_eq!(of_bond[12..][..tag.len()], *tag);
                assert_eq!(of_bond[12 + tag.len()..], expected[12..]);
            }
            assert_eq!(used, BTreeSet::from([1, 2]), "IPv{family}");
        }
    }
}

#[test]
fn packets_of_a_member_arrive_on_the_bond() {
    // The way back leaves by the bond, so that a redirect is due, whatever member it arrived on.
    let mut rig = with_bond(&[1, 2], BOND, ReversePathFilter::Strict);
    let from_bond = v4(AWAY + 1, AWAY);
    let other = v4(HERE, AWAY);
    for port in [1, 2] {
        assert_eq!(rig.pass_on(port, [&from_bond]).count(Verdict::Redirect), 1);
        assert_eq!(rig.pass_on(port, [&other]).count(Verdict::Spoofed), 1, "port {port}");
    }
    // The VLAN device over the bond is another interface.
    let mut rig = with_bond(&[1, 2], VLAN, ReversePathFilter::Strict);
    let mut tagged = from_bond.clone();
    tagged.splice(12..12, [0x81, 0, 0, 100]);
    for port in [1, 2] {
        assert_eq!(rig.pass_on(port, [&tagged]).count(Verdict::Redirect), 1);
        assert_eq!(rig.pass_on(port, [&from_bond]).count(Verdict::Spoofed), 1);
        let punted: Vec<_> = std::iter::from_fn(|| rig.hosts[port].take()).collect();
        assert_eq!(punted, [tagged.clone()], "the host gets it on the port that it arrived on");
    }
}

#[test]
fn packets_wait_for_a_neighbor_behind_the_bond_and_a_bond_without_members_has_no_route() {
    let mut rig = with_bond(&[1], BOND, ReversePathFilter::Off);
    let frame = v4(HERE, AWAY);
    let resolved = |rig: &Rig, members: &[u16], is_resolved| {
        let mut changed = adjacencies(&rig.model);
        changed.set_stacked([Some(StackedDevice::new(members, &[]))].into());
        let gateway = &rig.model.gateways[0];
        let adjacency = match is_resolved {
            true => Adjacency::new(BOND, gateway.dst_mac, gateway.src_mac, 1500),
            false => Adjacency::unresolved(BOND),
        };
        changed.set(hop(RouteTarget::To(0)), adjacency);
        Box::new(changed)
    };
    let next = resolved(&rig, &[1], false);
    rig.adjacencies.publish(next);
    // One from another port, and one that arrived on the bond.
    assert_eq!(rig.pass([&frame]).held, 1);
    assert_eq!(rig.pass_on(1, [&frame]).held, 1);
    let next = resolved(&rig, &[1], true);
    rig.adjacencies.publish(next);
    assert_eq!(rig.pass([[0; 0]; 0]).sent(), 2);
    assert_eq!(sent(&mut rig).map(|frames| frames.len()), [0, 2, 0]);
    let next = resolved(&rig, &[], true);
    rig.adjacencies.publish(next);
    assert_eq!(rig.pass([&frame]).sent(), 0);
}
