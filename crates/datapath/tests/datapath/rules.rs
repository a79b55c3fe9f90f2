//! Every rule: packets made for each verdict, random ones, and noise.

use crate::packets::{MAC, OWN4, OWN6};
use crate::packets::{arriving, draw_spoilt, ether, seal, sound, sound6, v4, v4_with, v6, v6_with};
use crate::rig::Rig;
use fastrand::Rng;
use fingerpost_datapath::{SIZE, Verdict, VerdictMap};
use port::{Arena, Frame, MemoryPort, Port, PortStats};
use wire::{ipv4, ipv6};

const HERE: u32 = 0xc000_0263;
const HERE6: u128 = 0x2001_0db8 << 96 | 0x63;

/// Makes a frame of 60 bytes with this EtherType for `dst`.
fn frame(dst: [u8; 6], kind: u16) -> Vec<u8> {
    let mut frame = vec![0; 60];
    ether(&mut frame, kind);
    frame[..6].copy_from_slice(&dst);
    frame
}

/// Changes a valid IPv4 frame and corrects its checksum.
fn changed(change: impl Fn(&mut Vec<u8>)) -> Vec<u8> {
    let mut frame = v4(HERE, 0x0a00_0001);
    change(&mut frame);
    seal(&mut frame);
    frame
}

