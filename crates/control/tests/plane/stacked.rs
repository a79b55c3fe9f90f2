//! Tests of the plane with devices over ports: MAC-VLAN devices, VLAN devices, bonds.

use datapath::{FIRST_STACKED, PRIORITIES, StackedDevice, Verdict, VlanTable, VlanTag};
use feed::netlink::{Action, Follower, Link, Rule, Vlan};

use crate::rig::{MAIN, OTHER, Rig, link, mac, to};
use crate::{LOCAL, both, ruled};

#[test]
fn macvlan_device_sends_and_receives_by_its_port() {
    const VIRTUAL: [u8; 6] = [0, 0, 0x5e, 0, 1, 5];
    let device = |mode| Link {
        name: "vrrp4-1-5".to_owned(),
        kind: "macvlan".to_owned(),
        lower: Some(1),
        macvlan_mode: Some(mode),
        mac: Some(VIRTUAL),
        mtu: 1400,
        ..link(9)
    };
    for mut rig in both() {
        rig.route(MAIN, "10.0.0.0/8", Some(&to(&[(9, Some("192.0.2.1"), 1)])));
        rig.route(MAIN, "198.51.100.0/24", Some(&to(&[(9, None, 1)])));
        rig.neighbor(9, "192.0.2.1", Some(7));
        rig.neighbor(9, "198.51.100.3", Some(8));
        rig.commit();
        let secondary =
            |rig: &mut Rig, port| rig.ingresses.current().get(port).secondary_macs.to_vec();
        assert_eq!(rig.leads("10.1.1.1"), Err(Verdict::HostRoute), "the device is unknown");
        rig.plane.link(9, Some(&device(4)));
        rig.commit();
        assert_eq!((secondary(&mut rig, 0), secondary(&mut rig, 1)), (vec![VIRTUAL], vec![]));
        let (_, adjacency) = rig.resolve(0, "10.1.1.1", 0);
        assert_eq!(adjacency.port(), Ok(0));
        assert_eq!((adjacency.src_mac(), adjacency.dst_mac()), (VIRTUAL, mac(7)));
        assert_eq!(adjacency.mtu(), 1400);
        assert_eq!(rig.leads("198.51.100.3"), Ok((0, 8)), "a host on its link");
        assert_eq!(rig.leads("198.51.100.4"), Err(Verdict::Unresolved));
        // A backup has no carrier: it receives, and sends nothing.
        rig.plane.link(9, Some(&Link { running: false, ..device(4) }));
        rig.commit();
        assert_eq!(secondary(&mut rig, 0), [VIRTUAL]);
        assert_eq!(rig.leads("10.1.1.1"), Err(Verdict::HostRoute));

        // The kernel's: down, gone, in another VRF, over no port, or in a mode that takes others' frames.
        for left in [
            Some(Link { up: false, ..device(4) }),
            None,
            Some(Link { master: Some(30), ..device(4) }),
            Some(Link { lower: Some(4), ..device(4) }),
            Some(Link { lower: None, ..device(4) }),
            Some(device(8)),
            Some(Link { kind: "macvtap".to_owned(), ..device(4) }),
        ] {
            rig.plane.link(9, Some(&device(1)));
            rig.commit();
            assert_eq!((secondary(&mut rig, 0).len(), rig.leads("10.1.1.1")), (1, Ok((0, 7))));
            rig.plane.link(9, left.as_ref());
            rig.commit();
            assert_eq!(secondary(&mut rig, 0).len(), 0, "{left:?}");
            assert_eq!(rig.leads("10.1.1.1"), Err(Verdict::HostRoute), "{left:?}");
        }
    }
}

/// The priorities of the tags of [`vlan_device`].
const PRIORITIES_OUT: [u8; PRIORITIES] = [0, 0, 1, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 0, 7];

