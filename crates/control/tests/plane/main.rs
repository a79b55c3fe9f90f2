//! Tests of the plane: it receives a kernel's reports, and the workers' readers show the result.

#[path = "../rig/mod.rs"]
mod rig;
mod stacked;

use std::net::IpAddr;

use datapath::{FlowHash, FlowKey, IcmpLimits, Lookup, ReversePathFilter, Verdict};
use feed::netlink::{
    Action, AddressChange, AddressView, Follower, InterfaceSettings, Link, RouteInfo, RpFilter,
    Rule, Target, Via,
};
use fib::Hop;
use fingerpost_control::plane::PlanePort;
use fingerpost_control::sysctls::Sysctls;
use rig::{MAIN, OTHER, Rig, info, ip, link, mac, to};

pub(crate) const LOCAL: u32 = 255;

/// Makes a plane with separate tables and one with shared tables: they must not differ in behavior.
pub(crate) fn both() -> [Rig; 2] {
    [Rig::new(0, false), Rig::new(0, true)]
}

/// Returns a kernel's default rules, and one more: packets of an interface use another table first.
pub(crate) fn ruled(interface: &str, table: u32) -> Vec<Rule> {
    let first = Rule::all(100, Action::Table(table));
    let first = Rule { input: Some(interface.to_owned()), ..first };
    vec![Rule::all(0, Action::Table(LOCAL)), first, Rule::all(32766, Action::Table(MAIN))]
}

#[test]
fn a_route_leads_to_its_gateway_once_that_is_resolved() {
    for mut rig in both() {
        rig.route(MAIN, "10.0.0.0/8", Some(&to(&[(1, Some("192.0.2.1"), 1)])));
        rig.route(MAIN, "2001:db8::/32", Some(&to(&[(2, Some("fe80::1"), 1)])));
        rig.commit();
        assert_eq!(rig.leads("10.1.1.1"), Err(Verdict::Unresolved));
        let wanted = [(1, ip("192.0.2.1")), (2, ip("fe80::1"))];
        assert_eq!(rig.plane.gateways(false), wanted);
        rig.neighbor(1, "192.0.2.1", Some(7));
        rig.neighbor(2, "fe80::1", Some(8));
        rig.commit();
        assert_eq!(rig.leads("10.1.1.1"), Ok((0, 7)));
        assert_eq!(rig.leads("2001:db8::9"), Ok((1, 8)));
        assert_eq!(rig.leads("11.1.1.1"), Err(Verdict::NoRoute));
        assert_eq!(rig.plane.gateways(false), []);
        assert_eq!(rig.plane.gateways(true), wanted);
        // The port has the link's MAC and MTU; a neighbor's new MAC takes effect at once.
        let (_, adjacency) = rig.resolve(0, "10.1.1.1", 0);
        assert_eq!((adjacency.src_mac(), adjacency.mtu()), (mac(0x11), 1500));
        rig.neighbor(1, "192.0.2.1", Some(9));
        rig.plane.link(2, Some(&Link { up: false, ..link(2) }));
        rig.commit();
        assert_eq!(rig.leads("10.1.1.1"), Ok((0, 9)));
        assert_eq!(rig.leads("2001:db8::9"), Err(Verdict::HostRoute));
        rig.neighbor(1, "192.0.2.1", None);
        rig.route(MAIN, "2001:db8::/32", None);
        rig.commit();
        assert_eq!(rig.leads("10.1.1.1"), Err(Verdict::Unresolved));
        assert_eq!(rig.leads("2001:db8::9"), Err(Verdict::NoRoute));
    }
}

#[test]
fn routes_the_router_cannot_serve_go_to_the_host() {
    for mut rig in both() {
        for (prefix, target) in [
            ("10.0.0.0/16", Target::Blackhole),
            ("10.1.0.0/16", Target::Unreachable),
            ("10.2.0.0/16", Target::Prohibit),
            ("10.3.0.0/16", Target::Throw),
        ] {
            rig.route(MAIN, prefix, Some(&info(target)));
        }
        // A gateway behind an interface that is not a port, resolved or not.
        rig.route(MAIN, "10.4.0.0/16", Some(&to(&[(4, Some("192.0.2.9"), 1)])));
        rig.neighbor(4, "192.0.2.9", Some(1));
        rig.commit();
        assert_eq!(rig.leads("10.0.0.1"), Err(Verdict::Blackhole));
        assert_eq!(rig.leads("10.1.0.1"), Err(Verdict::UnreachableRoute));
        assert_eq!(rig.leads("10.2.0.1"), Err(Verdict::ProhibitRoute));
        for address in ["10.3.0.1", "10.4.0.1"] {
            assert_eq!(rig.leads(address), Err(Verdict::HostRoute), "{address}");
        }
    }
}