/// Returns packets for every verdict that a packet alone can lead to.
fn made_by_hand() -> Vec<(Verdict, Vec<u8>)> {
    use Verdict::*;
    let group = |mut frame: Vec<u8>, mac: [u8; 6]| {
        frame[..6].copy_from_slice(&mac);
        frame
    };
    let four = sound();
    let six = sound6();
    let mapped = |low: u128| 0xffff << 32 | low;
    let mut six_version = v6(HERE6, HERE6 + 1);
    six_version[14] = 0x45;
    let mut six_long = v6(HERE6, HERE6 + 1);
    six_long[19] = 9;
    let mut flipped = v4(HERE, 0x0a00_0001);
    flipped[24] ^= 0x10;
    vec![
        (Sent, v4(HERE, 0x0a00_0001)),
        (Sent, v4(HERE, 0x0a01_0001)),
        (Sent, v4(HERE, 0x0a01_0280)),
        (Sent, v4_with(ipv4::Header { options: &[148, 4, 0, 0], ..four }, 0)),
        (Sent, v4_with(ipv4::Header { ttl: 2, ..four }, 100)),
        (Sent, v4_with(ipv4::Header { ttl: 255, protocol: 255, ..four }, 0)),
        (Sent, v4_with(ipv4::Header { total_len: 1500, ..four }, 0)),
        (Sent, v4_with(ipv4::Header { total_len: 20, ..four }, 0)),
        (Sent, v6(HERE6, 0x2001_0db8_0001_0002_8000 << 48)),
        (Sent, v6_with(ipv6::Header { hop_limit: 2, payload_len: 0, ..six }, 6)),
        (Sent, v6_with(ipv6::Header { payload_len: 1460, ..six }, 0)),
        (OwnAddress, v4(HERE, OWN4)),
        (OwnAddress, v4_with(ipv4::Header { dst: OWN4, ttl: 0, ..four }, 0)),
        (OwnAddress, v6(HERE6, OWN6)),
        (OwnAddress, v6(0xfe80 << 112 | 1, OWN6)),
        (Arp, frame([0xff; 6], 0x0806)),
        (Arp, frame(MAC, 0x0806)),
        (Multicast, v4(HERE, 0xe000_0001)),
        (Multicast, v6(0, 0xff02 << 112 | 1)),
        (Multicast, group(v4(HERE, 0xe000_0001), [1, 0, 0x5e, 0, 0, 1])),
        (Multicast, group(v6(HERE6, 0xff02 << 112 | 1), [0x33, 0x33, 0, 0, 0, 1])),
        (Broadcast, v4(0, u32::MAX)),
        (Broadcast, group(v4(HERE, 0x0a00_0001), [0xff; 6])),
        (Broadcast, group(v6(HERE6, HERE6 + 1), [0xff; 6])),
        (Tagged, frame(MAC, 0x8100)),
        (Tagged, frame(MAC, 0x88a8)),
        (Tagged, frame([0xff; 6], 0x8100)),
        (EtherType, frame(MAC, 0x88cc)),
        (EtherType, frame([1, 0x80, 0xc2, 0, 0, 0], 0x0026)),
        (Runt, vec![]),
        (Runt, v4(HERE, 0x0a00_0001)[..13].to_vec()),
        (NotOurs, frame([2, 0, 0, 0, 1, 1], 0x0800)),
        (NotOurs, frame([2, 0, 0, 0, 1, 1], 0x0806)),
        (Truncated, v4(HERE, 0x0a00_0001)[..14].to_vec()),
        (Truncated, v4(HERE, 0x0a00_0001)[..14 + 19].to_vec()),
        (Truncated, v4(HERE, 0x0a00_0001)[..14 + 45].to_vec()),
        (Truncated, v6(HERE6, HERE6 + 1)[..14 + 39].to_vec()),
        (Truncated, six_long),
        (BadVersion, changed(|f| f[14] = 0x65)),
        (BadVersion, six_version),
        (BadHeaderLength, changed(|f| f[14] = 0x44)),
        (BadTotalLength, changed(|f| f[17] = 19)),
        (BadTotalLength, changed(|f| (f[14], f[17]) = (0x46, 20))),
        (BadChecksum, flipped),
        (SourceRoute, v4_with(ipv4::Header { options: &[131, 3, 4, 0], ..four }, 0)),
        (SourceRoute, v4_with(ipv4::Header { options: &[1, 137, 3, 4], ..four }, 0)),
        (MartianSource, v4(0, 0x0a00_0001)),
        (MartianSource, v4(OWN4, 0x0a00_0001)),
        (MartianSource, v4(u32::MAX, 0x0a00_0001)),
        (MartianSource, v6(0, HERE6)),
        (MartianSource, v6(mapped(0x0a00_0001), HERE6)),
        (MartianDestination, v4(HERE, 0)),
        (MartianDestination, v6(HERE6, 0)),
        (MartianDestination, v6(HERE6, mapped(0x0a00_0001))),
        (MulticastSource, v4(0xe000_0001, 0x0a00_0001)),
        (MulticastSource, v6(0xff02 << 112 | 1, HERE6)),
        (Loopback, v4(HERE, 0x7f00_0001)),
        (Loopback, v4(0x7f00_0001, 0x0a00_0001)),
        (Loopback, v6(HERE6, 1)),
        (Loopback, v6(1, HERE6)),
        (LinkLocal, v4(HERE, 0xa9fe_0001)),
        (LinkLocal, v6(HERE6, 0xfe80 << 112 | 1)),
        (LinkLocal, v6(0xfebf << 112 | 1, HERE6)),
        (TtlExpired, v4_with(ipv4::Header { ttl: 1, ..four }, 0)),
        (TtlExpired, v4_with(ipv4::Header { ttl: 0, ..four }, 0)),
        (TtlExpired, v6_with(ipv6::Header { hop_limit: 1, ..six }, 0)),
        (TtlExpired, v6_with(ipv6::Header { hop_limit: 0, ..six }, 0)),
        (NoRoute, v4(HERE, 0x0808_0808)),
        (NoRoute, v4(HERE, 1)),
        (NoRoute, v4(HERE, 0xf000_0001)),
        (Sent, v4(0xf000_0001, 0x0a00_0001)),
        (Sent, v4(1, 0x0a00_0001)),
        (Sent, v4(0xa9fe_0001, 0x0a00_0001)),
        (NoRoute, v6(HERE6, 0x2620_00fe << 96)),
        (Blackhole, v4(HERE, 0x0a01_0201)),
        (Blackhole, v6(HERE6, 0x2001_0db8_0001_0002 << 64)),
        (HostRoute, v4(HERE, 0x0a01_0309)),
        (HostRoute, v6(HERE6, 0x2001_0db8_0001_0003 << 64 | 9)),
        (TooBig, v4_with(ipv4::Header { total_len: 1501, flags: 2, ..four }, 0)),
        (TooBig, v4_with(ipv4::Header { total_len: 101, flags: 2, dst: 0xcb00_7107, ..four }, 0)),
        (TooBig, v6_with(ipv6::Header { payload_len: 1461, ..six }, 0)),
    ]
}