/// A VLAN device with index 9 over eth1.
fn vlan_device(id: u16) -> Link {
    let egress_priorities = vec![(6, 5), (2, 1), (15, 7), (16, 6)];
    let ingress_priorities = [0, 15, 0, 0, 0, 0, 4, 0];
    Link {
        name: "uplink".to_owned(),
        kind: "vlan".to_owned(),
        lower: Some(1),
        vlan: Some(Vlan { protocol: 0x8100, id, egress_priorities, ingress_priorities }),
        mac: Some(mac(0x11)),
        mtu: 1400,
        ..link(9)
    }
}

#[test]
fn vlan_device_is_a_port_of_its_own() {
    let first = usize::from(FIRST_STACKED);
    for mut rig in both() {
        rig.route(MAIN, "10.0.0.0/8", Some(&to(&[(9, Some("192.0.2.1"), 1)])));
        rig.route(MAIN, "11.0.0.0/8", Some(&to(&[(10, Some("192.0.2.2"), 1)])));
        rig.route(MAIN, "198.51.100.0/24", Some(&to(&[(9, None, 1)])));
        rig.neighbor(9, "192.0.2.1", Some(7));
        rig.neighbor(10, "192.0.2.2", Some(6));
        rig.neighbor(9, "198.51.100.3", Some(8));
        rig.commit();
        assert_eq!(rig.leads("10.1.1.1"), Err(Verdict::HostRoute), "the device is unknown");
        rig.plane.link(9, Some(&vlan_device(100)));
        // One over it, with its own MAC.
        let vlan = Some(Vlan { protocol: 0x8100, id: 7, ..Vlan::default() });
        let own = Some(mac(0x33));
        let inner =
            Link { lower: Some(9), name: "inner".to_owned(), vlan, mac: own, ..vlan_device(0) };
        rig.plane.link(10, Some(&inner));
        rig.commit();
        let (_, adjacency) = rig.resolve(0, "10.1.1.1", 0);
        assert_eq!((adjacency.port(), adjacency.mtu()), (Ok(FIRST_STACKED), 1400));
        assert_eq!((adjacency.src_mac(), adjacency.dst_mac()), (mac(0x11), mac(7)));
        assert_eq!(rig.leads("198.51.100.3"), Ok((FIRST_STACKED, 8)), "a host on its link");
        assert_eq!(rig.leads("11.1.1.1"), Ok((FIRST_STACKED + 1, 6)));
        let tag = |id, priorities| VlanTag { protocol: 0x8100, id, priorities };
        let outer = tag(100, PRIORITIES_OUT);
        let exits = [(0, &[outer][..]), (1, &[outer, tag(7, [0; PRIORITIES])])];
        for (at, tags) in exits {
            let exit = rig.adjacencies.current().stacked(FIRST_STACKED + at).cloned();
            assert_eq!(exit, Some(StackedDevice::new(&[0], tags)));
        }
        let terms = rig.ingresses.current();
        let table = |device: u16, id| {
            let mut table = VlanTable::default();
            table.insert(0x8100, id, FIRST_STACKED + device);
            table
        };
        assert_eq!(*terms.get(0).vlans, table(0, 100));
        assert_eq!(*terms.get(first).vlans, table(1, 7));
        assert!(terms.get(1).vlans.is_empty());
        assert_eq!(terms.get(first).priorities, [0, 15, 0, 0, 0, 0, 4, 0]);
        assert_eq!((terms.get(0).priorities, terms.get(first + 1).priorities), ([0; 8], [0; 8]));
        assert_eq!(terms.get(first + 1).mac, Some(mac(0x33)));
        assert_eq!(*terms.get(first + 1).secondary_macs, [mac(0x11)], "frames to both");
        assert_eq!(
            (terms.group(FIRST_STACKED), terms.group(FIRST_STACKED + 1)),
            (0, FIRST_STACKED + 1)
        );
        let names = |rig: &Rig| -> Vec<String> {
            rig.plane.ports().vlans_over(1).map(|port| port.name.clone()).collect()
        };
        assert_eq!(names(&rig), ["uplink", "inner"]);
        // The port below goes down, and its devices with it.
        rig.plane.link(1, Some(&Link { running: false, ..link(1) }));
        rig.commit();
        assert_eq!(rig.leads("10.1.1.1"), Err(Verdict::HostRoute));
        rig.plane.link(1, Some(&link(1)));
        rig.commit();
        assert_eq!(rig.leads("10.1.1.1"), Ok((FIRST_STACKED, 7)));
        // A device keeps its number when another one goes.
        rig.plane.link(8, Some(&Link { name: "more".to_owned(), ..vlan_device(8) }));
        rig.commit();
        rig.plane.link(10, None);
        rig.commit();
        assert_eq!(names(&rig), ["uplink", "more"]);
        assert!(!rig.ingresses.current().has(FIRST_STACKED + 1));
        rig.plane.link(9, Some(&vlan_device(101)));
        rig.commit();
        assert_eq!(*rig.ingresses.current().get(first).vlans, VlanTable::default());
        assert_eq!(rig.leads("10.1.1.1"), Ok((FIRST_STACKED, 7)));
        // Gone and created again in another namespace.
        rig.plane.link(9, None);
        rig.commit();
        assert_eq!(rig.leads("10.1.1.1"), Err(Verdict::HostRoute));
    }
}