#[test]
fn hosts_on_a_link_have_routes_of_their_own_while_they_are_known() {
    for mut rig in both() {
        let connected = to(&[(1, None, 1)]);
        rig.route(MAIN, "192.0.2.0/24", Some(&connected));
        rig.neighbor(1, "192.0.2.7", Some(7));
        // A neighbor on a link without a route to its address: it gets no host route.
        rig.neighbor(2, "192.0.2.8", Some(8));
        rig.commit();
        assert_eq!(rig.leads("192.0.2.7"), Ok((0, 7)));
        assert_eq!(rig.leads("192.0.2.8"), Err(Verdict::Unresolved));
        assert_eq!(rig.leads("192.0.2.9"), Err(Verdict::Unresolved));
        // The neighbor to resolve is the host itself, or the gateway.
        let (hop, _) = rig.resolve(0, "192.0.2.9", 0);
        assert_eq!(rig.plane.neighbors_of(hop, ip("192.0.2.9")), [(1, ip("192.0.2.9"))]);
        rig.idle();
        // A longer route by a gateway overrides the host route of the link, until it is removed.
        rig.neighbor(2, "198.51.100.1", Some(3));
        let elsewhere = to(&[(2, Some("198.51.100.1"), 1)]);
        rig.route(MAIN, "192.0.2.0/28", Some(&elsewhere));
        rig.commit();
        assert_eq!(rig.leads("192.0.2.7"), Ok((1, 3)));
        rig.route(MAIN, "192.0.2.0/28", None);
        rig.commit();
        assert_eq!(rig.leads("192.0.2.7"), Ok((0, 7)));
        // A kernel route to the same address takes precedence over the plane's host route, which
        // returns afterwards.
        rig.route(MAIN, "192.0.2.7/32", Some(&elsewhere));
        rig.commit();
        assert_eq!(rig.leads("192.0.2.7"), Ok((1, 3)));
        rig.route(MAIN, "192.0.2.7/32", None);
        rig.commit();
        assert_eq!(rig.leads("192.0.2.7"), Ok((0, 7)));
        rig.neighbor(1, "192.0.2.7", None);
        rig.commit();
        assert_eq!(rig.leads("192.0.2.7"), Err(Verdict::Unresolved));
        rig.route(MAIN, "192.0.2.0/24", None);
        rig.commit();
        assert_eq!(rig.leads("192.0.2.7"), Err(Verdict::NoRoute));
        assert!(rig.plane.tables().all(|table| table.v4.rib().is_empty()));
    }
}

#[test]
fn several_ways_are_a_group_of_those_that_can_be_used() {
    for mut rig in both() {
        let both = to(&[(1, Some("192.0.2.1"), 1), (2, Some("192.0.2.2"), 3)]);
        rig.route(MAIN, "10.0.0.0/8", Some(&both));
        rig.commit();
        assert_eq!(rig.leads("10.0.0.1"), Err(Verdict::Unresolved), "no neighbor is resolved");
        let (hop, _) = rig.resolve(0, "10.0.0.1", 0);
        let wanted = [(1, ip("192.0.2.1")), (2, ip("192.0.2.2"))];
        assert_eq!(rig.plane.neighbors_of(hop, ip("10.0.0.1")), wanted);
        rig.neighbor(1, "192.0.2.1", Some(1));
        rig.commit();
        let shares = |rig: &mut Rig| {
            let mut shares = [0u32; 2];
            for flow in 0..4096u64 {
                let port = rig.resolve(0, "10.0.0.1", flow).1.port().unwrap();
                shares[usize::from(port)] += 1;
            }
            shares
        };
        assert_eq!(shares(&mut rig), [4096, 0]);
        rig.neighbor(2, "192.0.2.2", Some(2));
        rig.commit();
        assert_eq!(shares(&mut rig), [1024, 3072]);
        rig.plane.link(1, None);
        rig.commit();
        assert_eq!(shares(&mut rig), [0, 4096]);
        // After the removal of the route the group and its members release their hops.
        rig.route(MAIN, "10.0.0.0/8", None);
        for _ in 0..4 {
            rig.route(MAIN, "11.0.0.0/8", Some(&info(Target::Blackhole)));
            rig.commit();
        }
        assert_eq!(rig.plane.hops().count(), 1);
    }
}

