//! Tests of internal state, where lists and paths are released when they are no longer used, and of messages that
//! the golden files lack.

use std::net::IpAddr;

use fib::Prefix;

use super::{Mirror, Rib};
use crate::netlink::follower::NullFollower;
use crate::netlink::message::Messages;
use crate::netlink::uapi::{
    AF_INET, AF_INET6, IFLA_IFNAME, IFLA_INFO_DATA, IFLA_INFO_KIND, IFLA_LINKINFO,
    IFLA_VLAN_EGRESS_QOS, IFLA_VLAN_ID, IFLA_VLAN_INGRESS_QOS, IFLA_VLAN_QOS_MAPPING,
    NETCONFA_IFINDEX, NETCONFA_RP_FILTER, NLM_F_APPEND, NLM_F_REPLACE, RTA_DST, RTA_GATEWAY,
    RTA_OIF, RTA_PRIORITY, RTM_DELROUTE, RTM_NEWLINK, RTM_NEWNETCONF, RTM_NEWROUTE, RTN_UNICAST,
};
use crate::netlink::{
    AddressChange, AddressView, Follower, InterfaceSettings, Link, Neighbor, RouteInfo, Rule,
};

fn attribute(bytes: &mut Vec<u8>, kind: u16, value: &[u8]) {
    bytes.extend((value.len() as u16 + 4).to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
}

/// Writes a message about a route of which every part is a small number.
fn route(kind: u16, flags: u16, v6: bool, prefix: u8, metric: u32, gateway: u8) -> Vec<u8> {
    let mut bytes = vec![0; 16];
    let (family, length) = if v6 { (AF_INET6, 128) } else { (AF_INET, 32) };
    bytes.extend([family, length, 0, 0, 254, 3, 0, RTN_UNICAST, 0, 0, 0, 0]);
    let size = if v6 { 16 } else { 4 };
    let address = |last: u8| [vec![0x20; size - 1], vec![last]].concat();
    attribute(&mut bytes, RTA_DST, &address(prefix));
    attribute(&mut bytes, RTA_PRIORITY, &metric.to_ne_bytes());
    attribute(&mut bytes, RTA_GATEWAY, &address(gateway));
    attribute(&mut bytes, RTA_OIF, &u32::from(gateway % 3 + 1).to_ne_bytes());
    with_head(bytes, kind, flags)
}

/// Writes the header of a message, which has its place.
fn with_head(mut bytes: Vec<u8>, kind: u16, flags: u16) -> Vec<u8> {
    let length = bytes.len() as u32;
    bytes[..4].copy_from_slice(&length.to_ne_bytes());
    bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
    bytes[6..8].copy_from_slice(&flags.to_ne_bytes());
    bytes
}

fn apply(mirror: &mut Mirror, bytes: &[u8]) {
    for message in Messages::new(bytes) {
        mirror.apply(&message.unwrap(), &mut NullFollower).unwrap();
    }
}

/// Checks that exactly the lists and paths in use are stored.
fn check(mirror: &Mirror) {
    let v4 = mirror.v4.values().flat_map(Rib::iter).map(|(_, hop)| hop);
    let v6 = mirror.v6.values().flat_map(Rib::iter).map(|(_, hop)| hop);
    let mut had: Vec<_> = v4.chain(v6).collect();
    had.sort_unstable();
    had.dedup();
    let stored: Vec<_> = mirror.lists.iter().map(|(hop, _)| hop).collect();
    assert_eq!(had, stored);
    let mut paths: Vec<_> = mirror
        .lists
        .iter()
        .flat_map(|(_, list)| list.iter().map(|candidate| candidate.path))
        .collect();
    paths.sort_unstable();
    paths.dedup();
    assert_eq!(paths, mirror.lists.paths.iter().map(|(hop, _)| hop).collect::<Vec<_>>());
    for (_, list) in mirror.lists.iter() {
        assert!(list.is_sorted_by_key(|candidate| candidate.metric), "{list:?}");
    }
}

#[test]
fn unused_lists_and_paths_are_released() {
    let mut rng = fastrand::Rng::with_seed(5);
    let mut mirror = Mirror::new();
    for turn in 0..20_000 {
        let kind = if rng.u64(..2) == 0 { RTM_NEWROUTE } else { RTM_DELROUTE };
        let flags = [0, NLM_F_APPEND, NLM_F_REPLACE][rng.u64(..3) as usize];
        let (v6, prefix) = (rng.u64(..2) == 0, rng.u64(..6) as u8);
        let (metric, gateway) = (rng.u64(..3) as u32, rng.u64(..5) as u8);
        apply(&mut mirror, &route(kind, flags, v6, prefix, metric, gateway));
        if turn % 64 == 0 {
            check(&mirror);
        }
    }
    check(&mirror);
    assert!(mirror.lists.len() > 3);
    for v6 in [false, true] {
        for prefix in 0..6 {
            for metric in 0..3 {
                for gateway in 0..5 {
                    apply(&mut mirror, &route(RTM_DELROUTE, 0, v6, prefix, metric, gateway));
                }
            }
        }
    }
    check(&mirror);
    assert!(mirror.tables().is_empty(), "{mirror:?}");
    assert_eq!((mirror.lists.len(), mirror.lists.paths.len()), (0, 0));
}

#[test]
fn priorities_of_a_vlan_device_are_read() {
    let nested = |parts: &[(u16, &[u8])]| {
        let mut bytes = Vec::new();
        parts.iter().for_each(|(kind, value)| {
            attribute(&mut bytes, *kind, value);
            bytes.resize(bytes.len().next_multiple_of(4), 0);
        });
        bytes
    };
    let map = |pairs: &[(u32, u32)]| {
        let bytes: Vec<_> = pairs
            .iter()
            .map(|(from, to)| [from.to_ne_bytes(), to.to_ne_bytes()].concat())
            .collect();
        nested(&bytes.iter().map(|pair| (IFLA_VLAN_QOS_MAPPING, &pair[..])).collect::<Vec<_>>())
    };
    let data = nested(&[
        (IFLA_VLAN_ID, &30_u16.to_ne_bytes()),
        (IFLA_VLAN_EGRESS_QOS, &map(&[(6, 5), (77, 1)])),
        // The kernel has no priority 8 of a tag.
        (IFLA_VLAN_INGRESS_QOS, &map(&[(3, 6), (8, 1), (7, 77)])),
    ]);
    let info = nested(&[(IFLA_INFO_KIND, b"vlan\0"), (IFLA_INFO_DATA, &data)]);
    let mut bytes = vec![0; 32];
    bytes[20] = 9;
    bytes.extend(nested(&[(IFLA_IFNAME, b"inner\0"), (IFLA_LINKINFO, &info)]));
    let mut mirror = Mirror::new();
    apply(&mut mirror, &with_head(bytes, RTM_NEWLINK, 0));
    let vlan = mirror.links()[&9].vlan.clone().unwrap();
    assert_eq!((vlan.protocol, vlan.id), (0x8100, 30));
    assert_eq!(vlan.egress_priorities, [(6, 5), (77, 1)]);
    assert_eq!(vlan.ingress_priorities, [0, 0, 0, 6, 0, 0, 0, 77]);
}

#[test]
fn settings_without_an_index_are_of_no_interface() {
    for index in [None, Some(0), Some(7)] {
        let mut bytes = [vec![0; 16], vec![AF_INET, 0, 0, 0]].concat();
        if let Some(index) = index {
            attribute(&mut bytes, NETCONFA_IFINDEX, &i32::to_ne_bytes(index));
        }
        attribute(&mut bytes, NETCONFA_RP_FILTER, &2_u32.to_ne_bytes());
        let (mut mirror, mut changes) = (Mirror::new(), Settings::default());
        for message in Messages::new(&with_head(bytes, RTM_NEWNETCONF, 0)) {
            mirror.apply(&message.unwrap(), &mut changes).unwrap();
        }
        let expected = usize::from(index == Some(7));
        assert_eq!((changes.0, mirror.settings().len()), (expected, expected), "{index:?}");
    }
}

/// Counts the reports of settings.
#[derive(Default)]
struct Settings(usize);

impl Follower for Settings {
    fn route_v4(&mut self, _: u32, _: Prefix<u32>, _: Option<&RouteInfo>) {}
    fn route_v6(&mut self, _: u32, _: Prefix<u128>, _: Option<&RouteInfo>) {}
    fn link(&mut self, _: u32, _: Option<&Link>) {}
    fn address(&mut self, _: &AddressView, _: AddressChange) {}
    fn neighbor(&mut self, _: u32, _: IpAddr, _: Option<&Neighbor>) {}
    fn rules(&mut self, _: &[Rule]) {}
    fn settings(&mut self, _: u32, _: InterfaceSettings) {
        self.0 += 1;
    }
}