#[test]
fn vlan_device_that_cannot_be_a_port_is_left_to_the_kernel_with_a_reason() {
    let ingress_priorities = [0, 0, 0, 16, 0, 0, 0, 0];
    let ingress = Vlan { ingress_priorities, ..vlan_device(100).vlan.unwrap() };
    let cases = [
        (
            Link { vlan: Some(ingress), ..vlan_device(100) },
            Some("ingress-qos-map has priority 16, above 15"),
        ),
        (
            Link { master: Some(30), member_of: "bridge".to_owned(), ..vlan_device(100) },
            Some("bridge"),
        ),
        (vlan_device(0), Some("VLAN 0")),
        (Link { up: false, ..vlan_device(100) }, None),
        (Link { lower: Some(4), ..vlan_device(100) }, None),
        (Link { lower: None, ..vlan_device(100) }, None),
    ];
    for (left, reason) in cases {
        for mut rig in both() {
            rig.route(MAIN, "10.0.0.0/8", Some(&to(&[(9, Some("192.0.2.1"), 1)])));
            rig.neighbor(9, "192.0.2.1", Some(7));
            rig.plane.link(9, Some(&vlan_device(100)));
            rig.commit();
            assert_eq!(rig.leads("10.1.1.1"), Ok((FIRST_STACKED, 7)));
            assert!(rig.plane.ports().left_vlans(1).next().is_none());
            rig.plane.link(9, Some(&left));
            rig.commit();
            assert_eq!(rig.leads("10.1.1.1"), Err(Verdict::HostRoute), "{left:?}");
            let found: Vec<_> = rig.plane.ports().left_vlans(1).map(|left| &left.reason).collect();
            assert_eq!(found.len(), usize::from(reason.is_some()));
            assert!(found.iter().all(|found| found.contains(reason.unwrap())), "{found:?}");
        }
    }
}

