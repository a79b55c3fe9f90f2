//! Frames to the MAC-VLAN devices over a port are the port's.

use fingerpost_datapath::{Ingress, Ingresses, PuntRates, Verdict};

use crate::packets::{MAC, OWN4, v4, v6};
use crate::rig::{Rig, ingresses};

const VIRTUAL: [u8; 6] = [0, 0, 0x5e, 0, 1, 5];
const HERE: u32 = 0xc000_0263;
/// A destination behind port 0, on which the packets of `pass` arrive.
const BACK: u32 = 0xc000_0201;
/// A destination behind another port.
const AWAY: u32 = 0x0a00_0001;

fn to_virtual(mut frame: Vec<u8>) -> Vec<u8> {
    frame[..6].copy_from_slice(&VIRTUAL);
    frame
}

fn with_secondary(rig: &Rig, macs: &[[u8; 6]]) -> Box<Ingresses> {
    let terms = ingresses(&rig.model);
    let port = |port: usize| {
        let secondary_macs = if port == 0 { macs.into() } else { [].into() };
        Ingress { secondary_macs, ..terms.get(port).clone() }
    };
    Box::new(Ingresses::new((0..3).map(port)))
}

#[test]
fn frame_to_a_secondary_mac_ends_like_one_to_the_ports_own() {
    let mut rig = Rig::new();
    let six = v6(0x2001_0db8 << 96 | 0x63, 0x2001_0db8_0001 << 80 | 9);
    let frames = [v4(HERE, AWAY), six, v4(HERE, OWN4), v4(HERE, 0)];
    let own = rig.pass(&frames);
    let own_sent: Vec<_> = rig.far.iter_mut().map(received).collect();
    let own_punted: Vec<_> = std::iter::from_fn(|| rig.hosts[0].take()).collect();
    assert!(own_sent.iter().flatten().count() > 0 && !own_punted.is_empty());

    let virtuals: Vec<_> = frames.iter().cloned().map(to_virtual).collect();
    let counted = rig.pass(&virtuals);
    assert_eq!(counted.count(Verdict::NotOurs), frames.len() as u64, "no such address");
    rig.ingresses.publish(with_secondary(&rig, &[[2, 0, 0, 0, 0, 7], VIRTUAL]));
    let counted = rig.pass(&virtuals);
    assert_eq!(counted, own);
    let sent: Vec<_> = rig.far.iter_mut().map(received).collect();
    assert_eq!(sent, own_sent);
    let punted: Vec<_> = std::iter::from_fn(|| rig.hosts[0].take()).collect();
    assert_eq!(punted, own_punted, "the kernel takes it on the port");
    assert!(punted.iter().all(|frame| frame[..6] == MAC));
    // Another port has none.
    assert_eq!(rig.pass_on(1, &virtuals).count(Verdict::NotOurs), frames.len() as u64);
}

fn received(far: &mut port::MemoryPort) -> Vec<Vec<u8>> {
    std::iter::from_fn(|| far.take()).collect()
}

#[test]
fn port_with_a_secondary_mac_sends_no_redirects() {
    let mut rig = Rig::new().with_punts(PuntRates { redirect: 100, ..PuntRates::ROUTER });
    assert_eq!(rig.pass([v4(HERE, BACK)]).count(Verdict::Redirect), 1);
    rig.ingresses.publish(with_secondary(&rig, &[VIRTUAL]));
    let counted = rig.pass([to_virtual(v4(HERE, BACK)), v4(HERE, BACK)]);
    assert_eq!((counted.count(Verdict::Redirect), counted.count(Verdict::Sent)), (0, 2));
    rig.ingresses.publish(with_secondary(&rig, &[]));
    assert_eq!(rig.pass([v4(HERE, BACK)]).count(Verdict::Redirect), 1);
}