#[test]
fn mtu_of_a_route_is_that_of_its_next_hops_unless_their_link_has_a_smaller_one() {
    for mut rig in both() {
        let with_mtu = |route: &RouteInfo, mtu| {
            let Target::Via(vias) = &*route.target else { unreachable!("a route by next hops") };
            let vias = vias.iter().map(|via| Via { mtu: Some(mtu), ..*via });
            info(Target::Via(vias.collect()))
        };
        let one = to(&[(1, Some("192.0.2.1"), 1)]);
        let two = to(&[(1, Some("192.0.2.1"), 1), (2, Some("192.0.2.2"), 1)]);
        rig.route(MAIN, "10.0.0.0/8", Some(&with_mtu(&one, 1300)));
        rig.route(MAIN, "11.0.0.0/8", Some(&one));
        rig.route(MAIN, "12.0.0.0/8", Some(&with_mtu(&one, 9000)));
        rig.route(MAIN, "13.0.0.0/8", Some(&with_mtu(&two, 1200)));
        rig.route(MAIN, "14.0.0.0/8", Some(&two));
        rig.commit();
        assert_eq!(rig.leads("10.0.0.1"), Err(Verdict::Unresolved));
        rig.neighbor(1, "192.0.2.1", Some(1));
        rig.neighbor(2, "192.0.2.2", Some(2));
        rig.commit();
        let mtus = ["10.0.0.1", "11.0.0.1", "12.0.0.1", "13.0.0.1", "14.0.0.1"].map(|address| {
            let of_flow = |rig: &mut Rig, flow| rig.resolve(0, address, flow).1.mtu();
            let mtu = of_flow(&mut rig, 0);
            assert!((0..64).all(|flow| of_flow(&mut rig, flow) == mtu), "{address}");
            mtu
        });
        assert_eq!(mtus, [1300, 1500, 1500, 1200, 1500]);
        rig.route(MAIN, "10.0.0.0/8", Some(&one));
        rig.commit();
        assert_eq!(rig.resolve(0, "10.0.0.1", 0).1.mtu(), 1500);
    }
}

#[test]
fn hops_behind_a_port_that_goes_down_change_before_the_next_commit() {
    for mut rig in both() {
        let group = to(&[(1, Some("192.0.2.1"), 1), (2, Some("192.0.2.2"), 1)]);
        rig.route(MAIN, "10.0.0.0/8", Some(&group));
        rig.route(MAIN, "11.0.0.0/8", Some(&to(&[(1, Some("192.0.2.1"), 1)])));
        rig.route(MAIN, "12.0.0.0/8", Some(&to(&[(2, Some("192.0.2.2"), 1)])));
        rig.neighbor(1, "192.0.2.1", Some(1));
        rig.neighbor(2, "192.0.2.2", Some(2));
        rig.commit();
        let commits = rig.plane.counts().commits;
        // The order of the kernel: first the link, then a message for each of its routes.
        rig.plane.link(1, Some(&Link { running: false, ..link(1) }));
        for flow in 0..100 {
            assert_eq!(rig.resolve(0, "10.0.0.1", flow).1.port(), Ok(1), "flow {flow}");
        }
        assert_eq!(rig.leads("11.0.0.1"), Err(Verdict::HostRoute));
        assert_eq!(rig.leads("12.0.0.1"), Ok((1, 2)));
        assert_eq!(rig.plane.counts().commits, commits, "no table was needed for it");
        rig.route(MAIN, "11.0.0.0/8", None);
        rig.commit();
        assert_eq!(rig.leads("11.0.0.1"), Err(Verdict::NoRoute));
        rig.plane.link(1, Some(&link(1)));
        rig.commit();
        let to_first = |flow| rig.resolve(0, "10.0.0.1", flow).1.port() == Ok(0);
        assert!((0..100).map(to_first).filter(|first| *first).count() > 20);
    }
}

