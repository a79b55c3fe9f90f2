//! Forged packets on the front: tunnels, and sources that are behind the gate.

use datapath::ReversePathFilter;
use wire::tunnel::{Ends, Header, Ports};

use super::*;
use crate::packets::OWN6;
use crate::packets::arriving;

/// Returns a frame to the gate's front with a forged tunnel packet.
fn tunneled(src: u32, dst: u32, dscp: u8, udp: Option<u16>) -> Vec<u8> {
    let inner = v4(0xc000_0205, PROTECTED);
    let udp = udp.map(|port| Ports::of(7, port));
    let header = Header { ends: Ends::V4 { src, dst }, dscp, hop_limit: 64, udp };
    let mut frame = inner[..14].to_vec();
    frame.resize(14 + header.len(), 0);
    frame.extend_from_slice(&inner[14..]);
    header.emit(&mut frame[14..]).unwrap();
    frame
}

#[test]
fn forged_tunnel_packet_reaches_no_grantor() {
    let mut rig = Rig::new(config("1gbit", ""));
    let mut sent = 0;
    for dscp in [0, 1, 2, 41] {
        for udp in [None, Some(6080)] {
            for (src, dst) in [(BACK4, GRANTOR), (0xc000_0205, GRANTOR), (BACK4, PROTECTED)] {
                rig.far[0].send(&tunneled(src, dst, dscp, udp));
                sent += 1;
            }
        }
    }
    rig.rest();
    assert_eq!(rig.count(Verdict::Forged), sent);
    assert_eq!(rig.counters.packets("forged"), sent);
    assert_eq!(rig.counters.packets("received"), sent);
    assert!(rig.far.iter_mut().all(|far| far.take().is_none()), "nothing leaves");
    rig.check();
}

#[test]
fn source_behind_the_gate_is_dropped_as_forged_and_others_are_not() {
    let mut rig = Rig::new(config("1gbit", "[allow]\nprefixes = [\"0.0.0.0/0\"]"));
    let six = 0x2001_0db8 << 96;
    for frame in [
        v4(OWN4, PROTECTED),
        v4(BACK4, PROTECTED),
        v4(GRANTOR, PROTECTED),
        v4(PROTECTED, PROTECTED + 1),
        v4(PROTECTED, 0xc633_6405),
        v4(PROTECTED, 0xc000_0201),
        v6(BACK6, six | 9),
        v6(GRANTOR6, six | 9),
        v6(six | 1, six | 9),
    ] {
        let before = rig.count(Verdict::Forged);
        rig.far[0].send(&frame);
        rig.rest();
        assert_eq!(rig.count(Verdict::Forged), before + 1);
    }
    let forged = rig.count(Verdict::Forged);
    assert!(rig.far.iter_mut().all(|far| far.take().is_none()), "nothing leaves");
    rig.far[0].send(&v4(0xac11_0001, PROTECTED));
    rig.rest();
    assert!(rig.far[1].take().is_some() && rig.count(Verdict::Forged) == forged);
    rig.check();
}

/// RFC 3704 before the gate: the gate never sees packets that the filter drops.
#[test]
fn reverse_path_filter_drops_before_the_gate_on_both_sides() {
    for (sources, [beside, missing]) in [
        (ReversePathFilter::Off, [true, true]),
        (ReversePathFilter::Loose, [true, true]),
        (ReversePathFilter::Strict, [false, true]),
    ] {
        let mut config = config("1gbit", "[tunnel]\nclamp_mss = true");
        config.fixed.front.sources = sources;
        config.fixed.back.sources = sources;
        let mut rig = Rig::new(config);
        // 198.51.100.0/24 is behind port 1, everything else behind port 0.
        for (source, passes) in [(0xc633_6407, beside), (0x0808_0808, missing)] {
            rig.far[0].send(&v4(source, PROTECTED));
            rig.rest();
            assert_eq!(rig.far[1].take().is_some(), passes, "{sources:?} {source:x}");
        }
        let refused = rig.count(Verdict::Spoofed);
        assert_eq!(refused, u64::from(!beside));
        assert_eq!(rig.counters.packets("received"), 2 - refused, "judged");
        for (source, passes) in
            [(0xc633_6407, true), (0x0808_0808, sources != ReversePathFilter::Strict)]
        {
            rig.far[1].send(&arriving(v4(source, 0xc000_0201), 1));
            rig.rest();
            assert_eq!(rig.far[0].take().is_some(), passes, "{sources:?} {source:x} from the back");
        }
        rig.far[0].send(&v6(OWN6, 0x2001_0db8 << 96));
        rig.rest();
        rig.check();
    }
}