#[test]
fn bond_of_ports_is_a_port_that_sends_by_its_active_members() {
    for mut rig in both() {
        rig.plane.set_forwards_stacked(true);
        let bond = |mode| Link {
            name: "bond0".to_owned(),
            kind: "bond".to_owned(),
            bond_mode: Some(mode),
            mac: Some(mac(0x77)),
            ..link(9)
        };
        let member = |index, is_active_member| Link {
            master: Some(9),
            member_of: "bond".to_owned(),
            is_active_member,
            mac: Some(mac(0x77)),
            ..link(index)
        };
        rig.route(MAIN, "10.0.0.0/8", Some(&to(&[(9, Some("192.0.2.1"), 1)])));
        rig.route(MAIN, "11.0.0.0/8", Some(&to(&[(10, Some("192.0.2.2"), 1)])));
        rig.neighbor(9, "192.0.2.1", Some(7));
        rig.neighbor(10, "192.0.2.2", Some(6));
        rig.plane.link(1, Some(&member(1, true)));
        rig.plane.link(2, Some(&member(2, true)));
        rig.commit();
        let unfit = |rig: &Rig, index| rig.plane.ports().get(index).unwrap().unfit.clone();
        assert!(unfit(&rig, 1).unwrap().contains("a member of a bond"), "the bond is unknown");
        rig.plane.link(9, Some(&bond(4)));
        let over = Link { lower: Some(9), mtu: 1500, ..vlan_device(100) };
        rig.plane.link(10, Some(&over));
        rig.commit();
        let tag = VlanTag { protocol: 0x8100, id: 100, priorities: PRIORITIES_OUT };
        let exits = |rig: &mut Rig, members: &[u16]| {
            let adjacencies = rig.adjacencies.current();
            let exit = |number| adjacencies.stacked(number).cloned();
            assert_eq!(exit(FIRST_STACKED), Some(StackedDevice::new(members, &[])));
            assert_eq!(exit(FIRST_STACKED + 1), Some(StackedDevice::new(members, &[tag])));
        };
        let members_of = |rig: &mut Rig| {
            let terms = rig.ingresses.current();
            [terms.get(0).member_of, terms.get(1).member_of]
        };
        assert_eq!((unfit(&rig, 1), unfit(&rig, 2)), (None, None));
        assert_eq!(rig.leads("10.1.1.1"), Ok((FIRST_STACKED, 7)));
        assert_eq!(rig.leads("11.1.1.1"), Ok((FIRST_STACKED + 1, 6)));
        exits(&mut rig, &[0, 1]);
        assert_eq!(members_of(&mut rig), [Some(FIRST_STACKED); 2]);
        let terms = rig.ingresses.current();
        assert!(terms.get(0).vlans.is_empty() && !terms.get(FIRST_STACKED.into()).vlans.is_empty());
        for index in [1, 2] {
            let names: Vec<_> =
                rig.plane.ports().vlans_over(index).map(|port| port.name.clone()).collect();
            assert_eq!(names, ["uplink"], "both members receive its frames");
        }
        // A member fails; then it is a backup.
        for failed in [Link { running: false, ..member(2, true) }, member(2, false)] {
            rig.plane.link(2, Some(&failed));
            rig.commit();
            exits(&mut rig, &[0]);
            assert_eq!(rig.leads("10.1.1.1"), Ok((FIRST_STACKED, 7)));
        }
        assert_eq!(members_of(&mut rig), [Some(FIRST_STACKED), None]);
        assert!(unfit(&rig, 2).unwrap().contains("eth2 is no active member of bond0"));
        rig.plane.link(2, Some(&member(2, true)));
        rig.commit();
        exits(&mut rig, &[0, 1]);
        // Without an active member the kernel decides, and for another mode as well.
        rig.plane.link(1, Some(&member(1, false)));
        rig.plane.link(2, Some(&member(2, false)));
        rig.commit();
        assert_eq!(rig.leads("10.1.1.1"), Err(Verdict::HostRoute));
        rig.plane.link(1, Some(&member(1, true)));
        rig.plane.link(9, Some(&bond(0)));
        rig.commit();
        assert_eq!(rig.leads("10.1.1.1"), Err(Verdict::HostRoute));
        assert_eq!(rig.leads("11.1.1.1"), Err(Verdict::HostRoute));
        assert!(unfit(&rig, 1).unwrap().contains("balance-rr"));
        // The bond is gone, and its member a port of its own.
        rig.plane.link(9, None);
        rig.plane.link(1, Some(&link(1)));
        rig.commit();
        assert_eq!((unfit(&rig, 1), members_of(&mut rig)), (None, [None; 2]));
        assert!(!rig.ingresses.current().has(FIRST_STACKED));
    }
}