#[test]
fn ports_have_the_routes_of_their_table() {
    for mut rig in both() {
        rig.neighbor(1, "192.0.2.1", Some(1));
        rig.neighbor(3, "192.0.2.3", Some(3));
        rig.route(MAIN, "10.0.0.0/8", Some(&to(&[(1, Some("192.0.2.1"), 1)])));
        rig.route(OTHER, "10.0.0.0/8", Some(&to(&[(3, Some("192.0.2.3"), 1)])));
        rig.route(77, "10.0.0.0/8", Some(&info(Target::Blackhole)));
        rig.commit();
        assert_eq!(rig.resolve(0, "10.0.0.1", 0).1.dst_mac(), mac(1));
        assert_eq!(rig.resolve(2, "10.0.0.1", 0).1.dst_mac(), mac(3));
        assert!(rig.plane.table(OTHER).is_some() && rig.plane.table(77).is_none());
    }
}

#[test]
fn a_host_route_of_ours_is_not_forgotten_for_one_in_another_table() {
    for mut rig in both() {
        rig.route(MAIN, "192.0.2.0/24", Some(&to(&[(1, None, 1)])));
        rig.neighbor(1, "192.0.2.7", Some(7));
        rig.commit();
        // Another table gets a route to the same address while the neighbor goes.
        rig.route(OTHER, "192.0.2.7/32", Some(&info(Target::Blackhole)));
        rig.neighbor(1, "192.0.2.7", None);
        rig.commit();
        assert_eq!(rig.leads("192.0.2.7"), Err(Verdict::Unresolved));
        assert_eq!(rig.plane.table(MAIN).unwrap().v4.rib().len(), 1);
        assert_eq!(rig.plane.table(OTHER).unwrap().v4.rib().len(), 1);
    }
}

#[test]
fn own_addresses_are_those_of_the_local_table() {
    for mut rig in both() {
        rig.commit();
        rig.route(LOCAL, "192.0.2.1/32", Some(&info(Target::Local)));
        rig.route(LOCAL, "192.0.2.255/32", Some(&info(Target::Broadcast)));
        rig.route(LOCAL, "2001:db8::1/128", Some(&info(Target::Local)));
        rig.route(LOCAL, "127.0.0.0/8", Some(&info(Target::Local)));
        assert!(rig.plane.commit().locals);
        let own = |rig: &mut Rig, address: u32| {
            let held = rig.ingresses.current().get(1).locals.holds_v4(address);
            rig.idle();
            held
        };
        assert!(own(&mut rig, 0xc000_0201) && own(&mut rig, 0xc000_02ff));
        assert_eq!(rig.plane.locals().len(), 3);
        rig.route(LOCAL, "192.0.2.1/32", None);
        assert!(rig.plane.commit().locals && !rig.plane.commit().locals);
        assert!(!own(&mut rig, 0xc000_0201));
    }
}

/// Rule 3 of the datapath: a hop is reused only when no worker can still have it.
#[test]
fn a_worker_in_the_middle_of_a_batch_never_sees_a_hop_change_its_meaning() {
    let by = |last: u8| to(&[(1, Some(&*format!("192.0.2.{last}")), 1)]);
    for commits in 1..=9 {
        for mut rig in both() {
            for last in 1..=9 {
                rig.neighbor(1, &format!("192.0.2.{last}"), Some(last));
            }
            rig.route(MAIN, "10.0.0.0/8", Some(&by(1)));
            rig.commit();
            // The worker looks up a hop, and is delayed before it reads the adjacency of the hop.
            let mut hop = [Hop::NONE];
            rig.tables.lookup_v4(0, &[0x0a00_0001], &mut hop);
            for at in 0..commits {
                rig.route(MAIN, "10.0.0.0/8", Some(&by(2 + at % 8)));
                rig.plane.commit();
            }
            assert_eq!(
                rig.adjacencies.current().get(hop[0]).dst_mac(),
                mac(1),
                "{commits} commits"
            );
            rig.commit();
            rig.commit();
            assert_eq!(rig.leads("10.0.0.1"), Ok((0, 2 + (commits - 1) % 8)));
        }
    }
}

