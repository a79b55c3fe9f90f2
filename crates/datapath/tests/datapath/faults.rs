//! Ports that lose, damage, truncate, duplicate, reorder and refuse frames: the counters still
//! balance, and only valid packets leave.

use fastrand::Rng;
use fingerpost_datapath::{Adjacency, Verdict, VerdictMap};
use port::Port;
use port::faulty::{Faults, Faulty};
use wire::{ethernet, ipv4, ipv6};

use crate::packets::draw_spoilt;
use crate::packets::header_checksum;
use crate::reference::RouteTarget;
use crate::rig::{Rig, adjacencies, hop};

/// Checks that a frame may leave the router: it has the MAC addresses of a gateway of the model, is
/// complete, and has a correct checksum and a TTL above 0.
fn sound(rig: &Rig, port: usize, frame: &[u8]) {
    let ether = ethernet::View::parse(frame).expect("a whole Ethernet header");
    let known = rig.model.gateways.iter().any(|gateway| {
        gateway.port == port && gateway.dst_mac == ether.dst() && gateway.src_mac == ether.src()
    });
    assert!(known, "MACs of a gateway of port {port}: {frame:02x?}");
    match ether.kind() {
        ethernet::IPV4 => {
            let packet = ipv4::View::parse(ether.payload()).expect("a whole packet");
            let header = &ether.payload()[..packet.header_len()];
            assert_eq!(usize::from(packet.checksum()), header_checksum(header));
            assert!(packet.ttl() >= 1);
        }
        ethernet::IPV6 => {
            let packet = ipv6::View::parse(ether.payload()).expect("a whole packet");
            assert!(packet.hop_limit() >= 1);
        }
        kind => panic!("a frame of kind {kind:04x} leaves"),
    }
}

#[test]
fn the_sums_hold_whatever_the_ports_do() {
    let faults = Faults {
        drop: 0.1,
        corrupt: 0.2,
        truncate: 0.1,
        duplicate: 0.1,
        reorder: 0.2,
        refuse: 0.3,
    };
    let mut ended = VerdictMap::<u64>::default();
    for seed in 0..100 {
        let mut rig =
            Rig::with_ports(|at, port| Box::new(Faulty::new(port, faults, 10 * seed + at as u64)));
        let mut rng = Rng::with_seed(seed);
        for _ in 0..4 {
            // Neighbors become unresolved and resolved again in between.
            let mut changed = adjacencies(&rig.model);
            for at in (0..4).filter(|_| rng.u8(..4) == 0) {
                changed.set(hop(RouteTarget::To(at)), Adjacency::unresolved(1));
            }
            rig.adjacencies.publish(Box::new(changed));
            for _ in 0..rng.usize(..7) {
                rig.worker.tick();
            }
            let frames: Vec<_> = (0..rng.usize(..500)).map(|_| draw_spoilt(&mut rng, 32)).collect();
            let sent = frames.len() as u64;
            // `pass` checks the balance and the return of every frame.
            let counted = rig.pass(frames);
            assert!(counted.received <= 2 * sent);
            let mut left = 0;
            for port in 0..3 {
                while let Some(frame) = rig.far[port].take() {
                    sound(&rig, port, &frame);
                    left += 1;
                }
            }
            assert_eq!(left, counted.sent(), "what is counted as sent has left");
            let mut punted = 0;
            while rig.hosts[0].take().is_some() {
                punted += 1;
            }
            assert_eq!(punted, counted.punted(), "what is counted as punted is with the host");
            for (verdict, count) in counted.iter() {
                ended[verdict] += count;
            }
        }
        rig.worker.close();
        let ports: Vec<_> = rig.worker.ports().map(Port::stats).collect();
        let all = rig.worker.stats().snapshot();
        assert!(all.balanced() && all.held == 0);
        assert_eq!(ports.iter().map(|port| port.received).sum::<u64>(), all.received);
        assert_eq!(ports.iter().map(|port| port.received_bytes).sum::<u64>(), all.received_bytes);
        assert_eq!(ports.iter().map(|port| port.transmitted).sum::<u64>(), all.sent());
        assert_eq!(ports.iter().map(|port| port.transmitted_bytes).sum::<u64>(), all.sent_bytes);
        assert_eq!(ports.iter().map(|port| port.punted).sum::<u64>(), all.punted());
    }
    for met in [Verdict::Sent, Verdict::TxFull, Verdict::BadChecksum, Verdict::Unresolved] {
        assert!(ended[met] > 100, "{met:?} met {} times", ended[met]);
    }
}