#[test]
fn macvlan_device_over_a_vlan_device_belongs_to_it() {
    const VIRTUAL: [u8; 6] = [0, 0, 0x5e, 0, 1, 5];
    for mut rig in both() {
        let (kind, mode, mac) = ("macvlan".to_owned(), Some(4), Some(VIRTUAL));
        let over = Link { kind, lower: Some(9), macvlan_mode: mode, mac, ..link(12) };
        rig.route(MAIN, "10.0.0.0/8", Some(&to(&[(12, Some("192.0.2.1"), 1)])));
        rig.neighbor(12, "192.0.2.1", Some(7));
        rig.plane.link(9, Some(&vlan_device(100)));
        rig.plane.link(12, Some(&over));
        rig.commit();
        let first = usize::from(FIRST_STACKED);
        let secondary = |rig: &mut Rig| rig.ingresses.current().get(first).secondary_macs.to_vec();
        assert_eq!(
            (secondary(&mut rig), rig.leads("10.1.1.1")),
            (vec![VIRTUAL], Ok((FIRST_STACKED, 7)))
        );
        // Linux reports only the VLAN device.
        rig.plane.link(9, Some(&Link { up: false, ..vlan_device(100) }));
        rig.commit();
        assert_eq!(rig.leads("10.1.1.1"), Err(Verdict::HostRoute));
        rig.plane.link(9, Some(&vlan_device(100)));
        rig.commit();
        assert_eq!(
            (secondary(&mut rig), rig.leads("10.1.1.1")),
            (vec![VIRTUAL], Ok((FIRST_STACKED, 7)))
        );
    }
}

#[test]
fn vlan_device_in_a_vrf_has_the_table_of_the_vrf() {
    for mut rig in both() {
        let vrf = |table| Link { kind: "vrf".to_owned(), table: Some(table), ..link(30) };
        let rule = Rule::all;
        let main = rule(32766, Action::Table(MAIN));
        rig.plane.rules(&[rule(0, Action::Table(LOCAL)), rule(1000, Action::Vrf), main]);
        rig.commit();
        let member = Link { master: Some(30), member_of: "vrf".to_owned(), ..vlan_device(100) };
        rig.plane.link(30, Some(&vrf(OTHER)));
        rig.plane.link(9, Some(&member));
        rig.commit();
        let first = usize::from(FIRST_STACKED);
        assert_eq!(rig.ingresses.current().get(first).table, 1);
        // A table that no port had at the start.
        rig.plane.link(30, Some(&vrf(77)));
        rig.commit();
        assert!(!rig.ingresses.current().has(FIRST_STACKED));
        assert!(
            rig.plane
                .ports()
                .left_vlans(1)
                .all(|left| left.reason.contains("table 77 is not followed"))
        );
        rig.plane.link(9, Some(&vlan_device(100)));
        rig.commit();
        assert_eq!(rig.ingresses.current().get(first).table, 0);
    }
}

#[test]
fn macvlan_device_with_another_table_than_its_port_is_left_to_the_kernel() {
    let mut rig = Rig::new(0, false);
    let device = Link {
        name: "vrrp4-1-5".to_owned(),
        kind: "macvlan".to_owned(),
        lower: Some(1),
        macvlan_mode: Some(4),
        ..link(9)
    };
    rig.plane.rules(&ruled("vrrp4-1-5", OTHER));
    rig.plane.link(9, Some(&device));
    rig.commit();
    let count = |rig: &mut Rig| rig.ingresses.current().get(0).secondary_macs.len();
    assert_eq!(count(&mut rig), 0);
    rig.plane.rules(&ruled("eth7", OTHER));
    rig.commit();
    assert_eq!(count(&mut rig), 1);
}