/// A second table with the same routes takes a fraction of the memory of the first.
#[test]
fn tables_that_are_alike_share_their_memory() {
    let [mut apart, mut together] = both();
    let way = to(&[(1, Some("192.0.2.1"), 1)]);
    let mut bytes = Vec::new();
    for rig in [&mut apart, &mut together] {
        for table in [MAIN, OTHER] {
            for route in 0..20_000_u32 {
                let prefix =
                    format!("{}.{}.{}.0/24", 16 + (route >> 16), route >> 8 & 255, route & 255);
                rig.route(table, &prefix, Some(&way));
                // Every second route is a blackhole in both tables, so that routes do not merge.
                if route % 2 == 0 {
                    rig.route(table, &prefix, Some(&info(Target::Blackhole)));
                }
            }
        }
        rig.commit();
        let tables: Vec<_> = rig.plane.tables().collect();
        let of = |at: usize| tables[at].v4.footprint();
        bytes.push(if tables[0].v4.is_shared() { of(0) } else { of(0) + of(1) });
        let lookups = [0x1000_0101, 0x1000_0201].map(|address| tables[1].v4.lookup(address));
        assert_ne!(lookups[0], lookups[1]);
        assert_eq!(tables[1].v4.trace(0x1000_0101).0, lookups[0]);
    }
    assert!(!apart.plane.tables().any(|table| table.v4.is_shared()));
    assert!(together.plane.tables().all(|table| table.v4.is_shared() && table.v6.is_shared()));
    assert!(bytes[1] * 3 < bytes[0] * 2, "apart and together: {bytes:?} bytes");
}

#[test]
fn a_port_goes_by_the_table_that_the_rules_lead_to() {
    for mut rig in both() {
        rig.plane.rules(&ruled("eth2", 77));
        rig.tables = rig.plane.readers();
        rig.route(MAIN, "10.0.0.0/8", Some(&to(&[(1, Some("192.0.2.1"), 1)])));
        rig.route(77, "10.0.0.0/8", Some(&to(&[(2, Some("192.0.2.2"), 1)])));
        rig.neighbor(1, "192.0.2.1", Some(1));
        rig.neighbor(2, "192.0.2.2", Some(2));
        rig.commit();
        assert_eq!(rig.leads_from(0, "10.1.1.1"), Ok((0, 1)));
        assert_eq!(rig.leads_from(1, "10.1.1.1"), Ok((1, 2)));
        assert!(rig.ingresses.current().get(1).further, "main comes after it");
        assert!(!rig.ingresses.current().get(0).further);
        assert!(rig.plane.ports().iter().all(|port| port.rule_conflict.is_none()));
        // The running workers keep their tables: the port keeps its table, and `has_moved` reports
        // the change.
        rig.plane.rules(&ruled("eth2", 78));
        rig.commit();
        assert_eq!(rig.leads_from(1, "10.1.1.1"), Ok((1, 2)));
        let moved: Vec<_> = rig.plane.ports().iter().map(PlanePort::has_moved).collect();
        assert_eq!(moved, [false, true, false]);
        // The rule of the interface is removed, and then added again.
        rig.plane.rules(&ruled("eth9", 77));
        assert!(rig.plane.ports().get(2).is_some_and(PlanePort::has_moved));
        rig.plane.rules(&ruled("eth2", 77));
        assert!(rig.plane.ports().iter().all(|port| port.rule_conflict.is_none()));
    }
}