#[test]
fn packets_made_by_hand_end_as_the_rules_say() {
    let mut rig = Rig::new();
    for (at, (expect, frame)) in made_by_hand().into_iter().enumerate() {
        let counted = rig.compare(&[frame]);
        assert_eq!(counted.count(expect), 1, "packet {at}, {expect:?}: {counted:?}");
        assert_eq!(counted.received, 1);
    }
    // All of them in one batch as well.
    let all: Vec<_> = made_by_hand().into_iter().map(|(_, frame)| frame).collect();
    rig.compare(&all);
}

/// A port with no room to send and no host behind it.
struct Stubborn(MemoryPort);

impl Port for Stubborn {
    fn name(&self) -> &str {
        self.0.name()
    }
    fn mac(&self) -> [u8; 6] {
        self.0.mac()
    }
    fn mtu(&self) -> usize {
        self.0.mtu()
    }
    fn receive(&mut self, arena: &mut Arena, room: usize, out: &mut Vec<Frame>) -> usize {
        self.0.receive(arena, room, out)
    }
    fn transmit(&mut self, _: &mut Arena, _: &mut Vec<Frame>) -> usize {
        0
    }
    fn punt(&mut self, _: &Arena, _: &Frame) -> bool {
        false
    }
    fn flush(&mut self, arena: &mut Arena) {
        self.0.flush(arena);
    }
    fn stats(&self) -> PortStats {
        self.0.stats()
    }
    fn mode(&self) -> &'static str {
        "stubborn"
    }
}

#[test]
fn a_port_without_room_and_a_port_without_host_are_counted() {
    let mut rig = Rig::with_ports(|at, port| match at {
        2 => Box::new(port),
        _ => Box::new(Stubborn(port)),
    });
    let counted = rig.pass([
        v4(HERE, 0x0a00_0001),
        v4(HERE, 0x0a01_0001),
        v4(HERE, 0x0a00_0002),
        v4(HERE, OWN4),
    ]);
    assert_eq!(counted.count(Verdict::TxFull), 2);
    assert_eq!(counted.count(Verdict::Sent), 1);
    assert_eq!(counted.sent_bytes, 60, "what was behind the packet is cut off");
    assert_eq!(counted.count(Verdict::NoHost), 1);
    assert_eq!(counted.count(Verdict::OwnAddress), 0);
}

#[test]
fn a_full_ring_takes_what_fits() {
    // The far end's ring holds 1024 frames, and no reader empties it.
    let mut rig = Rig::new();
    let mut sent = 0;
    let mut full = 0;
    for _ in 0..6 {
        let counted = rig.pass((0..250).map(|_| v4(HERE, 0x0a00_0001)));
        sent += counted.sent();
        full += counted.count(Verdict::TxFull);
    }
    assert_eq!((sent, full), (1024, 1500 - 1024));
}

/// Returns whether punts.rs leads to a verdict.
fn is_of_punts(verdict: Verdict) -> bool {
    matches!(
        verdict,
        Verdict::Unreachable
            | Verdict::Oversize
            | Verdict::Options
            | Verdict::Redirect
            | Verdict::PuntLimit
    )
}

/// Returns whether icmp_errors.rs leads to a verdict, and no route of the model does.
fn is_of_icmp_errors(verdict: Verdict) -> bool {
    matches!(verdict, Verdict::Expired | Verdict::UnreachableRoute | Verdict::ProhibitRoute)
}

/// Returns whether access.rs leads to a verdict, and a port without access lists does not.
fn is_of_access_lists(verdict: Verdict) -> bool {
    matches!(verdict, Verdict::AclDenied | Verdict::AclPoliced)
}

/// Returns whether queues.rs leads to a verdict, and a port without a queue does not.
fn is_of_queues(verdict: Verdict) -> bool {
    matches!(verdict, Verdict::EgressQueueFull | Verdict::EgressQueueDelay)
}

