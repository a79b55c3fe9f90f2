//! Tests of internal state: lists and paths are released when they are no longer used.

use super::{Mirror, Rib};
use crate::netlink::follower::NullFollower;
use crate::netlink::message::Messages;
use crate::netlink::uapi::{
    AF_INET, AF_INET6, NLM_F_APPEND, NLM_F_REPLACE, RTA_DST, RTA_GATEWAY, RTA_OIF, RTA_PRIORITY,
    RTM_DELROUTE, RTM_NEWROUTE, RTN_UNICAST,
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