/// The rules select another table for packets of eth1, and the connected route is in the main
/// table: so a packet that arrives on eth2 finds the host.
#[test]
fn hosts_on_a_link_are_in_the_table_that_has_its_route() {
    for mut rig in both() {
        rig.plane.rules(&ruled("eth1", 77));
        rig.tables = rig.plane.readers();
        rig.route(MAIN, "192.0.2.0/24", Some(&to(&[(1, None, 1)])));
        rig.neighbor(1, "192.0.2.7", Some(7));
        rig.commit();
        assert_eq!(rig.leads_from(1, "192.0.2.7"), Ok((0, 7)));
        assert_eq!(rig.leads_from(0, "192.0.2.7"), Err(Verdict::NoRoute));
        rig.route(77, "192.0.2.0/25", Some(&to(&[(1, None, 1)])));
        rig.commit();
        assert_eq!(rig.leads_from(0, "192.0.2.7"), Ok((0, 7)));
        rig.route(MAIN, "192.0.2.0/24", None);
        rig.commit();
        assert_eq!(rig.leads_from(1, "192.0.2.7"), Err(Verdict::NoRoute));
        assert_eq!(rig.leads_from(0, "192.0.2.7"), Ok((0, 7)));
    }
}

#[test]
fn link_with_another_mac_and_mtu_is_used_with_the_next_commit() {
    for mut rig in both() {
        rig.route(MAIN, "10.0.0.0/8", Some(&to(&[(1, Some("192.0.2.1"), 1)])));
        rig.neighbor(1, "192.0.2.1", Some(7));
        rig.commit();
        rig.plane.link(1, Some(&Link { mtu: 1280, mac: Some(mac(0x99)), ..link(1) }));
        assert!(rig.plane.take_port_changes() && !rig.plane.take_port_changes());
        rig.commit();
        let (_, adjacency) = rig.resolve(0, "10.1.1.1", 0);
        assert_eq!((adjacency.src_mac(), adjacency.mtu()), (mac(0x99), 1280));
        assert_eq!(rig.ingresses.current().get(0).mac, Some(mac(0x99)));
        assert_eq!(rig.ingresses.current().get(1).mac, Some(mac(0x12)));
        // A new name does not change the forwarding.
        rig.plane.link(1, Some(&Link { name: "wan0".to_owned(), mtu: 1280, ..link(1) }));
        rig.commit();
        assert_eq!(rig.leads("10.1.1.1"), Ok((0, 7)));
        let port = rig.plane.ports().get(1).unwrap();
        assert_eq!((&*port.name, &*port.configured), ("wan0", "eth1"));
    }
}

#[test]
fn device_made_again_is_the_port_once_workers_have_sockets_on_it() {
    for mut rig in both() {
        let through = |interface| to(&[(interface, Some("192.0.2.1"), 1)]);
        rig.route(MAIN, "10.0.0.0/8", Some(&through(1)));
        rig.neighbor(1, "192.0.2.1", Some(7));
        rig.commit();
        rig.plane.link(1, None);
        rig.commit();
        assert!(rig.plane.ports().has_gone());
        assert_eq!(rig.leads("10.1.1.1"), Err(Verdict::HostRoute), "the kernel's");
        // A device with another name, and the device of an existing port.
        let named = |name: &str| Link { name: name.to_owned(), ..link(1) };
        let (wan, next, taken) = (named("wan0"), named("eth1"), link(2));
        assert!(!rig.plane.adopt_devices([(8, &wan), (2, &taken)].into_iter()));
        assert!(rig.plane.adopt_devices([(2, &taken), (9, &next)].into_iter()));
        assert!(!rig.plane.ports().has_gone());
        rig.route(MAIN, "10.0.0.0/8", Some(&through(9)));
        rig.neighbor(9, "192.0.2.1", Some(7));
        rig.commit();
        assert_eq!(rig.leads("10.1.1.1"), Err(Verdict::HostRoute), "without sockets, too");
        rig.plane.set_served(&[true, true, true]);
        rig.commit();
        assert_eq!(rig.leads("10.1.1.1"), Ok((0, 7)));
        assert_eq!(rig.plane.ports().get(9).map(|port| &*port.configured), Some("eth1"));
    }
}

