//! Changes that are published while packets pass apply from the next batch on, and a family without
//! packets delays none of them.

use fib::{Choice, Hop, Prefix, Rib, Updater};
use fingerpost_datapath::{Adjacency, Tables, Verdict};

use crate::packets::OWN4;
use crate::packets::{v4, v6};
use crate::reference::RouteTarget;
use crate::rig::{Rig, adjacencies, hop, ingresses};

const HERE: u32 = 0xc000_0263;
const HERE6: u128 = 0x2001_0db8 << 96 | 0x63;

#[test]
fn a_neighbor_with_another_mac_and_link_is_reached_from_the_next_packet_on() {
    let mut rig = Rig::new();
    let there = v4(HERE, 0x0a00_0001);
    assert_eq!(rig.compare(std::slice::from_ref(&there)).sent(), 1);
    for (port, last) in [(1, 0x77), (2, 0x78), (1, 0x79)] {
        rig.model.gateways[0].dst_mac[5] = last;
        rig.model.gateways[0].port = port;
        rig.model.gateways[0].mtu = 60;
        let changed = adjacencies(&rig.model);
        rig.adjacencies.publish(Box::new(changed));
        assert_eq!(rig.compare(std::slice::from_ref(&there)).sent(), 1);
        // The worker was idle at the end, so the replaced adjacencies can be reclaimed.
        assert!(rig.adjacencies.reclaim().is_some());
    }
}

#[test]
fn own_addresses_come_and_go() {
    let mut rig = Rig::new();
    let (old, new) = (v4(HERE, OWN4), v4(HERE, 0x0a00_0001));
    let count = |rig: &mut Rig, verdict| rig.compare(&[old.clone(), new.clone()]).count(verdict);
    assert_eq!(count(&mut rig, Verdict::OwnAddress), 1);
    rig.model.tables[0].own4 = vec![0x0a00_0001, OWN4];
    rig.ingresses.publish(Box::new(ingresses(&rig.model)));
    assert_eq!(count(&mut rig, Verdict::OwnAddress), 2);
    rig.model.tables[0].own4 = vec![0x0a00_0001];
    rig.ingresses.publish(Box::new(ingresses(&rig.model)));
    assert_eq!(count(&mut rig, Verdict::OwnAddress), 1);
}

/// A worker that is never idle, with packets of one family, must release the other family's tables:
/// otherwise the third change would not be published.
#[test]
fn a_family_without_packets_holds_up_no_update() {
    let mut v4_routes = Rib::new();
    v4_routes.insert("10.0.0.0/8".parse().unwrap(), hop(RouteTarget::To(0)));
    let v4_table = Updater::<u32>::new(v4_routes, Choice::Auto, 1).unwrap();
    let mut v6_table = Updater::<u128>::new(Rib::new(), Choice::Auto, 1).unwrap();
    let tables = || Tables::single(v4_table.reader(), v6_table.reader());
    let mut rig = Rig::build(|_| tables(), |_, port| Box::new(port));
    let push = |rig: &mut Rig<Tables>, frame: &[u8]| {
        assert!(rig.far[0].send(frame));
        assert_eq!(rig.worker.poll(), 1, "the worker has something to do");
    };
    push(&mut rig, &v6(HERE6, HERE6));
    for number in 1..10u32 {
        push(&mut rig, &v4(HERE, 0x0a00_0001));
        v6_table.announce(Prefix::new(HERE6, 128).unwrap(), Hop(number));
        assert!(v6_table.commit().unwrap().published, "change {number}");
    }
}

#[test]
fn a_port_that_the_worker_does_not_have_is_no_route() {
    let mut rig = Rig::new();
    let mut changed = adjacencies(&rig.model);
    changed.set(hop(RouteTarget::To(0)), Adjacency::new(9, [2; 6], [2; 6], 1500));
    rig.adjacencies.publish(Box::new(changed));
    assert_eq!(rig.pass([v4(HERE, 0x0a00_0001)]).count(Verdict::NoRoute), 1);
}