#[test]
fn every_verdict_has_a_test_that_leads_to_it() {
    let made = made_by_hand();
    // Other tests lead to the verdicts of gates (crates/gatekeeper/tests/vantage), of grantors
    // (smoke/grantor_test.sh), of punts (punts.rs), of ICMP errors (icmp_errors.rs), of access lists
    // (access.rs) and of queues (queues.rs), and to those of a port's settings (sources.rs).
    let plain = |verdict: &Verdict| !verdict.is_gates() && !verdict.is_grantors();
    for verdict in Verdict::ALL.into_iter().filter(plain) {
        let by_hand = made.iter().any(|(expect, _)| *expect == verdict);
        let by_port = matches!(verdict, Verdict::TxFull | Verdict::NoHost);
        let by_port = by_port || matches!(verdict, Verdict::Spoofed | Verdict::ForwardingOff);
        let by_waiting = verdict == Verdict::Unresolved;
        // root_reload.rs of the router.
        let by_panic = verdict == Verdict::WorkerPanicked;
        // The tests of a port's own counters: losses.rs, and control.rs and root_start.rs of the
        // router.
        let by_port = by_port || verdict.is_ports();
        let by_punts = is_of_punts(verdict) || is_of_icmp_errors(verdict);
        let by_lists = is_of_access_lists(verdict) || is_of_queues(verdict);
        assert!(
            by_hand || by_waiting || by_port || by_punts || by_lists || by_panic,
            "no packet ends as {verdict:?}"
        );
    }
}

#[test]
fn drawn_and_spoilt_packets_end_as_in_the_model() {
    let mut rig = Rig::new();
    let mut met = VerdictMap::<u64>::default();
    for seed in 0..6_000 {
        let mut rng = Rng::with_seed(seed);
        let frames: Vec<_> = (0..rng.usize(1..=SIZE)).map(|_| draw_spoilt(&mut rng, 96)).collect();
        let port = rng.usize(..3);
        let frames: Vec<_> = frames.into_iter().map(|frame| arriving(frame, port)).collect();
        let counted = rig.compare_on(port, &frames);
        for (verdict, count) in counted.iter() {
            met[verdict] += count;
        }
    }
    // The random packets must reach every rule; otherwise the test proves little.
    for (verdict, &met) in met.iter() {
        let by_state = matches!(verdict, Verdict::TxFull | Verdict::NoHost | Verdict::Unresolved);
        let by_punts = is_of_punts(verdict) || is_of_icmp_errors(verdict);
        let by_state = by_state || by_punts || verdict.is_gates() || verdict.is_ports();
        let by_state = by_state || verdict.is_grantors() || is_of_access_lists(verdict);
        let by_state = by_state || is_of_queues(verdict);
        let by_state =
            by_state || matches!(verdict, Verdict::ForwardingOff | Verdict::WorkerPanicked);
        assert!(by_state || met >= 100, "{verdict:?} met {met} times");
    }
}

#[test]
fn noise_ends_as_in_the_model() {
    let mut rig = Rig::new();
    let mut rng = Rng::with_seed(1);
    for _ in 0..200 {
        let frames: Vec<_> = (0..200)
            .map(|_| {
                let mut frame = vec![0; rng.usize(..200)];
                rng.fill(&mut frame);
                if rng.bool() && frame.len() >= 15 {
                    frame[..6].copy_from_slice(&MAC);
                    frame[12..15].copy_from_slice(if rng.bool() {
                        &[8, 0, 0x45]
                    } else {
                        &[0x86, 0xdd, 0x60]
                    });
                }
                frame
            })
            .collect();
        rig.compare(&frames);
    }
}

#[test]
fn a_worker_out_of_frames_waits_and_loses_nothing() {
    // More packets than the arena has frames, and more than one batch.
    let mut rig = Rig::new();
    for _ in 0..1000 {
        assert!(rig.far[0].send(&v4(HERE, 0x0a00_0001)));
    }
    let mut received = 0;
    loop {
        let now = rig.worker.poll();
        assert!(now <= SIZE);
        received += now;
        if now == 0 {
            break;
        }
    }
    assert_eq!(received, 1000);
    let stats = rig.worker.stats().snapshot();
    assert!(stats.balanced());
    assert_eq!((stats.sent(), stats.batches), (1000, 4));
}