#[test]
fn device_of_a_kind_that_cannot_be_a_port_is_named() {
    let mut rig = Rig::new(0, false);
    for (kind, member_of, words) in [
        ("", "", None),
        ("veth", "vrf", None),
        ("bridge", "", None),
        ("bond", "", Some("a bond")),
        ("vlan", "", Some("a VLAN device")),
        ("macvlan", "", Some("a MAC-VLAN device")),
        ("ipvlan", "", Some("an IP-VLAN device")),
        ("", "bond", Some("member of a bond")),
        ("veth", "bridge", Some("member of a bridge")),
    ] {
        let (kind, member_of) = (kind.to_owned(), member_of.to_owned());
        rig.plane.link(1, Some(&Link { kind, member_of, ..link(1) }));
        let unfit = rig.plane.ports().get(1).unwrap().unfit.clone();
        match (words, unfit) {
            (None, None) => {}
            (Some(words), Some(unfit)) => {
                assert!(unfit.starts_with("eth1 is ") && unfit.contains(words), "{unfit}");
                assert!(unfit.ends_with("its packets are left to Linux"), "{unfit}");
            }
            (words, unfit) => panic!("{words:?}: {unfit:?}"),
        }
    }
}

/// The kernel moves the addresses of an interface into the table of the VRF that it joins.
#[test]
fn port_put_into_a_vrf_is_led_to_its_table_and_back_when_taken_out() {
    for mut rig in both() {
        let rule = Rule::all;
        let rules = [
            rule(0, Action::Table(LOCAL)),
            rule(1000, Action::Vrf),
            rule(32766, Action::Table(MAIN)),
        ];
        rig.plane.rules(&rules);
        rig.commit();
        let vrf = |table| Link { kind: "vrf".to_owned(), table: Some(table), ..link(9) };
        rig.plane.link(9, Some(&vrf(30)));
        let moved = |rig: &Rig| rig.plane.ports().get(1).unwrap().has_moved();
        rig.plane.take_port_changes();
        assert!(!moved(&rig));
        rig.plane.link(1, Some(&Link { master: Some(9), member_of: "vrf".to_owned(), ..link(1) }));
        assert!(moved(&rig) && rig.plane.take_port_changes());
        rig.plane.link(1, Some(&link(1)));
        assert!(!moved(&rig) && rig.plane.take_port_changes(), "it is out again");
        // The VRF device is removed while the port is its member.
        rig.plane.link(1, Some(&Link { master: Some(9), ..link(1) }));
        rig.plane.link(9, None);
        assert!(!moved(&rig));
    }
}

/// A host in another VRF may have an address that is the router's own in this one.
#[test]
fn own_source_is_refused_in_the_vrf_of_its_interface() {
    for mut rig in both() {
        let vrf = Link { kind: "vrf".to_owned(), table: Some(30), ..link(9) };
        rig.plane.link(9, Some(&vrf));
        rig.plane.link(2, Some(&Link { master: Some(9), member_of: "vrf".to_owned(), ..link(2) }));
        let own = [0xc000_0201_u32, 0xc633_6401];
        for (index, address) in [(1, own[0]), (2, own[1])] {
            let (secondary, scope, deprecated, tentative) = (false, 0, false, false);
            let address = IpAddr::from(address.to_be_bytes());
            let length = 24;
            let view =
                AddressView { index, address, length, secondary, scope, deprecated, tentative };
            rig.plane.address(&view, AddressChange::Set);
        }
        for (refuses, want) in [(true, [[true, false], [false, true]]), (false, [[false; 2]; 2])] {
            rig.plane.set_checks_input(refuses);
            rig.commit();
            let ingresses = rig.ingresses.current();
            let refused = |port| own.map(|own| ingresses.get(port).locals.holds_source_v4(own));
            assert_eq!([refused(0), refused(1)], want);
        }
    }
}

#[test]
fn own_address_in_a_followed_table_is_own_as_one_in_the_local_table_is() {
    for mut rig in both() {
        let own = info(Target::Local);
        rig.route(OTHER, "10.0.0.1/32", Some(&own));
        rig.route(LOCAL, "10.0.0.1/32", Some(&own));
        rig.route(OTHER, "2001:db8::1/128", Some(&own));
        rig.route(OTHER, "10.0.0.2/32", Some(&to(&[(3, Some("192.0.2.1"), 1)])));
        rig.commit();
        assert_eq!(rig.plane.locals(), [ip("10.0.0.1"), ip("2001:db8::1")]);
        assert!(rig.ingresses.current().get(2).locals.holds_v4(0x0a00_0001));
        rig.route(LOCAL, "10.0.0.1/32", None);
        rig.route(OTHER, "2001:db8::1/128", None);
        rig.commit();
        assert_eq!(rig.plane.locals(), [ip("10.0.0.1")]);
        rig.route(OTHER, "10.0.0.1/32", Some(&to(&[(3, Some("192.0.2.1"), 1)])));
        rig.commit();
        assert_eq!(rig.plane.locals(), Vec::<IpAddr>::new());
    }
}

#[test]
fn port_has_the_filter_of_the_configuration_or_else_that_of_the_kernel() {
    use ReversePathFilter::{Loose, Off, Strict};
    for mut rig in both() {
        let filtering = |rp_filter| InterfaceSettings { rp_filter, ..InterfaceSettings::default() };
        let filters = |rig: &mut Rig| {
            rig.commit();
            let ingresses = rig.ingresses.current();
            [0, 1, 2].map(|port| ingresses.get(port).sources)
        };
        assert_eq!(filters(&mut rig), [[Off, Off]; 3]);
        rig.plane.settings(1, filtering(RpFilter::Strict));
        rig.plane.settings(3, filtering(RpFilter::Loose));
        assert_eq!(filters(&mut rig), [[Strict, Off], [Off, Off], [Loose, Off]]);
        rig.plane.set_sources(&[Some(Loose), Some(Strict), Some(Off)]);
        assert_eq!(filters(&mut rig), [[Loose, Loose], [Strict, Strict], [Off, Off]]);
        rig.plane.settings(1, filtering(RpFilter::Off));
        rig.plane.set_sources(&[None; 3]);
        assert_eq!(filters(&mut rig), [[Off, Off], [Off, Off], [Loose, Off]]);
    }
}

#[test]
fn forwarding_is_off_by_the_settings_of_the_interface_if_the_input_is_checked() {
    for mut rig in both() {
        let off = |rig: &mut Rig| {
            rig.commit();
            let ingresses = rig.ingresses.current();
            [0, 1, 2].map(|port| ingresses.get(port).forwarding_off)
        };
        let settings = InterfaceSettings { forwards_v4: false, ..InterfaceSettings::default() };
        rig.plane.settings(1, settings);
        assert_eq!(off(&mut rig), [[false; 2]; 3]);
        rig.plane.set_checks_input(true);
        assert_eq!(off(&mut rig), [[true, false], [false; 2], [false; 2]]);
        rig.plane.settings(3, InterfaceSettings { forwards_v6: false, ..settings });
        assert_eq!(off(&mut rig), [[true, false], [false; 2], [true; 2]]);
        rig.plane.settings(1, InterfaceSettings::default());
        assert_eq!(off(&mut rig), [[false; 2], [false; 2], [true; 2]]);
    }
}

#[test]
fn sysctls_change_the_flow_hash_and_not_its_seed() {
    for mut rig in both() {
        let mut hash_of = |flow_keys| {
            let icmp_limits = IcmpLimits::DEFAULT;
            rig.plane.set_sysctls(&Sysctls {
                icmp_limits,
                answers_from_inbound: false,
                keeps_priority: false,
                flow_keys,
            });
            rig.commit();
            *rig.adjacencies.current().flow_hash()
        };
        let before = hash_of([FlowKey::LAYER_4; 2]);
        assert_eq!((before.v4, before.v6), (FlowKey::LAYER_4, FlowKey::LAYER_4));
        let after = hash_of([FlowKey::LAYER_3, FlowKey::custom(0x30)]);
        let expect = FlowHash { v4: FlowKey::LAYER_3, v6: FlowKey::custom(0x30), ..before };
        assert_eq!(after, expect);
        // A setting of the priorities alone is published, too.
        let settings = |keeps_priority| Sysctls {
            icmp_limits: IcmpLimits::DEFAULT,
            answers_from_inbound: false,
            keeps_priority,
            flow_keys: [after.v4, after.v6],
        };
        for keeps_priority in [true, false] {
            rig.plane.set_sysctls(&settings(keeps_priority));
            rig.commit();
            assert!(!rig.adjacencies.current().clone().set_keeps_priority(keeps_priority));
        }
    }
}
